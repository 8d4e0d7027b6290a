//! One group: what its slot counted -> its part of a window.

use super::load::{Loaded, MAX_GROUPS};
use super::members;
use super::reader::{MAX_TRIES, Totals, difference, now_ns, open_exec};
use super::skel::types::{cpu_state, group_cpu, group_state, histogram, shared_state, wakes};
use super::{CGROUP, FREE, GROUP, TREE};
use crate::ProcRoot;
use crate::bound::BoundThreads;
use crate::target::members_below;
use gleaner_model::{Burst, BurstWatch, CpuSet, Distribution, GroupWindow, Nanos, Wakes};
use libbpf_rs::{MapCore, MapFlags};
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// In group_cpu.
const G_COMP: usize = 0;
const WAKE_TO_RUN: usize = 1;

/// A group that is seen.
#[derive(Debug)]
pub(super) struct Group {
    slot: u32,
    /// Where it is all that is in a cgroup.
    cgroup: Option<PathBuf>,
    pub bound: BoundThreads,
    state: group_state,
    /// By CPU number.
    cpus: Vec<Counted>,
    threads: u64,
    /// Whether bursts are told, and when the last one was, on the kernel's clock.
    watched: bool,
    burst_told_ns: u64,
    /// Threads entered since the last window that were there before.
    entered: u64,
}

/// What it had done on one CPU when that was last read.
#[derive(Clone, Debug, Default)]
struct Counted {
    closed: group_cpu,
    /// With the stint in progress.
    exec_ns: u64,
}

/// What it did on one CPU between two readings.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    pub work: Nanos,
    pub work_switches: u64,
    pub cross_wakeups: u64,
    voluntary: u64,
    involuntary: u64,
    g_comp: Distribution,
    wake_to_run: Distribution,
    wakes: Wakes,
}

impl Group {
    /// Takes a slot for the owner's children.
    pub fn of_owner(programs: &Loaded, slot: u32) -> Self {
        Self::take(programs, slot, TREE, None)
    }

    /// Takes a slot for what runs already: all in a cgroup, or, where there is none, what [`Self::enter`] names.
    pub fn of_running(programs: &Loaded, slot: u32, cgroup: Option<&Path>) -> Self {
        let id = cgroup.and_then(unified_id);
        let group = Self::take(programs, slot, if id.is_some() { CGROUP } else { TREE }, cgroup.map(Path::to_owned));
        // Without that it follows nobody into the cgroup, but by being told: see `joined`.
        let id = id.filter(|id| programs.cgroups.update(&id.to_ne_bytes(), &slot.to_ne_bytes(), MapFlags::ANY).is_ok());
        if id.is_some() {
            count_cgroups(programs);
        }
        group
    }

    fn take(programs: &Loaded, slot: u32, kind: u32, cgroup: Option<PathBuf>) -> Self {
        programs.groups.write_field(slot as usize, offset_of!(group_state, kind), kind);
        let mut group = Self {
            slot,
            cgroup,
            bound: BoundThreads::default(),
            state: programs.groups.read(slot as usize),
            cpus: vec![Counted::default(); programs.cpus.len()],
            threads: 0,
            watched: false,
            burst_told_ns: 0,
            entered: 0,
        };
        // Another one may have had the slot before.
        for (cpu, counted) in group.cpus.iter_mut().enumerate() {
            counted.closed = programs.group_cpus.read(index(programs, slot, cpu));
            counted.exec_ns = counted.closed.exec_ns;
        }
        group
    }

    /// The slot is free again.
    pub fn let_go(self, programs: &Loaded) {
        programs.groups.write_field(self.slot as usize, offset_of!(group_state, watched), 0_u32);
        programs.groups.write_field(self.slot as usize, offset_of!(group_state, kind), FREE);
        // Its folder may be gone, so it is asked for by the slot.
        let is_its = |key: &Vec<u8>| {
            let slot = programs.cgroups.lookup(key, MapFlags::ANY).ok().flatten();
            slot.is_some_and(|slot| slot == self.slot.to_ne_bytes())
        };
        let keys: Vec<Vec<u8>> = programs.cgroups.keys().take(MAX_GROUPS).filter(is_its).collect();
        if keys.iter().filter(|key| programs.cgroups.delete(key).is_ok()).count() > 0 {
            count_cgroups(programs);
        }
        members::take_out_all(programs, self.slot);
    }

    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Enters what runs below `roots` already; where it is a cgroup, what is in that.
    pub fn enter(&mut self, programs: &Loaded, root: &ProcRoot, roots: &[i32], nobodys: &[i32]) -> members::Entered {
        let find = || match &self.cgroup {
            Some(folder) => members_of(folder, nobodys),
            None => members::tree(root, roots, nobodys),
        };
        let entered = members::enter(programs, root, self.slot, find);
        self.threads += entered.threads;
        self.entered += entered.threads;
        entered
    }

    /// Tells of the next burst from now on; `None`: of none. To be repeated after each.
    pub fn watch(&mut self, programs: &Loaded, watch: Option<&BurstWatch>) {
        let slot = self.slot as usize;
        let long = |offset, value: u64| programs.groups.write_field(slot, offset, value);
        let word = |offset, value: u32| programs.groups.write_field(slot, offset, value);
        let was_watched = std::mem::replace(&mut self.watched, watch.is_some());
        let Some(watch) = watch else {
            if was_watched {
                word(offset_of!(group_state, watched), 0);
            }
            return;
        };
        long(offset_of!(group_state, after_ns), watch.after.0);
        long(offset_of!(group_state, delay_ns), watch.delay.0);
        if !was_watched {
            // Whoever is counted already was counted by another epoch. 0 is that of nobody.
            let epoch: u32 = programs.groups.read_field(slot, offset_of!(group_state, epoch));
            word(offset_of!(group_state, epoch), epoch.wrapping_add(1).max(1));
            long(offset_of!(group_state, runnable), 0);
            long(offset_of!(group_state, since_ns), 0);
            self.burst_told_ns = programs.groups.read_field(slot, offset_of!(group_state, burst_at_ns));
        }
        // A burst that nobody has taken yet stays one: its event is on the way.
        let reported: u32 = programs.groups.read_field(slot, offset_of!(group_state, reported));
        let at_ns: u64 = programs.groups.read_field(slot, offset_of!(group_state, burst_at_ns));
        if reported != 0 && at_ns == self.burst_told_ns {
            word(offset_of!(group_state, reported), 0);
        }
        fence(Ordering::Release);
        word(offset_of!(group_state, watched), watch.active);
    }

    /// The last burst, once; its time is on the kernel's clock.
    pub fn take_burst(&mut self, programs: &Loaded) -> Option<Burst> {
        let slot = self.slot as usize;
        let long = |offset| programs.groups.read_field::<u64>(slot, offset);
        let reported: u32 = programs.groups.read_field(slot, offset_of!(group_state, reported));
        let at_ns = long(offset_of!(group_state, burst_at_ns));
        if !self.watched || reported == 0 || at_ns == self.burst_told_ns {
            return None;
        }
        self.burst_told_ns = at_ns;
        Some(Burst {
            at: Nanos(at_ns),
            runnable: long(offset_of!(group_state, burst_runnable)),
            lasted: Nanos(long(offset_of!(group_state, burst_lasted_ns))),
            delay: Nanos(long(offset_of!(group_state, burst_delay_ns))),
        })
    }

    /// Somebody went to another cgroup, with several threads.
    pub fn look_again(&mut self, programs: &Loaded, root: &ProcRoot, nobodys: &[i32]) {
        let Some(folder) = self.cgroup.clone() else { return };
        self.enter(programs, root, &[], nobodys);
        let members = members_of(&folder, nobodys);
        let left = members::take_out_strangers(programs, root, self.slot, &members);
        self.threads = self.threads.saturating_sub(left);
    }

    /// Nobody is new who was entered so far.
    pub fn nobody_is_new(&mut self) {
        self.entered = 0;
    }

    /// What it did on each CPU since the last call; `now` and `last` are the CPUs' own figures.
    pub fn shares(
        &mut self,
        programs: &Loaded,
        last: &[Totals],
        now: &[Totals],
        cpu_time_of: &impl Fn(u32) -> Option<u64>,
    ) -> Vec<Share> {
        let slot = self.slot;
        let cpus = self.cpus.iter_mut().zip(last.iter().zip(now)).enumerate();
        let share = |(cpu, (counted, (last, now))): (usize, (&mut Counted, (&Totals, &Totals)))| {
            // Nothing happened there, and what goes on is no group's.
            if now.seq() == last.seq() && now.class() != GROUP {
                return Share::default();
            }
            counted.advance(programs, slot, cpu, now, cpu_time_of)
        };
        cpus.map(share).collect()
    }

    /// Its part of the window in which it did `shares`.
    pub fn window(&mut self, programs: &Loaded, shares: &[Share], pinned: CpuSet) -> GroupWindow {
        let now: group_state = programs.groups.read(self.slot as usize);
        let last = std::mem::replace(&mut self.state, now);
        let born = now.born.wrapping_sub(last.born);
        self.threads = (self.threads + born).saturating_sub(now.died.wrapping_sub(last.died));
        let merged = |which: fn(&Share) -> &Distribution| {
            shares.iter().map(which).fold(Distribution::new(), |mut all, one| {
                all.merge(one);
                all
            })
        };
        let wake_to_run = merged(|share| &share.wake_to_run);
        GroupWindow {
            pinned,
            progress: None,
            system_calls: None,
            threads: self.threads,
            new_threads: born + std::mem::take(&mut self.entered),
            execs: Some(now.execs.wrapping_sub(last.execs)),
            cpu_time: shares.iter().map(|share| share.work).sum(),
            voluntary_switches: shares.iter().map(|share| share.voluntary).sum(),
            involuntary_switches: shares.iter().map(|share| share.involuntary).sum(),
            g_comp: Some(merged(|share| &share.g_comp)),
            waited: Some(wake_to_run.sum()),
            wake_to_run: Some(wake_to_run),
            wakes: Some(Box::new(all_wakes(shares))),
        }
    }
}

impl Counted {
    /// Reads anew; `machine` is what this CPU was last found doing.
    fn advance(
        &mut self,
        programs: &Loaded,
        slot: u32,
        cpu: usize,
        machine: &Totals,
        cpu_time_of: &impl Fn(u32) -> Option<u64>,
    ) -> Share {
        let seq = || programs.cpus.read_field::<u64>(cpu, offset_of!(cpu_state, seq));
        let index = index(programs, slot, cpu);
        let mut closed = None;
        let mut open_ns = 0;
        for _ in 0..MAX_TRIES {
            let before = seq();
            if before.is_multiple_of(2) {
                fence(Ordering::Acquire);
                open_ns = if before == machine.seq() {
                    machine.open_exec_of(slot)
                } else {
                    open_exec_now(programs, slot, cpu, cpu_time_of)
                };
                closed = self.has_changed(programs, index).then(|| programs.group_cpus.read(index));
                fence(Ordering::Acquire);
                if seq() == before {
                    break;
                }
            }
            std::hint::spin_loop();
        }
        let share = closed.as_ref().map_or_else(Share::default, |closed| Share::between(&self.closed, closed));
        self.closed = closed.unwrap_or(self.closed);
        let exec_ns = self.closed.exec_ns + open_ns;
        let work = Nanos(exec_ns.saturating_sub(std::mem::replace(&mut self.exec_ns, exec_ns)));
        Share { work, ..share }
    }

    /// Whether the memory holds something else: each change is one of these.
    fn has_changed(&self, programs: &Loaded, index: usize) -> bool {
        let field = |offset: usize| programs.group_cpus.read_field::<u64>(index, offset);
        let woken = offset_of!(group_cpu, histograms) + size_of_val(&self.closed.histograms[0]);
        let woken = woken + offset_of!(histogram, sum_ns);
        let count = |offset: usize| programs.group_cpus.read_field::<u32>(index, offset_of!(group_cpu, wakes) + offset);
        field(offset_of!(group_cpu, work_switches)) != self.closed.work_switches
            || count(offset_of!(wakes, own)) != self.closed.wakes.own
            || count(offset_of!(wakes, interrupts)) != self.closed.wakes.interrupts
            || count(offset_of!(wakes, outside)) != self.closed.wakes.outside
            || field(offset_of!(group_cpu, cross_wakeups)) != self.closed.cross_wakeups
            || field(woken) != self.closed.histograms[WAKE_TO_RUN].sum_ns
    }
}

impl Share {
    /// All but the work, of which a part may be in progress.
    fn between(last: &group_cpu, now: &group_cpu) -> Self {
        let since = |count: fn(&group_cpu) -> u64| count(now).wrapping_sub(count(last));
        Self {
            work: Nanos::ZERO,
            work_switches: since(|of| of.work_switches),
            cross_wakeups: since(|of| of.cross_wakeups),
            voluntary: since(|of| of.voluntary),
            involuntary: since(|of| of.involuntary),
            g_comp: difference(&now.histograms[G_COMP], &last.histograms[G_COMP]),
            wake_to_run: difference(&now.histograms[WAKE_TO_RUN], &last.histograms[WAKE_TO_RUN]),
            wakes: wakes_between(&last.wakes, &now.wakes),
        }
    }
}

fn wakes_between(last: &wakes, now: &wakes) -> Wakes {
    let since = |count: fn(&wakes) -> u32| u64::from(count(now).wrapping_sub(count(last)));
    Wakes {
        own: since(|of| of.own),
        returned: since(|of| of.returned),
        bursts: since(|of| of.bursts),
        wide: since(|of| of.wide),
        interrupts: since(|of| of.interrupts),
        outside: since(|of| of.outside),
        woken_threads: since(|of| of.threads),
    }
}

/// On all CPUs: each thread was counted on one of them.
fn all_wakes(shares: &[Share]) -> Wakes {
    let mut all = Wakes::default();
    for share in shares {
        all += share.wakes;
    }
    Wakes { woken_threads: shares.iter().map(|share| share.wakes.woken_threads).sum(), ..all }
}

/// CPU time so far of the stint in progress, if it is the group's.
fn open_exec_now(programs: &Loaded, slot: u32, cpu: usize, cpu_time_of: &impl Fn(u32) -> Option<u64>) -> u64 {
    let word = |offset: usize| programs.cpus.read_field::<u32>(cpu, offset);
    let long = |offset: usize| programs.cpus.read_field::<u64>(cpu, offset);
    let class = word(offset_of!(cpu_state, class));
    if class != GROUP || word(offset_of!(cpu_state, group)) != slot {
        return 0;
    }
    let open = now_ns().saturating_sub(long(offset_of!(cpu_state, since_ns)));
    let (pid, exec_at_ns) = (word(offset_of!(cpu_state, pid)), long(offset_of!(cpu_state, exec_at_ns)));
    open_exec(class, open, || Some(cpu_time_of(pid)?.saturating_sub(exec_at_ns)))
}

/// The processes in a cgroup, but for those.
fn members_of(folder: &Path, nobodys: &[i32]) -> BTreeSet<i32> {
    let mut members = members_below(folder);
    members.retain(|pid| !nobodys.contains(pid));
    members
}

fn index(programs: &Loaded, slot: u32, cpu: usize) -> usize {
    slot as usize * programs.cpus.len() + cpu
}

/// Tells the kernel's side how many groups are cgroups.
fn count_cgroups(programs: &Loaded) {
    let count = u32::try_from(programs.cgroups.keys().take(MAX_GROUPS).count()).unwrap_or(u32::MAX);
    let field = offset_of!(shared_state, cgroups);
    programs.shared.write_field(0, field, count);
}

/// The id of a cgroup in the unified hierarchy: the number of its folder.
fn unified_id(folder: &Path) -> Option<u64> {
    let is_unified = rustix::fs::statfs(folder).is_ok_and(|of| of.f_type == libc::CGROUP2_SUPER_MAGIC);
    std::fs::metadata(folder).ok().filter(|_| is_unified).map(|of| of.ino())
}
