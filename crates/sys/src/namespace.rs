//! Whose numbers are read. A process id, a start time and a clock mean something within one namespace only, and a
//! `/proc` may be that of another: `unshare --pid` without `--mount-proc`, bubblewrap without `--proc`, a container
//! that bind-mounts the host's.

use crate::ProcRoot;
use crate::stat::{status_field, words};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Inode of the initial PID namespace (`PROC_PID_INIT_INO`).
const INITIAL_PID: u64 = 0xEFFF_FFFC;
/// Inode of the initial user namespace (`PROC_USER_INIT_INO`).
const INITIAL_USER: u64 = 0xEFFF_FFFD;
/// Inode of the initial time namespace (`PROC_TIME_INIT_INO`).
const INITIAL_TIME: u64 = 0xEFFF_FFFA;

/// The namespaces that process ids and start times belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Inode of the PID namespace; `None` where it cannot be told.
    pub pid: Option<u64>,
    /// Inode of the time namespace; `None` before Linux 5.6, too.
    pub time: Option<u64>,
}

impl Namespaces {
    /// This process's.
    pub fn own(root: &ProcRoot) -> Self {
        let inode = |name: &str| fs::metadata(root.proc.join("self/ns").join(name)).ok().map(|found| found.ino());
        Self { pid: inode("pid"), time: inode("time") }
    }

    /// Whether process ids are those that the kernel itself uses.
    pub fn pid_is_initial(self) -> bool {
        self.pid == Some(INITIAL_PID)
    }

    /// Whether clocks are the kernel's own; before Linux 5.6 there are no others.
    pub fn time_is_initial(self) -> bool {
        self.time.is_none_or(|time| time == INITIAL_TIME)
    }
}

/// `pid:N time:N`, `?` for what cannot be told.
impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |inode: Option<u64>| inode.map_or_else(|| "?".to_owned(), |inode| inode.to_string());
        write!(f, "pid:{} time:{}", number(self.pid), number(self.time))
    }
}

/// Whether this process's user ids and capabilities are the machine's own. Where that cannot be told: yes.
pub fn user_is_initial(root: &ProcRoot) -> bool {
    fs::metadata(root.proc.join("self/ns/user")).map_or(true, |found| found.ino() == INITIAL_USER)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnProc {
    /// Its process ids are ours.
    Ours,
    /// It is another PID namespace's.
    Foreign,
    /// It is not there, or does not show this process.
    Missing,
}

/// Whether the process ids in `/proc` are those of this process's own PID namespace.
pub fn own_proc(root: &ProcRoot) -> OwnProc {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let status = fs::read(root.proc.join("self/status")).unwrap_or_default();
    let link = fs::read_link(root.proc.join("self")).ok();
    let link = link.and_then(|link| link.to_str()?.parse().ok());
    judge(own, link, status_field(&status, b"NSpid"))
}

/// `NSpid` lists this process's ids from the namespace of that `/proc` down to its own: where there are several, it is
/// another's, even if the first happens to be the same number. Before Linux 4.1 there is the link alone.
fn judge(own: i32, link: Option<i32>, ids: Option<&[u8]>) -> OwnProc {
    match (link, ids.map(|ids| words(ids).count())) {
        (None, _) => OwnProc::Missing,
        (Some(link), None | Some(1)) if link == own => OwnProc::Ours,
        _ => OwnProc::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_is_ours_if_it_has_one_id_for_us_and_that_is_ours() {
        assert_eq!(own_proc(&ProcRoot::default()), OwnProc::Ours);
        for (link, ids, wanted) in [
            (Some(7), Some("7"), OwnProc::Ours),
            (Some(7), None, OwnProc::Ours),
            (Some(812), Some("812\t7"), OwnProc::Foreign),
            (Some(7), Some("7\t7"), OwnProc::Foreign),
            (Some(812), None, OwnProc::Foreign),
            (None, None, OwnProc::Missing),
        ] {
            assert_eq!(judge(7, link, ids.map(str::as_bytes)), wanted, "{link:?} {ids:?}");
        }
    }

    #[test]
    fn without_a_proc_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        assert_eq!(own_proc(&root), OwnProc::Missing);
        let none = Namespaces::own(&root);
        assert_eq!((none, none.to_string().as_str()), (Namespaces::default(), "pid:? time:?"));
        assert!(!none.pid_is_initial() && none.time_is_initial());
        assert!(Namespaces::own(&ProcRoot::default()).pid.is_some());
    }
}
