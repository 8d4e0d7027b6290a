//! What manages the host's slices: decide's slice policy, and what it decided.

use crate::config::{AdaptiveSlices, Config};
use crate::engine::Time;
use gleaner_decide::host::{HostPolicy, SlicePolicy};
use gleaner_model::{HostDecision, Nanos, SwitchPrice};

/// What manages the host's slices.
#[derive(Debug)]
pub(crate) struct Slices {
    pub(crate) policy: HostPolicy,
    pub(crate) window: Time,
    pub(crate) at: Time,
    pub(crate) decisions: Vec<HostDecision>,
}

impl Slices {
    /// The price of a switch is what it costs in the first virtual machine.
    pub(crate) fn new(adaptive: &AdaptiveSlices, config: &Config) -> Self {
        let price = config.vms.first().map(|vm| SwitchPrice {
            direct: Nanos(vm.costs.vcpu_switch_ns),
            tick: Nanos::ZERO,
            refill: Nanos(vm.costs.cache_refill_ns),
        });
        Self {
            policy: HostPolicy::new(SlicePolicy::Adaptive, adaptive.params.clone(), price.unwrap_or_default()),
            window: adaptive.window,
            at: 0,
            decisions: Vec::new(),
        }
    }
}
