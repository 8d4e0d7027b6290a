//! Both observers on the same run of a workload whose synchronization is known.
//!
//! The machine is shared and noisy: what other processes do lands in the `/proc` observer's idle periods and on the
//! vCPUs. So each comparison gets a few runs and must hold in one of them; a wrong formula holds in none.

mod support;

use gleaner_model::{CpuSet, Lengths, Nanos, RetainCounters, VcpuWindow, Window};
use gleaner_observe::{Observer, ObserverChoice, ObserverConfig};
use std::time::{Duration, Instant};
use support::{Player, Spinner, alone, bpf_expected, my_cpus, play};

const ROUNDS: u64 = 1500;
const COMPUTE_US: u64 = 150;
const RUNS: usize = 6;
/// CPU seconds per second that others may use in a run that counts.
const MAX_OTHERS: f64 = 0.1;
/// ... and how long it is tried until enough of them were undisturbed.
const LONGEST_SEARCH: Duration = Duration::from_secs(60);
/// /proc/stat counts in these.
const TICK_NS: f64 = 1e7;

#[test]
fn player() {
    play();
}

/// Pairs of threads of a crowd: with three times as many threads as `/proc` reads in a window, each is read in every
/// fourth.
const PAIRS: u64 = 50;
const READ_PER_WINDOW: u64 = 32;
/// A thread's switches arrive at most so many windows late.
const LATE_WINDOWS: usize = 4;

/// Runs the workload under both observers; their windows cover the same time to within their own reading. And how many
/// of its reads had to wait, by its own count.
fn observe_both(spinners: &[Spinner]) -> (Window, Window, f64) {
    let counters = || spinners.iter().map(Spinner::counters).collect::<Vec<RetainCounters>>();
    let config = ObserverConfig::default();
    let open = |choice| Observer::new(choice, &config).unwrap().0;
    let (mut bpf, mut procfs) = (open(ObserverChoice::Bpf), open(ObserverChoice::Procfs));
    let mut player = Player::start(&format!("pingpong:{ROUNDS}:{COMPUTE_US}"));
    for observer in [&mut bpf, &mut procfs] {
        observer.adopted(player.pid());
    }
    bpf.start(&counters()).unwrap();
    procfs.start(&counters()).unwrap();
    player.go();
    let waited: u32 = player.wait_done().parse().unwrap();
    let (bpf, procfs) = (bpf.window(&counters()).unwrap(), procfs.window(&counters()).unwrap());
    player.finish();
    (bpf, procfs, f64::from(waited))
}

fn close(what: &str, a: f64, b: f64, share: f64, slack: f64) -> Result<(), String> {
    let allowed = share * a.abs().max(b.abs()) + slack;
    ((a - b).abs() <= allowed)
        .then_some(())
        .ok_or_else(|| format!("{what}: {a:.0} against {b:.0}, allowed {allowed:.0}"))
}

/// Runs `check` on fresh windows until it holds. Runs during which others took much of the vCPUs say nothing.
fn holds_in_one_of_the_runs(
    spinner: Option<fn(usize) -> Spinner>,
    check: impl Fn(&Window, &Window, f64) -> Result<(), String>,
) {
    let _turn = alone();
    let mut failures = Vec::new();
    let end = Instant::now() + LONGEST_SEARCH;
    while Instant::now() < end {
        let spinners: Vec<Spinner> = spinner.map_or_else(Vec::new, |start| my_cpus().into_iter().map(start).collect());
        let (bpf, procfs, waited) = observe_both(&spinners);
        print(&bpf, &procfs);
        let others: Nanos = bpf.vcpus.iter().map(|vcpu| vcpu.busy - vcpu.work.unwrap()).sum();
        if others.share_of(bpf.length) > MAX_OTHERS {
            std::thread::sleep(Duration::from_millis(500));
            continue;
        }
        match check(&bpf, &procfs, waited) {
            Ok(()) => return,
            Err(failure) => failures.push(failure),
        }
        assert!(failures.len() < RUNS, "in none of {RUNS} runs:\n  {}", failures.join("\n  "));
    }
    gleaner_testing::skip!("needs a machine with idle time: undisturbed runs\n  {}", failures.join("\n  "));
}

/// The figures themselves, for `--nocapture`.
fn print(bpf: &Window, procfs: &Window) {
    for window in [bpf, procfs] {
        let group = &window.group;
        eprintln!(
            "{:?}: length {} cpu {} voluntary {} involuntary {} idle periods {} halts {} {:.0?}",
            window.source,
            window.length,
            group.cpu_time,
            group.voluntary_switches,
            group.involuntary_switches,
            entries(window),
            window.halts.unwrap(),
            window.lengths(&CpuSet::first(1024)),
        );
        for vcpu in &window.vcpus {
            let VcpuWindow { id, busy, retained, halted, steal, .. } = vcpu;
            eprintln!("  {id}: busy {busy} retained {retained} halted {halted} steal {steal}");
        }
    }
}

fn lengths(window: &Window) -> Lengths {
    window.lengths(&CpuSet::first(1024)).unwrap_or(Lengths { l_comp: 0.0, g_comp: 0.0, l_idle: 0.0 })
}

fn entries(window: &Window) -> f64 {
    window.idle_entries.unwrap() as f64
}

/// What both must say alike, whoever holds the idle vCPUs.
fn agree(bpf: &Window, procfs: &Window) -> Result<(), String> {
    close("CPU time", bpf.group.cpu_time.as_f64(), procfs.group.cpu_time.as_f64(), 0.03, 2e6)?;
    let voluntary = |window: &Window| window.group.voluntary_switches as f64;
    close("voluntary switches", voluntary(bpf), voluntary(procfs), 0.02, 20.0)?;
    close("idle periods", entries(bpf), entries(procfs), 0.15, 50.0)?;
    close("l_comp", lengths(bpf).l_comp, lengths(procfs).l_comp, 0.15, 0.0)?;
    close("g_comp", lengths(bpf).g_comp, lengths(procfs).g_comp, 0.05, 0.0)?;
    close("l_idle", lengths(bpf).l_idle, lengths(procfs).l_idle, 0.20, 0.0)
}

/// What the workload is known to do: two computations in each round, and a block, a wake-up and an idle period for each
/// read that had to `wait`.
fn matches_the_workload(bpf: &Window, waited: f64) -> Result<(), String> {
    let computations = 2.0 * ROUNDS as f64;
    let compute = COMPUTE_US as f64 * 1e3;
    if waited < computations / 2.0 {
        return Err(format!("only {waited} waits: the host took the vCPUs away all the time"));
    }
    close("blocking reads", bpf.group.voluntary_switches as f64, waited, 0.02, 20.0)?;
    close("computed", bpf.group.cpu_time.as_f64(), computations * compute, 0.25, 5e6)?;
    let granularity = bpf.group.g_comp.as_ref().unwrap();
    close("granularities", granularity.count() as f64, waited, 0.02, 20.0)?;
    close("median g_comp", granularity.quantile(0.5).unwrap().as_f64(), compute, 0.3, 0.0)?;
    if my_cpus().len() >= 2 {
        let wakeups = bpf.vcpus.iter().filter_map(|vcpu| vcpu.cross_wakeups).sum::<u64>();
        close("cross wake-ups", wakeups as f64, waited, 0.1, 50.0)?;
        close("idle periods", entries(bpf), waited, 0.2, 50.0)?;
    }
    Ok(())
}

/// Times and distributions of one window among themselves.
fn consistent(window: &Window) -> Result<(), String> {
    for vcpu in &window.vcpus {
        let sum = vcpu.busy + vcpu.retained + vcpu.halted + vcpu.steal;
        close(&format!("{} adds up", vcpu.id), sum.as_f64(), window.length.as_f64(), 0.0, 1.0)?;
        // Steal comes in ticks, and interrupts are busy time that no task was charged for.
        close(&format!("{} works", vcpu.id), vcpu.work.unwrap().as_f64(), vcpu.busy.as_f64(), 0.1, 2.0 * TICK_NS)?;
        let idle = vcpu.l_idle.as_ref().unwrap();
        close("idle lengths", idle.count() as f64, vcpu.idle_entries.unwrap() as f64, 0.0, 1.0)?;
        close("idle time", idle.sum().as_f64(), vcpu.idle().as_f64(), 0.05, 20e6)?;
    }
    let work: f64 = window.vcpus.iter().map(|vcpu| vcpu.work.unwrap().as_f64()).sum();
    close("work", work, window.group.cpu_time.as_f64(), 0.0, 1.0)
}

#[test]
fn on_this_machine_both_observers_agree_where_idle_vcpus_halt() {
    if !bpf_expected() {
        return;
    }
    holds_in_one_of_the_runs(None, |bpf, procfs, waited| {
        agree(bpf, procfs)?;
        matches_the_workload(bpf, waited)?;
        consistent(bpf)?;
        let halts = |window: &Window| window.halts.unwrap() as f64;
        close("halts", halts(bpf), halts(procfs), 0.15, 50.0)?;
        close("halts are idle periods", halts(bpf), entries(bpf), 0.02, 10.0)
    });
}

#[test]
fn on_this_machine_both_observers_agree_where_yielding_threads_hold_idle_vcpus() {
    if !bpf_expected() {
        return;
    }
    holds_in_one_of_the_runs(Some(Spinner::start), |bpf, procfs, waited| {
        agree(bpf, procfs)?;
        matches_the_workload(bpf, waited)?;
        consistent(bpf)?;
        let sum = |window: &Window, of: fn(&VcpuWindow) -> f64| window.vcpus.iter().map(of).sum::<f64>();
        let retained = |window: &Window| sum(window, |vcpu| vcpu.retained.as_f64());
        close("retained", retained(bpf), retained(procfs), 0.05, 5e6)?;
        close("halted", sum(bpf, |vcpu| vcpu.halted.as_f64()), 0.0, 0.0, 0.05 * bpf.length.as_f64())?;
        close("displacements", sum(bpf, |vcpu| vcpu.yield_switches.unwrap() as f64), entries(bpf), 0.05, 20.0)
    });
}

#[test]
fn on_this_machine_both_observers_agree_where_yielding_threads_nap() {
    // Yields through most of an idle period of 150 us, then naps into the work that follows.
    const PATIENCE: Duration = Duration::from_micros(COMPUTE_US * 2 / 3);
    const NAP: Duration = Duration::from_micros(COMPUTE_US / 2);
    if !bpf_expected() {
        return;
    }
    let napping = |cpu| Spinner::napping(cpu, PATIENCE, NAP);
    holds_in_one_of_the_runs(Some(napping), |bpf, procfs, waited| {
        agree(bpf, procfs)?;
        matches_the_workload(bpf, waited)?;
        let halts = |window: &Window| window.halts.unwrap() as f64;
        close("halts", halts(bpf), halts(procfs), 0.15, 50.0)?;
        if halts(bpf) > ROUNDS as f64 / 2.0 { Ok(()) } else { Err(format!("only {} halts", halts(bpf))) }
    });
}

/// CPU time in nanoseconds and voluntary switches since the start, as of one window of each observer.
#[derive(Clone, Copy, Default)]
struct Seen {
    procfs: (f64, f64),
    bpf: (f64, f64),
}

/// A crowd watched from its first round until all of it has been read once more. `/proc` is read first, so what it has
/// seen, BPF has.
fn watch_a_crowd() -> Vec<Seen> {
    let config = ObserverConfig::default();
    let open = |choice| Observer::new(choice, &config).unwrap().0;
    let (mut bpf, mut procfs) = (open(ObserverChoice::Bpf), open(ObserverChoice::Procfs));
    let mut player = Player::start(&format!("crowd:{PAIRS}:300:50"));
    for observer in [&mut bpf, &mut procfs] {
        observer.adopted(player.pid());
        observer.start(&[]).unwrap();
    }
    player.go();
    let mut seen = vec![Seen::default()];
    let mut look = || {
        let mut now = seen.last().copied().unwrap_or_default();
        let windows = [procfs.window(&[]).unwrap(), bpf.window(&[]).unwrap()];
        for ((cpu_ns, switches), window) in [&mut now.procfs, &mut now.bpf].into_iter().zip(&windows) {
            *cpu_ns += window.group.cpu_time.as_f64();
            *switches += window.group.voluntary_switches as f64;
        }
        seen.push(now);
        windows[0].group.threads
    };
    std::thread::scope(|scope| {
        let done = scope.spawn(|| player.wait_done());
        while !done.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            look();
        }
    });
    let threads = (0..LATE_WINDOWS).map(|_| look()).max();
    assert!(threads > Some(3 * READ_PER_WINDOW), "{threads:?} threads");
    player.finish();
    seen
}

/// Both count the same events and not the same idleness, so that what else the machine does moves neither.
#[test]
fn on_this_machine_both_observers_agree_on_more_threads_than_proc_reads_in_a_window() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let seen = watch_a_crowd();
    let (last, windows) = (seen[seen.len() - 1], seen.len() - 1);
    eprintln!("{windows} windows; /proc {:?}, BPF {:?}", last.procfs, last.bpf);
    close("CPU time", last.bpf.0, last.procfs.0, 0.03, 2e6).unwrap();
    close("voluntary switches", last.bpf.1, last.procfs.1, 0.02, 20.0).unwrap();
    // The tolerance of the whole, in every window.
    let slack = 0.02 * last.bpf.1 + 20.0;
    for (window, now) in seen.iter().enumerate() {
        assert!(now.procfs.1 <= now.bpf.1 + slack, "window {window}: /proc {} before BPF {}", now.procfs.1, now.bpf.1);
        let before = seen[window.saturating_sub(LATE_WINDOWS)].bpf.1;
        assert!(now.procfs.1 + slack >= before, "window {window}: /proc {} later than {before}", now.procfs.1);
    }
    let late = seen.iter().any(|now| now.procfs.1 + slack < now.bpf.1);
    assert!(late, "no thread was passed over in any window: that is not what this test is about");
}
