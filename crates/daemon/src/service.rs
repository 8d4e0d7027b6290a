//! The loop: windows, a look at what runs once a second, signals; until it is told to end.

use crate::allowance::Allowance;
use crate::config::{ConfigErrors, Configuration, GroupEntry};
use crate::control::Control;
use crate::error::DaemonError;
use crate::event::{Event, Say};
use crate::groups::{Adopted, Candidate, look, waiting};
use crate::host::HostAgent;
use crate::lock::Lock;
use crate::metrics::Metrics;
use crate::privileges;
use crate::protocol::socket_in;
use crate::recording::Recording;
use crate::signals::Listening;
use crate::supervisor::Supervisor;
use asking::by_way_of;
use drift::Drift;
use gleaner_model::{Nanos, Policy};
use gleaner_observe::{LastRoots, ProcRoot, hypervisor, vcpus_of};
use gleaner_report::{RunReport, StatusWaiting};
use gleaner_runtime::event_loop::{self, Received, Task};
use gleaner_runtime::{Config, Listener, Runtime, Snapshot};
use gleaner_settings::{MachineSettings, RetainChoice, word};
use gleaner_sys::{thread_cpu_time, usable_cpus};
pub(crate) use machine::machine_config;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

mod asking;
mod drift;
mod joining;
mod machine;

/// How often the daemon looks for groups that came and went.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What looking may cost, as a part of one CPU: 1/400.
const LOOK_RARITY: u32 = 400;
/// ... but not for longer: without a group it is what the watchdog hears.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// Groups that wait, of those that a line of the log names.
const WAITING_NAMED: usize = 3;
/// A window this late tells of a machine, or a daemon, that was stopped; nothing is to be learnt from it.
const STOPPED: Nanos = Nanos::from_secs(1);

/// What there is to tell of the one group of a snapshot, managed as this says, as `gleaner run` would.
pub type Summarize = fn(&Config, &Snapshot) -> RunReport;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instead of the machine's files.
    pub file: Option<PathBuf>,
    /// Nothing is changed.
    pub dry_run: bool,
    /// Where the lock is, and what else others find it by.
    pub state_dir: PathBuf,
    /// What is told of a group that was handed over.
    pub summarize: Summarize,
}

/// Runs until SIGTERM or SIGINT; everything is undone then.
///
/// # Errors
/// When it cannot begin, or not everything could be undone.
pub fn run(options: Options, say: Say) -> Result<(), DaemonError> {
    let configuration = Configuration::load(options.file.as_deref())?;
    let _lock = Lock::take(&options.state_dir)?;
    let (sender, events) = channel();
    let _listening = Listening::start(sender.clone())?;
    let _control =
        Control::start(&socket_in(&options.state_dir), configuration.control_group, by_way_of(sender.clone()))?;
    // The runtime keeps its thread to one vCPU; the first thread's mask still tells what the process may use.
    let work = move || serve(options, configuration, (sender, events), say);
    let thread = std::thread::Builder::new().name("gleaner-daemon".to_owned()).spawn(work)?;
    privileges::keep_none();
    thread.join().unwrap_or(Err(DaemonError::Panicked))
}

fn serve(
    options: Options,
    configuration: Configuration,
    (sender, events): (Sender<Event>, Receiver<Event>),
    say: Say,
) -> Result<(), DaemonError> {
    let metrics = asking::metrics(&configuration, sender.clone())?;
    keep_what_is_needed(&options, &configuration, &say);
    let mut service = Service::new(options, configuration, (sender.clone(), events), say)?;
    service.metrics = metrics;
    // Whoever receives may be about to end.
    service.runtime.tell_bursts_by(move || drop(sender.send(Event::Burst)));
    service.look();
    Supervisor::ready();
    (service.say)(&format!("gleaner: managing {}", service.summary()));
    let first = service.next_tick();
    event_loop::run(&mut service, first);
    Supervisor::stopping();
    service.say_what_stays();
    let host_restored = service.host.take().is_none_or(HostAgent::end);
    let (_, restored) = service.runtime.end();
    service.recording.tidy();
    if restored && host_restored { Ok(()) } else { Err(DaemonError::NotUndone) }
}

/// Of root's capabilities. A reload may name a group where there was none.
fn keep_what_is_needed(options: &Options, configuration: &Configuration, say: &Say) {
    let acts = !options.dry_run && configuration.machine.retain() != RetainChoice::None;
    let host = !options.dry_run && configuration.host.is_some();
    match privileges::keep_only(privileges::needed(configuration.machine.observer(), acts, host)) {
        Ok((_, 0)) => {}
        Ok((kept, given_up)) => {
            say(&format!("gleaner: capabilities kept: {}; {given_up} given up", privileges::names(kept)));
        }
        Err(error) => say(&format!("gleaner: all capabilities are kept: {error}")),
    }
}

struct Service {
    options: Options,
    began: Instant,
    /// The same, since 1970.
    began_unix: Nanos,
    configuration: Configuration,
    runtime: Runtime,
    recording: Recording,
    groups: Vec<Adopted>,
    /// What is named, and is not managed.
    waiting: Vec<StatusWaiting>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    metrics: Option<Metrics>,
    say: Say,
    supervisor: Supervisor,
    next_look: Instant,
    last_roots: LastRoots,
    /// A new window begins now, and the next tick is due once it is over.
    is_cut: bool,
    /// Who joins how often.
    joins: Allowance,
    /// Said once.
    said: BTreeSet<String>,
    /// What is wrong with the configuration that was to be reloaded last.
    reload_error: Option<ConfigErrors>,
    hypervisor: Option<String>,
    host: Option<HostAgent>,
    drift: Drift,
}

impl Service {
    fn new(
        options: Options,
        configuration: Configuration,
        (sender, events): (Sender<Event>, Receiver<Event>),
        say: Say,
    ) -> Result<Self, DaemonError> {
        let config = machine_config(&configuration, options.dry_run);
        let mut runtime = Runtime::open(&config, usable_cpus(&ProcRoot::default()), listener(&say))?;
        let recording = Recording::start(configuration.capture.clone(), &options.state_dir, &mut runtime);
        Ok(Self {
            options,
            began: Instant::now(),
            began_unix: since_1970(),
            configuration,
            runtime,
            recording,
            groups: Vec::new(),
            waiting: Vec::new(),
            sender,
            events,
            metrics: None,
            say,
            supervisor: Supervisor::new(),
            next_look: Instant::now(),
            last_roots: LastRoots::default(),
            is_cut: false,
            joins: joining::rate(),
            said: BTreeSet::new(),
            reload_error: None,
            hypervisor: hypervisor(&ProcRoot::default()).map(|found| found.name),
            host: None,
            drift: Drift::default(),
        })
    }

    /// Lets go what has ended, follows what goes on, adopts what has come.
    fn look(&mut self) {
        let (began, before) = (Instant::now(), thread_cpu_time());
        let root = ProcRoot::default();
        for mut group in std::mem::take(&mut self.groups) {
            let roots = group.roots_now(&root, &mut self.last_roots);
            if !group.is_wanted(&root) {
                self.let_go(&group, "who handed it over has ended");
                continue;
            }
            // Who handed it over asks for what there is to tell of it.
            if roots.is_empty() && group.joined.is_none() {
                self.let_go(&group, "it has ended");
                continue;
            }
            for pid in roots.iter().filter(|pid| !group.roots.contains(pid)) {
                self.runtime.group_joined(group.id, *pid);
            }
            group.roots = roots;
            self.groups.push(group);
        }
        self.last_roots.all_asked();
        let found = look(&root, &self.configuration, &self.groups);
        for (id, why) in &found.lost {
            if let Some(place) = self.groups.iter().position(|group| group.id == *id) {
                let group = self.groups.remove(place);
                self.let_go(&group, why);
            }
        }
        found.new.iter().for_each(|candidate| self.adopt(candidate.clone()));
        let managed: Vec<&str> = self.groups.iter().map(|group| group.entry.name.as_str()).collect();
        self.waiting = waiting(&self.configuration, &found, &managed);
        for (name, owner) in found.taken {
            self.say_once(format!("gleaner: {name}: some of it is managed as {owner} already; it is left alone"));
        }
        if found.too_many {
            self.say_once("gleaner: more groups than daemon.groups_max; the rest is left alone".to_owned());
        }
        self.recording.look(&mut self.runtime);
        self.look_after_host();
        self.look_for_drift();
        let cost: Duration = (thread_cpu_time() - before).into();
        self.next_look = began + LOOK_EVERY.max(cost * LOOK_RARITY).min(LOOK_AT_LEAST_EVERY);
        let summary = self.summary();
        self.supervisor.status(format!("managing {summary}"));
    }

    fn adopt(&mut self, candidate: Candidate) {
        let Candidate { name, entry, target, roots } = candidate;
        let config = self.group_config(&name, &entry);
        let members = Adopted::members(&target);
        let Some(id) = self.runtime.adopt(&config, &vcpus_of(&roots), members, &roots) else {
            return self.say_once(format!("gleaner: {name}: the observer has no room for it; it is left alone"));
        };
        let how = if config.dry_run { ", which is only watched" } else { "" };
        (self.say)(&format!("gleaner: {name}: {target} is managed, profile {}{how}", word(&entry.settings.profile())));
        self.groups.push(Adopted { id, name, entry, target, roots, joined: None, holds: Vec::new() });
    }

    fn let_go(&mut self, group: &Adopted, why: &str) {
        self.runtime.let_go(group.id);
        (self.say)(&format!("gleaner: {}: {} is managed no more: {why}", group.name, group.target));
    }

    /// The configuration anew. Groups that stay keep what is known of them; where it is broken everything stays.
    fn reload(&mut self) {
        Supervisor::reloading();
        match Configuration::load(self.options.file.as_deref()) {
            Ok(new) => self.change_to(new),
            Err(error) => {
                (self.say)(&format!("gleaner: the configuration stays as it was: {}", error.in_a_line()));
                self.reload_error = Some(error);
            }
        }
        Supervisor::ready();
    }

    fn is_dry(&self) -> bool {
        machine_config(&self.configuration, self.options.dry_run).dry_run
    }

    fn change_to(&mut self, new: Configuration) {
        let old = std::mem::replace(&mut self.configuration, new);
        self.reload_error = None;
        self.said.clear();
        for mut group in std::mem::take(&mut self.groups) {
            if group.joined.is_some() {
                self.groups.push(group);
                continue;
            }
            let old_entry = &group.entry;
            let named = self.configuration.groups.iter().find(|new| new.name == old_entry.name);
            let stays = |new: &&GroupEntry| new.settings.policy() != Policy::Off && new.selector == old_entry.selector;
            match named.filter(stays).cloned() {
                None => {
                    self.let_go(&group, "the configuration names it no more");
                    continue;
                }
                Some(new) if new != group.entry || old.names_no_group != self.configuration.names_no_group => {
                    self.runtime.reconfigure(group.id, &self.group_config(&group.name, &new));
                    (self.say)(&format!(
                        "gleaner: {}: profile {} from now on",
                        group.name,
                        word(&new.settings.profile())
                    ));
                    group.entry = new;
                }
                Some(_) => {}
            }
            self.groups.push(group);
        }
        self.recording.reload(self.configuration.capture.clone(), &mut self.runtime);
        if old.host != self.configuration.host {
            self.change_host();
        }
        self.serve_metrics_at_new_address(&old);
        let fixed = |of: &Configuration| (MachineSettings { groups_max: None, ..of.machine.clone() }, of.control_group);
        if fixed(&old) != fixed(&self.configuration) {
            let keys = "daemon.retain, daemon.observer, daemon.overhead and [control]";
            (self.say)(&format!("gleaner: {keys} count from the next start"));
        }
        self.look();
        (self.say)(&format!("gleaner: reloaded, managing {}", self.summary()));
    }

    fn group_config(&self, name: &str, entry: &GroupEntry) -> Config {
        Config {
            name: name.to_owned(),
            group: entry.settings.clone(),
            ..machine_config(&self.configuration, self.options.dry_run)
        }
    }

    fn summary(&self) -> String {
        let mut waits: Vec<String> = self.waiting.iter().take(WAITING_NAMED).map(ToString::to_string).collect();
        let more = self.waiting.len() - waits.len();
        waits.extend((more > 0).then(|| format!("and {more} more")));
        let waits = if waits.is_empty() { String::new() } else { format!("; waiting: {}", waits.join("; ")) };
        self.managed_in_words() + &waits
    }

    fn managed_in_words(&self) -> String {
        match self.groups.len() {
            0 if self.configuration.host.is_some() && self.configuration.groups.is_empty() => "VMs alone".to_owned(),
            0 => "nothing: nothing of what the configuration names runs".to_owned(),
            1 => "one group".to_owned(),
            n => format!("{n} groups"),
        }
    }

    fn say_once(&mut self, line: String) {
        if !self.said.contains(&line) && self.said.len() < 1000 {
            (self.say)(&line);
            self.said.insert(line);
        }
    }

    /// Without a group there is no window to wait for.
    fn next_tick(&self) -> Duration {
        let look = self.next_look.saturating_duration_since(Instant::now());
        if self.groups.is_empty() { look } else { self.runtime.window_length().into() }
    }

    /// Ends the window here: what came before is counted as it was.
    fn cut_window(&mut self) {
        self.runtime.tick(Nanos::ZERO);
        self.is_cut = true;
    }

    /// What is due, whatever happens and however often: a look, right after a window, and a word to the watchdog.
    fn attend(&mut self) {
        if Instant::now() >= self.next_look {
            if !self.is_cut {
                self.cut_window();
            }
            self.look();
        }
        self.supervisor.alive();
    }

    /// Starts the agent where there is to be one, and starts it again when it ended.
    fn look_after_host(&mut self) {
        let Some(settings) = &self.configuration.host else { return };
        let host = self.host.get_or_insert_with(|| HostAgent::new(settings.clone(), self.options.dry_run, &self.say));
        // It may use all CPUs.
        self.runtime.unpinned(|| host.look());
    }

    fn change_host(&mut self) {
        match (&self.configuration.host, self.host.take()) {
            (Some(settings), Some(mut host)) => {
                host.change_to(settings.clone());
                self.host = Some(host);
            }
            // It says itself what is not given back.
            (None, Some(host)) => drop(host.end()),
            _ => {}
        }
    }

    /// The guardian and the host agent are the only children of this process.
    fn reap(&mut self) {
        let mut status = 0;
        loop {
            // SAFETY: the status outlives the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            if let Some(host) = &mut self.host {
                // It may start another, which may use all CPUs.
                self.runtime.unpinned(|| host.child_ended(pid, status));
            }
            self.runtime.child_ended(pid);
        }
    }
}

impl Task for Service {
    type Event = Received<Event>;
    type Outcome = ();

    fn wait_until(&mut self, due: Instant) -> Option<Self::Event> {
        event_loop::receive_until(&self.events, due)
    }

    fn tick(&mut self, late: Nanos) -> ControlFlow<(), Duration> {
        if late > STOPPED {
            self.runtime.skip();
        } else {
            self.runtime.tick(late);
        }
        self.is_cut = true;
        self.attend();
        self.is_cut = false;
        ControlFlow::Continue(self.next_tick())
    }

    fn event(&mut self, event: Self::Event) -> ControlFlow<(), Option<Duration>> {
        match event {
            Received::Event(Event::Reload) => {
                // Groups are adopted right after a window.
                self.cut_window();
                self.reload();
            }
            Received::Event(Event::Asked(request, peer, answer)) => {
                // Whoever asked may have gone.
                let _ = answer.send(self.answer(request, &peer));
            }
            Received::Event(Event::Child) => self.reap(),
            Received::Event(Event::Burst) => self.runtime.burst(),
            Received::Event(Event::Stop) | Received::Closed => return ControlFlow::Break(()),
        }
        self.attend();
        // Only what ended a window puts the next one off.
        ControlFlow::Continue(std::mem::take(&mut self.is_cut).then(|| self.next_tick()))
    }
}

/// What scrapers count a process' age from.
#[allow(clippy::disallowed_methods, reason = "a date, and no duration is taken from it")]
fn since_1970() -> Nanos {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().into()
}

/// Decisions are the log's: the journal of a service would be full of them.
fn listener(say: &Say) -> Listener {
    let say = Arc::clone(say);
    Arc::new(move |event| {
        if !matches!(event, gleaner_runtime::Event::Decided { .. }) {
            say(&format!("gleaner: {event}"));
        }
    })
}
