//! Pause-loop exits: a vCPU that spins is interrupted, and its pCPU goes to somebody who may make it stop.
//!
//! As KVM does: prefer a vCPU of the same virtual machine that waits for a pCPU (directed yield), taking turns; the
//! spinner itself steps behind whoever waits on its own pCPU. The window doubles with every exit in vain. Xen has
//! neither the preference nor the doubling: a preferred vCPU that is OVER would run before others that are not.

use crate::engine::next_in_word;
use crate::ids::VcpuIx;
use crate::world::{Cause, World};

impl World {
    /// The spinning vCPU has used up its window.
    pub(crate) fn pause_exit(&mut self, v: VcpuIx) {
        let Some(ple) = self.host.config.ple else { return };
        let (vm, p) = (self.vcpus[v.at()].vm, self.vcpus[v.at()].pcpu);
        let exit_ns = self.costs(v).ple_exit_ns;
        let vcpu = &mut self.vcpus[v.at()];
        vcpu.totals.pause_exits += 1;
        vcpu.host_debt += exit_ns;
        vcpu.pause_window = (vcpu.pause_window * 2).min(ple.window_max);
        vcpu.pause_left = vcpu.pause_window;
        let directed = ple.directed && !self.scheduler().is_credit();
        let vm = &mut self.vms[vm.at()];
        let preferred = if directed { next_in_word(vm.ready, vm.yielded_to + 1) } else { None };
        if let Some(index) = preferred {
            vm.yielded_to = index;
            let target = VcpuIx(vm.first_vcpu.0 + index);
            let there = self.vcpus[target.at()].pcpu;
            self.host.pcpus[there.at()].favoured = Some(target);
            self.look(there, Cause::Yield);
        }
        self.look(p, Cause::Yield);
    }
}
