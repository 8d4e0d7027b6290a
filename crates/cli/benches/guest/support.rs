//! What the benchmarks share: running the binary, and statistics of interleaved pairs in words.

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

/// The median; nothing has none.
pub fn median(values: &[f64]) -> f64 {
    gleaner_stats::median(values).unwrap_or(f64::NAN)
}

/// The 95 % interval of the median, in words.
pub fn interval(values: &[f64], digits: usize) -> String {
    gleaner_stats::interval_of_median(values).map_or_else(
        || format!("none for fewer than {} values", gleaner_stats::FEWEST),
        |(low, high)| format!("{low:.digits$} to {high:.digits$}"),
    )
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
