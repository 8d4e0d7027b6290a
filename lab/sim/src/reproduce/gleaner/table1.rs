//! Table 1: dedup natively, in a virtual machine, and beside another one.

use super::dedup;
use super::machine::{Neighbour, S, Setting, beginnings, config, matmul, run};
use super::streamcluster;
use crate::reproduce::calibration::Calibration;
use crate::reproduce::result::{Extent, ReproduceError, Reproduced, reproduced};
use gleaner_papers::Found;
use rayon::prelude::*;

/// Part of the input that is simulated; the rest would be the same.
fn part(extent: &Extent) -> f64 {
    if extent.smoke { 0.002 } else { 0.05 }
}

/// Run time of the whole input, seconds: a mean over beginnings.
pub(super) fn run_time(
    calibration: &Calibration,
    setting: Setting,
    cores: u32,
    extent: &Extent,
) -> Result<f64, ReproduceError> {
    let times: Result<Vec<f64>, ReproduceError> =
        beginnings(setting, extent).par_iter().map(|extent| run_time_of(calibration, setting, cores, extent)).collect();
    let times = times?;
    Ok(times.iter().sum::<f64>() / times.len() as f64)
}

fn run_time_of(
    calibration: &Calibration,
    setting: Setting,
    cores: u32,
    extent: &Extent,
) -> Result<f64, ReproduceError> {
    let part = part(extent);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few hundred")]
    let items = (dedup::ITEMS * part) as u64;
    let plan = dedup::Plan { calibration: calibration.dedup, items: Some(items) };
    let other = match setting {
        Setting::Shared { neighbour: Neighbour::Matmul, .. } => vec![matmul(cores)],
        // 16 threads on any number of cores, each with the same phase: of fewer cores, each has several.
        Setting::Shared { .. } => vec![streamcluster::workload(16, streamcluster::PHASE)],
        _ => Vec::new(),
    };
    let config = config(setting, cores, dedup::workload(&plan), other, extent.seed);
    let result = run("dedup", config)?;
    Ok(result.vms[0].wall_ns(result.end_ns) as f64 / S as f64 / part)
}

const fn shared(neighbour: Neighbour) -> Setting {
    Setting::Shared { gleaner: false, neighbour }
}

const DEDICATED: Setting = Setting::Dedicated { gleaner: false };

/// Each on so many cores.
const CASES: [(&str, Setting, &[u32]); 4] = [
    ("native", Setting::Native, &[1, 4, 16]),
    ("dedicated", DEDICATED, &[1, 4, 16]),
    ("beside streamcluster", shared(Neighbour::Streamcluster), &[4, 16]),
    ("beside matmul", shared(Neighbour::Matmul), &[4, 16]),
];

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let calibration = Calibration::read()?;
    let cases = CASES.iter().flat_map(|(name, setting, cores)| cores.iter().map(move |n| (*name, *setting, *n)));
    let cases: Vec<(&str, Setting, u32)> = cases.collect();
    let times: Result<Vec<f64>, ReproduceError> =
        cases.par_iter().map(|(_, setting, cores)| run_time(&calibration, *setting, *cores, extent)).collect();
    let times = times?;
    let time_of = |wanted: &str, on: u32| {
        let found = cases.iter().position(|(name, _, cores)| (*name, *cores) == (wanted, on));
        found.map_or(f64::NAN, |at| times[at])
    };
    let mut found = Found::default();
    for ((name, _, cores), time) in cases.iter().zip(&times) {
        let case = format!("{name}, {cores} cores");
        for base in ["native", "dedicated"] {
            found.put(format!("{case} against {base}"), time / time_of(base, *cores));
        }
        found.put(case, *time);
    }
    let parameters = [
        ("part of the input simulated, ratio", format!("{}", part(extent))),
        ("dedup", format!("{:?}", calibration.dedup)),
        ("host, shared", "CFS of Linux 3.9, a group for each VM, whose weight follows its load; HZ = 250".to_owned()),
    ];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value)).to_vec();
    Ok(reproduced("gleaner:table1", parameters, &found))
}
