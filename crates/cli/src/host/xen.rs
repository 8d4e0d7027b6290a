//! `gleaner host list` and `host run --slice 1ms` on a Xen host: there vCPUs are no threads, and Xen's
//! own tool `xl` is asked. What else `gleaner host` does takes threads, and is refused there.

use super::shared::{Interrupted, interrupted_before};
use crate::session;
use clap::Args;
use gleaner_act::{ActError, XenChange, XenRequest, Xl, change_xen, plan_xen};
use gleaner_command::args::{JsonArg, any_duration};
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::{Output, say, tell};
use gleaner_model::{Nanos, XenPool, XenSetting};
use gleaner_observe::{ProcRoot, XenDomain, XenHost, XenReadError, XenVcpuState, is_xen_dom0, xen_host, xen_pools};
use gleaner_report::{
    XenListDomain, XenListPool, XenListReport, XenListVcpu, XenSliceChange, XenSliceReport, XenTimes,
};
use gleaner_runtime::Session;
use gleaner_runtime::event_loop::{self, Task};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How often a held slice looks after its guardian.
const NAP: Duration = Duration::from_secs(1);

/// What every command takes that does something else on a Xen host.
#[derive(Debug, Args)]
pub struct XenArg {
    /// Ask Xen's `xl`; in a Xen host's dom0 Gleaner does so by itself
    #[arg(long)]
    pub xen: bool,
}

/// What `host run` takes on a Xen host only.
#[derive(Debug, Args)]
#[command(next_help_heading = "Xen hosts")]
pub struct XenSliceArgs {
    #[command(flatten)]
    pub xen: XenArg,
    /// Which cpupool, where there are several
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// How long a vCPU runs before a waking one may take its place: 100us to 500ms, 0s: at once (credit and credit2)
    #[arg(long, value_name = "DURATION", value_parser = any_duration)]
    pub ratelimit: Option<Duration>,
}

/// What `host run` is to do on a Xen host.
#[derive(Debug)]
pub struct XenSlice<'a> {
    /// The options of Xen's own.
    pub options: &'a XenSliceArgs,
    /// `--slice`.
    pub slice: Option<Duration>,
    /// `--vm`: domains by name or number.
    pub domains: &'a [String],
    /// `--for`; `None`: until it is interrupted.
    pub length: Option<Duration>,
    /// `--json`.
    pub json: &'a JsonArg,
}

impl XenArg {
    /// Whether Xen is to be asked.
    pub fn applies(&self) -> bool {
        self.xen || (is_xen_dom0(&ProcRoot::default()) && Xl::find().is_some())
    }
}

impl XenSliceArgs {
    /// Whether Xen is to be asked; its own options mean it.
    pub fn apply(&self) -> bool {
        self.pool.is_some() || self.ratelimit.is_some() || self.xen.applies()
    }
}

fn xl() -> Result<Xl, Failure> {
    Xl::find().ok_or_else(|| {
        Failure::input(
            "there is no `xl` in the PATH: install Xen's tools (Debian: xen-utils), and run this in dom0, as root",
        )
    })
}

fn read(xl: &Xl) -> Result<XenHost, Failure> {
    xen_host(|words| xl.run(words)).map_err(|error| unreadable(&error))
}

fn unreadable(error: &XenReadError<ActError>) -> Failure {
    let hint = if is_xen_dom0(&ProcRoot::default()) {
        ""
    } else {
        "; this does not look like a Xen host's dom0 (there `mount -t xenfs xenfs /proc/xen`, and xenstored has to run)"
    };
    Failure::work(format!("{error}{hint}"))
}

/// `gleaner host list`.
pub fn list(domains: &[String], json: &JsonArg) -> Result<u8, Failure> {
    let mut output = Output::open(json.json.as_deref())?;
    let host = read(&xl()?)?;
    let ids = ids_of(&host, domains)?;
    let report = list_report(&host, &ids);
    output.json(&report)?;
    output.text(&report);
    Ok(0)
}

/// The domains that these words mean.
fn ids_of(host: &XenHost, words: &[String]) -> Result<Vec<u32>, Failure> {
    let id = |word: &String| {
        let names = || host.domains.iter().map(|domain| domain.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = host.domain(word).map(|domain| domain.id);
        found.ok_or_else(|| Failure::input(format!("no domain of this Xen is called {word}; there is: {}", names())))
    };
    words.iter().map(id).collect()
}

/// All domains where `ids` names none.
fn list_report(host: &XenHost, ids: &[u32]) -> XenListReport {
    let listed = host.domains.iter().filter(|domain| ids.is_empty() || ids.contains(&domain.id));
    let unknown = host.pools.iter().filter(|pool| pool.settings.is_empty());
    let notes = unknown
        .map(|pool| format!("cpupool {} is scheduled by {}, of which no times are known", pool.name, pool.scheduler));
    XenListReport {
        schema: XenListReport::SCHEMA.to_owned(),
        xen_version: host.version.clone(),
        pools: host.pools.iter().map(|pool| list_pool(host, pool)).collect(),
        domains: listed.map(|domain| list_domain(host, domain)).collect(),
        notes: notes.collect(),
    }
}

fn list_pool(host: &XenHost, pool: &XenPool) -> XenListPool {
    let here = host.domains.iter().filter(|domain| domain.pool.as_ref() == Some(&pool.name));
    let awake = here.flat_map(|domain| &domain.vcpus).filter(|vcpu| vcpu.state != XenVcpuState::Paused).count() as u64;
    let times = match pool.settings.first() {
        Some(setting @ (XenSetting::Credit { .. } | XenSetting::Credit2 { .. })) => XenTimes::from(setting),
        _ => XenTimes::default(),
    };
    let queue = awake.div_ceil(u64::from(pool.pcpus.max(1)));
    XenListPool {
        name: pool.name.clone(),
        scheduler: pool.scheduler.to_string(),
        pcpus: pool.pcpus,
        vcpus: awake,
        times,
        scheduling_latency_ns: times.slice_ns.map(|slice| slice * queue.saturating_sub(1)),
    }
}

fn list_domain(host: &XenHost, domain: &XenDomain) -> XenListDomain {
    let vcpu = |vcpu: &gleaner_observe::XenVcpu| XenListVcpu {
        index: vcpu.index,
        pcpu: vcpu.pcpu,
        state: vcpu.state.as_str().to_owned(),
        cpu_time_s: vcpu.cpu_time_s,
        hard_affinity: vcpu.hard_affinity.clone(),
        soft_affinity: vcpu.soft_affinity.clone(),
        times: host.rtds(domain.id, vcpu.index).map(XenTimes::from).unwrap_or_default(),
    };
    XenListDomain {
        id: domain.id,
        name: domain.name.clone(),
        pool: domain.pool.clone(),
        memory_mib: domain.memory_mib,
        weight: domain.weight,
        cap_percent: domain.cap_percent,
        vcpus: domain.vcpus.iter().map(vcpu).collect(),
    }
}

/// `gleaner host run --slice 1ms`: sets it, reads it back, keeps it, puts it back.
pub fn slice(asked: &XenSlice) -> Result<u8, Failure> {
    let mut output = Output::open(asked.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let xl = xl()?;
    // Domains only where some are named: an xl takes its time.
    let (pools, domains) = if asked.domains.is_empty() {
        (xen_pools(|words| xl.run(words)).map_err(|error| unreadable(&error))?, Vec::new())
    } else {
        let host = read(&xl)?;
        let domains = ids_of(&host, asked.domains)?;
        (host.pools, domains)
    };
    let nanos = |duration: Duration| Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    let request = XenRequest {
        slice: asked.slice.map(nanos),
        ratelimit: asked.options.ratelimit.map(nanos),
        pool: asked.options.pool.clone(),
        domains,
    };
    let changes = plan_xen(&request, &pools).map_err(Failure::input)?;
    let (held, outcome) = hold(&xl, &changes, asked.length, &interrupted)?;
    let failed = outcome
        .as_ref()
        .err()
        .map(|error| format!("not everything could be put back ({error}): run `gleaner restore`"));
    let report = slice_report(&request, &pools, &changes, held, failed.is_none());
    output.json(&report)?;
    output.text(&report);
    failed.map_or(Ok(0), |message| Err(Failure::work(message)))
}

/// Keeps the changes for as long as asked; how long that was, and whether they could be undone.
fn hold(
    xl: &Xl,
    changes: &[XenChange],
    length: Option<Duration>,
    interrupted: &AtomicBool,
) -> Result<(Duration, Result<(), ActError>), Failure> {
    if changes.is_empty() {
        return Ok((Duration::ZERO, Ok(())));
    }
    let mut session = session::begin().map_err(Failure::work)?;
    if let Some(warning) = session.warning() {
        say(&format!("gleaner: {warning}"));
    }
    // A failure drops the session, which undoes what was set before it.
    for change in changes {
        change_xen(xl, change, &mut session.journal).map_err(Failure::work)?;
        tell(&format!("{}: now {}; it was {}", change.set.target(), change.set, change.was));
    }
    if length.is_none() {
        tell(&"Kept until this is interrupted (Ctrl-C, or SIGTERM).");
    }
    let mut holding = Holding { session, length, begun: Instant::now(), interrupted };
    let first = holding.until_next();
    event_loop::run(&mut holding, first);
    let held = holding.begun.elapsed();
    Ok((held, holding.session.end().map(drop)))
}

/// Changes in force.
struct Holding<'a> {
    session: Session,
    length: Option<Duration>,
    begun: Instant,
    interrupted: &'a AtomicBool,
}

impl Holding<'_> {
    fn until_next(&self) -> Duration {
        self.length.map_or(NAP, |length| length.saturating_sub(self.begun.elapsed()).min(NAP))
    }
}

impl Task for Holding<'_> {
    type Event = Interrupted;
    type Outcome = ();

    fn wait_until(&mut self, due: Instant) -> Option<Interrupted> {
        interrupted_before(due, self.interrupted)
    }

    fn tick(&mut self, _: Nanos) -> ControlFlow<(), Duration> {
        self.session.look_after_guardian().iter().for_each(|warning| say(&format!("gleaner: {warning}")));
        if self.length.is_some_and(|length| self.begun.elapsed() >= length) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(self.until_next())
    }

    fn event(&mut self, _: Interrupted) -> ControlFlow<(), Option<Duration>> {
        ControlFlow::Break(())
    }
}

fn slice_report(
    request: &XenRequest,
    pools: &[XenPool],
    changes: &[XenChange],
    held: Duration,
    restored: bool,
) -> XenSliceReport {
    let pool = request.pool.as_ref().map_or(pools.first(), |name| pools.iter().find(|pool| pool.name == *name));
    let change = |change: &XenChange| XenSliceChange {
        target: change.set.target(),
        was: XenTimes::from(&change.was),
        set: XenTimes::from(&change.set),
    };
    let ns = |nanos: Nanos| nanos.0;
    XenSliceReport {
        schema: XenSliceReport::SCHEMA.to_owned(),
        requested_ns: request.slice.map(ns),
        requested_ratelimit_ns: request.ratelimit.map(ns),
        method: pool.map_or("xen".to_owned(), |pool| format!("xen-{}", pool.scheduler)),
        changes: changes.iter().map(change).collect(),
        held_ns: u64::try_from(held.as_nanos()).unwrap_or(u64::MAX),
        delivered_p50_ns: None,
        delivered_p90_ns: None,
        restored,
        notes: vec![
            "Xen enforces this itself and does not tell dom0 how long vCPUs ran at a time, so nothing was measured"
                .to_owned(),
        ],
    }
}
