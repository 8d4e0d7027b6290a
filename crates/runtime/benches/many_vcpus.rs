//! What a daemon's window costs on a machine that is larger than ours: 256 vCPUs, 10,000 threads in 200 groups. Ten of
//! these do something.
//!
//! `cargo bench -p gleaner-runtime --bench many_vcpus [-- --groups N --busy N --threads N --vcpus N --windows N]`
//!
//! `/proc` is a made-up tree on a file system in memory. Its files are cheaper to read than the kernel's, and so are
//! the processes' clocks. Each policy then decides on its group's window; a quiet group rests meanwhile, as in a
//! daemon.

use gleaner_decide::guest::{GuestParams, GuestPolicy, GuestSetup};
use gleaner_model::{CpuSet, Nanos, Policy, Profile, RetainMeans, Topology};
use gleaner_observe::{Observer, ObserverChoice, ObserverConfig, ProcRoot, Seen};
use gleaner_runtime::{GroupId, Resting};
use gleaner_sys::thread_cpu_time;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const OWNER: usize = 100_000;
/// The clock of processes that do something, and how many these are.
static CLOCK_NS: AtomicU64 = AtomicU64::new(1_000_000);
static BUSY: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
struct Size {
    vcpus: usize,
    groups: usize,
    busy: usize,
    threads: usize,
    windows: usize,
}

fn main() {
    let size = Size {
        vcpus: argument("--vcpus", 256),
        groups: argument("--groups", 200),
        busy: argument("--busy", 10),
        threads: argument("--threads", 50),
        windows: argument("--windows", 40),
    };
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let root = ProcRoot::below(folder.path());
    make(&root, size);
    let [observing, deciding] = windows(&root, size);
    let Size { vcpus, groups, busy, threads, .. } = size;
    println!("{vcpus} vCPUs, {groups} groups of {threads} threads, {busy} of them busy, CPU time of a window:");
    println!("  observing {}, of a tree in memory", in_words(observing));
    println!("  deciding  {}", in_words(deciding));
}

/// What a process has taken by its own clock: only the first ones go on.
#[expect(clippy::unnecessary_wraps, reason = "an observer's process may be gone")]
fn clock(pid: i32) -> Option<Nanos> {
    let goes_on = u64::from(pid.unsigned_abs()) <= 1000 * BUSY.load(Ordering::Relaxed);
    Some(Nanos(if goes_on { CLOCK_NS.load(Ordering::Relaxed) } else { 1_000_000 }))
}

fn argument(name: &str, default: usize) -> usize {
    let mut words = std::env::args().skip_while(|word| word != name).skip(1);
    words.next().and_then(|word| word.parse().ok()).unwrap_or(default)
}

fn windows(root: &ProcRoot, size: Size) -> [Vec<Nanos>; 2] {
    let config = ObserverConfig {
        root: root.clone(),
        owner_pid: i32::try_from(OWNER).unwrap_or(0),
        groups_max: size.groups,
        process_clock: Some(clock),
        ..ObserverConfig::default()
    };
    let (mut observer, _) = Observer::new(ObserverChoice::Procfs, &config).expect("an observer");
    observer.remove_group(0);
    for group in 0..size.groups {
        assert!(observer.add_group(&[pid(group)], None));
    }
    observer.start(&[]).expect("it starts");
    let vcpus = CpuSet::first(u32::try_from(size.vcpus).unwrap_or(1));
    let mut policies: Vec<GuestPolicy> = (0..size.groups).map(|_| policy(&vcpus)).collect();
    let mut resting = Resting::default();
    BUSY.store(size.busy as u64, Ordering::Relaxed);
    let (mut observing, mut deciding) = (Vec::new(), Vec::new());
    for n in 1..=size.windows {
        stat(root, size, n);
        work(root, size, n);
        std::thread::sleep(std::time::Duration::from_millis(100));
        let before = thread_cpu_time();
        let seen = observer.look(&[]).expect("it looks");
        observing.push(thread_cpu_time() - before);
        assert!(seen.groups.len() == size.groups && seen.machine.vcpus.len() == size.vcpus);
        let before = thread_cpu_time();
        std::hint::black_box(decide(&mut policies, &mut resting, seen));
        deciding.push(thread_cpu_time() - before);
    }
    // The groups were found in the first one.
    [observing.split_off(1), deciding.split_off(1)]
}

/// As a daemon does it.
fn decide(policies: &mut [GuestPolicy], resting: &mut Resting, mut seen: Seen) -> usize {
    let mut decided = 0;
    for (place, policy) in policies.iter_mut().enumerate() {
        let id = GroupId(place as u64);
        let rests = seen.groups[place].quiet && policy.rests();
        if rests && !resting.is_due(id, policy.retains()) {
            resting.join(id, || std::mem::take(&mut seen.groups[place]));
            continue;
        }
        let all = if rests { resting.leave_after(id, &seen.machine) } else { None };
        let last = if all.is_none() { seen.take(place) } else { None };
        let windows = all.or_else(|| resting.leave(id)).into_iter().chain(last);
        decided += windows.map(|window| policy.step(&window).len()).sum::<usize>();
    }
    resting.add(&seen.machine);
    decided
}

fn policy(vcpus: &CpuSet) -> GuestPolicy {
    let mut policy = GuestPolicy::of(GuestSetup {
        policy: Policy::Retain,
        profile: Profile::Balanced,
        params: GuestParams { retention_trials: false, ..GuestParams::default() },
        vcpus: vcpus.clone(),
        means: Some(RetainMeans::Haltpoll),
        timeout: None,
        budget: None,
        topology: Topology::default(),
    });
    policy.begin();
    policy
}

fn pid(group: usize) -> i32 {
    i32::try_from((group + 1) * 1000).unwrap_or(0)
}

/// Every group's threads; each has run a little.
fn make(root: &ProcRoot, size: Size) {
    let write = |path: String, text: &str| {
        let path = root.proc.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    fs::create_dir_all(root.sys.join("devices/system/cpu")).expect("a folder");
    fs::write(root.sys.join("devices/system/cpu/online"), format!("0-{}\n", size.vcpus - 1)).expect("a file");
    let thread = |pid: usize, tid: usize| {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t100\nnonvoluntary_ctxt_switches:\t3\n";
        write(format!("{pid}/task/{tid}/schedstat"), "1000000 5000 100\n");
        write(format!("{pid}/task/{tid}/status"), status);
        write(format!("{pid}/task/{tid}/stat"), &format!("{tid} (x) S 1 {}77 0\n", "0 ".repeat(17)));
        write(format!("{pid}/task/{tid}/children"), "");
    };
    thread(OWNER, OWNER);
    for group in 0..size.groups {
        let first = (group + 1) * 1000;
        (0..size.threads).for_each(|n| thread(first, first + n));
        write(format!("{first}/stat"), &format!("{first} (x) S 1 {}77 0\n", "0 ".repeat(17)));
    }
    stat(root, size, 0);
}

/// Of the whole machine, as of the `n`th window: half the time of each vCPU was idle.
fn stat(root: &ProcRoot, size: Size, n: usize) {
    let ticks = n * 3;
    let mut text = format!("cpu  {ticks} 0 0 {ticks} 0 0 0 0 0 0\n");
    for cpu in 0..size.vcpus {
        let _ = writeln!(text, "cpu{cpu} {ticks} 0 0 {ticks} 0 0 0 0 0 0");
    }
    let _ = writeln!(text, "intr 5 0\nctxt {}\nbtime 1\nprocesses 5\nprocs_running 1", n * 100_000);
    fs::write(root.proc.join("stat"), text).expect("a file");
}

/// Every thread of the busy groups has run.
fn work(root: &ProcRoot, size: Size, n: usize) {
    CLOCK_NS.store(1_000_000 * (n as u64 + 1), Ordering::Relaxed);
    for first in (1..=size.busy).map(|group| group * 1000) {
        for tid in first..first + size.threads {
            let file = root.proc.join(format!("{first}/task/{tid}/schedstat"));
            fs::write(file, format!("{} 5000 {}\n", 1_000_000 + 20_000 * n, 100 + n)).expect("a file");
        }
    }
}

fn in_words(mut times: Vec<Nanos>) -> String {
    times.sort_unstable();
    let ms = |time: Option<&Nanos>| time.map_or(0.0, |time| time.as_f64() / 1e6);
    let mean = times.iter().map(|time| time.as_f64() / 1e6).sum::<f64>() / times.len().max(1) as f64;
    format!("{:6.2} ms (median; mean {mean:.2}, most {:.2})", ms(times.get(times.len() / 2)), ms(times.last()))
}
