//! What everything that manages a machine is made of: observe -> decide -> act, tied together here and nowhere else.
//!
//! ```text
//!   runtime      one machine and its groups; one window a tick
//!     machine      observer (observing), means of retention (retention), journal, housekeeping CPU, pace
//!     group        policy, placement, totals of one managed group
//!     resting      quiet groups among many: one window for a second
//!     timeout_requests  what groups that share vCPUs want of them, and what comes of it
//!   event_loop   ticks, and what happens between them
//!   cost         what Gleaner itself takes, as the kernel counts it
//!   bursts       what comes between two windows: a group has more to do at once
//!   call_counting  system calls of a group, while places are compared
//!   session      a journal and its guardian: whatever is changed is undone, however the process ends
//!   retain       which means keeps idle vCPUs awake here
//!   event        what happens, typed          snapshot   how everything stands
//! ```
//!
//! Nothing here prints: who calls makes text, JSON or a picture of a [`Snapshot`] and of [`Event`]s.

mod active_set;
mod bursts;
mod call_counting;
mod coexistence;
mod config;
mod cost;
mod decisions;
mod event;
pub mod event_loop;
mod events;
mod group;
mod guardian;
mod heartbeat;
mod machine;
mod members;
mod observing;
mod pace;
mod recent;
mod resting;
mod retain;
mod retention;
mod runtime;
mod session;
mod setup;
mod snapshot;
mod steering;
mod timeout_requests;
mod totals;
mod yielding;

pub use config::Config;
pub use cost::OwnCost;
pub use event::{Event, Listener, Warning};
pub use guardian::{GuardError, guard, own_binary};
pub use members::Members;
pub use recent::{MachineTimes, RecentFigures, VcpuTime};
pub use resting::Resting;
pub use retain::{Opened, Opening, open_one};
pub use runtime::Runtime;
pub use session::{Session, run_id};
pub use setup::{SetupError, takes_long};
pub use snapshot::{GroupSnapshot, RetentionSnapshot, Snapshot};
pub use timeout_requests::GroupId;
pub use totals::{LengthSummaries, LengthSummary, Totals};
pub use yielding::start_yielding;
