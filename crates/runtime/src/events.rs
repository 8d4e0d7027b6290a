//! What was told so far.

use crate::GroupId;
use crate::event::{Event, Listener, Warning};
use gleaner_model::Decision;

/// A limit: a runtime runs for weeks.
const WARNINGS_KEPT: usize = 50;

/// Tells a listener of each event, and keeps the warnings.
pub(crate) struct Events {
    listener: Listener,
    warnings: Vec<Warning>,
}

impl Events {
    pub(crate) fn new(listener: Listener) -> Self {
        Self { listener, warnings: Vec::new() }
    }

    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// The same trouble ten times a second is one warning.
    pub(crate) fn warn(&mut self, warning: Warning) {
        if self.warnings.len() < WARNINGS_KEPT && !self.warnings.contains(&warning) {
            self.warnings.push(warning.clone());
            (self.listener)(&Event::Warned(warning));
        }
    }

    pub(crate) fn warn_of(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        for warning in warnings {
            self.warn(warning);
        }
    }

    pub(crate) fn decided(&self, group: GroupId, decision: Decision) {
        tracing::debug!(at_ms = decision.at.0 / 1_000_000, action = ?decision.action, "{}", decision.reason);
        (self.listener)(&Event::Decided { group, decision });
    }

    pub(crate) fn tell(&self, event: &Event) {
        (self.listener)(event);
    }

    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}
