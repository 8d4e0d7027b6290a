//! Signals during `ab`: the run that is going on ends in order, and what was measured is told.

use crate::run::is_ignored;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What end a comparison early.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Whether somebody wants it to end, and whom to tell.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    signal: Arc<AtomicI32>,
    /// The run going on. Emptied before its pid is given back to the system.
    child: Arc<Mutex<Option<i32>>>,
}

impl Interrupt {
    /// Listens from now on; to signals that were ignored (nohup), not.
    pub fn listen() -> io::Result<Self> {
        let this = Self::default();
        let wanted: Vec<i32> = ENDING.into_iter().filter(|signal| !is_ignored(*signal)).collect();
        let mut signals = SignalsInfo::<WithOrigin>::new(&wanted)?;
        let heard = this.clone();
        let listen = move || {
            for origin in signals.forever() {
                heard.signal.store(origin.signal, Ordering::Relaxed);
                // What a terminal sends, it sends to the run too.
                if !matches!(origin.cause, Cause::Kernel) {
                    heard.end_child();
                }
            }
        };
        std::thread::Builder::new().name("gleaner-signals".into()).spawn(listen)?;
        Ok(this)
    }

    /// The signal that came, if one did.
    pub fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// Tells which run is going on. One that began while a signal came is told at once.
    pub fn set_child(&self, child: Option<i32>) {
        *self.child() = child;
        if self.signal().is_some() {
            self.end_child();
        }
    }

    fn child(&self) -> MutexGuard<'_, Option<i32>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `gleaner run` passes it on to the program and undoes what it changed.
    fn end_child(&self) {
        let child = self.child();
        if let Some(pid) = *child {
            // SAFETY: kill takes no memory; the pid is a child of ours that was not waited for.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
    }
}
