//! The paper's Table I: how long programs wait for kernel locks, and how long they hold them.

use crate::engine::Time;

/// A line of Table I, microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub name: &'static str,
    pub wait: [f64; 2],
    pub hold: [f64; 2],
}

const fn line(name: &'static str, wait: [f64; 2], hold: [f64; 2]) -> Line {
    Line { name, wait, hold }
}

/// Alone, beside swaptions.
pub(super) const TABLE: [Line; 6] = [
    line("bodytrack", [6.73, 13_641.45], [7.88, 111.35]),
    line("canneal", [3.42, 5_765.86], [15.97, 1_165.09]),
    line("facesim", [8.86, 37_514.69], [8.43, 212.37]),
    line("fluidanimate", [0.59, 13_615.83], [3.44, 632.20]),
    line("raytrace", [2.93, 3_952.83], [5.52, 433.40]),
    line("streamcluster", [1.22, 3_197.97], [1.20, 120.98]),
];

/// How long a program's kernel sections are: its line's holding time alone, or the lines' mean.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "microseconds of a printed table")]
pub(super) fn hold_ns(name: &str) -> Time {
    let of = |line: &Line| line.hold[0] * 1_000.0;
    let mean = TABLE.iter().map(of).sum::<f64>() / TABLE.len() as f64;
    TABLE.iter().find(|line| line.name == name).map_or(mean, of) as Time
}
