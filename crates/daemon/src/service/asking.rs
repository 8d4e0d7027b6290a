//! How those who ask reach the service, over the control socket and for its metrics; and what it answers.

use super::Service;
use crate::config::{ConfigErrors, Configuration};
use crate::error::DaemonError;
use crate::event::Event;
use crate::host::HostAgent;
use crate::metrics::Metrics;
use crate::protocol::{Answer, Request};
use crate::server::Peer;
use crate::status::{self, Facts};
use crate::verify::verify;
use gleaner_act::default_state_dir;
use gleaner_model::printable;
use gleaner_runtime::GroupId;
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
    pub(super) fn answer(&mut self, request: Request, peer: &Peer) -> Answer {
        match request {
            Request::Status => {
                self.runtime.rouse_all();
                let facts = Facts {
                    up: self.began.elapsed().into(),
                    dry_run: self.is_dry(),
                    files: self.configuration.files.iter().map(|file| file.display().to_string()).collect(),
                    reload_error: self.reload_error.as_ref().map(ConfigErrors::in_a_line),
                    hypervisor: self.hypervisor.clone(),
                    host: self.host.as_ref().map(HostAgent::status),
                    began_unix: self.began_unix,
                    waiting: self.waiting.clone(),
                    differ: self.drift.differ().to_vec(),
                };
                Answer::Status(Box::new(status::report(&self.runtime.snapshot(), &self.groups, facts)))
            }
            Request::Verify => Answer::Verify(verify(&self.runtime.set_values(), &default_state_dir())),
            Request::Reload => {
                self.cut_window();
                self.reload();
                match &self.reload_error {
                    Some(errors) => Answer::Error(format!("the configuration stays as it was: {}", errors.in_a_line())),
                    None => Answer::Reloaded(self.groups.len() as u64),
                }
            }
            Request::Capture { for_ns } => {
                // What came before belongs to it, or does not.
                self.cut_window();
                match self.recording.files(for_ns.map(Duration::from_nanos), &mut self.runtime) {
                    Ok(files) => Answer::Capture(files),
                    Err(why) => Answer::Error(why),
                }
            }
            Request::Hold { group } => self.hold(&group, true),
            Request::Release { group } => self.hold(&group, false),
            Request::Join(join) => self.join(&join, peer).unwrap_or_else(Answer::Error),
            Request::Leave { group } => self.leave(group, peer).unwrap_or_else(Answer::Error),
        }
    }

    /// Leaves groups alone, or no more.
    fn hold(&mut self, name: &str, held: bool) -> Answer {
        let meant = self.groups.iter().filter(|group| group.is_called(name));
        let meant: Vec<(GroupId, String)> = meant.map(|group| (group.id, group.name.clone())).collect();
        if meant.is_empty() {
            return Answer::Error(format!("no group is called {}: see gleaner status", printable(name.as_bytes())));
        }
        // What came before is counted as it was.
        self.cut_window();
        let now = self.runtime.snapshot().at;
        for (id, name) in &meant {
            self.runtime.hold(*id, held);
            let ordered = status::ordered(now, held);
            self.groups.iter_mut().filter(|group| group.id == *id).for_each(|group| group.add_hold(ordered.clone()));
            let how = if held { "is left alone until it is released" } else { "is managed again" };
            (self.say)(&format!("gleaner: {name}: {how}"));
        }
        Answer::Done(meant.into_iter().map(|(_, name)| name).collect())
    }

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
