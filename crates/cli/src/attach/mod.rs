//! `gleaner attach`: what `gleaner run` does, for something that runs already. It ends with it, or when told to; all is
//! undone then.
//!
//! Retention only: a program that was started without Gleaner is not moved to fewer vCPUs.

mod args;

use crate::calibrate::add_what_is_known;
use crate::failure::Failure;
use crate::output::{Output, say};
use crate::run::summary;
use crate::{interrupt, session};
pub use args::AttachArgs;
use gleaner_model::Nanos;
use gleaner_observe::{Target, TargetError, vcpus_of};
use gleaner_runtime::Runtime;
use gleaner_runtime::event_loop::{self, Task};
use gleaner_sys::ProcRoot;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub fn main(args: AttachArgs) -> Result<u8, Failure> {
    let interrupted = interrupt::flag()?;
    let mut output = Output::open(args.json.json.as_deref())?;
    let length = args.length;
    let recording = args.recording.open()?;
    let target = find(&args)?;
    let mut options = args.into_options(target.command(&ProcRoot::default()))?;
    let roots = target.roots(&ProcRoot::default());
    let vcpus = vcpus_of(&roots);
    add_what_is_known(&mut options.config, &vcpus);
    let prepared = Runtime::prepare(&options.config, vcpus.clone(), session::listener());
    let mut runtime = prepared.map_err(Failure::work)?;
    if let Some(recording) = recording {
        recording.begin(&mut runtime);
    }
    runtime.attach(&roots);
    if !options.quiet {
        let until = if length.is_some() { "for a while" } else { "until it ends, or Ctrl-C" };
        say(&format!("gleaner: attached to {target} {until}"));
    }
    let began = Instant::now();
    let ends = length.map(|length| began + length);
    let mut attached = Attached { runtime, target, interrupted: &interrupted, ends, roots };
    let first = attached.next_window();
    let ended_by_itself = event_loop::run(&mut attached, first);
    let wall = Nanos::from(began.elapsed());
    let mut report = summary::report(&options, &vcpus, (wall, 0), Some(attached.runtime.end()));
    report.attached = true;
    if !options.quiet {
        say(&report);
    }
    if !report.restored {
        return Err(Failure::work("not everything could be undone: run `gleaner restore`"));
    }
    output.json(&report)?;
    tracing::debug!(ended_by_itself, "attached no more");
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
