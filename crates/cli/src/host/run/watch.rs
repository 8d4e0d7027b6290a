//! vCPU threads to windows: which VMs there are, looked for every second, and what their vCPUs did.

use super::subjects::Subjects;
use crate::host::list::no_vcpus;
use gleaner_act::thread_attr;
use gleaner_command::failure::Failure;
use gleaner_model::{CpuSet, HostVcpuWindow, HostWindow, Nanos, Source, VcpuId, VmId, VmWindow};
use gleaner_observe::{
    Competition, IntervalDistribution, PauseExitCounters, PauseExitRefusal, ProcRoot, RunIntervals, RunIntervalsConfig,
    ThreadIntervals, VcpuLoad, VcpuThread, Vm, cpu_limit, entitlements,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// A run interval of at least this part of the slice is a full slice.
const FULL: f64 = 0.9;

/// VMs are looked for no more often than this, except at once where a vCPU has ended: a little less than a window.
const LOOK: Duration = Duration::from_millis(900);

/// Watches the VMs that were asked for.
pub struct Watch {
    root: ProcRoot,
    subjects: Subjects,
    intervals: RunIntervals,
    vms: Vec<Vm>,
    looked: Instant,
    began: Instant,
    /// Switches by threads so far, where BPF does not tell: voluntary, involuntary.
    switches: BTreeMap<i32, (u64, u64)>,
    /// Of VMs with siblings that can be spun for; where they were asked for and can be had.
    pause_exits: Option<PauseExitCounters>,
    told: Told,
}

/// What was said already.
#[derive(Debug, Default)]
struct Told {
    /// That there is no VM.
    nobody: bool,
    /// That BPF has no room for all.
    left_out: bool,
    /// VMs whose vCPUs are not to be found, that are there still.
    unknown: BTreeSet<i32>,
}

/// One window.
pub struct Sample {
    pub window: HostWindow,
    /// Run intervals that ended by preemption, by VM; empty without BPF.
    pub delivered: BTreeMap<VmId, IntervalDistribution>,
}

/// The id of a VM.
pub fn id(vm: &Vm) -> VmId {
    VmId(u32::try_from(vm.pid).unwrap_or(0))
}

impl Watch {
    /// Begins. A VM that is asked for has to be there now; later it may go and come back.
    pub fn begin(root: ProcRoot, vms: &[String], tids: &[i32]) -> Result<Self, Failure> {
        let (subjects, vms) = Subjects::find(&root, vms, tids)?;
        let vcpus = vms.iter().map(|vm| vm.vcpus.len()).sum();
        let config = RunIntervalsConfig { root: root.clone(), ..RunIntervalsConfig::default() };
        let intervals = RunIntervals::new(&config.with_room_for(vcpus));
        let mut watch = Self {
            root,
            subjects,
            intervals,
            vms: Vec::new(),
            looked: Instant::now(),
            began: Instant::now(),
            switches: BTreeMap::new(),
            pause_exits: None,
            told: Told::default(),
        };
        watch.follow(vms);
        watch.intervals.window();
        watch.began = Instant::now();
        Ok(watch)
    }

    /// Counts exits by too many PAUSEs from now on.
    pub fn count_pause_exits(&mut self) -> Result<(), PauseExitRefusal> {
        self.pause_exits = Some(PauseExitCounters::new(&self.root)?);
        self.follow(self.vms.clone());
        Ok(())
    }

    /// What is weaker than one might think, said once when it comes up.
    pub fn new_warnings(&mut self) -> Vec<String> {
        let mut new_warnings = Vec::new();
        if self.vms.is_empty() && self.subjects.may_come() && !std::mem::replace(&mut self.told.nobody, true) {
            let root = rustix::process::geteuid().is_root();
            let others = if root { "" } else { "; not root: other users' VMs are found only by their threads' names" };
            new_warnings.push(format!("no VM is to be seen yet; one that comes is managed from then on{others}"));
        }
        self.told.unknown.retain(|pid| self.vms.iter().any(|vm| vm.pid == *pid));
        for vm in self.vms.iter().filter(|vm| vm.vcpus.is_empty()) {
            if self.told.unknown.insert(vm.pid) {
                new_warnings.push(format!("{}; it is left alone", no_vcpus(vm)));
            }
        }
        let note = without_room(self.intervals.left_out());
        new_warnings.extend(note.filter(|_| !std::mem::replace(&mut self.told.left_out, true)));
        new_warnings
    }

    /// Whether nobody is left, and nobody will come.
    pub fn is_over(&self) -> bool {
        self.vms.is_empty() && !self.subjects.may_come()
    }

    pub fn vms(&self) -> &[Vm] {
        &self.vms
    }

    pub fn source(&self) -> &'static str {
        match self.intervals.source() {
            Source::Bpf => "bpf",
            Source::Procfs => "procfs",
        }
    }

    pub fn refusal(&self) -> Option<String> {
        self.intervals.refusal().map(ToString::to_string)
    }

    pub fn competition(&self) -> std::io::Result<Competition> {
        self.intervals.competition()
    }

    /// What happened since the last call; then, if it is time, looks which VMs there are now.
    pub fn window(&mut self) -> Result<Sample, Failure> {
        let seen = self.intervals.window();
        let threads: BTreeMap<i32, &ThreadIntervals> =
            seen.threads.iter().filter(|thread| !thread.ended).map(|thread| (thread.tid, thread)).collect();
        let mut delivered = BTreeMap::new();
        let mut vms: Vec<VmWindow> = Vec::new();
        for vm in self.vms.clone() {
            let window = self.vm_window(&vm, &threads, seen.length, &mut delivered);
            vms.extend(window.filter(|window| !window.vcpus.is_empty()));
        }
        vms.sort_by_key(|vm| vm.vm);
        self.entitle(&mut vms, seen.length);
        let ended = seen.threads.iter().any(|thread| thread.ended);
        if ended || self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let now = self.subjects.now(&self.root)?;
            self.follow(now);
        }
        let at = Nanos::from(self.began.elapsed());
        Ok(Sample { window: HostWindow { at, length: seen.length, vms, tick: None }, delivered })
    }

    /// Weights by nice value become those that count where VMs are in cgroups of their own; of a VM's vCPUs the mean.
    fn entitle(&self, windows: &mut [VmWindow], length: Nanos) {
        let (mut loads, mut of) = (Vec::new(), Vec::new());
        for (at, window) in windows.iter().enumerate() {
            let Some(vm) = self.vms.iter().find(|vm| id(vm) == window.vm) else { continue };
            for vcpu in &window.vcpus {
                let thread = vm.vcpus.iter().find(|thread| thread.index == vcpu.vcpu.0);
                let cgroup = thread.and_then(|thread| thread.cgroup.clone());
                let activity = (vcpu.run + vcpu.wait).share_of(length);
                loads.push(VcpuLoad { cgroup, weight: window.weight as f64, activity });
                of.push(at);
            }
        }
        let found = entitlements(&self.root, &loads);
        for (at, window) in windows.iter_mut().enumerate() {
            let mine = || of.iter().zip(&found).filter(|(vm, _)| **vm == at).map(|(_, weight)| *weight);
            let (sum, count) = (mine().sum::<f64>(), mine().count());
            if count > 0 {
                window.weight = Nanos::from_f64(sum / count as f64 + 0.5).0.max(1);
            }
        }
    }

    fn follow(&mut self, vms: Vec<Vm>) {
        let tids: Vec<i32> = vms.iter().flat_map(|vm| vm.vcpus.iter().map(|vcpu| vcpu.tid)).collect();
        self.intervals.watch(&tids);
        if let Some(counters) = &mut self.pause_exits {
            let several = vms.iter().filter(|vm| vm.vcpus.len() > 1);
            counters.follow(&several.flat_map(|vm| vm.vcpus.iter().map(|vcpu| vcpu.tid)).collect::<Vec<i32>>());
        }
        self.switches.retain(|tid, _| tids.contains(tid));
        if self.intervals.source() == Source::Procfs {
            for tid in tids {
                if !self.switches.contains_key(&tid)
                    && let Some(now) = switches(&self.root, tid)
                {
                    self.switches.insert(tid, now);
                }
            }
        }
        self.vms = vms;
    }

    fn vm_window(
        &mut self,
        vm: &Vm,
        threads: &BTreeMap<i32, &ThreadIntervals>,
        length: Nanos,
        delivered: &mut BTreeMap<VmId, IntervalDistribution>,
    ) -> Option<VmWindow> {
        let attr = vm.vcpus.iter().find_map(|vcpu| thread_attr(vcpu.tid).ok())?;
        let slice = Some(attr.slice).filter(|slice| *slice > Nanos::ZERO);
        let mut vcpus = Vec::new();
        for vcpu in &vm.vcpus {
            let Some(thread) = threads.get(&vcpu.tid) else { continue };
            if let Some(intervals) = &thread.intervals {
                delivered.entry(id(vm)).or_default().merge(&intervals.preempted);
            }
            let window = self.vcpu_window(vcpu, thread, slice);
            let pause_exits = self.pause_exits.as_mut().and_then(|counters| counters.read(vcpu.tid));
            vcpus.push(HostVcpuWindow { pause_exits, ..window });
        }
        rule_out_spinning(&mut vcpus, slice);
        let groups: Vec<_> = vm.vcpus.iter().map(|vcpu| vcpu.cgroup.as_ref()).collect();
        let limit = cpu_limit(&self.root, &groups).map(|cpus| Nanos::from_f64(cpus * length.as_f64()));
        Some(VmWindow { vm: id(vm), slice, weight: weight(attr.nice), limit, refill: None, vcpus })
    }

    fn vcpu_window(&mut self, vcpu: &VcpuThread, thread: &ThreadIntervals, slice: Option<Nanos>) -> HostVcpuWindow {
        let pcpus = vcpu.allowed.clone().unwrap_or_else(|| CpuSet::first(1));
        let window =
            HostVcpuWindow { run: thread.run, wait: thread.wait, ..HostVcpuWindow::new(VcpuId(vcpu.index), pcpus) };
        let Some(seen) = &thread.intervals else {
            let added = self.added_switches(vcpu.tid);
            return HostVcpuWindow {
                wakeups: added.map(|(voluntary, _)| voluntary),
                preemptions: added.map(|(_, involuntary)| involuntary),
                ..window
            };
        };
        HostVcpuWindow {
            wakeups: Some(seen.wake_to_run.count()),
            wake_to_run: Some(seen.wake_to_run.coarse()),
            preemptions: Some(seen.preempted.count()),
            bursts: Some(seen.bursts.coarse()),
            full_slices: slice.and_then(|slice| full_slices(&seen.preempted, slice)),
            ..window
        }
    }

    fn added_switches(&mut self, tid: i32) -> Option<(u64, u64)> {
        let now = switches(&self.root, tid)?;
        let before = self.switches.insert(tid, now).unwrap_or(now);
        Some((now.0.saturating_sub(before.0), now.1.saturating_sub(before.1)))
    }
}

/// Of threads beyond those that BPF has room for.
fn without_room(left_out: usize) -> Option<String> {
    (left_out > 0).then(|| {
        "more vCPU threads than BPF was given room for at the start: those beyond are watched through /proc, which \
         knows means only and sees competition late; starting anew makes room"
            .to_owned()
    })
}

/// Marks vCPUs that cannot have spun for a whole slice: they used no full one, or their siblings did not wait for as
/// long. From outside spinning looks like computing, so of the others it stays unknown.
fn rule_out_spinning(vcpus: &mut [HostVcpuWindow], slice: Option<Nanos>) {
    let Some(slice) = slice else { return };
    let waited: Nanos = vcpus.iter().map(|vcpu| vcpu.wait).sum();
    for vcpu in vcpus {
        let too_short = (waited - vcpu.wait).as_f64() < slice.as_f64() * FULL;
        if too_short || vcpu.full_slices == Some(0) {
            vcpu.full_slices_without_progress = Some(0);
        }
    }
}

fn full_slices(preempted: &IntervalDistribution, slice: Nanos) -> Option<u64> {
    let below = preempted.share_below(Nanos::from_f64(slice.as_f64() * FULL))?;
    Some(Nanos::from_f64(preempted.count() as f64 * (1.0 - below) + 0.5).0)
}

/// Voluntary and involuntary switches of a thread so far.
fn switches(root: &ProcRoot, tid: i32) -> Option<(u64, u64)> {
    gleaner_sys::switches(&fs::read(root.proc.join(format!("{tid}/task/{tid}/status"))).ok()?)
}

/// What the fair scheduler gives a thread of this nice value, relative to others: 1024 at 0, a quarter more for each
/// step down.
fn weight(nice: i32) -> u64 {
    Nanos::from_f64(1024.0 * 1.25_f64.powi(-nice) + 0.5).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_kernels() {
        // sched_prio_to_weight, to 4 %.
        for (nice, kernel) in [(0, 1024.0), (-20, 88_761.0), (19, 15.0), (5, 335.0), (-1, 1277.0)] {
            let found = weight(nice) as f64;
            assert!((found / kernel - 1.0).abs() < 0.04, "nice {nice}: {found}");
        }
    }

    #[test]
    fn spinning_is_ruled_out_where_there_was_no_full_slice_or_no_sibling_that_waited() {
        let ms = Nanos::from_millis;
        for (what, waits, full, slice, expected) in [
            ("full slices beside a sibling that waited", [0, 900], Some(100), Some(ms(5)), [None, Some(0)]),
            ("nobody waited for as long as a slice", [4, 4], Some(100), Some(ms(5)), [Some(0); 2]),
            ("both waited", [500, 500], Some(100), Some(ms(5)), [None; 2]),
            ("nobody used a full slice", [500, 500], Some(0), Some(ms(5)), [Some(0); 2]),
            ("without BPF nobody knows", [500, 500], None, Some(ms(5)), [None; 2]),
            ("nor without a slice", [0, 0], Some(0), None, [None; 2]),
        ] {
            let vcpu = |index: u32, wait: u64| HostVcpuWindow {
                run: ms(500),
                wait: ms(wait),
                full_slices: full,
                ..HostVcpuWindow::new(VcpuId(index), CpuSet::first(1))
            };
            let mut vcpus = [vcpu(0, waits[0]), vcpu(1, waits[1])];
            rule_out_spinning(&mut vcpus, slice);
            assert_eq!(vcpus.map(|vcpu| vcpu.full_slices_without_progress), expected, "{what}");
        }
    }

    #[test]
    fn switches_are_two_lines_of_status() {
        let status = "Name:\tCPU 0/KVM\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(gleaner_sys::switches(status.as_bytes()), Some((7, 9)));
        assert_eq!(gleaner_sys::switches(b"Name:\tx\n"), None);
    }
}
