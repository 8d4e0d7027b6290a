//! What the tests of the binary share: starting it, bounded waits, random moments, and looking at the machine.

#![allow(dead_code, reason = "every test file uses its own part")]

pub mod daemon;
pub mod machine;
pub mod process;
pub mod program;
pub mod seccomp;
pub mod terminal;
pub mod tmux;
pub mod unprivileged;
pub mod vm;

pub use process::*;
use std::path::Path;
use std::process::Command;

/// The binary under test.
pub const GLEANER: &str = env!("CARGO_BIN_EXE_gleaner");

/// `gleaner` with these arguments.
pub fn gleaner<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(GLEANER);
    command.args(args).env_remove("GLEANER_LOG").env_remove("GLEANER_RUN_ID");
    command
}

/// `gleaner run --retain-for 1ms ...`.
pub fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = gleaner(["run", "--retain-for", "1ms"]);
    command.args(args);
    command
}

/// This test's own pid.
pub fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

/// Random numbers that a seed reproduces (Knuth's MMIX generator; its low bits are poor and not used).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = self.below(all.len() as u64);
        &all[usize::try_from(index).unwrap()]
    }
}

/// Whether this test runs as root: a few things can be tried only then, and some only otherwise.
pub fn is_root() -> bool {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The file's text, or nothing.
pub fn text_of(path: impl AsRef<Path>) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// What is said of `run` with a program that lasts for so many seconds: first for a short time, then longer, until
/// Gleaner was there before the program ended. How long it takes to begin is the machine's affair.
pub fn lasting(run: impl Fn(&str) -> Said) -> Said {
    let came_late = |said: &Said| said.stderr.contains(", not observed") && !said.stderr.contains("unmanaged");
    let shorter = ["0.3", "2", "8"].into_iter().map(&run).find(|said| !came_late(said));
    shorter.unwrap_or_else(|| run("32"))
}
