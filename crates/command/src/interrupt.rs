//! Signals that tell a command to end, and sleeping until one comes.

use crate::ending;
use crate::failure::Failure;
use rustix::event::{PollFd, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A signal may come between the look at the flag and the sleep, or reach another thread: it is noticed this late at
/// most. Long, because whoever wakes often ends the slices of those whom it displaces.
const LONGEST_NAP: Duration = Duration::from_millis(200);

/// Set by SIGINT, SIGTERM and SIGHUP: the work then stops, and everything is undone as at any end.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // Before the flag: whoever sees that finds this. SAFETY: a number is stored, and nothing else is done.
        unsafe { signal_hook::low_level::register(signal, move || ending::told(signal)) }.map_err(Failure::work)?;
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(Failure::work)?;
    }
    Ok(flag)
}

/// The status of a command that [`flag`] has ended: 128+n after signal n, by which it ends in the end.
pub fn status() -> u8 {
    u8::try_from(128 + ending::signal()).unwrap_or(130)
}

/// Sleeps until then; `false` as soon as a signal has come.
pub fn sleep_until(due: Instant, interrupted: &AtomicBool) -> bool {
    while !interrupted.load(Ordering::Relaxed) {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        nap(left);
    }
    false
}

/// Sleeps so long, or shorter: a signal ends it, unlike `std::thread::sleep`.
pub fn nap(limit: Duration) {
    let nobody: &mut [PollFd<'_>] = &mut [];
    let limit = Timespec::try_from(limit.min(LONGEST_NAP)).unwrap_or_default();
    // The one failure there is, EINTR, is what is hoped for.
    let _ = poll(nobody, Some(&limit));
}
