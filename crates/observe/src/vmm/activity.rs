//! What vCPU threads got and waited for, and how many of them were queued on each physical CPU, over an interval.
//!
//! Run and wait time are the kernel's own, exact: the first two numbers of `schedstat` at the end less those at the
//! start. The run-queue length (section IV.C of the micro-sliced paper) is *sampled*: again and again the state and CPU
//! of every vCPU thread are read; those that run or wait for the same CPU are queued there. Only vCPUs count, as in the
//! paper; the host's other tasks do not.
//!
//! The moments of sampling are spread unevenly (a golden-ratio sequence), or a tick of the same period would show
//! always the same state. They come at most every millisecond, and as much rarer as it takes to stay below a twentieth
//! of one CPU.

use super::threads::ThreadStat;
use super::{SchedPolicy, Vm};
use gleaner_model::Nanos;
use gleaner_sys::{ProcRoot, reread, schedstat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shortest mean distance of two samples.
const PERIOD: Duration = Duration::from_millis(1);
/// Samples may take one of so many parts of the time.
const COST_SHARE: u32 = 20;
/// The fractional part of the golden ratio: its multiples fill an interval evenly, and keep step with nothing.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// What was seen of the vCPUs between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// How long was watched.
    pub interval: Nanos,
    /// Times the run queues were looked at.
    pub samples: u64,
    /// By thread.
    pub vcpus: BTreeMap<i32, VcpuActivity>,
    /// By physical CPU on which a vCPU was seen: `[n]` is the number of samples with n vCPUs queued (running ones
    /// included). Its sum is [`Self::samples`].
    pub run_queues: BTreeMap<u32, Vec<u64>>,
}

/// One vCPU thread's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcpuActivity {
    /// What the interval added; `None` where the kernel keeps no such counters, or the thread ended.
    pub used: Option<ThreadCounters>,
    /// Its state at the last look; `None` when it was gone before the first.
    pub stat: Option<ThreadStat>,
    /// Samples in which it was queued, by physical CPU.
    pub queued_on: BTreeMap<u32, u64>,
    /// Whether it ended meanwhile.
    pub gone: bool,
}

impl VcpuActivity {
    /// The physical CPU it was queued on most, or used last.
    pub fn main_pcpu(&self) -> Option<u32> {
        let most = self.queued_on.iter().max_by_key(|(_, samples)| **samples).map(|(pcpu, _)| *pcpu);
        most.or(self.stat.map(|stat| stat.last_cpu))
    }

    /// Its scheduling class.
    pub fn policy(&self) -> Option<SchedPolicy> {
        self.stat.map(|stat| stat.policy)
    }
}

/// The kernel's counters of one thread (`schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounters {
    /// Time on a CPU.
    pub run: Nanos,
    /// Time runnable without one.
    pub wait: Nanos,
    /// Times it got one.
    pub runs: u64,
}

impl ThreadCounters {
    /// From the file's text.
    pub fn parse(text: impl AsRef<[u8]>) -> Option<Self> {
        schedstat(text.as_ref()).map(|(run, wait, runs)| Self { run: Nanos(run), wait: Nanos(wait), runs })
    }

    fn since(self, earlier: Self) -> Self {
        let runs = self.runs.saturating_sub(earlier.runs);
        Self { run: self.run - earlier.run, wait: self.wait - earlier.wait, runs }
    }

    /// Mean wait before it got a CPU; `None` where it never did.
    pub fn wait_per_run(self) -> Option<Nanos> {
        (self.runs > 0).then(|| Nanos(self.wait.0 / self.runs))
    }
}

/// A vCPU thread's files, kept open: after its death they give an error, even when the id has been given to another.
struct Watched {
    tid: i32,
    stat: File,
    schedstat: Option<File>,
    before: Option<ThreadCounters>,
    seen: VcpuActivity,
}

impl Watched {
    fn open(root: &ProcRoot, pid: i32, tid: i32) -> Option<Self> {
        let folder = root.proc.join(format!("{pid}/task/{tid}"));
        let schedstat = File::open(folder.join("schedstat")).ok();
        let stat = File::open(folder.join("stat")).ok()?;
        Some(Self { tid, stat, schedstat, before: None, seen: VcpuActivity::default() })
    }

    fn counters(&self, buffer: &mut Vec<u8>) -> Option<ThreadCounters> {
        ThreadCounters::parse(reread(self.schedstat.as_ref()?, buffer).ok()?)
    }

    fn look(&mut self, buffer: &mut Vec<u8>) -> Option<ThreadStat> {
        let read = reread(&self.stat, buffer).ok().filter(|text| !text.is_empty());
        let stat = read.and_then(ThreadStat::parse).filter(|stat| !stat.is_dead());
        match stat {
            Some(stat) => self.seen.stat = Some(stat),
            None => self.seen.gone = true,
        }
        stat
    }
}

/// Watches the vCPUs of `vms` for a while; ends early when `stop` is set.
pub fn watch(root: &ProcRoot, vms: &[Vm], length: Duration, stop: &AtomicBool) -> Activity {
    let threads = vms.iter().flat_map(|vm| vm.vcpus.iter().map(|vcpu| (vm.pid, vcpu.tid)));
    let mut activity = Activity::default();
    let mut watched = Vec::new();
    for (pid, tid) in threads {
        match Watched::open(root, pid, tid) {
            Some(found) => watched.push(found),
            None => _ = activity.vcpus.insert(tid, VcpuActivity { gone: true, ..VcpuActivity::default() }),
        }
    }
    let mut buffer = Vec::new();
    let began = Instant::now();
    for thread in &mut watched {
        thread.before = thread.counters(&mut buffer);
    }
    let end = began + length;
    while !stop.load(Ordering::Relaxed) && !watched.is_empty() {
        let now = Instant::now();
        sample(&mut watched, &mut activity, &mut buffer);
        let period = (now.elapsed() * COST_SHARE).max(PERIOD);
        let uneven = period.mul_f64(0.5 + (activity.samples as f64 * GOLDEN).fract());
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(uneven.min(left));
    }
    for mut thread in watched {
        let after = thread.counters(&mut buffer).filter(|_| !thread.seen.gone);
        thread.seen.used = after.zip(thread.before).map(|(after, before)| after.since(before));
        activity.vcpus.insert(thread.tid, thread.seen);
    }
    activity.interval = Nanos::from(began.elapsed());
    activity.count_waits_in_progress();
    activity
}

impl Activity {
    /// The kernel counts a wait once it is over. A vCPU that could run at every look and never did, while another ran
    /// on its CPU, waited for all of the interval.
    fn count_waits_in_progress(&mut self) {
        let ran = |vcpu: &&VcpuActivity| vcpu.used.is_some_and(|used| used.run > Nanos::ZERO);
        let ran_on: BTreeSet<u32> = self.vcpus.values().filter(ran).filter_map(VcpuActivity::main_pcpu).collect();
        for vcpu in self.vcpus.values_mut() {
            let queued: u64 = vcpu.queued_on.values().sum();
            let displaced = vcpu.main_pcpu().is_some_and(|pcpu| ran_on.contains(&pcpu));
            let starved = queued > 0 && queued == self.samples && displaced;
            if let Some(used) = vcpu.used.as_mut().filter(|used| starved && **used == ThreadCounters::default()) {
                used.wait = self.interval;
            }
        }
    }
}

fn sample(watched: &mut [Watched], activity: &mut Activity, buffer: &mut Vec<u8>) {
    let mut queued: BTreeMap<u32, usize> = BTreeMap::new();
    for thread in watched.iter_mut().filter(|thread| !thread.seen.gone) {
        let Some(stat) = thread.look(buffer) else { continue };
        // A CPU that was used and is idle counts too: with a queue of none.
        let length = queued.entry(stat.last_cpu).or_default();
        if stat.is_runnable() {
            *length += 1;
            *thread.seen.queued_on.entry(stat.last_cpu).or_default() += 1;
        }
    }
    for pcpu in queued.keys() {
        // Until now nobody was seen there.
        activity.run_queues.entry(*pcpu).or_insert_with(|| vec![activity.samples]);
    }
    for (pcpu, lengths) in &mut activity.run_queues {
        let length = queued.get(pcpu).copied().unwrap_or(0);
        if lengths.len() <= length {
            lengths.resize(length + 1, 0);
        }
        lengths[length] += 1;
    }
    activity.samples += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmm::{PassedOver, discover};
    use gleaner_model::{CpuSet, VcpuId};
    use rustix::thread::{CpuSet as RawSet, sched_getaffinity, sched_setaffinity};
    use std::sync::Arc;

    #[test]
    fn counters_are_three_numbers() {
        let parsed = ThreadCounters::parse("7000 5000 2\n").unwrap();
        assert_eq!((parsed.wait_per_run(), parsed.runs), (Some(Nanos(2500)), 2));
        assert_eq!(ThreadCounters::default().wait_per_run(), None);
        assert_eq!(ThreadCounters::parse("1 2"), None);
    }

    #[test]
    fn a_vcpu_that_starves_throughout_waits_for_all_of_it() {
        let counted =
            |run: u64, wait: u64, runs: u64| Some(ThreadCounters { run: Nanos(run), wait: Nanos(wait), runs });
        let vcpu = |used, queued_on: &[(u32, u64)]| VcpuActivity {
            used,
            queued_on: queued_on.iter().copied().collect(),
            ..VcpuActivity::default()
        };
        let vcpus = BTreeMap::from([
            (1, vcpu(counted(9_000, 0, 1), &[(0, 10)])),
            (2, vcpu(counted(0, 0, 0), &[(0, 10)])),
            // Asleep at one look; alone on its CPU; counted by the kernel; without counters.
            (3, vcpu(counted(0, 0, 0), &[(0, 9)])),
            (4, vcpu(counted(0, 0, 0), &[(1, 10)])),
            (5, vcpu(counted(0, 7, 0), &[(0, 10)])),
            (6, vcpu(None, &[(0, 10)])),
        ]);
        let mut seen = Activity { interval: Nanos(10_000), samples: 10, vcpus, ..Activity::default() };
        seen.count_waits_in_progress();
        let waits: Vec<_> = seen.vcpus.values().map(|vcpu| vcpu.used.map(|used| used.wait.0)).collect();
        assert_eq!(waits, [Some(0), Some(10_000), Some(0), Some(0), Some(7), None]);
    }

    #[test]
    fn a_thread_that_is_gone_is_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let vcpu = |tid| crate::vmm::VcpuThread {
            index: 0,
            tid,
            name: "x".into(),
            start_time_ticks: 1,
            allowed: None,
            cgroup: None,
        };
        let vm = Vm {
            name: "x".into(),
            called: "x".into(),
            pid: 5,
            start_time_ticks: 1,
            vmm: crate::vmm::Vmm::Kvm,
            accelerator: None,
            cgroup: None,
            vcpus: vec![vcpu(6)],
            notes: vec![],
        };
        let root = ProcRoot::below(folder.path());
        let seen = watch(&root, &[vm], Duration::from_millis(20), &AtomicBool::new(false));
        assert!(seen.vcpus[&6].gone && seen.run_queues.is_empty(), "{seen:?}");
    }

    /// Two busy threads with a vCPU's name on one CPU, a sleeping one beside them: this process is a VM.
    #[test]
    fn two_vcpus_on_a_machines_cpu_queue_there() {
        let first = (0..RawSet::MAX_CPU).find(|cpu| sched_getaffinity(None).unwrap().is_set(*cpu)).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let spawn = |index: u32, busy: bool| {
            let end = Arc::clone(&end);
            let body = move || {
                let mut one = RawSet::new();
                one.set(first);
                sched_setaffinity(None, &one).unwrap();
                while !end.load(Ordering::Relaxed) {
                    if !busy {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
            };
            std::thread::Builder::new().name(format!("fc_vcpu {index}")).spawn(body).unwrap()
        };
        let threads = [spawn(0, true), spawn(1, true), spawn(2, false)];
        std::thread::sleep(Duration::from_millis(30));
        let root = ProcRoot::default();
        let pid = i32::try_from(std::process::id()).unwrap();
        let vms = discover(&root, &PassedOver::default()).unwrap();
        let vm = vms.into_iter().find(|vm| vm.pid == pid).expect("its threads have vCPUs' names");
        let seen = watch(&root, std::slice::from_ref(&vm), Duration::from_millis(400), &AtomicBool::new(false));
        end.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }

        let pcpu = u32::try_from(first).unwrap();
        assert_eq!(vm.vcpus.len(), 3, "{vm:?}");
        assert_eq!(vm.vcpus[0].allowed, Some(CpuSet::from_iter([VcpuId(pcpu)])));
        let lengths = &seen.run_queues[&pcpu];
        assert_eq!(lengths.iter().sum::<u64>(), seen.samples);
        let two_or_more: u64 = lengths.iter().skip(2).sum();
        assert!(two_or_more * 10 > seen.samples * 9, "{seen:?}");
        let of = |index: usize| &seen.vcpus[&vm.vcpus[index].tid];
        let (busy, asleep) = (of(0).used.unwrap(), of(2).used.unwrap());
        assert!(busy.wait.as_f64() > 0.2 * seen.interval.as_f64(), "{seen:?}");
        assert!(busy.run > asleep.run.times(5), "{seen:?}");
        assert_eq!(of(0).main_pcpu(), Some(pcpu));
    }
}
