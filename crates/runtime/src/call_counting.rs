//! System calls of a group, counted for as long as its policy compares places where it may run.

use gleaner_model::SystemCalls;
use gleaner_observe::{ProcRoot, SystemCallCounter};

/// Counts, or does not.
#[derive(Debug, Default)]
pub(crate) enum CallCounting {
    /// Nobody asks.
    #[default]
    Idle,
    /// While something is being compared. `partly`: it began within the window.
    Counting { counter: SystemCallCounter, partly: bool },
    /// This kernel or user does not allow it: the policy makes do with switches.
    Refused,
}

impl CallCounting {
    /// Those of `processes` are counted from now on; `None`: nobody's.
    pub(crate) fn follow(&mut self, processes: Option<Vec<i32>>) {
        match (&mut *self, processes) {
            (Self::Counting { counter, .. }, Some(processes)) => counter.follow(&processes),
            (Self::Idle, Some(processes)) => {
                let opened = SystemCallCounter::open(&ProcRoot::default());
                *self = match opened {
                    Ok(mut counter) => {
                        counter.follow(&processes);
                        Self::Counting { counter, partly: true }
                    }
                    Err(refusal) => {
                        tracing::info!("system calls are not counted: {refusal}");
                        Self::Refused
                    }
                };
            }
            (Self::Counting { .. }, None) => {
                if let Self::Counting { counter, .. } = std::mem::take(self) {
                    counter.retire();
                }
            }
            (Self::Idle, None) | (Self::Refused, _) => {}
        }
    }

    /// Calls since this was asked last: in the whole of a window.
    pub(crate) fn since_last(&mut self) -> Option<SystemCalls> {
        match self {
            Self::Counting { counter, partly } => {
                let calls = counter.since_last();
                (!std::mem::replace(partly, false)).then_some(calls)
            }
            Self::Idle | Self::Refused => None,
        }
    }
}
