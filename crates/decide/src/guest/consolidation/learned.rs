//! What steps that hurt have taught: how near the limits the next one may go.

use super::conditions::Factors;
use crate::guest::GuestParams;
use serde::{Deserialize, Serialize};

/// What steps that hurt have taught.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LearnedLimits {
    pub factors: Factors,
    /// Whether several vCPUs may go at once.
    pub several_at_once: bool,
}

impl LearnedLimits {
    /// Nothing yet.
    pub fn none(params: &GuestParams) -> Self {
        Self { factors: Factors::new(params), several_at_once: params.several_at_once }
    }
}
