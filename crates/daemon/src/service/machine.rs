//! From the configuration to what the runtime is told of the machine.

use crate::config::Configuration;
use gleaner_model::Policy;
use gleaner_runtime::Config;
use gleaner_settings::{GroupSettings, ObserverChoice, RetainChoice};

/// What the configuration says of the whole machine.
pub(crate) fn machine_config(configuration: &Configuration, dry_run: bool) -> Config {
    let machine = &configuration.machine;
    let acts = configuration.groups.iter().any(|group| group.settings.policy().retains());
    let dry_run = dry_run || configuration.names_no_group || machine.retain() == RetainChoice::None;
    let policy = if acts { Policy::Retain } else { Policy::Observe };
    let group = GroupSettings { policy: Some(policy), ..GroupSettings::default() };
    Config {
        retain: machine.retain(),
        // Whoever only watches needs nothing that costs a switch.
        observer: match machine.observer() {
            ObserverChoice::Auto if !acts || dry_run => ObserverChoice::Procfs,
            choice => choice,
        },
        groups_max: machine.groups_max(),
        overhead_ratio: machine.overhead_ratio(),
        dry_run,
        ..Config::of(String::new(), group)
    }
}
