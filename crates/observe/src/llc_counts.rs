//! Where a thread's figures of the last-level cache come from: the processor's counters, or, for tests, a folder.
//!
//! ```text
//!   LlcCountSource ─┬─ LlcCounters    perf_event_open; what runs on every real host
//!                   └─ LlcCountFiles  FOLDER/TID, written by whoever plays the processor
//! ```
//!
//! Most machines have no counters of this kind, those that test this project among them. With counts from a folder
//! everything after the counter itself runs there as it does on a host: judging, moving threads, sampling, undoing.

use crate::perf_counters::{LlcCountSource, LlcCounterRefusal, LlcThreadCounts, NotCounted};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Counters as files: `FOLDER/TID` has `INSTRUCTIONS CYCLES ACCESSES MISSES`, each since the thread began.
#[derive(Debug)]
pub struct LlcCountFiles {
    folder: PathBuf,
    last: BTreeMap<i32, [u64; 4]>,
}

impl LlcCountFiles {
    /// No thread yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), last: BTreeMap::new() }
    }

    fn now(&self, tid: i32) -> Result<[u64; 4], LlcCounterRefusal> {
        let path = self.folder.join(tid.to_string());
        let refused = |why: String| LlcCounterRefusal::File { path: path.clone(), why };
        let text = fs::read_to_string(&path).map_err(|error| refused(error.to_string()))?;
        let numbers: Option<Vec<u64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers
            .and_then(|numbers| <[u64; 4]>::try_from(numbers).ok())
            .ok_or_else(|| refused(format!("{text:?} is not four numbers")))
    }
}

impl LlcCountSource for LlcCountFiles {
    fn follow(&mut self, tids: &[i32]) -> Vec<NotCounted> {
        self.last.retain(|tid, _| tids.contains(tid));
        let mut refused = Vec::new();
        for tid in tids {
            if !self.last.contains_key(tid) {
                match self.now(*tid) {
                    Ok(now) => drop(self.last.insert(*tid, now)),
                    Err(why) => refused.push(NotCounted { tid: *tid, why }),
                }
            }
        }
        refused
    }

    fn read(&mut self, tid: i32) -> Option<LlcThreadCounts> {
        let before = *self.last.get(&tid)?;
        let now = self.now(tid).ok()?;
        self.last.insert(tid, now);
        let [instructions, cycles, accesses, misses] = std::array::from_fn(|at| now[at].saturating_sub(before[at]));
        Some(LlcThreadCounts { instructions, cycles, accesses, misses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_differences_and_each_refusal_is_its_threads_own() {
        let folder = tempfile::tempdir().unwrap();
        let write = |tid: i32, text: &str| fs::write(folder.path().join(tid.to_string()), text).unwrap();
        write(1, "100 200 30 4\n");
        write(2, "1 2 3\n");
        let mut files = LlcCountFiles::new(folder.path());
        let refused = files.follow(&[2, 1, 3]);
        let words: Vec<String> = refused.iter().map(|refused| format!("{}: {}", refused.tid, refused.why)).collect();
        assert!(words[0].contains("2: ") && words[0].contains("is not four numbers"), "{words:?}");
        assert!(words[1].contains("3: ") && words[1].contains("No such file"), "{words:?}");
        write(1, "1100 2200 60 4\n");
        let counts = LlcThreadCounts { instructions: 1000, cycles: 2000, accesses: 30, misses: 0 };
        assert_eq!((files.read(1), files.read(2)), (Some(counts), None));
        // Tried again; counted from then on.
        write(2, "9 9 9 9");
        assert_eq!(files.follow(&[1, 2]).len(), 0);
        assert_eq!(files.read(2), Some(LlcThreadCounts::default()));
        files.follow(&[2]);
        assert_eq!(files.read(1), None);
    }
}
