//! Imbalanced scheduling: confining the managed group to the active vCPUs.
//!
//! | kind | how | when it is chosen |
//! | --- | --- | --- |
//! | `cpuset-v2`, `cpuset-v1` | a cgroup below our own, the program joins it before exec | privileged, kernel 6.2 or newer |
//! | `affinity` | each thread's mask | everywhere else |
//!
//! Before 6.2 a kernel forgets a program's own affinities whenever its cpuset changes (mainline commit 8f9ea86fdf99,
//! "sched: Always preserve the user requested cpumask"), so there the threads' masks are the safer means. On v2, a
//! child of a non-root cgroup that has processes cannot get controllers, and a sibling would escape the session's
//! limits: again masks. The program sees every vCPU at exec whichever it is, so that it sizes its pools as it always
//! does.
//!
//! A program that pins its own threads gets masks in any case (unless a cpuset was asked for by name): inside a
//! narrowed cpuset the kernel would refuse it a vCPU that is not active (EINVAL), and move threads away that it has
//! pinned there.

use crate::affinity::{Affinities, affinity_of, is_what_is_left, offline_of};
use crate::cgroup::{self, CgroupHierarchies, Hierarchy};
use crate::journal::Journal;
use crate::undo::{self, Undo};
use crate::{ActError, Fallback, process_start_time};
use gleaner_model::{CpuSet, KernelVersion};
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
    /// The best that is to be had.
    #[default]
    Auto,
    /// A cpuset, whatever the kernel's age; an error where there is none.
    Cpuset,
    /// Masks.
    Affinity,
}

#[derive(Debug)]
enum Backend {
    /// `by_name`: the user insists on it.
    Cpuset {
        folder: PathBuf,
        kind: PlacementKind,
        by_name: bool,
    },
    Affinity(Affinities),
}

/// Confines one group of threads. Nothing is confined until [`Placement::confine`] is called.
#[derive(Debug)]
pub struct Placement {
    backend: Backend,
    base: CpuSet,
    active: CpuSet,
    root_pid: i32,
    /// Whether the journal knows that masks are changed.
    masks_journalled: bool,
    /// Passes over the threads still to be made after the group was given everything back.
    passes_left: u32,
}

/// A thread born while its creator is being widened inherits the narrow mask, and was on nobody's list.
const PASSES_AFTER_WIDENING: u32 = 3;

impl Placement {
    /// Prepares to confine a program that may use `base`.
    ///
    /// # Errors
    /// [`ActError::Unavailable`] when a cpuset was asked for by name and cannot be made.
    pub fn prepare(
        request: PlacementRequest,
        base: &CpuSet,
        hierarchies: &CgroupHierarchies,
        journal: &mut Journal,
    ) -> Result<(Self, Option<Fallback>), ActError> {
        let with = |backend| Self::new(backend, base);
        let affinity = || with(Backend::Affinity(Affinities::new(base.clone())));
        let why = match request {
            PlacementRequest::Affinity => return Ok((affinity(), None)),
            PlacementRequest::Auto if !kernel_keeps_user_affinity() => {
                "before Linux 6.2 a cpuset change makes the kernel forget a program's own affinities".to_owned()
            }
            _ => match make_cpuset(base, hierarchies, journal) {
                Ok((folder, kind)) => {
                    let by_name = request == PlacementRequest::Cpuset;
                    return Ok((with(Backend::Cpuset { folder, kind, by_name }), None));
                }
                Err(why) => why,
            },
        };
        if request == PlacementRequest::Cpuset {
            return Err(ActError::Unavailable { what: "a cpuset".into(), why });
        }
        Ok((affinity(), Some(Fallback { wanted: "cpuset", used: "thread affinity", why })))
    }

    fn new(backend: Backend, base: &CpuSet) -> Self {
        let (base, active) = (base.clone(), base.clone());
        Self { backend, base, active, root_pid: 0, masks_journalled: false, passes_left: 0 }
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
        self.root_pid = root_pid;
    }

    fn before_masks(&mut self, journal: &mut Journal) -> Result<(), ActError> {
        if self.masks_journalled {
            return Ok(());
        }
        let root_start_time = process_start_time(self.root_pid).unwrap_or(0);
        let base = self.base.to_string();
        journal.before(&Undo::GroupAffinity { root_pid: self.root_pid, root_start_time, base })?;
        self.masks_journalled = true;
        Ok(())
    }

    /// Confines the group, whose threads are `tids`, to `active`. With masks this has to be repeated for new threads
    /// while [`Placement::follows_threads`] says so; repeating it is cheap. Says so when masks took the cpuset's place.
    ///
    /// # Errors
    /// When the journal or the cpuset cannot be written; then nothing was changed.
    pub fn confine(
        &mut self,
        active: &CpuSet,
        tids: &[i32],
        journal: &mut Journal,
    ) -> Result<Option<Fallback>, ActError> {
        let fallback = self.give_way_to_pinned(active, tids, journal)?;
        if matches!(self.backend, Backend::Affinity(_)) {
            if *active == self.base && !self.masks_journalled {
                // No mask was ever changed.
                return Ok(fallback);
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
                    journal.before(&Undo::AffinityStep { active: active.to_string() })?;
                }
                // Before the step: a thread that the program pinned to just what is to be active is told from one that
                // we confined.
                for choice in affinities.new_choices(tids) {
                    journal.before(&undo::own_affinity(&choice))?;
                }
                if let Err(error) = journal.compact_if_long() {
                    tracing::warn!("{error}");
                }
                affinities.begin_step(active);
                affinities.confine(tids, active);
                self.passes_left =
                    if *active == self.active { self.passes_left.saturating_sub(1) } else { PASSES_AFTER_WIDENING };
            }
        }
        self.active = active.clone();
        Ok(fallback)
    }

    /// Goes over to masks before the group is confined further, if one of its threads has pinned itself.
    fn give_way_to_pinned(
        &mut self,
        active: &CpuSet,
        tids: &[i32],
        journal: &mut Journal,
    ) -> Result<Option<Fallback>, ActError> {
        let Backend::Cpuset { folder, by_name: false, .. } = &self.backend else { return Ok(None) };
        let cpus = folder.join("cpuset.cpus");
        let offline = offline_of(&self.base);
        let has_pinned_itself =
            |tid: &i32| affinity_of(*tid).is_some_and(|mask| !is_what_is_left(&mask, &self.active, &offline));
        if *active == self.active || *active == self.base || !tids.iter().any(has_pinned_itself) {
            return Ok(None);
        }
        if self.active.is_subset(&offline) || offline_of(&self.base) != offline {
            // vCPUs come and go: the masks are the kernel's doing.
            return Ok(None);
        }
        self.before_masks(journal)?;
        if self.active != self.base {
            cgroup::write(&cpus, &self.base.to_string())?;
        }
        self.active = self.base.clone();
        self.backend = Backend::Affinity(Affinities::new(self.base.clone()));
        let why = "the program pins threads itself, and a cpuset would overrule it".to_owned();
        Ok(Some(Fallback { wanted: "cpuset", used: "thread affinity", why }))
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
    journal.before(&Undo::RemoveCgroup { path: folder.to_owned(), members_to: Some(parent.own.clone()) })?;
    cgroup::make(folder)?;
    if !parent.v2 {
        // A v1 cpuset takes no task before both are set.
        cgroup::write(&folder.join("cpuset.mems"), &cgroup::read(&parent.own.join("cpuset.mems"))?)?;
    }
    cgroup::write(&folder.join("cpuset.cpus"), &base.to_string())
}

/// Whether cpuset changes leave a program's own affinities alone.
fn kernel_keeps_user_affinity() -> bool {
    let release = rustix::system::uname();
    KernelVersion::of_release(&release.release().to_string_lossy())
        .is_some_and(|version| version >= KernelVersion(6, 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::set_affinity;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{JoinHandle, spawn};

    /// A thread that says its id, and has a child of the same sort each time it is told to.
    fn parent(says: Sender<i32>) -> (Sender<()>, JoinHandle<()>) {
        let (tell, told): (_, Receiver<()>) = channel();
        let body = move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            says.send(tid).unwrap();
            let children: Vec<_> = told.iter().map(|()| parent(says.clone())).collect();
            for (tell, child) in children {
                drop(tell);
                child.join().unwrap();
            }
        };
        (tell, spawn(body))
    }

    fn by_masks(base: &CpuSet) -> Placement {
        Placement::new(Backend::Affinity(Affinities::new(base.clone())), base)
    }

    fn by_cpuset(folder: &Path, base: &CpuSet, by_name: bool) -> Placement {
        let backend = Backend::Cpuset { folder: folder.to_owned(), kind: PlacementKind::CpusetV1, by_name };
        Placement { backend, ..by_masks(base) }
    }

    #[test]
    fn what_is_chosen_of_itself_is_what_the_kernel_bears() {
        let base = affinity_of(0).unwrap();
        let hierarchies = CgroupHierarchies::find(&crate::CgroupRoots::default());
        let folder = tempfile::tempdir().unwrap();
        let prepared = |request| {
            let mut journal = Journal::create(folder.path(), "test").unwrap();
            let prepared = Placement::prepare(request, &base, &hierarchies, &mut journal);
            let prepared = prepared.map(|(placement, fallback)| (placement.kind(), fallback.is_some()));
            crate::undo_own(&journal).unwrap();
            prepared
        };
        let Ok((cpuset, _)) = prepared(PlacementRequest::Cpuset) else {
            gleaner_testing::skip!("no cpuset can be made here");
        };
        let of_itself = prepared(PlacementRequest::Auto).unwrap();
        let kept = kernel_keeps_user_affinity();
        assert_eq!(of_itself, if kept { (cpuset, false) } else { (PlacementKind::Affinity, true) });
        assert_eq!(prepared(PlacementRequest::Affinity).unwrap(), (PlacementKind::Affinity, false));
        assert_ne!(cpuset, PlacementKind::Affinity);
    }

    #[test]
    fn a_thread_born_while_its_creator_is_widened_is_widened_later() {
        let base = affinity_of(0).unwrap();
        let Some(first) = base.iter().next().filter(|_| base.len() > 1) else {
            gleaner_testing::skip!("needs two CPUs");
        };
        let active: CpuSet = std::iter::once(first).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path(), "test").unwrap();
        let mut placement = by_masks(&base);
        let (says, heard) = channel();
        let (tell, creator) = parent(says);
        let old = heard.recv().unwrap();
        placement.confine(&active, &[old], &mut journal).unwrap();
        assert_eq!(affinity_of(old), Some(active.clone()));
        tell.send(()).unwrap();
        let young = heard.recv().unwrap();
        placement.confine(&base, &[old], &mut journal).unwrap();
        assert_eq!((affinity_of(old), affinity_of(young)), (Some(base.clone()), Some(active)));
        assert!(placement.follows_threads());
        placement.confine(&base, &[old, young], &mut journal).unwrap();
        assert_eq!(affinity_of(young), Some(base.clone()));
        for _ in 0..PASSES_AFTER_WIDENING {
            placement.confine(&base, &[old, young], &mut journal).unwrap();
        }
        assert!(!placement.follows_threads());
        drop(tell);
        creator.join().unwrap();
    }

    #[test]
    fn a_thread_that_was_pinned_to_what_becomes_active_keeps_its_choice() {
        let base = affinity_of(0).unwrap();
        let Some(first) = base.iter().next().filter(|_| base.len() > 1) else {
            gleaner_testing::skip!("needs two CPUs");
        };
        let active: CpuSet = std::iter::once(first).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path(), "test").unwrap();
        let mut placement = by_masks(&base);
        let (says, heard) = channel();
        let (tell, thread) = parent(says);
        let tid = heard.recv().unwrap();
        assert!(set_affinity(tid, &active));
        placement.confine(&active, &[tid], &mut journal).unwrap();
        placement.confine(&base, &[tid], &mut journal).unwrap();
        assert_eq!(affinity_of(tid), Some(active));
        drop(tell);
        thread.join().unwrap();
    }

    #[test]
    fn a_program_that_pins_a_thread_gets_masks_instead_of_a_cpuset() {
        let base = affinity_of(0).unwrap();
        let Some(first) = base.iter().next().filter(|_| base.len() > 1) else {
            gleaner_testing::skip!("needs two CPUs");
        };
        let active: CpuSet = std::iter::once(first).collect();
        let folder = tempfile::tempdir().unwrap();
        let cpus = folder.path().join("cpuset.cpus");
        let mut journal = Journal::create(&folder.path().join("state"), "test").unwrap();
        let (says, heard) = channel();
        let (tell, thread) = parent(says);
        let tid = heard.recv().unwrap();
        for (by_name, pinned, kind) in [
            (false, false, PlacementKind::CpusetV1),
            (true, true, PlacementKind::CpusetV1),
            (false, true, PlacementKind::Affinity),
        ] {
            std::fs::write(&cpus, "untouched").unwrap();
            assert!(set_affinity(tid, if pinned { &active } else { &base }));
            let mut placement = by_cpuset(folder.path(), &base, by_name);
            let fallback = placement.confine(&active, &[tid], &mut journal).unwrap();
            assert_eq!((placement.kind(), fallback.is_some()), (kind, kind == PlacementKind::Affinity));
            let written = std::fs::read_to_string(&cpus).unwrap();
            assert_eq!(written.starts_with("untouched"), kind == PlacementKind::Affinity, "{written}");
        }
        drop(tell);
        thread.join().unwrap();
    }

    #[test]
    fn a_cpuset_that_vanished_is_named_and_what_was_not_done_is_not_believed() {
        let (base, active): (CpuSet, CpuSet) = ("0-3".parse().unwrap(), "0-1".parse().unwrap());
        let state = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(state.path(), "test").unwrap();
        for was_confined in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let cpus = folder.path().join("cpuset.cpus");
            std::fs::write(&cpus, "").unwrap();
            let mut placement = by_cpuset(folder.path(), &base, false);
            let (is, wanted) = if was_confined { (&active, &base) } else { (&base, &active) };
            placement.confine(is, &[], &mut journal).unwrap();
            folder.close().unwrap();
            // Said each time, not only the first: the program is where it was.
            for _ in 0..2 {
                let error = placement.confine(wanted, &[], &mut journal).unwrap_err().to_string();
                let names = format!("cannot write {}: No such file or directory", cpus.display());
                assert!(error.starts_with(&names), "{error}");
            }
            assert_eq!(placement.confine(is, &[], &mut journal).unwrap(), None, "nothing to be done");
            assert_eq!(placement.release(Vec::new, &mut journal).is_err(), was_confined);
        }
    }

    #[test]
    fn a_program_that_pins_a_thread_gets_masks_though_its_cpuset_vanished() {
        let base = affinity_of(0).unwrap();
        let Some(first) = base.iter().next().filter(|_| base.len() > 1) else {
            gleaner_testing::skip!("needs two CPUs");
        };
        let active: CpuSet = std::iter::once(first).collect();
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut journal = Journal::create(state.path(), "test").unwrap();
        let mut placement = by_cpuset(folder.path(), &base, false);
        folder.close().unwrap();
        let (says, heard) = channel();
        let (tell, thread) = parent(says);
        let tid = heard.recv().unwrap();
        assert!(set_affinity(tid, &active));
        let fallback = placement.confine(&active, &[tid], &mut journal).unwrap().unwrap();
        assert_eq!((placement.kind(), fallback.used), (PlacementKind::Affinity, "thread affinity"));
        drop(tell);
        thread.join().unwrap();
    }
}
