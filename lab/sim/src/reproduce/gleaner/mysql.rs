//! Figures 8 and 9: MySQL under SysBench's OLTP, and dedup, by connections and by virtual machines.
//!
//! | what | value | from |
//! | --- | --- | --- |
//! | threads | one of SysBench's and one of the server's a connection | MySQL: a thread a connection; section 7.2.2 |
//! | statements of a transaction | 18, each sent and answered | SysBench OLTP, advanced transactional |
//! | a statement's computation | 200 us | 16 cores, about 4,500 transactions a second in memory (published results of MySQL 5.5 and 5.6 of that time) |
//! | mutex of the storage engine | taken once a statement, for 1.2 us | "mutex contention in MySQL servers"; how long: micro-sliced paper, Table I |
//!
//! The third and fourth have no source that is a measurement of that program, so all of MySQL's rows count as
//! calibrated; none was fitted.

use super::dedup;
use super::machine::{CORES, Neighbour, S, Setting, Time, US, beginnings, config, counted, run};
use crate::program::{Builder, Op, Span, Workload};
use crate::reproduce::calibration::Calibration;
use crate::reproduce::result::{Extent, ReproduceError, Reproduced, reproduced};
use gleaner_papers::Found;
use rayon::prelude::*;

const STATEMENTS: u32 = 18;
const STATEMENT: Time = 200 * US;

/// Connections without end; an item is a transaction.
fn sysbench(connections: u32) -> Workload {
    let mut b = Builder::new();
    let engine = b.mutex();
    for connection in 0..connections {
        let (request, reply) = (2 * connection, 2 * connection + 1);
        let again = b.label_here();
        b.op(Op::Stamp);
        for _ in 0..STATEMENTS {
            b.op(Op::Post(request)).op(Op::Wait(reply));
        }
        b.op(Op::Done).jump(again);
        b.threads(1, 0);
        let again = b.label_here();
        b.op(Op::Wait(request)).op(Op::Compute(Span::Exponential { mean: STATEMENT }));
        b.op(Op::Lock(engine)).op(Op::Compute(Span::Fixed(super::locks::HELD))).op(Op::Unlock(engine));
        b.op(Op::Post(reply)).jump(again);
        b.threads(1, 0);
    }
    let mut workload = b.build();
    workload.shared.semaphores = 2 * connections;
    workload
}

/// What all virtual machines together do a second, and the mean response time in seconds: means over beginnings.
fn together(
    name: &str,
    workload: &Workload,
    vms: usize,
    gleaner: bool,
    extent: &Extent,
) -> Result<(f64, f64), ReproduceError> {
    let setting = Setting::Shared { gleaner, neighbour: Neighbour::Matmul };
    let all: Result<Vec<(f64, f64)>, ReproduceError> = beginnings(setting, extent)
        .par_iter()
        .map(|extent| together_once(name, workload, vms, setting, extent))
        .collect();
    let mean = |of: fn(&(f64, f64)) -> f64, all: &[(f64, f64)]| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let all = all?;
    Ok((mean(|one| one.0, &all), mean(|one| one.1, &all)))
}

fn together_once(
    name: &str,
    workload: &Workload,
    vms: usize,
    setting: Setting,
    extent: &Extent,
) -> Result<(f64, f64), ReproduceError> {
    let until = |end: Time| {
        let mut config = config(setting, CORES, workload.clone(), vec![workload.clone(); vms - 1], extent.seed);
        let managed = config.vms[0].gleaner.clone();
        config.vms.iter_mut().for_each(|vm| vm.gleaner.clone_from(&managed));
        config.end = end;
        let result = run(name, config)?;
        let items: u64 = result.vms.iter().map(|vm| vm.totals.items).sum();
        let waited: u64 = result.vms.iter().map(|vm| vm.totals.latency.sum().0).sum();
        Ok((items as f64, waited as f64 / S as f64))
    };
    let (from, to) = counted(extent.smoke, setting.gleaner());
    let (before, after): ((f64, f64), (f64, f64)) = (until(from)?, until(to)?);
    let items = after.0 - before.0;
    Ok((items / ((to - from) as f64 / S as f64), (after.1 - before.1) / items))
}

fn improvement(name: &str, workload: &Workload, vms: usize, extent: &Extent) -> Result<(f64, f64), ReproduceError> {
    let (off, waited) = together(name, workload, vms, false, extent)?;
    let (on, _) = together(name, workload, vms, true, extent)?;
    Ok(((on / off - 1.0) * 100.0, waited))
}

/// Figure 8's axis, as far as the text gives it: 48 down to 16, with the peak at 20.
const CONNECTIONS: [u32; 6] = [48, 40, 32, 24, 20, 16];

pub(super) fn fig8(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let improvements: Result<Vec<f64>, ReproduceError> = CONNECTIONS
        .par_iter()
        .map(|connections| Ok(improvement("mysql", &sysbench(*connections), 2, extent)?.0))
        .collect();
    let improvements = improvements?;
    let mut found = Found::default();
    found.list("connections", CONNECTIONS.map(|connections| connections.to_string()));
    for (connections, improvement) in CONNECTIONS.iter().zip(&improvements) {
        found.put(connections.to_string(), *improvement);
    }
    let (best, most) =
        CONNECTIONS.iter().zip(&improvements).max_by(|a, b| a.1.total_cmp(b.1)).unwrap_or((&0, &f64::NAN));
    found.put("largest", *most);
    found.put("connections of the largest", f64::from(*best));
    found.put("16 less 48", improvements[5] - improvements[0]);
    found.put("smallest", improvements.iter().copied().fold(f64::INFINITY, f64::min));
    Ok(reproduced("gleaner:fig8", parameters(), &found))
}

fn parameters() -> Vec<(String, String)> {
    [
        ("machine", "16 pCPUs, VMs of 16 vCPUs, none pinned; KVM costs of Table 2".to_owned()),
        ("statements of a transaction", STATEMENTS.to_string()),
        ("computation of a statement, us", (STATEMENT / US).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

pub(super) fn fig9(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let calibration = Calibration::read()?;
    let dedup = dedup::workload(&dedup::Plan { calibration: calibration.dedup, items: None });
    let programs = [("dedup", dedup), ("mysql", sysbench(20))];
    let plan: Vec<(usize, usize)> = (0..2).flat_map(|program| (2..=5).map(move |vms| (program, vms))).collect();
    let measured: Result<Vec<(f64, f64)>, ReproduceError> = plan
        .par_iter()
        .map(|(program, vms)| improvement(programs[*program].0, &programs[*program].1, *vms, extent))
        .collect();
    let measured = measured?;
    let alone = together("mysql", &programs[1].1, 1, false, extent)?.1;
    let (dedup, mysql) = measured.split_at(4);
    let mut found = Found::default();
    for (name, all) in [("dedup", dedup), ("mysql", mysql)] {
        for (vms, (improvement, _)) in (2..).zip(all) {
            found.put(format!("{name}, {vms}"), *improvement);
        }
        found.put(format!("{name}, mean"), all.iter().map(|one| one.0).sum::<f64>() / all.len() as f64);
    }
    found.put("largest", dedup.iter().map(|one| one.0 / 100.0 + 1.0).fold(0.0, f64::max));
    found.put("smallest", measured.iter().map(|one| one.0).fold(f64::INFINITY, f64::min));
    found.put("dedup, 4 less 2", dedup[2].0 - dedup[0].0);
    found.put("mysql, 5 less 2", mysql[3].0 - mysql[0].0);
    found.put("mysql, response time", mysql[3].1 / alone);
    Ok(reproduced("gleaner:fig9", parameters(), &found))
}
