//! The journal: what will have to be undone, written before it is done.
//!
//! One file per run in a state folder that does not outlive a reboot (`/run/gleaner`, or the user's runtime folder),
//! JSON lines: a header that names the run, then one [`Undo`] a line. Whoever undoes takes the file's lock first, so
//! main, guardian and `gleaner restore` cannot get into each other's way; the file is removed once all is undone. A
//! program that pins a thread for every request would fill the folder, which is memory: from time to time the journal
//! is written anew, without threads that are gone ([`Journal::compact_if_long`]). A last line without its newline was
//! cut off by a kill: its change had not been made yet, so it is ignored.

use crate::affinity::MOST_STEPS;
use crate::procs::{is_alive, thread_start_time};
use crate::state_dir::{is_ours, make_state_dir};
use crate::undo::Undo;
use crate::{ActError, own_start_time};
use gleaner_sys::{Namespaces, OwnProc, ProcRoot, own_proc};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Raised by what an earlier Gleaner must not pass over. A field that it may do without raises nothing: readers ignore
/// those they do not know. Entries are not like that: one that is not understood, or not whole, is a change that would
/// stay.
const VERSION: u32 = 1;
/// Permissions of a journal that is undone, before its name is removed.
const UNDONE: u32 = 0o400;
/// Lines after which a journal is written anew; twice what was left, if that is more.
const LONG: usize = 4096;
/// How long another may hold the folder's lock: two seconds, which undoing a few journals takes at most.
const FOLDER_TRIES: u32 = 1000;
const FOLDER_PAUSE: Duration = Duration::from_millis(2);
/// Most different choices of dead threads that are kept: their children inherited them.
const MOST_CHOICES: usize = 1024;

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    gleaner_journal: u32,
    run_id: String,
    boot_id: String,
    main_pid: i32,
    main_start_time: u64,
    /// Which namespaces process ids and start times belong to; `None`: written by a version that did not say, here.
    #[serde(default)]
    namespaces: Option<String>,
}

/// An open journal: this process is the one that acts.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    run_id: String,
    lines: usize,
    /// How many lines are too many.
    long: usize,
    /// Whether it is another file than whoever holds it was told.
    replaced: bool,
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
    pub(crate) undos: Vec<Undo>,
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Journal {
    /// Where the journal of a run is, in the state folder `dir`.
    pub fn path_in(dir: &Path, run_id: &str) -> PathBuf {
        dir.join(format!("{run_id}.journal"))
    }

    /// Begins a journal for this process in `dir`, which is made if need be (mode 0700).
    ///
    /// # Errors
    /// When the folder belongs to somebody else, or it or the file cannot be written.
    pub fn create(dir: &Path, run_id: &str) -> Result<Self, ActError> {
        let path = Self::path_in(dir, run_id);
        let mut tries = 0;
        let file = loop {
            make_state_dir(dir)?;
            match OpenOptions::new().create_new(true).read(true).append(true).mode(0o600).open(&path) {
                Ok(file) => break file,
                // Another run has just removed the folder along with the last journal in it.
                Err(error) if error.kind() == ErrorKind::NotFound && tries < 100 => tries += 1,
                Err(error) => return Err(ActError::file("create", &path)(error)),
            }
        };
        hold(&file);
        let header = Header {
            gleaner_journal: VERSION,
            run_id: run_id.to_owned(),
            boot_id: boot_id(),
            main_pid: rustix::process::getpid().as_raw_nonzero().get(),
            main_start_time: own_start_time().unwrap_or(0),
            namespaces: Some(own_namespaces()),
        };
        let run_id = run_id.to_owned();
        let mut journal = Self { path, file, run_id, lines: 0, long: LONG, replaced: true };
        if let Err(error) = journal.write_line(&header) {
            // A full disk, a limit on file sizes: an empty journal would be left for ever.
            let _ = remove(&journal.path);
            return Err(error);
        }
        Ok(journal)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run it belongs to.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The file itself, whatever became of its name.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The file for another process to hold, once when it is begun and each time that it was written anew. It does not
    /// [`hold`] the journal.
    pub fn take_new(&mut self) -> Option<File> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        std::mem::take(&mut self.replaced).then(|| File::open(own).ok())?
    }

    /// Another process will hold it.
    pub fn hand_over_again(&mut self) {
        self.replaced = true;
    }

    /// All is undone, and whoever holds the file is to know.
    pub(crate) fn is_undone(&self) {
        let _ = self.file.set_permissions(Permissions::from_mode(UNDONE));
    }

    /// Notes how to undo a change. Only after this may the change be made.
    ///
    /// # Errors
    /// When the journal cannot be written; the change must then not be made.
    pub fn before(&mut self, undo: &Undo) -> Result<(), ActError> {
        self.write_line(undo)
    }

    /// From now on nothing can be written.
    #[cfg(test)]
    pub(crate) fn refuse_to_write(&mut self) {
        self.file = File::open(&self.path).unwrap();
    }

    /// Locks the folder of journals; see [`lock_folder_of`].
    pub(crate) fn lock_folder(&self) -> Option<Lock> {
        lock_folder_of(&self.path)
    }

    /// Whether another journal in the same folder has this entry.
    pub(crate) fn others_have(&self, undo: &Undo) -> bool {
        others_have(&self.path, undo)
    }

    /// The other journals in the same folder with an entry like this.
    pub(crate) fn others_with(&self, wanted: impl Fn(&Undo) -> bool) -> Vec<PathBuf> {
        others_with(&self.path, wanted)
    }

    fn write_line(&mut self, entry: &impl Serialize) -> Result<(), ActError> {
        let mut line = serde_json::to_vec(entry).map_err(|error| ActError::File {
            verb: "encode an entry for",
            path: self.path.clone(),
            source: error.into(),
        })?;
        line.push(b'\n');
        let before = self.file.metadata().map_err(ActError::file("look at", &self.path))?.len();
        // One write call: a kill leaves the whole line or a part without its newline.
        if let Err(error) = self.file.write_all(&line) {
            // A disk that got full takes a part, and the next line would be put behind that.
            let _ = self.file.set_len(before);
            return Err(ActError::file("write", &self.path)(error));
        }
        self.lines += 1;
        Ok(())
    }

    /// Writes the journal anew without what no undo needs any more, once it is long. A failure leaves it as it is.
    ///
    /// # Errors
    /// When the new one cannot be written.
    pub(crate) fn compact_if_long(&mut self) -> Result<(), ActError> {
        if self.lines < self.long {
            return Ok(());
        }
        // Not tried again at once if it fails.
        self.long = self.lines.saturating_mul(2);
        // Whoever waits for this lock finds another file in its place, and waits for that one's.
        let Some(_lock) = lock(&self.path)? else { return Ok(()) };
        let text = fs::read_to_string(&self.path).map_err(ActError::file("read", &self.path))?;
        let undos = needed(read(&self.path)?.undos, |tid, start_time| thread_start_time(tid) == Some(start_time));
        let mut lines = vec![text.lines().next().unwrap_or_default().to_owned()];
        lines.extend(undos.iter().filter_map(|undo| serde_json::to_string(undo).ok()));
        let new = self.path.with_extension("new");
        // Left behind by a compaction that failed.
        let _ = fs::remove_file(&new);
        let mut created = OpenOptions::new();
        created.create_new(true).read(true).append(true).mode(0o600);
        let written = created.open(&new).and_then(|mut file| {
            hold(&file);
            file.write_all((lines.join("\n") + "\n").as_bytes())?;
            fs::rename(&new, &self.path)?;
            Ok(file)
        });
        self.file = written.inspect_err(|_| drop(fs::remove_file(&new))).map_err(ActError::file("write", &new))?;
        self.replaced = true;
        self.lines = lines.len();
        self.long = LONG.max(2 * self.lines);
        Ok(())
    }
}

/// What of `undos` an undo still needs: everything about threads that live (by id and start time), and of the dead each
/// different choice once, for their children may have inherited it; of the steps the newest.
fn needed(undos: Vec<Undo>, lives: impl Fn(i32, u64) -> bool) -> Vec<Undo> {
    let (mut choices, mut steps, mut threads) = (HashSet::new(), HashSet::new(), HashSet::new());
    // Newest first: a thread's last choice counts, and the last steps are those that threads are confined to.
    let mut kept: Vec<Undo> = undos.into_iter().rev().collect();
    kept.retain(|undo| match undo {
        Undo::AffinityStep { active } => steps.len() < MOST_STEPS && steps.insert(active.clone()),
        Undo::ThreadAffinity { tid, start_time, own } => {
            let lives = lives(*tid, *start_time) && threads.insert((*tid, *start_time));
            let new = choices.len() < MOST_CHOICES && choices.insert(own.clone());
            lives || new
        }
        // Nobody else has anything of a dead thread's slice.
        Undo::Slice { tid, start_time, .. } => lives(*tid, *start_time),
        _ => true,
    });
    kept.reverse();
    kept
}

/// Reads one journal.
///
/// # Errors
/// [`ActError::Journal`] when a line is not an entry of this version, [`ActError::File`] when it cannot be read.
pub(crate) fn read(path: &Path) -> Result<JournalState, ActError> {
    read_from(path, || open_file(path).and_then(std::io::read_to_string).map_err(ActError::file("read", path)))
}

/// Whether the journal that this file is was undone, and its name removed for that.
pub(crate) fn was_undone(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.mode() & 0o777 == UNDONE)
}

/// Reads one that somebody may have removed from `path`.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_open(path: &Path, file: &File) -> Result<JournalState, ActError> {
    read_from(path, || text_of(file).map_err(ActError::file("read", path)))
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
fn read_from(path: &Path, mut text: impl FnMut() -> Result<String, ActError>) -> Result<JournalState, ActError> {
    let state = parse(path, &text()?)?;
    if state.alive.is_some() { Ok(state) } else { parse(path, &text()?) }
}

fn parse(path: &Path, text: &str) -> Result<JournalState, ActError> {
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
            .map(|(number, line)| serde_json::from_str(line).map_err(|error| bad(number + 1, error.to_string())))
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

fn own_namespaces() -> String {
    Namespaces::own(&ProcRoot::default()).to_string()
}

/// Marks a journal as that of a living process, in a way that means the same in every namespace: the kernel takes the
/// lock back when the last descriptor of this opening goes. Where it cannot be had, process ids alone tell.
fn hold(file: &File) {
    // SAFETY: flock is plain data, and outlives the call.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = i16::try_from(libc::F_WRLCK).unwrap_or_default();
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock);
    }
}

/// Whether somebody [holds](hold) the journal at `path`.
fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // SAFETY: flock is plain data, which the kernel reads and fills.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = i16::try_from(libc::F_WRLCK).unwrap_or_default();
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) == 0
            && lock.l_type != i16::try_from(libc::F_UNLCK).unwrap_or_default()
    }
}

/// The living process that a journal's name tells of (`PID-START-TIME.journal`), for as long as its header does not.
fn named_process(path: &Path) -> Option<i32> {
    let (pid, start_time) = path.file_stem()?.to_str()?.split_once('-')?;
    let (pid, start_time) = (pid.parse().ok()?, start_time.parse().ok()?);
    (is_held(path) || is_alive(pid, start_time)).then_some(pid)
}

/// Opens what is called a journal, if nobody but this user could have written it. A pipe of that name would keep us
/// waiting for ever.
fn open_file(path: &Path) -> std::io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
        let is_link = error.raw_os_error() == Some(libc::ELOOP);
        if is_link { std::io::Error::other("it is a link, so it is no journal; remove it") } else { error }
    })?;
    let found = file.metadata()?;
    let why = if !found.is_file() {
        "it is no regular file, so it is no journal; remove it".to_owned()
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        format!("it belongs to user {}, so it could be forged; remove it", found.uid())
    } else if found.mode() & 0o022 != 0 || found.nlink() > 1 {
        "others may write to it, or it has another name, so it could be forged; remove it".to_owned()
    } else {
        return Ok(file);
    };
    Err(std::io::Error::other(why))
}

/// The lock on a journal; held while undoing.
pub(crate) struct Lock(#[allow(dead_code, reason = "the lock goes with the file")] File);

/// Locks the journal at `path`, waiting for whoever holds it. `None` when it is gone: somebody has undone it.
pub(crate) fn lock(path: &Path) -> Result<Option<Lock>, ActError> {
    loop {
        let file = match open_file(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
                remove_folder_of(path);
                return Ok(None);
            }
            Err(error) => return Err(ActError::file("open", path)(error)),
        };
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| ActError::file("lock", path)(errno.into()))?;
        // The holder before us may have removed it, or its run have written it anew (once in thousands of lines).
        let locked = file.metadata().map_err(ActError::file("look at", path))?;
        match fs::metadata(path) {
            Ok(found) if found.ino() == locked.ino() => return Ok(Some(Lock(file))),
            Ok(_) => {}
            Err(_) => return Ok(None),
        }
    }
}

/// Locks the folder that the journal at `path` is in: for what concerns other runs' journals as well. Taken after a
/// journal's own lock. The folder stays the same one for as long as that journal is in it. `None`, told in the log,
/// where it cannot be had: undoing must not fail for it, nor wait for ever for somebody who may only read the folder.
pub(crate) fn lock_folder_of(path: &Path) -> Option<Lock> {
    let folder = path.parent()?;
    let locked = File::open(folder).and_then(|file| {
        for _ in 0..FOLDER_TRIES {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => sleep(FOLDER_PAUSE),
                locked => return Ok(locked.map(|()| Lock(file))?),
            }
        }
        Err(Errno::WOULDBLOCK.into())
    });
    locked.inspect_err(|error| tracing::warn!("cannot lock {}: {error}", folder.display())).ok()
}

/// Removes a journal whose changes are undone, and its folder when that was the last one.
pub(crate) fn remove(path: &Path) -> Result<(), ActError> {
    // A kill may have cut off its being written anew.
    let _ = fs::remove_file(path.with_extension("new"));
    // Whoever holds the file is to know.
    let _ = fs::set_permissions(path, Permissions::from_mode(UNDONE));
    fs::remove_file(path).map_err(ActError::file("remove", path))?;
    remove_folder_of(path);
    Ok(())
}

fn remove_folder_of(path: &Path) {
    if let Some(dir) = path.parent() {
        // Fails while a journal is in it: that is the point.
        let _ = fs::remove_dir(dir);
    }
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

/// Whether a journal beside the one at `path` has this entry.
pub(crate) fn others_have(path: &Path, undo: &Undo) -> bool {
    !others_with(path, |other| other == undo).is_empty()
}

/// The journals beside the one at `path` with an entry like this.
fn others_with(path: &Path, wanted: impl Fn(&Undo) -> bool) -> Vec<PathBuf> {
    let mut others = path.parent().map(list_journals).and_then(Result::ok).unwrap_or_default();
    others.retain(|other| other != path && read(other).is_ok_and(|state| state.undos.iter().any(&wanted)));
    others
}

#[cfg(test)]
mod tests;
