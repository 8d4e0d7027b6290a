//! What wake-ups cost where a recording was made: the simulator's costs for playing it back.
//!
//! A recorded thread's CPU time contains its own switches and system calls, so these cost nothing again. What lies
//! between a wake-up and the woken thread's first instruction, on another vCPU that idled, is not in any thread's time:
//! it is the interrupt and, where the vCPU was halted, taking it up again. The fastest tenth is taken for the interrupt
//! alone; the median's surplus for the rest.

use crate::engine::Time;
use std::collections::BTreeMap;

/// More samples than this tell nothing new.
const SAMPLES_MAX: usize = 1 << 20;
/// Fewer tell nothing at all.
const SAMPLES_MIN: usize = 20;

/// From wake-ups by recorded threads until the woken ones ran on other vCPUs, which idled.
#[derive(Clone, Debug, Default)]
pub struct WakeLatencies {
    samples: Vec<Time>,
}

/// [`WakeLatencies`] in few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyDigest {
    /// How many were seen.
    pub count: u64,
    /// A tenth took at most this long.
    pub p10: Time,
    /// Half of them did.
    pub p50: Time,
    /// All of them on average.
    pub mean: Time,
}

impl WakeLatencies {
    pub(super) fn add(&mut self, latency: Time) {
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(latency);
        }
    }

    pub(super) fn digest(mut self) -> Option<LatencyDigest> {
        let count = self.samples.len();
        if count < SAMPLES_MIN {
            return None;
        }
        self.samples.sort_unstable();
        let sum: u128 = self.samples.iter().map(|latency| u128::from(*latency)).sum();
        Some(LatencyDigest {
            count: count as u64,
            p10: self.samples[count / 10],
            p50: self.samples[count / 2],
            mean: u64::try_from(sum / count as u128).unwrap_or(Time::MAX),
        })
    }
}

impl LatencyDigest {
    /// Single costs by name, as a scenario's `cost_ns` takes them.
    pub fn costs(&self) -> BTreeMap<String, Time> {
        let values = [
            ("guest_switch_ns", 0),
            ("ipi_ns", self.p10),
            ("ipi_send_ns", 0),
            ("vcpu_resume_ns", self.p50 - self.p10),
            ("interrupt_ns", 0),
        ];
        values.into_iter().map(|(name, ns)| (name.to_owned(), ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Costs;

    #[test]
    fn few_samples_say_nothing_and_many_say_what_the_simulator_takes() {
        let mut latencies = WakeLatencies::default();
        (1..20).for_each(|n| latencies.add(n));
        assert_eq!(latencies.clone().digest(), None);
        (20..=100).for_each(|n| latencies.add(n));
        let digest = latencies.digest().unwrap();
        assert_eq!(digest, LatencyDigest { count: 100, p10: 11, p50: 51, mean: 50 });
        let mut costs = Costs::KVM_2014;
        assert!(digest.costs().iter().all(|(name, ns)| costs.set(name, *ns)));
        assert_eq!(costs.ipi_ns + costs.vcpu_resume_ns + costs.guest_switch_ns, 51);
    }
}
