//! Small real programs with known synchronization.
//!
//! [`Program`] lists those that stand for real programs: each is named for what it does and says whom it stands for. A
//! [`Plan`] says how many threads, how much computation between two synchronization points, and how much work; [`run`]
//! does it and returns an [`Outcome`]. Work is counted in items and in turns of a loop, never in time, and the checksum
//! proves that it was done. Nothing here prints.
//!
//! [`wakeup`] is apart: it is what the paper's Table 2 is made of.

mod barrier;
mod catalogue;
mod job;
mod latency;
mod plan;
mod programs;
pub mod pthread;
mod queue;
mod region;
mod run;
mod usage;
pub mod wakeup;
mod work;

pub use catalogue::{Description, Program};
pub use job::{Ended, Progress};
pub use latency::LatencySummary;
pub use plan::{ITEMS_MAX, ITERATIONS_MAX, Plan, Requests, Stop, THREADS_MAX, WorkloadError};
pub use run::{Outcome, run};
pub use usage::Usage;
pub use work::{ITERATIONS_PER_US, compute};
