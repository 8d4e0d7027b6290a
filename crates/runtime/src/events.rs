//! Tells each event to the listener and the flight recorder, and keeps the warnings.

use crate::GroupId;
use crate::event::{Event, Listener, Warning};
use gleaner_capture::Recorder;
use gleaner_model::Decision;

/// A limit: a runtime runs for weeks.
const WARNINGS_KEPT: usize = 50;

/// Tells a listener of each event, and a recorder where there is one; keeps the warnings.
pub(crate) struct Events {
    listener: Listener,
    warnings: Vec<Warning>,
    recorder: Option<Recorder>,
}

impl Events {
    pub(crate) fn new(listener: Listener) -> Self {
        Self { listener, warnings: Vec::new(), recorder: None }
    }

    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// What is told from now on is recorded, instead of by whoever records now.
    pub(crate) fn record(&mut self, recorder: Option<Recorder>) {
        let before = std::mem::replace(&mut self.recorder, recorder);
        if let Some(why) = before.and_then(Recorder::finish) {
            self.warn(Warning::NotRecorded { why });
        }
    }

    /// Who records.
    pub(crate) fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_mut()
    }

    /// Notices that recording has stopped, and says so once.
    pub(crate) fn look_after_recorder(&mut self) {
        if let Some(why) = self.recorder.as_ref().and_then(Recorder::trouble) {
            self.recorder = None;
            self.warn(Warning::NotRecorded { why });
        }
    }

    /// The same trouble ten times a second is one warning.
    pub(crate) fn warn(&mut self, warning: Warning) {
        if self.warnings.len() < WARNINGS_KEPT && !self.warnings.contains(&warning) {
            self.warnings.push(warning.clone());
            if let Some(recorder) = &mut self.recorder {
                recorder.event(&warning.to_string());
            }
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
