//! More work than the active vCPUs can take, told at once and not by the next window (Gleaner, section 7.1: "the guest
//! OS could notify Gleaner to increase the number of vCPUs").

use crate::Nanos;
use serde::{Deserialize, Serialize};

/// What the policy wants to be told of at once, while a group is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstWatch {
    /// How many vCPUs the group is packed onto.
    pub active: u32,
    /// For so long without a break more threads could run than there are active vCPUs.
    pub after: Nanos,
    /// ... or a thread that was woken waited for so long while another task had its vCPU.
    pub delay: Nanos,
}

/// Threads of a group wait for a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// When it was told, on the clock of [`crate::Window::at`].
    pub at: Nanos,
    /// Threads that can run, those that do included.
    pub runnable: u64,
    /// For how long these have been more than the active vCPUs, as far as the vCPUs were not stolen. Through `/proc` it
    /// is the mean wait of those that got one.
    pub lasted: Nanos,
    /// How long a woken thread waited while another task had its vCPU; zero where that is not what is told.
    pub delay: Nanos,
}
