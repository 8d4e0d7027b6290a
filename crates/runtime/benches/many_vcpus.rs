//! What a daemon's window costs on a machine that is larger than ours: 256 vCPUs, 10,000 threads in 200 groups.
//!
//! `cargo bench -p gleaner-runtime --bench many_vcpus [-- --groups N --threads N --vcpus N --windows N]`
//!
//! `/proc` is a made-up tree on a file system in memory. Its files are cheaper to read than the kernel's, and every
//! thread is read in each window, where a real daemon reads a quarter. Each policy then decides on its group's window.

#![allow(missing_docs, reason = "a benchmark")]

use gleaner_decide::guest::{GuestParams, GuestPolicy, GuestSetup};
use gleaner_model::{CpuSet, Nanos, Policy, Profile, RetainMeans, Topology, Window};
use gleaner_observe::{Observer, ObserverChoice, ObserverConfig, ProcRoot};
use gleaner_sys::thread_cpu_time;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const OWNER: usize = 100_000;

#[derive(Clone, Copy)]
struct Size {
    vcpus: usize,
    groups: usize,
    threads: usize,
    windows: usize,
}

fn main() {
    let size = Size {
        vcpus: argument("--vcpus", 256),
        groups: argument("--groups", 200),
        threads: argument("--threads", 50),
        windows: argument("--windows", 20),
    };
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let root = ProcRoot::below(folder.path());
    make(&root, size);
    let [observing, deciding] = windows(&root, size);
    println!("{} vCPUs, {} groups of {} threads, CPU time of a window:", size.vcpus, size.groups, size.threads);
    println!("  observing {:7.2} ms, of a tree in memory", median_ms(observing));
    println!("  deciding  {:7.2} ms", median_ms(deciding));
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
    let (mut observing, mut deciding) = (Vec::new(), Vec::new());
    for n in 1..=size.windows {
        stat(root, size, n);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let before = thread_cpu_time();
        let seen = observer.windows(&[]).expect("windows");
        observing.push(thread_cpu_time() - before);
        assert!(seen.len() == size.groups && seen.iter().all(|window| window.vcpus.len() == size.vcpus));
        let before = thread_cpu_time();
        let decided: usize = policies.iter_mut().zip(&seen).map(|(policy, window)| decide(policy, window)).sum();
        deciding.push(thread_cpu_time() - before);
        std::hint::black_box(decided);
    }
    [observing, deciding]
}

fn decide(policy: &mut GuestPolicy, window: &Window) -> usize {
    policy.step(window).len()
}

fn policy(vcpus: &CpuSet) -> GuestPolicy {
    let mut policy = GuestPolicy::of(GuestSetup {
        policy: Policy::Retain,
        profile: Profile::Balanced,
        params: GuestParams { retention_trials: false, ..GuestParams::default() },
        costs: None,
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

fn median_ms(mut times: Vec<Nanos>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_f64() / 1e6)
}
