//! The calibration file, which is part of the program: results do not depend on where it runs.

use super::result::ReproduceError;
use serde::Deserialize;

const FILE: &str = include_str!("../../calibration.toml");

/// Fitted values, each to the row that the file names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calibration {
    pub(super) dedup: Dedup,
    pub(super) cholesky: TaskQueue,
    pub(super) volrend: TaskQueue,
}

/// Of dedup's model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dedup {
    /// Computation of the whole native input, seconds.
    pub(super) work_s: f64,
}

/// Of a program with a queue of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskQueue {
    /// Mean computation of a task, microseconds.
    pub(super) task_us: f64,
}

impl Calibration {
    /// As it was committed.
    pub(super) fn read() -> Result<Self, ReproduceError> {
        toml::from_str(FILE).map_err(|error| ReproduceError::Data("calibration.toml", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read() {
        let calibration = Calibration::read().unwrap();
        assert!(calibration.dedup.work_s > 0.0 && calibration.volrend.task_us > 0.0);
    }
}
