//! Helpers that several `gleaner host` commands use: sleep until a signal, the kernel's faults, who needs a ticker.

use gleaner_act::{SliceSupport, by_kernel, hrtick, tick};
use gleaner_command::interrupt::sleep_until;
use gleaner_model::Nanos;
use gleaner_observe::{KernelVersion, SliceIssue, slice_issues};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The longest that anything lasts, as humantime counts it.
pub const YEAR: Duration = Duration::from_secs(31_557_600);

/// A signal has told the command to end.
pub struct Interrupted;

/// Sleeps until then, or until the command is told to end: what each of these loops waits for.
pub fn interrupted_before(due: Instant, interrupted: &AtomicBool) -> Option<Interrupted> {
    (!sleep_until(due, interrupted)).then_some(Interrupted)
}

/// Known faults of this kernel that slices bring out, or that setting them does not cure.
pub fn kernel_notes() -> Vec<String> {
    let uname = rustix::system::uname();
    let Some(version) = KernelVersion::parse(&uname.release().to_string_lossy()) else { return Vec::new() };
    let told = |issue: &SliceIssue| ["stale-group-slices", "group-slice-overflow"].contains(&issue.id);
    slice_issues(version).into_iter().filter(told).map(|issue| format!("Linux {version}: {}", issue.text)).collect()
}

/// Tells of a slice whether it takes a ticker to end it in time here.
pub fn takes_ticker() -> impl Fn(Nanos) -> bool {
    let (support, hrtick, tick) = (SliceSupport::probe(), hrtick(Path::new("/sys")), tick());
    move |slice| by_kernel(slice, support, hrtick, tick).is_none()
}
