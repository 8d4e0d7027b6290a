//! What retention does to a wake-up: setting B (kept awake), setting C (halted), and setting C's pattern under
//! `gleaner run --profile latency`, interleaved.
//!
//! `cargo bench -p gleaner --bench guest -- wakeup`; PAIRS, GAP_US and SAMPLES change it. Prints ratios; passes or
//! fails nothing.

use crate::support::{GLEANER, gleaner_json, interval, median, run, setting};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

pub fn main() {
    let (pairs, gap, samples) = (setting("PAIRS", 10), setting("GAP_US", 1000), setting("SAMPLES", 1000));
    println!("{pairs} interleaved rounds, gap {gap} us, {samples} wake-ups each; p50 / p99 in us");
    println!(
        "  {:<6}{:>18}{:>18}{:>26}{:>10}{:>8}{:>8}",
        "round", "B kept awake", "C halted", "C under run, latency", "stolen %", "trips", "s"
    );
    let (gap, samples) = (format!("{gap}us"), samples.to_string());
    let mut series: [Series; 3] = Default::default();
    for round in 0..pairs {
        let mut order = [0, 1, 2];
        fastrand::Rng::with_seed(round as u64).shuffle(&mut order);
        let began = Instant::now();
        for kind in order {
            series[kind].push(measure(kind, &gap, &samples));
        }
        let show = |kind: usize| format!("{:.1} / {:.1}", series[kind].p50[round], series[kind].p99[round]);
        let stolen: Vec<String> = series.iter().map(|series| format!("{:.0}", series.stolen[round])).collect();
        println!(
            "  {round:<6}{:>18}{:>18}{:>26}{:>10}{:>8}{:>8.1}",
            show(0),
            show(1),
            show(2),
            stolen.join(" "),
            series[2].guard_trips[round],
            began.elapsed().as_secs_f64()
        );
    }
    let [retained, halted, managed] = &series;
    for (name, series) in [("B", retained), ("C", halted), ("run", managed)] {
        let (p50, p99, stolen) = (median(&series.p50), median(&series.p99), median(&series.stolen));
        println!("{name}: median of p50 {p50:.1}, median of p99 {p99:.1}, median of what was stolen {stolen:.1} %");
    }
    compare("C / B at p50", &halted.p50, &retained.p50);
    compare("run / B at p50", &managed.p50, &retained.p50);
    compare("C / run at p99", &halted.p99, &managed.p99);
    compare("C / B at p99", &halted.p99, &retained.p99);
    println!("retention can at best reach B's p99: where C / B at p99 is below 5, no policy can show C / run of 5");
}

/// One setting, by round.
#[derive(Default)]
struct Series {
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// Of the waiter's vCPU meanwhile, as the hypervisor tells; percent.
    stolen: Vec<f64>,
    /// How often the contention guard stopped a yielding thread.
    guard_trips: Vec<u64>,
}

impl Series {
    /// Takes a probe's report, and what `run` says of it, if it ran it.
    fn push(&mut self, (report, managed): (Value, Value)) {
        let value = |key: &str| report["settings"][0][key].as_f64().unwrap_or(f64::NAN);
        self.p50.push(value("p50_ns") / 1e3);
        self.p99.push(value("p99_ns") / 1e3);
        self.stolen.push(value("steal_ratio") * 100.0);
        self.guard_trips.push(managed["guard_trips"].as_u64().unwrap_or(0));
    }
}

/// The ratio of the medians; the median of the ratios within rounds, and its interval. Where a tail comes and goes they
/// differ.
fn compare(what: &str, over: &[f64], under: &[f64]) {
    let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    let (of_medians, within) = (median(over) / median(under), median(&ratios));
    println!("{what}: {of_medians:.2} (within rounds: {within:.2}, 95 % interval {})", interval(&ratios, 2));
}

fn measure(kind: usize, gap: &str, samples: &str) -> (Value, Value) {
    let common = ["--gap", gap, "--samples", samples];
    match kind {
        0 => (gleaner_json(&[&["probe", "--setting", "B"], &common[..]].concat()), Value::Null),
        1 => (gleaner_json(&[&["probe", "--setting", "C"], &common[..]].concat()), Value::Null),
        _ => {
            let file = std::env::temp_dir().join(format!("gleaner-bench-run-{}.json", std::process::id()));
            let inner = [&[GLEANER, "probe", "--json", "--setting", "C"], &common[..]].concat();
            let mut command = Command::new(GLEANER);
            command.args(["run", "--quiet", "--profile", "latency", "--json"]).arg(&file).arg("--").args(inner);
            let output = run(&mut command);
            let managed = std::fs::read_to_string(&file).expect("what run reports");
            std::fs::remove_file(&file).expect("removing it");
            let json = |text: &[u8]| serde_json::from_slice(text).expect("JSON");
            (json(&output.stdout), json(managed.as_bytes()))
        }
    }
}
