//! Where Gleaner's own thread runs: on one vCPU, and not wherever the kernel's wake-up finds room.
//!
//! Ten times a second a thread that may run anywhere takes an idle vCPU, and the threads of a program that hands work from one to the next
//! are spread anew around it. A thread that did nothing but wake took a quarter of request-reply's speed on four emulated vCPUs, and
//! nothing that could be measured when it stayed on one (experiments/programs, 2026-11-23).
//!
//! Only the calling thread's own mask is changed, so there is nothing to undo. Whoever wants to know what the process may use asks the
//! mask of its first thread, which never takes a seat.

use crate::affinity::mask_of;
use gleaner_model::{CpuSet, VcpuId};
use rustix::thread::sched_setaffinity;

/// The vCPU that one thread keeps to. To be used by that thread alone.
#[derive(Debug)]
pub struct Seat {
    allowed: CpuSet,
    taken: Option<VcpuId>,
    /// Where the thread was last kept waiting.
    avoided: Option<VcpuId>,
}

impl Seat {
    /// None yet, of the vCPUs that the thread may use.
    pub fn new(allowed: CpuSet) -> Self {
        Self { allowed, taken: None, avoided: None }
    }

    /// Keeps the calling thread to the last vCPU that is not active, where there is one, so that it displaces nobody of the program; else
    /// to the last of all. A refusal is no error: the thread then runs where it may, as before.
    pub fn take(&mut self, active: &CpuSet) {
        let wanted = choose(&self.allowed, active, self.avoided);
        if wanted == self.taken {
            return;
        }
        self.leave();
        self.taken = wanted.filter(|vcpu| keep_to(&std::iter::once(*vcpu).collect()));
    }

    /// For a thread that was kept waiting for its vCPU (by another program, a real-time task, the host): takes another.
    pub fn change(&mut self, active: &CpuSet) {
        self.avoided = self.taken.or(self.avoided);
        self.take(active);
    }

    /// Lets the calling thread run wherever it may. Before a process or a thread is started, which would inherit the mask.
    pub fn leave(&mut self) {
        if self.taken.take().is_some() {
            keep_to(&self.allowed);
        }
    }
}

/// `None` where there is no choice.
fn choose(allowed: &CpuSet, active: &CpuSet, avoided: Option<VcpuId>) -> Option<VcpuId> {
    let last = |set: &CpuSet| set.iter().rfind(|vcpu| Some(*vcpu) != avoided);
    if allowed.len() < 2 { None } else { last(&allowed.difference(active)).or_else(|| last(allowed)) }
}

fn keep_to(set: &CpuSet) -> bool {
    sched_setaffinity(None, &mask_of(set)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::{affinity_of, allowed_cpus};

    #[test]
    fn an_inactive_vcpu_is_preferred_and_one_that_kept_waiting_avoided() {
        let all = CpuSet::first(4);
        let chosen = |active: u32, avoided: Option<u32>| {
            choose(&all, &CpuSet::first(active), avoided.map(VcpuId)).map(|id| id.0)
        };
        assert_eq!(chosen(4, None), Some(3), "all are active");
        assert_eq!(chosen(4, Some(3)), Some(2));
        assert_eq!(chosen(2, None), Some(3));
        assert_eq!(chosen(2, Some(3)), Some(2), "also inactive");
        assert_eq!(chosen(3, Some(3)), Some(2), "the only inactive one kept it waiting");
        assert_eq!(choose(&CpuSet::first(1), &CpuSet::new(), None), None);
        let reversed: CpuSet = [2, 3].map(VcpuId).into_iter().collect();
        assert_eq!(choose(&all, &reversed, None), Some(VcpuId(1)));
    }

    #[test]
    fn the_thread_keeps_to_its_seat_until_it_leaves_and_its_process_does_not() {
        std::thread::spawn(|| {
            let all = affinity_of(0).unwrap();
            let mut seat = Seat::new(all.clone());
            if all.len() < 2 {
                seat.take(&all);
                assert_eq!(affinity_of(0).unwrap(), all, "nothing to choose from");
                return;
            }
            let last = all.iter().next_back().unwrap();
            seat.take(&all);
            assert_eq!(affinity_of(0).unwrap(), std::iter::once(last).collect());
            assert_eq!(allowed_cpus(), all, "what the process may use is as it was");
            seat.change(&all);
            let other = affinity_of(0).unwrap();
            assert!(other.len() == 1 && !other.contains(last), "{other}");
            seat.leave();
            assert_eq!(affinity_of(0).unwrap(), all);
        })
        .join()
        .unwrap();
    }
}
