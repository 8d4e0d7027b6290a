//! What the benchmarks share: running the binary, and honest statistics of interleaved pairs.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The binary under test.
pub const GLEANER: &str = env!("CARGO_BIN_EXE_gleaner");

/// A number from the environment, for longer or shorter runs.
pub fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a command to its end; a failure is a failure of the benchmark.
pub fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs `gleaner` with `--json FILE` put after the first argument; returns the JSON.
pub fn gleaner_json(arguments: &[&str]) -> Value {
    let file: PathBuf = std::env::temp_dir().join(format!("gleaner-bench-{}.json", std::process::id()));
    let (first, rest) = arguments.split_first().expect("a subcommand");
    run(Command::new(GLEANER).arg(first).arg("--json").arg(&file).args(rest));
    let text = std::fs::read_to_string(&file).expect("the result");
    std::fs::remove_file(&file).expect("removing the result");
    serde_json::from_str(&text).expect("JSON")
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// A 95 % percentile-bootstrap interval of the median. Deterministic: the same values give the same interval.
pub fn interval(values: &[f64]) -> (f64, f64) {
    let mut random = fastrand::Rng::with_seed(14);
    let mut medians: Vec<f64> = (0..10_000)
        .map(|_| median(&values.iter().map(|_| values[random.usize(..values.len())]).collect::<Vec<_>>()))
        .collect();
    medians.sort_by(f64::total_cmp);
    (medians[250], medians[9_749])
}

/// What the machine is, for whoever reads the figures later.
pub fn describe_machine() {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let cpus = read("/sys/devices/system/cpu/online");
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown CPU");
    let load = read("/proc/loadavg");
    println!("machine: {model}, CPUs {}, Linux {}, load {}", cpus.trim(), release.trim(), load.trim());
}
