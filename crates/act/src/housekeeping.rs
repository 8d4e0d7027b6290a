//! The housekeeping CPU: Gleaner's own thread runs on one vCPU, and not wherever the kernel's wake-up finds room.
//!
//! Ten times a second a thread that may run anywhere takes an idle vCPU, and the threads of a program that hands work
//! from one to the next are spread anew around it. A thread that did nothing but wake took a quarter of request-reply's
//! speed on four emulated vCPUs, and nothing that could be measured when it stayed on one (experiments/programs,
//! 2026-11-23).
//!
//! Only the calling thread's own mask is changed, so there is nothing to undo. Whoever wants to know what the process
//! may use asks the mask of its first thread, which is never pinned.

use crate::affinity::{affinity_of, allowed_cpus};
use gleaner_model::{CpuSet, VcpuId};
use gleaner_sys::set_affinity;
use std::time::{Duration, Instant};

/// For so long a vCPU on which the thread was kept waiting is avoided: whoever held it may be gone by then.
const AVOIDED_FOR: Duration = Duration::from_secs(10);

/// The vCPU that one thread keeps to. To be used by that thread alone.
#[derive(Debug)]
pub struct HousekeepingCpu {
    allowed: CpuSet,
    taken: Option<VcpuId>,
    /// Where the thread was last kept waiting, and when.
    avoided: Option<(VcpuId, Instant)>,
}

impl HousekeepingCpu {
    /// None yet, of the vCPUs that the thread may use.
    pub fn new(allowed: CpuSet) -> Self {
        Self { allowed, taken: None, avoided: None }
    }

    /// Keeps the calling thread to the last vCPU that is not active, else to the last without a `pinned` thread, else
    /// to the last. To be asked now and then: the kernel moves a thread off a vCPU that goes offline.
    pub fn pin(&mut self, active: &CpuSet, pinned: &CpuSet) {
        self.avoided = self.avoided.filter(|(_, since)| since.elapsed() < AVOIDED_FOR);
        // Online and in the cpuset now.
        let there = self.allowed.intersection(&allowed_cpus());
        let wanted = choose(&there, active, pinned, self.avoided.map(|(vcpu, _)| vcpu));
        let kept = |vcpu: &VcpuId| affinity_of(0).is_some_and(|mask| mask.iter().eq([*vcpu]));
        if wanted == self.taken && wanted.as_ref().is_none_or(kept) {
            return;
        }
        self.unpin();
        self.taken = wanted.filter(|vcpu| keep_to(&std::iter::once(*vcpu).collect()));
    }

    /// For a thread that was kept waiting for its vCPU (by another program, a real-time task, the host): takes another.
    pub fn pin_elsewhere(&mut self, active: &CpuSet, pinned: &CpuSet) {
        self.avoided = self.taken.map(|vcpu| (vcpu, Instant::now())).or(self.avoided);
        self.pin(active, pinned);
    }

    /// Lets the calling thread run wherever it may. Before a process or a thread is started, which would inherit the
    /// mask.
    pub fn unpin(&mut self) {
        if self.taken.take().is_some() {
            keep_to(&self.allowed);
        }
    }
}

/// `None` where there is no choice.
fn choose(there: &CpuSet, active: &CpuSet, pinned: &CpuSet, avoided: Option<VcpuId>) -> Option<VcpuId> {
    let last = |set: &CpuSet| set.iter().rfind(|vcpu| Some(*vcpu) != avoided);
    if there.len() < 2 {
        return None;
    }
    last(&there.difference(active)).or_else(|| last(&there.difference(pinned))).or_else(|| last(there))
}

fn keep_to(set: &CpuSet) -> bool {
    set_affinity(0, set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inactive_vcpu_is_preferred_and_one_that_kept_waiting_avoided() {
        let all = CpuSet::first(4);
        let none = CpuSet::new();
        let chosen = |active: u32, avoided: Option<u32>| {
            choose(&all, &CpuSet::first(active), &none, avoided.map(VcpuId)).map(|id| id.0)
        };
        assert_eq!(chosen(4, None), Some(3), "all are active");
        assert_eq!(chosen(4, Some(3)), Some(2));
        assert_eq!(chosen(2, None), Some(3));
        assert_eq!(chosen(2, Some(3)), Some(2), "also inactive");
        assert_eq!(chosen(3, Some(3)), Some(2), "the only inactive one kept it waiting");
        assert_eq!(choose(&CpuSet::first(1), &none, &none, None), None);
        let later: CpuSet = [2, 3].map(VcpuId).into_iter().collect();
        assert_eq!(choose(&all, &later, &none, None), Some(VcpuId(1)));
        // A thread of the program that may run nowhere else is not displaced, unless each vCPU has one.
        assert_eq!(choose(&all, &all, &later, None), Some(VcpuId(1)));
        assert_eq!(choose(&all, &all, &all, None), Some(VcpuId(3)));
        assert_eq!(choose(&all, &CpuSet::first(2), &later, None), Some(VcpuId(3)), "an inactive one has nobody");
    }

    #[test]
    fn the_thread_keeps_to_its_cpu_until_it_is_unpinned_and_its_process_does_not() {
        std::thread::spawn(|| {
            let (all, none) = (affinity_of(0).unwrap(), CpuSet::new());
            let mut housekeeping = HousekeepingCpu::new(all.clone());
            if all.len() < 2 {
                housekeeping.pin(&all, &none);
                assert_eq!(affinity_of(0).unwrap(), all, "nothing to choose from");
                return;
            }
            let last = all.iter().next_back().unwrap();
            housekeeping.pin(&all, &none);
            assert_eq!(affinity_of(0).unwrap(), std::iter::once(last).collect());
            // As the kernel does with a thread whose only vCPU goes offline.
            keep_to(&all);
            housekeeping.pin(&all, &none);
            assert_eq!(affinity_of(0).unwrap(), std::iter::once(last).collect());
            assert_eq!(allowed_cpus(), all, "what the process may use is as it was");
            housekeeping.pin_elsewhere(&all, &none);
            let other = affinity_of(0).unwrap();
            assert!(other.len() == 1 && !other.contains(last), "{other}");
            // A vCPU that is not the process's (any more) is not asked for.
            let mut beyond = HousekeepingCpu::new(all.iter().chain([VcpuId(1023)]).collect());
            beyond.pin(&all, &none);
            assert_eq!(affinity_of(0).unwrap(), std::iter::once(last).collect());
            housekeeping.unpin();
            assert_eq!(affinity_of(0).unwrap(), all);
        })
        .join()
        .unwrap();
    }
}
