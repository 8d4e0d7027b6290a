//! Table 1: dedup natively, in a virtual machine, and beside another one.

use super::dedup;
use super::machine::{Neighbour, S, Setting, beginnings, config, matmul, run};
use super::streamcluster;
use crate::reproduce::calibration::Calibration;
use crate::reproduce::{Basis, Extent, ReproduceError, Reproduced, Row};
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

const NATIVE: [(u32, f64); 3] = [(1, 23.5), (4, 7.1), (16, 7.6)];

struct Case {
    name: &'static str,
    setting: Setting,
    cores: u32,
    paper_s: f64,
    /// Against native and against dedicated on as many cores.
    slowdowns: [Option<f64>; 2],
    basis: Basis,
}

const fn shared(neighbour: Neighbour) -> Setting {
    Setting::Shared { gleaner: false, neighbour }
}

const DEDICATED: Setting = Setting::Dedicated { gleaner: false };

/// In the paper's order. Native on 1 core was used for calibration.
const CASES: [Case; 10] = {
    use Basis::{Calibrated, Predicted};
    const fn case(
        name: &'static str,
        setting: Setting,
        cores: u32,
        paper_s: f64,
        slowdowns: [Option<f64>; 2],
        basis: Basis,
    ) -> Case {
        Case { name, setting, cores, paper_s, slowdowns, basis }
    }
    [
        case("native", Setting::Native, 1, NATIVE[0].1, [None, None], Calibrated),
        case("native", Setting::Native, 4, NATIVE[1].1, [None, None], Predicted),
        case("native", Setting::Native, 16, NATIVE[2].1, [None, None], Predicted),
        case("dedicated", DEDICATED, 1, 26.4, [Some(1.1), None], Predicted),
        case("dedicated", DEDICATED, 4, 13.5, [Some(1.9), None], Predicted),
        case("dedicated", DEDICATED, 16, 46.9, [Some(6.2), None], Predicted),
        case("beside streamcluster", shared(Neighbour::Streamcluster), 4, 52.3, [Some(7.4), Some(3.9)], Predicted),
        case("beside streamcluster", shared(Neighbour::Streamcluster), 16, 81.6, [Some(10.7), Some(1.7)], Predicted),
        case("beside matmul", shared(Neighbour::Matmul), 4, 65.1, [Some(9.2), Some(4.8)], Predicted),
        case("beside matmul", shared(Neighbour::Matmul), 16, 577.2, [Some(75.9), Some(12.3)], Predicted),
    ]
};

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let calibration = Calibration::read()?;
    let times: Result<Vec<f64>, ReproduceError> =
        CASES.par_iter().map(|case| run_time(&calibration, case.setting, case.cores, extent)).collect();
    let times = times?;
    let time_of = |setting: Setting, cores: u32| {
        let found = CASES.iter().position(|case| case.setting == setting && case.cores == cores);
        found.map_or(f64::NAN, |at| times[at])
    };
    let mut rows = Vec::new();
    for (case, time) in CASES.iter().zip(&times) {
        let name = format!("{}, {} cores", case.name, case.cores);
        rows.push(Row::number(name.clone(), "run time s", case.paper_s, *time, case.basis));
        for ((slowdown, against), setting) in
            case.slowdowns.iter().zip(["native", "dedicated"]).zip([Setting::Native, DEDICATED])
        {
            if let Some(paper) = slowdown {
                let ratio = time / time_of(setting, case.cores);
                let metric = format!("against {against}, run_time_ratio");
                rows.push(Row::number(name.clone(), &metric, *paper, ratio, case.basis));
            }
        }
    }
    Ok(Reproduced {
        title: "dedup natively, in a virtual machine of its own pCPUs, and beside another virtual machine".to_owned(),
        parameters: vec![
            ("part of the input simulated, ratio".to_owned(), format!("{}", part(extent))),
            ("dedup".to_owned(), format!("{:?}", calibration.dedup)),
            (
                "host, shared".to_owned(),
                "CFS of Linux 3.9, a group for each VM, whose weight follows its load; HZ = 250".to_owned(),
            ),
        ],
        rows,
        notes: vec!["calibrated: native on 1 core (1 of 21 rows)".to_owned()],
    })
}
