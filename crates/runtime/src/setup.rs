//! Setting up: journal, guardian, placement, observer, means of retention, as far as the policy needs them and the
//! machine allows.

use crate::coexistence::beside_others;
use crate::config::Config;
use crate::event::{Listener, Warning};
use crate::events::Events;
use crate::group::Group;
use crate::machine::Machine;
use crate::observing::Observing;
use crate::retain::{Opened as Means, Opening, Search};
use crate::retention::Retention;
use crate::steering::Steering;
use crate::{Runtime, Session};
use gleaner_act::{ActError, Haltpoll, Journal, Placement, PmQos};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{CpuSet, RetainMeans, VcpuId};
use gleaner_observe::{BpfRefusal, ObserveError};
use gleaner_settings::{ObserverChoice, RetainChoice};
use gleaner_sys::{ProcRoot, thread_cpu_time};

/// Characters of a reason that are told; the whole of it (a verifier's log) is in GLEANER_LOG=info.
const LONGEST_REASON: usize = 300;

/// Why nothing is managed.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A program runs as well without.
    #[error("nothing can be observed: {0}")]
    NothingObserved(ObserveError),
    /// The observer that was asked for by name.
    #[error(transparent)]
    Observer(ObserveError),
    /// Strictly: nothing could be undone.
    #[error(transparent)]
    NoJournal(ActError),
    /// Nobody wants it any more, and nothing was changed.
    #[error("the program has ended")]
    Over,
    /// Strictly: something would be weaker than it might be.
    #[error("{}", joined(.0))]
    Weaker(Vec<Warning>),
}

fn joined(warnings: &[Warning]) -> String {
    warnings.iter().map(ToString::to_string).collect::<Vec<String>>().join("; ")
}

/// See [`Runtime::prepare`].
pub(crate) fn set_up(
    config: &Config,
    vcpus: CpuSet,
    listener: Listener,
    go_on: impl FnOnce() -> bool,
) -> Result<Runtime, SetupError> {
    let overhead_zero = thread_cpu_time();
    let mut events = Events::new(listener);
    let config = &*beside_others(config, &mut events);
    // Loading BPF takes longest and changes nothing: whose program has ended by then need not wait for the rest.
    let opened = observes_first(config).then(|| observe(config, false, None, &vcpus));
    if !go_on() {
        return Err(SetupError::Over);
    }
    let mut session = session(config, &mut events)?;
    let equipment = equipment(config, &vcpus, opened, session.as_mut(), &mut events)?;
    let (observing, retention, refusal) = equipment;
    let means = retention.as_ref().map(Retention::means);
    let may_confine = session.is_some() && config.group.policy().consolidates() && vcpus.len() > 1;
    let placement = may_confine.then(|| Placement::new(&vcpus));
    nothing_weaker(config, refusal.as_ref(), &mut events)?;
    let group = Group::new(config, &vcpus, means, placement);
    let steering = config.group.policy().consolidates().then(|| Steering::new(&vcpus));
    let machine = Machine::new(config, vcpus, observing, retention, session, overhead_zero).steering(steering);
    Ok(Runtime::new(machine, vec![group], events))
}

/// See [`Runtime::open`].
pub(crate) fn open(config: &Config, vcpus: CpuSet, listener: Listener) -> Result<Runtime, SetupError> {
    let overhead_zero = thread_cpu_time();
    let mut events = Events::new(listener);
    let config = &*beside_others(config, &mut events);
    let mut session = session(config, &mut events)?;
    let equipment = equipment(config, &vcpus, None, session.as_mut(), &mut events)?;
    let (mut observing, retention, refusal) = equipment;
    nothing_weaker(config, refusal.as_ref(), &mut events)?;
    // That of a program that is to be started.
    observing.remove_group(0);
    // Whoever acts has kept what that takes.
    let by_choice = config.observer == ObserverChoice::Auto && refusal.is_none() && config.acts();
    let mut machine = Machine::new(config, vcpus, observing, retention, session, overhead_zero);
    if by_choice {
        machine.may_take_bpf();
    }
    Ok(Runtime::new(machine, Vec::new(), events))
}

/// What it takes to change something, for a machine that was set up without.
pub(crate) fn equip(config: &Config, machine: &mut Machine, events: &mut Events) {
    let params = config.group.params();
    machine.equip(|observing, vcpus| {
        let mut session = session(config, events).ok().flatten();
        let looking = MeansSearch::new((config, &params), vcpus, session.as_mut());
        let retention = looking.and_then(|mut looking| {
            let polling = looking.polling();
            looking.found(polling, observing, events)
        });
        (session, retention)
    });
    // Whoever may have to take something back watches before it is set.
    machine.beat(events);
}

/// By what vCPUs would be retained, as far as files tell: for a run that changes nothing.
pub(crate) fn likely_means(vcpus: &CpuSet) -> RetainMeans {
    let sys = ProcRoot::default().sys;
    let first = vcpus.iter().next().unwrap_or(VcpuId(0));
    match (Haltpoll::check(&sys), PmQos::check(&sys, first)) {
        (Ok(()), _) => RetainMeans::Haltpoll,
        (_, Ok(())) => RetainMeans::PmQos,
        _ => RetainMeans::Yielding,
    }
}

/// vCPUs on which BPF programs that observe are soon begun, and soon ended.
const FEW_VCPUS: usize = 4;

/// Whether it takes long to begin, and to end: a program in the idle loop is taken out of the kernel within tenths of a
/// second, whatever the machine, and those that observe cost something for each vCPU. Not where a means was asked for.
pub fn takes_long(config: &Config, vcpus: &CpuSet) -> bool {
    let sys = ProcRoot::default().sys;
    let may_load = rustix::process::geteuid().is_root() && sys.join("kernel/btf/vmlinux").exists();
    if config.retain.means().is_some() || !may_load {
        return false;
    }
    let auto = config.retain == RetainChoice::Auto && config.acts() && config.group.policy().retains();
    let is_refused = |wanted| config.refused.iter().any(|(means, _)| *means == wanted);
    if auto && !is_refused(RetainMeans::Haltpoll) && Haltpoll::check(&sys).is_ok() {
        return false;
    }
    let may_poll = auto && !is_refused(RetainMeans::IdlePoll);
    may_poll || config.observer == ObserverChoice::Auto && vcpus.len() > FEW_VCPUS
}

/// An observer, and why it is not BPF.
type Opened = Result<(Observing, Option<BpfRefusal>), ObserveError>;

/// Whether no means of retention that needs no observer is tried before one is chosen.
fn observes_first(config: &Config) -> bool {
    let retains = config.acts() && config.group.policy().retains() && config.retain != RetainChoice::None;
    !retains || !Search::new(config.retain, &config.refused).polls_next()
}

/// Observer and means of retention; why the observer is not BPF. `opened`: the observer that was opened first.
fn equipment(
    config: &Config,
    vcpus: &CpuSet,
    opened: Option<Opened>,
    session: Option<&mut Session>,
    events: &mut Events,
) -> Result<(Observing, Option<Retention>, Option<BpfRefusal>), SetupError> {
    let guardian = session.as_ref().and_then(|session| session.guardian_pid());
    let params = config.group.params();
    let mut looking = MeansSearch::new((config, &params), vcpus, session);
    let polling = looking.as_mut().and_then(MeansSearch::polling);
    let by_files = polling.is_some();
    let is_first = opened.is_some();
    let (mut observing, refusal) = match opened.unwrap_or_else(|| observe(config, by_files, guardian, vcpus)) {
        Ok(opened) => opened,
        Err(error) if config.observer == ObserverChoice::Bpf => return Err(SetupError::Observer(error)),
        Err(error) => return Err(SetupError::NothingObserved(error)),
    };
    guardian.filter(|_| is_first).into_iter().for_each(|pid| observing.guardian_is(pid));
    let retention = looking.and_then(|looking| looking.found(polling, &observing, events));
    Ok((observing, retention, refusal))
}

/// Strictly, what was warned of so far is an error.
fn nothing_weaker(config: &Config, refusal: Option<&BpfRefusal>, events: &mut Events) -> Result<(), SetupError> {
    if config.strict && !events.warnings().is_empty() {
        return Err(SetupError::Weaker(events.warnings().to_vec()));
    }
    events.warn_of(refusal.map(no_distributions));
    Ok(())
}

fn session(config: &Config, events: &mut Events) -> Result<Option<Session>, SetupError> {
    if !config.acts() {
        return Ok(None);
    }
    match Session::begin(events.listener().clone()) {
        Ok(session) => {
            events.warn_of(session.warning());
            Ok(Some(session))
        }
        Err(error) if config.strict => Err(SetupError::NoJournal(error)),
        Err(error) => {
            events.warn(Warning::OnlyObserved { why: error.to_string() });
            Ok(None)
        }
    }
}

/// For a group that runs already: it is confined by masks, because it is not moved to another cgroup.
pub(crate) fn masks_for(config: &Config, vcpus: &CpuSet, machine: &mut Machine) -> Option<Placement> {
    if !config.acts() || !config.group.policy().consolidates() || vcpus.len() < 2 {
        return None;
    }
    machine.may_act().then(|| Placement::new(vcpus))
}

/// `by_files`: `/proc` does, which costs no switch anything. So it is where idle vCPUs poll, and there is nothing to
/// consolidate on a host that has the CPUs, and the trial needs no wake-ups. Where `/proc` is not the machine's own,
/// BPF may still see.
fn observe(config: &Config, by_files: bool, guardian: Option<i32>, vcpus: &CpuSet) -> Opened {
    let open = |choice| Observing::open(choice, config.groups_max, guardian, vcpus);
    if by_files && config.observer == ObserverChoice::Auto {
        return open(ObserverChoice::Procfs).or_else(|_| open(ObserverChoice::Auto));
    }
    open(config.observer)
}

/// The search for a means of retention: before the observer is chosen, and after.
struct MeansSearch<'a> {
    search: Search,
    opening: Opening<'a>,
    journal: &'a mut Journal,
}

impl<'a> MeansSearch<'a> {
    /// `None` where nothing is to be retained.
    fn new(
        (config, params): (&'a Config, &'a GuestParams),
        vcpus: &'a CpuSet,
        session: Option<&'a mut Session>,
    ) -> Option<Self> {
        let session = session.filter(|_| config.group.policy().retains() && config.retain != RetainChoice::None)?;
        let opening = Opening { vcpus, params, observer: None };
        let search = Search::new(config.retain, &config.refused);
        Some(Self { search, opening, journal: &mut session.journal })
    }

    /// One that needs no observer, as long as it is its turn.
    fn polling(&mut self) -> Option<Means> {
        while self.search.polls_next() {
            let opened = self.search.next(&self.opening, self.journal);
            if opened.is_some() {
                return opened;
            }
        }
        None
    }

    /// `polling`, or what comes after it.
    fn found(self, polling: Option<Means>, observing: &Observing, events: &mut Events) -> Option<Retention> {
        let Self { mut search, opening, journal } = self;
        let opening = Opening { observer: Some(observing.observer()), ..opening };
        let mut found = polling;
        while found.is_none() && !search.is_over() {
            found = search.next(&opening, journal);
        }
        let retention = found.map(Retention::new);
        events.warn_of(search.warning(retention.as_ref().map(Retention::means)).map(Warning::Retention));
        events.warn_of(retention.iter().flat_map(Retention::fallbacks).cloned().map(Warning::Weaker));
        retention
    }
}

fn no_distributions(refusal: &BpfRefusal) -> Warning {
    tracing::info!("{refusal}");
    Warning::NoDistributions { why: refusal.to_string().chars().take(LONGEST_REASON).collect() }
}
