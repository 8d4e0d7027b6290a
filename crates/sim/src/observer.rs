//! Fills a [`Window`] as observe does on a real machine: counters subtracted, distributions of what ended since the last one.

use crate::ids::{VcpuIx, VmIx};
use crate::vcpu::VcpuTotals;
use crate::world::World;
use gleaner_model::{CpuSet, GroupWindow, Nanos, Source, VcpuId, VcpuWindow, Window};

/// A virtual machine's counters as of the last window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowZero {
    at: u64,
    threads: u64,
    voluntary: u64,
    involuntary: u64,
    cpu: u64,
}

impl World {
    /// What happened in a virtual machine since `zero`, which moves on.
    pub(crate) fn window(&mut self, vm: VmIx, zero: &mut WindowZero, steal_visible: bool, first: bool) -> Window {
        let vcpus: Vec<VcpuIx> = (0..self.vms[vm.at()].vcpus).map(|n| self.vcpu_of(vm, n)).collect();
        let vcpus = vcpus.into_iter().map(|v| self.vcpu_window(v, steal_visible)).collect();
        let state = &mut self.vms[vm.at()];
        let (from, to) = (state.first_thread.at(), state.first_thread.at() + state.threads as usize);
        let totals = &mut state.totals;
        let cpu = self.threads[from..to].iter().map(|thread| thread.cpu).sum();
        let now = WindowZero {
            at: self.now,
            threads: u64::from(totals.threads_left),
            voluntary: totals.voluntary_switches,
            involuntary: totals.involuntary_switches,
            cpu,
        };
        let before = std::mem::replace(zero, now);
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
                voluntary_switches: now.voluntary - before.voluntary,
                involuntary_switches: now.involuntary - before.involuntary,
                g_comp: Some(std::mem::take(&mut totals.g_comp)),
                wake_to_run: Some(std::mem::take(&mut totals.wake_to_run)),
                pinned: pinned(&self.threads[from..to], state.guest.active),
            },
        }
    }

    fn vcpu_window(&mut self, v: VcpuIx, steal_visible: bool) -> VcpuWindow {
        self.charge(v);
        let vcpu = &mut self.vcpus[v.at()];
        let now = vcpu.totals;
        let before = std::mem::replace(&mut vcpu.seen.zero, now);
        let (l_comp, l_idle) = (std::mem::take(&mut vcpu.seen.l_comp), std::mem::take(&mut vcpu.seen.l_idle));
        let since = |of: fn(&VcpuTotals) -> u64| of(&now) - of(&before);
        let resuming = since(|t| t.resuming);
        let stolen = since(|t| t.ready + t.overhead) - resuming;
        VcpuWindow {
            id: VcpuId(vcpu.index),
            busy: Nanos(since(|t| t.work + t.kernel)),
            work: Some(Nanos(since(|t| t.work))),
            retained: Nanos(since(|t| t.retained)),
            halted: Nanos(since(|t| t.halted + t.polled) + resuming),
            steal: Nanos(if steal_visible { stolen } else { 0 }),
            idle_entries: Some(since(|t| t.idle_entries)),
            halts: Some(since(|t| t.halts)),
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
