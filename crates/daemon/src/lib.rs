//! The service: manages any number of groups on a machine, as a configuration says, until it is told to end.
//!
//! ```text
//!   config    files over each other -> what is to be managed, and how
//!   groups    what runs now         -> which groups are to be adopted, joined, let go
//!   service   both into a Runtime, once a window; reloads; ends with everything undone
//!   lock      one daemon a machine
//! ```
//!
//! Deciding is `decide`'s, acting `act`'s, and what ties them is `runtime`'s. Nothing here prints: lines go to whoever started it.

mod config;
mod groups;
mod lock;
mod service;
mod signals;
mod supervisor;

pub use config::{ConfigError, Configuration, GroupSettings, KEYS, Key, ProfileName};
pub use lock::{LockError, holder};
pub use service::{DaemonError, Options, Say, run};
