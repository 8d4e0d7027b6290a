//! `gleaner doctor`: what this machine is, what can be done here, whether it would help.
//!
//! Means are tried, not guessed: BPF is loaded, a cpuset and a cgroup are made, yielding threads are started; all of it
//! under a journal, and undone before the report is printed.

mod neighbours;
mod verdict;

use crate::busy;
use crate::calibrate::{Bench, GAP_AT_START, GAP_BRIDGED, Setting};
use crate::machine::{allowed_vcpus, machine};
use crate::session;
use clap::Args;
use gleaner_act::{IdleGroup, IdleMeans, YieldClass, own_journals};
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::{Output, shown, steady_tick};
use gleaner_decide::guest::{GuestParams, halting_is_free};
use gleaner_model::{CpuSet, Nanos, RetainMeans};
use gleaner_observe::{Capabilities, ProcRoot, StatReader, SystemStat, capabilities};
use gleaner_report::{Capability, DoctorReport, HaltCost, StealFacts};
use gleaner_runtime::{Opening, Session, open_one, start_yielding};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use verdict::{advice, verdict};

#[derive(Debug, Args)]
#[command(after_help = "Takes some seconds: it measures wake-ups and tries each means, undoing it at once.\n\n\
                        Example: gleaner doctor --json /tmp/doctor.json")]
pub struct DoctorArgs {
    #[command(flatten)]
    pub json: JsonArg,
}

/// Wake-ups measured of each of B and C.
const SAMPLES: usize = 400;

pub fn main(args: &DoctorArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let bar = shown(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("  {spinner} {msg}") {
        bar.set_style(style);
    }
    steady_tick(&bar, Duration::from_millis(250));
    bar.set_message("looking at the machine, trying each means");
    let report = examine(&interrupted);
    bar.finish_and_clear();
    if interrupted.load(Ordering::Relaxed) {
        return Ok(interrupt::status());
    }
    output.json(&report)?;
    output.text(&report);
    Ok(0)
}

fn examine(interrupted: &AtomicBool) -> DoctorReport {
    let root = ProcRoot::default();
    let vcpus = allowed_vcpus();
    let left_behind = left_behind();
    let neighbours = neighbours::found();
    let busy = busy::share();
    let before = (Instant::now(), system_stat(&root));
    let seen = capabilities(&root);
    let (actuators, halt) = try_actuators(&vcpus, interrupted);
    let steal = steal(before, &root);
    let machine = machine(&root, &vcpus);
    let verdict = verdict(&machine, &vcpus, halt.as_ref(), (steal, busy), &actuators);
    let advice = advice(&root.sys, &machine, &actuators);
    DoctorReport {
        schema: DoctorReport::SCHEMA.to_owned(),
        machine,
        steal,
        halt,
        observers: observers(&seen),
        actuators,
        left_behind,
        neighbours,
        verdict,
        advice,
    }
}

fn system_stat(root: &ProcRoot) -> Option<SystemStat> {
    StatReader::open(root).and_then(|mut reader| reader.read()).ok()
}

fn steal((began, before): (Instant, Option<SystemStat>), root: &ProcRoot) -> StealFacts {
    let sampled = Nanos::from(began.elapsed());
    let ratio = before.zip(system_stat(root)).and_then(|(before, after)| {
        let whole = sampled.times(after.cpus.len() as u64);
        // Zero since boot: the hypervisor may not tell. Unknown is not none.
        (after.steal() > Nanos::ZERO).then(|| (after.steal() - before.steal()).share_of(whole))
    });
    StealFacts { sampled_ns: sampled.0, reported_ratio: ratio }
}

fn observers(seen: &Capabilities) -> Vec<Capability> {
    let bpf = match &seen.bpf {
        Ok(()) => (true, "exact lengths and distributions from the scheduler's tracepoints".to_owned()),
        Err(why) => (false, why.to_string()),
    };
    let procfs = match &seen.procfs {
        Ok(()) if seen.children_files => (true, "means; needs no privilege".to_owned()),
        Ok(()) => (true, "means; slower here, because this kernel lacks /proc/PID/task/TID/children".to_owned()),
        Err(why) => (false, why.to_string()),
    };
    [("bpf", bpf), ("procfs", procfs)]
        .into_iter()
        .map(|(name, (available, detail))| Capability { name: name.to_owned(), available, detail })
        .collect()
}

/// Tries every actuator, and measures B and C with the yielding threads.
fn try_actuators(vcpus: &CpuSet, interrupted: &AtomicBool) -> (Vec<Capability>, Option<HaltCost>) {
    let mut all = Vec::new();
    let mut session = match session::begin() {
        Ok(session) => session,
        Err(error) => {
            all.push(capability("journal", Err(format!("{error}; without a journal nothing is changed"))));
            return (all, None);
        }
    };
    let guardian = session.unguarded().map_or_else(
        || Ok("every change is undone, after kill -9 too".to_owned()),
        |why| Err(format!("the guardian process cannot be started ({why})")),
    );
    all.push(capability("guardian", guardian));
    all.push(capability("affinity", Ok("thread by thread; needs no privilege".to_owned())));
    let polling = try_polling(vcpus, &mut session, interrupted, &mut all);
    let group = IdleGroup::create(&mut session.journal);
    let (yielding, idle, halt) = try_yielding(vcpus, &group, polling.is_none(), interrupted);
    let halt = polling.or(halt);
    all.push(capability("cpu.idle", idle));
    all.push(capability("yielding", yielding));
    if let Err(error) = session.end() {
        all.push(capability("undo", Err(format!("{error}: run `gleaner restore`"))));
    }
    (all, halt)
}

fn capability(name: &str, result: Result<String, String>) -> Capability {
    let available = result.is_ok();
    let (Ok(detail) | Err(detail)) = result;
    Capability { name: name.to_owned(), available, detail }
}

/// Whether the idle task can be made to poll, by each means, and what a halt costs against the first of them.
fn try_polling(
    vcpus: &CpuSet,
    session: &mut Session,
    interrupted: &AtomicBool,
    all: &mut Vec<Capability>,
) -> Option<HaltCost> {
    let params = GuestParams::default();
    let opening = Opening { vcpus, params: &params, observer: None };
    let mut first = None;
    for means in RetainMeans::ALL.into_iter().filter(|means| means.polls_in_idle_task()) {
        let opened = open_one(means, &opening, &mut session.journal);
        let told = match &opened {
            Ok(_) => Ok(polls_how(means).to_owned()),
            Err(why) => Err(why.clone()),
        };
        all.push(capability(means.name(), told));
        first = first.or(opened.ok());
    }
    let retainer = RefCell::new(first?.retainer);
    let journal = RefCell::new(&mut session.journal);
    let on: CpuSet = vcpus.iter().take(2).collect();
    let bench = Bench::by(&retainer, &journal, &on, GAP_AT_START).filter(|bench| bench.can(Setting::C))?;
    halt_cost(&bench, interrupted)
}

fn polls_how(means: RetainMeans) -> &'static str {
    match means {
        RetainMeans::IdlePoll => "a BPF program polls in the idle loop; per vCPU, exact time-outs",
        RetainMeans::Haltpoll => "the kernel's governor polls; the whole machine, exact time-outs",
        RetainMeans::PmQos => "the kernel's POLL idle state; per vCPU, time-outs to 5 ms",
        RetainMeans::Yielding => "a thread of the lowest class",
    }
}

/// Whether there can be yielding threads, whether they can join their cgroup, and what a halt costs.
fn try_yielding(
    vcpus: &CpuSet,
    group: &IdleGroup,
    measure: bool,
    interrupted: &AtomicBool,
) -> (Result<String, String>, Result<String, String>, Option<HaltCost>) {
    let on: CpuSet = vcpus.iter().take(2).collect();
    let yields = match start_yielding(&on, group, &GuestParams::default(), |_| None) {
        Ok(yields) => yields,
        Err(error) => return (Err(error.to_string()), Err("nothing could be put into it".to_owned()), None),
    };
    let idle = match yields.idle_means() {
        IdleMeans::CpuIdle => Ok("yielding threads lose to every cgroup".to_owned()),
        IdleMeans::ClassOnly => {
            let mut why = group.fallback().into_iter().chain(yields.fallbacks());
            Err(why.find(|found| found.wanted == "cpu.idle=1").map_or_else(String::new, |found| found.why.clone()))
        }
    };
    let detail = match yields.class() {
        YieldClass::Idle => "SCHED_IDLE".to_owned(),
        YieldClass::Nice19 => yields.fallbacks().first().map(ToString::to_string).unwrap_or_default(),
    };
    let bench = Bench::new(&yields, &on, GAP_BRIDGED).filter(|bench| measure && bench.can(Setting::C));
    let halt = bench.and_then(|bench| halt_cost(&bench, interrupted));
    (Ok(detail), idle, halt)
}

fn halt_cost(bench: &Bench<'_>, interrupted: &AtomicBool) -> Option<HaltCost> {
    let costs = bench.costs(SAMPLES, || !interrupted.load(Ordering::Relaxed)).ok()??;
    Some(HaltCost {
        gap_ns: Nanos::from(bench.gap).0,
        retained_p50_ns: costs.retained_p50.0,
        retained_p99_ns: costs.retained_p99.0,
        halted_p50_ns: costs.halted_p50.0,
        halted_p99_ns: costs.halted_p99.0,
        halting_costs: !halting_is_free(&costs),
    })
}

fn left_behind() -> Vec<String> {
    let journals = own_journals().unwrap_or_default();
    let dead = journals.iter().filter(|path| gleaner_act::is_abandoned(path));
    dead.map(|path| path.display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::idle;
    use gleaner_report::MachineFacts;
    use std::fs;

    fn machine(hypervisor: Option<&str>) -> MachineFacts {
        MachineFacts {
            hypervisor: hypervisor.map(str::to_owned),
            kernel: "6.1".into(),
            vcpus_online: 4,
            vcpus_allowed: "0-3".into(),
            idle_driver: None,
        }
    }

    fn halt(halting_costs: bool) -> HaltCost {
        HaltCost {
            gap_ns: 1,
            retained_p50_ns: 1,
            retained_p99_ns: 1,
            halted_p50_ns: 1,
            halted_p99_ns: 1,
            halting_costs,
        }
    }

    #[test]
    fn haltpoll_polls_only_where_it_has_a_limit() {
        for (limit, told, why) in [
            (Some("0\n"), "does not poll", "comes back as fast"),
            (Some("200000\n"), "polls for up to 200us", "already polls"),
            (None, "governor haltpoll", "already polls"),
        ] {
            let driver = idle("haltpoll", "haltpoll", limit);
            assert!(driver.contains(told), "{driver}");
            let machine = MachineFacts { idle_driver: Some(driver), ..machine(Some("KVM")) };
            let works = [capability("yielding", Ok(String::new()))];
            let steal = StealFacts { sampled_ns: 1, reported_ratio: None };
            let verdict = verdict(&machine, &CpuSet::first(4), Some(&halt(false)), (steal, None), &works);
            assert!(verdict.text.contains(why), "{limit:?}: {}", verdict.text);
        }
        assert_eq!(idle("acpi_idle", "menu", Some("0")), "acpi_idle, governor menu");
    }

    #[test]
    fn who_cannot_poll_is_told_how_the_kernel_could() {
        let sys = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = sys.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let kvm = machine(Some("KVM"));
        let yields = [capability("yielding", Ok(String::new())), capability("haltpoll", Err("no driver".into()))];
        file("devices/system/cpu/cpuidle/available_governors", "menu\n");
        let told = advice(sys.path(), &kvm, &yields).unwrap();
        assert!(told.contains("modprobe cpuidle-haltpoll force=1") && told.contains("by PM QoS"), "{told}");
        file("devices/system/cpu/cpuidle/available_governors", "ladder menu haltpoll \n");
        file("module/cpuidle_haltpoll/parameters/force", "N\n");
        let told = advice(sys.path(), &kvm, &yields).unwrap();
        assert!(told.contains("boot with cpuidle_haltpoll.force=1") && told.contains("for 200 us"), "{told}");
        // Who polls, has a driver, or is no KVM guest has no use for it.
        let polls = [capability("idle-poll", Ok(String::new()))];
        let with_driver = MachineFacts { idle_driver: Some("haltpoll".into()), ..kvm.clone() };
        for (machine, actuators) in [(&kvm, &polls[..]), (&with_driver, &yields), (&machine(None), &yields)] {
            assert_eq!(advice(sys.path(), machine, actuators), None);
        }
    }

    #[test]
    fn the_verdict_says_why() {
        let works = [capability("yielding", Ok(String::new()))];
        let steal = |ratio| StealFacts { sampled_ns: 1, reported_ratio: ratio };
        let four = CpuSet::first(4);
        // Also where no hypervisor is, or it lets vCPUs sleep on the CPU itself (MWAIT is passed through): what was
        // measured tells.
        let sleeps =
            |hypervisor| MachineFacts { idle_driver: Some("intel_idle, governor menu".into()), ..machine(hypervisor) };
        for (machine, costs, benefit, word) in [
            (sleeps(None), true, Some(true), "no hypervisor was found"),
            (sleeps(None), false, Some(false), "leaves its sleep states as fast"),
            (sleeps(Some("KVM")), true, Some(true), "would benefit"),
        ] {
            let verdict = verdict(&machine, &four, Some(&halt(costs)), (steal(None), None), &works);
            assert!(verdict.would_benefit == benefit && verdict.text.contains(word), "{}", verdict.text);
        }
        for (vcpus, halt, steal, actuators, benefit, word) in [
            (&CpuSet::first(1), None, steal(None), &works[..], Some(false), "one vCPU"),
            (&four, None, steal(None), &[][..], None, "nothing can be done"),
            (&four, Some(halt(true)), steal(None), &works[..], Some(true), "would benefit"),
            (&four, Some(halt(true)), steal(Some(0.3)), &works[..], None, "contended"),
            (&four, Some(halt(false)), steal(Some(0.0)), &works[..], Some(false), "would win nothing here now"),
        ] {
            let verdict = verdict(&machine(Some("KVM")), vcpus, halt.as_ref(), (steal, None), actuators);
            assert_eq!(verdict.would_benefit, benefit, "{}", verdict.text);
            assert!(verdict.text.contains(word), "{}", verdict.text);
        }
        let dear = HaltCost { halted_p50_ns: 18_000, ..halt(false) };
        let told = verdict(&machine(Some("KVM")), &four, Some(&dear), (steal(None), None), &works);
        assert!(told.would_benefit == Some(false) && told.text.contains("no sooner than a halted vCPU"), "{told:?}");
        // By one late wake-up of a machine that computes, none can be told from another.
        let tail = HaltCost {
            halted_p50_ns: 6_800,
            halted_p99_ns: 58_000,
            retained_p50_ns: 6_700,
            retained_p99_ns: 25_000,
            ..halt(true)
        };
        // Where halting seems free beside others, nobody knows what it costs without them.
        for (halt, busy, benefit) in [
            (tail, Some(0.7), None),
            (tail, None, Some(true)),
            (halt(true), Some(0.7), Some(true)),
            (halt(false), Some(0.7), None),
            (dear, Some(0.7), None),
        ] {
            let told = verdict(&machine(Some("KVM")), &four, Some(&halt), (steal(None), busy), &works);
            assert_eq!(told.would_benefit, benefit, "{}", told.text);
            assert_eq!(told.text.contains("use 70 % of its vCPUs"), benefit.is_none(), "{}", told.text);
        }
    }
}
