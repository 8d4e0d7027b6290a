//! The main loop's heartbeat, as Gleaner's other threads watch it: silence means that the loop hangs or was stopped.

use gleaner_model::Nanos;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Longest time between two beats of a loop that works.
pub(crate) const SILENT: Nanos = Nanos::from_secs(2);

/// Whether nobody has beaten for so long.
pub(crate) fn is_silent(heartbeat: &AtomicU64, at: Nanos) -> bool {
    at - Nanos(heartbeat.load(Relaxed)) > SILENT
}
