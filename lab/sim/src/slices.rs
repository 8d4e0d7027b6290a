//! Gleaner's host side: decide's slice policy, fed with windows of the simulated host, its slices given to virtual
//! machines' vCPUs.
//!
//! What a window has is what the agent has on a real host with BPF, and two things that only a simulator sees for
//! certain: pause-loop exits by vCPU, and how many vCPUs were runnable on each pCPU.

use crate::config::Scheduler;
use crate::engine::Time;
use crate::ids::{VcpuIx, VmIx};
use crate::totals::VcpuTotals;
use crate::world::{Class, HostSeen, World};
use gleaner_model::{CpuSet, HostAction, HostVcpuWindow, HostWindow, Nanos, VcpuId, VmId, VmWindow};

impl World {
    /// The agent starts: slices end when they end from now on, as the ones that it gives do.
    pub(crate) fn slices_begin(&mut self) {
        let Some(slices) = &self.slices else { return };
        match &mut self.host.config.scheduler {
            Scheduler::Window(params) => params.tick = 0,
            Scheduler::Fair(params) => params.tick = 0,
            Scheduler::Dedicated | Scheduler::RoundRobin { .. } | Scheduler::Credit(_) => {}
        }
        self.timers.set(self.slots.slices(), slices.window);
    }

    /// A window of the host ends.
    pub(crate) fn slices_step(&mut self) {
        let Some(mut slices) = self.slices.take() else { return };
        let window = self.host_window(slices.at);
        slices.at = self.now;
        for decision in slices.policy.step(&window) {
            let HostAction::SetSlice { vm, slice } = decision.action;
            self.set_slice(VmIx(vm.0), slice.0);
            slices.decisions.push(decision);
        }
        self.timers.set(self.slots.slices(), self.now + slices.window);
        self.slices = Some(slices);
    }

    fn set_slice(&mut self, vm: VmIx, slice: Time) {
        for index in 0..self.vms[vm.at()].vcpus {
            let v = self.vcpu_of(vm, index);
            self.vcpus[v.at()].slice = Some(slice);
            let p = self.vcpus[v.at()].pcpu;
            if self.host.pcpus[p.at()].curr == Some(v) {
                self.arm_slice(p);
            }
        }
    }

    fn host_window(&mut self, from: Time) -> HostWindow {
        for n in 0..self.vcpus.len() {
            self.charge(VcpuIx::of(n));
        }
        let length = self.now - from;
        let all: CpuSet = (0..self.host.config.pcpus).map(VcpuId).collect();
        let vms = (0..self.vms.len()).map(|n| self.vm_window(VmIx::of(n), length, &all)).collect();
        HostWindow { at: Nanos(self.now), length: Nanos(length), vms, tick: None }
    }

    fn vm_window(&mut self, vm: VmIx, length: Time, all: &CpuSet) -> VmWindow {
        let (first, count) = (self.vms[vm.at()].first_vcpu, self.vms[vm.at()].vcpus);
        let vcpus = (0..count).map(|n| self.host_vcpu_window(VcpuIx(first.0 + n), all)).collect();
        let state = &self.vms[vm.at()];
        VmWindow {
            vm: VmId(vm.0),
            slice: self.vcpus[first.at()].slice.map(Nanos),
            weight: u64::from(state.weight),
            limit: state
                .cap
                .map(|cap| cap.limit(length))
                .or(state.credit_cap_permille.map(|permille| length / 1_000 * u64::from(permille)))
                .map(Nanos),
            refill: Some(Nanos(self.costs[state.costs as usize].cache_refill_ns)),
            vcpus,
        }
    }

    fn host_vcpu_window(&mut self, v: VcpuIx, all: &CpuSet) -> HostVcpuWindow {
        let vcpu = &self.vcpus[v.at()];
        let pcpus = match &self.host.classes[vcpu.class as usize] {
            Class::One => CpuSet::from_iter([VcpuId(vcpu.pcpu.0)]),
            Class::Many { allowed, .. } => all.iter().filter(|cpu| allowed.contains(cpu.0 as usize)).collect(),
        };
        let ple = self.host.config.ple.is_some();
        let vcpu = &mut self.vcpus[v.at()];
        let now = vcpu.totals;
        let HostSeen { zero, wake_to_run, interrupts_while_waiting } = std::mem::take(&mut *vcpu.host_seen);
        vcpu.host_seen.zero = now;
        let since = |of: fn(&VcpuTotals) -> u64| of(&now) - of(&zero);
        HostVcpuWindow {
            // What the host polls is time of the vCPU's thread.
            run: Nanos(since(|t| t.work + t.kernel + t.retained + t.polled + t.overhead + t.host_polled)),
            wait: Nanos(since(|t| t.ready)),
            wakeups: Some(wake_to_run.count()),
            wake_to_run: Some(wake_to_run),
            preemptions: Some(since(|t| t.preemptions)),
            pause_exits: ple.then(|| since(|t| t.pause_exits)),
            interrupts_while_waiting: Some(interrupts_while_waiting),
            ..HostVcpuWindow::new(VcpuId(vcpu.index), pcpus)
        }
    }
}
