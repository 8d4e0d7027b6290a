//! Beside the program until it ends: its signals, children, windows.

use super::signals::{Event, Relay};
use crate::failure::Failure;
use gleaner_model::Nanos;
use gleaner_runtime::Runtime;
use gleaner_runtime::event_loop::{self, Received, Task};
use std::ops::ControlFlow;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Without a runtime there is no window to wait for.
const NO_WINDOW: Duration = Duration::from_secs(3600);

/// Until the program ends. Says when that was: the last window's tick is not the program's time.
pub fn until_it_ends(
    child: &mut Child,
    events: &Receiver<Event>,
    runtime: Option<&mut Runtime>,
) -> Result<(ExitStatus, Instant), Failure> {
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let mut program = Program { child, pid, events, relay: Relay::to(pid), runtime };
    let first = program.next_window();
    // Whoever died before signals were listened to: their SIGCHLD is gone.
    program.reap_others();
    event_loop::run(&mut program, first)
}

/// The program, running.
struct Program<'a> {
    child: &'a mut Child,
    pid: i32,
    events: &'a Receiver<Event>,
    relay: Relay,
    runtime: Option<&'a mut Runtime>,
}

impl Task for Program<'_> {
    type Event = Received<Event>;
    type Outcome = Result<(ExitStatus, Instant), Failure>;

    fn wait_until(&mut self, due: Instant) -> Option<Self::Event> {
        event_loop::receive_until(self.events, due)
    }

    fn tick(&mut self, late: Nanos) -> ControlFlow<Self::Outcome, Duration> {
        if let Some(runtime) = &mut self.runtime {
            runtime.tick(late);
        }
        ControlFlow::Continue(self.next_window())
    }

    fn event(&mut self, event: Self::Event) -> ControlFlow<Self::Outcome, Option<Duration>> {
        match event {
            Received::Event(Event::Child) => self.child_changed(),
            Received::Event(Event::Burst) => {
                if let Some(runtime) = &mut self.runtime {
                    runtime.burst();
                }
                ControlFlow::Continue(None)
            }
            Received::Event(Event::Signal { signal, by_terminal }) => {
                self.relay.pass_on(signal, by_terminal);
                let was_stopped = matches!(signal, libc::SIGTSTP | libc::SIGCONT);
                let Some(runtime) = self.runtime.as_mut().filter(|_| was_stopped) else {
                    return ControlFlow::Continue(None);
                };
                runtime.skip();
                ControlFlow::Continue(Some(self.next_window()))
            }
            Received::Closed => {
                ControlFlow::Break(self.child.wait().map(|status| (status, Instant::now())).map_err(Failure::run))
            }
        }
    }
}

impl Program<'_> {
    /// How long until the next window.
    fn next_window(&self) -> Duration {
        self.runtime.as_ref().map_or(NO_WINDOW, |runtime| runtime.window_length().into())
    }

    fn child_changed(&mut self) -> ControlFlow<Result<(ExitStatus, Instant), Failure>, Option<Duration>> {
        match self.child.try_wait() {
            Err(error) => ControlFlow::Break(Err(Failure::run(error))),
            Ok(Some(status)) => {
                let ended = Instant::now();
                if let Some(runtime) = &mut self.runtime {
                    runtime.tick(Nanos::ZERO);
                }
                ControlFlow::Break(Ok((status, ended)))
            }
            Ok(None) => {
                self.reap_others();
                ControlFlow::Continue(None)
            }
        }
    }

    /// Reaps orphans that came to us, and notices a guardian that died.
    fn reap_others(&mut self) {
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
            if pid == 0 || pid == self.pid {
                return;
            }
            // SAFETY: the status is not wanted.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
            if let Some(runtime) = &mut self.runtime {
                runtime.child_ended(pid);
            }
        }
    }
}
