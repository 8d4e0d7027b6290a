//! The observer that sees every context switch: CO-RE programs on the scheduler's tracepoints.
//!
//! Problem: true distributions of l_comp, g_comp and l_idle, per vCPU, at under 200 ns a context switch, for several
//! groups of threads. How: the programs (`gleaner.bpf.c`, whose head explains them) keep one struct per vCPU, and one
//! per group and vCPU, in memory that is mapped here; a window is the difference of two readings. They are loaded once,
//! whatever groups come and go.
//!
//! ```text
//!   load    gets the programs into the kernel, or says why not (with gleaner-bpf, which has the shared memory too)
//!   reader  what vCPUs counted -> Totals -> VcpuWindow
//!   cpus    those that there are, and which groups they have counted for
//!   share   what a group's slot counted on one vCPU
//!   runnable  how many of its threads run or wait, as bursts need it
//!   group   that of all vCPUs -> its part of the window
//!   members who belongs to a group, where that was so before
//!   skel    what the build makes of the programs, and their constants
//!   busy    "wake me when this vCPU works again", for the yielding threads
//! ```
//!
//! What is exact and what is not:
//!
//! - Steal is what the hypervisor reports, in `/proc/stat`, to within a tick of 10 ms a window; over several windows it
//!   is exact. Time on a vCPU that no task was charged for is not taken for steal: interrupts are such time too
//!   (`CONFIG_IRQ_TIME_ACCOUNTING`), and on a network host would look like contention.
//! - The group's working time is what the scheduler charged it (`sum_exec_runtime`), without steal where the kernel has
//!   `CONFIG_PARAVIRT_TIME_ACCOUNTING`. Of a stint that goes on, the last 10 ms count as not stolen.
//! - A vCPU's busy time is what is left of the window without steal, retained and halted time: interrupts are in it,
//!   and a tick of steal that comes late. So `work` may exceed it by a tick. Time stolen while the idle task was
//!   current, such as a late wake-up, is reported steal, and is not halted time as far as busy time covers less.
//! - A wake-up is *cross* when the thread next runs on another vCPU than its waker's.
//! - A thread's end counts as a voluntary switch, as in the kernel's own count.
//! - Some kernels hide switches of some tasks. A stint whose task turns out to be another than the one that came is
//!   charged to the one that leaves; the group's CPU time stays exact, because it is read from each thread.
//! - Durations of 2^40 ns (18 minutes) and more share the last bucket of a distribution; its sum is exact.
//!
//! Everything in the kernel hangs on file descriptors of this process: however it ends, nothing stays.

pub(crate) mod busy;
mod cpus;
mod group;
pub(crate) mod load;
mod members;
pub(crate) mod processes;
pub(crate) mod reader;
mod runnable;
mod share;
mod skel;

pub use busy::{BusySignal, BusyWaker};
pub use gleaner_bpf::BpfRefusal;

use crate::ObserveError;
use crate::burst::BurstSignal;
use crate::config::ObserverConfig;
use crate::cpuidle::IdleSplitter;
use crate::seen::{Seen, SeenGroup};
use crate::system::{Present, PresentReader, open_stat};
use cpus::Cpus;
use gleaner_bpf::run_time;
use gleaner_model::{
    Burst, BurstWatch, CpuSet, GroupWindow, Nanos, RetainCounters, Source, VcpuId, VcpuWindow, Window,
};
use gleaner_sys::{ProcRoot, StatReader, SystemStat, thread_cpu_time};
use group::Group;
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use reader::now_ns;
use share::{Rows, Shares};
use skel::kernel_pid;
use skel::types::{cpu_state, shared_state};
use std::cell::OnceCell;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// The observer on the scheduler's tracepoints. See the module's text.
#[derive(Debug)]
pub struct BpfObserver {
    root: ProcRoot,
    present: Option<PresentReader>,
    /// `None` where it cannot be read or is not about this machine's CPUs: then nobody tells of steal.
    stat: Option<StatReader>,
    allowed: Option<CpuSet>,
    programs: load::Loaded,
    /// In the order in which windows tell of them: the owner's children, until there are others.
    groups: Vec<Group>,
    /// The owner and its helpers.
    nobodys: Vec<i32>,
    started_ns: u64,
    cpus: Cpus,
    rows: Rows,
    /// When the last window ended.
    at_ns: u64,
    /// What the machine's files said then; `None` where they could not be read.
    last_stat: Option<SystemStat>,
    idle: IdleSplitter,
    /// Moves between cgroups that were followed.
    moved: u64,
    /// Threads found here for which there was no room.
    untracked: u64,
    cost: Nanos,
}

impl BpfObserver {
    /// Loads and attaches the programs.
    pub fn new(config: &ObserverConfig) -> Result<Self, BpfRefusal> {
        let programs = load::load(config)?;
        let mut observer = Self {
            at_ns: programs.attached_ns,
            cpus: Cpus::default(),
            rows: Rows::default(),
            last_stat: None,
            root: config.root.clone(),
            present: None,
            stat: open_stat(&config.root).ok(),
            allowed: config.allowed.clone(),
            groups: vec![Group::of_owner(&programs, 0)],
            programs,
            nobodys: std::iter::once(config.owner_pid).chain(config.excluded_pids.iter().copied()).collect(),
            started_ns: now_ns(),
            idle: IdleSplitter::default(),
            moved: 0,
            untracked: 0,
            cost: Nanos::ZERO,
        };
        let there = observer.present().map_or_else(|_| observer.possible(), |present| present.there);
        observer.read(&there);
        Ok(observer)
    }

    /// See [`crate::Observer::adopted`].
    pub fn adopted(&mut self, root_pid: i32) {
        self.joined(0, root_pid);
    }

    /// See [`crate::Observer::add_group`].
    pub fn add_group(&mut self, roots: &[i32], cgroup: Option<&Path>) -> bool {
        let taken = |slot: &u32| self.groups.iter().any(|group| group.slot() == *slot);
        let capacity = u32::try_from(self.programs.capacity).unwrap_or(u32::MAX);
        let Some(slot) = (0..capacity).find(|slot| !taken(slot)) else { return false };
        self.rows.begin(&self.programs, &self.cpus, slot);
        let mut group = Group::of_running(&self.programs, slot, cgroup);
        self.untracked += group.enter(&self.programs, &self.root, roots, &self.nobodys).untracked;
        group.nobody_is_new();
        self.groups.push(group);
        true
    }

    /// See [`crate::Observer::remove_group`].
    pub fn remove_group(&mut self, group: usize) {
        if group < self.groups.len() {
            self.groups.remove(group).let_go(&self.programs);
        }
    }

    /// See [`crate::Observer::joined`].
    pub fn joined(&mut self, group: usize, pid: i32) {
        if let Some(group) = self.groups.get_mut(group) {
            self.untracked += group.enter(&self.programs, &self.root, &[pid], &self.nobodys).untracked;
        }
    }

    /// This child of the owner's is never taken for managed.
    pub fn exclude(&mut self, pid: i32) {
        self.nobodys.push(pid);
    }

    /// The processes of the group at this place.
    pub fn processes(&self, group: usize) -> Vec<i32> {
        let of = |group: &Group| members::processes(&self.root, &members::threads_of(&self.programs, group.slot()));
        self.groups.get(group).map(of).into_iter().flatten().collect()
    }

    /// Which threads are the yielding ones. [`Self::start`] and [`Self::window`] do it too; call this right after they
    /// were started, so that they never count as work.
    pub fn set_yielding(&mut self, yields: &[RetainCounters]) {
        for counters in yields {
            let Some(vcpu) = counters.vcpu.map(|id| id.0 as usize) else { continue };
            if vcpu < self.programs.cpus.len() {
                let pid = kernel_pid(counters.tid);
                self.programs.cpus.write_field(vcpu, offset_of!(cpu_state, yield_pid), pid);
            }
        }
    }

    /// Zero of [`Window::at`]; what happened before is not in the next window.
    pub fn start(&mut self, yields: &[RetainCounters]) {
        self.set_yielding(yields);
        self.last_stat = self.system_stat();
        let Present { there, usable } = self.present().unwrap_or_else(|_| self.all_possible());
        let shares = self.read(&there);
        self.seen_of(&shares);
        self.started_ns = self.at_ns;
        let mut vcpus: Vec<_> = usable.iter().map(VcpuWindow::new).collect();
        self.idle.split(&self.root, yields, &mut vcpus);
    }

    /// What happened to the first group since the last call, or since [`Self::start`].
    ///
    /// # Errors
    /// As [`Self::look`], or when there is no group.
    pub fn window(&mut self, yields: &[RetainCounters]) -> Result<Window, ObserveError> {
        self.look(yields)?.take(0).ok_or(ObserveError::NoGroup)
    }

    /// What happened since the last call, or since [`Self::start`]: a window for each group, in their order.
    pub fn windows(&mut self, yields: &[RetainCounters]) -> Result<Vec<Window>, ObserveError> {
        self.look(yields).map(Seen::into_windows)
    }

    /// What happened since the last call, or since [`Self::start`].
    pub fn look(&mut self, yields: &[RetainCounters]) -> Result<Seen, ObserveError> {
        let cpu_before = thread_cpu_time();
        self.set_yielding(yields);
        let Present { there, usable } = self.present()?;
        self.follow_moves();
        let stat = self.system_stat();
        let last_stat = std::mem::replace(&mut self.last_stat, stat);
        let last_ns = self.at_ns;
        let shares = self.read(&there);
        let groups = self.seen_of(&shares);
        let length = Nanos(self.at_ns.saturating_sub(last_ns));
        let mut vcpus = self.vcpus(&usable, length, last_stat.as_ref());
        self.idle.split(&self.root, yields, &mut vcpus);
        let machine = Window {
            at: Nanos(self.at_ns.saturating_sub(self.started_ns)),
            length,
            source: Source::Bpf,
            idle_entries: vcpus.iter().map(|vcpu| vcpu.idle_entries).sum(),
            halts: vcpus.iter().map(|vcpu| vcpu.halts).sum(),
            vcpus,
            group: GroupWindow::default(),
        };
        self.cost = thread_cpu_time() - cpu_before;
        Ok(Seen { machine, groups })
    }

    /// The CPUs that are there now.
    fn present(&mut self) -> Result<Present, ObserveError> {
        match &mut self.present {
            Some(reader) => reader.read(),
            none => none.insert(PresentReader::open(&self.root, self.allowed.clone())?).read(),
        }
    }

    fn possible(&self) -> CpuSet {
        CpuSet::first(u32::try_from(self.programs.cpus.len()).unwrap_or(0))
    }

    fn all_possible(&self) -> Present {
        Present { usable: self.allowed.clone().unwrap_or_else(|| self.possible()), there: self.possible() }
    }

    /// Reads what has changed: of CPUs, and what groups did on them.
    fn read(&mut self, there: &CpuSet) -> Shares {
        let Self { programs, root, cpus, rows, .. } = self;
        let cpu_time = |pid| cpu_time_of(root, pid);
        let last_ns = std::mem::replace(&mut self.at_ns, now_ns());
        let touched = cpus.read(programs, there, last_ns, &cpu_time);
        rows.advance(programs, cpus, &touched, &cpu_time)
    }

    /// What each group did, which was `shares`.
    fn seen_of(&mut self, shares: &Shares) -> Vec<SeenGroup> {
        let Self { groups, programs, at_ns, .. } = self;
        let by_slot = OnceCell::new();
        let seen = |group: &mut Group| {
            let slot = group.slot();
            let threads = || by_slot.get_or_init(|| members::by_slot(programs)).get(&slot).cloned().unwrap_or_default();
            group.seen(programs, (shares.get(&slot).map_or(&[], Vec::as_slice), *at_ns), threads)
        };
        groups.iter_mut().map(seen).collect()
    }

    /// What the vCPUs did, whoever it was for.
    fn vcpus(&self, usable: &CpuSet, length: Nanos, last_stat: Option<&SystemStat>) -> Vec<VcpuWindow> {
        let reported = |stat: Option<&SystemStat>, id| stat?.cpu(id).map(|times| times.steal);
        let steal = |id| Some(reported(self.last_stat.as_ref(), id)? - reported(last_stat, id)?);
        let of = |id: VcpuId| {
            let cpu = self.cpus.get(id.0 as usize)?;
            Some(cpu.totals.window(&cpu.change, id, length, steal(id).unwrap_or(Nanos::ZERO)))
        };
        usable.iter().filter_map(of).collect()
    }

    /// Looks where processes of several threads went to another cgroup: of those the kernel's side shows one thread.
    fn follow_moves(&mut self) {
        let moved = self.programs.shared.read_field(0, offset_of!(shared_state, moved));
        if moved != self.moved {
            self.moved = moved;
            self.groups.iter_mut().for_each(|group| group.look_again(&self.programs, &self.root, &self.nobodys));
        }
    }

    /// See [`crate::Observer::kept_to`].
    pub fn kept_to(&mut self, group: usize, active: &CpuSet) {
        self.groups.iter_mut().skip(group).take(1).for_each(|group| group.bound.kept_to(active));
    }

    /// CPU time that the last window cost the calling thread; what the programs cost is in the threads they interrupt.
    pub fn last_cost(&self) -> Nanos {
        self.cost
    }

    /// See [`crate::Observer::programs_ran`].
    pub fn programs_ran(&self) -> Option<(u64, Nanos)> {
        let ran: Vec<(u64, u64)> =
            self.programs.programs.iter().filter_map(|program| run_time(program.as_fd())).collect();
        let runs = ran.iter().map(|(runs, _)| runs).sum();
        (!ran.is_empty()).then(|| (runs, Nanos(ran.iter().map(|(_, took)| took).sum())))
    }

    /// The managed threads alive now, ascending.
    pub fn threads(&mut self) -> Vec<i32> {
        members::threads(&self.programs)
    }

    /// Threads that were seen and not tracked, because there were too many.
    pub fn untracked(&self) -> u64 {
        self.untracked + self.programs.shared.read(0).untracked
    }

    /// A way for the yielding thread of `vcpu` to sleep until the vCPU works again. One at a time for each vCPU.
    pub fn busy_signal(&self, vcpu: VcpuId) -> io::Result<BusySignal> {
        let mut one = self.busy_signals(&CpuSet::from_iter([vcpu]))?;
        one.pop().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// The same for several, ascending: the kernel waits for readers once, which takes it 10 ms.
    ///
    /// # Errors
    /// As [`Self::busy_signal`].
    pub fn busy_signals(&self, vcpus: &CpuSet) -> io::Result<Vec<BusySignal>> {
        if let Some(vcpu) = vcpus.iter().find(|vcpu| vcpu.0 as usize >= self.programs.cpus.len()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("this machine cannot have a {vcpu}")));
        }
        let rings: Vec<OwnedFd> = vcpus.iter().map(|_| ring()).collect::<io::Result<_>>()?;
        let keys: Vec<u8> = vcpus.iter().flat_map(|vcpu| vcpu.0.to_ne_bytes()).collect();
        let inner: Vec<u8> = rings.iter().flat_map(|ring| ring.as_raw_fd().to_ne_bytes()).collect();
        let count = u32::try_from(rings.len()).unwrap_or(u32::MAX);
        let all = self.programs.rings.update_batch(&keys, &inner, count, MapFlags::ANY, MapFlags::ANY);
        all.map_err(io::Error::other)?;
        let signal = |(vcpu, ring)| BusySignal::new(vcpu, Arc::clone(&self.programs.cpus), ring);
        vcpus.iter().zip(rings).map(signal).collect()
    }

    /// Whether this kernel can tell of bursts.
    pub fn tells_bursts(&self) -> bool {
        self.programs.bursts.is_some()
    }

    /// What [`crate::Observer::watch_bursts`] asks for.
    pub fn watch_bursts(&mut self, group: usize, watch: Option<&BurstWatch>) {
        if let Some(group) = self.groups.get_mut(group).filter(|_| self.programs.bursts.is_some()) {
            group.watch(&self.programs, watch);
        }
    }

    /// See [`crate::Observer::take_burst`].
    pub fn take_burst(&mut self, group: usize) -> Option<Burst> {
        let burst = self.groups.get_mut(group)?.take_burst(&self.programs)?;
        Some(Burst { at: Nanos(burst.at.0.saturating_sub(self.started_ns)), ..burst })
    }

    /// A way to sleep until there is a burst of any group.
    ///
    /// # Errors
    /// When the kernel refuses memory or descriptors, or cannot tell.
    pub fn burst_signal(&self) -> io::Result<BurstSignal> {
        let ring = self.programs.bursts.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        BurstSignal::of_ring(busy::Ring::new(ring.try_clone()?)?)
    }

    /// The time on the clock of windows.
    pub fn now(&self) -> Nanos {
        Nanos(now_ns().saturating_sub(self.started_ns))
    }

    fn system_stat(&mut self) -> Option<SystemStat> {
        self.stat.as_mut()?.read().ok()
    }
}

/// A ring buffer of a page, for one vCPU's signal.
fn ring() -> io::Result<OwnedFd> {
    let size = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
        ..bpf_map_create_opts::default()
    };
    let ring = MapHandle::create(MapType::RingBuf, Some("busy"), 0, 0, size, &options).map_err(io::Error::other)?;
    ring.as_fd().try_clone_to_owned()
}

/// CPU time of a thread as the kernel last charged it, in ns.
fn cpu_time_of(root: &ProcRoot, pid: u32) -> Option<u64> {
    let text = std::fs::read(root.proc.join(format!("{pid}/schedstat"))).ok()?;
    gleaner_sys::schedstat(&text).map(|(run_ns, ..)| run_ns)
}
