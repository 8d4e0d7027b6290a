//! The guest policy (Gleaner, ATC'14, sections 4 to 6).
//!
//! ```text
//! policy ─┬─ retention    time-outs by profile and measured cost
//!         ├─ idle_lengths ... and by what idle periods are like
//!         ├─ trial        does retention pay here at all?
//!         ├─ contention   no spinning where the host needs the CPU
//!         ├─ never_idle   nor where there are no idle periods
//!         ├─ packing ─┬─ conditions       may one vCPU fewer do?
//!         │           ├─ judge            did the last step hurt, and what is learnt
//!         │           ├─ workload_change  is it another program now?
//!         │           └─ measure          windows -> rates, medians
//!         └─ explain      why not
//! yielding                the yielding thread's own state machine, run by act/
//! ```

mod backoff;
mod conditions;
mod contention;
mod explain;
mod idle_lengths;
mod judge;
mod measure;
mod never_idle;
mod packing;
mod params;
mod policy;
mod retention;
mod trial;
mod workload_change;
mod yielding;

pub use conditions::{Check, Factors, check, granularity_ratio, load_ratio};
pub use contention::{ContentionGuard, GuardChange, StolenMeter};
pub use explain::{Explanation, NoStep};
pub use idle_lengths::{IdleLengths, LearntTimeout, PollPrice, Prices};
pub use params::GuestParams;
pub use policy::GuestPolicy;
pub use retention::{halting_costs_by_the_tail_alone, halting_is_free, poll_timeout, timeout};
pub use yielding::{SIGNAL_CHECK, UNTIL_ORDERED, YieldingThread};
