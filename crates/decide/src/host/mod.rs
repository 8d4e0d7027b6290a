//! The host policy (micro-sliced vCPUs, MICRO'14, section III).
//!
//! ```text
//! slice          windows -> decisions: one slice for all (static), or one for each set of VMs that share pCPUs (adaptive)
//!   ├─ sharing        who shares with whom
//!   ├─ adaptive       one set: a walk on the ladder of slices, each step judged
//!   │    └─ harm           what discontinuity costs and what switches cost, now and at another slice
//!   ├─ fairness       did each VM get what it is entitled to
//!   └─ explain        where it stands
//! ```

mod adaptive;
mod explain;
mod fairness;
mod harm;
mod host_params;
mod sharing;
mod slice;

pub use explain::{HostExplanation, HostNoStep, SetExplanation};
pub use fairness::{FairnessMeter, VmShare, deviation, is_unfair};
pub use host_params::HostParams;
pub use sharing::{SharingSet, sharing_sets};
pub use slice::{HostPolicy, SlicePolicy};
