//! The host policy (micro-sliced vCPUs, MICRO'14, sections III and IV).
//!
//! ```text
//! slice          windows -> decisions: one slice for all (static), or one for each set of VMs that share pCPUs (adaptive)
//!   ├─ sharing        who shares with whom
//!   ├─ adaptive       one set: a walk on the ladder of slices, each step judged
//!   │    └─ harm           what discontinuity costs and what switches cost, now and at another slice
//!   ├─ fairness       did each VM get what it is entitled to
//!   └─ explain        where it stands
//! cache_class    what the last-level cache is to a context: CPU-bound, cache-friendly, thrashing (section IV-B)
//! insertion      where a context's new cache lines go: context preservation by time sampling (section IV-B)
//! llc            the same on today's processors: which ways of the last level a VM may fill (section IV-B)
//! ```

mod adaptive;
mod cache_class;
mod explain;
mod fairness;
mod harm;
mod host_params;
mod insertion;
mod llc;
mod sharing;
mod slice;

pub use cache_class::{CacheClass, CacheClassParams, CacheUse};
pub use explain::{HostExplanation, HostNoStep, SetExplanation};
pub use fairness::{FairnessMeter, VmShare, deviation, is_unfair};
pub use host_params::HostParams;
pub use insertion::{Insertion, InsertionSampler, Phase, Quantum};
pub use llc::{LlcCounts, LlcGeometry, LlcMove, LlcParams, LlcPolicy, LlcReason, LlcShare, LlcSplit, LlcVm, split};
pub use sharing::{SharingSet, sharing_sets};
pub use slice::{HostPolicy, SlicePolicy};
