//! The command that runs while slices are held.

use crate::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

/// A command in progress.
pub struct Running {
    child: Child,
    told: bool,
}

impl Running {
    /// Starts it, if there is one.
    pub fn start(command: &[OsString]) -> Result<Option<Self>, Failure> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let child = Command::new(program).args(arguments).spawn().map_err(|error| {
            let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            Failure { status, message: format!("cannot run {}: {error}", program.to_string_lossy()) }
        })?;
        Ok(Some(Self { child, told: false }))
    }

    /// Its exit status, as a shell would say it, once it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok()??;
        Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }

    /// Tells it to end, once: Gleaner itself was told. Ctrl-C reaches it by itself, and a second signal does no harm.
    pub fn tell_to_end(&mut self) {
        if !std::mem::replace(&mut self.told, true) {
            let pid = i32::try_from(self.child.id()).unwrap_or(0);
            if pid > 0 {
                // SAFETY: kill takes no memory. The child has not been reaped, so its pid is its own.
                unsafe { libc::kill(pid, libc::SIGTERM) };
            }
        }
    }
}
