//! The configuration, as the machine is set up by it.

use crate::config::Configuration;
use gleaner_act::PlacementRequest;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Policy, Profile};
use gleaner_observe::ObserverChoice;
use gleaner_runtime::{Config, RetainChoice};

/// What the configuration says of the whole machine.
pub(crate) fn machine_config(configuration: &Configuration, dry_run: bool) -> Config {
    let acts = configuration.groups.iter().any(|group| group.policy.retains());
    let dry_run = dry_run || configuration.names_no_group || configuration.retain == RetainChoice::None;
    Config {
        name: String::new(),
        policy: if acts { Policy::Retain } else { Policy::Observe },
        profile: Profile::Balanced,
        retain: configuration.retain,
        timeout: None,
        budget: None,
        progress: None,
        costs: None,
        refused: Vec::new(),
        params: GuestParams::default(),
        // Whoever only watches needs nothing that costs a switch.
        observer: match configuration.observer {
            ObserverChoice::Auto if !acts || dry_run => ObserverChoice::Procfs,
            choice => choice,
        },
        groups_max: configuration.groups_max,
        placement: PlacementRequest::Auto,
        timer_slack: None,
        overhead_ratio: configuration.overhead_ratio,
        strict: false,
        dry_run,
    }
}
