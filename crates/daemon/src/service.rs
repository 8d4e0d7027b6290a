//! The loop: windows, a look at what runs once a second, signals; until it is told to end.

use crate::config::{ConfigError, Configuration, GroupSettings};
use crate::control::Control;
use crate::groups::{Adopted, Candidate, look};
use crate::lock::{Lock, LockError};
use crate::metrics::{Metrics, MetricsAddress};
use crate::privileges;
use crate::protocol::{Answer, Request, socket_in};
use crate::recording::Recording;
use crate::signals::Listening;
use crate::status::{self, Facts};
use crate::supervisor::Supervisor;
use crate::verify::verify;
use gleaner_act::{PlacementRequest, default_state_dir};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Nanos, Policy, Profile, WakeupCosts, printable};
use gleaner_observe::{ObserverChoice, ProcRoot, hypervisor, vcpus_of};
use gleaner_runtime::event_loop::{self, Received, Task};
use gleaner_runtime::{Config, GroupId, Listener, RetainChoice, Runtime, SetupError};
use gleaner_sys::{thread_cpu_time, usable_cpus};
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How often the daemon looks for groups that came and went.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What looking may cost, as a part of one CPU: 1/200.
const LOOK_RARITY: u32 = 200;
/// ... but not for longer: without a group it is what the watchdog hears.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// A window and a reload take less.
const LONGEST_ANSWER: Duration = Duration::from_secs(4);
/// A window this late tells of a machine, or a daemon, that was stopped; nothing is to be learnt from it.
const STOPPED: Nanos = Nanos::from_secs(1);

/// Who is told, line by line.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instead of the machine's files.
    pub file: Option<PathBuf>,
    /// Nothing is changed.
    pub dry_run: bool,
    /// Where the lock is, and what else others find it by.
    pub state_dir: PathBuf,
    /// What a wake-up costs here by yielding threads, where it was measured.
    pub costs: Option<WakeupCosts>,
}

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is one already, or no lock is to be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Nothing can be observed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Signals or a thread.
    #[error("cannot begin: {0}")]
    Begin(#[from] io::Error),
    /// The address for metrics is not to be had.
    #[error("cannot serve metrics at {address}: {source}")]
    Metrics {
        /// It.
        address: MetricsAddress,
        /// What the kernel said.
        source: io::Error,
    },
    /// It did not end as it should.
    #[error("the service failed, which is a bug; what it changed is undone")]
    Panicked,
    /// Not everything could be undone.
    #[error("not everything could be undone: run `gleaner restore`")]
    NotUndone,
}

/// What happens between two windows.
#[derive(Debug)]
pub(crate) enum Event {
    Stop,
    Reload,
    Child,
    /// Somebody asks over the socket, and waits there.
    Asked(Request, Sender<Answer>),
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
        Control::start(socket_in(&options.state_dir), configuration.control_group, by_way_of(sender.clone()))?;
    let _metrics = metrics(&configuration, sender)?;
    // The runtime keeps its thread to one vCPU; the first thread's mask still tells what the process may use.
    let work = move || serve(options, configuration, events, say);
    let thread = std::thread::Builder::new().name("gleaner-daemon".to_owned()).spawn(work)?;
    privileges::keep_none();
    thread.join().unwrap_or(Err(DaemonError::Panicked))
}

fn serve(options: Options, configuration: Configuration, events: Receiver<Event>, say: Say) -> Result<(), DaemonError> {
    keep_what_is_needed(&options, &configuration, &say);
    let mut service = Service::new(options, configuration, events, say)?;
    service.look();
    Supervisor::ready();
    (service.say)(&format!("gleaner: managing {}", service.summary()));
    let first = service.next_tick();
    event_loop::run(&mut service, first);
    Supervisor::stopping();
    let (_, restored) = service.runtime.end();
    service.recording.tidy();
    if restored { Ok(()) } else { Err(DaemonError::NotUndone) }
}

/// Of root's capabilities. A reload may name a group where there was none.
fn keep_what_is_needed(options: &Options, configuration: &Configuration, say: &Say) {
    let acts = !options.dry_run && configuration.retain != RetainChoice::None;
    match privileges::keep_only(privileges::needed(configuration.observer, acts)) {
        Ok((_, 0)) => {}
        Ok((kept, given_up)) => {
            say(&format!("gleaner: capabilities kept: {}; {given_up} given up", privileges::names(kept)));
        }
        Err(error) => say(&format!("gleaner: all capabilities are kept: {error}")),
    }
}

fn metrics(configuration: &Configuration, service: Sender<Event>) -> Result<Option<Metrics>, DaemonError> {
    let Some(address) = &configuration.metrics else { return Ok(None) };
    let started = Metrics::start(address, configuration.control_group, by_way_of(service));
    started.map(Some).map_err(|source| DaemonError::Metrics { address: address.clone(), source })
}

/// Hands a request to the service, and waits for what it answers.
fn by_way_of(service: Sender<Event>) -> impl FnMut(Request) -> Answer {
    move |request| {
        let (answer, answered) = channel();
        let asked = service.send(Event::Asked(request, answer)).is_ok();
        let answer = answered.recv_timeout(LONGEST_ANSWER).ok().filter(|_| asked);
        answer.unwrap_or_else(|| Answer::Error("the daemon is busy, or about to end".to_owned()))
    }
}

struct Service {
    options: Options,
    began: Instant,
    configuration: Configuration,
    runtime: Runtime,
    recording: Recording,
    groups: Vec<Adopted>,
    events: Receiver<Event>,
    say: Say,
    supervisor: Supervisor,
    next_look: Instant,
    /// Said once.
    said: BTreeSet<String>,
    /// What is wrong with the configuration that was to be reloaded last.
    reload_error: Option<ConfigError>,
    hypervisor: Option<String>,
}

impl Service {
    fn new(
        options: Options,
        configuration: Configuration,
        events: Receiver<Event>,
        say: Say,
    ) -> Result<Self, DaemonError> {
        let config = machine_config(&configuration, options.dry_run);
        let mut runtime = Runtime::open(&config, usable_cpus(&ProcRoot::default()), listener(&say))?;
        let recording = Recording::start(configuration.capture.clone(), &options.state_dir, &mut runtime);
        Ok(Self {
            options,
            began: Instant::now(),
            configuration,
            runtime,
            recording,
            groups: Vec::new(),
            events,
            say,
            supervisor: Supervisor::new(),
            next_look: Instant::now(),
            said: BTreeSet::new(),
            reload_error: None,
            hypervisor: hypervisor(&ProcRoot::default()).map(|found| found.name),
        })
    }

    /// Lets go what has ended, follows what goes on, adopts what has come.
    fn look(&mut self) {
        let (began, before) = (Instant::now(), thread_cpu_time());
        let root = ProcRoot::default();
        for mut group in std::mem::take(&mut self.groups) {
            let roots = group.target.roots(&root);
            if roots.is_empty() {
                self.let_go(&group, "it has ended");
                continue;
            }
            for pid in roots.iter().filter(|pid| !group.roots.contains(pid)) {
                self.runtime.group_joined(group.id, *pid);
            }
            group.roots = roots;
            self.groups.push(group);
        }
        let found = look(&root, &self.configuration, &self.groups);
        found.new.into_iter().for_each(|candidate| self.adopt(candidate));
        for (name, owner) in found.taken {
            self.say_once(format!("gleaner: {name}: some of it is managed as {owner} already; it is left alone"));
        }
        if found.too_many {
            self.say_once("gleaner: more groups than daemon.groups_max; the rest is left alone".to_owned());
        }
        self.recording.look(&mut self.runtime);
        let cost: Duration = (thread_cpu_time() - before).into();
        self.next_look = began + LOOK_EVERY.max(cost * LOOK_RARITY).min(LOOK_AT_LEAST_EVERY);
        let summary = self.summary();
        self.supervisor.status(format!("managing {summary}"));
    }

    fn adopt(&mut self, candidate: Candidate) {
        let Candidate { name, settings, target, roots } = candidate;
        let config = self.group_config(&name, &settings);
        let members = Adopted::members(&target);
        let Some(id) = self.runtime.adopt(&config, &vcpus_of(&roots), members, &roots) else {
            return self.say_once(format!("gleaner: {name}: the observer has no room for it; it is left alone"));
        };
        let how = if config.dry_run { ", which is only watched" } else { "" };
        (self.say)(&format!("gleaner: {name}: {target} is managed, profile {}{how}", settings.profile.name()));
        self.groups.push(Adopted { id, name, settings, target, roots });
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
                (self.say)(&format!("gleaner: the configuration stays as it was: {error}"));
                self.reload_error = Some(error);
            }
        }
        Supervisor::ready();
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status => {
                let facts = Facts {
                    up: self.began.elapsed().into(),
                    dry_run: self.is_dry(),
                    files: self.configuration.files.iter().map(|file| file.display().to_string()).collect(),
                    reload_error: self.reload_error.as_ref().map(ToString::to_string),
                    hypervisor: self.hypervisor.clone(),
                };
                Answer::Status(Box::new(status::report(&self.runtime.snapshot(), &self.groups, facts)))
            }
            Request::Verify => Answer::Verify(verify(&self.runtime.set_values(), &default_state_dir())),
            Request::Reload => {
                self.runtime.tick(Nanos::ZERO);
                self.reload();
                match &self.reload_error {
                    Some(error) => Answer::Error(format!("the configuration stays as it was: {error}")),
                    None => Answer::Reloaded(self.groups.len() as u64),
                }
            }
            Request::Capture { for_ns } => {
                // What came before belongs to it, or does not.
                self.runtime.tick(Nanos::ZERO);
                match self.recording.files(for_ns.map(Duration::from_nanos), &mut self.runtime) {
                    Ok(files) => Answer::Capture(files),
                    Err(why) => Answer::Error(why),
                }
            }
            Request::Hold { group } => self.hold(&group, true),
            Request::Release { group } => self.hold(&group, false),
        }
    }

    /// Leaves groups alone, or no more.
    fn hold(&mut self, name: &str, held: bool) -> Answer {
        // What came before is counted as it was.
        self.runtime.tick(Nanos::ZERO);
        let meant = self.groups.iter().filter(|group| group.is_called(name));
        let meant: Vec<(GroupId, String)> = meant.map(|group| (group.id, group.name.clone())).collect();
        for (id, name) in &meant {
            self.runtime.hold(*id, held);
            let how = if held { "is left alone until it is released" } else { "is managed again" };
            (self.say)(&format!("gleaner: {name}: {how}"));
        }
        if meant.is_empty() {
            return Answer::Error(format!("no group is called {}: see gleaner status", printable(name.as_bytes())));
        }
        Answer::Done(meant.into_iter().map(|(_, name)| name).collect())
    }

    fn is_dry(&self) -> bool {
        machine_config(&self.configuration, self.options.dry_run).dry_run
    }

    fn change_to(&mut self, new: Configuration) {
        let old = std::mem::replace(&mut self.configuration, new);
        self.reload_error = None;
        self.said.clear();
        for mut group in std::mem::take(&mut self.groups) {
            let settings = self.configuration.groups.iter().find(|settings| settings.name == group.settings.name);
            match settings.filter(|new| new.policy != Policy::Off && new.selector == group.settings.selector).cloned() {
                None => {
                    self.let_go(&group, "the configuration names it no more");
                    continue;
                }
                Some(new) if new != group.settings || old.names_no_group != self.configuration.names_no_group => {
                    self.runtime.reconfigure(group.id, &self.group_config(&group.name, &new));
                    (self.say)(&format!("gleaner: {}: profile {} from now on", group.name, new.profile.name()));
                    group.settings = new;
                }
                Some(_) => {}
            }
            self.groups.push(group);
        }
        self.recording.reload(self.configuration.capture.clone(), &mut self.runtime);
        let fixed =
            |of: &Configuration| (of.retain, of.observer, of.overhead_ratio, of.control_group, of.metrics.clone());
        if fixed(&old) != fixed(&self.configuration) {
            let keys = "daemon.retain, daemon.observer, daemon.overhead, [control] and [metrics]";
            (self.say)(&format!("gleaner: {keys} count from the next start"));
        }
        self.look();
        (self.say)(&format!("gleaner: reloaded, managing {}", self.summary()));
    }

    fn group_config(&self, name: &str, settings: &GroupSettings) -> Config {
        let (_, profile) = settings.profile.means();
        Config {
            name: name.to_owned(),
            policy: settings.policy,
            profile,
            timeout: settings.retain_for,
            budget: settings.budget,
            progress: settings.progress.clone(),
            costs: self.options.costs,
            params: settings.params.clone(),
            ..machine_config(&self.configuration, self.options.dry_run)
        }
    }

    fn summary(&self) -> String {
        match self.groups.len() {
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

    /// The guardian is the only child of this process.
    fn reap(&mut self) {
        let mut status = 0;
        loop {
            // SAFETY: the status outlives the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                return;
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
        if Instant::now() >= self.next_look {
            self.look();
        }
        self.supervisor.alive();
        ControlFlow::Continue(self.next_tick())
    }

    fn event(&mut self, event: Self::Event) -> ControlFlow<(), Option<Duration>> {
        match event {
            Received::Event(Event::Reload) => {
                // Groups are adopted right after a window.
                self.runtime.tick(Nanos::ZERO);
                self.reload();
                ControlFlow::Continue(Some(self.next_tick()))
            }
            Received::Event(Event::Asked(request, answer)) => {
                // An order begins a new window.
                let is_an_order = request.is_an_order();
                // Whoever asked may have gone.
                let _ = answer.send(self.answer(request));
                ControlFlow::Continue(is_an_order.then(|| self.next_tick()))
            }
            Received::Event(Event::Child) => {
                self.reap();
                ControlFlow::Continue(None)
            }
            Received::Event(Event::Stop) | Received::Closed => ControlFlow::Break(()),
        }
    }
}

/// What concerns the whole machine.
fn machine_config(configuration: &Configuration, dry_run: bool) -> Config {
    let acts = configuration.groups.iter().any(|group| group.policy.retains());
    let dry_run = dry_run || configuration.names_no_group || configuration.retain == RetainChoice::None;
    Config {
        name: String::new(),
        policy: if acts { Policy::Retain } else { Policy::Observe },
        profile: Profile::Balanced,
        retain: configuration.retain,
        timeout: None,
        budget: None,
        progress: None,
        costs: None,
        refused: Vec::new(),
        params: GuestParams::default(),
        // Whoever only watches needs nothing that costs a switch.
        observer: match configuration.observer {
            ObserverChoice::Auto if !acts || dry_run => ObserverChoice::Procfs,
            choice => choice,
        },
        groups_max: configuration.groups_max,
        placement: PlacementRequest::Auto,
        overhead_ratio: configuration.overhead_ratio,
        strict: false,
        dry_run,
    }
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
