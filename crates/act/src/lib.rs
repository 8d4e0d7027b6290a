//! Decision -> the world: yielding threads, placement of the managed threads, and the journal that undoes it all.
//!
//! ```text
//! Journal ──before every change──▶ IdleGroup, Placement
//!    ▲                                  │ dies
//!    └── undo: by main on exit, by the guardian after kill -9, by `gleaner restore` after both
//! ```
//!
//! Each change brings its own undo ([`Change`]); `undo` lists them, and the journal knows none.
//!
//! Nothing here decides. What is refused (a scheduling class, a cgroup file) is replaced by the next weaker means, and
//! the replacement is named ([`Fallback`]).

mod affinity;
mod cgroup;
mod error;
mod heartbeat;
mod housekeeping;
mod idle_group;
mod interrupts;
mod journal;
mod placement;
mod procs;
mod retain;
mod slice;
mod state_dir;
mod undo;
mod xen;
mod yielding;

pub use affinity::{AffinityStep, GroupAffinity, ThreadAffinity, allowed_cpus};
pub use cgroup::{CgroupRoots, DisableController, Hierarchy, RemoveCgroup, cpu_controller, own_group};
pub use error::{ActError, Fallback};
pub use housekeeping::HousekeepingCpu;
pub use idle_group::{IdleGroup, IdleMeans};
pub use interrupts::Interrupts;
pub use journal::{Change, Journal, list_journals, own_journals};
pub use placement::Placement;
pub use procs::{RUN_ID_VARIABLE, own_start_time, process_start_time};
pub use retain::{FileValue, Haltpoll, IdlePoll, IdlePollParams, IdlePollRefusal, PmQos, Retainer, SetValue};
pub use slice::{
    Competing, Enforcer, RtThrottling, SLICE_RANGE, SliceOutcome, SliceRefusal, SliceSupport, Slices, ThreadAttr,
    TickerCost, by_kernel, hrtick, refuse_slice, switch_cost, thread_attr, tick, try_fifo,
};
pub use state_dir::{default_state_dir, is_trusted_dir};
pub use undo::{UndoOutcome, is_abandoned, take_values_back, undo_held, undo_journal, undo_own};
pub use xen::{XenChange, XenPool, XenRefusal, XenRequest, XenTimes, Xl, change_xen, is_xen_dom0, plan_xen, xen_pools};
pub use yielding::{BusyWait, YieldClass, YieldingThreads};
