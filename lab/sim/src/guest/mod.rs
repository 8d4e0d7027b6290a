//! The guest's scheduler: a queue of threads for each vCPU, where a woken thread goes, who takes whose work, what an
//! idle vCPU does.
//!
//! As Linux does it, as far as it matters here. A woken thread goes to the vCPU it ran on if that is idle, else to
//! another idle one, else waits where it was. A vCPU is idle when only the idle task or the yielding thread runs there
//! (wake-up placement treats SCHED_IDLE as idle, or does not: [`GuestConfig::yielding_is_idle`]). A vCPU that becomes
//! idle takes waiting threads from others, unless its idle periods are so short that it would not pay
//! (`newidle_balance`); a tick later an idle vCPU takes them in any case.

mod exec;
mod idle;
mod interrupt;
mod rwsem;
mod yielder;

use crate::engine::{NEVER, Time, next_in_word};
use crate::ids::{ThreadIx, VcpuIx, VmIx};
use crate::program::{Doing, ThreadState};
use crate::world::{Activity, Irq, Place, World, Yielder};

/// An idle vCPU whose idle periods are shorter on average takes no work from others (sched_migration_cost).
const MIGRATION_PAYS: Time = 500_000;
/// The guest's tick: waiting threads are moved to idle vCPUs.
const TICK: Time = 4_000_000;
/// After so many ticks also to those that a yielding thread keeps awake (so the benchmark `guest`, `spread`).
const TICKS_TO_RETAINED: u32 = 25;

impl World {
    /// When the vCPU has to be looked at again, if nothing comes in between.
    pub(crate) fn arm(&mut self, v: VcpuIx) {
        let vcpu = &self.vcpus[v.at()];
        if !vcpu.runs() {
            return;
        }
        let unpaid = (vcpu.since + vcpu.takes(vcpu.host_debt + vcpu.debt)).max(self.now);
        let due = if vcpu.handling.is_empty() { unpaid.saturating_add(self.activity_lasts(v)) } else { unpaid };
        let slot = self.slots.run(v);
        if due == NEVER { self.timers.cancel(slot) } else { self.timers.set(slot, due) }
    }

    /// How long the activity goes on by itself, once debts are paid.
    fn activity_lasts(&self, v: VcpuIx) -> Time {
        let vcpu = &self.vcpus[v.at()];
        match vcpu.activity {
            Activity::Idle => 0,
            Activity::Yield => vcpu.yielder.as_deref().map_or(NEVER, Yielder::quiet),
            Activity::Poll => vcpu.poll_until.saturating_sub(self.now),
            Activity::Thread(t) => {
                let thread = &self.threads[t.at()];
                let objects = &self.vms[vcpu.vm.at()].objects;
                let lasts = match thread.doing {
                    Doing::Compute { left } => vcpu.takes(left),
                    Doing::Spin { lock } if objects.spinlocks[lock as usize].owner == Some(t) => 0,
                    Doing::Step | Doing::Answers { missing: 0 } => 0,
                    Doing::Spin { .. } | Doing::Answers { .. } => vcpu.pause_left,
                };
                if vcpu.resched && thread.preemptible() {
                    return 0;
                }
                let others_wait = !vcpu.queue.is_empty() && thread.preemptible();
                let slice = self.vms[vcpu.vm.at()].guest.config.slice;
                if others_wait { lasts.min(slice.saturating_sub(vcpu.thread_ran)) } else { lasts }
            }
        }
    }

    /// What the vCPU was doing has come to an end, or its debts are paid.
    pub(crate) fn vcpu_fires(&mut self, v: VcpuIx) {
        if self.vcpus[v.at()].place == Place::Polling {
            return self.stop_polling(v);
        }
        self.charge(v);
        if self.vcpus[v.at()].owes() {
            return self.arm(v);
        }
        self.finish_handlers(v);
        match self.vcpus[v.at()].activity {
            // A handler may have caused a debt.
            _ if self.vcpus[v.at()].owes() => {}
            Activity::Idle => self.pick_thread(v),
            Activity::Yield => self.yielder_fires(v),
            Activity::Poll => self.poll_fires(v),
            Activity::Thread(t) => self.thread_fires(v, t),
        }
        self.arm(v);
    }

    fn thread_fires(&mut self, v: VcpuIx, t: ThreadIx) {
        let thread = &self.threads[t.at()];
        let vcpu = &self.vcpus[v.at()];
        let preemptible = thread.preemptible();
        let may_stay = thread.may_use(vcpu.index) && self.vms[vcpu.vm.at()].guest.active & vcpu.bit() != 0;
        if preemptible && !may_stay && self.has_elsewhere(t) {
            return self.push_away(v, t);
        }
        if preemptible && std::mem::take(&mut self.vcpus[v.at()].resched) && !self.vcpus[v.at()].queue.is_empty() {
            return self.guest_preempt(v, t);
        }
        let (thread, vcpu) = (&self.threads[t.at()], &self.vcpus[v.at()]);
        let slice = self.vms[vcpu.vm.at()].guest.config.slice;
        if preemptible && !vcpu.queue.is_empty() && vcpu.thread_ran >= slice {
            return self.rotate(v, t);
        }
        match thread.doing {
            Doing::Compute { left } if left > 0 => {}
            Doing::Spin { .. } | Doing::Answers { .. } if !self.spin_is_over(t) => {
                if self.vcpus[v.at()].pause_left == 0 {
                    self.pause_exit(v);
                }
            }
            _ => self.exec(v, t),
        }
    }

    /// The thread's slice is over: it goes behind those who wait.
    fn rotate(&mut self, v: VcpuIx, t: ThreadIx) {
        self.involuntary(v, t);
        self.vcpus[v.at()].queue.push_back(&mut self.threads, t);
        self.pick_thread(v);
    }

    /// The first in the queue has the vCPU; the thread goes on after it.
    fn guest_preempt(&mut self, v: VcpuIx, t: ThreadIx) {
        self.involuntary(v, t);
        self.vcpus[v.at()].queue.push_second(&mut self.threads, t);
        self.pick_thread(v);
    }

    /// The thread must not be on this vCPU any more.
    fn push_away(&mut self, v: VcpuIx, t: ThreadIx) {
        self.involuntary(v, t);
        self.wake_on(t, v);
        self.pick_thread(v);
    }

    fn involuntary(&mut self, v: VcpuIx, t: ThreadIx) {
        self.vcpus[v.at()].totals.work_switches += 1;
        self.vcpus[v.at()].activity = Activity::Idle;
        self.threads[t.at()].state = ThreadState::Waiting { since: self.now };
        let vm = self.vcpus[v.at()].vm;
        self.vms[vm.at()].totals.involuntary_switches += 1;
    }

    fn has_elsewhere(&self, t: ThreadIx) -> bool {
        let thread = &self.threads[t.at()];
        self.vms[thread.vm.at()].guest.active & thread.allowed != 0
    }

    /// The thread left the vCPU of its own will.
    pub(crate) fn blocked(&mut self, v: VcpuIx, t: ThreadIx) {
        self.vcpus[v.at()].totals.work_switches += 1;
        self.vcpus[v.at()].activity = Activity::Idle;
        let vm = self.vcpus[v.at()].vm;
        let thread = &mut self.threads[t.at()];
        let length = thread.cpu - std::mem::replace(&mut thread.cpu_at_switch, thread.cpu);
        let vm = &mut self.vms[vm.at()];
        vm.totals.voluntary_switches += 1;
        if vm.guest.observed {
            vm.totals.g_comp.record(gleaner_model::Nanos(length));
        }
    }

    /// The vCPU has nobody: takes the next thread, one from elsewhere, or idles.
    pub(crate) fn pick_thread(&mut self, v: VcpuIx) {
        debug_assert_eq!(self.vcpus[v.at()].activity, Activity::Idle);
        let next = self.vcpus[v.at()].queue.pop_front(&mut self.threads);
        self.note_waiting(v);
        match next.or_else(|| self.pull(v)) {
            Some(t) => self.switch_in(v, t),
            None => self.enter_idle(v),
        }
    }

    fn switch_in(&mut self, v: VcpuIx, t: ThreadIx) {
        self.leave_idle(v);
        let vm = self.vcpus[v.at()].vm;
        let costs = *self.costs(v);
        let vcpu = &mut self.vcpus[v.at()];
        vcpu.activity = Activity::Thread(t);
        vcpu.thread_ran = 0;
        vcpu.resched = false;
        vcpu.debt += costs.guest_switch_ns;
        self.vms[vm.at()].guest.idle &= !vcpu.bit();
        self.vms[vm.at()].guest.left &= !vcpu.bit();
        let thread = &mut self.threads[t.at()];
        if thread.vcpu != v {
            thread.vcpu = v;
            thread.migrations += 1;
            vcpu.debt += costs.thread_migration_ns;
        }
        if let ThreadState::Waiting { since } = thread.state {
            thread.waited += self.now - since;
            if self.vms[vm.at()].guest.observed {
                self.vms[vm.at()].totals.wake_to_run.record(gleaner_model::Nanos(self.now - since));
            }
        }
        thread.state = ThreadState::Running;
        self.begin_to_spin(v);
        self.note_waiting(v);
        self.trace(v);
    }

    /// A spinning thread's pause window begins anew.
    pub(crate) fn begin_to_spin(&mut self, v: VcpuIx) {
        let window = self.host.config.ple.map_or(NEVER, |ple| ple.window);
        let vcpu = &mut self.vcpus[v.at()];
        (vcpu.pause_left, vcpu.pause_window) = (window, window);
    }

    /// Wakes a thread that was blocked; `from` is the vCPU that does it.
    pub(crate) fn wake(&mut self, t: ThreadIx, from: VcpuIx) {
        let thread = &mut self.threads[t.at()];
        debug_assert!(matches!(thread.state, ThreadState::Blocked), "{t:?} is woken in state {:?}", thread.state);
        thread.state = ThreadState::Waiting { since: self.now };
        self.wake_on(t, from);
    }

    /// Finds a vCPU for a thread that wants one, and tells it.
    fn wake_on(&mut self, t: ThreadIx, from: VcpuIx) {
        let thread = &self.threads[t.at()];
        let vm = thread.vm;
        let to = self.vcpu_of(vm, self.place_for(t));
        self.charge(to);
        let preempts = self.guest_preempts(to, t);
        let queue = &mut self.vcpus[to.at()].queue;
        if preempts {
            queue.push_front(&mut self.threads, t);
        } else {
            queue.push_back(&mut self.threads, t);
        }
        let bit = self.vcpus[to.at()].bit();
        let was_idle = self.vms[vm.at()].guest.idle & bit != 0;
        self.vms[vm.at()].guest.idle &= !bit;
        self.note_waiting(to);
        self.vcpus[to.at()].totals.cross_wakeups += u64::from(to != from);
        match (to == from, was_idle, preempts) {
            (true, _, true) => self.vcpus[to.at()].resched = true,
            (false, true, _) => return self.kick(to, from),
            (false, false, true) => self.send(to, from, Irq::Resched),
            (true, _, false) | (false, false, false) => {}
        }
        self.arm(to);
    }

    /// Whether a woken thread is to run before the one that runs (CFS's wakeup_preempt_entity). Lifts its virtual
    /// runtime.
    fn guest_preempts(&mut self, to: VcpuIx, t: ThreadIx) -> bool {
        let Activity::Thread(running) = self.vcpus[to.at()].activity else { return false };
        let granularity = self.vms[self.vcpus[to.at()].vm.at()].guest.config.wakeup_granularity;
        let now = self.threads[running.at()].vruntime;
        let woken = &mut self.threads[t.at()].vruntime;
        *woken = (*woken).clamp(now.saturating_sub(3 * granularity), now + granularity);
        running != t && now - (*woken).min(now) > granularity
    }

    /// Where a thread that wants a vCPU goes.
    fn place_for(&self, t: ThreadIx) -> u32 {
        let thread = &self.threads[t.at()];
        let guest = &self.vms[thread.vm.at()].guest;
        let before = self.vcpus[thread.vcpu.at()].index;
        let allowed = match guest.active & thread.allowed {
            0 => thread.allowed,
            some => some,
        };
        let idle = self.taken_for_idle(thread.vm) & allowed & sharing_cache(guest.config.llc_vcpus, before);
        if idle >> before & 1 == 1 {
            return before;
        }
        let instead = next_in_word(idle, before + 1);
        instead.or_else(|| next_in_word(allowed, before)).unwrap_or(before)
    }

    /// vCPUs that a woken thread goes to as to idle ones.
    fn taken_for_idle(&self, vm: VmIx) -> u64 {
        let guest = &self.vms[vm.at()].guest;
        if guest.config.yielding_is_idle {
            return guest.idle;
        }
        let first = self.vms[vm.at()].first_vcpu.at();
        let vcpus = &self.vcpus[first..first + guest.all.count_ones() as usize];
        let yielding =
            vcpus.iter().filter(|vcpu| vcpu.activity == Activity::Yield).fold(0, |all, vcpu| all | vcpu.bit());
        guest.idle & !yielding
    }

    /// Makes an idle vCPU look at its queue: by an interrupt, unless its idle task polls.
    fn kick(&mut self, to: VcpuIx, from: VcpuIx) {
        if self.vcpus[to.at()].activity == Activity::Poll {
            let seen = self.now + self.costs(to).poll_wake_ns;
            return self.arrives(to, seen, Irq::Resched);
        }
        self.send(to, from, Irq::Resched);
    }

    /// Whether somebody else could run what waits here.
    pub(crate) fn note_waiting(&mut self, v: VcpuIx) {
        let vcpu = &self.vcpus[v.at()];
        let busy = matches!(vcpu.activity, Activity::Thread(_));
        let (waits, bit, vm) = (vcpu.queue.len() + usize::from(busy) > 1, vcpu.bit(), vcpu.vm);
        let guest = &mut self.vms[vm.at()].guest;
        if !waits {
            guest.waiting &= !bit;
            return;
        }
        let first = guest.waiting == 0;
        guest.waiting |= bit;
        if first && guest.all.count_ones() > 1 {
            guest.ticks_waited = 0;
            let slot = self.slots.balance(vm);
            self.timers.set(slot, (self.now / TICK + 1) * TICK);
        }
    }

    /// A vCPU that becomes idle takes a thread that waits elsewhere.
    fn pull(&mut self, v: VcpuIx) -> Option<ThreadIx> {
        let vcpu = &self.vcpus[v.at()];
        let guest = &self.vms[vcpu.vm.at()].guest;
        if guest.active & vcpu.bit() == 0 || guest.waiting == 0 || vcpu.idle_mean < MIGRATION_PAYS {
            return None;
        }
        let source = self.vcpu_of(vcpu.vm, next_in_word(guest.waiting, vcpu.index + 1)?);
        self.take_from(source, v)
    }

    fn take_from(&mut self, source: VcpuIx, v: VcpuIx) -> Option<ThreadIx> {
        let index = self.vcpus[v.at()].index;
        let t = self.vcpus[source.at()].queue.take_first(&mut self.threads, |thread| thread.may_use(index))?;
        self.note_waiting(source);
        Some(t)
    }

    /// The guest's tick, while threads wait: idle vCPUs take them.
    pub(crate) fn guest_balances(&mut self, vm: VmIx) {
        let guest = &mut self.vms[vm.at()].guest;
        guest.ticks_waited += 1;
        let patient = guest.ticks_waited < TICKS_TO_RETAINED;
        let mut sources = guest.waiting;
        let mut idle = guest.idle & guest.active;
        while let (Some(source), Some(to)) = (next_in_word(sources, 0), next_in_word(idle, 0)) {
            let to_vcpu = self.vcpu_of(vm, to);
            if patient && self.vcpus[to_vcpu.at()].activity == Activity::Yield {
                idle &= !(1 << to);
                continue;
            }
            sources &= !(1 << source);
            let Some(t) = self.take_from(self.vcpu_of(vm, source), to_vcpu) else { continue };
            idle &= !(1 << to);
            self.charge(to_vcpu);
            self.vcpus[to_vcpu.at()].queue.push_back(&mut self.threads, t);
            self.vms[vm.at()].guest.idle &= !(1 << to);
            self.kick(to_vcpu, to_vcpu);
        }
        if self.vms[vm.at()].guest.waiting != 0 {
            let slot = self.slots.balance(vm);
            self.timers.set(slot, self.now + TICK);
        }
    }

    /// The workload may use these vCPUs from now on.
    pub(crate) fn set_active(&mut self, vm: VmIx, active: u64) {
        let before = std::mem::replace(&mut self.vms[vm.at()].guest.active, active);
        let mut gone = before & !active;
        while gone != 0 {
            let v = self.vcpu_of(vm, gone.trailing_zeros());
            gone &= gone - 1;
            self.charge(v);
            let mut queue = std::mem::take(&mut self.vcpus[v.at()].queue);
            while let Some(t) = queue.pop_front(&mut self.threads) {
                if self.has_elsewhere(t) {
                    self.wake_on(t, v);
                } else {
                    self.vcpus[v.at()].queue.push_back(&mut self.threads, t);
                }
            }
            self.note_waiting(v);
            // Whoever runs there leaves at once: a stopper thread does that, by an interrupt.
            if matches!(self.vcpus[v.at()].activity, Activity::Thread(_)) {
                self.send(v, v, Irq::Resched);
            }
        }
    }
}

/// vCPUs that share a last-level cache with this one, where `size` of them do; 0: all.
fn sharing_cache(size: u32, with: u32) -> u64 {
    if size == 0 || size >= u64::BITS {
        return u64::MAX;
    }
    ((1 << size) - 1) << (with / size * size).min(u64::BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_cache() {
        assert_eq!(sharing_cache(0, 3), u64::MAX);
        assert_eq!(sharing_cache(64, 3), u64::MAX);
        assert_eq!(sharing_cache(8, 3), 0xff);
        assert_eq!(sharing_cache(8, 8), 0xff00);
        assert_eq!(sharing_cache(1, 63), 1 << 63);
    }
}
