//! What the journal knows of a change: what its line is called, and that it can be undone.
//!
//! Whoever changes the machine brings a [`Change`]. A journal is given the [kinds](Kind) that there are, and names
//! none.

use crate::ActError;
use crate::procs::{adopted_since, members, own_descendants, process_start_time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Passes over a program whose threads may be creating others meanwhile.
const PASSES: usize = 20;

/// A change of the machine, with all that its undo needs: a line of a journal.
pub trait Change: Serialize + DeserializeOwned + PartialEq {
    /// What the line is called. It never changes: another version's journals have it.
    const NAME: &'static str;
    /// When it is undone.
    const WHEN: When = When::InTurn;

    /// What a journal of another process may ask for: only what Gleaner does. Whoever forges one should gain nothing.
    ///
    /// # Errors
    /// When Gleaner never writes such a line.
    fn check(&self) -> Result<(), ActError> {
        Ok(())
    }

    /// Undoes it. It may be repeated: it looks at what is there before it touches it.
    fn undo(&self, run: &Run<'_>) -> Result<(), ActError>;
}

/// When a change is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After those that were made later.
    InTurn,
    /// Likewise, and also for as long as its run is silent.
    WhileSilent,
    /// After all others, by the last run that has it.
    Last,
}

/// The run whose changes are undone.
#[derive(Debug)]
pub struct Run<'a> {
    /// Its journal.
    pub(crate) path: &'a Path,
    pub(crate) id: &'a str,
    /// Whether its process ids and start times mean something else here.
    pub(crate) foreign: bool,
    /// Whether it is this process's own.
    pub(crate) own: bool,
    /// All its lines, oldest first.
    pub(crate) undos: &'a [Entry],
}

impl Run<'_> {
    /// Hands over the program's processes until `undo` finds nothing left: whoever is born meanwhile inherits what is
    /// not yet undone. This process's own descendants since the program began are the program's as well.
    pub(crate) fn for_its_processes(
        &self,
        (pid, start_time): (i32, u64),
        mut undo: impl FnMut(BTreeSet<i32>) -> Result<usize, ActError>,
    ) -> Result<(), ActError> {
        // A pid that was given to another process since is not the program's.
        let root = Some(pid).filter(|pid| !self.foreign && process_start_time(*pid) == Some(start_time));
        for _ in 0..PASSES {
            let pids = self.processes(root, start_time);
            if undo(pids)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn processes(&self, root: Option<i32>, start_time: u64) -> BTreeSet<i32> {
        // Nobody leaves a subreaper, and its lists of children are read faster than all of /proc.
        let is_subreaper = || rustix::process::child_subreaper().is_ok_and(|set| set.is_some());
        if let Some(all) = (self.own && is_subreaper()).then(own_descendants).flatten() {
            let since = |pid: &i32| process_start_time(*pid).is_some_and(|started| started >= start_time);
            return all.into_iter().filter(since).collect();
        }
        let mut pids = members(root, self.id);
        if self.own {
            pids.extend(adopted_since(start_time));
        }
        pids
    }
}

/// A line of a journal: a change's name, and what its undo needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Entry(BTreeMap<String, Value>);

impl Entry {
    /// As this kind of change; `None`: it is another.
    pub fn get<T: Change>(&self) -> Option<T> {
        T::deserialize(self.0.get(T::NAME)?).ok()
    }

    /// Reads a line, which has to be of one of these kinds.
    pub fn read(line: &str, kinds: &[Kind]) -> Result<Self, serde_json::Error> {
        let entry: Self = serde_json::from_str(line)?;
        let unknown = || serde::de::Error::custom("no change that is known");
        let (kind, fields) = entry.kind(kinds).ok_or_else(unknown)?;
        (kind.reads)(fields)?;
        Ok(entry)
    }

    fn kind<'k>(&self, kinds: &'k [Kind]) -> Option<(&'k Kind, &Value)> {
        let (name, fields) = self.0.first_key_value().filter(|_| self.0.len() == 1)?;
        Some((kinds.iter().find(|kind| kind.name == name)?, fields))
    }

    /// Checks it, unless this process wrote it itself, and undoes it if that is `due`.
    pub fn undo(&self, kinds: &[Kind], run: &Run<'_>, due: impl Fn(When) -> bool) -> Result<(), ActError> {
        self.kind(kinds).map_or(Ok(()), |(kind, _)| (kind.undo)(self, run, due(kind.when)))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Kind {
    name: &'static str,
    when: When,
    reads: fn(&Value) -> Result<(), serde_json::Error>,
    undo: fn(&Entry, &Run<'_>, bool) -> Result<(), ActError>,
}

impl Kind {
    pub const fn of<T: Change>() -> Self {
        Self { name: T::NAME, when: T::WHEN, reads: |fields| T::deserialize(fields).map(drop), undo: undo::<T> }
    }
}

fn undo<T: Change>(entry: &Entry, run: &Run<'_>, due: bool) -> Result<(), ActError> {
    let Some(change) = entry.get::<T>() else { return Ok(()) };
    if !run.own {
        change.check()?;
    }
    if due { change.undo(run) } else { Ok(()) }
}

/// What [`Change::check`] says of what Gleaner never writes.
pub(crate) fn never_written(what: &Path, why: &str) -> Result<(), ActError> {
    let why = format!("{why}, so Gleaner has not written that; its journal was kept, and can be removed");
    Err(ActError::Unavailable { what: format!("an undo of {}", what.display()), why })
}
