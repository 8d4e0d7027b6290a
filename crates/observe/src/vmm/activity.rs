//! What vCPU threads got and waited for over an interval.
//!
//! Run and wait time are the kernel's own, exact: the first two numbers of `schedstat` at the end less those at the
//! start.

use super::threads::ThreadStat;
use super::{SchedPolicy, Vm};
use gleaner_model::Nanos;
use gleaner_sys::{ProcRoot, reread, schedstat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::time::Instant;

/// What was seen of the vCPUs between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// How long was watched.
    pub interval: Nanos,
    /// By thread.
    pub vcpus: BTreeMap<i32, VcpuActivity>,
}

/// One vCPU thread's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcpuActivity {
    /// What the interval added; `None` where the kernel keeps no such counters, or the thread ended.
    pub used: Option<ThreadCounters>,
    /// Its state at the last look; `None` when it was gone before the first.
    pub stat: Option<ThreadStat>,
    /// Whether it could run at both looks.
    pub runnable: bool,
    /// Whether it ended meanwhile.
    pub gone: bool,
}

impl VcpuActivity {
    /// The physical CPU that it is on, or was on last.
    pub fn pcpu(&self) -> Option<u32> {
        self.stat.map(|stat| stat.last_cpu)
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
struct WatchedVcpu {
    tid: i32,
    stat: File,
    schedstat: Option<File>,
    before: Option<ThreadCounters>,
    was_runnable: bool,
}

impl WatchedVcpu {
    fn open(root: &ProcRoot, pid: i32, tid: i32) -> Option<Self> {
        let folder = root.proc.join(format!("{pid}/task/{tid}"));
        let schedstat = File::open(folder.join("schedstat")).ok();
        let stat = File::open(folder.join("stat")).ok()?;
        let mut vcpu = Self { tid, stat, schedstat, before: None, was_runnable: false };
        vcpu.was_runnable = vcpu.state()?.is_runnable();
        vcpu.before = vcpu.counters();
        Some(vcpu)
    }

    fn counters(&self) -> Option<ThreadCounters> {
        ThreadCounters::parse(reread(self.schedstat.as_ref()?, &mut Vec::new()).ok()?)
    }

    /// `None` once it has ended.
    fn state(&self) -> Option<ThreadStat> {
        let mut buffer = Vec::new();
        let text = reread(&self.stat, &mut buffer).ok()?;
        ThreadStat::parse(text).filter(|stat| !stat.is_dead())
    }

    fn activity(&self) -> VcpuActivity {
        let after = self.counters();
        let Some(stat) = self.state() else { return VcpuActivity { gone: true, ..VcpuActivity::default() } };
        VcpuActivity {
            used: after.zip(self.before).map(|(after, before)| after.since(before)),
            stat: Some(stat),
            runnable: self.was_runnable && stat.is_runnable(),
            gone: false,
        }
    }
}

/// The vCPUs of some VMs, from a moment on.
pub struct WatchedVcpus {
    began: Instant,
    vcpus: Vec<WatchedVcpu>,
    gone: Vec<i32>,
}

impl WatchedVcpus {
    /// From now on.
    pub fn begin(root: &ProcRoot, vms: &[Vm]) -> Self {
        let (mut vcpus, mut gone) = (Vec::new(), Vec::new());
        for (pid, tid) in vms.iter().flat_map(|vm| vm.vcpus.iter().map(|vcpu| (vm.pid, vcpu.tid))) {
            match WatchedVcpu::open(root, pid, tid) {
                Some(vcpu) => vcpus.push(vcpu),
                None => gone.push(tid),
            }
        }
        Self { began: Instant::now(), vcpus, gone }
    }

    /// Whether none of them is there any more.
    pub fn is_empty(&self) -> bool {
        self.vcpus.is_empty()
    }

    /// What they did until now.
    pub fn end(self) -> Activity {
        let gone = self.gone.into_iter().map(|tid| (tid, VcpuActivity { gone: true, ..VcpuActivity::default() }));
        let vcpus = self.vcpus.iter().map(|vcpu| (vcpu.tid, vcpu.activity())).chain(gone).collect();
        let mut activity = Activity { interval: Nanos::from(self.began.elapsed()), vcpus };
        activity.count_waits_in_progress();
        activity
    }
}

impl Activity {
    /// The kernel counts a wait once it is over. A vCPU that could run at both looks and never did, while another ran
    /// on its CPU, waited for all of the interval.
    fn count_waits_in_progress(&mut self) {
        let ran = |vcpu: &&VcpuActivity| vcpu.used.is_some_and(|used| used.run > Nanos::ZERO);
        let ran_on: BTreeSet<u32> = self.vcpus.values().filter(ran).filter_map(VcpuActivity::pcpu).collect();
        for vcpu in self.vcpus.values_mut() {
            let starved = vcpu.runnable && vcpu.pcpu().is_some_and(|pcpu| ran_on.contains(&pcpu));
            if let Some(used) = vcpu.used.as_mut().filter(|used| starved && **used == ThreadCounters::default()) {
                used.wait = self.interval;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmm::{PassedOver, discover};
    use gleaner_model::{CpuSet, VcpuId};
    use rustix::thread::{CpuSet as RawSet, sched_getaffinity, sched_setaffinity};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

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
        let on = |last_cpu: u32| {
            let line = format!("1 (x) R {} {last_cpu} {}", ["1"; 35].join(" "), ["0"; 20].join(" "));
            Some(ThreadStat::parse(line).unwrap()).inspect(|stat| assert_eq!(stat.last_cpu, last_cpu))
        };
        let vcpu = |used, pcpu, runnable| VcpuActivity { used, stat: on(pcpu), runnable, gone: false };
        let vcpus = BTreeMap::from([
            (1, vcpu(counted(9_000, 0, 1), 0, true)),
            (2, vcpu(counted(0, 0, 0), 0, true)),
            // Asleep at one look; alone on its CPU; counted by the kernel; without counters.
            (3, vcpu(counted(0, 0, 0), 0, false)),
            (4, vcpu(counted(0, 0, 0), 1, true)),
            (5, vcpu(counted(0, 7, 0), 0, true)),
            (6, vcpu(None, 0, true)),
        ]);
        let mut seen = Activity { interval: Nanos(10_000), vcpus };
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
        let watched = WatchedVcpus::begin(&root, &[vm]);
        assert!(watched.is_empty());
        assert!(watched.end().vcpus[&6].gone);
    }

    /// Two busy threads with a vCPU's name on one CPU, a sleeping one beside them: this process is a VM.
    #[test]
    fn two_vcpus_on_one_cpu_wait_for_each_other_machine() {
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
        let watched = WatchedVcpus::begin(&root, std::slice::from_ref(&vm));
        std::thread::sleep(Duration::from_millis(400));
        let seen = watched.end();
        end.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }

        let pcpu = u32::try_from(first).unwrap();
        assert_eq!(vm.vcpus.len(), 3, "{vm:?}");
        assert_eq!(vm.vcpus[0].allowed, Some(CpuSet::from_iter([VcpuId(pcpu)])));
        let of = |index: usize| &seen.vcpus[&vm.vcpus[index].tid];
        let (busy, asleep) = (of(0).used.unwrap(), of(2).used.unwrap());
        assert!(busy.wait.as_f64() > 0.2 * seen.interval.as_f64(), "{seen:?}");
        assert!(busy.run > asleep.run.times(5), "{seen:?}");
        assert_eq!(of(0).pcpu(), Some(pcpu));
    }
}
