//! How many threads of a group run or wait to run (`runnable.bpf.h`): the count that bursts are told by.
//!
//! A thread is counted when it is woken and until it sleeps, by a mark of its own, so the count does not drift. Where
//! threads are taken out behind the kernel's back, or a group rests while some seem to run, counting begins anew.

use super::load::{self, Loaded};
use super::skel::GROUP;
use super::skel::types::{cpu_state, group_state};
use gleaner_model::VcpuId;
use std::mem::offset_of;

/// A group that rests for so long has nobody who waits for a vCPU.
const RESTS_NS: u64 = 1_000_000_000;

/// The count of one group's slot.
#[derive(Debug)]
pub(super) struct RunnableCount {
    slot: u32,
    epoch: u32,
    /// What programs may still be busy with the last epoch: the next window begins.
    paused: bool,
    /// Since when the group rests; 0: it does not.
    rests_since_ns: u64,
}

impl RunnableCount {
    /// Begins in a slot that has no thread.
    pub fn begin(programs: &Loaded, slot: u32) -> Self {
        let mut count = Self { slot, epoch: 0, paused: true, rests_since_ns: 0 };
        count.go_on(programs);
        count
    }

    /// Counts nobody until the next window.
    pub fn pause(&mut self, programs: &Loaded) {
        programs.groups.write_field(self.slot as usize, offset_of!(group_state, epoch), 0_u32);
        self.paused = true;
    }

    /// Nobody is counted yet.
    fn go_on(&mut self, programs: &Loaded) {
        let slot = self.slot as usize;
        self.paused = false;
        self.rests_since_ns = 0;
        programs.groups.write_field(slot, offset_of!(group_state, runnable), 0_u64);
        // 0 is that of nobody.
        self.epoch = self.epoch.wrapping_add(1).max(1);
        programs.groups.write_field(slot, offset_of!(group_state, epoch), self.epoch);
        // Whoever runs is counted when it comes the next time.
        let word = |cpu: usize, offset: usize| programs.cpus.read_field::<u32>(cpu, offset);
        let is_its = |cpu: &usize| {
            word(*cpu, offset_of!(cpu_state, class)) == GROUP
                && word(*cpu, offset_of!(cpu_state, group)) == self.slot
                && word(*cpu, offset_of!(cpu_state, pid)) != 0
        };
        let vcpus = (0..programs.cpus.len()).filter(is_its).filter_map(|cpu| u32::try_from(cpu).ok().map(VcpuId));
        let vcpus: Vec<VcpuId> = vcpus.collect();
        if !vcpus.is_empty() {
            load::visit(vcpus.into_iter());
        }
    }

    /// A window ended at `now_ns`. `rests`: nothing was seen of the group in it.
    pub fn window(&mut self, programs: &Loaded, rests: bool, now_ns: u64) {
        if self.paused {
            self.go_on(programs);
        } else if self.is_wrong(programs, rests, now_ns) {
            self.pause(programs);
        }
    }

    /// Whether somebody is counted who cannot run, or nobody who can.
    fn is_wrong(&mut self, programs: &Loaded, rests: bool, now_ns: u64) -> bool {
        let runnable: u64 = programs.groups.read_field(self.slot as usize, offset_of!(group_state, runnable));
        if !rests || runnable == 0 {
            self.rests_since_ns = 0;
        } else if self.rests_since_ns == 0 {
            self.rests_since_ns = now_ns;
        }
        let seems_to_wait = self.rests_since_ns > 0 && now_ns.saturating_sub(self.rests_since_ns) > RESTS_NS;
        runnable.cast_signed() < 0 || seems_to_wait
    }
}
