//! How those who ask reach the service: over the control socket, and for its metrics.

use super::{Event, Service};
use crate::config::Configuration;
use crate::error::DaemonError;
use crate::metrics::Metrics;
use crate::protocol::{Answer, Request};
use crate::server::Peer;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// A window and a reload take less.
const LONGEST_ANSWER: Duration = Duration::from_secs(4);

/// Hands a request to the service, and waits for what it answers.
pub(super) fn by_way_of(service: Sender<Event>) -> impl FnMut(Request, Peer) -> Answer {
    move |request, peer| {
        let (answer, answered) = channel();
        let asked = service.send(Event::Asked(request, peer, answer)).is_ok();
        let answer = answered.recv_timeout(LONGEST_ANSWER).ok().filter(|_| asked);
        answer.unwrap_or_else(|| Answer::Error("the daemon is busy, or about to end".to_owned()))
    }
}

/// Whoever serves metrics, where the configuration names an address.
pub(super) fn metrics(configuration: &Configuration, service: Sender<Event>) -> Result<Option<Metrics>, DaemonError> {
    let Some(address) = &configuration.metrics else { return Ok(None) };
    let started = Metrics::start(address, configuration.control_group, by_way_of(service));
    started.map(Some).map_err(|source| DaemonError::Metrics { address: address.clone(), source })
}

impl Service {
    /// After a reload. Where the new address is not to be had, the old one stays.
    pub(super) fn serve_metrics_at_new_address(&mut self, old: &Configuration) {
        if old.metrics == self.configuration.metrics {
            return;
        }
        let (configuration, sender) = (&self.configuration, self.sender.clone());
        match self.runtime.unpinned(|| metrics(configuration, sender)) {
            Ok(new) => {
                if let Some(replaced) = std::mem::replace(&mut self.metrics, new) {
                    // It may be waiting for an answer of this thread, which would wait for its end. Without another
                    // thread that lasts until the answer is given up.
                    let _ = std::thread::Builder::new().spawn(move || drop(replaced));
                }
            }
            Err(error) => {
                self.configuration.metrics.clone_from(&old.metrics);
                (self.say)(&format!("gleaner: {error}; metrics stay as they were until another reload or start"));
            }
        }
    }
}
