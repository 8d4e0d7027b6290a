//! What discontinuity costs the VMs of a set and what switching costs them, now and at another slice.
//!
//! Three things are lost because a vCPU does not have its pCPU when it needs it: the time after a wake-up until it
//! runs, the time an interrupt for a vCPU that waits has to wait too, and the time its siblings spin for what it holds.
//! Each lasts until the others have used up their slices, so each is proportional to the slice (equation 1). Compared
//! with the time that a VM uses (works, or sleeps between wake-ups), y = lost / used is proportional to the slice; the
//! share lost is y / (1 + y).
//!
//! Against that stand the switches at the ends of slices: their number is proportional to 1 / slice, each costs its
//! price.
//!
//! Spinning and switching take CPU time that nobody gets back. While a vCPU waits, another runs. A VM that gets all it
//! is entitled to loses nothing by that but that its answers are late. One that gets a tenth is slower by all of its
//! wait: it uses little, and the others gain a tenth of what it loses, or it starves for them. So waiting counts by the
//! part of its entitlement that a VM does not get, and at least by `wait_weight`. The *toll* of a slice is that, plus
//! what is lost by spinning, plus what switches take, as a share of the VMs' time. The best slice has the smallest.

use super::HostParams;
use super::sharing::SharingSet;
use gleaner_model::{Distribution, HostVcpuWindow, HostWindow, Nanos, SwitchPrice, VmId, VmWindow};

/// A VM's activity (runnable time over time) from which its loss counts in full, if it does not wake often either.
const ACTIVE: f64 = 0.05;
/// The least part of its run time that a VM is taken to work and not to spin.
const WORK_MIN: f64 = 0.01;

/// One VM over one or more windows; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct VmHarm {
    pub(super) vm: VmId,
    entitlement: f64,
    /// The same, times how much of it it asks for.
    weight: f64,
    run: f64,
    /// Asleep between wake-ups that matter.
    slept: f64,
    /// Lost while waiting for a pCPU.
    pub(super) waited: f64,
    /// Lost while running.
    pub(super) spun: f64,
    pub(super) wakeups: f64,
    pub(super) wake_wait: f64,
}

impl VmHarm {
    fn of(vm: &VmWindow, length: Nanos, slice: Nanos, params: &HostParams) -> Self {
        let mut harm = Self {
            vm: vm.vm,
            entitlement: vm.weight as f64,
            weight: 0.0,
            run: 0.0,
            slept: 0.0,
            waited: 0.0,
            spun: 0.0,
            wakeups: 0.0,
            wake_wait: 0.0,
        };
        let (mut activity, mut needs_it) = (0.0, 0.0_f64);
        for vcpu in &vm.vcpus {
            let (after_wakeups, by_wakeups) = wakeups_cost(vcpu, length, params);
            let (of_interrupts, by_interrupts) = interrupts_cost(vcpu, length, params);
            harm.run += vcpu.run.as_f64();
            harm.slept += (length - vcpu.run - vcpu.wait).as_f64() * by_wakeups.max(by_interrupts);
            harm.waited += (after_wakeups + of_interrupts).min(vcpu.wait.as_f64());
            harm.spun += spun(vcpu, slice, params).unwrap_or(0.0);
            harm.wakeups += vcpu.wakeups.unwrap_or(0) as f64;
            harm.wake_wait += vcpu.wake_wait().unwrap_or_default().as_f64();
            activity += vcpu.wanted(length);
            needs_it = needs_it.max(by_wakeups).max(by_interrupts);
        }
        harm.weight = vm.weight as f64 * needs_it.max((activity / ACTIVE).min(1.0));
        harm
    }

    fn add(&mut self, other: &Self) {
        self.weight += other.weight;
        self.run += other.run;
        self.slept += other.slept;
        self.waited += other.waited;
        self.spun += other.spun;
        self.wakeups += other.wakeups;
        self.wake_wait += other.wake_wait;
    }

    /// y: what is lost for a unit of time used.
    pub(super) fn lost_per_used(&self) -> f64 {
        let used = (self.run - self.spun).max(WORK_MIN * self.run) + self.slept;
        if used > 0.0 { (self.waited + self.spun) / used } else { 0.0 }
    }

    /// The share lost when slices are `ratio` times as long.
    pub(super) fn lost(&self, ratio: f64) -> f64 {
        let y = self.lost_per_used() * ratio;
        y / (1.0 + y)
    }

    /// The same, waiting by its weight, of a VM that is entitled to so much CPU time: what the toll has of it.
    fn toll(&self, ratio: f64, entitled: f64, wait_weight: f64) -> f64 {
        let all = self.waited + self.spun;
        if all <= 0.0 {
            return 0.0;
        }
        let without = if entitled > 0.0 { 1.0 - self.run / entitled } else { 0.0 };
        self.lost(ratio) * (self.spun + without.max(wait_weight) * self.waited) / all
    }
}

/// Waiting after wake-ups that slices are to blame for, and how much wake-ups matter here (0 to 1).
fn wakeups_cost(vcpu: &HostVcpuWindow, length: Nanos, params: &HostParams) -> (f64, f64) {
    let (Some(wakeups), Some(wait)) = (vcpu.wakeups, vcpu.wake_wait()) else { return (0.0, 0.0) };
    let matters = rate_matters(wakeups, length - vcpu.wait, params);
    let floor = Nanos::from_micros(params.wake_floor_us).times(wakeups);
    ((wait - floor).as_f64() * matters, matters)
}

/// The same for interrupts that came while the vCPU waited: half a wait each.
fn interrupts_cost(vcpu: &HostVcpuWindow, length: Nanos, params: &HostParams) -> (f64, f64) {
    let (Some(interrupts), Some(preemptions)) = (vcpu.interrupts_while_waiting, vcpu.preemptions) else {
        return (0.0, 0.0);
    };
    let matters = rate_matters(interrupts, length - vcpu.wait, params);
    let each = vcpu.wait.as_f64() / preemptions.max(1) as f64 / 2.0;
    ((interrupts as f64 * each).min(vcpu.wait.as_f64()) * matters, matters)
}

/// 0 below `wakeups_per_s_min` events a second, 1 above twice as many. Over the time in which the vCPU did not wait:
/// who waits 30 ms after each wake-up cannot wake often.
fn rate_matters(events: u64, available: Nanos, params: &HostParams) -> f64 {
    let floor = params.wakeups_per_s_min;
    let rate = events as f64 / available.as_secs_f64().max(1e-6);
    if floor > 0.0 { (rate / floor - 1.0).clamp(0.0, 1.0) } else { f64::from(u8::from(events > 0)) }
}

/// Run time spent spinning; `None` where nothing tells.
fn spun(vcpu: &HostVcpuWindow, slice: Nanos, params: &HostParams) -> Option<f64> {
    let by_slices = vcpu.full_slices_without_progress.map(|n| slice.times(n));
    let by_exits = vcpu.pause_exits.map(|n| Nanos::from_micros(params.pause_exit_us).times(n));
    by_slices.max(by_exits).map(|spun| spun.min(vcpu.run).as_f64())
}

/// What one vCPU ran in one window, and in what pieces.
#[derive(Clone, Debug)]
struct Bursts {
    run: Nanos,
    wakeups: u64,
    /// Lengths of those that ended.
    ended: Option<Distribution>,
}

impl Bursts {
    fn of(vcpu: &HostVcpuWindow) -> Self {
        Self { run: vcpu.run, wakeups: vcpu.wakeups.unwrap_or(0), ended: vcpu.bursts.clone() }
    }

    /// Slices that end before a burst does, if all of them are cut. What runs on belongs to a long burst. Where lengths
    /// are not known, no burst is shorter than its first slice.
    fn slice_ends(&self, slice: Nanos) -> f64 {
        let parts = |run: Nanos| run.as_f64() / slice.as_f64().max(1.0);
        match &self.ended {
            Some(ended) => ended.whole_parts(slice) + parts(self.run - ended.sum()),
            None => (parts(self.run) - self.wakeups as f64).max(0.0),
        }
    }
}

/// The VMs of a set over one or more windows at one slice.
#[derive(Clone, Debug)]
pub(super) struct SetHarm {
    slice: Nanos,
    pub(super) vms: Vec<VmHarm>,
    run: f64,
    /// Waiting after preemptions: as much as others run meanwhile, whatever the slice.
    preempted: f64,
    /// Preemptions, where all are known.
    preemptions: Option<f64>,
    /// By vCPU and window.
    bursts: Vec<Bursts>,
    /// Waiting by running, at most 1, times the windows' length: where two always run on each pCPU, all of it.
    contended: f64,
    length: f64,
    /// Refill of each switch, weighed with run time.
    refill: f64,
    /// CPU time of its pCPUs.
    capacity: f64,
    wait_weight: f64,
    /// Something may spin and nothing would tell.
    pub(super) blind: bool,
}

impl SetHarm {
    pub(super) fn of(
        window: &HostWindow,
        set: &SharingSet,
        slice: Nanos,
        price: SwitchPrice,
        params: &HostParams,
    ) -> Self {
        let members = || window.vms.iter().filter(|vm| set.vms.contains(&vm.vm));
        let vcpus = || members().flat_map(|vm| &vm.vcpus);
        let run_of = |vm: &VmWindow| vm.vcpus.iter().map(|vcpu| vcpu.run).sum::<Nanos>().as_f64();
        let run: f64 = members().map(run_of).sum();
        let wait = vcpus().map(|vcpu| vcpu.wait).sum::<Nanos>().as_f64();
        let length = window.length.as_f64();
        // With a pCPU for each, what they wait is how long a wake-up takes.
        let competes = set.competes(window);
        Self {
            slice,
            vms: members().map(|vm| VmHarm::of(vm, window.length, slice, params)).collect(),
            run,
            preempted: vcpus().map(|v| (v.wait - v.wake_wait().unwrap_or_default()).as_f64()).sum(),
            preemptions: vcpus().map(|vcpu| vcpu.preemptions).sum::<Option<u64>>().map(|n| n as f64),
            bursts: vcpus().map(Bursts::of).collect(),
            contended: if competes && run > 0.0 { (wait / run).min(1.0) * length } else { 0.0 },
            length,
            refill: members().map(|vm| vm.refill.unwrap_or(price.refill).as_f64() * run_of(vm)).sum(),
            capacity: set.pcpus.len() as f64 * length,
            wait_weight: params.wait_weight,
            blind: members().any(|vm| vm.vcpus.len() > 1 && vm.vcpus.iter().any(|v| spun(v, slice, params).is_none())),
        }
    }

    /// Both together; they are of the same VMs at the same slice.
    pub(super) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.vms.iter_mut().zip(&other.vms) {
            mine.add(theirs);
        }
        self.run += other.run;
        self.preempted += other.preempted;
        self.preemptions = self.preemptions.zip(other.preemptions).map(|(a, b)| a + b);
        self.bursts.extend_from_slice(&other.bursts);
        self.contended += other.contended;
        self.length += other.length;
        self.refill += other.refill;
        self.capacity += other.capacity;
        self.blind |= other.blind;
    }

    /// Share of the time in which vCPUs competed, 0 to 1.
    pub(super) fn contended(&self) -> f64 {
        if self.length > 0.0 { self.contended / self.length } else { 0.0 }
    }

    /// What is lost to discontinuity at `slice`: mean share of the VMs by entitlement.
    pub(super) fn lost(&self, slice: Nanos) -> f64 {
        self.mean(slice, VmHarm::lost)
    }

    /// Mean over the VMs, by entitlement, of what `share` says of a slice so many times as long as the present one.
    fn mean(&self, slice: Nanos, share: impl Fn(&VmHarm, f64) -> f64) -> f64 {
        let ratio = slice.as_f64() / self.slice.as_f64().max(1.0);
        let weights: f64 = self.vms.iter().map(|vm| vm.weight).sum();
        let sum: f64 = self.vms.iter().map(|vm| vm.weight * share(vm, ratio)).sum();
        if weights > 0.0 { sum / weights } else { 0.0 }
    }

    /// What switches at the ends of slices take at `slice`, as a share of the run time.
    pub(super) fn cost(&self, slice: Nanos, price: SwitchPrice) -> f64 {
        if self.run <= 0.0 {
            return 0.0;
        }
        let each = (price.direct + price.tick).as_f64() + self.refill / self.run;
        let took = self.switches(slice) * each;
        took / (self.run + took)
    }

    pub(super) fn toll(&self, slice: Nanos, price: SwitchPrice) -> f64 {
        self.mean(slice, |vm, ratio| vm.toll(ratio, self.entitled(vm), self.wait_weight)) + self.cost(slice, price)
    }

    /// What the VMs get done: the harmonic mean of each one's CPU time without spinning, relative to its entitlement,
    /// less the switches' cost. One that starves pulls it down by more than another gains (Luo et al., ISPASS 2001).
    pub(super) fn got(&self, price: SwitchPrice) -> f64 {
        let (mut weights, mut sum) = (0.0, 0.0);
        for vm in self.vms.iter().filter(|vm| vm.weight > 0.0) {
            let used = (vm.run - vm.spun).max(WORK_MIN * vm.run);
            // Who wants to run and never does: nothing could be worse.
            if used <= 0.0 {
                return 0.0;
            }
            weights += vm.weight;
            sum += vm.weight * self.entitled(vm) / used;
        }
        if sum > 0.0 { (1.0 - self.cost(self.slice, price)) * weights / sum } else { 0.0 }
    }

    /// The VM whose loss counts most, by its entitlement.
    pub(super) fn worst(&self) -> Option<&VmHarm> {
        let counts = |vm: &VmHarm| vm.weight * vm.toll(1.0, self.entitled(vm), self.wait_weight);
        self.vms.iter().max_by(|a, b| counts(a).total_cmp(&counts(b)))
    }

    /// CPU time that a VM may have by its entitlement.
    fn entitled(&self, vm: &VmHarm) -> f64 {
        let all: f64 = self.vms.iter().map(|vm| vm.entitlement).sum();
        if all > 0.0 { self.capacity * vm.entitlement / all } else { 0.0 }
    }

    /// Preemptions at `slice`: those at the ends of slices follow it, the others (who wakes preempts) stay. Where fewer
    /// were seen than the slice in force explains, so many fewer are expected at another.
    fn switches(&self, slice: Nanos) -> f64 {
        let (expected, at_slice) = (self.slice_ends(self.slice), self.slice_ends(slice));
        match self.preemptions {
            Some(seen) if seen < expected => at_slice * seen / expected,
            Some(seen) => seen - expected + at_slice,
            None => at_slice,
        }
    }

    /// Runs cut short by the end of a slice: only where somebody waits all the while.
    /// Who waits after a wake-up ends one slice of another's whatever its length, so that is none of these.
    fn slice_ends(&self, slice: Nanos) -> f64 {
        let ends: f64 = self.bursts.iter().map(|bursts| bursts.slice_ends(slice)).sum();
        ends * (self.preempted / self.run.max(1.0)).min(1.0)
    }
}

#[cfg(test)]
impl SetHarm {
    /// One window of a second on as many pCPUs as VMs, each with (run, waited, spun) in seconds and entitled to a pCPU.
    pub(super) fn of_vms(slice: Nanos, vms: &[(f64, f64, f64)]) -> Self {
        let second = 1e9;
        let vm = |(at, (run, waited, spun)): (u32, &(f64, f64, f64))| VmHarm {
            vm: VmId(at),
            entitlement: 1.0,
            weight: 1.0,
            run: run * second,
            slept: 0.0,
            waited: waited * second,
            spun: spun * second,
            wakeups: 0.0,
            wake_wait: 0.0,
        };
        Self {
            slice,
            vms: (0..).zip(vms).map(vm).collect(),
            run: vms.iter().map(|(run, ..)| run * second).sum(),
            preempted: 0.0,
            preemptions: None,
            bursts: Vec::new(),
            contended: second,
            length: second,
            refill: 0.0,
            capacity: vms.len() as f64 * second,
            wait_weight: 1.0,
            blind: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_vms_get_done_is_the_harmonic_mean_of_what_they_use() {
        let price = SwitchPrice { direct: Nanos::ZERO, refill: Nanos::ZERO, tick: Nanos::ZERO };
        let got = |vms: &[(f64, f64, f64)]| SetHarm::of_vms(Nanos::from_millis(1), vms).got(price);
        for (vms, expected) in [
            (&[(1.0, 0.0, 0.0), (1.0, 0.0, 0.0)][..], 1.0),
            // The loser pulls it down by more than the winner's gain.
            (&[(0.5, 0.0, 0.0), (1.5, 0.0, 0.0)], 0.75),
            // What was spun is not done.
            (&[(1.0, 0.0, 0.5), (1.0, 0.0, 0.0)], 2.0 / 3.0),
            (&[(0.0, 1.0, 0.0), (1.0, 0.0, 0.0)], 0.0),
            (&[], 0.0),
        ] {
            assert!((got(vms) - expected).abs() < 1e-12, "{vms:?}: {}", got(vms));
        }
        // One that asks for nothing is none of them.
        let mut harm = SetHarm::of_vms(Nanos::from_millis(1), &[(0.0, 0.0, 0.0), (2.0, 0.0, 0.0)]);
        harm.vms[0].weight = 0.0;
        assert!((harm.got(price) - 2.0).abs() < 1e-12, "{}", harm.got(price));
        // A thousand switches of a millisecond each, in two seconds of run time: a third of all.
        let mut harm = SetHarm::of_vms(Nanos::from_millis(1), &[(1.0, 0.0, 0.0); 2]);
        harm.preemptions = Some(1000.0);
        let dear = SwitchPrice { direct: Nanos::from_millis(1), ..price };
        assert!((harm.got(dear) - 2.0 / 3.0).abs() < 1e-12, "{}", harm.got(dear));
    }

    #[test]
    fn slices_end_in_bursts_that_are_longer() {
        let ms = Nanos::from_millis;
        let check = |bursts: &[Nanos], run: Nanos, slice: Nanos, expected: f64| {
            let mut ended = Distribution::new();
            for burst in bursts {
                ended.record(*burst);
            }
            let of = |ended| Bursts { run, wakeups: bursts.len() as u64, ended };
            let known = of(Some(ended)).slice_ends(slice);
            assert!((known - expected).abs() <= 0.13 * expected, "{bursts:?} {slice}: {known}");
            of(None).slice_ends(slice)
        };
        // Many short ones and one long one: by the mean they would all fit.
        let mut mixed = vec![Nanos::from_micros(100); 500];
        mixed.push(ms(450));
        assert!(check(&mixed, ms(500), ms(1), 450.0) < 1.0);
        // One that has not ended, and short ones alone.
        check(&[Nanos::from_micros(100)], ms(500), ms(1), 500.0);
        check(&[Nanos::from_micros(100); 10], ms(1), ms(1), 0.0);
    }
}
