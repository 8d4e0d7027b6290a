//! A cgroup with `cpu.idle = 1` for the yielding threads.
//!
//! "Idle" is judged between siblings: a SCHED_IDLE thread in an ordinary cgroup competes with other cgroups' threads as
//! its *cgroup*, at full weight. So the yielding threads get a cgroup of their own at the top of the unified hierarchy,
//! where they lose to everybody. It takes threads of one process in different cgroups only below a common domain, so
//! this process first moves itself to the root cgroup. The managed program goes back to where this process was; where
//! that cannot be written, the program would silently leave its limits, so there the class has to do. So it has where
//! the cpu controller is cgroup v1's.

use crate::cgroup::{self, CgroupRoots, Hierarchy, RemoveCgroup, cpu_controller};
use crate::journal::Journal;
use crate::{ActError, Fallback};
use std::fs::OpenOptions;
use std::path::PathBuf;

/// How far below everybody else the yielding threads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleMeans {
    /// `cpu.idle` in a cgroup of the unified hierarchy.
    CpuIdle,
    /// The scheduling class alone.
    ClassOnly,
}

/// The yielding threads' cgroup, if one could be made.
#[derive(Clone, Debug)]
pub struct IdleGroup {
    means: IdleMeans,
    /// Where a thread id is written to join.
    tasks: Option<PathBuf>,
    fallback: Option<Fallback>,
}

impl IdleGroup {
    /// No cgroup: the scheduling class has to do.
    pub fn none() -> Self {
        Self { means: IdleMeans::ClassOnly, tasks: None, fallback: None }
    }

    /// A group that is joined by writing to this file.
    #[cfg(test)]
    pub(crate) fn of_tasks(tasks: PathBuf) -> Self {
        Self { means: IdleMeans::CpuIdle, tasks: Some(tasks), fallback: None }
    }

    /// Makes the cgroup; where that is refused, says so in [`IdleGroup::fallback`] and does without.
    pub fn create(journal: &mut Journal) -> Self {
        Self::create_in(cpu_controller(&CgroupRoots::default()), journal)
    }

    fn create_in(hierarchy: Option<Hierarchy>, journal: &mut Journal) -> Self {
        let made = match hierarchy {
            None => Err("no cpu controller is mounted or delegated".to_owned()),
            Some(hierarchy) if hierarchy.v2 => made_in(&hierarchy, journal).map_err(|error| error.to_string()),
            Some(_) => Err("the cpu controller is cgroup v1's, and this needs v2's".to_owned()),
        };
        made.unwrap_or_else(|why| {
            let fallback = Fallback { wanted: "cpu.idle=1", used: "the scheduling class alone", why };
            Self { fallback: Some(fallback), ..Self::none() }
        })
    }

    /// Puts a thread of this process in.
    pub fn join(&self, tid: i32) -> Result<(), ActError> {
        self.tasks.as_ref().map_or(Ok(()), |tasks| cgroup::write(tasks, &tid.to_string()))
    }

    /// What was achieved.
    pub fn means(&self) -> IdleMeans {
        self.means
    }

    /// What had to be done without, and why.
    pub fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }
}

fn made_in(hierarchy: &Hierarchy, journal: &mut Journal) -> Result<IdleGroup, ActError> {
    let root = &hierarchy.mount;
    let way_back = hierarchy.own.join("cgroup.procs");
    if !hierarchy.own_is_root()
        && let Err(source) = OpenOptions::new().write(true).open(&way_back)
    {
        return Err(ActError::Unavailable {
            what: "cgroup v2's cpu.idle".into(),
            why: format!(
                "this process would have to go to the root cgroup, and the program could not go back ({}: {source})",
                way_back.display()
            ),
        });
    }
    cgroup::enable_controller(root, "cpu", journal)?;
    let folder = root.join(format!("gleaner-yield-{}", journal.run_id()));
    journal.before(&RemoveCgroup { path: folder.clone() })?;
    cgroup::make(&folder)?;
    cgroup::write(&folder.join("cgroup.type"), "threaded")?;
    cgroup::write(&folder.join("cpu.idle"), "1")?;
    if !hierarchy.own_is_root() {
        cgroup::write(&root.join("cgroup.procs"), "0")?;
    }
    Ok(IdleGroup { means: IdleMeans::CpuIdle, tasks: Some(folder.join("cgroup.threads")), fallback: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_a_cgroup_without_a_way_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(&dir.path().join("state"), "run-1").unwrap();
        let mount = dir.path().join("cg");
        std::fs::create_dir_all(mount.join("service")).unwrap();
        std::fs::write(mount.join("cgroup.subtree_control"), "").unwrap();
        let hierarchy = Hierarchy { v2: true, own: mount.join("service"), mount: mount.clone() };
        let group = IdleGroup::create_in(Some(hierarchy), &mut journal);
        let why = &group.fallback().unwrap().why;
        assert!(group.means() == IdleMeans::ClassOnly && why.contains("could not go back"), "{why}");
        assert_eq!(std::fs::read_to_string(mount.join("cgroup.subtree_control")).unwrap(), "");
    }

    #[test]
    fn nothing_is_made_in_cgroup_v1() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(&dir.path().join("state"), "run-1").unwrap();
        let mount = dir.path().join("cpu");
        std::fs::create_dir(&mount).unwrap();
        let hierarchy = Hierarchy { v2: false, own: mount.clone(), mount: mount.clone() };
        let group = IdleGroup::create_in(Some(hierarchy), &mut journal);
        assert!(group.fallback().unwrap().why.contains("cgroup v1"), "{group:?}");
        assert_eq!(std::fs::read_dir(&mount).unwrap().count(), 0);
    }
}
