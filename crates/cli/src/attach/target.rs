//! What is attached to: a process, or the processes of a cgroup.

use super::args::AttachArgs;
use crate::failure::Failure;
use gleaner_sys::Stat;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where systemd keeps its units, as distributions mount cgroups: version 2, hybrid, version 1.
const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"];
/// Slices in slices.
const DEEPEST: usize = 5;

/// What is attached to.
#[derive(Clone, Debug)]
pub enum Target {
    /// One process, by id and start time: ids come again.
    Process { pid: i32, start_time: u64 },
    /// All that is in a cgroup and below it.
    Cgroup { folder: PathBuf },
}

impl Target {
    /// What the command line names.
    ///
    /// # Errors
    /// When it is not there, or nothing runs in it.
    pub fn find(args: &AttachArgs) -> Result<Self, Failure> {
        let target = match (args.to.pid, &args.to.cgroup, &args.to.unit) {
            (Some(pid), ..) => {
                let found = stat_of(pid).filter(|stat| !matches!(stat.0, b'Z' | b'X'));
                let (_, _, start_time) =
                    found.ok_or_else(|| Failure::input(format!("--pid {pid}: no such process")))?;
                Self::Process { pid, start_time }
            }
            (_, Some(folder), _) => Self::Cgroup { folder: cgroup(folder)? },
            (_, _, Some(name)) => Self::Cgroup { folder: unit(name)? },
            _ => return Err(Failure::input("write --pid, --cgroup or --unit")),
        };
        if target.roots().is_empty() {
            return Err(Failure::input(format!("nothing runs in {target}")));
        }
        Ok(target)
    }

    /// The processes whose parents do not belong to it; none: it has ended.
    pub fn roots(&self) -> Vec<i32> {
        match self {
            Self::Process { pid, start_time } => {
                let lives = |(state, _, began): &(u8, i32, u64)| !matches!(state, b'Z' | b'X') && began == start_time;
                stat_of(*pid).filter(lives).map(|_| *pid).into_iter().collect()
            }
            Self::Cgroup { folder } => {
                let mut pids = BTreeSet::new();
                members(folder, DEEPEST, &mut pids);
                let own = std::process::id().cast_signed();
                let is_root = |pid: &&i32| stat_of(**pid).is_some_and(|(_, parent, _)| !pids.contains(&parent));
                pids.iter().filter(is_root).copied().filter(|pid| *pid != own).collect()
            }
        }
    }

    /// The command line of the process, for the report; of a cgroup its name.
    pub fn command(&self) -> Vec<OsString> {
        match self {
            Self::Process { pid, .. } => {
                let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let words = text.split(|byte| *byte == 0).filter(|word| !word.is_empty());
                words.map(|word| OsStr::from_bytes(word).to_owned()).collect()
            }
            Self::Cgroup { folder } => vec![folder.file_name().unwrap_or(folder.as_os_str()).to_owned()],
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, .. } => write!(f, "process {pid}"),
            Self::Cgroup { folder } => write!(f, "cgroup {}", folder.display()),
        }
    }
}

/// State, parent and start time.
fn stat_of(pid: i32) -> Option<(u8, i32, u64)> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = Stat::parse(&text)?;
    Some((stat.state()?, stat.parent()?, stat.start_time()?))
}

/// A folder given as it is, or as `/proc/PID/cgroup` has it.
fn cgroup(folder: &Path) -> Result<PathBuf, Failure> {
    let below = |top: &str| Path::new(top).join(folder.strip_prefix("/").unwrap_or(folder));
    let tried = std::iter::once(folder.to_owned()).chain(HIERARCHIES.iter().map(|top| below(top)));
    let found = tried.into_iter().find(|folder| folder.join("cgroup.procs").exists());
    found.ok_or_else(|| Failure::input(format!("--cgroup {}: no such cgroup", folder.display())))
}

/// The cgroup of a service: its name with or without `.service`.
fn unit(name: &str) -> Result<PathBuf, Failure> {
    let file = if name.contains('.') { name.to_owned() } else { format!("{name}.service") };
    let found = HIERARCHIES.iter().find_map(|top| named(Path::new(top), OsStr::new(&file), DEEPEST));
    found.ok_or_else(|| Failure::input(format!("--unit {name}: no cgroup is called {file}; is it running?")))
}

fn named(folder: &Path, name: &OsStr, depth: usize) -> Option<PathBuf> {
    let below = folders(folder);
    let here = below.iter().find(|path| path.file_name() == Some(name) && path.join("cgroup.procs").exists());
    let deeper = || below.iter().find_map(|path| named(path, name, depth - 1));
    here.cloned().or_else(|| if depth > 1 { deeper() } else { None })
}

fn members(folder: &Path, depth: usize, into: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    into.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    if depth > 1 {
        for path in folders(folder) {
            members(&path, depth - 1, into);
        }
    }
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}
