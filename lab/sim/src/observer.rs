//! Fills a [`Window`] as observe does on a real machine: counters subtracted, distributions of what ended since the
//! last one.

use crate::config::Managed;
use crate::ids::{VcpuIx, VmIx};
use crate::totals::VcpuTotals;
use crate::world::{WindowZero, World};
use gleaner_model::{CpuSet, GroupWindow, Nanos, Source, VcpuId, VcpuWindow, Window};

/// What a guest's observer sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// [`Managed::steal_visible`].
    pub(crate) steal: bool,
    /// [`Managed::periods_visible`].
    pub(crate) periods: bool,
}

impl Sight {
    pub(crate) fn of(managed: &Managed) -> Self {
        Self { steal: managed.steal_visible, periods: managed.periods_visible }
    }
}

impl World {
    /// What happened in a virtual machine since `zero`, which moves on.
    pub(crate) fn window(&mut self, vm: VmIx, zero: &mut WindowZero, sight: Sight, first: bool) -> Window {
        let vcpus: Vec<VcpuIx> = (0..self.vms[vm.at()].vcpus).map(|n| self.vcpu_of(vm, n)).collect();
        let vcpus = vcpus.into_iter().map(|v| self.vcpu_window(v, sight)).collect();
        let state = &mut self.vms[vm.at()];
        let (from, to) = (state.first_thread.at(), state.first_thread.at() + state.threads as usize);
        let totals = &mut state.totals;
        // A guest that is not told of steal counts it as its threads' time.
        let seen = |thread: &crate::program::Thread| thread.cpu + if sight.steal { 0 } else { thread.stolen };
        let cpu = self.threads[from..to].iter().map(seen).sum();
        let now = WindowZero {
            at: self.now,
            threads: u64::from(totals.threads_left),
            voluntary: totals.voluntary_switches,
            involuntary: totals.involuntary_switches,
            cpu,
        };
        let before = std::mem::replace(zero, now);
        let (voluntary, involuntary) = (now.voluntary - before.voluntary, now.involuntary - before.involuntary);
        let switches = if sight.periods { (voluntary, involuntary) } else { (voluntary + involuntary, 0) };
        Window {
            at: Nanos(now.at),
            length: Nanos(now.at - before.at),
            source: Source::Bpf,
            vcpus,
            idle_entries: None,
            halts: None,
            group: GroupWindow {
                threads: now.threads,
                new_threads: if first { now.threads } else { 0 },
                execs: Some(u64::from(first)),
                cpu_time: Nanos(now.cpu - before.cpu),
                waited: Some(totals.wake_to_run.sum()),
                voluntary_switches: switches.0,
                involuntary_switches: switches.1,
                g_comp: Some(std::mem::take(&mut totals.g_comp)),
                wake_to_run: Some(std::mem::take(&mut totals.wake_to_run)),
                progress: None,
                system_calls: None,
                pinned: pinned(&self.threads[from..to], state.guest.active),
            },
        }
    }

    fn vcpu_window(&mut self, v: VcpuIx, sight: Sight) -> VcpuWindow {
        self.charge(v);
        let vcpu = &mut self.vcpus[v.at()];
        let now = vcpu.totals;
        let before = std::mem::replace(&mut vcpu.seen.zero, now);
        let (l_comp, l_idle) = (std::mem::take(&mut vcpu.seen.l_comp), std::mem::take(&mut vcpu.seen.l_idle));
        let since = |of: fn(&VcpuTotals) -> u64| of(&now) - of(&before);
        let resuming = since(|t| t.resuming);
        let stolen = since(|t| t.ready + t.overhead) - resuming;
        // Whose time it takes steal for that it is not told of: a thread's, the yielding thread's, the halt's.
        let (worked, retained) = (since(|t| t.stolen_work), since(|t| t.stolen_retained));
        let unseen = |part: u64| if sight.steal { 0 } else { part };
        VcpuWindow {
            id: VcpuId(vcpu.index),
            busy: Nanos(since(|t| t.work + t.kernel) + unseen(worked)),
            work: Some(Nanos(since(|t| t.work) + unseen(worked))),
            retained: Nanos(since(|t| t.retained) + unseen(retained)),
            halted: Nanos(since(|t| t.halted + t.polled) + resuming + unseen(stolen.saturating_sub(worked + retained))),
            steal: Nanos(stolen - unseen(stolen)),
            idle_entries: Some(if sight.periods {
                since(|t| t.idle_entries)
            } else {
                since(|t| t.yield_switches + t.yield_sleeps)
            }),
            halts: Some(since(|t| t.halts)),
            polls_held: None,
            idle_ended_by: None,
            work_switches: Some(since(|t| t.work_switches)),
            yield_switches: Some(since(|t| t.yield_switches)),
            cross_wakeups: Some(since(|t| t.cross_wakeups)),
            l_comp: Some(l_comp),
            l_idle: Some(l_idle),
        }
    }
}

/// vCPUs that a thread has no other active one than.
fn pinned(threads: &[crate::program::Thread], active: u64) -> CpuSet {
    let only = |thread: &crate::program::Thread| {
        let usable = thread.allowed & active;
        usable.is_power_of_two().then(|| VcpuId(usable.trailing_zeros()))
    };
    // With one active vCPU everybody has no other.
    if active.is_power_of_two() { CpuSet::new() } else { threads.iter().filter_map(only).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Costs;
    use crate::config::{Config, HostConfig, Scheduler, VmConfig};
    use crate::program::{Op, Span, Workload};

    const MS: u64 = 1_000_000;

    #[test]
    fn steal_that_a_guest_is_not_told_of_is_its_threads_time() {
        // Two that compute without end take turns of 1 ms on one pCPU: 25 of 50 ms each.
        for (visible, busy, steal) in [(true, 25, 25), (false, 50, 0)] {
            let vms = ["a", "b"].map(|name| {
                let work = Workload::one(vec![Op::Compute(Span::Fixed(10_000 * MS))], 1);
                VmConfig::new(name, 1, Costs::FREE, work)
            });
            let mut config = Config::new(HostConfig::new(1, Scheduler::RoundRobin { slice: MS }), vms.into());
            config.end = 50 * MS;
            let mut world = crate::setup::Simulation::new(config).expect("a valid configuration").into_world();
            world.run();
            let window =
                world.window(VmIx(0), &mut WindowZero::default(), Sight { steal: visible, periods: true }, true);
            let vcpu = &window.vcpus[0];
            assert_eq!((vcpu.busy, vcpu.steal), (Nanos(busy * MS), Nanos(steal * MS)), "{visible}");
            assert_eq!((vcpu.work, window.group.cpu_time), (Some(vcpu.busy), vcpu.busy), "{visible}");
            assert_eq!(vcpu.busy + vcpu.idle() + vcpu.steal, window.length, "{visible}");
        }
    }

    #[test]
    fn switches_stand_for_idle_periods_that_are_not_seen() {
        // 4 us for the switch, 10 us of work, and no more. Retained until 54 us; then it sleeps for 50 us at a time,
        // and 0.501 for the timer and a yield: 54 + 50.501 n.
        for (periods, entries) in [(true, 1), (false, 19)] {
            let work =
                Workload::one(vec![Op::Compute(Span::Fixed(MS / 100)), Op::Sleep(Span::Fixed(MS * 100)), Op::Exit], 1);
            let mut managed = Managed::new(gleaner_model::Policy::Retain);
            (managed.timeout, managed.window, managed.signalled) = (Some(MS / 25), 100 * MS, false);
            let params = &mut managed.params;
            (params.tuning.nap_min_us, params.tuning.nap_max_us, params.tuning.nap_check_us) = (50, 50, 0);
            let mut vm = VmConfig::new("vm", 1, Costs::NATIVE_2014, work);
            vm.gleaner = Some(managed);
            let mut config = Config::new(HostConfig::new(1, Scheduler::Dedicated), vec![vm]);
            config.end = MS;
            let mut world = crate::setup::Simulation::new(config).expect("a valid configuration").into_world();
            world.run();
            let window = world.window(VmIx(0), &mut WindowZero::default(), Sight { steal: true, periods }, true);
            assert_eq!(window.vcpus[0].idle_entries, Some(entries), "{periods}");
        }
    }
}
