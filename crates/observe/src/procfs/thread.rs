//! One thread's counters, read again and again through files kept open.
//!
//! `status` costs five times what `schedstat` costs, so it is read only when `schedstat` says that the thread ran. An
//! open file of `/proc` belongs to the thread it was opened for: after its death reading gives ESRCH, even when the id
//! has been given to another. Without open files (the budget is spent) the start time tells them apart.

use gleaner_sys::{Stat, is_gone, reread, schedstat, switches};
use std::fs::File;
use std::io;
use std::path::Path;

/// Files kept open for one thread.
const FILES: usize = 3;

/// Cumulative counts of one thread, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub run_ns: u64,
    pub waited_ns: u64,
    pub voluntary: u64,
    pub involuntary: u64,
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.run_ns += other.run_ns;
        self.waited_ns += other.waited_ns;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
    }

    pub fn switches(&self) -> u64 {
        self.voluntary + self.involuntary
    }
}

/// How many files may be kept open, and how many are.
#[derive(Debug)]
pub(super) struct FileBudget {
    pub open: usize,
    pub limit: usize,
}

#[derive(Debug)]
enum Files {
    Kept { schedstat: File, status: File, children: Option<File> },
    Reopened { start: u64 },
}

/// A thread of the group, or one whose switches must be known.
#[derive(Debug)]
pub(super) struct Thread {
    files: Files,
    slices: u64,
    /// Whether it ran since its children were last read: otherwise it cannot have any new ones.
    ran: bool,
    pub counts: Counts,
}

impl Thread {
    /// Opens it; `None` when it is gone already or hidden from us.
    pub fn open(task: &Path, budget: &mut FileBudget, buffer: &mut Vec<u8>) -> Option<Self> {
        let open = |name: &str| File::open(task.join(name));
        let open_all = || {
            // Not every kernel has the last.
            io::Result::Ok(Files::Kept {
                schedstat: open("schedstat")?,
                status: open("status")?,
                children: open("children").ok(),
            })
        };
        let files = match (budget.open + FILES <= budget.limit).then(open_all) {
            Some(Ok(files)) => {
                budget.open += FILES;
                files
            }
            Some(Err(error)) if is_gone(&error) => return None,
            _ => Files::Reopened { start: start_time(task, buffer)? },
        };
        let mut thread = Self { files, slices: u64::MAX, ran: true, counts: Counts::default() };
        if thread.update(task, buffer) {
            return Some(thread);
        }
        thread.close(budget);
        None
    }

    /// Gives its files back to the budget.
    pub fn close(self, budget: &mut FileBudget) {
        if matches!(self.files, Files::Kept { .. }) {
            budget.open -= FILES;
        }
    }

    /// Reads its counters anew; false when it is gone.
    pub fn update(&mut self, task: &Path, buffer: &mut Vec<u8>) -> bool {
        self.try_update(task, buffer).is_some()
    }

    /// It is not read this time: it may have run.
    pub fn pass_over(&mut self) {
        self.ran = true;
    }

    /// Adds its child processes to `found`; unless `all` are wanted, only if it has run since it was last asked.
    pub fn children(&mut self, all: bool, task: &Path, buffer: &mut Vec<u8>, found: &mut Vec<i32>) {
        if !std::mem::take(&mut self.ran) && !all {
            return;
        }
        let mut add = |text: &[u8]| {
            found.extend(gleaner_sys::children(text));
            Some(())
        };
        match &self.files {
            Files::Kept { children: Some(file), .. } => reread(file, buffer).ok().and_then(add),
            Files::Kept { children: None, .. } => None,
            Files::Reopened { .. } => read(task, "children", buffer, &mut add),
        };
    }

    fn try_update(&mut self, task: &Path, buffer: &mut Vec<u8>) -> Option<()> {
        let (run_ns, waited_ns, slices) = match &self.files {
            Files::Kept { schedstat: file, .. } => schedstat(reread(file, buffer).ok()?)?,
            Files::Reopened { start } if start_time(task, buffer)? == *start => {
                read(task, "schedstat", buffer, schedstat)?
            }
            Files::Reopened { .. } => return None,
        };
        if (run_ns, slices) == (self.counts.run_ns, self.slices) {
            return Some(());
        }
        let (voluntary, involuntary) = match &self.files {
            Files::Kept { status, .. } => switches(reread(status, buffer).ok()?)?,
            Files::Reopened { .. } => read(task, "status", buffer, switches)?,
        };
        self.slices = slices;
        self.ran = true;
        self.counts = Counts { run_ns, waited_ns, voluntary, involuntary };
        Some(())
    }
}

fn start_time(task: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
    read(task, "stat", buffer, |text| Stat::parse(text)?.start_time())
}

/// Opens, reads and parses one file of a thread; `None` when it is gone.
pub(super) fn read<T>(
    task: &Path,
    name: &str,
    buffer: &mut Vec<u8>,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    let file = File::open(task.join(name)).ok()?;
    parse(reread(&file, buffer).ok()?)
}
