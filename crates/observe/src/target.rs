//! What runs already and is to be managed: a process, the processes of a cgroup, those of a program; and how it is
//! found.
//!
//! ```text
//!   Selector   what somebody wrote: a process id, a program's name, a cgroup or a systemd unit, both with wildcards
//!     find ->
//!   Target     what it means now; its roots are asked for again and again
//! ```

mod again;
mod folders;

pub use again::LastRoots;
pub use folders::Cgroups;
pub(crate) use folders::members_below;

use crate::ProcRoot;
use folders::{below, may_lead_to};
use gleaner_model::{CpuSet, printable};
use gleaner_sys::{Stat, affinity_of, numbered, usable_cpus};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where systemd keeps its units, as distributions mount cgroups below `/sys`: version 2, hybrid, version 1.
const HIERARCHIES: [&str; 3] = ["fs/cgroup", "fs/cgroup/unified", "fs/cgroup/systemd"];

/// Why there is nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No such process.
    #[error("{pid}: no such process")]
    NoProcess {
        /// Its id.
        pid: i32,
    },
    /// No such cgroup.
    #[error("{}: no such cgroup", path.display())]
    NoCgroup {
        /// As it was written.
        path: PathBuf,
    },
    /// No such unit.
    #[error("{name}: no cgroup is called {file}; is it running?")]
    NoUnit {
        /// As it was written.
        name: String,
        /// What was looked for.
        file: String,
    },
}

/// Something that runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// One process, by id and start time: ids come again.
    Process {
        /// Its id.
        pid: i32,
        /// Field 22 of its `stat`.
        start_time: u64,
    },
    /// All that is in a cgroup and below it.
    Cgroup { folder: PathBuf },
    /// All processes of a program.
    Program {
        /// Its name, as `comm` has it.
        name: String,
    },
}

impl Target {
    /// A process.
    pub fn process(root: &ProcRoot, pid: i32) -> Result<Self, TargetError> {
        let found = stat_of(root, pid).filter(|stat| lives(root, pid, stat.0));
        let (_, _, start_time) = found.ok_or(TargetError::NoProcess { pid })?;
        Ok(Self::Process { pid, start_time })
    }

    /// A cgroup, by its folder as it is or as `/proc/PID/cgroup` has it.
    pub fn cgroup(root: &ProcRoot, path: &Path) -> Result<Self, TargetError> {
        let below = |top: PathBuf| top.join(path.strip_prefix("/").unwrap_or(path));
        let mut tried = std::iter::once(path.to_owned()).chain(hierarchies(root).map(below));
        let found = tried.find(|folder| is_cgroup(folder));
        found.map(|folder| Self::Cgroup { folder }).ok_or_else(|| TargetError::NoCgroup { path: path.to_owned() })
    }

    /// The cgroup of a service: its name with or without `.service`.
    pub fn unit(root: &ProcRoot, name: &str) -> Result<Self, TargetError> {
        let (file, cgroups) = (unit_file(name), Cgroups::default());
        let of = |name: &OsStr| nearest(root, &cgroups, name);
        let found = of(OsStr::new(&file)).or_else(|| of(&unit_behind(root, &file)?));
        found.ok_or_else(|| TargetError::NoUnit { name: name.to_owned(), file })
    }

    /// The processes whose parents do not belong to it, this one left out; none: it has ended.
    pub fn roots(&self, root: &ProcRoot) -> Vec<i32> {
        match self {
            Self::Process { pid, start_time } => {
                let same = |(state, _, began): &(u8, i32, u64)| began == start_time && lives(root, *pid, *state);
                stat_of(root, *pid).filter(same).map(|_| *pid).into_iter().collect()
            }
            Self::Cgroup { folder } => without_children(root, &members_below(folder)),
            Self::Program { name } => {
                let wanted = |pid: &i32| comm_of(root, *pid).is_some_and(|comm| comm == name.as_bytes());
                without_children(root, &numbered(&root.proc).filter(wanted).collect())
            }
        }
    }

    /// The command line of the process; of others their name.
    pub fn command(&self, root: &ProcRoot) -> Vec<OsString> {
        match self {
            Self::Process { pid, .. } => {
                let text = fs::read(root.proc.join(format!("{pid}/cmdline"))).unwrap_or_default();
                let words = text.split(|byte| *byte == 0).filter(|word| !word.is_empty());
                words.map(|word| OsStr::from_bytes(word).to_owned()).collect()
            }
            Self::Cgroup { folder } => vec![folder.file_name().unwrap_or(folder.as_os_str()).to_owned()],
            Self::Program { name } => vec![name.into()],
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, .. } => write!(f, "process {pid}"),
            // Others may name cgroups and programs, and this goes into logs.
            Self::Cgroup { folder } => write!(f, "cgroup {}", printable(folder.as_os_str().as_bytes())),
            Self::Program { name } => write!(f, "program {}", printable(name.as_bytes())),
        }
    }
}

/// What somebody wants managed, whether it is there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// A process.
    Pid(i32),
    /// All processes of a program, by its name.
    Program(String),
    /// Cgroups, by folder or by path as `/proc/PID/cgroup` has it; `*`, `?`, `[a-z]` and `**` are wildcards.
    Cgroup(glob::Pattern),
    /// Systemd units, by name; `*`, `?` and `[a-z]` are wildcards.
    Unit(glob::Pattern),
}

impl Selector {
    /// Of a unit, its name with or without `.service`.
    pub fn unit(name: &str) -> Result<Self, glob::PatternError> {
        glob::Pattern::new(&unit_file(name)).map(Self::Unit)
    }

    /// Of a cgroup.
    pub fn cgroup(path: &str) -> Result<Self, glob::PatternError> {
        glob::Pattern::new(path).map(Self::Cgroup)
    }

    /// Whether it may mean several targets.
    pub fn has_wildcards(&self) -> bool {
        match self {
            Self::Pid(_) | Self::Program(_) => false,
            Self::Cgroup(pattern) | Self::Unit(pattern) => pattern.as_str().contains(['*', '?', '[']),
        }
    }

    /// What it means now, at most `most` targets in order of name: those in which something runs.
    pub fn find(&self, root: &ProcRoot, most: usize) -> Vec<(Target, Vec<i32>)> {
        self.find_others(root, &Cgroups::default(), most, |_| false)
    }

    /// The same without those that are `known`, which are not looked into and count all the same. Selectors that are
    /// looked for at one time share `cgroups`.
    pub fn find_others(
        &self,
        root: &ProcRoot,
        cgroups: &Cgroups,
        most: usize,
        known: impl Fn(&Target) -> bool,
    ) -> Vec<(Target, Vec<i32>)> {
        let mut targets: Vec<Target> = match self {
            Self::Pid(pid) => Target::process(root, *pid).into_iter().collect(),
            Self::Program(name) => vec![Target::Program { name: name.clone() }],
            Self::Cgroup(pattern) if !self.has_wildcards() => {
                Target::cgroup(root, Path::new(pattern.as_str())).into_iter().collect()
            }
            Self::Cgroup(pattern) => matching(root, pattern, &known),
            Self::Unit(pattern) => units(root, cgroups, pattern, &known),
        };
        targets.sort();
        let running = targets.into_iter().filter_map(|target| {
            if known(&target) {
                return Some(None);
            }
            let roots = target.roots(root);
            (!roots.is_empty()).then_some(Some((target, roots)))
        });
        running.take(most).flatten().collect()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "process {pid}"),
            Self::Program(name) => write!(f, "program {name}"),
            Self::Cgroup(pattern) => write!(f, "cgroup {pattern}"),
            Self::Unit(pattern) => write!(f, "unit {pattern}"),
        }
    }
}

/// The vCPUs that any of these processes may use, of those that this one may use; all of these where they have gone.
pub fn vcpus_of(roots: &[i32]) -> CpuSet {
    let usable = usable_cpus(&ProcRoot::default());
    let allowed = roots.iter().filter_map(|pid| affinity_of(*pid).ok()).flat_map(|set| set.iter().collect::<Vec<_>>());
    let allowed: CpuSet = allowed.filter(|vcpu| usable.contains(*vcpu)).collect();
    if allowed.is_empty() { usable } else { allowed }
}

fn unit_file(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!("{name}.service") }
}

fn hierarchies(root: &ProcRoot) -> impl Iterator<Item = PathBuf> {
    HIERARCHIES.iter().map(|top| root.sys.join(top))
}

fn is_cgroup(folder: &Path) -> bool {
    folder.join("cgroup.procs").exists()
}

/// Cgroups whose path, from the top of its hierarchy or of the file system, matches. Of several hierarchies the first
/// that has one. Names are bytes: to a wildcard, what is no UTF-8 is some other character.
fn matching(root: &ProcRoot, pattern: &glob::Pattern, known: &dyn Fn(&Target) -> bool) -> Vec<Target> {
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let in_hierarchy = |top: PathBuf| {
        let either = |path: &Path, holds: &dyn Fn(&Path) -> bool| {
            let inside = path.strip_prefix(&top).map(|rest| Path::new("/").join(rest));
            holds(path) || inside.is_ok_and(|path| holds(&path))
        };
        let matches = |path: &Path| pattern.matches_with(&path.to_string_lossy(), options);
        let found = below(&top, &|path| either(path, &|path| may_lead_to(pattern, path)));
        those_of(found.iter().filter(|path| either(path, &matches)), known)
    };
    hierarchies(root).map(in_hierarchy).find(|found| !found.is_empty()).unwrap_or_default()
}

/// The cgroups among folders. Who is known is not looked at.
fn those_of<'a>(folders: impl Iterator<Item = &'a PathBuf>, known: &dyn Fn(&Target) -> bool) -> Vec<Target> {
    let target = |folder: &PathBuf| {
        let target = Target::Cgroup { folder: folder.clone() };
        (known(&target) || is_cgroup(folder)).then_some(target)
    };
    folders.filter_map(target).collect()
}

/// What systemd calls a unit that is enabled under this other name too: Debian's `redis.service` is
/// `redis-server.service`.
fn unit_behind(root: &ProcRoot, name: &str) -> Option<OsString> {
    // As the first process sees them: this one may be in a container.
    let target = fs::read_link(root.proc.join("1/root/etc/systemd/system").join(name)).ok()?;
    target.file_name().filter(|file| *file != name).map(OsStr::to_owned)
}

/// The cgroup of this name that is in the fewest others.
fn nearest(root: &ProcRoot, cgroups: &Cgroups, name: &OsStr) -> Option<Target> {
    let named = |path: &&PathBuf| path.file_name() == Some(name) && is_cgroup(path);
    let in_hierarchy = |(hierarchy, top): (usize, PathBuf)| {
        cgroups.all(hierarchy, &top).iter().filter(named).min_by_key(|path| path.components().count()).cloned()
    };
    hierarchies(root).enumerate().find_map(in_hierarchy).map(|folder| Target::Cgroup { folder })
}

fn units(root: &ProcRoot, cgroups: &Cgroups, pattern: &glob::Pattern, known: &dyn Fn(&Target) -> bool) -> Vec<Target> {
    let matches = |path: &&PathBuf| path.file_name().is_some_and(|name| pattern.matches(&name.to_string_lossy()));
    let in_hierarchy =
        |(hierarchy, top): (usize, PathBuf)| those_of(cgroups.all(hierarchy, &top).iter().filter(matches), known);
    let found = hierarchies(root).enumerate().map(in_hierarchy).find(|found| !found.is_empty());
    let other_name = || nearest(root, cgroups, &unit_behind(root, pattern.as_str())?);
    found.unwrap_or_else(|| other_name().into_iter().collect())
}

/// State, parent and start time.
fn stat_of(root: &ProcRoot, pid: i32) -> Option<(u8, i32, u64)> {
    let text = fs::read(root.proc.join(format!("{pid}/stat"))).ok()?;
    let stat = Stat::parse(&text)?;
    Some((stat.state()?, stat.parent()?, stat.start_time()?))
}

/// Whether a process whose first thread is in this state goes on: that one may have ended, and others not.
fn lives(root: &ProcRoot, pid: i32, state: u8) -> bool {
    let goes_on = |state: u8| !matches!(state, b'Z' | b'X');
    let task = root.proc.join(format!("{pid}/task"));
    let state_of = |tid: i32| Stat::parse(&fs::read(task.join(format!("{tid}/stat"))).ok()?)?.state();
    goes_on(state) || numbered(&task).filter_map(state_of).any(goes_on)
}

fn comm_of(root: &ProcRoot, pid: i32) -> Option<Vec<u8>> {
    let mut text = fs::read(root.proc.join(format!("{pid}/comm"))).ok()?;
    text.pop_if(|last| *last == b'\n');
    Some(text)
}

/// Those of `pids` whose parents are not among them; this process never.
fn without_children(root: &ProcRoot, pids: &BTreeSet<i32>) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let is_root = |pid: &&i32| stat_of(root, **pid).is_some_and(|(_, parent, _)| !pids.contains(&parent));
    pids.iter().filter(is_root).copied().filter(|pid| *pid != own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up machine with these cgroups and processes: (cgroup, pids), (pid, parent, comm).
    pub(super) fn machine(cgroups: &[(&str, &str)], processes: &[(i32, i32, &str)]) -> (tempfile::TempDir, ProcRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        for (path, pids) in cgroups {
            let path = root.sys.join("fs/cgroup").join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), pids).unwrap();
        }
        for (pid, parent, comm) in processes {
            let path = root.proc.join(pid.to_string());
            fs::create_dir_all(&path).unwrap();
            let rest = "0 ".repeat(17);
            fs::write(path.join("stat"), format!("{pid} ({comm}) S {parent} {rest}7{pid} 0\n")).unwrap();
            fs::write(path.join("comm"), format!("{comm}\n")).unwrap();
        }
        (folder, root)
    }

    fn found(selector: &Selector, root: &ProcRoot) -> Vec<(String, Vec<i32>)> {
        let name = |target: Target| target.command(root)[0].to_string_lossy().into_owned();
        selector.find(root, 10).into_iter().map(|(target, roots)| (name(target), roots)).collect()
    }

    #[test]
    fn a_process_goes_on_as_long_as_one_of_its_threads_does() {
        for (others, goes_on) in [(&[][..], false), (&[(11, "Z")], false), (&[(11, "Z"), (12, "S")], true)] {
            let (_folder, root) = machine(&[], &[(10, 1, "server")]);
            let stat = fs::read_to_string(root.proc.join("10/stat")).unwrap();
            fs::write(root.proc.join("10/stat"), stat.replace(") S ", ") Z ")).unwrap();
            for (tid, state) in [(10, "Z")].iter().chain(others) {
                let task = root.proc.join(format!("10/task/{tid}"));
                fs::create_dir_all(&task).unwrap();
                fs::write(task.join("stat"), stat.replace(") S ", &format!(") {state} "))).unwrap();
            }
            assert_eq!(Target::process(&root, 10).is_ok(), goes_on, "{others:?}");
            let start_time = stat_of(&root, 10).unwrap().2;
            assert_eq!(Target::Process { pid: 10, start_time }.roots(&root).len(), usize::from(goes_on), "{others:?}");
        }
    }

    #[test]
    fn units_and_cgroups_are_found_by_name_path_and_wildcards_where_something_runs() {
        let cgroups = [
            ("system.slice/redis.service", "10\n11\n"),
            ("system.slice/web@1.service", "20\n"),
            ("system.slice/web@2.service", "30\n"),
            ("system.slice/web@3.service", ""),
            ("kubepods.slice/pod1", ""),
            ("kubepods.slice/pod2", ""),
            ("kubepods.slice/pod1/a", "40\n"),
            ("kubepods.slice/pod2/b", "50\n"),
        ];
        let processes = [(10, 1, "redis"), (11, 10, "fork"), (20, 1, "w"), (30, 1, "w"), (40, 1, "a"), (50, 1, "b")];
        let (_folder, root) = machine(&cgroups, &processes);
        let unit = |name: &str| found(&Selector::unit(name).unwrap(), &root);
        assert_eq!(unit("redis"), [("redis.service".to_owned(), vec![10])]);
        assert_eq!(unit("web@*").len(), 2, "one has no process");
        assert_eq!(unit("web@[2-3].service"), [("web@2.service".to_owned(), vec![30])]);
        assert_eq!(unit("no"), []);
        let system = root.proc.join("1/root/etc/systemd/system");
        fs::create_dir_all(&system).unwrap();
        std::os::unix::fs::symlink("/lib/systemd/system/redis.service", system.join("valkey.service")).unwrap();
        assert_eq!(unit("valkey"), [("redis.service".to_owned(), vec![10])], "another name of it");
        let cgroup = |path: &str| found(&Selector::cgroup(path).unwrap(), &root);
        assert_eq!(cgroup("/system.slice/redis.service").len(), 1);
        assert_eq!(cgroup("/kubepods.slice/*/b"), [("b".to_owned(), vec![50])]);
        assert_eq!(cgroup("/kubepods.slice/*").len(), 2, "a star is one folder");
        assert_eq!(cgroup("/kubepods.slice/**/a").len(), 1);
        let absolute = root.sys.join("fs/cgroup/kubepods.slice/*/a");
        assert_eq!(cgroup(absolute.to_str().unwrap()).len(), 1);
    }

    /// Everybody who may make cgroups names them.
    #[test]
    fn wildcards_stand_for_names_that_are_no_text() {
        let names = [&b"a\xff@1.service"[..], b"a\xc3\xa4@2.service", b"\x80", b"x\n\xe4\xf6"];
        let (_folder, root) = machine(&[], &[(10, 1, "a"), (11, 1, "a"), (12, 1, "a"), (13, 1, "a")]);
        for (pid, name) in (10..).zip(names) {
            let path = root.sys.join("fs/cgroup/top").join(OsStr::from_bytes(name));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), format!("{pid}\n")).unwrap();
        }
        let pids = |selector: Selector| {
            let mut pids: Vec<i32> = selector.find(&root, 10).into_iter().flat_map(|(_, roots)| roots).collect();
            pids.sort_unstable();
            pids
        };
        let cgroup = |path: &str| pids(Selector::cgroup(path).unwrap());
        assert_eq!(cgroup("/top/*"), [10, 11, 12, 13]);
        assert_eq!(cgroup("/top/a*"), [10, 11]);
        assert_eq!(cgroup("/top/a?@1.service"), [10]);
        assert_eq!(cgroup("/top/?"), [12]);
        assert_eq!(cgroup("/**/*"), [10, 11, 12, 13]);
        let unit = |name: &str| pids(Selector::unit(name).unwrap());
        assert_eq!((unit("a*"), unit("a?@?")), (vec![10, 11], vec![10, 11]));
    }

    #[test]
    fn a_program_is_all_its_processes_and_a_process_is_one() {
        let processes = [(10, 1, "cc"), (11, 10, "cc"), (20, 5, "cc"), (30, 1, "ccx")];
        let (_folder, root) = machine(&[], &processes);
        assert_eq!(found(&Selector::Program("cc".into()), &root), [("cc".to_owned(), vec![10, 20])]);
        assert_eq!(Selector::Pid(30).find(&root, 10)[0].1, [30]);
        assert_eq!(Selector::Pid(31).find(&root, 10), []);
        let again = Target::Process { pid: 30, start_time: 8 };
        assert!(again.roots(&root).is_empty(), "another process with the same id");
    }
}
