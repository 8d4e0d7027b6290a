//! Keeps the first and the newest decisions: a run of weeks may take any number.

use gleaner_model::Decision;
use std::collections::VecDeque;

/// How it began.
const FIRST: usize = 100;
/// How it stands.
const NEWEST: usize = 900;

/// The first hundred and the newest nine hundred.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecisionLog {
    first: Vec<Decision>,
    newest: VecDeque<Decision>,
    left_out: u64,
}

impl DecisionLog {
    pub(crate) fn add(&mut self, decision: Decision) {
        if self.first.len() < FIRST {
            self.first.push(decision);
            return;
        }
        if self.newest.len() >= NEWEST {
            self.newest.pop_front();
            self.left_out += 1;
        }
        self.newest.push_back(decision);
    }

    /// Oldest first.
    pub(crate) fn kept(&self) -> Vec<Decision> {
        self.first.iter().chain(&self.newest).copied().collect()
    }

    /// How many are not kept.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{Action, Nanos, Reason};

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let mut log = DecisionLog::default();
        for taken in 0..5_000 {
            log.add(Decision { at: Nanos(taken), action: Action::ActivateAll, reason: Reason::Exec });
            assert_eq!(log.kept().len() as u64 + log.left_out(), taken + 1);
            if taken == 999 {
                assert_eq!(log.left_out(), 0);
            }
        }
        let at: Vec<u64> = log.kept().iter().map(|decision| decision.at.0).collect();
        assert_eq!(at, (0..100).chain(4_100..5_000).collect::<Vec<u64>>());
    }
}
