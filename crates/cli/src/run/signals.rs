//! Signals during `run`: the program shall notice no difference.
//!
//! Gleaner and the program are one process group, as with time(1). What the terminal sends (Ctrl-C, Ctrl-Z) reaches both by itself;
//! what somebody sends to Gleaner alone is passed on.

use crate::failure::Failure;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::sync::mpsc::Sender;

/// Passed on when sent to us. SIGTTIN and SIGTTOU keep their default action: the terminal sends them to the whole group.
const PASSED_ON: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A child changed its state.
    Child,
    /// A signal for the program; `by_terminal`: it has it already.
    Signal { signal: i32, by_terminal: bool },
}

/// The signals of [`PASSED_ON`] that are ignored; to be asked before [`listen`].
pub fn ignored() -> Vec<i32> {
    let is_ignored = |signal: &i32| {
        // SAFETY: sigaction is plain data; a null new action only asks.
        unsafe {
            let mut current: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, std::ptr::null(), &raw mut current) == 0 && current.sa_sigaction == libc::SIG_IGN
        }
    };
    PASSED_ON.iter().copied().filter(is_ignored).collect()
}

/// Sends an [`Event`] for every signal from now on, except those that are to stay ignored.
pub fn listen(events: Sender<Event>, ignored: &[i32]) -> Result<(), Failure> {
    let wanted = PASSED_ON.iter().copied().filter(|signal| !ignored.contains(signal));
    let wanted: Vec<i32> = wanted.chain([libc::SIGCHLD]).collect();
    let mut signals = SignalsInfo::<WithOrigin>::new(&wanted).map_err(Failure::run)?;
    let forward = move || {
        for origin in signals.forever() {
            if events.send(event(&origin)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("gleaner-signals".into()).spawn(forward).map_err(Failure::run)?;
    Ok(())
}

fn event(origin: &Origin) -> Event {
    match origin.signal {
        libc::SIGCHLD => Event::Child,
        signal => Event::Signal { signal, by_terminal: matches!(origin.cause, Cause::Kernel) },
    }
}

/// Passes a signal on, and stops with the program when it is told to stop.
pub fn pass_on(signal: i32, by_terminal: bool, program: i32) {
    if !by_terminal {
        // SAFETY: kill takes no memory. The program may have ended: then there is nobody to tell.
        unsafe { libc::kill(program, signal) };
    }
    if signal == libc::SIGTSTP {
        // SAFETY: as above; the shell must see this process stopped, or it would wait for ever.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}
