//! What the commands of both binaries do alike: how they fail, where results go, files that are whole or not there,
//! signals, parameter files, what is said of commands that cannot be run. `gleaner` and `gleaner-lab` stand on it; it
//! knows no command.

pub mod args;
pub mod ending;
pub mod everywhere;
pub mod failure;
pub mod files;
pub mod interrupt;
pub mod log;
pub mod output;
pub mod params;
pub mod refusal;
pub mod results;
mod wait_for_reader;
