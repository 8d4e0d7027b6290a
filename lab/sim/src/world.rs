//! The simulated world and its event loop: take the next timer, deal with it, let the pCPUs choose.

use crate::config::{Config, IdleLoop};
use crate::costs::Costs;
use crate::engine::{Time, Timers};
use crate::guest::Guest;
use crate::host::{Cap, Host};
use crate::ids::{PcpuIx, ThreadIx, VcpuIx, VmIx};
use crate::policies::Gleaner;
use crate::program::{Code, Objects, Thread};
use crate::result::VmTotals;
use crate::slices::Slices;
use crate::timeline::Timeline;
use crate::vcpu::{Activity, Place, Vcpu, pay};

/// Which timer is whose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    vcpus: u32,
    pcpus: u32,
    threads: u32,
    vms: u32,
}

/// Timers of a vCPU, and one place that is never used: a power of two.
const PER_VCPU: u32 = 4;

/// A timer's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// What a vCPU is doing comes to an end.
    Run(VcpuIx),
    /// An interrupt arrives.
    Irq(VcpuIx),
    /// A yielding thread's sleep ends.
    Nap(VcpuIx),
    /// A slice ends.
    Pcpu(PcpuIx),
    /// A sleep or a request ends.
    Thread(ThreadIx),
    /// A window of observation ends.
    Window(VmIx),
    /// The guest's scheduler looks whether somebody waits in vain.
    Balance(VmIx),
    /// A virtual machine may use CPUs again, or has used its share.
    Cap(VmIx),
    /// Credit is given out.
    Credit,
    /// A pCPU's tick (credit).
    Tick,
    /// A window of the host's observation ends.
    Slices,
    /// A pCPU looks whether another one has more to do.
    Pulls(PcpuIx),
}

impl Slots {
    pub(crate) fn new(vcpus: usize, pcpus: usize, threads: usize, vms: usize) -> Self {
        let of = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { vcpus: of(vcpus), pcpus: of(pcpus), threads: of(threads), vms: of(vms) }
    }

    pub(crate) fn count(self) -> usize {
        [(PER_VCPU * self.vcpus) as usize, 2 * self.pcpus as usize, self.threads as usize, 3 * self.vms as usize, 3]
            .iter()
            .sum()
    }

    pub(crate) fn run(self, v: VcpuIx) -> u32 {
        self.vcpu(0, v)
    }

    pub(crate) fn irq(self, v: VcpuIx) -> u32 {
        self.vcpu(1, v)
    }

    pub(crate) fn nap(self, v: VcpuIx) -> u32 {
        self.vcpu(2, v)
    }

    /// A vCPU's are beside each other.
    #[expect(clippy::unused_self, reason = "as the others")]
    fn vcpu(self, kind: u32, v: VcpuIx) -> u32 {
        v.0 * PER_VCPU + kind
    }

    pub(crate) fn pcpu(self, p: PcpuIx) -> u32 {
        PER_VCPU * self.vcpus + p.0
    }

    pub(crate) fn thread(self, t: ThreadIx) -> u32 {
        PER_VCPU * self.vcpus + self.pcpus + t.0
    }

    fn vm(self, kind: u32, vm: VmIx) -> u32 {
        PER_VCPU * self.vcpus + self.pcpus + self.threads + kind * self.vms + vm.0
    }

    pub(crate) fn window(self, vm: VmIx) -> u32 {
        self.vm(0, vm)
    }

    pub(crate) fn balance(self, vm: VmIx) -> u32 {
        self.vm(1, vm)
    }

    pub(crate) fn cap(self, vm: VmIx) -> u32 {
        self.vm(2, vm)
    }

    pub(crate) fn credit(self) -> u32 {
        self.vm(3, VmIx(0))
    }

    pub(crate) fn slices(self) -> u32 {
        self.credit() + 1
    }

    pub(crate) fn tick(self) -> u32 {
        self.slices() + 1
    }

    pub(crate) fn pulls(self, p: PcpuIx) -> u32 {
        self.tick() + 1 + p.0
    }

    #[expect(clippy::same_functions_in_if_condition, reason = "`below` takes its part of the numbers each time")]
    pub(crate) fn owner(self, mut slot: u32) -> Owner {
        let mut below = |n: u32| {
            let found = (slot < n).then_some(slot);
            slot = slot.wrapping_sub(n);
            found
        };
        let vms = self.vms;
        if let Some(n) = below(PER_VCPU * self.vcpus) {
            let v = VcpuIx(n / PER_VCPU);
            [Owner::Run(v), Owner::Irq(v), Owner::Nap(v), Owner::Nap(v)][(n % PER_VCPU) as usize]
        } else if let Some(n) = below(self.pcpus) {
            Owner::Pcpu(PcpuIx(n))
        } else if let Some(n) = below(self.threads) {
            Owner::Thread(ThreadIx(n))
        } else if let Some(n) = below(vms) {
            Owner::Window(VmIx(n))
        } else if let Some(n) = below(vms) {
            Owner::Balance(VmIx(n))
        } else if let Some(n) = below(vms) {
            Owner::Cap(VmIx(n))
        } else if below(1).is_some() {
            Owner::Credit
        } else if below(1).is_some() {
            Owner::Slices
        } else if below(1).is_some() {
            Owner::Tick
        } else {
            Owner::Pulls(PcpuIx(slot))
        }
    }
}

/// A virtual machine.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) name: String,
    /// What things cost in it (`World::costs`).
    pub(crate) costs: u32,
    pub(crate) weight: u32,
    pub(crate) idle_loop: IdleLoop,
    pub(crate) measured: bool,
    pub(crate) first_vcpu: VcpuIx,
    pub(crate) vcpus: u32,
    pub(crate) first_thread: ThreadIx,
    pub(crate) threads: u32,
    pub(crate) objects: Objects,
    pub(crate) guest: Guest,
    pub(crate) gleaner: Option<Box<Gleaner>>,
    /// Its limit, if it has one, as CFS has it.
    pub(crate) cap: Option<Cap>,
    /// And as Xen's credit scheduler has it, thousandths of a pCPU.
    pub(crate) credit_cap_permille: Option<u32>,
    /// vCPUs that wait for a pCPU, as bits.
    pub(crate) ready: u64,
    /// Whom a pause-loop exit preferred last.
    pub(crate) yielded_to: u32,
    pub(crate) totals: VmTotals,
}

/// Whoever watches is asked after so many events.
const EVENTS_BETWEEN_LOOKS: u64 = 4096;

/// More events at the same time than this, and time will not go on: there are at most 16 times 1,024 threads.
const EVENTS_AT_A_TIME_MAX: u64 = 20_000_000;

/// How far a simulation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Simulated time.
    pub now_ns: Time,
    /// When it ends at the latest.
    pub end_ns: Time,
    /// Events dealt with.
    pub events: u64,
}

/// The simulation's state.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) timers: Timers,
    pub(crate) slots: Slots,
    pub(crate) host: Host,
    pub(crate) vms: Vec<Vm>,
    pub(crate) vcpus: Vec<Vcpu>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) code: Code,
    /// Each once, however many virtual machines have them.
    pub(crate) costs: Vec<Costs>,
    pub(crate) events: u64,
    /// Measured threads that have not ended.
    pub(crate) measured_left: usize,
    pub(crate) endless: Option<ThreadIx>,
    /// Whoever watches has ended it.
    pub(crate) stopped: bool,
    /// Events come and time does not go on.
    pub(crate) stands_still: bool,
    pub(crate) timeline: Option<Timeline>,
    /// Gleaner on the host.
    pub(crate) slices: Option<Slices>,
    pub(crate) config: Config,
}

impl World {
    /// Until the measured workloads have ended, nothing can happen any more, or it is time.
    #[cfg(test)]
    pub(crate) fn run(&mut self) {
        self.run_while(&mut |_| true);
    }

    /// As long as `go_on` wants, too, which is asked every [`EVENTS_BETWEEN_LOOKS`] events.
    pub(crate) fn run_while(&mut self, go_on: &mut dyn FnMut(Moment) -> bool) {
        self.settle();
        let mut began = (self.now, self.events);
        while self.measured_left > 0 && self.endless.is_none() {
            if self.events % EVENTS_BETWEEN_LOOKS == EVENTS_BETWEEN_LOOKS - 1 {
                let moment = Moment { now_ns: self.now, end_ns: self.config.end, events: self.events };
                self.stopped = !go_on(moment);
                if began.0 != self.now {
                    began = (self.now, self.events);
                }
                self.stands_still = self.events - began.1 >= EVENTS_AT_A_TIME_MAX;
                if self.stopped || self.stands_still {
                    break;
                }
            }
            let Some((time, slot)) = self.timers.pop() else { break };
            if time > self.config.end {
                self.now = self.config.end;
                break;
            }
            debug_assert!(time >= self.now, "time goes back");
            self.now = time;
            self.events += 1;
            self.deal_with(self.slots.owner(slot));
            self.settle();
            #[cfg(debug_assertions)]
            self.check();
        }
        for v in 0..self.vcpus.len() {
            self.charge(VcpuIx::of(v));
        }
    }

    fn deal_with(&mut self, owner: Owner) {
        match owner {
            Owner::Run(v) => self.vcpu_fires(v),
            Owner::Irq(v) => self.irq_arrives(v),
            Owner::Nap(v) => self.nap_ends(v),
            Owner::Pcpu(p) => self.pcpu_fires(p),
            Owner::Thread(t) => self.wait_ends(t),
            Owner::Window(vm) => self.window_ends(vm),
            Owner::Balance(vm) => self.guest_balances(vm),
            Owner::Cap(vm) => self.cap_fires(vm),
            Owner::Credit => self.give_credit(),
            Owner::Tick => self.credit_tick(),
            Owner::Slices => self.slices_step(),
            Owner::Pulls(p) => self.pcpu_pulls(p),
        }
    }

    /// What things cost in a vCPU's virtual machine.
    pub(crate) fn costs(&self, v: VcpuIx) -> &Costs {
        &self.costs[self.vcpus[v.at()].costs as usize]
    }

    /// Charges the time since the last charge to what the vCPU did.
    pub(crate) fn charge(&mut self, v: VcpuIx) {
        let vcpu = &mut self.vcpus[v.at()];
        let mut left = self.now - vcpu.since;
        if left == 0 {
            return;
        }
        vcpu.since = self.now;
        match vcpu.place {
            Place::Running => {}
            Place::Ready => {
                vcpu.totals.ready += left;
                return self.stolen(v, left);
            }
            Place::Halted => return vcpu.totals.halted += left,
            Place::Polling => {
                vcpu.totals.halted += left;
                return vcpu.totals.host_polled += left;
            }
        }
        vcpu.entity.ran(left, vcpu.weight);
        if vcpu.host_debt > 0 {
            let (takes, does) = (vcpu.takes(vcpu.host_debt), vcpu.does(left));
            let paid = pay(&mut vcpu.host_debt, &mut left, takes, does);
            vcpu.totals.overhead += paid;
            vcpu.totals.resuming += if vcpu.resuming { paid } else { 0 };
            self.stolen(v, paid);
        }
        let vcpu = &mut self.vcpus[v.at()];
        if vcpu.debt > 0 {
            let (takes, does) = (vcpu.takes(vcpu.debt), vcpu.does(left));
            vcpu.totals.kernel += pay(&mut vcpu.debt, &mut left, takes, does);
        }
        if left == 0 {
            return;
        }
        match vcpu.activity {
            Activity::Idle => vcpu.totals.kernel += left,
            Activity::Poll if vcpu.retained_for > 0 => vcpu.totals.retained += left,
            Activity::Poll => vcpu.totals.polled += left,
            Activity::Yield => {
                vcpu.totals.retained += left;
                if let Some(yielder) = &mut vcpu.yielder {
                    yielder.spun(left);
                }
            }
            Activity::Thread(t) => {
                vcpu.totals.work += left;
                vcpu.thread_ran += left;
                let work = vcpu.does(left);
                let spins = self.threads[t.at()].ran(left, work);
                if spins && vcpu.pause_left != Time::MAX {
                    vcpu.pause_left = vcpu.pause_left.saturating_sub(left);
                }
            }
        }
    }

    /// The vCPU had no pCPU, or not yet, for so long: whose time a guest takes that for that is not told of steal. Its
    /// clock goes on, and whoever is current is charged (kernel/sched/core.c, `update_rq_clock_task` without
    /// `CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    fn stolen(&mut self, v: VcpuIx, time: Time) {
        let vcpu = &mut self.vcpus[v.at()];
        match vcpu.activity {
            Activity::Thread(t) => {
                vcpu.totals.stolen_work += time;
                self.threads[t.at()].stolen += time;
            }
            Activity::Yield => vcpu.totals.stolen_retained += time,
            Activity::Idle | Activity::Poll => {}
        }
    }

    /// The totals of all parts are the time that has passed; nobody has more than one place.
    #[cfg(debug_assertions)]
    fn check(&self) {
        // All of it at every event would make big machines quadratic: a few of each, in turn, and all of them small
        // ones.
        let turn = usize::try_from(self.events).unwrap_or(0);
        for n in 0..self.vcpus.len().min(4) {
            self.check_vcpu(VcpuIx::of((turn + n) % self.vcpus.len()));
        }
        for n in 0..self.vms.len().min(1) {
            self.check_objects(&self.vms[(turn + n) % self.vms.len()]);
        }
    }

    #[cfg(debug_assertions)]
    fn check_vcpu(&self, v: VcpuIx) {
        let vcpu = &self.vcpus[v.at()];
        assert_eq!(vcpu.totals.sum(), vcpu.since, "run + ready + idle + steal = wall: {v:?} {vcpu:?}");
        let pcpu = &self.host.pcpus[vcpu.pcpu.at()];
        let holds = matches!(vcpu.place, Place::Running | Place::Polling);
        assert_eq!(holds, pcpu.curr == Some(v), "{v:?} {:?}, its pCPU has {:?}", vcpu.place, pcpu.curr);
        let queues = vcpu.place == Place::Ready && !self.is_throttled(v);
        assert_eq!(queues, pcpu.queue.iter().any(|other| other == v), "{v:?}");
        let waits = if vcpu.place == Place::Ready { self.now - vcpu.placed_at } else { 0 };
        assert!(waits <= self.host.waits_at_most, "{v:?} starves: it has waited for {waits} ns");
        // Work conservation, per pCPU: nobody waits for a pCPU that has nobody.
        assert!(pcpu.curr.is_some() || pcpu.queue.is_empty(), "{:?} idles while {v:?} waits", vcpu.pcpu);
        // And under Xen's scheduler for any pCPU that it may use.
        let idles = || self.host.idle.next_common(self.host.classes[vcpu.class as usize].several()?, 0);
        let steals = queues && self.scheduler().is_credit();
        assert!(!steals || idles().is_none(), "pCPU {:?} idles while {v:?} waits elsewhere", idles());
        if vcpu.place == Place::Halted {
            assert!(
                vcpu.pending.is_empty() && vcpu.queue.is_empty() || !vcpu.arriving.is_empty(),
                "{v:?} sleeps through"
            );
        }
    }

    #[cfg(debug_assertions)]
    fn check_objects(&self, vm: &Vm) {
        use crate::program::ThreadState;
        for mutex in &vm.objects.mutexes {
            assert!(mutex.owner.is_none_or(|owner| self.threads[owner.at()].state != ThreadState::Ended));
            assert!(mutex.waiters.iter(&self.threads).all(|t| mutex.owner != Some(t)), "an owner waits for itself");
        }
        for sem in &vm.objects.rwsems {
            assert!(sem.readers == 0 || sem.writer.is_none(), "{sem:?} is read and written");
            let free = sem.readers == 0 && sem.writer.is_none() && sem.coming.is_none();
            assert!(!free || sem.waiters.is_empty(), "{sem:?} is free and has waiters");
        }
        for lock in &vm.objects.spinlocks {
            assert!(lock.owner.is_some() || lock.waiters.is_empty(), "a free ticket lock has waiters");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two that compute without end on one pCPU, in turn.
    fn two_hogs() -> World {
        use crate::config::{HostConfig, Scheduler, VmConfig};
        use crate::program::{Span, Workload};
        let work = || Workload::one(vec![crate::program::Op::Compute(Span::Fixed(10_000_000_000))], 1);
        let vms = ["a", "b"].map(|name| VmConfig::new(name, 1, Costs::FREE, work()));
        let mut config = Config::new(HostConfig::new(1, Scheduler::RoundRobin { slice: 1_000_000 }), vms.into());
        config.end = 50_000_000;
        crate::setup::Simulation::new(config).expect("a valid configuration").into_world()
    }

    #[test]
    fn taking_turns_is_no_starvation() {
        let mut world = two_hogs();
        world.run();
        assert_eq!(world.now, 50_000_000);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "starves")]
    fn who_never_gets_its_turn_is_noticed() {
        let mut world = two_hogs();
        // Whoever runs keeps on: its slice is a second, and the bound knows of 1 ms.
        world.vcpus.iter_mut().for_each(|vcpu| vcpu.slice = Some(1_000_000_000));
        world.timers.set(world.slots.window(VmIx(0)), 2_500_000);
        world.run();
    }

    #[test]
    fn every_slot_has_one_owner() {
        let slots = Slots::new(3, 2, 4, 2);
        let mut owners = vec![
            (slots.run(VcpuIx(2)), Owner::Run(VcpuIx(2))),
            (slots.irq(VcpuIx(0)), Owner::Irq(VcpuIx(0))),
            (slots.nap(VcpuIx(1)), Owner::Nap(VcpuIx(1))),
            (slots.pcpu(PcpuIx(1)), Owner::Pcpu(PcpuIx(1))),
            (slots.thread(ThreadIx(3)), Owner::Thread(ThreadIx(3))),
            (slots.window(VmIx(1)), Owner::Window(VmIx(1))),
            (slots.balance(VmIx(0)), Owner::Balance(VmIx(0))),
            (slots.cap(VmIx(1)), Owner::Cap(VmIx(1))),
            (slots.credit(), Owner::Credit),
            (slots.slices(), Owner::Slices),
            (slots.tick(), Owner::Tick),
            (slots.pulls(PcpuIx(1)), Owner::Pulls(PcpuIx(1))),
        ];
        for (slot, owner) in &owners {
            assert_eq!(slots.owner(*slot), *owner);
        }
        owners.sort_by_key(|(slot, _)| *slot);
        owners.dedup_by_key(|(slot, _)| *slot);
        assert_eq!((owners.len(), slots.count()), (12, 12 + 4 + 4 + 6 + 3));
    }
}
