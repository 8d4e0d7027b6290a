//! The guest policy (Gleaner, ATC'14, sections 4 to 6).
//!
//! ```text
//! policy ─┬─ retention ─────┬─ vcpu          what holds one vCPU back
//!         │                 ├─ timeout       by profile and measured cost
//!         │                 ├─ idle_lengths  ... and by what idle periods are like
//!         │                 ├─ trial         does retention pay here at all?
//!         │                 ├─ contention    no spinning where the host needs the CPU
//!         │                 └─ yielding      the yielding thread's own state machine, run by act/
//!         ├─ consolidation ─┬─ conditions       may one vCPU fewer do?
//!         │                 ├─ order            which one goes first
//!         │                 ├─ burst            all vCPUs at once, between two windows
//!         │                 ├─ judge            did the last step hurt, and what is learnt
//!         │                 ├─ workload_change  is it another program now?
//!         │                 └─ measure          windows -> rates, medians
//!         ├─ turns ─────────── evidence      threads that take turns: one vCPU, by trial
//!         ├─ kinds          what has lost a trial, and need not wait once it is another program
//!         ├─ interrupts     which ones leave deactivated vCPUs
//!         ├─ neighbours     what others steer
//!         └─ explain        why not
//! ```
//!
//! The seam between the two is narrow. Retention is told which vCPUs the group runs on; consolidation waits while
//! retention is being tried, and while it holds idle periods cheaply.

mod backoff;
mod consolidation;
mod explain;
mod interrupts;
mod kinds;
mod neighbours;
mod params;
mod policy;
mod retention;
mod turns;

pub use consolidation::{Check, Factors, check, deactivation_order, expands, granularity_ratio, load_ratio};
pub use explain::{Explanation, NoStep, TrialRecord};
pub use interrupts::worth_moving;
pub use neighbours::{Steered, beside};
pub use params::{GuestParams, Tuning};
pub use policy::{GuestPolicy, GuestSetup};
pub use retention::{
    ContentionGuard, GuardChange, IdleLengths, LearntTimeout, PollPrice, Prices, SIGNAL_CHECK, StolenMeter,
    TRIAL_AGAIN_MAX, TRIAL_AGAIN_MIN, TRIAL_GAIN_MIN, TRIAL_WAKEUPS_MIN, UNTIL_ORDERED, Urgency, YieldingThread,
    halting_costs_by_the_tail_alone, halting_is_free, timeout,
};
