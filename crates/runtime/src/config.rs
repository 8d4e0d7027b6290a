//! The configuration of a runtime: its group, how vCPUs are kept awake, what it may take.

use gleaner_model::RetainMeans;
use gleaner_settings::{GroupSettings, MachineSettings, ObserverChoice, RetainChoice};

/// What a runtime is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What people call the group, in a capture.
    pub name: String,
    /// How it is managed.
    pub group: GroupSettings,
    /// What keeps vCPUs awake.
    pub retain: RetainChoice,
    /// Means that this machine is known to refuse, and why: they are passed over where none is asked for by name.
    pub refused: Vec<(RetainMeans, String)>,
    pub observer: ObserverChoice,
    /// Groups that there may be at once, as far as the observer takes memory for each from the start.
    pub groups_max: usize,
    /// Observing and deciding may take this share of one CPU.
    pub overhead_ratio: f64,
    /// Whatever would be weaker than asked for is an error.
    pub strict: bool,
    /// Decisions are made and told, and nothing is changed. Nothing is tried either: a trial would compare nothing with
    /// nothing.
    pub dry_run: bool,
}

impl Config {
    /// One group, on a machine where nothing else is set.
    pub fn of(name: String, group: GroupSettings) -> Self {
        let machine = MachineSettings::default();
        Self {
            name,
            group,
            retain: machine.retain(),
            refused: Vec::new(),
            observer: machine.observer(),
            groups_max: 1,
            overhead_ratio: machine.overhead_ratio(),
            strict: false,
            dry_run: false,
        }
    }

    /// Whether anything is to be changed.
    pub fn acts(&self) -> bool {
        let policy = self.group.policy();
        !self.dry_run && (policy.retains() || policy.consolidates())
    }
}
