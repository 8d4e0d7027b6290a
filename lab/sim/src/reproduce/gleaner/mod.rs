//! The Gleaner paper's results (USENIX ATC'14).

mod benchmarks;
mod dedup;
mod forkjoin;
mod locks;
mod machine;
mod matrix;
mod mysql;
mod slowdowns;
mod streamcluster;
mod table1;
mod table2;

use super::result::{Extent, ReproduceError, Reproduced};

/// `None`: not one of this paper's.
pub fn reproduce(id: &str, extent: &Extent) -> Option<Result<Reproduced, ReproduceError>> {
    match id {
        "gleaner:table1" => Some(table1::reproduce(extent)),
        "gleaner:table2" => Some(table2::reproduce()),
        "gleaner:fig1" => Some(slowdowns::fig1(extent)),
        "gleaner:fig2" => Some(slowdowns::fig2(extent)),
        "gleaner:fig5" => Some(slowdowns::fig5(extent)),
        "gleaner:fig7" => Some(slowdowns::fig7(extent)),
        "gleaner:fig8" => Some(mysql::fig8(extent)),
        "gleaner:fig9" => Some(mysql::fig9(extent)),
        _ => None,
    }
}

#[cfg(test)]
mod calibrating {
    //! How calibration.toml's values were found: the rows that they are fitted to, and no others.
    use super::machine::Setting;
    use super::*;
    use crate::reproduce::calibration::Calibration;

    const FULL: Extent = Extent { smoke: false, seed: 1 };

    #[test]
    #[ignore = "takes a minute; prints what calibration.toml was fitted to"]
    fn dedup() {
        let mut calibration = Calibration::read().unwrap();
        let fitted = calibration.dedup.work_s;
        for work_s in [fitted, fitted * 0.95, fitted * 1.05] {
            calibration.dedup.work_s = work_s;
            let time = table1::run_time(&calibration, Setting::Native, 1, &FULL).unwrap();
            println!("work {work_s} s: {time:.2} s, paper 23.5");
        }
    }

    #[test]
    #[ignore = "takes a minute; prints what calibration.toml was fitted to"]
    fn locks() {
        let mut calibration = Calibration::read().unwrap();
        let off = Setting::Dedicated { gleaner: false };
        for us in [1.0, 2.5, calibration.cholesky.task_us, 20.0, calibration.volrend.task_us, 40.0] {
            calibration.cholesky.task_us = us;
            let all = benchmarks::all().unwrap();
            let one: Vec<_> = all.into_iter().filter(|benchmark| benchmark.name == "cholesky").collect();
            let measured = matrix::measure(&one, &[Setting::Native, off], &calibration, &FULL).unwrap();
            let slowdown = measured[0].slowdown(off, Setting::Native);
            println!("task {us} us: {slowdown:.2}, paper 2.55 (cholesky), 1.35 (volrend)");
        }
    }
}
