//! Imbalanced scheduling: confining the managed group to the active vCPUs.
//!
//! | kind | how | when it is chosen |
//! | --- | --- | --- |
//! | `affinity` | each thread's mask | unless a cpuset is asked for |
//! | `cpuset-v2`, `cpuset-v1` | a cgroup below our own, the program joins it before exec | by name |
//!
//! Masks cost nothing until the group is confined, and leave a thread that pinned itself where it wants to be. A cpuset
//! takes 10 ms before exec. Inside a narrowed one the kernel refuses a thread a vCPU that is not active (EINVAL), and
//! before 6.2 it forgets a program's own affinities (mainline commit 8f9ea86fdf99, "sched: Always preserve the user
//! requested cpumask"). On v2, a child of a non-root cgroup that has processes cannot get controllers, and a sibling
//! would escape the session's limits. The program sees every vCPU at exec whichever it is, so that it sizes its pools
//! as it always does.

use crate::ActError;
use crate::affinity::{Affinities, AffinityStep, GroupAffinity, ThreadAffinity, needed};
use crate::cgroup::{self, CgroupHierarchies, Hierarchy, RemoveCgroup};
use crate::journal::Journal;
use crate::procs::{process_start_time, thread_start_time};
use gleaner_model::CpuSet;
use std::path::{Path, PathBuf};

/// The means in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementKind {
    /// A cgroup of the unified hierarchy.
    CpusetV2,
    /// A cgroup of the v1 cpuset hierarchy.
    CpusetV1,
    /// Per-thread masks.
    Affinity,
}

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementRequest {
    /// Masks, which are to be had everywhere.
    #[default]
    Auto,
    /// A cpuset, whatever the kernel's age; an error where there is none.
    Cpuset,
    /// Masks.
    Affinity,
}

#[derive(Debug)]
enum Backend {
    Cpuset { folder: PathBuf, kind: PlacementKind },
    Affinity(Affinities),
}

/// Confines one group of threads. Nothing is confined until [`Placement::confine`] is called.
#[derive(Debug)]
pub struct Placement {
    backend: Backend,
    base: CpuSet,
    active: CpuSet,
    /// Where an undo begins to look for its threads: the program, and processes that joined it.
    roots: Vec<i32>,
    /// Of how many of them the journal knows that masks are changed.
    roots_journalled: usize,
    /// Passes over the threads still to be made after the group was given everything back.
    passes_left: u32,
}

/// Processes besides the program whose descendants an undo looks for.
const ROOTS_MAX: usize = 64;

/// A thread born while its creator is being widened inherits the narrow mask, and was on nobody's list.
const PASSES_AFTER_WIDENING: u32 = 3;

impl Placement {
    /// Prepares to confine a program that may use `base`.
    ///
    /// # Errors
    /// [`ActError::Unavailable`] when a cpuset was asked for and cannot be made.
    pub fn prepare(
        request: PlacementRequest,
        base: &CpuSet,
        hierarchies: &CgroupHierarchies,
        journal: &mut Journal,
    ) -> Result<Self, ActError> {
        let backend = match request {
            PlacementRequest::Auto | PlacementRequest::Affinity => Backend::Affinity(Affinities::new(base.clone())),
            PlacementRequest::Cpuset => {
                let made = make_cpuset(base, hierarchies, journal);
                let (folder, kind) = made.map_err(|why| ActError::Unavailable { what: "a cpuset".into(), why })?;
                Backend::Cpuset { folder, kind }
            }
        };
        Ok(Self::new(backend, base))
    }

    fn new(backend: Backend, base: &CpuSet) -> Self {
        let (base, active) = (base.clone(), base.clone());
        Self { backend, base, active, roots: vec![0], roots_journalled: 0, passes_left: 0 }
    }

    /// The cgroup.procs file that the program has to write itself into before exec, where there is one.
    pub fn join_file(&self) -> Option<PathBuf> {
        match &self.backend {
            Backend::Cpuset { folder, .. } => Some(folder.join("cgroup.procs")),
            Backend::Affinity(_) => None,
        }
    }

    /// The program runs as `root_pid`: where an undo begins to look for its threads.
    pub fn program_started(&mut self, root_pid: i32) {
        self.roots = vec![root_pid];
    }

    /// This process belongs to the group, and descends from none that is known. To be journalled when the group is
    /// confined next.
    pub fn another_joined(&mut self, pid: i32) {
        if self.roots.len() < ROOTS_MAX && !self.roots.contains(&pid) {
            self.roots.push(pid);
        }
    }

    fn before_masks(&mut self, journal: &mut Journal) -> Result<(), ActError> {
        while let Some(&root_pid) = self.roots.get(self.roots_journalled) {
            let root_start_time = process_start_time(root_pid).unwrap_or(0);
            journal.before(&GroupAffinity { root_pid, root_start_time, base: self.base.to_string() })?;
            self.roots_journalled += 1;
        }
        Ok(())
    }

    /// Confines the group, whose threads are `tids`, to `active`. With masks this has to be repeated for new threads
    /// while [`Placement::follows_threads`] says so; repeating it is cheap.
    ///
    /// # Errors
    /// When the journal or the cpuset cannot be written; then nothing was changed.
    pub fn confine(&mut self, active: &CpuSet, tids: &[i32], journal: &mut Journal) -> Result<(), ActError> {
        if matches!(self.backend, Backend::Affinity(_)) {
            if *active == self.base && self.roots_journalled == 0 {
                // No mask was ever changed.
                return Ok(());
            }
            self.before_masks(journal)?;
        }
        match &mut self.backend {
            Backend::Cpuset { folder, .. } if *active != self.active => {
                cgroup::write(&folder.join("cpuset.cpus"), &active.to_string())?;
            }
            Backend::Cpuset { .. } => {}
            Backend::Affinity(affinities) => {
                if !affinities.knows_step(active) {
                    journal.before(&AffinityStep { active: active.to_string() })?;
                }
                // Before the step: a thread that the program pinned to just what is to be active is told from one that
                // we confined.
                for (choice, current) in affinities.new_choices(tids) {
                    journal.before(&ThreadAffinity::from(&choice))?;
                    affinities.remember(choice, current);
                }
                if let Err(error) = journal.compact_if_long(needed(|tid, start| thread_start_time(tid) == Some(start)))
                {
                    tracing::warn!("{error}");
                }
                // A wider mask spreads nobody: who wakes the other keeps it near. Some are to be on what is given until
                // the next pass, and then they stay there by themselves.
                let given = active.difference(&self.active);
                let elsewhere = Affinities::to_move(tids, given.len(), active.len());
                if !elsewhere.is_empty() {
                    if !affinities.knows_step(&given) {
                        journal.before(&AffinityStep { active: given.to_string() })?;
                    }
                    affinities.begin_step(&given);
                    affinities.confine(&elsewhere, &given);
                }
                affinities.begin_step(active);
                let others: Vec<i32> = tids.iter().copied().filter(|tid| !elsewhere.contains(tid)).collect();
                affinities.confine(&others, active);
                let as_before = *active == self.active;
                self.passes_left = if as_before { self.passes_left.saturating_sub(1) } else { PASSES_AFTER_WIDENING };
            }
        }
        self.active = active.clone();
        Ok(())
    }

    /// Gives everything back to the group while it can still be seen: its threads, as `threads` tells them each time it
    /// is asked. An undo from the journal finds processes by ancestry and mark, and some have neither.
    ///
    /// # Errors
    /// As [`Placement::confine`].
    pub fn release(&mut self, mut threads: impl FnMut() -> Vec<i32>, journal: &mut Journal) -> Result<(), ActError> {
        let base = self.base.clone();
        self.confine(&base, &threads(), journal)?;
        while self.follows_threads() {
            self.confine(&base, &threads(), journal)?;
        }
        Ok(())
    }

    /// Whether new threads have to be looked for and confined one by one: with masks, while the group is confined and
    /// for a few passes after.
    pub fn follows_threads(&self) -> bool {
        matches!(self.backend, Backend::Affinity(_)) && (self.active != self.base || self.passes_left > 0)
    }

    /// The means in use.
    pub fn kind(&self) -> PlacementKind {
        match &self.backend {
            Backend::Cpuset { kind, .. } => *kind,
            Backend::Affinity(_) => PlacementKind::Affinity,
        }
    }
}

/// Makes the group's cpuset below our own cgroup; `Err` says why there is none.
fn make_cpuset(
    base: &CpuSet,
    hierarchies: &CgroupHierarchies,
    journal: &mut Journal,
) -> Result<(PathBuf, PlacementKind), String> {
    let hierarchy = hierarchies.cpuset.as_ref().ok_or("no cpuset controller is mounted or delegated")?;
    if hierarchy.v2 && !hierarchy.own_is_root() {
        return Err(format!(
            "Gleaner runs in the cgroup {}, which holds processes, and cgroup v2 allows cpusets only below a cgroup that \
             holds none, or below the root",
            hierarchy.own.display()
        ));
    }
    let folder = hierarchy.own.join(format!("gleaner-{}", journal.run_id()));
    fill_cpuset(&folder, base, hierarchy, journal).map_err(|error| error.to_string())?;
    Ok((folder, if hierarchy.v2 { PlacementKind::CpusetV2 } else { PlacementKind::CpusetV1 }))
}

fn fill_cpuset(folder: &Path, base: &CpuSet, parent: &Hierarchy, journal: &mut Journal) -> Result<(), ActError> {
    if parent.v2 {
        cgroup::enable_controller(&parent.own, "cpuset", journal)?;
    }
    journal.before(&RemoveCgroup { path: folder.to_owned(), members_to: Some(parent.own.clone()) })?;
    cgroup::make(folder)?;
    if !parent.v2 {
        // A v1 cpuset takes no task before both are set.
        cgroup::write(&folder.join("cpuset.mems"), &cgroup::read(&parent.own.join("cpuset.mems"))?)?;
    }
    cgroup::write(&folder.join("cpuset.cpus"), &base.to_string())
}

#[cfg(test)]
mod tests;
