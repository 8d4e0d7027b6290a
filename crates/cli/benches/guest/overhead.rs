//! What Gleaner costs a program that it cannot help: `sysbench cpu` with a thread per vCPU, off and on in interleaved
//! pairs, and the CPU time of observer and policy by number of threads.
//!
//! A run takes about four seconds (EVENTS changes it): a first step may come after 0.8 s and a first trial of retention
//! after one, so that runs of less would compare the settling of a policy with nothing.
//!
//! `cargo bench -p gleaner --bench guest -- overhead`; PAIRS=40 for more pairs. Needs sysbench. Prints ratios; passes
//! or fails nothing.

use crate::support::{GLEANER, gleaner_json, interval, median, run, setting};
use std::process::Command;

pub fn main() {
    cpu_bound(setting("PAIRS", 20), &format!("--events={}", setting("EVENTS", 16_000)));
    observing(setting("OBSERVE_SECONDS", 5));
}

/// Seconds that sysbench itself reports for a fixed number of events.
fn sysbench_cpu(under: &[&str], threads: &str, events: &str) -> f64 {
    let mut words: Vec<&str> = under.to_vec();
    words.extend(["sysbench", "cpu", "--cpu-max-prime=10000", events, "--time=0", threads, "run"]);
    let output = run(Command::new(words[0]).args(&words[1..]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("total time:")).expect("sysbench's total time");
    line.trim().trim_end_matches('s').parse().expect("seconds")
}

fn cpu_bound(pairs: usize, events: &str) {
    let threads = format!("--threads={}", std::thread::available_parallelism().map_or(1, usize::from));
    println!("\nsysbench cpu {threads} {events}, seconds off and on (policy full), {pairs} interleaved pairs");
    let off = || sysbench_cpu(&[], &threads, events);
    let on = || sysbench_cpu(&[GLEANER, "run", "--quiet", "--"], &threads, events);
    let mut ratios = Vec::new();
    off();
    for pair in 0..pairs {
        let on_first = fastrand::Rng::with_seed(pair as u64 + 77).bool();
        let (off, on) = if on_first {
            let on = on();
            (off(), on)
        } else {
            (off(), on())
        };
        ratios.push(on / off);
        println!("  pair {pair:>2}: off {off:.3} on {on:.3} ratio {:.4}", on / off);
    }
    println!("slow-down: median {:.4}, 95 % interval {}", median(&ratios), interval(&ratios, 4));
}

fn observing(seconds: usize) {
    println!(
        "\nCPU time of observer and policy, share of one CPU, by threads of the program (sysbench threads, {seconds} s)"
    );
    println!("  {:<9}{:>8}{:>12}{:>16}{:>14}", "observer", "threads", "windows/s", "cost/window us", "of one CPU");
    let time = format!("--time={seconds}");
    for observer in ["bpf", "procfs"] {
        for threads in [1, 16, 64, 256] {
            let count = format!("--threads={threads}");
            let report = gleaner_json(&[
                "run",
                "--quiet",
                "--retain-for",
                "1ms",
                "--observer",
                observer,
                "--",
                "sysbench",
                "threads",
                &count,
                &time,
                "run",
            ]);
            let number = |key: &str| report[key].as_f64().unwrap_or(f64::NAN);
            let (wall, cost, windows) = (number("wall_ns"), number("overhead_cpu_ns"), number("windows"));
            println!(
                "  {observer:<9}{threads:>8}{:>12.1}{:>16.0}{:>12.3} %",
                windows / wall * 1e9,
                cost / windows / 1e3,
                100.0 * cost / wall
            );
        }
    }
}
