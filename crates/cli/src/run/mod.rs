//! `gleaner run`: a program under Gleaner.

mod args;
mod beside;
pub mod child;
mod event_loop;
pub mod options;
pub mod signals;
pub mod summary;
mod unmanaged;

use crate::capture::Recording;
use crate::machine::allowed_vcpus;
pub use args::RunArgs;
use beside::{Beside, Order, Told};
use child::{Launch, shell_status};
use event_loop::Program;
use gleaner_act::{CgroupRoots, own_group};
use gleaner_command::ending;
use gleaner_command::failure::Failure;
use gleaner_command::output::{Output, complain, say};
use gleaner_model::{CpuSet, Nanos, Policy};
use gleaner_report::RunReport;
use gleaner_runtime::run_id;
use gleaner_sys::why_refused;
use options::Options;
pub use signals::is_ignored;
use signals::{Inherited, Listener};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
pub use unmanaged::make_way;

/// A program that ends sooner is left alone: to set up takes as long.
const SOON: Duration = Duration::from_millis(2);

pub fn main(args: RunArgs) -> Result<u8, Failure> {
    let inherited = Inherited::now();
    signals::Inherited::lift_limits();
    let mut output = Output::open(args.json.json.as_deref())?;
    let recording = args.recording.open()?;
    let options = Options::from_args(args)?;
    let report = run(&options, recording, &inherited)?;
    // The summary first: if the JSON cannot be written, the result is not lost.
    if !options.quiet {
        say(&report);
    }
    if let Err(failure) = output.json(&report) {
        // The status is the program's all the same.
        complain("gleaner", &failure.message);
    }
    // A status is a byte.
    Ok(u8::try_from(report.exit_status & 0xff).unwrap_or(125))
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

const OWN_FAULT: &str = "Gleaner failed, which is a bug; please report what it said above";

/// The program first: what is to be beside it begins once it has run for a while, but for what was asked for by name.
fn run(options: &Options, mut recording: Option<Recording>, inherited: &Inherited) -> Result<RunReport, Failure> {
    if let Some(why) = unmanaged::too_little_memory().or_else(unmanaged::filter_in_the_way) {
        return Err(instead(options, inherited, &why));
    }
    let manages = options.config.group.policy() != Policy::Off;
    if manages {
        // Orphans of the program come to us, so that they stay observable; the event loop reaps them.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    // Before any thread is begun: each of them has to leave signals to this one.
    let listener = Listener::new(inherited).map_err(|failure| instead(options, inherited, &failure.message))?;
    let recorded = recording.is_some();
    let vcpus = allowed_vcpus();
    let mut unmanaged = None;
    let (started, mut beside) = if manages && Beside::first(options) {
        let begun = Beside::begin(options, recording.take(), inherited, &vcpus);
        let begun = begun.map_err(|error| instead(options, inherited, &no_thread(&error)))?;
        start_beside(options, inherited, begun, &mut unmanaged)?
    } else {
        (start(options, inherited, manages, None).map_err(|failed| failed.told(options, inherited))?, None)
    };
    let (child, began) = started;
    let mut program = Program::new(child, listener);
    let soon = (manages && beside.is_none() && unmanaged.is_none()).then(|| Instant::now() + SOON);
    let mut ended = program.wait(soon, beside.as_ref())?;
    if ended.is_none() {
        match Beside::begin(options, recording.take(), inherited, &vcpus) {
            Ok(thread) => {
                thread.tell(Order::Started(program.pid()));
                beside = Some(thread);
            }
            Err(error) => unmanaged = Some(no_thread(&error)),
        }
        ended = program.wait(None, beside.as_ref())?;
    }
    // Without a limit it is waited for.
    let (status, ended) = ended.ok_or_else(|| Failure::run(OWN_FAULT))?;
    ending::as_program(status);
    let outcome = (Nanos::from(ended.saturating_duration_since(began)), shell_status(status));
    let Some(mut told) = beside.map_or_else(|| Some(Told::default()), Beside::end) else {
        let status = u8::try_from(outcome.1 & 0xff).unwrap_or(125);
        return Err(Failure { status, message: format!("the program ended unmanaged: {OWN_FAULT}") });
    };
    told.unmanaged = told.unmanaged.or(unmanaged);
    Ok(report(options, &vcpus, outcome, told, recorded))
}

/// What was asked for by name is there before the program is. `unmanaged`: why it runs without.
fn start_beside(
    options: &Options,
    inherited: &Inherited,
    beside: Beside,
    unmanaged: &mut Option<String>,
) -> Result<((Child, Instant), Option<Beside>), Failure> {
    // Where the yielding threads' cgroup takes this process out of its own, the program begins in that all the same.
    let own_cgroup = own_group(&CgroupRoots::default(), "cpu").filter(|own| own.v2);
    let own_cgroup = own_cgroup.map(|own| own.own.join("cgroup.procs")).filter(|file| writable(file));
    beside.ready().unwrap_or_else(|| Err(instead(options, inherited, OWN_FAULT)))?;
    match start(options, inherited, true, own_cgroup.as_deref()) {
        Ok(started) => {
            beside.tell(Order::Started(i32::try_from(started.0.id()).unwrap_or(0)));
            Ok((started, Some(beside)))
        }
        Err(failed @ NotStarted::Command(_)) => {
            beside.end();
            Err(failed.told(options, inherited))
        }
        Err(NotStarted::Ours(why)) => {
            // What is in the way may be Gleaner's own doing: a cgroup, descriptors.
            beside.end();
            if let Some(own) = &own_cgroup {
                let _ = std::fs::write(own, "0");
            }
            *unmanaged = Some(why.clone());
            let alone =
                if options.config.strict { Err(NotStarted::Ours(why)) } else { start(options, inherited, false, None) };
            alone.map(|started| (started, None)).map_err(|failed| failed.told(options, inherited))
        }
    }
}

fn report(options: &Options, vcpus: &CpuSet, outcome: (Nanos, i32), told: Told, recorded: bool) -> RunReport {
    let managed = told.own.is_some();
    let mut report = match told.daemons {
        Some(daemons) => summary::joined(options, vcpus, outcome, daemons),
        None => summary::report(options, vcpus, outcome, told.own),
    };
    report.warnings.extend(told.notes);
    if recorded && !managed {
        report.warnings.push("nothing was recorded, because nobody managed the program".to_owned());
    }
    report.warnings.extend(told.unmanaged.map(|why| {
        let line = format!("the program ran unmanaged: {why}");
        if options.quiet {
            say(&format!("gleaner: {line}"));
        }
        line
    }));
    report
}

fn no_thread(error: &std::io::Error) -> String {
    format!("no thread: {}", why_refused(error))
}

/// Why the program does not run.
enum NotStarted {
    /// There is no such command, or it cannot be executed.
    Command(Failure),
    /// Something that Gleaner needs to start it.
    Ours(String),
}

impl NotStarted {
    /// What the caller is told, unless this process becomes the program.
    fn told(self, options: &Options, inherited: &Inherited) -> Failure {
        match self {
            Self::Command(failure) => failure,
            Self::Ours(why) => instead(options, inherited, &why),
        }
    }
}

/// The program, and when it began. `join`: a cgroup.procs file that it writes itself into.
fn start(
    options: &Options,
    inherited: &Inherited,
    managed: bool,
    join: Option<&Path>,
) -> Result<(Child, Instant), NotStarted> {
    let mut launch = Launch::new(&options.command, inherited.clone());
    if managed {
        launch.mark(&run_id());
    }
    if let Some(file) = join {
        let cannot = |error| NotStarted::Ours(format!("cannot open {}: {error}", file.display()));
        launch.join(file).map_err(cannot)?;
    }
    launch.spawn().map_err(|error| {
        if error.of_command {
            NotStarted::Command(Failure { status: error.status, message: error.message })
        } else {
            NotStarted::Ours(error.message)
        }
    })
}

fn writable(path: &Path) -> bool {
    std::fs::OpenOptions::new().write(true).open(path).is_ok()
}
