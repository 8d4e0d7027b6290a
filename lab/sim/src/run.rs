//! The event loop: take the next timer, deal with it, let the pCPUs choose. In debug builds the world is checked after
//! each event.

use crate::ids::VcpuIx;
use crate::world::{Owner, World};
#[cfg(debug_assertions)]
use crate::world::{Place, Vm};

/// Whether time goes on is looked at after so many events.
const EVENTS_BETWEEN_LOOKS: u64 = 4096;

/// More events at the same time than this, and time will not go on: there are at most 16 times 1,024 threads.
const EVENTS_AT_A_TIME_MAX: u64 = 20_000_000;

impl World {
    /// Until the measured workloads have ended, nothing can happen any more, or it is time.
    pub(crate) fn run(&mut self) {
        self.settle();
        let mut began = (self.now, self.events);
        while self.measured_left > 0 && self.endless.is_none() {
            if self.events % EVENTS_BETWEEN_LOOKS == EVENTS_BETWEEN_LOOKS - 1 {
                if began.0 != self.now {
                    began = (self.now, self.events);
                }
                self.stands_still = self.events - began.1 >= EVENTS_AT_A_TIME_MAX;
                if self.stands_still {
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
    use crate::Costs;
    use crate::config::{Config, HostConfig, Scheduler, VmConfig};
    use crate::program::{Op, Span, Workload};
    use crate::world::World;

    /// Two that compute without end on one pCPU, in turn.
    fn two_hogs() -> World {
        let work = || Workload::one(vec![Op::Compute(Span::Fixed(10_000_000_000))], 1);
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
        world.timers.set(world.slots.window(crate::ids::VmIx(0)), 2_500_000);
        world.run();
    }
}
