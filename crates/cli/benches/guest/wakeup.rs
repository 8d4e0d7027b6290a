//! What retention does to a wake-up: setting B (kept awake), setting C (halted), and setting C's pattern under
//! `gleaner run --profile latency`, interleaved.
//!
//! `cargo bench -p gleaner --bench guest -- wakeup`; PAIRS, GAP_US and SAMPLES change it. Prints ratios; passes or fails nothing.

use crate::support::{GLEANER, gleaner_json, interval, median, run, setting};
use serde_json::Value;
use std::process::Command;

pub fn main() {
    let (pairs, gap, samples) = (setting("PAIRS", 10), setting("GAP_US", 1000), setting("SAMPLES", 1000));
    println!("{pairs} interleaved rounds, gap {gap} us, {samples} wake-ups each; p50 / p99 in us");
    println!("  {:<6}{:>18}{:>18}{:>26}", "round", "B kept awake", "C halted", "C under run, latency");
    let (gap, samples) = (gap.to_string(), samples.to_string());
    let mut series: [Series; 3] = Default::default();
    for round in 0..pairs {
        let mut order = [0, 1, 2];
        fastrand::Rng::with_seed(round as u64).shuffle(&mut order);
        for kind in order {
            let (p50, p99) = measure(kind, &gap, &samples);
            series[kind].p50.push(p50);
            series[kind].p99.push(p99);
        }
        let show = |kind: usize| format!("{:.1} / {:.1}", series[kind].p50[round], series[kind].p99[round]);
        println!("  {round:<6}{:>18}{:>18}{:>26}", show(0), show(1), show(2));
    }
    let [retained, halted, managed] = &series;
    for (name, series) in [("B", retained), ("C", halted), ("run", managed)] {
        println!("{name}: median of p50 {:.1}, median of p99 {:.1}", median(&series.p50), median(&series.p99));
    }
    compare("C / B at p50", &halted.p50, &retained.p50);
    compare("run / B at p50", &managed.p50, &retained.p50);
    compare("C / run at p99", &halted.p99, &managed.p99);
    compare("C / B at p99", &halted.p99, &retained.p99);
    println!("retention can at best reach B's p99: where C / B at p99 is below 5, no policy can show C / run of 5");
}

#[derive(Default)]
struct Series {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

/// The ratio of the medians, and the interval of the ratios within rounds.
fn compare(what: &str, over: &[f64], under: &[f64]) {
    let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    println!("{what}: {:.2} (within rounds: 95 % interval {})", median(over) / median(under), interval(&ratios, 2));
}

/// p50 and p99 in microseconds.
fn measure(kind: usize, gap: &str, samples: &str) -> (f64, f64) {
    let common = ["--gap-us", gap, "--samples", samples];
    let report: Value = match kind {
        0 => gleaner_json(&[&["probe", "--setting", "B"], &common[..]].concat()),
        1 => gleaner_json(&[&["probe", "--setting", "C"], &common[..]].concat()),
        _ => {
            let inner = [&[GLEANER, "probe", "--json", "--setting", "C"], &common[..]].concat();
            let output = run(Command::new(GLEANER).args(["run", "--quiet", "--profile", "latency", "--"]).args(inner));
            serde_json::from_slice(&output.stdout).expect("the probe's JSON")
        }
    };
    let value = |key: &str| report["settings"][0][key].as_f64().unwrap_or(f64::NAN) / 1e3;
    (value("p50_ns"), value("p99_ns"))
}
