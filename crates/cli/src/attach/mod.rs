//! `gleaner attach`: what `gleaner run` does, for something that runs already. It ends with it, or when told to; all is
//! undone then.
//!
//! Retention only: a program that was started without Gleaner is not moved to fewer vCPUs.

mod args;

use crate::joined::{self, Membership, Offer};
use crate::run::options::Options;
use crate::run::summary;
use crate::session;
pub use args::AttachArgs;
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::{Output, say};
use gleaner_model::{CpuSet, Nanos};
use gleaner_observe::{Target, TargetError, vcpus_of};
use gleaner_report::RunReport;
use gleaner_runtime::Runtime;
use gleaner_runtime::event_loop::{self, Task};
use gleaner_sys::ProcRoot;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a group of the daemon's is looked at: whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub fn main(args: AttachArgs) -> Result<u8, Failure> {
    let interrupted = interrupt::flag()?;
    let mut output = Output::open(args.json.json.as_deref())?;
    let length = args.length;
    let recording = args.recording.open()?;
    let target = find(&args)?;
    let options = args.into_options(target.command(&ProcRoot::default()))?;
    let roots = target.roots(&ProcRoot::default());
    let vcpus = vcpus_of(&roots);
    let beside = match joined::look(&options.asking, &options.config) {
        Ok(None) => None,
        Ok(Some(offer)) => match by_daemon(offer, &target) {
            Ok(membership) => {
                let waiting = ByDaemon { membership, target: &target, length, interrupted: &interrupted };
                return waiting.until_it_ends(&options, &vcpus, &mut output);
            }
            Err(why) => Some(why),
        },
        Err(why) => Some(why),
    };
    let prepared = Runtime::prepare(&options.config, vcpus.clone(), session::listener());
    let mut runtime = prepared.map_err(Failure::work)?;
    if let Some(recording) = recording {
        recording.begin(&mut runtime);
    }
    runtime.attach(&roots);
    say_until(&options, &target, length);
    let began = Instant::now();
    let ends = length.map(|length| began + length);
    let mut attached = Attached { runtime, target, interrupted: &interrupted, ends, roots };
    let first = attached.next_window();
    let ended_by_itself = event_loop::run(&mut attached, first);
    let wall = Nanos::from(began.elapsed());
    let mut report = summary::report(&options, &vcpus, (wall, 0), Some(attached.runtime.end()));
    report.attached = true;
    report.warnings.extend(beside.map(|why| format!("managed beside the daemon, not by it: {why}")));
    tracing::debug!(ended_by_itself, "attached no more");
    finish(&report, &options, &mut output)
}

fn say_until(options: &Options, target: &Target, length: Option<Duration>) {
    if !options.quiet {
        let until = length.map_or_else(|| "until it ends, or Ctrl-C".to_owned(), |length| format!("for {length:?}"));
        say(&format!("gleaner: attached to {target} {until}"));
    }
}

/// Hands it over to the daemon.
fn by_daemon(offer: Offer, target: &Target) -> Result<Membership, String> {
    let member = match target {
        Target::Process { pid, .. } => offer.accept(Some(*pid), None)?,
        Target::Cgroup { folder } => offer.accept(None, Some(folder.clone()))?,
        Target::Program { .. } => return Err("a program by its name is the configuration's".to_owned()),
    };
    Membership::start(|| Ok(member)).map_err(|error| error.to_string())
}

/// What the daemon manages meanwhile.
struct ByDaemon<'a> {
    membership: Membership,
    target: &'a Target,
    length: Option<Duration>,
    interrupted: &'a AtomicBool,
}

impl ByDaemon<'_> {
    fn until_it_ends(self, options: &Options, vcpus: &CpuSet, output: &mut Output) -> Result<u8, Failure> {
        say_until(options, self.target, self.length);
        let began = Instant::now();
        let ends = self.length.map(|length| began + length);
        loop {
            let due = Instant::now() + LOOK_EVERY;
            let due = ends.map_or(due, |ends| ends.min(due));
            if !interrupt::sleep_until(due, self.interrupted)
                || self.membership.is_over()
                || ends.is_some_and(|ends| Instant::now() >= ends)
                || self.target.roots(&ProcRoot::default()).is_empty()
            {
                break;
            }
        }
        let wall = Nanos::from(began.elapsed());
        let told = self.membership.end().map_err(Failure::work)?;
        let mut report = summary::joined(options, vcpus, (wall, 0), told);
        report.attached = true;
        finish(&report, options, output)
    }
}

fn finish(report: &RunReport, options: &Options, output: &mut Output) -> Result<u8, Failure> {
    if !options.quiet {
        say(report);
    }
    if !report.restored {
        return Err(Failure::work("not everything could be undone: run `gleaner restore`"));
    }
    output.json(report)?;
    Ok(0)
}

/// What the command line names.
fn find(args: &AttachArgs) -> Result<Target, Failure> {
    let root = ProcRoot::default();
    let named = |option: &str, found: Result<Target, TargetError>| {
        found.map_err(|error| Failure::input(format!("{option} {error}")))
    };
    let target = match (args.to.pid, &args.to.cgroup, &args.to.unit) {
        (Some(pid), ..) => named("--pid", Target::process(&root, pid))?,
        (_, Some(folder), _) => named("--cgroup", Target::cgroup(&root, folder))?,
        (_, _, Some(name)) => named("--unit", Target::unit(&root, name))?,
        _ => return Err(Failure::input("write --pid, --cgroup or --unit")),
    };
    if target.roots(&root).is_empty() {
        return Err(Failure::input(format!("nothing runs in {target}")));
    }
    Ok(target)
}

/// Beside what runs.
struct Attached<'a> {
    runtime: Runtime,
    target: Target,
    interrupted: &'a AtomicBool,
    ends: Option<Instant>,
    /// The processes that the runtime knows as first ones.
    roots: Vec<i32>,
}

impl Task for Attached<'_> {
    type Event = ();
    /// Whether what runs has ended.
    type Outcome = bool;

    fn wait_until(&mut self, due: Instant) -> Option<()> {
        let due = self.ends.map_or(due, |ends| ends.min(due));
        (!interrupt::sleep_until(due, self.interrupted)).then_some(())
    }

    fn tick(&mut self, late: Nanos) -> ControlFlow<bool, Duration> {
        self.look_after_the_guardian();
        self.runtime.tick(late);
        let now = self.target.roots(&ProcRoot::default());
        if now.is_empty() {
            return ControlFlow::Break(true);
        }
        self.follow(now);
        if self.ends.is_some_and(|ends| Instant::now() >= ends) || self.interrupted.load(Ordering::Relaxed) {
            return ControlFlow::Break(false);
        }
        ControlFlow::Continue(self.next_window())
    }

    fn event(&mut self, (): ()) -> ControlFlow<bool, Option<Duration>> {
        self.runtime.tick(Nanos::ZERO);
        ControlFlow::Break(false)
    }
}

impl Attached<'_> {
    /// Whole windows; the last one ends when the time is over.
    fn next_window(&self) -> Duration {
        let window = self.runtime.window_length().into();
        self.ends.map_or(window, |ends| ends.saturating_duration_since(Instant::now()).min(window))
    }

    /// A service starts processes that are nobody's children.
    fn follow(&mut self, now: Vec<i32>) {
        for pid in now.iter().filter(|pid| !self.roots.contains(pid)) {
            self.runtime.joined(*pid);
        }
        self.roots = now;
    }

    /// It is the only child of this process.
    fn look_after_the_guardian(&mut self) {
        let mut status = 0;
        // SAFETY: the status outlives the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid > 0 {
            self.runtime.child_ended(pid);
        }
    }
}
