//! `gleaner host probe`: what this host can do with slices, and what switches cost here.

use super::xen::refuse_on_xen;
use clap::Args;
use gleaner_act::{ActError, Fallback, RtThrottling, SLICE_RANGE, SliceSupport};
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::Output;
use gleaner_model::Nanos;
use gleaner_observe::{
    Fact, HostFacts, KernelVersion, PassedOver, ProcRoot, SwitchCost, Vm, discover, host_facts, hypervisor,
    online_cpus, slice_issues, switch_and_refill,
};
use gleaner_report::{
    Finding, HaltPollingFacts, HostProbeReport, HostVerdict, PauseExitFacts, RefillFigures, SliceIssueFact,
    SwitchFigures, VmNesting,
};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Args)]
#[command(
    after_help = "Takes some seconds: context switches are measured with working sets of several sizes. Nothing is \
                  changed on the machine. As root, with debugfs mounted, more is known.\n\n\
                        Example: gleaner host probe --json host.json"
)]
pub struct ProbeArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

pub fn main(args: &ProbeArgs) -> Result<u8, Failure> {
    refuse_on_xen()?;
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let report = examine(&ProcRoot::default(), &interrupted)?;
    if interrupted.load(Ordering::Relaxed) {
        return Ok(interrupt::status());
    }
    output.json(&report)?;
    output.text(&report);
    Ok(0)
}

fn examine(root: &ProcRoot, interrupted: &AtomicBool) -> Result<HostProbeReport, Failure> {
    let facts = host_facts(root);
    let below = hypervisor(root);
    let fifo = fifo(&gleaner_act::try_fifo());
    let own_slices = own_slices();
    let switch = switch_and_refill(interrupted);
    let vms = discover(root, &PassedOver::default()).map_err(Failure::work)?;
    let issues = KernelVersion::parse(&facts.kernel).map(slice_issues).unwrap_or_default();
    // Act's own reading, so that the verdict is what `host run` does.
    let throttling = RtThrottling::read(&root.proc);
    let verdict = verdict(&facts, own_slices.0.is_some(), &fifo, throttling, switch.as_ref());
    Ok(HostProbeReport {
        schema: HostProbeReport::SCHEMA.to_owned(),
        hypervisor: below.as_ref().map(|found| found.name.clone()),
        pcpus_online: online_cpus(root).map_err(Failure::work)?.len() as u64,
        hz: finding(&facts.hz, |hz| *hz),
        hrtick: finding(&facts.hrtick, |on| *on),
        preemption: finding(&facts.preemption, Clone::clone),
        base_slice_ns: base_slice(&facts, own_slices.0),
        slice_per_thread: own_slices.1,
        rt_throttling: Finding { value: throttling.map(RtThrottling::is_on), from: facts.rt_budget.from.clone() },
        rt_runtime_ns: throttling.and_then(RtThrottling::runtime).map(|runtime| runtime.0),
        rt_period_ns: facts.rt_budget.value.map(|budget| budget.period.0),
        rt_group_runtime_ns: finding(&facts.rt_group_runtime, |runtime| runtime.0),
        fifo,
        slice_issues: issues.iter().map(issue).collect(),
        switch: switch_finding(switch.as_ref()),
        pause_exits: finding(&facts.pause_exits, |pauses| PauseExitFacts {
            on: pauses.on,
            parameters: pauses.parameters.iter().cloned().collect(),
        }),
        halt_polling: finding(&facts.halt_polling, |polling| HaltPollingFacts {
            longest_ns: polling.longest.0,
            grow: polling.grow,
            grow_start_ns: polling.grow_start.map(|start| start.0),
            shrink: polling.shrink,
        }),
        vms: vms.iter().map(nesting).collect(),
        verdict,
        kernel: facts.kernel,
    })
}

fn finding<T, U>(fact: &Fact<T>, say: impl FnOnce(&T) -> U) -> Finding<U> {
    Finding { value: fact.value.as_ref().map(say), from: fact.from.clone() }
}

/// The base slice, and whether a thread takes another: tried on one of our own that ends at once.
fn own_slices() -> (Option<Nanos>, Finding<bool>) {
    let support = SliceSupport::probe();
    (support.base, Finding { value: Some(support.base.is_some()), from: support.describe() })
}

fn base_slice(facts: &HostFacts, seen: Option<Nanos>) -> Finding<u64> {
    match seen {
        Some(base) => Finding { value: Some(base.0), from: "sched_getattr of a thread that asked for none".to_owned() },
        None => finding(&facts.base_slice, |base| base.0),
    }
}

/// Whether a ticker gets its class here, by the very way that a ticker takes.
fn fifo(tried: &Result<Option<Fallback>, ActError>) -> Finding<bool> {
    match tried {
        Ok(None) => Finding { value: Some(true), from: "tried".to_owned() },
        Ok(Some(fallback)) => Finding { value: Some(true), from: format!("tried: {fallback}") },
        Err(error) => Finding { value: Some(false), from: error.to_string() },
    }
}

fn issue(issue: &gleaner_observe::SliceIssue) -> SliceIssueFact {
    SliceIssueFact {
        id: issue.id.to_owned(),
        since: issue.since.map(|version| version.to_string()),
        until: issue.until.map(|version| version.to_string()),
        text: issue.text.to_owned(),
    }
}

fn switch_finding(switch: Option<&SwitchCost>) -> Finding<SwitchFigures> {
    let figures = switch.and_then(|switch| {
        let bare = switch.by_working_set.first()?;
        let refill = |cost: &gleaner_observe::RefillCost| RefillFigures {
            working_set_bytes: cost.bytes,
            n: cost.n,
            p50_ns: cost.p50.0,
            p95_ns: cost.p95.0,
        };
        Some(SwitchFigures {
            pcpu: switch.pcpu,
            p50_ns: bare.p50.0,
            p95_ns: bare.p95.0,
            by_working_set: switch.by_working_set.iter().map(refill).collect(),
        })
    });
    let from = if figures.is_some() {
        "two threads on one CPU that hand a byte to and fro"
    } else {
        "two threads cannot be bound to one CPU here"
    };
    Finding { value: figures, from: from.to_owned() }
}

fn nesting(vm: &Vm) -> VmNesting {
    let cgroup = vm.vcpus.first().and_then(|vcpu| vcpu.cgroup.as_ref()).or(vm.cgroup.as_ref());
    VmNesting {
        name: vm.name.clone(),
        pid: vm.pid,
        cgroup: cgroup.map(ToString::to_string),
        cgroup_depth: cgroup.map(|cgroup| cgroup.depth() as u64),
    }
}

/// The verdict promises no slice of fewer switches: what they cost would be more than a tenth of it. `host run`
/// refuses only what is shorter than two (`refuse_slice` in act).
const SWITCHES_IN_A_SLICE: u64 = 10;

/// How short slices may be, and by what means.
fn verdict(
    facts: &HostFacts,
    own_slices: bool,
    fifo: &Finding<bool>,
    throttling: Option<RtThrottling>,
    switch: Option<&SwitchCost>,
) -> HostVerdict {
    let switch = switch.and_then(|switch| switch.by_working_set.first()).map(|bare| bare.p50);
    let floor = switch.map_or(Nanos::ZERO, |switch| switch.times(SWITCHES_IN_A_SLICE)).max(*SLICE_RANGE.start());
    let says = |shortest: Option<Nanos>, method: Option<&str>, text: String| HostVerdict {
        shortest_slice_ns: shortest.map(|shortest| shortest.0),
        method: method.map(str::to_owned),
        text,
    };
    // Without slices of threads HRTICK ends the kernel's own slices, and nobody sets those.
    if facts.hrtick.value == Some(true) && own_slices {
        return says(
            Some(floor),
            Some("hrtick"),
            format!("slices down to {floor} can be delivered by the kernel itself (HRTICK is on)"),
        );
    }
    let tick = facts.hz.value.map(|hz| Nanos(1_000_000_000 / u64::from(hz.max(1))));
    let at_tick = tick.map_or_else(
        || "slices end at the kernel's tick".to_owned(),
        |tick| format!("slices end at the tick, {tick} apart"),
    );
    match (fifo.value, throttling.filter(|throttling| !throttling.is_on())) {
        (Some(true), Some(off)) => says(
            tick,
            Some("tick"),
            format!(
                "{at_tick}, because tickers are refused while real-time throttling is off (`host run` then takes \
                 slices that the tick ends in time, and others with --no-enforce); `{}` would allow slices down to \
                 {floor}",
                off.turn_on()
            ),
        ),
        (Some(true), _) => says(
            Some(floor),
            Some("ticker"),
            format!(
                "slices down to {floor} can be delivered by a ticker (a SCHED_FIFO thread per CPU, `gleaner host \
                 run`)"
            ),
        ),
        _ => says(
            tick,
            Some("tick"),
            format!("{at_tick}, because {}; as root a ticker would allow slices down to {floor}", why_no_fifo(fifo)),
        ),
    }
}

fn why_no_fifo(fifo: &Finding<bool>) -> String {
    format!("no thread here may be SCHED_FIFO ({})", fifo.from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(hrtick: Option<bool>) -> HostFacts {
        let folder = tempfile::tempdir().unwrap();
        let mut facts = host_facts(&ProcRoot::below(folder.path()));
        facts.hrtick.value = hrtick;
        facts.hz.value = Some(250);
        facts
    }

    fn may_fifo(can: bool) -> Finding<bool> {
        Finding { value: Some(can), from: "not permitted".into() }
    }

    #[test]
    fn the_verdict_names_the_best_means_and_what_stands_in_its_way() {
        let runtime = |runtime_us| Some(RtThrottling { runtime_us, period_us: 1_000_000 });
        for (hrtick, own_slices, can, throttling, method, words) in [
            (Some(true), true, false, None, "hrtick", "100us"),
            (Some(true), true, true, runtime(-1), "hrtick", "100us"),
            (Some(true), false, true, None, "ticker", "ticker"),
            (Some(true), false, false, None, "tick", "not permitted"),
            (Some(false), true, true, runtime(950_000), "ticker", "ticker"),
            (None, true, true, None, "ticker", "ticker"),
            (Some(false), true, true, runtime(-1), "tick", "sched_rt_runtime_us=950000"),
            (Some(false), true, true, runtime(1_000_000), "tick", "sched_rt_runtime_us=950000"),
            (Some(false), true, false, runtime(950_000), "tick", "not permitted"),
        ] {
            let found = verdict(&facts(hrtick), own_slices, &may_fifo(can), throttling, None);
            assert_eq!(found.method.as_deref(), Some(method), "{found:?}");
            assert!(found.text.contains(words), "{found:?}");
        }
        let found = verdict(&facts(None), true, &may_fifo(false), None, None);
        assert_eq!(found.shortest_slice_ns, Some(4_000_000));
    }

    #[test]
    fn the_verdict_is_what_is_refused_and_what_is_not() {
        let slice = *SLICE_RANGE.start();
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("sys/kernel");
        std::fs::create_dir_all(&files).unwrap();
        for (runtime, period) in [(950_000, 1_000_000), (-1, 1_000_000), (1_000_000, 1_000_000), (0, 1_000_000)] {
            std::fs::write(files.join("sched_rt_runtime_us"), format!("{runtime}\n")).unwrap();
            std::fs::write(files.join("sched_rt_period_us"), format!("{period}\n")).unwrap();
            for (hrtick, base) in [(true, Some(Nanos(1))), (true, None), (false, Some(Nanos(1))), (false, None)] {
                let throttling = RtThrottling::read(folder.path());
                let found = verdict(&facts(Some(hrtick)), base.is_some(), &may_fifo(true), throttling, None);
                let by_kernel =
                    gleaner_act::by_kernel(slice, SliceSupport { base }, Some(hrtick), Nanos::from_millis(4));
                let refused = gleaner_act::refuse_slice(slice, by_kernel.is_none(), None, folder.path()).is_err();
                let shorter = found.shortest_slice_ns == Some(slice.0);
                assert_eq!(refused, !shorter, "{runtime} {period} {hrtick} {base:?}: {found:?}");
            }
        }
    }

    #[test]
    fn a_ticker_that_gets_its_class_in_the_root_cgroup_gets_it() {
        let fallback =
            Fallback { wanted: "tickers here", used: "tickers in the root cpu cgroup", why: "no budget".into() };
        let found = fifo(&Ok(Some(fallback)));
        assert!(found.value == Some(true) && found.from.contains("root cpu cgroup"), "{found:?}");
        let found = fifo(&Err(ActError::Unavailable { what: "SCHED_FIFO".into(), why: "not permitted".into() }));
        assert!(found.value == Some(false) && found.from.contains("not permitted"), "{found:?}");
        // Whatever it says here, `host run` gets the same answer.
        let started = gleaner_act::Enforcer::start(|limit| {
            std::thread::sleep(limit.min(std::time::Duration::from_millis(10)));
            Vec::new()
        });
        assert_eq!(fifo(&gleaner_act::try_fifo()).value, Some(started.is_ok()));
    }

    #[test]
    fn a_dear_switch_makes_short_slices_long() {
        let cost =
            gleaner_observe::RefillCost { bytes: 0, n: 1, p50: Nanos::from_micros(40), p95: Nanos::from_micros(50) };
        let switch = SwitchCost { pcpu: 0, by_working_set: vec![cost] };
        let found = verdict(&facts(None), true, &may_fifo(true), None, Some(&switch));
        assert_eq!(found.shortest_slice_ns, Some(400_000));
    }
}
