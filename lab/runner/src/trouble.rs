//! Errors of the test bed, and time limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why a scenario cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Bad usage or input: exit status 2.
    #[error("{0}")]
    Input(String),
    /// The work failed: exit status 1.
    #[error("{0}")]
    Work(String),
    /// A VM died or hangs.
    #[error("{what}")]
    Vm {
        /// In words, with its console's last lines.
        what: String,
        /// Whether the emulator, not the guest, is to blame: then it is booted again.
        emulator: bool,
    },
    /// SIGINT, SIGTERM or SIGHUP: exit status 130.
    #[error("interrupted")]
    Interrupted,
    /// The scenario's total time is up.
    #[error("the scenario's total_timeout was reached")]
    TimeUp,
}

impl Trouble {
    /// From anything that has words, with what was being done.
    pub fn work(doing: &str, error: impl std::fmt::Display) -> Self {
        Self::Work(format!("{doing}: {error}"))
    }
}

/// Says when to stop waiting: checked at least ten times a second by everything that waits.
#[derive(Clone, Debug)]
pub struct Patience {
    interrupted: Arc<AtomicBool>,
    end: Instant,
}

/// How long any wait lasts at most before it is checked again.
pub const TICK: Duration = Duration::from_millis(50);

impl Patience {
    /// Until `total` from now, or a signal.
    pub fn new(total: Duration) -> Result<Self, Trouble> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            // Asked twice, the runner ends at once; the VMs die with it.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
                .map_err(|error| Trouble::work("cannot listen for signals", error))?;
        }
        Ok(Self { interrupted, end: Instant::now() + total })
    }

    /// Whether to go on.
    pub fn check(&self) -> Result<(), Trouble> {
        if self.interrupted.load(Ordering::Relaxed) {
            Err(Trouble::Interrupted)
        } else if Instant::now() >= self.end {
            Err(Trouble::TimeUp)
        } else {
            Ok(())
        }
    }

    /// Sleeps, awake for signals.
    pub fn sleep(&self, duration: Duration) -> Result<(), Trouble> {
        let end = Instant::now() + duration;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(TICK));
        }
    }
}
