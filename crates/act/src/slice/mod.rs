//! Time slices of vCPU threads on a stock kernel: set ([`Slices`]), and enforced ([`Enforcer`]).
//!
//! Problem: since Linux 6.12 a thread may ask for a slice, but against a neighbour that computes all the time it is cut
//! only at the kernel's tick, 4 ms apart at HZ=250. How: a SCHED_FIFO thread on each CPU where such threads compete,
//! which sleeps on an absolute timer and does nothing when it wakes up. Being there is enough: the task it displaced is
//! put back among the others, and the scheduler picks anew, without protecting whoever ran before.
//!
//! ```text
//!   Slices      sched_setattr, journalled      ticker    one CPU's thread: wakes once a slice, or sleeps
//!   attr        the two system calls           enforcer  which tickers are needed now; what they cost
//!   limits      what would starve the machine  fifo      a ticker's class, and what helps where it is refused
//!   throttling  what stops a bad ticker        alternating  a ticker's timers
//! ```
//!
//! The ticker's period is the slice: among threads of equal weight the one that has just run is no longer eligible,
//! however long a slice it asked for. So on one CPU the shortest slice among the competing threads is everybody's, and
//! a thread's own slice counts towards how soon it runs after a wake-up.

mod alternating;
mod attr;
mod enforcer;
mod fifo;
mod limits;
mod slices;
mod throttling;
mod ticker;

pub use attr::{SliceSupport, ThreadAttr, thread_attr};
pub use enforcer::{Competing, Enforcer};
pub use fifo::try_fifo;
pub use limits::{SliceRefusal, by_kernel, hrtick, refuse_slice, switch_cost, tick};
pub(crate) use slices::SliceChange;
pub use slices::{SLICE_RANGE, SliceOutcome, Slices};
pub use throttling::RtThrottling;
pub use ticker::TickerCost;
