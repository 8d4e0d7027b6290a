//! `gleaner run`: a program under Gleaner.

pub mod child;
mod event_loop;
pub mod options;
pub mod signals;
pub mod summary;
mod unmanaged;

use crate::args::RunArgs;
use crate::calibrate::add_what_is_known;
use crate::capture::Recording;
use crate::failure::Failure;
use crate::joined::{self, Membership, Offer};
use crate::output::{Output, say};
use crate::session::listener;
use child::{Launch, shell_status};
use gleaner_act::{CgroupHierarchies, CgroupRoots};
use gleaner_model::{CpuSet, Nanos, Policy};
use gleaner_observe::{ProcRoot, Target};
use gleaner_report::RunReport;
use gleaner_runtime::{Runtime, SetupError, run_id};
use gleaner_sys::{usable_cpus, why_refused};
use options::Options;
pub use signals::is_ignored;
use signals::{Event, Inherited, Listener, Listening};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use unmanaged::limit_in_the_way;
pub use unmanaged::make_way;

/// The vCPUs that are online and that this process may use; never none.
pub fn allowed_vcpus() -> CpuSet {
    usable_cpus(&ProcRoot::default())
}

pub fn main(args: RunArgs) -> Result<u8, Failure> {
    let inherited = Inherited::now();
    signals::Inherited::lift_limits();
    let mut output = Output::open(args.json.json.as_deref())?;
    let recording = Mutex::new(args.recording.open()?);
    let options = Options::from_args(args)?;
    let report = beside_the_first_thread(&options, &recording, &inherited)?;
    // The summary first: if the JSON cannot be written, the result is not lost.
    if !options.quiet {
        say(&report);
    }
    output.json(&report).map_err(|failure| Failure { status: 125, ..failure })?;
    // A status is a byte.
    Ok(u8::try_from(report.exit_status & 0xff).unwrap_or(125))
}

/// Runs in a thread of its own, which may keep to one vCPU (`gleaner_act::HousekeepingCpu`). The first thread listens
/// to signals, and its mask still tells what the process may use.
fn beside_the_first_thread(
    options: &Options,
    recording: &Mutex<Option<Recording>>,
    inherited: &Inherited,
) -> Result<RunReport, Failure> {
    if let Some(why) = unmanaged::too_little_memory() {
        return Err(instead(options, inherited, &why));
    }
    let (sender, listeners) = channel::<Listener>();
    let program = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let work = || run(options, recording, inherited, &program, sender);
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

/// The thread that managed the program panicked, and has undone what it did on its way out: the program is not to
/// suffer from it. `program`: 0 where it does not run yet.
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

/// Gleaner makes way for the program, unless it has to be managed. Comes back only where the program cannot be
/// executed.
fn instead(options: &Options, inherited: &Inherited, why: &str) -> Failure {
    if options.config.strict {
        return Failure::run(format!("--strict: {why}"));
    }
    let error = make_way(&options.command, inherited.clone(), why);
    Failure { status: error.status, message: error.message }
}

fn run(
    options: &Options,
    recording: &Mutex<Option<Recording>>,
    inherited: &Inherited,
    program: &AtomicI32,
    listeners: Sender<Listener>,
) -> Result<RunReport, Failure> {
    let vcpus = allowed_vcpus();
    // What a wake-up costs is added, if it has to be known.
    let mut options = options.clone();
    let own_cgroup = CgroupHierarchies::find(&CgroupRoots::default()).own_unified();
    let manager = find_manager(&mut options, recording, inherited, &vcpus)?;
    let Manager { mut runtime, offer, mut unmanaged, mut notes } = manager;
    let options = &options;
    let mut started = start(options, inherited, runtime.as_mut(), own_cgroup.as_deref(), &listeners);
    if let (Err(NotStarted::Ours(why)), true) = (&started, runtime.is_some()) {
        // What is in the way may be Gleaner's own doing: a cgroup, descriptors.
        unmanaged = Some(why.clone());
        runtime.take().map(Runtime::end);
        if let Some(own) = &own_cgroup {
            // Where the yielding threads' cgroup took this process out of it.
            let _ = std::fs::write(own.join("cgroup.procs"), "0");
        }
        if !options.config.strict {
            started = start(options, inherited, None, None, &listeners);
        }
    }
    let mut started = match started {
        Ok(started) => started,
        Err(failed) => {
            runtime.map(Runtime::end);
            return Err(match failed {
                NotStarted::Command(failure) => failure,
                NotStarted::Ours(why) => instead(options, inherited, &why),
            });
        }
    };
    // Nobody waits for another one.
    drop(listeners);
    program.store(i32::try_from(started.child.id()).unwrap_or(0), Ordering::Relaxed);
    let membership = offer.and_then(|offer| hand_over(offer, &started.child, &mut notes));
    let (status, ended) = event_loop::until_it_ends(&mut started.child, &started.events, runtime.as_mut())?;
    let wall = Nanos::from(ended.saturating_duration_since(started.began));
    let outcome = (wall, shell_status(status));
    let mut report = match membership.map(Membership::end) {
        Some(Ok(told)) => summary::joined(options, &vcpus, outcome, told),
        Some(Err(why)) => {
            notes.push(why);
            summary::report(options, &vcpus, outcome, None)
        }
        None => summary::report(options, &vcpus, outcome, runtime.map(Runtime::end)),
    };
    report.warnings.extend(notes);
    if recording.lock().is_ok_and(|recording| recording.is_some()) {
        report.warnings.push("nothing was recorded, because nobody managed the program".to_owned());
    }
    report.warnings.extend(unmanaged.map(|why| {
        let line = format!("the program ran unmanaged: {why}");
        if options.quiet {
            say(&format!("gleaner: {line}"));
        }
        line
    }));
    Ok(report)
}

/// Who manages the program: this process, a daemon, or nobody.
#[derive(Default)]
struct Manager {
    runtime: Option<Runtime>,
    offer: Option<Offer>,
    /// Why nobody does.
    unmanaged: Option<String>,
    notes: Vec<String>,
}

fn find_manager(
    options: &mut Options,
    recording: &Mutex<Option<Recording>>,
    inherited: &Inherited,
    vcpus: &CpuSet,
) -> Result<Manager, Failure> {
    let mut found = Manager::default();
    if options.config.group.policy() == Policy::Off {
        return Ok(found);
    }
    // Orphans of the program come to us, so that they stay observable; the event loop reaps them.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    match joined::look(&options.asking, &options.config) {
        Ok(Some(offer)) => return Ok(Manager { offer: Some(offer), ..found }),
        Ok(None) => {}
        Err(why) => found.notes.push(format!("managed beside the daemon, not by it: {why}")),
    }
    match prepare(options, inherited, vcpus)? {
        Ok(mut prepared) => {
            if let Some(recording) = recording.lock().ok().and_then(|mut recording| recording.take()) {
                recording.begin(&mut prepared);
            }
            found.runtime = Some(prepared);
        }
        Err(why) => found.unmanaged = Some(why),
    }
    Ok(found)
}

/// To the daemon. What is in the way does not harm the program, which runs.
fn hand_over(offer: Offer, child: &Child, notes: &mut Vec<String>) -> Option<Membership> {
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let begin = move || {
        offer.accept(Some(pid), None).map_err(|why| {
            let line = format!("the program runs unmanaged, because the daemon did not take it: {why}");
            // One that has ended already misses nothing.
            if Target::process(&ProcRoot::default(), pid).is_ok() {
                say(&format!("gleaner: {line}"));
            }
            line
        })
    };
    let started = Membership::start(begin);
    started.map_err(|error| notes.push(format!("the program ran unmanaged: no thread: {}", why_refused(&error)))).ok()
}

/// Everything that is to run beside the program; or why it is left alone, which only `--strict` takes for a failure.
fn prepare(options: &mut Options, inherited: &Inherited, vcpus: &CpuSet) -> Result<Result<Runtime, String>, Failure> {
    let in_the_way = limit_in_the_way(inherited, vcpus);
    if in_the_way.is_none() {
        add_what_is_known(&mut options.config, vcpus);
    }
    let prepared = match in_the_way {
        Some(why) => Err(why),
        None => match Runtime::prepare(&options.config, vcpus.clone(), listener()) {
            Ok(runtime) => Ok(runtime),
            Err(error @ SetupError::NothingObserved(_)) => Err(error.to_string()),
            Err(error @ (SetupError::NoJournal(_) | SetupError::Weaker(_))) => {
                return Err(Failure::run(format!("--strict: {error}")));
            }
            Err(error) => return Err(Failure::run(error)),
        },
    };
    match prepared {
        Err(why) if options.config.strict => Err(Failure::run(format!("--strict: {why}"))),
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
    mut runtime: Option<&mut Runtime>,
    own_cgroup: Option<&Path>,
    listeners: &Sender<Listener>,
) -> Result<Started, NotStarted> {
    let mut launch = Launch::new(&options.command, inherited.clone());
    if let Some(runtime) = &runtime {
        launch.mark(&run_id());
        launch.timer_slack(runtime.timer_slack());
        let own = || own_cgroup.map(|own| own.join("cgroup.procs")).filter(|file| writable(file));
        if let Some(file) = runtime.join_file().or_else(own) {
            let cannot = |error| NotStarted::Ours(format!("cannot open {}: {error}", file.display()));
            launch.join(&file).map_err(cannot)?;
        }
    }
    let (sender, events) = channel();
    let bursts = sender.clone();
    let (listener, listening) =
        Listener::new(sender, inherited).map_err(|failure| NotStarted::Ours(failure.message))?;
    if let Some(runtime) = &mut runtime {
        // Whoever receives may have ended.
        runtime.tell_bursts_by(move || {
            let _ = bursts.send(Event::Burst);
        });
        runtime.about_to_start();
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
    if let Some(runtime) = runtime {
        runtime.started(i32::try_from(child.id()).unwrap_or(0));
    }
    Ok(Started { child, began, events, _listening: listening })
}

fn writable(path: &Path) -> bool {
    std::fs::OpenOptions::new().write(true).open(path).is_ok()
}
