//! The machine as Gleaner might have changed it: cgroups, affinities, scheduling classes, processes, its own files.
//!
//! Other runs of Gleaner may go on beside a test. What they made carries their pid in its name and is left out;
//! everything else is compared.

use super::text_of;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Control files of a cgroup that Gleaner could have to do with.
const CONTROLS: [&str; 7] =
    ["cpuset.cpus", "cpuset.mems", "cpu.idle", "cpu.shares", "cpu.weight", "cgroup.subtree_control", "cgroup.type"];

/// A thread for ever: its id and when it started.
type Thread = (i32, u64);

/// The whole machine at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Every cgroup with its control files.
    pub cgroups: BTreeMap<PathBuf, Vec<(String, String)>>,
    /// Every thread's affinity, nice value and scheduling class.
    pub threads: BTreeMap<Thread, String>,
}

impl Machine {
    /// Looks at it; what other runs than those of `our_pids` made is left out.
    pub fn look(our_pids: &BTreeSet<i32>) -> Self {
        let mut cgroups = BTreeMap::new();
        for mount in cgroup_mounts() {
            walk(&mount, our_pids, &mut cgroups);
        }
        let threads = pids().into_iter().flat_map(threads_of).filter_map(|thread| Some((thread, look_at(thread.0)?)));
        Self { cgroups, threads: threads.collect() }
    }

    /// What differs in `after`, in words; threads count where they are on both sides.
    pub fn difference(&self, after: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for path in self.cgroups.keys().chain(after.cgroups.keys()).collect::<BTreeSet<_>>() {
            let (was, is) = (self.cgroups.get(path), after.cgroups.get(path));
            // Others' cgroups come and go (sessions, services); Gleaner's carry its name.
            let counts = was.is_some() && is.is_some() || path.to_string_lossy().contains("gleaner");
            if was != is && counts {
                found.push(format!("cgroup {}: was {was:?}, is {is:?}", path.display()));
            }
        }
        for (thread, was) in &self.threads {
            if let Some(is) = after.threads.get(thread).filter(|is| *is != was) {
                found.push(format!("thread {} ({}): was {was}, is {is}", thread.0, comm(thread.0)));
            }
        }
        found
    }
}

fn cgroup_mounts() -> Vec<PathBuf> {
    let mounts = text_of("/proc/self/mounts");
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.filter(|fields| fields[2] == "cgroup" || fields[2] == "cgroup2").map(|fields| fields[1].into()).collect()
}

fn walk(folder: &Path, our_pids: &BTreeSet<i32>, into: &mut BTreeMap<PathBuf, Vec<(String, String)>>) {
    let read = |name: &&str| Some(((*name).to_owned(), fs::read_to_string(folder.join(name)).ok()?));
    into.insert(folder.to_owned(), CONTROLS.iter().filter_map(read).collect());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && run_of(&name).is_none_or(|pid| our_pids.contains(&pid)) {
            walk(&entry.path(), our_pids, into);
        }
    }
}

/// The pid in the name of something that a run made.
fn run_of(name: &str) -> Option<i32> {
    let id = name.strip_prefix("gleaner-")?;
    id.strip_prefix("yield-").unwrap_or(id).split('-').next()?.parse().ok()
}

/// The cgroups that a run of process `pid` has made and not removed.
pub fn cgroups_of_run(pid: i32) -> Vec<PathBuf> {
    let all = Machine::look(&BTreeSet::from([pid])).cgroups;
    let names = |path: &PathBuf| run_of(&path.file_name()?.to_string_lossy());
    all.into_keys().filter(|path| names(path) == Some(pid)).collect()
}

/// The journals in `dir` of a run of process `pid`.
pub fn journals_of_run(dir: &Path, pid: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&format!("{pid}-"))))
        .collect()
}

/// What others than the program used of the machine during a run, the hypervisor's other guests included.
pub fn others_share(report: &serde_json::Value) -> f64 {
    let vcpus = report["vcpu_times"].as_array().unwrap();
    let sum = |key: &str| vcpus.iter().map(|vcpu| vcpu[key].as_f64().unwrap()).sum::<f64>();
    let busy = sum("busy_ns") + sum("steal_ns");
    (busy - report["cpu_time_ns"].as_f64().unwrap()) / (busy + sum("halted_ns") + sum("retained_ns"))
}

/// The share of all CPUs' time that is used while this test waits for a moment: others' doing.
pub fn busy_share() -> f64 {
    let times = || -> (f64, f64) {
        let stat = text_of("/proc/stat");
        let fields: Vec<f64> = stat.lines().next().unwrap().split(' ').filter_map(|field| field.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)); guest time is in user already.
        (fields[..8].iter().sum(), fields[3] + fields[4])
    };
    let (all_before, idle_before) = times();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (all, idle) = times();
    1.0 - (idle - idle_before) / (all - all_before)
}

/// What keeps idle vCPUs awake, machine-wide: haltpoll's parameters, each vCPU's PM QoS limit.
pub fn idle_values() -> BTreeMap<PathBuf, String> {
    let entries = |dir: &str| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let limits = entries("/sys/devices/system/cpu").map(|cpu| cpu.join("power/pm_qos_resume_latency_us"));
    let files = entries("/sys/module/haltpoll/parameters").chain(limits);
    files.filter_map(|path| Some((path.clone(), fs::read_to_string(&path).ok()?.trim().to_owned()))).collect()
}

/// Ends a test here where another Gleaner has the whole machine's settings: it would wait for what never comes.
#[macro_export]
macro_rules! haltpoll_is_free {
    () => {
        if let Some(pid) = $crate::common::machine::holder_of_haltpoll(std::path::Path::new("/run/gleaner")) {
            gleaner_testing::skip!("another Gleaner holds haltpoll: process {pid}");
        }
    };
}

/// Why no vCPU can be kept awake by the kernel's own means here; `None`: it can.
pub fn why_not_kept_awake() -> Option<String> {
    if !super::is_root() || !Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists() {
        return Some("needs root and a cpuidle driver".to_owned());
    }
    holder_of_haltpoll(Path::new("/run/gleaner")).map(|pid| format!("another Gleaner holds haltpoll: process {pid}"))
}

/// The living process whose journal in `folder` has haltpoll's parameters.
pub fn holder_of_haltpoll(folder: &Path) -> Option<i32> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.strip_suffix(".journal")?.split('-').next()?.parse().ok()?;
        let lives = Path::new(&format!("/proc/{pid}")).exists();
        let holds = fs::read_to_string(entry.path()).is_ok_and(|text| text.contains("module/haltpoll/"));
        Some(pid).filter(|_| lives && holds)
    })
}

/// All pids there are.
pub fn pids() -> Vec<i32> {
    numbers_in("/proc")
}

fn numbers_in(folder: &str) -> Vec<i32> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// The threads of a process.
pub fn threads_of(pid: i32) -> Vec<Thread> {
    let tids = numbers_in(&format!("/proc/{pid}/task"));
    tids.into_iter().filter_map(|tid| Some((tid, stat_field(tid, 22)?))).collect()
}

/// The children of a process.
pub fn children_of(parent: i32) -> Vec<i32> {
    pids().into_iter().filter(|pid| stat_field(*pid, 4) == u64::try_from(parent).ok()).collect()
}

/// A numeric field of /proc/PID/stat, counted from 1 as in proc(5).
pub fn stat_field(pid: i32, number: usize) -> Option<u64> {
    stat_word(pid, number)?.parse().ok()
}

/// The state letter of a process; `None` when it is gone.
pub fn state_of(pid: i32) -> Option<char> {
    stat_word(pid, 3)?.chars().next()
}

fn stat_word(pid: i32, number: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number - 3).map(str::to_owned)
}

/// A thread's name.
pub fn comm(tid: i32) -> String {
    text_of(format!("/proc/{tid}/comm")).trim().to_owned()
}

/// A line of /proc/PID/status.
pub fn status_line(pid: i32, key: &str) -> Option<String> {
    let text = text_of(format!("/proc/{pid}/status"));
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(|value| value.trim().to_owned())
}

/// The CPUs a thread may use, as a list.
pub fn allowed_of(tid: i32) -> Option<String> {
    status_line(tid, "Cpus_allowed_list")
}

fn look_at(tid: i32) -> Option<String> {
    Some(format!("CPUs {}, nice {}, class {}", allowed_of(tid)?, stat_word(tid, 19)?, stat_word(tid, 41)?))
}

/// The command line of a process, with spaces.
pub fn command_line(pid: i32) -> String {
    text_of(format!("/proc/{pid}/cmdline")).replace('\0', " ")
}

/// The guardian of a run, once there is one.
pub fn guardian_of(main: i32) -> Option<i32> {
    children_of(main).into_iter().find(|pid| command_line(*pid).contains(" guardian "))
}
