//! Which pCPU: for a vCPU that wakes, and which vCPU for a pCPU that has none.

use crate::ids::{PcpuIx, VcpuIx};
use crate::world::{Class, World};

impl World {
    /// Where a woken vCPU goes: where it was if that is idle, else to an idle pCPU, near first, else where it was.
    pub(super) fn choose_pcpu(&self, v: VcpuIx) -> PcpuIx {
        let vcpu = &self.vcpus[v.at()];
        let before = vcpu.pcpu;
        let Class::Many { allowed, .. } = &self.host.classes[vcpu.class as usize] else { return before };
        let idle = &self.host.idle;
        // Xen puts it where it was, and an idle pCPU comes for it.
        if idle.contains(before.at()) || self.scheduler().is_credit() {
            return before;
        }
        let (from, to) = self.llc_of(before);
        let near = idle.common_in(allowed, before.at(), to).or_else(|| idle.common_in(allowed, from, before.at()));
        near.or_else(|| idle.next_common(allowed, before.at())).map_or(before, PcpuIx::of)
    }

    /// The pCPUs that share a last-level cache with this one.
    pub(super) fn llc_of(&self, p: PcpuIx) -> (usize, usize) {
        let all = self.host.pcpus.len();
        match self.host.config.llc_pcpus as usize {
            0 => (0, all),
            size => {
                let from = p.at() / size * size;
                (from, (from + size).min(all))
            }
        }
    }

    /// Takes a waiting vCPU from another pCPU, near first.
    pub(super) fn steal_for(&mut self, p: PcpuIx) -> Option<VcpuIx> {
        let (from, to) = self.llc_of(p);
        for n in 0..self.host.classes_of[p.at()].len() {
            let class = self.host.classes_of[p.at()][n];
            let Class::Many { waiting, allowed, .. } = &self.host.classes[class as usize] else { continue };
            let near = waiting.common_in(allowed, p.at(), to).or_else(|| waiting.common_in(allowed, from, p.at()));
            let Some(source) = near.or_else(|| waiting.next_common(allowed, p.at())).map(PcpuIx::of) else { continue };
            let vcpus = &self.vcpus;
            let queue = &mut self.host.pcpus[source.at()].queue;
            let Some(v) = queue.find(|v| vcpus[v.at()].class == class) else { continue };
            queue.remove(v);
            self.dequeued(source, v);
            self.move_virtual_time(v, p);
            self.group_moves(v, p);
            return Some(v);
        }
        None
    }

    /// Virtual time means something on one queue only: what a vCPU is ahead or behind goes with it.
    pub(super) fn move_virtual_time(&mut self, v: VcpuIx, to: PcpuIx) {
        let from = self.vcpus[v.at()].pcpu;
        if from == to || !self.scheduler().has_virtual_time() {
            return;
        }
        let shift = self.base(to) - self.base(from);
        let entity = &mut self.vcpus[v.at()].entity;
        entity.vruntime += shift;
        entity.deadline += shift;
    }
}
