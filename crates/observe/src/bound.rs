//! Which vCPUs threads of the group have bound themselves to.

use gleaner_model::CpuSet;
use gleaner_sys::affinity_of;

/// A mask has to be asked of each thread, so it is not asked in each window. A step is taken after eight windows at the
/// earliest.
const WINDOWS_PER_LOOK: u32 = 4;

/// Looks now and then, once it is told which vCPUs the group is kept to.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoundThreads {
    active: Option<CpuSet>,
    /// Windows until the next look.
    left: u32,
    found: CpuSet,
}

impl BoundThreads {
    /// From now on the group is kept to `active`.
    pub(crate) fn kept_to(&mut self, active: &CpuSet) {
        self.active = Some(active.clone());
    }

    /// One window: for each thread of `threads` that has bound itself, as of the last look, an active vCPU.
    pub(crate) fn window(&mut self, threads: impl FnOnce() -> Vec<i32>) -> CpuSet {
        if let Some(active) = &self.active {
            if self.left == 0 {
                self.found = bound_vcpus(&threads(), active);
                self.left = WINDOWS_PER_LOOK;
            }
            self.left -= 1;
        }
        self.found.clone()
    }

    /// As of the last look: whoever did not run has not bound itself since.
    pub(crate) fn found(&self) -> CpuSet {
        self.found.clone()
    }
}

/// For each thread whose own affinity has only some of `active`, the first of these: as long as that is active, the
/// thread has an active one.
fn bound_vcpus(tids: &[i32], active: &CpuSet) -> CpuSet {
    let first = |tid: &i32| {
        let left = affinity_of(*tid).ok()?.intersection(active);
        left.iter().next().filter(|_| left.len() < active.len())
    };
    if active.len() < 2 { CpuSet::new() } else { tids.iter().filter_map(first).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::VcpuId;
    use gleaner_sys::{own_affinity, set_affinity};

    #[test]
    fn a_thread_that_may_use_some_active_vcpus_pins_the_first_of_them() {
        let all = own_affinity().unwrap_or_default();
        let Some(first) = all.iter().next().filter(|_| all.len() > 1) else { gleaner_testing::skip!("needs two CPUs") };
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            set_affinity(tid, &std::iter::once(first).collect()).unwrap();
            tell.send(tid).unwrap();
            // Ends when the sender is gone.
            let _ = stopped.recv();
        });
        let tid = told.recv().unwrap();
        assert_eq!(bound_vcpus(&[tid], &all), std::iter::once(first).collect());
        assert_eq!(bound_vcpus(&[0], &all), CpuSet::new(), "this thread may go anywhere");
        // It may use all of `all`, and that is not all that is active.
        let more: CpuSet = all.iter().chain([VcpuId(4_000)]).collect();
        assert_eq!(bound_vcpus(&[0], &more), std::iter::once(first).collect(), "as long as that one is active");
        assert_eq!(bound_vcpus(&[tid], &CpuSet::first(1)), CpuSet::new(), "the last one is not to be lost anyway");
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn nobody_is_asked_unless_the_group_is_kept_to_some_and_then_now_and_then() {
        let mut bound = BoundThreads::default();
        for _ in 0..9 {
            assert_eq!(bound.window(|| panic!("asked")), CpuSet::new());
        }
        bound.kept_to(&CpuSet::first(2));
        let mut asked = 0;
        for _ in 0..9 {
            bound.window(|| {
                asked += 1;
                Vec::new()
            });
        }
        assert_eq!(asked, 3);
    }
}
