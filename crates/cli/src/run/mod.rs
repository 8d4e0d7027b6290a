//! `gleaner run`: a program under Gleaner.

pub mod child;
mod manager;
mod options;
pub mod retain;
mod setup;
pub mod signals;
mod totals;
mod unmanaged;

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::output::{Output, say};
use child::{Launch, shell_status};
use gleaner_act::{CgroupHierarchies, CgroupRoots};
use gleaner_model::{CpuSet, Nanos, Policy};
use gleaner_observe::{ProcRoot, StatReader};
use gleaner_report::{Means, ObservedLengths, RunReport};
use gleaner_runtime::run_id;
use gleaner_sys::{usable_cpus, why_refused};
use manager::{Manager, Prepared};
use options::Options;
pub use signals::is_ignored;
use signals::{Event, Inherited, Listener, Listening, Relay};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use unmanaged::{limit_in_the_way, make_way};

/// The vCPUs that are online and that this process may use; never none.
pub fn allowed_vcpus() -> CpuSet {
    usable_cpus(&ProcRoot::default())
}

pub fn main(args: RunArgs) -> Result<u8, Failure> {
    let inherited = Inherited::now();
    signals::Inherited::lift_limits();
    let mut output = Output::open(args.json.json.as_deref())?;
    let options = Options::from_args(args)?;
    let report = beside_the_first_thread(&options, &inherited)?;
    // The summary first: if the JSON cannot be written, the result is not lost.
    if !options.quiet {
        say(&report);
    }
    output.json(&report).map_err(|failure| Failure { status: 125, ..failure })?;
    // A status is a byte.
    Ok(u8::try_from(report.exit_status & 0xff).unwrap_or(125))
}

/// Runs in a thread of its own, which may keep to one vCPU (`gleaner_act::Seat`). The first thread listens to signals, and its mask
/// still tells what the process may use.
fn beside_the_first_thread(options: &Options, inherited: &Inherited) -> Result<RunReport, Failure> {
    if let Some(why) = unmanaged::too_little_memory() {
        return Err(instead(options, inherited, &why));
    }
    let (sender, listeners) = channel::<Listener>();
    let program = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let work = || run(options, inherited, &program, sender);
        let thread = std::thread::Builder::new().name("gleaner-run".into()).spawn_scoped(scope, work);
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => return Err(instead(options, inherited, &format!("no thread: {}", why_refused(&error)))),
        };
        // None comes from a run that failed before.
        if let Ok(listener) = listeners.recv() {
            listener.listen();
        }
        thread.join().unwrap_or_else(|_| Err(without_gleaner(options, inherited, program.load(Ordering::Relaxed))))
    })
}

/// The thread that managed the program panicked, and has undone what it did on its way out: the program is not to suffer from it.
/// `program`: 0 where it does not run yet.
fn without_gleaner(options: &Options, inherited: &Inherited, program: i32) -> Failure {
    let why = "Gleaner failed, which is a bug; please report what it said above";
    if program == 0 {
        return instead(options, inherited, why);
    }
    let mut status = 0;
    // SAFETY: the status outlives the call. Nobody else waits for the program any more.
    while unsafe { libc::waitpid(program, &raw mut status, 0) } < 0 {
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return Failure::run(why);
        }
    }
    let status = shell_status(ExitStatus::from_raw(status));
    Failure {
        status: u8::try_from(status & 0xff).unwrap_or(125),
        message: format!("the program ended unmanaged: {why}"),
    }
}

/// Gleaner makes way for the program, unless it has to be managed. Comes back only where the program cannot be executed.
fn instead(options: &Options, inherited: &Inherited, why: &str) -> Failure {
    if options.strict {
        return Failure::run(format!("--strict: {why}"));
    }
    let error = make_way(&options.command, inherited.clone(), why);
    Failure { status: error.status, message: error.message }
}

fn run(
    options: &Options,
    inherited: &Inherited,
    program: &AtomicI32,
    listeners: Sender<Listener>,
) -> Result<RunReport, Failure> {
    let vcpus = allowed_vcpus();
    let own_cgroup = CgroupHierarchies::find(&CgroupRoots::default()).own_unified();
    let (mut manager, mut unmanaged) = (None, None);
    if options.policy != Policy::Off {
        // Orphans of the program come to us, so that they stay observable; and are reaped below.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        match prepare(options, inherited, &vcpus)? {
            Prepared::Managed(prepared) => manager = Some(*prepared),
            Prepared::Unmanaged(why) => unmanaged = Some(why),
        }
    }
    let mut started = start(options, inherited, manager.as_mut(), own_cgroup.as_deref(), &listeners);
    if let (Err(NotStarted::Ours(why)), true) = (&started, manager.is_some()) {
        // What is in the way may be Gleaner's own doing: a cgroup, descriptors.
        unmanaged = Some(why.clone());
        manager.take().map(Manager::finish);
        if let Some(own) = &own_cgroup {
            // Where the yielding threads' cgroup took this process out of it.
            let _ = std::fs::write(own.join("cgroup.procs"), "0");
        }
        if !options.strict {
            started = start(options, inherited, None, None, &listeners);
        }
    }
    let mut started = match started {
        Ok(started) => started,
        Err(failed) => {
            manager.map(Manager::finish);
            return Err(match failed {
                NotStarted::Command(failure) => failure,
                NotStarted::Ours(why) => instead(options, inherited, &why),
            });
        }
    };
    // Nobody waits for another one.
    drop(listeners);
    program.store(i32::try_from(started.child.id()).unwrap_or(0), Ordering::Relaxed);
    let (status, ended) = accompany(&mut started.child, &started.events, manager.as_mut())?;
    let wall = Nanos::from(ended.saturating_duration_since(started.began));
    let mut report = conclude(options, manager, &vcpus, wall, shell_status(status));
    report.warnings.extend(unmanaged.map(|why| {
        let line = format!("the program ran unmanaged: {why}");
        if options.quiet {
            say(&format!("gleaner: {line}"));
        }
        line
    }));
    Ok(report)
}

/// Everything that is to run beside the program; or why it is left alone, which only `--strict` takes for a failure.
fn prepare(options: &Options, inherited: &Inherited, vcpus: &CpuSet) -> Result<Prepared, Failure> {
    let prepared = match limit_in_the_way(inherited, vcpus) {
        Some(why) => Prepared::Unmanaged(why),
        None => Manager::prepare(options, vcpus.clone())?,
    };
    match prepared {
        Prepared::Unmanaged(why) if options.strict => Err(Failure::run(format!("--strict: {why}"))),
        prepared => Ok(prepared),
    }
}

/// The program, running.
struct Started {
    child: Child,
    began: Instant,
    events: Receiver<Event>,
    _listening: Listening,
}

/// Why it is not.
enum NotStarted {
    /// There is no such command, or it cannot be executed.
    Command(Failure),
    /// Something that Gleaner needs to start it.
    Ours(String),
}

fn start(
    options: &Options,
    inherited: &Inherited,
    mut manager: Option<&mut Manager>,
    own_cgroup: Option<&Path>,
    listeners: &Sender<Listener>,
) -> Result<Started, NotStarted> {
    let mut launch = Launch::new(&options.command, inherited.clone());
    if let Some(manager) = &manager {
        launch.mark(&run_id());
        let own = || own_cgroup.map(|own| own.join("cgroup.procs")).filter(|file| writable(file));
        if let Some(file) = manager.join_file().or_else(own) {
            let cannot = |error| NotStarted::Ours(format!("cannot open {}: {error}", file.display()));
            launch.join(&file).map_err(cannot)?;
        }
    }
    let (sender, events) = channel();
    let (listener, listening) =
        Listener::new(sender, inherited).map_err(|failure| NotStarted::Ours(failure.message))?;
    if let Some(manager) = &mut manager {
        manager.about_to_start();
    }
    let (child, began) = launch.spawn().map_err(|error| {
        if error.of_command {
            NotStarted::Command(Failure { status: error.status, message: error.message })
        } else {
            NotStarted::Ours(error.message)
        }
    })?;
    // Whoever listens finds what came meanwhile.
    let _ = listeners.send(listener);
    if let Some(manager) = manager {
        manager.started(i32::try_from(child.id()).unwrap_or(0));
    }
    Ok(Started { child, began, events, _listening: listening })
}

fn writable(path: &Path) -> bool {
    std::fs::OpenOptions::new().write(true).open(path).is_ok()
}

/// Until the program ends: signals, children, windows. And when that was: the last window's turn is not the program's time.
fn accompany(
    child: &mut Child,
    events: &Receiver<Event>,
    mut manager: Option<&mut Manager>,
) -> Result<(ExitStatus, Instant), Failure> {
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let mut relay = Relay::to(pid);
    let mut due = Instant::now() + next_window(manager.as_deref());
    // Whoever died before signals were listened to: their SIGCHLD is gone.
    reap_others(pid, manager.as_deref_mut());
    loop {
        // Looked at on every turn: a storm of signals must not starve the windows.
        let late = Instant::now().checked_duration_since(due);
        if let Some(late) = late {
            if let Some(manager) = manager.as_deref_mut() {
                manager.turn(late.into());
            }
            due = Instant::now() + next_window(manager.as_deref());
        }
        match events.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Event::Child) => {
                if let Some(status) = child.try_wait().map_err(Failure::run)? {
                    let ended = Instant::now();
                    if let Some(manager) = manager.as_deref_mut() {
                        manager.turn(Nanos::ZERO);
                    }
                    return Ok((status, ended));
                }
                reap_others(pid, manager.as_deref_mut());
            }
            Ok(Event::Signal { signal, by_terminal }) => {
                relay.pass_on(signal, by_terminal);
                let was_stopped = matches!(signal, libc::SIGTSTP | libc::SIGCONT);
                if let Some(manager) = manager.as_deref_mut().filter(|_| was_stopped) {
                    manager.skip();
                    due = Instant::now() + next_window(Some(manager));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().map_err(Failure::run)?;
                return Ok((status, Instant::now()));
            }
        }
    }
}

/// How long until the next window; without a manager there is none to wait for.
fn next_window(manager: Option<&Manager>) -> Duration {
    manager.map_or(Duration::from_secs(3600), |manager| manager.window_length().into())
}

/// Reaps orphans that came to us, and notices a guardian that died.
fn reap_others(program: i32, mut manager: Option<&mut Manager>) {
    loop {
        // SAFETY: siginfo is plain data, filled by the call; WNOWAIT leaves the child to whoever waits for it.
        let pid = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            if libc::waitid(libc::P_ALL, 0, &raw mut info, flags) != 0 {
                return;
            }
            info.si_pid()
        };
        // None, or the program itself, whose end the caller will see.
        if pid == 0 || pid == program {
            return;
        }
        // SAFETY: the status is not wanted.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        if let Some(manager) = manager.as_deref_mut() {
            manager.look_after_guardian(pid);
        }
    }
}

fn conclude(options: &Options, manager: Option<Manager>, vcpus: &CpuSet, wall: Nanos, exit_status: i32) -> RunReport {
    let mut report = RunReport {
        schema: RunReport::SCHEMA.to_owned(),
        command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        policy: format!("{:?}", options.policy).to_lowercase(),
        profile: options
            .timeout
            .map_or_else(|| format!("{:?}", options.profile).to_lowercase(), |_| "custom".to_owned()),
        wall_ns: wall.0,
        exit_status,
        idle_entries: None,
        halts: None,
        retained_ns: 0,
        steal_ns: None,
        cpu_time_ns: None,
        voluntary_switches: None,
        involuntary_switches: None,
        cross_wakeups: None,
        threads_max: None,
        vcpus: vcpus.len() as u64,
        active_vcpus_mean: vcpus.len() as f64,
        lengths: ObservedLengths::default(),
        timeout_ns: None,
        timeout_from: None,
        guard_trips: 0,
        means: Means { observer: None, placement: None, retention: None, yielding: None },
        windows: 0,
        window_ns_mean: None,
        overhead_cpu_ns: 0,
        decisions: Vec::new(),
        decisions_left_out: 0,
        no_step_because: None,
        retention_cost_ratio: None,
        contended_cost_ratio: None,
        warnings: Vec::new(),
        restored: true,
    };
    if let Some(manager) = manager {
        fill(&mut report, options, manager);
    }
    report
}

/// Whether this machine has seen any steal since boot. Zero for ever means that the hypervisor does not tell.
fn steal_is_reported() -> bool {
    let stat = StatReader::open(&ProcRoot::default()).and_then(|mut reader| reader.read());
    stat.is_ok_and(|stat| stat.steal() > Nanos::ZERO)
}

fn fill(report: &mut RunReport, options: &Options, mut manager: Manager) {
    report.overhead_cpu_ns = manager.overhead().0;
    let (retained, guard_trips) = manager.spent();
    report.retained_ns = retained.0;
    report.guard_trips = guard_trips;
    report.timeout_ns = manager.timeout().map(|timeout| timeout.0);
    report.timeout_from = manager.timeout_from.take();
    report.no_step_because = options.policy.consolidates().then(|| manager.no_step_because()).flatten();
    report.retention_cost_ratio = manager.retention_cost_ratio();
    report.means = manager.means();
    let totals = std::mem::take(&mut manager.totals);
    report.steal_ns = steal_is_reported().then_some(totals.steal.0);
    report.cpu_time_ns = Some(totals.cpu_time.0);
    report.voluntary_switches = Some(totals.voluntary_switches);
    report.involuntary_switches = Some(totals.involuntary_switches);
    report.cross_wakeups = totals.cross_wakeups();
    report.idle_entries = totals.idle_entries();
    report.halts = totals.halts();
    report.threads_max = Some(totals.threads_max);
    report.active_vcpus_mean = totals.active_mean(usize::try_from(report.vcpus).unwrap_or(0));
    report.lengths = totals.lengths();
    report.windows = totals.windows;
    report.window_ns_mean = totals.observed.0.checked_div(totals.windows);
    report.decisions = totals.decisions;
    report.decisions_left_out = totals.decisions_left_out;
    manager.warn_of_untracked();
    report.warnings = std::mem::take(&mut manager.warnings);
    report.restored = manager.finish();
}
