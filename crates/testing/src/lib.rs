//! Tests that cannot run here say so, and are counted.
//!
//! A test that returns early passes, and nextest hides what it prints. So each appends a line to a file: `make test`
//! counts them by reason, and fails where one is not among those that are known on CI's machine ([`summary`]).

pub mod fuzz;
pub mod summary;

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Where skips are noted; without it, `target/skips` of this workspace.
pub const SKIPS_VARIABLE: &str = "GLEANER_SKIPS";

/// Ends this test, and says what this machine lacks for it. Reasons are counted, so the same lack has the same words;
/// what differs from machine to machine comes after a colon.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::skipped(format_args!($($reason)*));
        return;
    }};
}

/// Notes that this test is skipped, for a function that a test asks whether it can run.
pub fn skipped(reason: impl Display) {
    let line = line(&test(), &reason.to_string());
    eprintln!("\n*** SKIPPED: {line} ***\n");
    let file = std::env::var_os(SKIPS_VARIABLE).map_or_else(default_file, PathBuf::from);
    // In a guest there is no such folder: what it skips, its output tells.
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(file) {
        // One write, so that lines of tests that run side by side do not mix.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// Test and reason, on one line.
fn line(test: &str, reason: &str) -> String {
    let words: Vec<&str> = reason.split_whitespace().collect();
    format!("{test}\t{}", words.join(" "))
}

fn default_file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/skips"))
}

/// The binary and the test that runs, as nextest names them; without nextest the thread has the test's name.
fn test() -> String {
    let of_nextest = |name: &str| std::env::var(name).ok();
    if let (Some(binary), Some(test)) = (of_nextest("NEXTEST_BINARY_ID"), of_nextest("NEXTEST_TEST_NAME")) {
        return format!("{binary} {test}");
    }
    let binary = std::env::current_exe().ok();
    let binary = binary.as_deref().and_then(|path| path.file_stem()).unwrap_or_default().to_string_lossy();
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _hash)| name);
    format!("{binary} {}", std::thread::current().name().unwrap_or("?"))
}
