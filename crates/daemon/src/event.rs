//! What wakes the service's loop: signals, requests, bursts.

use crate::protocol::{Answer, Request};
use crate::server::Peer;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Who is told, line by line.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// What happens between two windows.
#[derive(Debug)]
pub(crate) enum Event {
    Stop,
    Reload,
    Child,
    /// A packed group may have too few vCPUs.
    Burst,
    /// Somebody asks over the socket, and waits there.
    Asked(Request, Peer, Sender<Answer>),
}
