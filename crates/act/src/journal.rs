//! The journal: what will have to be undone, written before it is done.
//!
//! One file per run in a state folder that does not outlive a reboot (`/run/gleaner`, or the user's runtime folder),
//! JSON lines: a header that names the run, then one [`Change`] a line. Whoever undoes takes the file's lock first, so
//! main, guardian and `gleaner restore` cannot get into each other's way; the file is removed once all is undone. A
//! program that pins a thread for every request would fill the folder, which is memory: from time to time the journal
//! is written anew, without threads that are gone ([`Journal::compact_if_long`]). A last line without its newline was
//! cut off by a kill: its change had not been made yet, so it is ignored.

mod change;
mod lock;
pub(crate) mod path_bytes;
mod read;

pub use change::{Change, Kind, Run, When};
pub(crate) use change::{Entry, never_written};
pub(crate) use lock::{Lock, hold, lock, lock_folder_of, remove, was_undone};
pub(crate) use read::{JournalState, others_with, read, read_open};
pub use read::{list_journals, own_journals};

use crate::ActError;
use crate::state_dir::make_state_dir;
use lock::UNDONE;
use read::Header;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Lines after which a journal is written anew; twice what was left, if that is more.
pub(crate) const LONG: usize = 4096;

/// Undoes a journal, unless its run goes on.
type UndoOther = fn(&Path) -> Result<(), ActError>;

/// An open journal: this process is the one that acts.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    run_id: String,
    /// What it may hold.
    kinds: &'static [Kind],
    /// Undoes another one.
    undo_other: UndoOther,
    lines: usize,
    /// How many lines are too many.
    long: usize,
    /// Whether it is another file than whoever holds it was told.
    replaced: bool,
}

impl Journal {
    /// Where the journal of a run is, in the state folder `dir`.
    pub fn path_in(dir: &Path, run_id: &str) -> PathBuf {
        dir.join(format!("{run_id}.journal"))
    }

    /// Begins a journal of changes of these `kinds` for this process in `dir`, which is made if need be (mode 0700).
    ///
    /// # Errors
    /// When the folder belongs to somebody else, or it or the file cannot be written.
    pub(crate) fn begin(
        dir: &Path,
        run_id: &str,
        kinds: &'static [Kind],
        undo_other: UndoOther,
    ) -> Result<Self, ActError> {
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
        let header = Header::of_this_process(run_id);
        let run_id = run_id.to_owned();
        let mut journal = Self { path, file, run_id, kinds, undo_other, lines: 0, long: LONG, replaced: true };
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

    /// Undoes the one at `other`, unless its run goes on.
    pub(crate) fn undo_other(&self, other: &Path) -> Result<(), ActError> {
        (self.undo_other)(other)
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
    pub fn before<T: Change>(&mut self, change: &T) -> Result<(), ActError> {
        self.write_line(&BTreeMap::from([(T::NAME, change)]))
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

    /// Whether another journal in the same folder has this change.
    pub(crate) fn others_have<T: Change>(&self, change: &T) -> bool {
        !self.others_with(|other: &T| other == change).is_empty()
    }

    /// The other journals in the same folder with a change like this.
    pub(crate) fn others_with<T: Change>(&self, wanted: impl Fn(&T) -> bool) -> Vec<PathBuf> {
        others_with(&self.path, self.kinds, |entry| entry.get().is_some_and(|change| wanted(&change)))
    }

    /// The living run of another journal that made a change like this.
    pub(crate) fn made_by_another<T: Change>(&self, like: impl Fn(&T) -> bool) -> Option<i32> {
        let others = self.others_with(like);
        others.iter().find_map(|other| read(other, self.kinds).ok()?.alive)
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

    /// Writes the journal anew with what an undo still needs, once it is long: `needed` is asked, the newest line
    /// first. A failure leaves it as it is.
    pub(crate) fn compact_if_long(&mut self, needed: impl FnMut(&Entry) -> bool) -> Result<(), ActError> {
        if self.lines < self.long {
            return Ok(());
        }
        // Not tried again at once if it fails.
        self.long = self.lines.saturating_mul(2);
        // Whoever waits for this lock finds another file in its place, and waits for that one's.
        let Some(_lock) = lock(&self.path)? else { return Ok(()) };
        let text = fs::read_to_string(&self.path).map_err(ActError::file("read", &self.path))?;
        let undos = still_needed(read(&self.path, self.kinds)?.undos, needed);
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

/// Those that are needed, oldest first; `needed` is asked the newest first.
pub(crate) fn still_needed(mut undos: Vec<Entry>, needed: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
    undos.reverse();
    undos.retain(needed);
    undos.reverse();
    undos
}

#[cfg(test)]
mod tests;
