//! The guest policy (Gleaner, ATC'14, sections 4 to 6).

mod backoff;
mod contention;
mod params;
mod retention;
mod yielding;

pub use contention::{ContentionGuard, GuardChange, StolenMeter};
pub use params::{GuestParams, ParamError};
pub use retention::timeout;
pub use yielding::{Next, Order, SIGNAL_CHECK, UNTIL_ORDERED, YieldReturn, YieldingThread};
