//! Idle periods: from the moment the last thread leaves a vCPU until the next one runs, however the vCPU spends them.

use crate::config::IdleLoop;
use crate::engine::{NEVER, decaying_mean};
use crate::ids::VcpuIx;
use crate::world::{Activity, World};
use gleaner_model::Nanos;

impl World {
    /// No thread wants the vCPU: the yielding thread has it, or the idle task.
    pub(super) fn enter_idle(&mut self, v: VcpuIx) {
        let (now, vm) = (self.now, self.vcpus[v.at()].vm);
        let vcpu = &mut self.vcpus[v.at()];
        self.vms[vm.at()].guest.idle |= vcpu.bit();
        let begins = vcpu.idle_since.is_none();
        if begins {
            vcpu.idle_since = Some(now);
            vcpu.totals.idle_entries += 1;
            if self.vms[vm.at()].guest.observed {
                let busy = vcpu.totals.work + vcpu.totals.kernel - vcpu.busy_zero;
                vcpu.seen.l_comp.record(Nanos(busy));
            }
        }
        if self.yielder_resumes(v) {
            // It has an address space of its own.
            self.vms[vm.at()].guest.left |= self.vcpus[v.at()].bit();
            self.vcpus[v.at()].activity = Activity::Yield;
            return self.trace(v);
        }
        let vcpu = &mut self.vcpus[v.at()];
        match self.vms[vm.at()].idle_loop {
            IdleLoop::Poll => (vcpu.activity, vcpu.poll_until) = (Activity::Poll, NEVER),
            _ if begins && vcpu.retained_for > 0 => {
                (vcpu.activity, vcpu.poll_until) = (Activity::Poll, now + vcpu.retained_for);
            }
            IdleLoop::Haltpoll { .. } if begins && vcpu.poll_limit > 0 => {
                (vcpu.activity, vcpu.poll_until) = (Activity::Poll, now + vcpu.poll_limit);
            }
            // Debts are paid before it halts; then this comes again.
            _ if vcpu.owes() => {}
            IdleLoop::Halt | IdleLoop::Haltpoll { .. } => {
                vcpu.totals.halts += 1;
                self.host_halt(v);
            }
        }
        self.trace(v);
    }

    /// The idle task polls: for a thread, or until it gives up.
    pub(super) fn poll_fires(&mut self, v: VcpuIx) {
        if !self.vcpus[v.at()].queue.is_empty() || self.now >= self.vcpus[v.at()].poll_until {
            self.vcpus[v.at()].activity = Activity::Idle;
            self.pick_thread(v);
        }
    }

    /// A thread is about to run.
    pub(super) fn leave_idle(&mut self, v: VcpuIx) {
        let now = self.now;
        let vcpu = &mut self.vcpus[v.at()];
        let Some(since) = vcpu.idle_since.take() else { return };
        let length = now - since;
        vcpu.idle_mean = decaying_mean(vcpu.idle_mean, length);
        vcpu.busy_zero = vcpu.totals.work + vcpu.totals.kernel;
        let vm = &self.vms[vcpu.vm.at()];
        if vm.guest.observed {
            vcpu.seen.l_idle.record(Nanos(length));
        }
        if let IdleLoop::Haltpoll { max, grow_start } = vm.idle_loop {
            // drivers/cpuidle/governors/haltpoll.c, adjust_poll_limit.
            if length > max {
                vcpu.poll_limit /= 2;
            } else if length > vcpu.poll_limit {
                vcpu.poll_limit = (vcpu.poll_limit * 2).clamp(grow_start, max);
            }
        }
        self.signal_yielder(v);
    }
}
