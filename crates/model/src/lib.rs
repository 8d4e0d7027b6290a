//! The nouns that every room shares: ids, times, one observation ([`Window`]) and one step ([`Action`]).
//!
//! ```text
//! observe ──Window──▶ decide ──Decision──▶ act
//!    ▲                                      │
//!    └────────── RetainCounters ◀────────────┘
//! ```
//!
//! Nothing here does I/O or reads a clock. Times are [`Nanos`]; names carry their unit only where the type does not.
//! What an observer could not see is `None`, never zero.

mod action;
mod burst;
mod cpuset;
mod distribution;
mod host;
mod ids;
mod kernel;
mod printable;
mod retain;
mod topology;
mod window;
mod yielding;

pub use action::{Action, CLEARLY_FASTER, Decision, Policy, Profile, Reason, WakeupCosts};
pub use burst::{Burst, BurstWatch};
pub use cpuset::{CpuSet, ParseCpuSetError};
pub use distribution::{Distribution, SUB_BUCKET_BITS, bucket_high, bucket_index, bucket_low};
pub use host::{HostAction, HostDecision, HostReason, HostVcpuWindow, HostWindow, SwitchPrice, VmId, VmWindow};
pub use ids::{Nanos, VcpuId};
pub use kernel::KernelVersion;
pub use printable::{printable, printable_text};
pub use retain::{ParseRetainMeansError, RetainMeans};
pub use topology::{Topology, VcpuPlace};
pub use window::{GroupWindow, IdleEndedBy, Lengths, RetainCounters, Source, SystemCalls, VcpuWindow, Window};
pub use yielding::{Next, Order, YieldMachine, YieldReturn};
