//! `gleaner host run --slice 1ms` on a Xen host: there vCPUs are no threads, and Xen's own tool `xl` sets the slice.

use crate::session;
use clap::Args;
use gleaner_act::{ActError, XenChange, XenRequest, XenTimes, Xl, change_xen, is_xen_dom0, plan_xen, xen_pools};
use gleaner_command::args::{JsonArg, any_duration};
use gleaner_command::failure::Failure;
use gleaner_command::interrupt::{self, sleep_until};
use gleaner_command::output::{Output, say, tell};
use gleaner_model::Nanos;
use gleaner_observe::ProcRoot;
use gleaner_report::{XenPoolTimes, XenSliceReport};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How often a held slice looks after its guardian.
const NAP: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(next_help_heading = "Xen hosts")]
pub struct XenArgs {
    /// Ask Xen's `xl`; in a Xen host's dom0 Gleaner does so by itself
    #[arg(long)]
    pub xen: bool,
    /// Which cpupool, where there are several
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// How long a vCPU runs before a waking one may take its place: 100us to 500ms, 0s: at once
    #[arg(long, value_name = "DURATION", value_parser = any_duration)]
    pub ratelimit: Option<Duration>,
}

impl XenArgs {
    /// Whether Xen is to be asked; its own options mean it.
    pub fn apply(&self) -> bool {
        self.xen || self.pool.is_some() || self.ratelimit.is_some() || is_xen_host()
    }
}

fn is_xen_host() -> bool {
    is_xen_dom0(&ProcRoot::default()) && Xl::find().is_some()
}

/// Of commands that look at threads.
pub fn refuse_on_xen() -> Result<(), Failure> {
    if !is_xen_host() {
        return Ok(());
    }
    Err(Failure::input(
        "on a Xen host vCPUs are no threads, and slices are Xen's own: `xl vcpu-list` and `xl sched-credit` tell of them",
    ))
}

/// Sets it, reads it back, keeps it, puts it back.
pub fn hold(args: &XenArgs, slice: Option<Duration>, length: Option<Duration>, json: &JsonArg) -> Result<u8, Failure> {
    let mut output = Output::open(json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let xl = Xl::find().ok_or_else(|| {
        Failure::input(
            "there is no `xl` in the PATH: install Xen's tools (Debian: xen-utils), and run this in dom0, as root",
        )
    })?;
    let request = XenRequest {
        slice: slice.map(Nanos::from),
        ratelimit: args.ratelimit.map(Nanos::from),
        pool: args.pool.clone(),
    };
    let pools = xen_pools(&xl).map_err(|error| unreadable(&error))?;
    let change = plan_xen(&request, &pools, &xl).map_err(|error| unreadable(&error))?.map_err(Failure::input)?;
    let (held, outcome) = keep(&xl, &change, length, &interrupted)?;
    let times = |times: XenTimes| XenPoolTimes {
        slice_ns: times.slice_ms.map(|ms| u64::from(ms) * 1_000_000),
        ratelimit_ns: u64::from(times.ratelimit_us) * 1000,
    };
    let report = XenSliceReport {
        schema: XenSliceReport::SCHEMA.to_owned(),
        pool: change.pool.name,
        scheduler: change.pool.scheduler,
        was: times(change.was),
        set: times(change.set),
        held_ns: Nanos::from(held).0,
        restored: outcome.is_ok(),
    };
    output.json(&report)?;
    output.text(&report);
    let failed = |error| Failure::work(format!("not everything could be put back ({error}): run `gleaner restore`"));
    outcome.map_or_else(|error| Err(failed(error)), |()| Ok(0))
}

fn unreadable(error: &ActError) -> Failure {
    let hint = if is_xen_dom0(&ProcRoot::default()) {
        ""
    } else {
        "; this does not look like a Xen host's dom0 (there `mount -t xenfs xenfs /proc/xen`, and xenstored has to run)"
    };
    Failure::work(format!("{error}{hint}"))
}

/// Keeps the change for as long as asked; how long that was, and whether it could be undone.
fn keep(
    xl: &Xl,
    change: &XenChange,
    length: Option<Duration>,
    interrupted: &AtomicBool,
) -> Result<(Duration, Result<(), ActError>), Failure> {
    if change.was == change.set {
        return Ok((Duration::ZERO, Ok(())));
    }
    let mut session = session::begin().map_err(Failure::work)?;
    if let Some(warning) = session.warning() {
        say(&format!("gleaner: {warning}"));
    }
    // A failure drops the session, which undoes what was set before it.
    change_xen(xl, change, &mut session.journal).map_err(Failure::work)?;
    tell(&format!("cpupool {}: now {}; it was {}", change.pool.name, change.set, change.was));
    if length.is_none() {
        tell(&"Kept until this is interrupted (Ctrl-C, or SIGTERM).");
    }
    let begun = Instant::now();
    let is_over = || length.is_some_and(|length| begun.elapsed() >= length);
    while !is_over() {
        let nap = length.map_or(NAP, |length| length.saturating_sub(begun.elapsed()).min(NAP));
        if !sleep_until(Instant::now() + nap, interrupted) {
            break;
        }
        session.look_after_guardian().iter().for_each(|warning| say(&format!("gleaner: {warning}")));
    }
    Ok((begun.elapsed(), session.end().map(drop)))
}
