//! A toy host that closes the loop: round-robin arithmetic for VMs of one vCPU each on one pCPU.
//!
//! Everybody waits as equation 1 says. A waker waits half a slice for each other vCPU that is runnable then (it comes
//! at any time), and then runs its burst; hogs and spinners share what is left, in whole slices.

use gleaner_decide::host::{HostParams, HostPolicy, SlicePolicy};
use gleaner_model::{
    CpuSet, Distribution, HostAction, HostDecision, HostVcpuWindow, HostWindow, Nanos, SwitchPrice, VcpuId, VmId,
    VmWindow, bucket_index,
};
use std::collections::BTreeMap;

/// What a VM does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Vm {
    /// Computes for ever.
    Hog,
    /// Thinks, is woken, computes: microseconds.
    Waker { burst_us: f64, think_us: f64 },
    /// Threads that wait for each other: a millisecond of work is 20 wake-ups. However short the slices it waits for
    /// 0.4 s of a second, but the shorter they are the more often, and the less it sleeps: so much CPU time it gets of
    /// a second at slices above 0.5 ms, and at others.
    Barrier { long_us: f64, short_us: f64 },
    /// Spins for `per_ms` as long as it works, for each millisecond of slice.
    Spinner { per_ms: f64 },
    /// Like a hog, and nobody can tell whether it spins: it has two vCPUs on the pCPU.
    Opaque,
    /// The same, and in no window did a full slice coincide with a sibling's wait.
    RuledOut,
}

/// One pCPU and its VMs.
#[derive(Clone, Debug)]
pub struct Host {
    pub vms: BTreeMap<VmId, Vm>,
    pub pcpu: u32,
    /// The host can deliver no shorter slice than this.
    pub tick_us: f64,
    /// The part of its share that a hog loses to the others' below this slice: (microseconds, share).
    pub unfair: Option<(f64, f64)>,
    /// Amplitude of uniform noise, as a share.
    pub noise: f64,
    /// What ending a slice was measured to take.
    pub tick: Option<Nanos>,
    pub now: Nanos,
    pub random: u64,
}

pub const LENGTH: Nanos = Nanos::from_secs(1);
const US: f64 = 1e6;

impl Host {
    pub fn new(vms: &[Vm]) -> Self {
        let vms = (1..).zip(vms).map(|(id, vm)| (VmId(id), *vm)).collect();
        Self { vms, pcpu: 0, tick_us: 0.0, unfair: None, noise: 0.0, tick: None, now: Nanos::ZERO, random: 7 }
    }

    /// 1 +- noise, uniform (splitmix64).
    fn noise(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        1.0 + self.noise * (2.0 * unit - 1.0)
    }

    /// The next second, with these slices. The longest counts: a fair scheduler pays back what it took.
    pub fn window(&mut self, slices: &BTreeMap<VmId, Nanos>) -> HostWindow {
        self.now += LENGTH;
        let asked = slices.values().max().map_or(4_000.0, |slice| slice.as_f64() / 1e3);
        let slice_us = asked.max(self.tick_us);
        let waits = |vm: &Vm| matches!(vm, Vm::Waker { .. } | Vm::Barrier { .. });
        let always = self.vms.values().filter(|vm| !waits(vm)).count() as f64;
        let mut left_us = US;
        let mut wakers = Vec::new();
        let vms = self.vms.clone();
        for (&vm, &what) in &vms {
            let (burst_us, think_us) = match what {
                Vm::Waker { burst_us, think_us } => (burst_us * self.noise(), think_us),
                Vm::Barrier { long_us, short_us } => {
                    let run_us = self.noise() * if slice_us > 500.0 { long_us } else { short_us };
                    let wakeups = run_us / 50.0;
                    left_us -= run_us;
                    wakers.push(self.waker(vm, wakeups, run_us / wakeups, 400_000.0 / wakeups, 0.0, 0.0));
                    continue;
                }
                _ => continue,
            };
            let (delay_us, again) = (slice_us / 2.0 * always + 10.0, (burst_us / slice_us).floor());
            let wakeups = (US / (think_us + delay_us + burst_us + again * slice_us * always)).floor();
            left_us -= wakeups * burst_us;
            wakers.push(self.waker(vm, wakeups, burst_us, delay_us, again, again * slice_us * always));
        }
        let woken: f64 = wakers.iter().map(|vm| vm.vcpus[0].wakeups.unwrap_or(0) as f64).sum();
        for (&vm, &what) in &vms {
            let share_us = left_us.max(0.0) / always.max(1.0) * self.noise();
            match what {
                Vm::Waker { .. } | Vm::Barrier { .. } => {}
                _ => wakers.push(self.always(vm, what, share_us, slice_us, always, woken)),
            }
        }
        wakers.sort_by_key(|vm| vm.vm);
        HostWindow { at: self.now, length: LENGTH, vms: wakers, tick: self.tick }
    }

    fn vcpu(&self, run_us: f64, wait_us: f64, wakeups: f64, preemptions: f64) -> HostVcpuWindow {
        let count = |n: f64| Some(Nanos::from_f64(n).0);
        HostVcpuWindow {
            run: Nanos::from_f64(run_us * 1e3),
            wait: Nanos::from_f64(wait_us * 1e3),
            wakeups: count(wakeups),
            preemptions: count(preemptions),
            pause_exits: Some(0),
            ..HostVcpuWindow::new(VcpuId(0), [VcpuId(self.pcpu)].into_iter().collect::<CpuSet>())
        }
    }

    fn vm(vm: VmId, vcpus: Vec<HostVcpuWindow>) -> VmWindow {
        VmWindow { vm, slice: None, weight: 1024, limit: None, refill: None, vcpus }
    }

    fn waker(&mut self, vm: VmId, wakeups: f64, burst_us: f64, delay_us: f64, again: f64, more_us: f64) -> VmWindow {
        let delay_us = delay_us * self.noise();
        let (n, delay) = (Nanos::from_f64(wakeups).0, Nanos::from_f64(delay_us * 1e3));
        let mut counts = vec![0; bucket_index(delay.0) + 1];
        counts[bucket_index(delay.0)] = n;
        let delays = Distribution::from_buckets(counts, delay.times(n));
        let vcpu = self.vcpu(wakeups * burst_us, wakeups * (delay_us + more_us), wakeups, wakeups * again);
        Self::vm(vm, vec![HostVcpuWindow { wake_to_run: Some(delays), ..vcpu }])
    }

    fn always(&self, vm: VmId, what: Vm, share_us: f64, slice_us: f64, always: f64, woken: f64) -> VmWindow {
        let first = self.vms.keys().next() == Some(&vm);
        let tilt = match self.unfair {
            Some((below_us, share)) if slice_us < below_us => {
                if first {
                    1.0 - share
                } else {
                    1.0 + share / (always - 1.0).max(1.0)
                }
            }
            _ => 1.0,
        };
        let run_us = share_us * tilt;
        let ends = if always > 1.0 { run_us / slice_us } else { 0.0 };
        let vcpu = self.vcpu(run_us, US - run_us, 0.0, ends + woken / always);
        match what {
            Vm::Spinner { per_ms } => {
                let per_work = per_ms * slice_us / 1e3;
                let spun_us = run_us * per_work / (1.0 + per_work);
                // One exit stands for 2 us.
                Self::vm(vm, vec![HostVcpuWindow { pause_exits: Some(Nanos::from_f64(spun_us / 2.0).0), ..vcpu }])
            }
            Vm::Opaque | Vm::RuledOut => {
                let without_progress = matches!(what, Vm::RuledOut).then_some(0);
                let blind =
                    HostVcpuWindow { pause_exits: None, full_slices_without_progress: without_progress, ..vcpu };
                let (run, wait, preemptions, vcpu) = (Nanos::ZERO, Nanos::ZERO, Some(0), VcpuId(1));
                let other = HostVcpuWindow { run, wait, preemptions, vcpu, ..blind.clone() };
                Self::vm(vm, vec![blind, other])
            }
            _ => Self::vm(vm, vec![vcpu]),
        }
    }
}

/// A policy on a host.
pub struct Loop {
    pub host: Host,
    pub policy: HostPolicy,
    pub decisions: Vec<HostDecision>,
}

pub fn price(us: u64) -> SwitchPrice {
    SwitchPrice { direct: Nanos::from_micros(3), tick: Nanos::ZERO, refill: Nanos::from_micros(us) }
}

impl Loop {
    pub fn adaptive(host: Host, refill_us: u64) -> Self {
        Self::new(host, SlicePolicy::Adaptive, HostParams::default(), refill_us)
    }

    pub fn new(host: Host, policy: SlicePolicy, params: HostParams, refill_us: u64) -> Self {
        Self { host, policy: HostPolicy::new(policy, params, price(refill_us)), decisions: Vec::new() }
    }

    /// Runs for so many windows; returns the slices in the end, in microseconds.
    pub fn run(&mut self, windows: u32) -> Vec<u64> {
        for _ in 0..windows {
            let window = self.host.window(self.policy.slices());
            self.decisions.extend(self.policy.step(&window));
        }
        self.policy.slices().values().map(|slice| slice.0 / 1_000).collect()
    }

    /// The slices that a VM was given, in microseconds.
    pub fn path(&self, vm: u32) -> Vec<u64> {
        let of_vm = self.decisions.iter().filter(|decision| decision.action.vm() == VmId(vm));
        of_vm
            .map(|decision| match decision.action {
                HostAction::SetSlice { slice, .. } => slice.0 / 1_000,
            })
            .collect()
    }

    /// The reasons given so far, in words, one a line.
    pub fn reasons(&self) -> String {
        let lines = self.decisions.iter().map(|decision| format!("{} {}", decision.at, decision.reason));
        lines.collect::<Vec<_>>().join("\n")
    }
}
