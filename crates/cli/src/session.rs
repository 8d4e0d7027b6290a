//! Sessions of this binary: what they cannot undo is said on stderr.

use gleaner_act::ActError;
use gleaner_command::output::say;
use gleaner_runtime::{Event, Listener, Session};
use std::sync::Arc;

/// Says at once what a result would tell too late, or not at all.
pub fn listener() -> Listener {
    Arc::new(|event| {
        if matches!(event, Event::JournalKept { .. } | Event::NotUndone { .. }) {
            say(&format!("gleaner: {event}"));
        }
    })
}

/// Begins one.
pub fn begin() -> Result<Session, ActError> {
    Session::begin(listener())
}
