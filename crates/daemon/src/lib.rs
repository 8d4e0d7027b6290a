//! The service: manages any number of groups on a machine, as a configuration says, until it is told to end.
//!
//! ```text
//!   config    files over each other -> what is to be managed, and how
//!   groups    what runs now         -> which groups are to be adopted, joined, let go
//!   service   both into a Runtime, once a window; reloads; ends with everything undone
//!   joins     groups that `gleaner run` and `attach` hand over, and who may
//!   host      the host agent, a process of its own
//!   lock      one daemon a machine
//!   control   the socket by which others ask (protocol); status, verify: what they are answered; client: who asks
//!   privileges  what the daemon keeps of root's capabilities
//!   recording the flight recorder: what it keeps, for how long, and for whom
//!   allowance what one user may use by time
//!   metrics   the same as OpenMetrics; server: serves both, within limits
//! ```
//!
//! Deciding is `decide`'s, acting `act`'s, and what ties them is `runtime`'s. Nothing here prints: lines go to whoever
//! started it.

mod allowance;
mod client;
mod config;
mod control;
mod error;
mod event;
#[cfg(test)]
mod fuzz;
mod groups;
mod host;
mod joins;
mod lock;
mod metrics;
mod metrics_address;
mod privileges;
mod protocol;
mod recording;
mod server;
mod service;
mod signals;
mod status;
mod supervisor;
mod verify;

pub use client::{ClientError, SYSTEM_DIR, ask_at, ask_within, default_socket, is_listened_at};
pub use config::{CaptureSettings, ConfigError, ConfigErrors, Configuration, GroupEntry, keys};
pub use error::DaemonError;
pub use event::Say;
pub use groups::waiting_now;
pub use joins::Join;
pub use lock::{LockError, holder, tidy};
pub use metrics::{METRICS, Metric, MetricKind, OF_VCPUS, textfile};
pub use metrics_address::MetricsAddress;
pub use protocol::{Answer, Request, socket_in};
pub use service::{Options, Summarize, run};
