//! The program until it ends: its signals and its children. Nothing that Gleaner does beside it keeps these waiting.

use super::beside::{Beside, Order};
use super::signals::{Event, Listener, Relay};
use gleaner_command::failure::Failure;
use std::process::{Child, ExitStatus};
use std::time::Instant;

/// The program, running.
pub struct Program {
    child: Child,
    pid: i32,
    listener: Listener,
    relay: Relay,
}

impl Program {
    pub fn new(child: Child, listener: Listener) -> Self {
        let pid = i32::try_from(child.id()).unwrap_or(0);
        Self { child, pid, listener, relay: Relay::to(pid) }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Until it ends, and when that was; `None`: it runs on, then. `beside` is told what concerns it.
    pub fn wait(
        &mut self,
        until: Option<Instant>,
        beside: Option<&Beside>,
    ) -> Result<Option<(ExitStatus, Instant)>, Failure> {
        let tell = |order| {
            if let Some(beside) = beside {
                beside.tell(order);
            }
        };
        // Whoever died before signals were listened to: their SIGCHLD is gone.
        reap_others(self.pid, tell);
        while let Some(event) = self.listener.next(until) {
            match event {
                Event::Child => {
                    if let Some(status) = self.child.try_wait().map_err(Failure::run)? {
                        return Ok(Some((status, Instant::now())));
                    }
                    reap_others(self.pid, tell);
                }
                Event::Signal { signal, by_terminal } => {
                    self.relay.pass_on(signal, by_terminal);
                    if matches!(signal, libc::SIGTSTP | libc::SIGCONT) {
                        tell(Order::WasStopped);
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Reaps orphans that came to us, and a guardian that died.
fn reap_others(program: i32, tell: impl Fn(Order)) {
    loop {
        // SAFETY: siginfo is plain data, filled by the call; WNOWAIT leaves the child to whoever waits for it.
        let pid = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            if libc::waitid(libc::P_ALL, 0, &raw mut info, flags) != 0 {
                return;
            }
            info.si_pid()
        };
        // None, or the program itself, whose end the caller will see.
        if pid == 0 || pid == program {
            return;
        }
        // SAFETY: the status is not wanted.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        tell(Order::ChildEnded(pid));
    }
}
