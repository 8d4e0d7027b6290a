//! How full one vCPU is.

use crate::guest::GuestParams;
use gleaner_model::{Nanos, VcpuWindow};
use serde::{Deserialize, Serialize};

/// A vCPU at this utilization has "reached 100 %": it never quite does.
const OVERLOADED: f64 = 0.98;

/// One active vCPU over the settled windows since the last step or change.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Load {
    windows: u32,
    pub(super) busy: Nanos,
    pub(super) utilization: f64,
    /// Windows in a row, up to now, above `saturated_utilization`.
    pub(super) saturated: u32,
    /// Windows at or above [`OVERLOADED`].
    overloaded: u32,
}

impl Load {
    /// A window more.
    pub(super) fn add(&mut self, vcpu: &VcpuWindow, length: Nanos, params: &GuestParams) {
        self.windows = self.windows.saturating_add(1);
        self.busy += vcpu.busy;
        self.utilization = vcpu.utilization(length);
        let saturated = self.utilization > params.tuning.saturated_utilization;
        self.saturated = if saturated { self.saturated.saturating_add(1) } else { 0 };
        let overloaded = self.utilization >= OVERLOADED;
        self.overloaded = self.overloaded.saturating_add(u32::from(overloaded));
    }

    /// Whether it was full in most of them.
    pub(super) fn is_overloaded(&self) -> bool {
        self.overloaded > self.windows / 2
    }
}
