//! What a host is and what things cost on it, for `gleaner host probe`.
//!
//! ```text
//!   facts     what files of /proc and /sys say: tick, preemption, real-time budget, pause exits, halt polling
//!   kernels   which known faults of slices this kernel has, by its version
//!   switch    a context switch, and the caches refilled after it, measured
//!   exit      a VM exit, measured from inside
//!   exit_host the same from the host's side, of a VM of one page
//! ```
//!
//! What cannot be told is `None`, with the reason beside it.

mod exit;
mod exit_host;
mod facts;
mod kernels;
mod switch;

pub use exit::{ExitCost, exit_cost};
pub use exit_host::{HostExitError, exit_cost_from_host};
pub use facts::{Fact, HaltPolling, HostFacts, PauseExits, RtBudget, host_facts};
pub use kernels::{KernelVersion, SliceIssue, slice_issues};
pub use switch::{RefillCost, SwitchCost, switch_and_refill};
