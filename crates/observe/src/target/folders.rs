//! The folders of cgroups, and who is in them. Whoever may make cgroups may make very many, so each search has a bound,
//! and goes nowhere where nothing can be that is wanted.

use std::cell::OnceCell;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Slices in slices.
const DEEPEST: usize = 6;
/// Folders looked at in one search.
const MOST_FOLDERS: usize = 10_000;

/// What cgroups there are, read once for all names of units that are looked for at one time.
#[derive(Debug, Default)]
pub struct Cgroups {
    by_hierarchy: [OnceCell<Vec<PathBuf>>; super::HIERARCHIES.len()],
}

impl Cgroups {
    /// All in this hierarchy, no deeper and no more than is reasonable.
    pub(super) fn all(&self, hierarchy: usize, top: &Path) -> &[PathBuf] {
        self.by_hierarchy[hierarchy].get_or_init(|| below(top, &|_| true))
    }
}

/// The folders below `top`, of those into which `enters` lets the search.
pub(super) fn below(top: &Path, enters: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    Search::all(top, DEEPEST, enters, MOST_FOLDERS)
}

/// Whether something below `folder` may match, as far as the pattern's parts before any `**` say.
pub(super) fn may_lead_to(pattern: &glob::Pattern, folder: &Path) -> bool {
    let mut parts = pattern.as_str().split('/').filter(|part| !part.is_empty());
    for name in folder.components().filter(|component| matches!(component, Component::Normal(_))) {
        match parts.next().map(|part| (part, glob::Pattern::new(part))) {
            // A set of characters with a slash in it is no pattern: then nobody knows.
            Some(("**", _) | (_, Err(_))) => return true,
            Some((_, Ok(part))) if part.matches(&name.as_os_str().to_string_lossy()) => {}
            _ => return false,
        }
    }
    parts.next().is_some()
}

/// The processes of a cgroup and of those below it.
pub(crate) fn members_below(folder: &Path) -> BTreeSet<i32> {
    let inner = Search::all(folder, DEEPEST - 2, &|_| true, MOST_FOLDERS);
    members(folder).into_iter().chain(inner.iter().flat_map(|folder| members(folder))).collect()
}

fn members(folder: &Path) -> Vec<i32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0).collect()
}

/// The folders in one, its own first. Then each of those has its turn, so that who makes many hides nobody else's, and
/// a turn that one does not need is the next one's.
struct Search {
    own: std::vec::IntoIter<PathBuf>,
    levels: usize,
    inner: VecDeque<Inner>,
}

/// Whose turn comes.
enum Inner {
    Unopened(PathBuf),
    Opened(Search),
}

impl Search {
    /// So many levels deep; nobody wants more than `most`.
    fn open(folder: &Path, levels: usize, most: usize) -> Self {
        let own: Vec<PathBuf> = folders(folder).take(most).collect();
        Self { own: own.into_iter(), levels, inner: VecDeque::new() }
    }

    fn next(&mut self, enters: &dyn Fn(&Path) -> bool, most: usize) -> Option<PathBuf> {
        if let Some(path) = self.own.next() {
            if self.levels > 1 && enters(&path) && has_folders(&path) {
                self.inner.push_back(Inner::Unopened(path.clone()));
            }
            return Some(path);
        }
        loop {
            let mut inner = match self.inner.pop_front()? {
                Inner::Unopened(path) => Self::open(&path, self.levels - 1, most),
                Inner::Opened(search) => search,
            };
            if let Some(found) = inner.next(enters, most) {
                self.inner.push_back(Inner::Opened(inner));
                return Some(found);
            }
        }
    }

    /// At most so many.
    fn all(folder: &Path, levels: usize, enters: &dyn Fn(&Path) -> bool, most: usize) -> Vec<PathBuf> {
        let mut search = Self::open(folder, levels, most);
        std::iter::from_fn(|| search.next(enters, most)).take(most).collect()
    }
}

/// Whether there may be folders in a folder: some file systems do not count them.
fn has_folders(folder: &Path) -> bool {
    // Its own name and `.`: no folder in it has it for a parent.
    fs::metadata(folder).is_ok_and(|of| of.nlink() != 2)
}

fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProcRoot, Selector, Target};

    /// A machine with these cgroups, and nothing in them.
    fn machine(cgroups: impl IntoIterator<Item = String>) -> (tempfile::TempDir, ProcRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        cgroups.into_iter().for_each(|path| fs::create_dir_all(root.sys.join("fs/cgroup").join(path)).unwrap());
        (folder, root)
    }

    fn search(top: &Path, most: usize) -> Vec<PathBuf> {
        Search::all(top, DEEPEST, &|_| true, most)
    }

    #[test]
    fn who_makes_very_many_cgroups_hides_nobody_elses() {
        let others = (0..9).map(|other| format!("a.slice/b.slice/c{other}.slice/d.slice/e.service"));
        let flat = (0..200).map(|many| format!("a.slice/b.slice/user.slice/{many}"));
        let nested = (0..200).map(|many| format!("a.slice/b.slice/user.slice/{}/{many}/x/y", many % 20));
        // It comes first, and seems to have as few as the others.
        let hidden = (0..200).map(|many| format!("a.slice/b.slice/a0.slice/x/{many}"));
        for hostile in [flat.collect::<Vec<_>>(), nested.collect(), hidden.collect()] {
            let (_folder, root) = machine(others.clone().chain(hostile));
            let top = root.sys.join("fs/cgroup");
            let found = search(&top, 100);
            assert!(found.len() <= 100, "{}", found.len());
            assert_eq!(found.iter().filter(|path| path.ends_with("e.service")).count(), 9);
            assert_eq!(found.len(), 100, "what others leave is for who has many");
            let all = search(&top, 1000);
            assert!(all.len() > 200 && all.len() < 1000, "with room for all: {}", all.len());
        }
    }

    #[test]
    fn no_search_looks_at_more_folders_than_there_may_be() {
        let many = MOST_FOLDERS + 100;
        let (_folder, root) = machine((0..many).map(|many| format!("user.slice/{many}")));
        let top = root.sys.join("fs/cgroup");
        for pid in 0..many {
            fs::write(top.join(format!("user.slice/{pid}/cgroup.procs")), format!("{}\n", pid + 1)).unwrap();
        }
        assert_eq!(below(&top, &|_| true).len(), MOST_FOLDERS);
        assert_eq!(members_below(&top.join("user.slice")).len(), MOST_FOLDERS, "those of them");
        fs::create_dir_all(top.join("z.slice/b.service")).unwrap();
        fs::write(top.join("z.slice/b.service/cgroup.procs"), "").unwrap();
        assert!(Target::unit(&root, "b").is_ok(), "a unit by name");
        let known = |selector: Selector| {
            let asked = std::cell::Cell::new(0);
            let every = |_: &Target| asked.replace(asked.get() + 1) < usize::MAX;
            assert_eq!(selector.find_others(&root, &Cgroups::default(), many, every), []);
            asked.get()
        };
        // Each is asked for twice: as a cgroup, and as one to look into. Two folders are no user's.
        assert_eq!(known(Selector::cgroup("/user.slice/*").unwrap()), 2 * (MOST_FOLDERS - 2));
        assert!(known(Selector::unit("[0-9]*[0-9]").unwrap()) <= 2 * MOST_FOLDERS);
    }

    #[test]
    fn a_search_enters_only_what_may_lead_to_a_match() {
        let cases = [
            ("/kubepods.slice/*", "/kubepods.slice", true),
            ("/kubepods.slice/*", "/", true),
            ("/kubepods.slice/*", "/user.slice", false),
            ("/kubepods.slice/*", "/kubepods.slice/pod1", false),
            ("/kubepods.slice/**/x", "/kubepods.slice/a/b/c", true),
            ("/kubepods.slice/**/x", "/user.slice/a", false),
            ("/kube*/pod?/[ab]", "/kubepods.slice/pod1", true),
            ("/kube*/pod?/[ab]", "/kubepods.slice/pod10", false),
            ("/**/x", "/a/b", true),
            ("/a[b/c]d/x", "/anything", true),
        ];
        for (pattern, folder, enters) in cases {
            assert_eq!(
                may_lead_to(&glob::Pattern::new(pattern).unwrap(), Path::new(folder)),
                enters,
                "{pattern} {folder}"
            );
        }
        let (_folder, root) = machine(["user.slice/a/b", "kubepods.slice/a"].map(str::to_owned));
        let pattern = glob::Pattern::new("/kubepods.slice/*").unwrap();
        let top = root.sys.join("fs/cgroup");
        let inside = |path: &Path| Path::new("/").join(path.strip_prefix(&top).unwrap());
        assert_eq!(below(&top, &|path| may_lead_to(&pattern, &inside(path))).len(), 3, "nothing of user.slice's");
    }
}
