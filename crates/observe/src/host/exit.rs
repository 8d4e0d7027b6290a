//! What leaving the guest and coming back costs, measured from inside: the paper's Table III without a hypercall.
//!
//! The paper times a null hypercall. A program may not make one, but CPUID may be run by anybody, and Intel's
//! processors leave the guest for it always, AMD's under every hypervisor that hides or adds a feature (all do). On
//! bare metal, and under emulation, no guest is left, and the same loop says what CPUID itself costs there; `exit_host`
//! is the host's side of it.

use gleaner_model::Nanos;

/// What one CPUID costs: from inside a guest, or of a guest from the host's side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExitCost {
    /// Batches measured.
    pub n: u64,
    /// Median.
    pub p50: Nanos,
    /// 95th percentile, as in the paper's Table III.
    pub p95: Nanos,
    /// The 95th percentile in cycles of the time-stamp counter.
    pub p95_cycles: u64,
}

impl ExitCost {
    /// From what one exit took in each batch, in ns; there is at least one.
    pub(super) fn of(mut times: Vec<u64>, cycles_per_ns: f64) -> Self {
        times.sort_unstable();
        let at = |percent: usize| Nanos(times[(times.len() * percent / 100).min(times.len() - 1)]);
        Self {
            n: times.len() as u64,
            p50: at(50),
            p95: at(95),
            p95_cycles: Nanos::from_f64(at(95).as_f64() * cycles_per_ns).0,
        }
    }
}

/// Measures it; takes some milliseconds. `None` on other architectures.
#[cfg(target_arch = "x86_64")]
pub fn exit_cost() -> Option<ExitCost> {
    use std::arch::x86_64::_rdtsc;
    use std::time::Instant;
    /// Instructions in a batch: enough that the clock's own cost is small.
    const BATCH: u64 = 10;
    const BATCHES: usize = 1000;
    // SAFETY: every x86-64 processor has a time-stamp counter, and Linux lets programs read it unless they ask
    // otherwise.
    let cycles = || unsafe { _rdtsc() };
    let mut times = Vec::with_capacity(BATCHES);
    let (began, cycles_before) = (Instant::now(), cycles());
    for _ in 0..BATCHES {
        let batch = Instant::now();
        for _ in 0..BATCH {
            // The largest leaf: the cheapest to answer.
            std::hint::black_box(raw_cpuid::cpuid!(0));
        }
        times.push(u64::try_from(batch.elapsed().as_nanos()).unwrap_or(u64::MAX) / BATCH);
    }
    let (passed, ticked) = (began.elapsed(), cycles() - cycles_before);
    Some(ExitCost::of(times, ticked as f64 / passed.as_nanos() as f64))
}

/// Measures it; takes some milliseconds. `None` on other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub fn exit_cost() -> Option<ExitCost> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpuid_costs_something_on_this_machine() {
        let Some(cost) = super::exit_cost() else { gleaner_testing::skip!("needs x86-64") };
        assert!(cost.p50.0 > 0 && cost.p50 <= cost.p95 && cost.n > 0, "{cost:?}");
    }
}
