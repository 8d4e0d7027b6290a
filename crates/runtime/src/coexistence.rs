//! Coexistence with others that steer the same vCPUs: what of a configuration is left beside them.

use crate::config::Config;
use crate::event::Warning;
use crate::events::Events;
use gleaner_decide::guest::{Steered, beside};
use gleaner_model::RetainMeans;
use gleaner_observe::{ProcRoot, never_halts, sched_ext};
use std::borrow::Cow;

/// Why there are no yielding threads under a sched_ext scheduler.
const NO_LOWEST_CLASS: &str = "a sched_ext scheduler decides what the lowest class means";

/// `config`, where no vCPU can be retained.
pub(crate) fn without_retention(config: &Config) -> Config {
    let steered = Steered { never_halts: true, ..Steered::default() };
    let mut left = config.clone();
    left.group.policy = Some(beside(config.group.policy(), steered));
    left
}

/// `config`, without what is somebody else's here.
pub(crate) fn beside_others<'a>(config: &'a Config, events: &mut Events) -> Cow<'a, Config> {
    let root = ProcRoot::default();
    let scheduler = if config.acts() { sched_ext(&root) } else { None };
    let steered = Steered { by_sched_ext: scheduler.is_some(), never_halts: config.acts() && never_halts(&root) };
    if steered == Steered::default() {
        return Cow::Borrowed(config);
    }
    let mut left = config.clone();
    left.group.policy = Some(beside(config.group.policy(), steered));
    if let Some(scheduler) = scheduler {
        left.refused.push((RetainMeans::Yielding, NO_LOWEST_CLASS.to_owned()));
        events.warn(Warning::LeftToSchedExt { scheduler });
    }
    if steered.never_halts && config.group.policy().retains() {
        events.warn(Warning::NeverHalts);
    }
    Cow::Owned(left)
}
