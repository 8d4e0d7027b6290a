//! The command that runs while slices are held.

use gleaner_command::ending;
use gleaner_command::failure::Failure;
use gleaner_command::interrupt::nap_until_ready;
use gleaner_command::refusal::refusal;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at the command where the kernel does not tell when it ends (before Linux 5.3).
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A command in progress.
pub struct Running {
    child: Child,
    /// Ready to be read when it has ended.
    end: Option<OwnedFd>,
    told: bool,
}

impl Running {
    /// Starts it, if there is one.
    pub fn start(command: &[OsString]) -> Result<Option<Self>, Failure> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let child = Command::new(program).args(arguments).spawn().map_err(|error| {
            let refusal = refusal(command, &error);
            Failure { status: refusal.status, message: refusal.message }
        })?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let end = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Some(Self { child, end, told: false }))
    }

    /// Sleeps until `due`, until the command has ended, or until a signal that it has not had yet. It does not look in
    /// between: each look would end the slice of the thread that it displaces.
    pub fn sleep_until(&self, due: Instant, interrupted: &AtomicBool) {
        while self.told || !interrupted.load(Ordering::Relaxed) {
            let left = due.saturating_duration_since(Instant::now());
            let over = match &self.end {
                _ if left.is_zero() => true,
                Some(end) => nap_until_ready(end, left),
                None => {
                    std::thread::sleep(left.min(LOOK_EVERY));
                    true
                }
            };
            if over {
                return;
            }
        }
    }

    /// Its exit status, as a shell would say it, once it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok()??;
        ending::as_program(status);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How often this thread has gone to sleep.
    fn sleeps() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn its_end_is_waited_for_and_not_looked_for() {
        let command = ["sh", "-c", "sleep 1; exit 7"].map(OsString::from);
        let mut running = Running::start(&command).unwrap().unwrap();
        if running.end.is_none() {
            gleaner_testing::skip!("needs pidfds");
        }
        let before = sleeps();
        // An hour: only its end ends this.
        running.sleep_until(Instant::now() + Duration::from_secs(3600), &AtomicBool::new(false));
        let after = sleeps();
        assert_eq!(running.ended(), Some(7));
        assert!(after - before < 25, "{}", after - before);
    }

    #[test]
    fn it_ends_although_a_signal_has_come() {
        let mut running = Running::start(&["sleep", "3600"].map(OsString::from)).unwrap().unwrap();
        let interrupted = AtomicBool::new(true);
        let hour = Instant::now() + Duration::from_secs(3600);
        running.sleep_until(hour, &interrupted);
        assert_eq!(running.ended(), None);
        running.tell_to_end();
        running.sleep_until(hour, &interrupted);
        assert_eq!(running.ended(), Some(128 + libc::SIGTERM));
    }
}
