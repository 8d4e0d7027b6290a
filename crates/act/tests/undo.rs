//! What an undo does, line by line: in which order, to whom, and what it leaves alone.

use gleaner_act::{
    AffinityStep, GroupAffinity, Journal, RemoveCgroup, UndoOutcome, process_start_time, undo_journal, undo_own,
};
use gleaner_model::CpuSet;
use rustix::process::Pid;
use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

fn journal(dir: &Path) -> Journal {
    Journal::create(&dir.join("state"), "run-1").unwrap()
}

/// As the guardian finds it: the process that wrote it is dead.
fn orphan(journal: &Journal) {
    let text = fs::read_to_string(journal.path()).unwrap();
    let dead = text.replace(&format!("\"main_pid\":{}", std::process::id()), "\"main_pid\":2147483646");
    assert_ne!(text, dead);
    fs::write(journal.path(), dead).unwrap();
}

#[test]
fn the_newest_change_is_undone_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = journal(dir.path());
    // Each can only go before the one that it is in.
    let nested = ["a", "a/b", "a/b/c"].map(|name| dir.path().join(name));
    for path in &nested {
        journal.before(&RemoveCgroup { path: path.clone() }).unwrap();
        fs::create_dir(path).unwrap();
    }
    assert_eq!(undo_own(&journal).unwrap(), UndoOutcome::Undone { entries: 3 });
    assert!(!nested[0].exists());
}

/// In the idle class a killed thread may not get a CPU to die on, so the group leaves it before it is removed.
#[test]
fn the_yielding_threads_group_leaves_the_idle_class_before_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = journal(dir.path());
    let group = dir.path().join("group");
    fs::create_dir(&group).unwrap();
    fs::write(group.join("cpu.idle"), "1").unwrap();
    journal.before(&RemoveCgroup { path: group.clone() }).unwrap();
    // A plain folder with a file in it cannot be removed: what was done to it before can be seen.
    assert!(undo_own(&journal).is_err());
    assert_eq!(fs::read_to_string(group.join("cpu.idle")).unwrap(), "0");
}

/// A process that sleeps; ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("60").env_clear().spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn cpus(&self) -> Vec<usize> {
        cpus_of(Pid::from_raw(self.pid()))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cpus_of(pid: Option<Pid>) -> Vec<usize> {
    let mask = sched_getaffinity(pid).unwrap();
    (0..Mask::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect()
}

#[test]
fn a_process_that_got_the_id_of_the_program_is_left_alone() {
    let all = cpus_of(None);
    if all.len() < 2 {
        gleaner_testing::skip!("needs two CPUs");
    }
    let list = |cpus: &[usize]| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    for (later, widened) in [(0, true), (1, false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        let sleeper = Sleeper::start();
        let mut first = Mask::new();
        first.set(all[0]);
        sched_setaffinity(Pid::from_raw(sleeper.pid()), &first).unwrap();
        // The program started at another time: this process has its id, and chose its CPU itself.
        let root_start_time = process_start_time(sleeper.pid()).unwrap() - later;
        let base = list(&all).parse::<CpuSet>().unwrap().to_string();
        journal.before(&GroupAffinity { root_pid: sleeper.pid(), root_start_time, base }).unwrap();
        journal.before(&AffinityStep { active: list(&all[..1]) }).unwrap();
        orphan(&journal);
        assert_eq!(undo_journal(journal.path(), false).unwrap(), UndoOutcome::Undone { entries: 2 });
        assert_eq!(sleeper.cpus(), if widened { all.clone() } else { all[..1].to_vec() }, "{later}");
    }
}
