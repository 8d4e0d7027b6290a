//! Room to work where the first thread has none: reading the command line takes more stack than a hard `ulimit -s 64`
//! allows.
//!
//! That limit holds for the first thread alone. Another one's stack is mapped memory, of the size that is asked for.

use crate::run::signals::{Inherited, LEAST_STACK, block_all};
use gleaner_command::output::complain;
use gleaner_sys::{Limit, why_refused};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Bytes; the kernel's own default for a first thread.
const ENOUGH: usize = 8 << 20;
/// Gleaner's own trouble, in `run`.
const FAILED: u8 = 125;

/// Does `work` on this thread, or on another where the limit on this one's stack could not be lifted.
pub fn with_room(work: fn() -> ExitCode) -> ExitCode {
    let (stack, _) = Limit::STACK.now();
    if stack >= LEAST_STACK {
        return work();
    }
    match std::thread::Builder::new().name("gleaner-main".into()).stack_size(ENOUGH).spawn(work) {
        // It has said why it panicked. Whatever is sent to this process is for it.
        Ok(thread) => {
            block_all();
            thread.join().unwrap_or(ExitCode::from(FAILED))
        }
        Err(error) => {
            let why = format!(
                "the limit of {} KiB of stack (`ulimit -s`) is too small for Gleaner, and there is no other thread: {}",
                stack >> 10,
                why_refused(&error)
            );
            without_reading(&std::env::args_os().collect::<Vec<_>>(), &why)
        }
    }
}

/// There is no room to read the command line: a program of `run`, which stands behind the `--`, is executed all the
/// same.
fn without_reading(words: &[OsString], why: &str) -> ExitCode {
    let options = words.split(|word| word == "--").next().unwrap_or_default();
    let has = |wanted: &str| options.iter().skip(1).any(|word| word == OsStr::new(wanted));
    let program = words.get(options.len() + 1..).unwrap_or_default();
    if !has("run") || has("--strict") || program.is_empty() {
        complain("gleaner", why);
        return ExitCode::from(if has("run") || has("ab") { FAILED } else { 1 });
    }
    let error = crate::run::make_way(program, Inherited::now(), why);
    complain("gleaner", &error.message);
    ExitCode::from(error.status)
}
