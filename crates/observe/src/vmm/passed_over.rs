//! Processes that are no VM: whoever looks for VMs every second does not read every thread of every process every
//! second.
//!
//! A process that was no VM is passed over for a second at first, and twice as long each time, up to half a minute:
//! most become a VM soon after they start, or never. Whom KVM's debugfs names is not passed over. A
//! process id that is given to another process meanwhile is found when the rest is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first rest; as long as windows are by default.
const REST_MIN: Duration = Duration::from_secs(1);
/// The longest: a process that waits for its user's word (Firecracker's API) before it makes vCPUs is a VM no later.
const REST_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    length: Duration,
}

/// Processes that were no VM when they were looked at. Copies share them.
#[derive(Clone, Debug, Default)]
pub struct PassedOver(Arc<Mutex<BTreeMap<i32, Rest>>>);

impl PassedOver {
    /// Forgets processes that are gone; `pids` ascending.
    pub(super) fn keep(&self, pids: &[i32]) {
        self.resting().retain(|pid, _| pids.binary_search(pid).is_ok());
    }

    /// Whether `pid` was found to be none so short a time ago that it is not looked at now.
    pub(super) fn rests(&self, pid: i32, now: Instant) -> bool {
        self.resting().get(&pid).is_some_and(|rest| now < rest.until)
    }

    /// Notes what `pid` was found to be.
    pub(super) fn note(&self, pid: i32, is_vm: bool, now: Instant) {
        let mut resting = self.resting();
        if is_vm {
            resting.remove(&pid);
            return;
        }
        let length = resting.get(&pid).map_or(REST_MIN, |rest| (rest.length * 2).min(REST_MAX));
        resting.insert(pid, Rest { until: now + length, length });
    }

    fn resting(&self) -> MutexGuard<'_, BTreeMap<i32, Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_half_a_minute_and_end_with_the_process() {
        let passed = PassedOver::default();
        let mut now = Instant::now();
        for length in [1, 2, 4, 8, 16, 30, 30] {
            assert!(!passed.rests(7, now));
            passed.note(7, false, now);
            assert!(passed.rests(7, now + Duration::from_millis(length * 1000 - 1)), "{length} s");
            now += Duration::from_secs(length);
        }
        passed.note(7, false, now);
        // Copies share what is known.
        passed.clone().keep(&[1, 9]);
        assert!(!passed.rests(7, now));
        passed.note(7, false, now);
        passed.note(7, true, now);
        assert!(!passed.rests(7, now));
    }
}
