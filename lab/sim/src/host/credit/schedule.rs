//! Who runs, under Xen's credit scheduler: csched_schedule, __runq_tickle, csched_load_balance and csched_runq_steal of
//! xen/common/sched_credit.c (4.2).
//!
//! - A woken vCPU goes into the queue of the pCPU it was on, and whoever is on that is preempted if its class is lower.
//!   If a pCPU idles, it is told as well, and steals what it finds: the woken one, or the one that made room.
//! - A pCPU whose next one is OVER, or that has none, takes the first of a higher class from the queues of the others,
//!   beginning with its neighbour. That is all the balancing there is between busy pCPUs. `_csched_cpu_pick` adds
//!   nothing to it on a socket whose cores have one hardware thread: it moves who runs only to an idle pCPU from one
//!   where others wait, and an idle pCPU has already taken those.
//! - Who has run for less than the ratelimit goes on, whatever the reason to schedule, pause-loop exits included (later
//!   versions except them), for the ratelimit from then on (later versions: for what is left of it).
//! - Each time a pCPU schedules, who runs goes behind those of its class; so it does after its slice, if it is not
//!   stopped before.

use crate::engine::Time;
use crate::ids::{PcpuIx, VcpuIx};
use crate::world::{Cause, Class, IDLE, OVER, Place, World};

impl World {
    fn class_of_vcpu(&self, v: VcpuIx) -> i64 {
        self.vcpus[v.at()].entity.class()
    }

    /// `v` has joined the queue of `p` (__runq_tickle).
    pub(in crate::host) fn credit_tickle(&mut self, p: PcpuIx, v: VcpuIx) {
        let Some(curr) = self.host.pcpus[p.at()].curr else { return self.look(p, Cause::Nothing) };
        if self.vcpus[curr.at()].place == Place::Polling {
            return self.look(p, Cause::Yield);
        }
        if self.class_of_vcpu(v) < self.class_of_vcpu(curr) {
            self.look(p, Cause::Wake);
        }
        let Class::Many { allowed, .. } = &self.host.classes[self.vcpus[v.at()].class as usize] else { return };
        if let Some(idle) = self.host.idle.next_common(allowed, p.at()) {
            self.look(PcpuIx::of(idle), Cause::Nothing);
        }
    }

    /// A pCPU chooses (csched_schedule).
    pub(in crate::host) fn credit_schedule(&mut self, p: PcpuIx) {
        let cause = std::mem::take(&mut self.host.pcpus[p.at()].cause);
        let prev = self.host.pcpus[p.at()].curr;
        let mut yields = false;
        if let Some(curr) = prev {
            if cause == Cause::Nothing {
                return;
            }
            self.charge(curr);
            if self.vcpus[curr.at()].place == Place::Polling {
                return self.stop_polling(curr);
            }
            let ratelimit = self.scheduler().ratelimit();
            let entity = &mut self.vcpus[curr.at()].entity;
            entity.burns();
            entity.yields |= cause == Cause::Yield;
            if self.now - self.host.pcpus[p.at()].started < ratelimit {
                return self.timers.set(self.slots.pcpu(p), self.now + ratelimit);
            }
            yields = std::mem::take(&mut entity.yields);
            entity.used = 0;
        }
        let next = self.credit_next(p, prev, yields);
        debug_assert!(self.is_first(p, next), "{next:?} comes before who waits on {p:?}");
        if prev.is_some() && prev == next {
            return self.credit_arm(p);
        }
        if let Some(curr) = prev {
            self.host_preempted(p, curr);
        }
        match next {
            Some(next) => self.dispatch(p, next, prev, cause),
            None => self.goes_idle(p),
        }
    }

    /// Whether nobody of a higher class waits here: all the promise that there is. Who has never run is in the queue as
    /// if it had woken (`setup`).
    fn is_first(&self, p: PcpuIx, next: Option<VcpuIx>) -> bool {
        let class = |v: Option<VcpuIx>| v.map_or(IDLE, |v| self.class_of_vcpu(v));
        let begins = next.is_some_and(|next| self.vcpus[next.at()].totals.dispatches == 0);
        begins || class(next) <= class(self.host.pcpus[p.at()].queue.first())
    }

    /// The first of the queue, with the present one behind those of its class, or one of a higher class from elsewhere.
    fn credit_next(&mut self, p: PcpuIx, prev: Option<VcpuIx>, yields: bool) -> Option<VcpuIx> {
        let first = self.host.pcpus[p.at()].queue.first().map(|first| self.class_of_vcpu(first));
        // Whoever yields goes behind one of a lower class, too: before nobody, here.
        let stays = prev.filter(|prev| first.is_none_or(|first| !yields && self.class_of_vcpu(*prev) < first));
        let best = stays.map_or(first.unwrap_or(IDLE), |stays| self.class_of_vcpu(stays));
        if best >= OVER
            && let Some(stolen) = self.credit_steal(p, best)
        {
            return Some(stolen);
        }
        if stays.is_some() {
            return stays;
        }
        let next = self.host.pcpus[p.at()].queue.pop(|_| true)?;
        self.dequeued(p, next);
        Some(next)
    }

    /// Takes the first vCPU of a class above `than` from the next busy pCPU that has one (csched_load_balance,
    /// csched_runq_steal).
    fn credit_steal(&mut self, p: PcpuIx, than: i64) -> Option<VcpuIx> {
        if self.host.classes_of[p.at()].is_empty() {
            return None;
        }
        let pcpus = self.host.pcpus.len();
        for peer in (p.at() + 1..pcpus).chain(0..p.at()) {
            let pcpu = &self.host.pcpus[peer];
            // An idle one is about to take its own.
            if pcpu.curr.is_none() {
                continue;
            }
            let higher = pcpu.queue.iter().take_while(|v| self.class_of_vcpu(*v) < than);
            let Some(v) = { higher }.find(|v| self.may_run_on(*v, p)) else { continue };
            self.host.pcpus[peer].queue.remove(v);
            self.dequeued(PcpuIx::of(peer), v);
            return Some(v);
        }
        None
    }

    fn may_run_on(&self, v: VcpuIx, p: PcpuIx) -> bool {
        match &self.host.classes[self.vcpus[v.at()].class as usize] {
            Class::One => self.vcpus[v.at()].pcpu == p,
            Class::Many { allowed, .. } => allowed.contains(p.at()),
        }
    }

    /// The slice is timed whether somebody waits or not: at its end there may be something to steal.
    pub(in crate::host) fn credit_arm(&mut self, p: PcpuIx) {
        let Some(curr) = self.host.pcpus[p.at()].curr else { return self.timers.cancel(self.slots.pcpu(p)) };
        self.charge(curr);
        let left = self.slice(curr, 1).saturating_sub(self.vcpus[curr.at()].entity.used);
        let end: Time = self.now.saturating_add(left);
        self.timers.set(self.slots.pcpu(p), end);
    }

    /// Whether an interrupt for a halted vCPU is, to its host, no more than the sender's own exit: it is woken there
    /// and then (vlapic_ipi, vcpu_kick, vcpu_wake), and takes the pCPU before the sender goes on.
    pub(crate) fn wakes_on_senders_pcpu(&self, from: VcpuIx, to: VcpuIx) -> bool {
        let (from, to) = (&self.vcpus[from.at()], &self.vcpus[to.at()]);
        self.scheduler().is_credit() && to.place == Place::Halted && from.runs() && from.pcpu == to.pcpu
    }
}
