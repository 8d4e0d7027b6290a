//! One group: what its slot counted -> its part of a window.

use super::load::Loaded;
use super::members;
use super::runnable::RunnableCount;
use super::share::Share;
use super::skel::types::{group_state, shared_state};
use super::skel::{CGROUP, FREE, MAX_GROUPS, TREE};
use crate::bound::BoundThreads;
use crate::seen::SeenGroup;
use crate::target::members_below;
use gleaner_model::{Burst, BurstWatch, Distribution, GroupWindow, Nanos, VcpuId};
use gleaner_sys::ProcRoot;
use libbpf_rs::{MapCore, MapFlags};
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// A group that is seen.
#[derive(Debug)]
pub(super) struct Group {
    slot: u32,
    /// Where it is all that is in a cgroup.
    cgroup: Option<PathBuf>,
    pub bound: BoundThreads,
    /// As they were last read.
    births: Births,
    threads: u64,
    /// Whether bursts are told, and when the last one was, on the kernel's clock.
    watched: bool,
    burst_told_ns: u64,
    /// Threads entered since the last window that were there before.
    entered: u64,
    runnable: RunnableCount,
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
        Self {
            slot,
            cgroup,
            bound: BoundThreads::default(),
            births: Births::read(programs, slot),
            threads: 0,
            watched: false,
            burst_told_ns: 0,
            entered: 0,
            runnable: RunnableCount::begin(programs, slot),
        }
    }

    /// The slot is free again.
    pub fn let_go(mut self, programs: &Loaded) {
        self.runnable.pause(programs);
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
        if left > 0 {
            self.runnable.pause(programs);
        }
    }

    /// Nobody is new who was entered so far.
    pub fn nobody_is_new(&mut self) {
        self.entered = 0;
    }

    /// What it did since the last call and until `at_ns`, which was `shares`. `threads`: those that it has now.
    pub fn seen(
        &mut self,
        programs: &Loaded,
        (shares, at_ns): (&[(VcpuId, Share)], u64),
        threads: impl FnOnce() -> Vec<i32>,
    ) -> SeenGroup {
        let now = Births::read(programs, self.slot);
        let last = std::mem::replace(&mut self.births, now);
        let entered = std::mem::take(&mut self.entered);
        let born = now.born.wrapping_sub(last.born);
        self.threads = (self.threads + born).saturating_sub(now.died.wrapping_sub(last.died));
        let quiet = shares.is_empty() && now == last && entered == 0;
        let pinned = if quiet { self.bound.found() } else { self.bound.window(threads) };
        let all = || shares.iter().map(|(_, share)| share);
        let merged = |which: fn(&Share) -> &Distribution| {
            all().map(which).fold(Distribution::new(), |mut all, one| {
                all.merge(one);
                all
            })
        };
        self.runnable.window(programs, quiet, at_ns);
        let wake_to_run = merged(|share| &share.wake_to_run);
        let group = GroupWindow {
            pinned,
            progress: None,
            system_calls: None,
            threads: self.threads,
            new_threads: born + entered,
            execs: Some(now.execs.wrapping_sub(last.execs)),
            cpu_time: all().map(|share| share.work).sum(),
            voluntary_switches: all().map(|share| share.voluntary).sum(),
            involuntary_switches: all().map(|share| share.involuntary).sum(),
            g_comp: Some(merged(|share| &share.g_comp)),
            waited: Some(wake_to_run.sum()),
            wake_to_run: Some(wake_to_run),
        };
        let work = shares.iter().map(|(id, share)| (*id, share.as_work())).collect();
        SeenGroup { quiet, group, work: Some(work) }
    }
}

/// Threads that came and went, and calls of exec, since the slot was first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Births {
    born: u64,
    died: u64,
    execs: u64,
}

impl Births {
    fn read(programs: &Loaded, slot: u32) -> Self {
        let count = |offset| programs.groups.read_field(slot as usize, offset);
        Self {
            born: count(offset_of!(group_state, born)),
            died: count(offset_of!(group_state, died)),
            execs: count(offset_of!(group_state, execs)),
        }
    }
}

/// The processes in a cgroup, but for those.
fn members_of(folder: &Path, nobodys: &[i32]) -> BTreeSet<i32> {
    let mut members = members_below(folder);
    members.retain(|pid| !nobodys.contains(pid));
    members
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
