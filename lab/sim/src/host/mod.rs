//! The host: pCPUs, who runs on them, who waits.
//!
//! Whatever makes a pCPU's choice worth another look (a wake-up, a halt, the end of a slice, a pause-loop exit) only
//! notes why, in `cause`, and puts the pCPU on the list; [`World::settle`] takes the list up when the event has been
//! dealt with, so that no decision is made in the middle of another.

mod balance;
mod cap;
mod credit;
mod groups;
mod pause;
mod rebalance;

use crate::engine::Time;
use crate::ids::{PcpuIx, VcpuIx};
use crate::world::{Activity, Cause, Pcpu, Place, World};
use gleaner_model::Nanos;

/// Speed of a hardware thread whose sibling is busy, in thousandths of a core's.
const SMT_SPEED: u32 = 620;

impl World {
    fn pcpu(&mut self, p: PcpuIx) -> &mut Pcpu {
        &mut self.host.pcpus[p.at()]
    }

    /// Has `p` look whom to run, as soon as the present event is dealt with.
    pub(crate) fn look(&mut self, p: PcpuIx, cause: Cause) {
        let pcpu = self.pcpu(p);
        if pcpu.cause == Cause::Nothing {
            pcpu.cause = cause;
        }
        if !pcpu.listed {
            pcpu.listed = true;
            self.host.list.push_back(p);
        }
    }

    /// Until no pCPU has anything to decide.
    pub(crate) fn settle(&mut self) {
        while let Some(p) = self.host.list.pop_front() {
            self.pcpu(p).listed = false;
            self.host_schedule(p);
        }
    }

    /// The virtual time of a pCPU's queue: the mean of all that are runnable there (fair), or a floor (window).
    pub(crate) fn base(&mut self, p: PcpuIx) -> i64 {
        let scheduler = self.scheduler();
        if !scheduler.has_virtual_time() {
            return 0;
        }
        let pcpu = &self.host.pcpus[p.at()];
        let running = pcpu.curr.map(|v| &self.vcpus[v.at()]).filter(|vcpu| vcpu.runs());
        let (running, waiting) = (running.map(|vcpu| vcpu.entity.vruntime), pcpu.queue.len());
        if scheduler.is_fair() {
            let n = waiting + usize::from(running.is_some());
            let sum = pcpu.sum + running.unwrap_or(0);
            let base = if n == 0 { pcpu.floor } else { sum / i64::try_from(n).unwrap_or(1) };
            self.pcpu(p).floor = base;
            return base;
        }
        // The queue is sorted by it.
        let least = running.into_iter().chain(pcpu.queue.first_key()).min();
        let floor = least.map_or(pcpu.floor, |least| least.max(pcpu.floor));
        self.pcpu(p).floor = floor;
        floor
    }

    pub(crate) fn enqueue(&mut self, p: PcpuIx, v: VcpuIx) {
        let key = self.scheduler().key(&self.vcpus[v.at()].entity);
        let vcpu = &mut self.vcpus[v.at()];
        vcpu.place = Place::Ready;
        vcpu.pcpu = p;
        vcpu.placed_at = self.now;
        let (vruntime, class, bit, vm) = (vcpu.entity.vruntime, vcpu.class, vcpu.bit(), vcpu.vm);
        let pcpu = self.pcpu(p);
        pcpu.queue.push(v, key);
        pcpu.sum += vruntime;
        self.host.classes[class as usize].joined(p);
        self.vms[vm.at()].ready |= bit;
        self.timers.cancel(self.slots.run(v));
    }

    pub(crate) fn dequeued(&mut self, p: PcpuIx, v: VcpuIx) {
        let vcpu = &self.vcpus[v.at()];
        let (vruntime, class, bit, vm) = (vcpu.entity.vruntime, vcpu.class, vcpu.bit(), vcpu.vm);
        self.pcpu(p).sum -= vruntime;
        self.host.classes[class as usize].left(p);
        self.vms[vm.at()].ready &= !bit;
    }

    /// An interrupt came for a halted vCPU.
    pub(crate) fn host_wake(&mut self, v: VcpuIx) {
        self.charge(v);
        let slept = self.now - self.vcpus[v.at()].placed_at;
        self.adapt_halt_poll(v, slept);
        self.vcpus[v.at()].woken = true;
        if self.is_throttled(v) {
            // It waits for the next period; nobody's queue knows of it.
            let vcpu = &mut self.vcpus[v.at()];
            (vcpu.place, vcpu.placed_at) = (Place::Ready, self.now);
            self.timers.cancel(self.slots.run(v));
            return self.trace(v);
        }
        self.joins(v, true);
    }

    /// The vCPU wants a pCPU: it goes where it can have one, or into a queue. `boost`: an interrupt is the reason.
    fn joins(&mut self, v: VcpuIx, boost: bool) {
        let p = self.choose_pcpu(v);
        self.move_virtual_time(v, p);
        if let Some(curr) = self.host.pcpus[p.at()].curr {
            self.charge(curr);
        }
        let (scheduler, base, own) = (self.scheduler(), self.base(p), self.slice_of(v));
        let vcpu = &mut self.vcpus[v.at()];
        scheduler.wake(&mut vcpu.entity, base, own);
        vcpu.entity.boosted &= boost;
        self.enqueue(p, v);
        self.group_gets(v, p);
        self.check_preemption(p, v, base);
    }

    fn check_preemption(&mut self, p: PcpuIx, v: VcpuIx, base: i64) {
        if self.scheduler().is_credit() {
            return self.credit_tickle(p, v);
        }
        let Some(curr) = self.host.pcpus[p.at()].curr else { return self.look(p, Cause::Nothing) };
        if self.vcpus[curr.at()].place == Place::Polling {
            return self.look(p, Cause::Yield);
        }
        let scheduler = self.scheduler();
        let runnable = self.host.pcpus[p.at()].queue.len() + 1;
        let slices = (self.slice(v, runnable), self.slice(curr, runnable));
        let (woken, running) = (&self.vcpus[v.at()].entity, &self.vcpus[curr.at()].entity);
        if !scheduler.preempts(woken, running, slices, base, self.group_weight(v, curr)) {
            return self.arm_slice(p);
        }
        self.look(p, Cause::Wake);
    }

    pub(crate) fn slice_of(&self, v: VcpuIx) -> Option<Time> {
        self.vcpus[v.at()].slice
    }

    fn slice(&self, v: VcpuIx, runnable: usize) -> Time {
        self.scheduler().slice(self.slice_of(v), runnable)
    }

    /// A slice is timed only while somebody waits.
    pub(crate) fn arm_slice(&mut self, p: PcpuIx) {
        if self.scheduler().is_credit() {
            return self.credit_arm(p);
        }
        let pcpu = &self.host.pcpus[p.at()];
        let Some(curr) = pcpu.curr.filter(|_| !pcpu.queue.is_empty()) else {
            return self.timers.cancel(self.slots.pcpu(p));
        };
        self.charge(curr);
        let end = self.scheduler().enforced(self.now.saturating_add(self.slice_left(p, curr)));
        self.timers.set(self.slots.pcpu(p), end);
    }

    /// How long the runner, charged, may go on while others wait.
    fn slice_left(&self, p: PcpuIx, curr: VcpuIx) -> Time {
        if let Some(left) = self.group_slice_left(p, curr) {
            return left;
        }
        let slice = self.slice(curr, self.host.pcpus[p.at()].queue.len() + 1);
        slice.saturating_sub(self.vcpus[curr.at()].entity.used)
    }

    /// The pCPU's timer: a slice's end, or the end of a ratelimit.
    pub(crate) fn pcpu_fires(&mut self, p: PcpuIx) {
        let Some(curr) = self.host.pcpus[p.at()].curr else { return };
        self.charge(curr);
        let used = self.slice_left(p, curr) == 0;
        if used || self.scheduler().is_credit() { self.look(p, Cause::Slice) } else { self.arm_slice(p) }
    }

    fn host_schedule(&mut self, p: PcpuIx) {
        if self.scheduler().is_credit() {
            return self.credit_schedule(p);
        }
        let cause = std::mem::take(&mut self.pcpu(p).cause);
        let prev = self.host.pcpus[p.at()].curr;
        if let Some(curr) = prev
            && (cause == Cause::Nothing || !self.step_back(p, curr, cause))
        {
            return;
        }
        let spinner = prev.filter(|curr| cause == Cause::Yield && self.vcpus[curr.at()].runs());
        let next = self.pick(p).or_else(|| self.steal_for(p));
        if let Some(spinner) = spinner {
            // Whoever yields goes behind the one it yields to.
            self.host_preempted(p, spinner);
        }
        match next {
            Some(next) => self.dispatch(p, next, prev, cause),
            None => self.goes_idle(p),
        }
    }

    /// The running vCPU makes room; `false` if it need not.
    fn step_back(&mut self, p: PcpuIx, curr: VcpuIx, cause: Cause) -> bool {
        self.charge(curr);
        if self.vcpus[curr.at()].place == Place::Polling {
            self.stop_polling(curr);
            return true;
        }
        let own = self.slice_of(curr);
        if cause == Cause::Slice {
            let scheduler = self.scheduler();
            scheduler.slice_used(&mut self.vcpus[curr.at()].entity, own);
        }
        if self.host.pcpus[p.at()].queue.is_empty() {
            self.timers.cancel(self.slots.pcpu(p));
            return false;
        }
        if cause != Cause::Yield {
            self.host_preempted(p, curr);
        }
        true
    }

    fn host_preempted(&mut self, p: PcpuIx, v: VcpuIx) {
        self.enqueue(p, v);
        self.leave_pcpu(p);
        self.trace(v);
    }

    /// Nobody is on `p` now.
    pub(crate) fn leave_pcpu(&mut self, p: PcpuIx) {
        let now = self.now;
        let pcpu = self.pcpu(p);
        let left = pcpu.curr.take();
        pcpu.busy += now - pcpu.busy_since;
        pcpu.busy_since = now;
        if let Some(v) = left {
            self.vcpus[v.at()].entity.burns();
            self.cap_holds(self.vcpus[v.at()].vm, false);
        }
    }

    fn pick(&mut self, p: PcpuIx) -> Option<VcpuIx> {
        let favoured = self.pcpu(p).favoured.take();
        let base = self.base(p);
        let fair = self.scheduler().is_fair();
        let (pcpu, vcpus) = (&mut self.host.pcpus[p.at()], &self.vcpus);
        let next = match favoured.filter(|v| pcpu.queue.remove(*v)) {
            Some(next) => next,
            None => pcpu.queue.pop(|v| !fair || vcpus[v.at()].entity.vruntime <= base)?,
        };
        self.dequeued(p, next);
        Some(next)
    }

    fn dispatch(&mut self, p: PcpuIx, v: VcpuIx, prev: Option<VcpuIx>, cause: Cause) {
        self.charge(v);
        let was_idle = self.host.idle.contains(p.at());
        self.host.idle.remove(p.at());
        let wakes = if was_idle { self.host.pcpus[p.at()].idle_periods.end(self.now) } else { 0 };
        let (now, continues) = (self.now, prev == Some(v));
        if let Some(prev) = prev.filter(|prev| *prev != v && self.vcpus[prev.at()].place == Place::Ready) {
            self.vcpus[prev.at()].totals.preemptions += 1;
        }
        let costs = *self.costs(v);
        self.cap_holds(self.vcpus[v.at()].vm, true);
        let pcpu = self.pcpu(p);
        let warm = pcpu.last.replace(v) == Some(v);
        pcpu.curr = Some(v);
        pcpu.busy_since = now;
        let vcpu = &mut self.vcpus[v.at()];
        vcpu.place = Place::Running;
        vcpu.pcpu = p;
        vcpu.totals.ready_max = vcpu.totals.ready_max.max(now - vcpu.placed_at);
        if !continues {
            let woken = std::mem::take(&mut vcpu.woken);
            if woken && self.host.observed {
                vcpu.host_seen.wake_to_run.record(Nanos(now - vcpu.placed_at));
            }
            vcpu.resuming = woken;
            vcpu.host_debt += wakes;
            vcpu.host_debt += match (woken, cause) {
                (true, Cause::Wake) => costs.vcpu_preempt_ns + costs.vcpu_resume_ns,
                (true, _) if was_idle => costs.vcpu_resume_ns,
                _ => costs.vcpu_switch_ns,
            };
            vcpu.debt += if warm { 0 } else { costs.cache_refill_ns };
            vcpu.entity.used = 0;
            vcpu.totals.dispatches += 1;
            self.host.switches += 1;
            self.pcpu(p).started = now;
            self.returned_to_guest(v);
        }
        self.deliver_pending(v);
        self.sibling_changed(p);
        self.trace(v);
        self.arm(v);
        self.arm_slice(p);
    }

    fn goes_idle(&mut self, p: PcpuIx) {
        self.host.idle.insert(p.at());
        let states = self.host.config.idle_states;
        self.host.pcpus[p.at()].idle_periods.begin(self.now, states.0);
        self.timers.cancel(self.slots.pcpu(p));
        self.sibling_changed(p);
    }

    /// A vCPU halts: the host polls on its pCPU for a while, or gives the pCPU away.
    pub(crate) fn host_halt(&mut self, v: VcpuIx) {
        let poll = self.vcpus[v.at()].halt_poll;
        let p = self.vcpus[v.at()].pcpu;
        self.vcpus[v.at()].placed_at = self.now;
        if poll > 0 && self.host.pcpus[p.at()].queue.is_empty() {
            self.vcpus[v.at()].place = Place::Polling;
            self.timers.set(self.slots.run(v), self.now + poll);
            return self.trace(v);
        }
        self.vacate(v);
    }

    fn vacate(&mut self, v: VcpuIx) {
        let p = self.vcpus[v.at()].pcpu;
        let base = self.base(p);
        let scheduler = self.scheduler();
        let vcpu = &mut self.vcpus[v.at()];
        vcpu.place = Place::Halted;
        scheduler.sleep(&mut vcpu.entity, base);
        self.timers.cancel(self.slots.run(v));
        self.group_loses(v);
        self.leave_pcpu(p);
        self.trace(v);
        self.look(p, Cause::Nothing);
    }

    /// The host has polled long enough, or somebody needs the pCPU.
    pub(crate) fn stop_polling(&mut self, v: VcpuIx) {
        self.charge(v);
        self.vacate(v);
    }

    /// An interrupt came while the host polled: the vCPU goes on at once.
    pub(crate) fn host_polled(&mut self, v: VcpuIx) {
        self.charge(v);
        let slept = self.now - self.vcpus[v.at()].placed_at;
        self.adapt_halt_poll(v, slept);
        self.vcpus[v.at()].place = Place::Running;
        self.trace(v);
    }

    /// As kvm_vcpu_halt does: a halt that polling could have covered makes it poll longer, a long one less.
    fn adapt_halt_poll(&mut self, v: VcpuIx, slept: Time) {
        let config = self.host.config.halt_poll;
        let poll = &mut self.vcpus[v.at()].halt_poll;
        if config.max == 0 || slept <= *poll {
            return;
        }
        if slept > config.max {
            // halt_poll_ns_shrink is 0: down to nothing.
            *poll = 0;
        } else if *poll < config.max {
            *poll = (*poll * 2).max(config.grow_start).min(config.max);
        }
    }

    /// Two hardware threads of a core are slower when both are busy.
    fn sibling_changed(&mut self, p: PcpuIx) {
        if self.host.config.smt < 2 {
            return;
        }
        let sibling = PcpuIx(p.0 ^ 1);
        if sibling.at() >= self.host.pcpus.len() {
            return;
        }
        let busy = |world: &Self, p: PcpuIx| world.host.pcpus[p.at()].curr.filter(|v| world.vcpus[v.at()].runs());
        let (here, there) = (busy(self, p), busy(self, sibling));
        let speed = if here.is_some() && there.is_some() { SMT_SPEED } else { 1_000 };
        for v in here.into_iter().chain(there) {
            if self.vcpus[v.at()].speed != speed {
                self.charge(v);
                self.vcpus[v.at()].speed = speed;
                self.arm(v);
            }
        }
    }

    /// Whether the vCPU's guest has nothing for it to do but to wait for an interrupt.
    pub(crate) fn spins_idly(&self, v: VcpuIx) -> bool {
        matches!(self.vcpus[v.at()].activity, Activity::Yield | Activity::Poll)
    }
}
