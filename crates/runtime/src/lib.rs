//! What everything that manages a machine is made of. observe -> decide -> act, tied together here and nowhere else.
//!
//! ```text
//!   session   a journal and its guardian: whatever is changed is undone, however the process ends
//!   event     what happens, typed
//! ```

mod event;
mod guardian;
mod session;

pub use event::{Event, Listener, Warning};
pub use guardian::{GuardError, guard, own_binary};
pub use session::{Session, run_id};
