//! The toll of a slice worked out from what the toy's VMs are, by the words of docs and of `harm`'s head, without a
//! window and without the policy.
//!
//! It is the policy's own definition written down a second time: it catches an error in the arithmetic or in what
//! windows are made into, and not a definition that is wrong. `ACTIVE`, `DIRECT_US`, `wait_weight` and the rest are the
//! policy's numbers. Nor is the toy a scheduler: equation 1 is its premise. What a VM really gets done is held against
//! it for wakers alone (`what_a_waker_is_said_to_lose_is_what_it_gets_less_done`).
//!
//! toll = mean over the VMs of what each loses + what switches take. A spinner loses y / (1 + y), where y is what it
//! spins for each unit of work. A waker loses the same with y = waiting / (working + sleeping), times the part of its
//! entitlement that it does not get, and at least times `wait_weight`; nothing where it wakes too seldom to matter.

use super::toy::Vm;
use gleaner_decide::host::HostParams;

const US: f64 = 1e6;
/// A VM that wants less of its pCPU than this counts for less, unless it wakes often.
const ACTIVE: f64 = 0.05;
/// A switch, without what its caches take.
const DIRECT_US: f64 = 3.0;

/// What a slice costs.
pub struct Toll {
    /// Mean share lost by spinning and waiting, both in full.
    pub lost: f64,
    /// The same, waiting by its weight.
    pub weighed: f64,
    /// Share of the CPU time that switches take.
    pub switches: f64,
}

/// One VM in a second at a slice.
struct Second {
    weight: f64,
    loses: f64,
    /// What of that counts.
    counts: f64,
    run_us: f64,
    switches: f64,
}

fn waker(burst_us: f64, think_us: f64, slice_us: f64, (always, all): (f64, f64), params: &HostParams) -> Second {
    // It comes at any time within the others' slices, and is cut short by its own.
    let delay_us = slice_us / 2.0 * always + 10.0;
    let cuts = (burst_us / slice_us).floor();
    let cut_us = cuts * slice_us * always;
    let wakeups = (US / (think_us + delay_us + burst_us + cut_us)).floor();
    let (run_us, wait_us) = (wakeups * burst_us, wakeups * (delay_us + cut_us));
    // Waits after wake-ups last as long as others' slices: they say nothing of how much it asks for.
    let woken_us = wakeups * delay_us;
    let wanted = (run_us + wait_us - woken_us) / (US - woken_us);
    let rate = wakeups / (1.0 - wait_us / US);
    let matters = (rate / params.wakeups_per_s_min - 1.0).clamp(0.0, 1.0);
    let waited_us = wakeups * (delay_us - params.wake_floor_us as f64).max(0.0) * matters;
    let y = waited_us / (run_us + (US - run_us - wait_us) * matters);
    let without = (1.0 - run_us / (US / all)).max(params.wait_weight);
    Second {
        weight: matters.max((wanted / ACTIVE).min(1.0)),
        loses: y / (1.0 + y),
        counts: without,
        run_us,
        switches: wakeups * (cuts + 1.0),
    }
}

/// The toll of VMs of one vCPU each on one pCPU. At least one of them never waits by itself.
pub fn toll(vms: &[Vm], slice_us: f64, refill_us: f64, params: &HostParams) -> Toll {
    let waits = |vm: &&Vm| matches!(vm, Vm::Waker { .. });
    let (all, wakers) = (vms.len() as f64, vms.iter().filter(waits).count() as f64);
    let always = all - wakers;
    let of = |vm: &Vm| match *vm {
        Vm::Waker { burst_us, think_us } => waker(burst_us, think_us, slice_us, (always, all), params),
        Vm::Spinner { per_ms } => {
            let y = per_ms * slice_us / 1e3;
            Second { weight: 1.0, loses: y / (1.0 + y), counts: 1.0, run_us: 0.0, switches: 0.0 }
        }
        Vm::Hog | Vm::RuledOut => Second { weight: 1.0, loses: 0.0, counts: 1.0, run_us: 0.0, switches: 0.0 },
        Vm::Opaque | Vm::Barrier { .. } => panic!("{vm:?} has no toll that could be worked out"),
    };
    let seconds: Vec<Second> = vms.iter().map(of).collect();
    let sum = |what: fn(&Second) -> f64| seconds.iter().map(what).sum::<f64>();
    let weights = sum(|vm| vm.weight);
    let lost = sum(|vm| vm.weight * vm.loses) / weights;
    let weighed = sum(|vm| vm.weight * vm.loses * vm.counts) / weights;
    // What wakers leave is run in whole slices by those that always can, if there are two.
    let left_us = US - sum(|vm| vm.run_us);
    let ends = if always > 1.0 { left_us / slice_us } else { 0.0 };
    let took_us = (sum(|vm| vm.switches) + ends) * (DIRECT_US + refill_us);
    Toll { lost, weighed, switches: took_us / (US + took_us) }
}
