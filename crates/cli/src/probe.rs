//! `gleaner probe`: Table 2 of the paper on this machine.

use crate::busy;
use crate::calibrate::{Bench, Setting, Summary};
use crate::means;
use crate::session;
use clap::Args;
use gleaner_act::{IdleGroup, YieldClass};
use gleaner_command::args::{JsonArg, duration_within};
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::{Output, form, shown};
use gleaner_decide::guest::{GuestParams, timeout};
use gleaner_model::{CpuSet, Nanos, Profile, VcpuId, WakeupCosts};
use gleaner_observe::{ProcRoot, StatReader};
use gleaner_report::{ProbeReport, SettingResult, TimeOuts};
use gleaner_runtime::{Opening, Session, start_yielding};
use indicatif::ProgressBar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(after_help = "The settings are those of Table 2 of the Gleaner paper:\n\
                        \x20 A  waker and waiter on the same vCPU\n\
                        \x20 B  on two vCPUs, the waiter's kept awake by a yielding thread\n\
                        \x20 C  on two vCPUs, the waiter's halted\n\
                        \x20 D  on two vCPUs, a hog on the waiter's (--load)\n\n\
                        Gaps shorter than the host's own halt polling (often 200us) hide the cost of halting.\n\n\
                        Examples:\n\
                        \x20 gleaner probe --gap 1ms --json\n\
                        \x20 gleaner run --profile latency -- gleaner probe --setting C\n\
                        \x20                             # what C becomes under Gleaner")]
pub struct ProbeArgs {
    /// Sleep between two wake-ups, 1us to 10s
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = gap)]
    pub gap: Duration,
    /// Wake-ups measured per setting
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub samples: u64,
    /// Measure only these settings (may be repeated)
    #[arg(long = "setting", value_name = "SETTING", value_enum, ignore_case = true)]
    pub settings: Vec<Setting>,
    /// Measure instead what a wake-up costs by each means of keeping a vCPU awake, at gaps of 50us to 10ms
    #[arg(long, conflicts_with_all = ["settings", "load", "gap", "samples"])]
    pub means: bool,
    /// Measure setting D too, with a busy thread on the waiter's vCPU
    #[arg(long)]
    pub load: bool,
    #[command(flatten)]
    pub json: JsonArg,
}

fn gap(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_micros(1)..=Duration::from_secs(10))
}

pub fn main(args: &ProbeArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let vcpus = crate::machine::allowed_vcpus();
    if args.means {
        let Some(report) = by_means(&vcpus, &interrupted)? else { return Ok(interrupt::status()) };
        output.json(&report)?;
        output.text(&report);
        return Ok(0);
    }
    let mut settings = wanted(args);
    let mut notes = Vec::new();
    if vcpus.len() < 2 {
        settings.retain(|setting| *setting == Setting::A);
        notes.push(format!("only {} may be used here: settings B, C and D need two vCPUs", name_of(&vcpus)));
    }
    if settings.is_empty() {
        return Err(Failure::work(notes.join("; ")));
    }
    let report = measure(args, &settings, &vcpus, notes, &interrupted)?;
    if interrupted.load(Ordering::Relaxed) {
        return Ok(interrupt::status());
    }
    output.json(&report)?;
    output.text(&report);
    Ok(0)
}

/// Every means in turn; `None` when interrupted.
fn by_means(vcpus: &CpuSet, interrupted: &AtomicBool) -> Result<Option<ProbeReport>, Failure> {
    if vcpus.len() < 2 {
        return Err(Failure::work(format!("only {} may be used here: a wake-up needs two vCPUs", name_of(vcpus))));
    }
    let mut session = session::begin().map_err(Failure::work)?;
    let on: CpuSet = vcpus.iter().take(2).collect();
    let params = means::unguarded();
    let opening = Opening { vcpus, params: &params, observer: None };
    let opened = means::open_all(&opening, &mut session.journal);
    let bar = shown(ProgressBar::new(means::TURNS as u64));
    form(&bar, "  measuring each means in turn [{bar:30}] {left}");
    let mut notes: Vec<String> = busy::share().map(busy::warning).into_iter().collect();
    let measured = means::measure(opened, &on, &mut session.journal, |turn| {
        bar.set_position(turn as u64);
        !interrupted.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    if let Err(error) = session.end() {
        notes.push(format!("not everything could be undone ({error}): run `gleaner restore`"));
    }
    let Some(means) = measured.map_err(Failure::work)? else { return Ok(None) };
    Ok(Some(ProbeReport {
        schema: ProbeReport::SCHEMA.to_owned(),
        gap_ns: 0,
        waiter_vcpu: on.iter().next_back().map_or(0, |vcpu| vcpu.0),
        waker_vcpu: on.iter().next().map(|vcpu| vcpu.0),
        d_kind: None,
        timeouts: None,
        settings: Vec::new(),
        means: Some(means),
        notes,
    }))
}

fn wanted(args: &ProbeArgs) -> Vec<Setting> {
    let mut settings = args.settings.clone();
    if settings.is_empty() {
        settings = vec![Setting::A, Setting::B, Setting::C];
    }
    if args.load {
        settings.push(Setting::D);
    }
    settings.sort();
    settings.dedup();
    settings
}

fn name_of(vcpus: &CpuSet) -> String {
    vcpus.iter().next().map_or_else(|| "no vCPU".to_owned(), |vcpu| vcpu.to_string())
}

fn measure(
    args: &ProbeArgs,
    settings: &[Setting],
    vcpus: &CpuSet,
    mut notes: Vec<String>,
    interrupted: &AtomicBool,
) -> Result<ProbeReport, Failure> {
    // Only B needs yielding threads, and they a cgroup: the others change nothing on the machine.
    let mut session = None;
    let mut group = IdleGroup::none();
    if settings.contains(&Setting::B) {
        let begun = session::begin().map_err(Failure::work)?;
        let begun = session.insert(begun);
        group = IdleGroup::create(&mut begun.journal);
    }
    notes.extend(group.fallback().map(ToString::to_string));
    let on: CpuSet = vcpus.iter().take(2).collect();
    // B is the vCPU that never halts: no guard for the seconds that this takes.
    let params = GuestParams { steal_share_stop: 1.0, ..GuestParams::default() };
    let yields = start_yielding(&on, &group, &params, |_| None).map_err(Failure::work)?;
    if yields.class() != YieldClass::Idle {
        notes.extend(yields.fallbacks().iter().map(ToString::to_string));
    }
    let bench = Bench::new(&yields, &on, args.gap).ok_or_else(|| Failure::work("no vCPU may be used here"))?;
    let results = measure_each(&bench, settings, args, interrupted)?;
    drop(bench);
    drop(yields);
    if let Some(Err(error)) = session.map(Session::end) {
        notes.push(format!("not everything could be undone ({error}): run `gleaner restore`"));
    }
    let d_measured = settings.contains(&Setting::D);
    Ok(ProbeReport {
        schema: ProbeReport::SCHEMA.to_owned(),
        gap_ns: Nanos::from(args.gap).0,
        waiter_vcpu: on.iter().next_back().map_or(0, |vcpu| vcpu.0),
        waker_vcpu: on.iter().next().filter(|_| on.len() > 1).map(|vcpu| vcpu.0),
        d_kind: d_measured.then(|| "guest".to_owned()),
        timeouts: timeouts(&results),
        settings: results,
        means: None,
        notes,
    })
}

fn measure_each(
    bench: &Bench<'_>,
    settings: &[Setting],
    args: &ProbeArgs,
    interrupted: &AtomicBool,
) -> Result<Vec<SettingResult>, Failure> {
    let samples = usize::try_from(args.samples).unwrap_or(usize::MAX);
    let bar = shown(ProgressBar::new(args.samples * settings.len() as u64));
    form(&bar, "  measuring setting {msg} [{bar:30}] {left}");
    let mut results = Vec::new();
    for (done, setting) in (0u64..).zip(settings.iter().copied().filter(|setting| bench.can(*setting))) {
        bar.set_message(format!("{setting:?}"));
        let before = steal_of(bench.waiter);
        let began = Instant::now();
        let latencies = bench.measure(setting, samples, |n| {
            bar.set_position(done * args.samples + n as u64);
            !interrupted.load(Ordering::Relaxed)
        });
        let latencies = latencies.map_err(Failure::work)?;
        let stolen = steal_of(bench.waiter).zip(before).map(|(after, before)| after - before);
        let Some(summary) = Summary::of(&latencies) else { break };
        let steal_ratio = stolen.map(|stolen| stolen.share_of(Nanos::from(began.elapsed())));
        results.push(result(setting, &summary, steal_ratio));
    }
    bar.finish_and_clear();
    Ok(results)
}

fn result(setting: Setting, summary: &Summary, steal_ratio: Option<f64>) -> SettingResult {
    SettingResult {
        setting: format!("{setting:?}"),
        n: summary.n,
        mean_ns: summary.mean.0,
        p50_ns: summary.p50.0,
        p90_ns: summary.p90.0,
        p99_ns: summary.p99.0,
        max_ns: summary.max.0,
        steal_ratio,
    }
}

/// Steal of one vCPU since boot; `None` where none was ever reported (the hypervisor may not tell).
fn steal_of(vcpu: VcpuId) -> Option<Nanos> {
    let stat = StatReader::open(&ProcRoot::default()).and_then(|mut reader| reader.read());
    // Without the file the results say that it is unknown.
    let stat = stat.ok()?;
    (stat.steal() > Nanos::ZERO).then(|| stat.cpu(vcpu).map(|times| times.steal)).flatten()
}

fn timeouts(results: &[SettingResult]) -> Option<TimeOuts> {
    let find = |name: &str| results.iter().find(|result| result.setting == name);
    let (b, c) = (find("B")?, find("C")?);
    let costs = WakeupCosts {
        retained_p50: Nanos(b.p50_ns),
        retained_mean: Nanos(b.mean_ns),
        retained_p99: Nanos(b.p99_ns),
        halted_p50: Nanos(c.p50_ns),
        halted_mean: Nanos(c.mean_ns),
        halted_p99: Nanos(c.p99_ns),
    };
    let of = |profile| timeout(profile, Some(&costs)).0;
    Some(TimeOuts {
        frugal_ns: of(Profile::Frugal),
        balanced_ns: of(Profile::Balanced),
        latency_ns: of(Profile::Latency),
    })
}
