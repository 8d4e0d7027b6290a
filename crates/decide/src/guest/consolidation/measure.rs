//! From windows to the few numbers the policy compares: rates over the active vCPUs, steal subtracted, and their
//! medians.
//!
//! Windows vary in length and single ones are noisy, so everything is a rate, averages are ratios of sums, and what is
//! compared over time is a median with its MAD (median absolute deviation), which one odd window cannot move.

use gleaner_model::{CpuSet, Lengths, Nanos, VcpuWindow, Window};
use gleaner_stats::median;
use serde::{Deserialize, Serialize};

/// Fewer voluntary switches are housekeeping, and their ratio is noise.
const SWITCHES_PER_S_MIN: f64 = 100.0;

/// What one window says about the active vCPUs and the group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    length: Nanos,
    /// The window's length without the time stolen from the active vCPUs, their mean.
    available: Nanos,
    cpu_time: Nanos,
    switches: u64,
    involuntary: u64,
    progress: Option<u64>,
    idle_periods: Option<u64>,
    idle: Nanos,
    /// Mean over the active vCPUs.
    utilization: f64,
    vcpus: usize,
    /// Of the guest, active or not.
    all_vcpus: usize,
}

impl Sample {
    pub(super) fn of(window: &Window, active: &CpuSet) -> Self {
        let vcpus = window.active(active).count().max(1);
        let steal: Nanos = window.active(active).map(|vcpu| vcpu.steal.min(window.length)).sum();
        let utilization: f64 = window.active(active).map(|vcpu| vcpu.utilization(window.length)).sum();
        Self {
            length: window.length,
            available: window.length - Nanos(steal.0 / vcpus as u64),
            cpu_time: window.group.cpu_time,
            switches: window.group.voluntary_switches,
            involuntary: window.group.involuntary_switches,
            progress: window.group.progress,
            idle_periods: window.idle_entries_of(active),
            idle: window.active(active).map(VcpuWindow::idle).sum(),
            utilization: utilization / vcpus as f64,
            vcpus,
            all_vcpus: window.vcpus.len(),
        }
    }

    /// CPU seconds of the group per second that the hypervisor left to it.
    pub(super) fn cpu_rate(&self) -> f64 {
        self.cpu_time.share_of(self.available)
    }

    /// Voluntary switches per second that the hypervisor left to the group.
    pub(super) fn switch_rate(&self) -> f64 {
        per_second(self.switches, self.available)
    }

    /// Hand-overs per second that the hypervisor left to the group: a thread gave its vCPU up, or gave way to one that
    /// it woke. Where threads share a vCPU, the second is what the first was before. Preemptions at the end of a time
    /// slice are none: at most one a tick of a millisecond and vCPU, as many as are not counted; for all vCPUs, active
    /// or not, so that a step does not move the yardstick.
    pub(super) fn handover_rate(&self) -> f64 {
        // What the program itself counts is what matters.
        if let Some(progress) = self.progress {
            return per_second(progress, self.available);
        }
        let ticks = self.length.0 / 1_000_000 * self.all_vcpus as u64;
        per_second(self.switches + self.involuntary.saturating_sub(ticks), self.available)
    }

    /// g_comp in nanoseconds; fewer than [`SWITCHES_PER_S_MIN`] count as that many.
    pub(super) fn granularity(&self) -> f64 {
        self.cpu_rate() / self.switch_rate().max(SWITCHES_PER_S_MIN) * 1e9
    }

    /// Idle periods per second and active vCPU.
    pub(super) fn idle_period_rate(&self) -> Option<f64> {
        self.idle_periods.map(|periods| per_second(periods, self.length) / self.vcpus as f64)
    }
}

fn per_second(count: u64, time: Nanos) -> f64 {
    if time == Nanos::ZERO { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// The paper's lengths over several windows, and what conditions need beside them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Measure {
    pub(super) lengths: Lengths,
    /// Mean utilization of the active vCPUs, 0 to 1.
    pub(super) utilization: f64,
}

impl Measure {
    /// `None` when idle periods are unknown, or when the group did not compute or never gave a vCPU up.
    pub(super) fn of<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Option<Self> {
        let periods = samples.clone().map(|s| s.idle_periods).sum::<Option<u64>>().filter(|n| *n > 0)? as f64;
        let switches = Some(samples.clone().map(|s| s.switches).sum::<u64>()).filter(|n| *n > 0)? as f64;
        let work = Some(samples.clone().map(|s| s.cpu_time).sum::<Nanos>()).filter(|t| *t > Nanos::ZERO)?.as_f64();
        let idle = samples.clone().map(|s| s.idle).sum::<Nanos>().as_f64();
        let utilization = samples.clone().map(|s| s.utilization).sum::<f64>() / samples.count().max(1) as f64;
        let lengths = Lengths { l_comp: work / periods, g_comp: work / switches, l_idle: idle / periods };
        Some(Self { lengths, utilization })
    }
}

/// A median and its median absolute deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) mad: f64,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        let middle = median(&values).unwrap_or(0.0);
        for value in &mut values {
            *value = (*value - middle).abs();
        }
        Self { median: middle, mad: median(&values).unwrap_or(0.0) }
    }

    /// The MAD as a share of the median; 0 where the median is.
    pub(super) fn relative_mad(&self) -> f64 {
        if self.median > 0.0 { self.mad / self.median } else { 0.0 }
    }
}

/// How fast the group went: what steps are judged by.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Speed {
    pub(super) cpu: Spread,
    pub(super) handovers: Spread,
}

impl Speed {
    pub(super) fn of<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Self {
        Self {
            cpu: Spread::of(samples.clone().map(Sample::cpu_rate)),
            handovers: Spread::of(samples.map(Sample::handover_rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{GroupWindow, Source, VcpuId};

    #[test]
    fn preemptions_beyond_one_a_tick_are_hand_overs_whatever_is_active() {
        for (voluntary, involuntary, per_s) in
            [(1_000, 0, 10_000.0), (1_000, 400, 10_000.0), (1_000, 1_400, 20_000.0), (0, 399, 0.0)]
        {
            let window = Window {
                at: Nanos::ZERO,
                length: Nanos::from_millis(100),
                source: Source::Procfs,
                vcpus: (0..4).map(|id| VcpuWindow::new(VcpuId(id))).collect(),
                idle_entries: None,
                halts: None,
                group: GroupWindow {
                    voluntary_switches: voluntary,
                    involuntary_switches: involuntary,
                    ..GroupWindow::default()
                },
            };
            for active in [1, 4] {
                let found = Sample::of(&window, &CpuSet::first(active)).handover_rate();
                assert!((found - per_s).abs() < 1e-6, "{voluntary} and {involuntary} on {active}: {found}");
            }
        }
    }

    #[test]
    fn median_and_mad() {
        for (values, median, mad) in [
            (&[][..], 0.0, 0.0),
            (&[3.0], 3.0, 0.0),
            (&[1.0, 3.0], 2.0, 1.0),
            (&[9.0, 1.0, 2.0], 2.0, 1.0),
            (&[1.0, 2.0, 3.0, 1000.0], 2.5, 1.0),
        ] {
            assert_eq!(Spread::of(values.iter().copied()), Spread { median, mad }, "{values:?}");
        }
    }
}
