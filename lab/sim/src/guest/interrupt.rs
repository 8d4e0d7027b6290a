//! Interrupts: sent, on their way, waiting for a vCPU that is away, handled, done.
//!
//! An interrupt for a vCPU that runs takes its latency; for one that is halted it makes the host take the vCPU up; for
//! one that waits for a pCPU it waits too. That is all there is to delayed IPIs and delayed I/O.

use crate::engine::Time;
use crate::ids::{ThreadIx, VcpuIx};
use crate::program::{Doing, ThreadState};
use crate::world::{Activity, Irq, Place, World};

impl World {
    /// Another vCPU sends an interrupt.
    pub(crate) fn send(&mut self, to: VcpuIx, from: VcpuIx, irq: Irq) {
        let costs = *self.costs(to);
        if self.vcpus[from.at()].runs() {
            self.vcpus[from.at()].debt += costs.ipi_send_ns;
        }
        let takes = if self.wakes_on_senders_pcpu(from, to) { costs.ipi_send_ns } else { costs.ipi_ns };
        self.arrives(to, self.now + takes, irq);
    }

    /// It will be there at `at`.
    pub(super) fn arrives(&mut self, to: VcpuIx, at: Time, irq: Irq) {
        let arriving = &mut self.vcpus[to.at()].arriving;
        let place = arriving.iter().rposition(|(earlier, _)| *earlier <= at).map_or(0, |place| place + 1);
        arriving.insert(place, (at, irq));
        if place == 0 {
            self.timers.set(self.slots.irq(to), at);
        }
    }

    /// A thread's sleep or request is over: the timer or the device interrupts the vCPU on which it was.
    pub(crate) fn wait_ends(&mut self, t: ThreadIx) {
        let v = self.threads[t.at()].vcpu;
        self.arrived(v, Irq::Wake(t));
    }

    /// A yielding thread's nap is over.
    pub(crate) fn nap_ends(&mut self, v: VcpuIx) {
        self.arrived(v, Irq::Nap);
    }

    /// The first interrupts on their way are there.
    pub(crate) fn irq_arrives(&mut self, v: VcpuIx) {
        while let Some((at, irq)) = self.vcpus[v.at()].arriving.first().copied() {
            if at > self.now {
                return self.timers.set(self.slots.irq(v), at);
            }
            self.vcpus[v.at()].arriving.remove(0);
            self.arrived(v, irq);
        }
    }

    fn arrived(&mut self, v: VcpuIx, irq: Irq) {
        self.vcpus[v.at()].pending.push(irq);
        match self.vcpus[v.at()].place {
            Place::Running => {
                self.charge(v);
                self.deliver_pending(v);
                self.arm(v);
            }
            Place::Ready if self.host.observed => self.vcpus[v.at()].host_seen.interrupts_while_waiting += 1,
            Place::Ready => {}
            Place::Halted => self.host_wake(v),
            Place::Polling => {
                self.host_polled(v);
                self.deliver_pending(v);
                self.arm(v);
            }
        }
    }

    /// Handlers of what is pending begin. The vCPU runs, and time is charged.
    pub(crate) fn deliver_pending(&mut self, v: VcpuIx) {
        let costs = *self.costs(v);
        let vcpu = &mut self.vcpus[v.at()];
        for irq in vcpu.pending.drain(..) {
            vcpu.totals.interrupts += 1;
            vcpu.debt += match irq {
                // What an IPI costs its receiver is part of `ipi_ns`.
                Irq::Resched => 0,
                Irq::Wake(_) | Irq::Nap => costs.interrupt_ns,
                Irq::Flush(_) => costs.flush_ns,
            };
            vcpu.handling.push(irq);
        }
    }

    /// The handlers' time is over: what they do is done.
    pub(crate) fn finish_handlers(&mut self, v: VcpuIx) {
        if self.vcpus[v.at()].handling.is_empty() {
            return;
        }
        for irq in std::mem::take(&mut self.vcpus[v.at()].handling) {
            match irq {
                Irq::Resched => self.vcpus[v.at()].resched = true,
                Irq::Wake(t) => self.wake(t, v),
                Irq::Flush(t) => {
                    self.leave_address_space(v);
                    self.answered(t);
                }
                Irq::Nap => self.nap_over(v),
            }
        }
        if self.spins_idly(v) && !self.vcpus[v.at()].queue.is_empty() {
            self.displace(v);
        }
    }

    /// A vCPU that no thread has when it is asked is not asked again ([`crate::config::LazyTlb::Leaves`]).
    fn leave_address_space(&mut self, v: VcpuIx) {
        let vcpu = &self.vcpus[v.at()];
        if !matches!(vcpu.activity, Activity::Thread(_)) {
            self.vms[vcpu.vm.at()].guest.left |= vcpu.bit();
        }
    }

    /// A vCPU has answered a shootdown.
    fn answered(&mut self, t: ThreadIx) {
        let thread = &mut self.threads[t.at()];
        let Doing::Answers { missing } = &mut thread.doing else { return };
        *missing = missing.saturating_sub(1);
        if *missing == 0 && thread.state == ThreadState::Running {
            let v = thread.vcpu;
            self.charge(v);
            self.arm(v);
        }
    }

    /// A thread takes the vCPU from the yielding thread or the polling idle task.
    fn displace(&mut self, v: VcpuIx) {
        if self.vcpus[v.at()].activity == Activity::Yield {
            self.yielder_displaced(v);
        }
        self.vcpus[v.at()].activity = Activity::Idle;
    }
}
