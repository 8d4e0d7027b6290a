//! What the tests of the laboratory share: starting it, and the product that it works with.

#![allow(dead_code, reason = "every test file uses its own part")]

#[path = "../../../../crates/cli/tests/common/process.rs"]
pub mod process;

pub use process::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The binary under test.
pub const LAB: &str = env!("CARGO_BIN_EXE_gleaner-lab");

/// `gleaner-lab` with these arguments.
pub fn lab<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(LAB);
    command.args(args).env_remove("GLEANER_LOG");
    command
}

/// The product, as it was built with this: a test of the whole workspace builds both.
pub fn gleaner() -> PathBuf {
    let binary = Path::new(LAB).with_file_name("gleaner");
    assert!(binary.is_file(), "{}: build it first (cargo build -p gleaner)", binary.display());
    binary
}
