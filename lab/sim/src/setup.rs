//! From a [`Config`] to a world, and from a world to a result.

use crate::config::{Config, HaltPoll, Scheduler, SimError, VCPUS_PER_VM_MAX, VmConfig};
use crate::costs::Costs;
#[cfg(debug_assertions)]
use crate::engine::Time;
use crate::engine::{BitSet, Random, Timers};
use crate::ids::{PcpuIx, ThreadIx, VcpuIx, VmIx};
use crate::program::{Code, Objects, Thread, ThreadState};
use crate::result::{SimResult, VmResult};
use crate::timeline::Timeline;
use crate::totals::VmTotals;
use crate::world::{Cap, Class, Gleaner, Guest, Host, Pcpu, Slices, Slots, Vcpu, Vm, World, Yielder};
use std::collections::{BTreeMap, VecDeque};

/// A simulation that is ready to run.
#[derive(Debug)]
pub struct Simulation(World);

impl Simulation {
    /// Builds it.
    ///
    /// # Errors
    /// If the configuration asks for what cannot be.
    pub fn new(config: Config) -> Result<Self, SimError> {
        check(&config)?;
        let pcpus = config.host.pcpus as usize;
        let vcpus: usize = config.vms.iter().map(|vm| vm.vcpus as usize).sum();
        let threads: usize = config.vms.iter().map(|vm| vm.workload.threads() as usize).sum();
        let slots = Slots::new(vcpus, pcpus, threads, config.vms.len());
        if slots.count() > Timers::SLOTS_MAX {
            let what = format!(
                "{vcpus} vCPUs, {pcpus} pCPUs and {threads} threads are too many: at most about 250,000 vCPUs and threads together"
            );
            return Err(SimError::Config(what));
        }
        let mut idle = BitSet::new(pcpus);
        (0..pcpus).for_each(|p| idle.insert(p));
        let host = Host {
            pcpus: vec![Pcpu::default(); pcpus],
            classes: Vec::new(),
            classes_of: vec![Vec::new(); pcpus],
            idle,
            list: VecDeque::with_capacity(pcpus),
            switches: 0,
            ticks: 0,
            credit_balance: 0,
            groups: Vec::new(),
            observed: config.host.adaptive.is_some(),
            #[cfg(debug_assertions)]
            waits_at_most: waits_at_most(&config),
            config: config.host.clone(),
        };
        let mut world = World {
            now: 0,
            timers: Timers::new(slots.count()),
            slots,
            host,
            vms: Vec::with_capacity(config.vms.len()),
            vcpus: Vec::with_capacity(vcpus),
            threads: Vec::with_capacity(threads),
            code: Code::default(),
            costs: Vec::new(),
            events: 0,
            measured_left: 0,
            endless: None,
            stands_still: false,
            timeline: config.trace.then(|| Timeline::new(vcpus)),
            slices: config.host.adaptive.as_ref().map(|adaptive| Slices::new(adaptive, &config)),
            config,
        };
        let mut classes = BTreeMap::new();
        for n in 0..world.config.vms.len() {
            let vm = world.config.vms[n].clone();
            world.add_vm(VmIx::of(n), &vm, &mut classes);
        }
        Ok(Self(world))
    }

    /// What it would run, started.
    #[cfg(test)]
    pub(crate) fn into_world(mut self) -> World {
        self.0.start();
        self.0
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// If a program never lets time pass, or all measured threads wait for each other.
    pub fn run(mut self) -> Result<(SimResult, Option<Timeline>), SimError> {
        let world = &mut self.0;
        world.start();
        world.run();
        if world.stands_still {
            return Err(SimError::StandsStill { at_ns: world.now });
        }
        if let Some(t) = world.endless {
            let thread = &world.threads[t.at()];
            let vm = &world.vms[thread.vm.at()];
            return Err(SimError::Endless { vm: vm.name.clone(), thread: t.0 - vm.first_thread.0 });
        }
        if world.measured_left > 0 && world.timers.next_time().is_none() && world.now < world.config.end {
            return Err(world.deadlock());
        }
        if let Some(timeline) = &mut world.timeline {
            timeline.end(world.now);
        }
        let result = world.result();
        Ok((result, self.0.timeline))
    }
}

fn check(config: &Config) -> Result<(), SimError> {
    let fail = |what: String| Err(SimError::Config(what));
    if config.host.pcpus == 0 || config.vms.is_empty() {
        return fail("a simulation needs a pCPU and a virtual machine at least".to_owned());
    }
    for vm in &config.vms {
        let name = &vm.name;
        if !(1..=VCPUS_PER_VM_MAX).contains(&vm.vcpus) {
            return fail(format!("virtual machine {name}: {} vCPUs; must be 1 to {VCPUS_PER_VM_MAX}", vm.vcpus));
        }
        if !vm.affinity.is_empty() && vm.affinity.len() != vm.vcpus as usize {
            return fail(format!("virtual machine {name}: {} affinities for {} vCPUs", vm.affinity.len(), vm.vcpus));
        }
        if let Some(p) = vm.affinity.iter().flatten().find(|p| p.0 >= config.host.pcpus) {
            return fail(format!(
                "virtual machine {name}: there is no pCPU {}; there are 0 to {}",
                p.0,
                config.host.pcpus - 1
            ));
        }
        if let Some(flaw) = vm.workload.flaw() {
            return fail(format!("virtual machine {name}: {flaw}"));
        }
    }
    let vcpus: u32 = config.vms.iter().map(|vm| vm.vcpus).sum();
    if config.host.scheduler == Scheduler::Dedicated && vcpus > config.host.pcpus {
        return fail(format!(
            "{vcpus} vCPUs cannot each have one of {} pCPUs for itself; use another scheduler",
            config.host.pcpus
        ));
    }
    Ok(())
}

/// The scheduler's bound, and a period for those that are throttled.
#[cfg(debug_assertions)]
fn waits_at_most(config: &Config) -> Time {
    let vms = || config.vms.iter();
    let vcpus: u64 = vms().map(|vm| u64::from(vm.vcpus)).sum();
    let heaviest = vms().map(|vm| vm.weight.max(1)).max().unwrap_or(1);
    let lightest = vms().map(|vm| vm.weight.max(1)).min().unwrap_or(1);
    let ladder = config.host.adaptive.iter().flat_map(|adaptive| &adaptive.params.ladder_us);
    let longest = vms().filter_map(|vm| vm.slice).chain(ladder.map(|us| us * 1_000)).max();
    let throttled = if vms().any(|vm| vm.cap_permille > 0) { crate::world::CAP_PERIOD } else { 0 };
    let weights = u64::from(heaviest.div_ceil(lightest));
    // A group's weight is between all of it and hardly any.
    let weights = if config.host.groups { weights * u64::from(heaviest) } else { weights };
    config.host.scheduler.waits_at_most(vcpus - 1, longest, weights).saturating_add(throttled)
}

impl World {
    fn add_vm(&mut self, id: VmIx, config: &VmConfig, classes: &mut BTreeMap<Vec<PcpuIx>, u32>) {
        let (first_vcpu, first_thread) = (VcpuIx::of(self.vcpus.len()), ThreadIx::of(self.threads.len()));
        let dedicated = self.host.config.scheduler == Scheduler::Dedicated;
        let credit = self.scheduler().is_credit();
        let pcpus = self.host.pcpus.len();
        let costs = self.costs_of(config.costs);
        let mut everywhere = None;
        for index in 0..config.vcpus {
            let number = self.vcpus.len();
            let (home, class) = match config.affinity.get(index as usize) {
                Some(allowed) if !allowed.is_empty() => {
                    (allowed[number % allowed.len()], self.class_of(allowed.clone(), classes))
                }
                _ if dedicated => (PcpuIx::of(number), self.class_of(vec![PcpuIx::of(number)], classes)),
                _ => {
                    let all = || (0..pcpus).map(PcpuIx::of).collect();
                    let class = *everywhere.get_or_insert_with(|| self.class_of(all(), classes));
                    (PcpuIx::of(number % pcpus), class)
                }
            };
            let mut vcpu = Vcpu::new(id, index, home, class);
            (vcpu.weight, vcpu.slice, vcpu.costs) = (config.weight, config.slice, costs);
            vcpu.yielder = config.gleaner.as_ref().and_then(Gleaner::yielder);
            self.vcpus.push(vcpu);
        }
        self.add_group(config.weight, first_vcpu);
        let all = self.add_threads(id, config, first_vcpu);
        let threads = config.workload.threads();
        self.measured_left += if config.measured { threads as usize } else { 0 };
        let observed = config.gleaner.as_ref().is_some_and(|managed| managed.policy != gleaner_model::Policy::Off);
        self.vms.push(Vm {
            name: config.name.clone(),
            costs,
            weight: config.weight,
            idle_loop: config.idle,
            measured: config.measured,
            first_vcpu,
            vcpus: config.vcpus,
            first_thread,
            threads,
            objects: Objects::new(&config.workload.shared),
            guest: Guest {
                config: config.guest,
                all,
                active: all,
                idle: all,
                left: all,
                waiting: 0,
                ticks_waited: 0,
                observed,
            },
            gleaner: config
                .gleaner
                .as_ref()
                .map(|managed| Box::new(Gleaner::new(managed, &config.costs, config.vcpus))),
            cap: if credit { None } else { Cap::new(config.cap_permille) },
            credit_cap_permille: (credit && config.cap_permille > 0).then_some(config.cap_permille),
            ready: 0,
            yielded_to: 0,
            totals: VmTotals { threads_left: threads, ..VmTotals::default() },
        });
    }

    /// The virtual machine's threads; gives all of its vCPUs, as bits.
    fn add_threads(&mut self, id: VmIx, config: &VmConfig, first_vcpu: VcpuIx) -> u64 {
        let all = u64::MAX >> (64 - config.vcpus);
        let starts: Vec<u32> = config.workload.programs.iter().map(|program| self.code.place(program)).collect();
        for (n, (program, vcpus)) in Thread::all(&config.workload).enumerate() {
            let allowed = if vcpus & all == 0 { all } else { vcpus & all };
            // Spread over the vCPUs, as fork does.
            let mut nth = allowed;
            (0..n % allowed.count_ones() as usize).for_each(|_| nth &= nth - 1);
            let home = VcpuIx(first_vcpu.0 + nth.trailing_zeros());
            let random = Random::new(self.config.seed, (u64::from(id.0) << 32) | n as u64);
            let start = starts[program as usize];
            self.threads.push(Thread::new(id, start, home, allowed, random));
        }
        all
    }

    /// The number of these costs.
    fn costs_of(&mut self, costs: Costs) -> u32 {
        let known = self.costs.iter().position(|known| *known == costs);
        let at = known.unwrap_or_else(|| {
            self.costs.push(costs);
            self.costs.len() - 1
        });
        u32::try_from(at).unwrap_or(0)
    }

    fn class_of(&mut self, allowed: Vec<PcpuIx>, classes: &mut BTreeMap<Vec<PcpuIx>, u32>) -> u32 {
        if let Some(class) = classes.get(&allowed) {
            return *class;
        }
        let class = u32::try_from(self.host.classes.len()).unwrap_or(u32::MAX);
        self.host.classes.push(Class::new(&allowed, self.host.pcpus.len()));
        if allowed.len() > 1 {
            for p in &allowed {
                self.host.classes_of[p.at()].push(class);
            }
        }
        classes.insert(allowed, class);
        class
    }

    /// Threads are put where they begin, without cost; their vCPUs are woken.
    fn start(&mut self) {
        if self.host.config.halt_poll != HaltPoll::OFF {
            let first = self.host.config.halt_poll.grow_start;
            self.vcpus.iter_mut().for_each(|vcpu| vcpu.halt_poll = first);
        }
        for n in 0..self.threads.len() {
            if self.is_unborn(ThreadIx::of(n)) {
                continue;
            }
            let v = self.threads[n].vcpu;
            self.threads[n].state = ThreadState::Waiting { since: 0 };
            self.vcpus[v.at()].queue.push_back(&mut self.threads, ThreadIx::of(n));
        }
        for n in 0..self.vcpus.len() {
            let v = VcpuIx::of(n);
            self.note_waiting(v);
            if !self.vcpus[n].queue.is_empty() {
                let bit = self.vcpus[n].bit();
                self.vms[self.vcpus[n].vm.at()].guest.idle &= !bit;
                self.host_wake(v);
                self.vcpus[n].woken = false;
                self.vcpus[n].entity.boosted = false;
            }
        }
        for n in 0..self.vms.len() {
            self.gleaner_begins(VmIx::of(n));
        }
        self.credit_begins();
        self.slices_begin();
        self.pulls_begin();
    }

    fn deadlock(&self) -> SimError {
        let waits = |vm: &&Vm| vm.measured && vm.totals.threads_left > 0;
        let vm = self.vms.iter().find(waits);
        let (name, left) = vm.map_or((String::new(), 0), |vm| (vm.name.clone(), vm.totals.threads_left as usize));
        SimError::Deadlock { at_ns: self.now, vm: name, waiting: left }
    }

    fn result(&self) -> SimResult {
        let busy = |pcpu: &Pcpu| pcpu.busy + if pcpu.curr.is_some() { self.now - pcpu.busy_since } else { 0 };
        SimResult {
            end_ns: self.now,
            complete: self.measured_left == 0,
            events: self.events,
            slice_decisions: self.slices.as_ref().map_or_else(Vec::new, |slices| slices.decisions.clone()),
            pcpu_busy_ns: self.host.pcpus.iter().map(busy).collect(),
            vcpu_switches: self.host.switches,
            vms: self.vms.iter().map(|vm| self.vm_result(vm)).collect(),
        }
    }

    fn vm_result(&self, vm: &Vm) -> VmResult {
        let threads = &self.threads[vm.first_thread.at()..vm.first_thread.at() + vm.threads as usize];
        let vcpus = &self.vcpus[vm.first_vcpu.at()..vm.first_vcpu.at() + vm.vcpus as usize];
        VmResult {
            name: vm.name.clone(),
            measured: vm.measured,
            totals: vm.totals.clone(),
            vcpus: vcpus.iter().map(|vcpu| vcpu.totals).collect(),
            cpu_ns: threads.iter().map(|thread| thread.cpu).sum(),
            spun_ns: threads.iter().map(|thread| thread.spun).sum(),
            migrations: threads.iter().map(|thread| thread.migrations).sum(),
            decisions: vm.gleaner.as_ref().map_or_else(Vec::new, |gleaner| gleaner.decisions.clone()),
            yielding: vcpus.iter().filter_map(|vcpu| vcpu.yielder.as_deref()).map(Yielder::counters).collect(),
            active_vcpus_mean: vm.gleaner.as_deref().and_then(Gleaner::active_mean),
            timeout_ns: vm.gleaner.as_deref().map(Gleaner::timeout),
        }
    }
}
