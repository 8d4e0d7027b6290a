//! What retention does to a wake-up: setting B (kept awake), setting C (halted), and setting C's pattern under
//! `gleaner run --profile latency`, interleaved.
//!
//! `cargo bench -p gleaner --bench wakeup`; PAIRS, GAP_US and SAMPLES change it. Prints ratios; passes or fails nothing.

mod support;

use serde_json::Value;
use std::process::Command;
use support::{GLEANER, describe_machine, gleaner_json, measuring, median, run, setting};

fn main() {
    if !measuring() {
        return;
    }
    describe_machine();
    let (pairs, gap, samples) = (setting("PAIRS", 10), setting("GAP_US", 1000), setting("SAMPLES", 1000));
    println!("{pairs} interleaved rounds, gap {gap} us, {samples} wake-ups each; p50 / p99 in us");
    println!("  {:<6}{:>18}{:>18}{:>26}", "round", "B kept awake", "C halted", "C under run, latency");
    let (gap, samples) = (gap.to_string(), samples.to_string());
    let mut series: [Vec<(f64, f64)>; 3] = Default::default();
    for round in 0..pairs {
        let mut order = [0, 1, 2];
        fastrand::Rng::with_seed(round as u64).shuffle(&mut order);
        for kind in order {
            series[kind].push(measure(kind, &gap, &samples));
        }
        let show = |kind: usize| format!("{:.1} / {:.1}", series[kind][round].0, series[kind][round].1);
        println!("  {round:<6}{:>18}{:>18}{:>26}", show(0), show(1), show(2));
    }
    let middle = |kind: usize, pick: fn(&(f64, f64)) -> f64| median(&series[kind].iter().map(pick).collect::<Vec<_>>());
    let (p50, p99): (fn(&(f64, f64)) -> f64, fn(&(f64, f64)) -> f64) = (|pair| pair.0, |pair| pair.1);
    println!("medians of p50: B {:.1}, C {:.1}, run {:.1}", middle(0, p50), middle(1, p50), middle(2, p50));
    println!("medians of p99: B {:.1}, C {:.1}, run {:.1}", middle(0, p99), middle(1, p99), middle(2, p99));
    println!("C / B at p50: {:.2}", middle(1, p50) / middle(0, p50));
    println!("run / B at p50: {:.2}", middle(2, p50) / middle(0, p50));
    println!("C / run at p99: {:.2}", middle(1, p99) / middle(2, p99));
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
