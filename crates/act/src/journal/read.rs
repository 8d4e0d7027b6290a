//! Reads a journal that another process wrote.

use super::change::{Entry, Kind, Run};
use super::lock::{is_held, open_file};
use crate::ActError;
use crate::procs::{is_alive, own_start_time};
use crate::state_dir::{default_state_dir, is_ours, other_state_dirs};
use gleaner_sys::{Namespaces, OwnProc, ProcRoot, own_proc};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Raised by what an earlier Gleaner must not pass over. A field that it may do without raises nothing: readers ignore
/// those they do not know. Entries are not like that: one that is not understood, or not whole, is a change that would
/// stay.
const VERSION: u32 = 1;

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    gleaner_journal: u32,
    run_id: String,
    boot_id: String,
    main_pid: i32,
    main_start_time: u64,
    /// Which namespaces process ids and start times belong to; `None`: written by a version that did not say, here.
    #[serde(default)]
    namespaces: Option<String>,
}

impl Header {
    pub(super) fn of_this_process(run_id: &str) -> Self {
        Self {
            gleaner_journal: VERSION,
            run_id: run_id.to_owned(),
            boot_id: boot_id(),
            main_pid: rustix::process::getpid().as_raw_nonzero().get(),
            main_start_time: own_start_time().unwrap_or(0),
            namespaces: Some(own_namespaces()),
        }
    }
}

/// A journal as somebody else finds it.
#[derive(Debug)]
pub(crate) struct JournalState {
    /// Where it is.
    pub path: PathBuf,
    /// Which run wrote it.
    pub run_id: String,
    /// The process that acts; `Some` while it lives.
    pub alive: Option<i32>,
    /// Whether its process ids and start times mean something else here: it was written in another PID or time
    /// namespace.
    pub foreign: bool,
    /// What to undo, oldest first.
    pub(crate) undos: Vec<Entry>,
}

impl JournalState {
    /// For an undo; `own`: this process wrote it itself.
    pub(crate) fn run(&self, own: bool) -> Run<'_> {
        Run { path: &self.path, id: &self.run_id, foreign: self.foreign, own, undos: &self.undos }
    }
}

pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Reads one journal.
///
/// # Errors
/// [`ActError::Journal`] when a line is not an entry of this version, [`ActError::File`] when it cannot be read.
pub(crate) fn read(path: &Path, kinds: &[Kind]) -> Result<JournalState, ActError> {
    read_from(path, kinds, || open_file(path).and_then(std::io::read_to_string).map_err(ActError::file("read", path)))
}

/// Reads one that somebody may have removed from `path`.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_open(path: &Path, file: &File, kinds: &[Kind]) -> Result<JournalState, ActError> {
    read_from(path, kinds, || text_of(file).map_err(ActError::file("read", path)))
}

/// All of it, wherever others that have the same file open have got to.
fn text_of(file: &File) -> std::io::Result<String> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))
}

/// What it says is asked again once its writer is seen to be gone: until then, there may have been more to write.
pub(super) fn read_from(
    path: &Path,
    kinds: &[Kind],
    mut text: impl FnMut() -> Result<String, ActError>,
) -> Result<JournalState, ActError> {
    let state = parse(path, kinds, &text()?)?;
    if state.alive.is_some() { Ok(state) } else { parse(path, kinds, &text()?) }
}

fn parse(path: &Path, kinds: &[Kind], text: &str) -> Result<JournalState, ActError> {
    let complete = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let bad = |line: usize, reason: String| ActError::Journal { path: path.to_owned(), line, reason };
    let mut lines = complete.lines().enumerate();
    let Some((_, first)) = lines.next() else {
        // Killed before the header was whole, or just about to write it: nothing has been changed.
        let alive = named_process(path);
        return Ok(JournalState {
            path: path.to_owned(),
            run_id: String::new(),
            alive,
            foreign: false,
            undos: Vec::new(),
        });
    };
    let header: Header = serde_json::from_str(first).map_err(|error| bad(1, error.to_string()))?;
    if header.gleaner_journal != VERSION {
        return Err(bad(1, format!("version {}, this Gleaner knows {VERSION}", header.gleaner_journal)));
    }
    // Where /proc is another namespace's, ids of this one cannot be looked up there either.
    let foreign = header.namespaces.is_some_and(|namespaces| namespaces != own_namespaces())
        || own_proc(&ProcRoot::default()) == OwnProc::Foreign;
    let held = foreign && is_held(path);
    if foreign && !held && header.boot_id != boot_id() {
        return Err(ActError::Unavailable {
            what: path.display().to_string(),
            why: "it was written in another container, or before this machine was restarted, and which of them cannot be told: it \
                  was kept; run `gleaner restore` where it was written, or remove it if that is gone"
                .into(),
        });
    }
    let undos = if held || header.boot_id == boot_id() {
        lines
            .map(|(number, line)| Entry::read(line, kinds).map_err(|error| bad(number + 1, error.to_string())))
            .collect::<Result<_, _>>()?
    } else {
        // Written before the machine was restarted: nothing of it is left.
        Vec::new()
    };
    // In another namespace the id is somebody else's, or nobody's.
    let alive = if foreign { held } else { is_alive(header.main_pid, header.main_start_time) };
    let alive = alive.then_some(header.main_pid);
    Ok(JournalState { path: path.to_owned(), run_id: header.run_id, alive, foreign, undos })
}

pub(super) fn own_namespaces() -> String {
    Namespaces::own(&ProcRoot::default()).to_string()
}

/// The living process that a journal's name tells of (`PID-START-TIME.journal`), for as long as its header does not.
fn named_process(path: &Path) -> Option<i32> {
    let (pid, start_time) = path.file_stem()?.to_str()?.split_once('-')?;
    let (pid, start_time) = (pid.parse().ok()?, start_time.parse().ok()?);
    (is_held(path) || is_alive(pid, start_time)).then_some(pid)
}

/// The journals in `dir`, in order of name; none when the folder does not exist.
///
/// # Errors
/// When the folder belongs to somebody else or cannot be read.
pub fn list_journals(dir: &Path) -> Result<Vec<PathBuf>, ActError> {
    if !is_ours(dir)? {
        return Ok(Vec::new());
    }
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ActError::file("read", dir)(error)),
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "journal"));
    found.sort();
    Ok(found)
}

/// The journals of this user: of the default folder first.
///
/// # Errors
/// When that belongs to somebody else or cannot be read.
pub fn own_journals() -> Result<Vec<PathBuf>, ActError> {
    let mut found = list_journals(&default_state_dir())?;
    found.extend(other_state_dirs().iter().filter_map(|dir| list_journals(dir).ok()).flatten());
    Ok(found)
}

/// The journals beside the one at `path` with an entry like this.
pub(crate) fn others_with(path: &Path, kinds: &[Kind], wanted: impl Fn(&Entry) -> bool) -> Vec<PathBuf> {
    let mut others = path.parent().map(list_journals).and_then(Result::ok).unwrap_or_default();
    others.retain(|other| other != path && read(other, kinds).is_ok_and(|state| state.undos.iter().any(&wanted)));
    others
}
