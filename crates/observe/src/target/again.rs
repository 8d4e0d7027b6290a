//! Roots of what has been asked before: most looks find what the last one found.

use super::{Target, members_below, stat_of, without_children};
use crate::ProcRoot;
use gleaner_sys::thread_cpu_time;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Asking a cgroup may cost this part of one CPU: whoever manages it may make very many below it.
const RARITY: u32 = 400;
const SHORTEST_REST: Duration = Duration::from_secs(5);

/// What cgroups held when they were last asked, and which of it had no parent there.
#[derive(Debug, Default)]
pub struct LastRoots {
    by_folder: BTreeMap<PathBuf, Last>,
    next: BTreeMap<PathBuf, Last>,
}

#[derive(Debug)]
struct Last {
    members: BTreeSet<i32>,
    roots: Vec<i32>,
    /// Until then it is not asked as long as a root of it is there.
    rests_until: Instant,
}

impl LastRoots {
    /// All have been asked. Those that were not are forgotten.
    pub fn all_asked(&mut self) {
        self.by_folder = std::mem::take(&mut self.next);
    }
}

impl Target {
    /// Its roots, where it has been asked before: as long as the same processes are in a cgroup, their parents are not
    /// asked for again. What takes long is asked seldom.
    pub fn roots_again(&self, root: &ProcRoot, last: &mut LastRoots) -> Vec<i32> {
        let Self::Cgroup { folder } = self else { return self.roots(root) };
        let known = last.by_folder.remove(folder);
        let now = match known {
            Some(mut known) if Instant::now() < known.rests_until && known.is_there(root) => {
                known.roots.retain(|pid| stat_of(root, *pid).is_some());
                known
            }
            known => Last::ask(root, folder, known),
        };
        let roots = now.roots.clone();
        last.next.insert(folder.clone(), now);
        roots
    }
}

impl Last {
    fn ask(root: &ProcRoot, folder: &Path, before: Option<Self>) -> Self {
        let began = thread_cpu_time();
        let members = members_below(folder);
        let same = before.filter(|before| before.members == members);
        let roots = same.map_or_else(|| without_children(root, &members), |same| same.roots);
        let rests_until = Instant::now() + rest_after((thread_cpu_time() - began).into());
        Self { members, roots, rests_until }
    }

    fn is_there(&self, root: &ProcRoot) -> bool {
        self.roots.iter().any(|pid| stat_of(root, *pid).is_some())
    }
}

/// None where it is so short that the next look comes later anyway.
fn rest_after(cost: Duration) -> Duration {
    Some(cost * RARITY).filter(|rest| *rest > SHORTEST_REST).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;
    use std::fs;

    #[test]
    fn parents_are_asked_for_again_once_other_processes_are_there() {
        let (_folder, root) = machine(&[("a", "10\n11\n")], &[(10, 1, "sh"), (11, 10, "fork")]);
        let (target, mut last) = (Target::cgroup(&root, Path::new("/a")).unwrap(), LastRoots::default());
        for (procs, roots) in [("10\n11\n", [10]), ("10\n11\n", [10]), ("11\n", [11])] {
            fs::write(root.sys.join("fs/cgroup/a/cgroup.procs"), procs).unwrap();
            assert_eq!(target.roots_again(&root, &mut last), roots);
            last.all_asked();
        }
    }

    #[test]
    fn what_takes_long_is_asked_seldom_as_long_as_it_is_there() {
        assert_eq!(rest_after(Duration::from_millis(1)), Duration::ZERO);
        assert_eq!(rest_after(Duration::from_millis(100)), Duration::from_secs(40));
        let (_folder, root) = machine(&[("a", "10\n11\n")], &[(10, 1, "sh"), (11, 1, "sh"), (12, 1, "sh")]);
        let (target, mut last) = (Target::cgroup(&root, Path::new("/a")).unwrap(), LastRoots::default());
        let mut look = || {
            let roots = target.roots_again(&root, &mut last);
            last.all_asked();
            last.by_folder.values_mut().for_each(|known| known.rests_until += Duration::from_secs(60));
            roots
        };
        assert_eq!(look(), [10, 11]);
        fs::write(root.sys.join("fs/cgroup/a/cgroup.procs"), "12\n").unwrap();
        assert_eq!(look(), [10, 11], "not asked");
        fs::remove_dir_all(root.proc.join("10")).unwrap();
        assert_eq!(look(), [11]);
        fs::remove_dir_all(root.proc.join("11")).unwrap();
        assert_eq!(look(), [12], "all are gone");
    }
}
