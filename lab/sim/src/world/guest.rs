//! A guest's state: which of its vCPUs idle, which the workload may use, where threads wait.

use crate::config::GuestConfig;

/// A guest's scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) config: GuestConfig,
    /// All vCPUs, as bits.
    pub(crate) all: u64,
    /// Those the workload may use.
    pub(crate) active: u64,
    /// Those without a thread.
    pub(crate) idle: u64,
    /// Of those without a thread, those that no shootdown of the workload concerns any more: they have left its address
    /// space.
    pub(crate) left: u64,
    /// Those with a thread that waits though somebody else could run it.
    pub(crate) waiting: u64,
    pub(crate) ticks_waited: u32,
    /// Whether windows are wanted.
    pub(crate) observed: bool,
}
