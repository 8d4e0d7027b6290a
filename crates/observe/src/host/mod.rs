//! What a host is and what things cost on it, for `gleaner host probe`.
//!
//! ```text
//!   facts     what files of /proc and /sys say: tick, preemption, real-time budget, pause exits, halt polling
//!   kernels   which known faults of slices this kernel has, by its version
//!   switch    a context switch, and the caches refilled after it, measured
//! ```
//!
//! What cannot be told is `None`, with the reason beside it.

mod facts;
mod kernels;
mod switch;

pub use facts::{Fact, HaltPolling, HostFacts, PauseExits, RtBudget, host_facts};
pub use kernels::{KernelVersion, SliceIssue, slice_issues};
pub use switch::{RefillCost, SwitchCost, switch_and_refill};
