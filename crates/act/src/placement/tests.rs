use super::*;
use crate::affinity::{affinity_of, set_affinity, waits_for_child};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, spawn};

/// A thread that says its id, and has a child of the same sort each time it is told to.
fn parent(says: Sender<i32>) -> (Sender<()>, JoinHandle<()>) {
    let (tell, told): (_, Receiver<()>) = channel();
    let body = move || {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        says.send(tid).unwrap();
        let children: Vec<_> = told.iter().map(|()| parent(says.clone())).collect();
        for (tell, child) in children {
            drop(tell);
            child.join().unwrap();
        }
    };
    (tell, spawn(body))
}

/// What this test may use, and one of it; `None` where that is all.
fn all_and_one() -> Option<(CpuSet, CpuSet)> {
    let base = affinity_of(0).unwrap();
    let active = base.iter().take(1).collect();
    (base.len() > 1).then_some((base, active))
}

#[test]
fn a_thread_born_while_its_creator_is_widened_is_widened_later() {
    let Some((base, active)) = all_and_one() else {
        gleaner_testing::skip!("needs two CPUs");
    };
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), "test").unwrap();
    let mut placement = Placement::new(&base);
    let (says, heard) = channel();
    let (tell, creator) = parent(says);
    let old = heard.recv().unwrap();
    placement.confine(&active, &[old], &mut journal).unwrap();
    assert_eq!(affinity_of(old), Some(active.clone()));
    tell.send(()).unwrap();
    let young = heard.recv().unwrap();
    placement.confine(&base, &[old], &mut journal).unwrap();
    assert_eq!((affinity_of(old), affinity_of(young)), (Some(base.clone()), Some(active)));
    assert!(placement.follows_threads());
    placement.confine(&base, &[old, young], &mut journal).unwrap();
    assert_eq!(affinity_of(young), Some(base.clone()));
    for _ in 0..PASSES_AFTER_WIDENING {
        placement.confine(&base, &[old, young], &mut journal).unwrap();
    }
    assert!(!placement.follows_threads());
    drop(tell);
    creator.join().unwrap();
}

#[test]
fn a_thread_that_was_pinned_to_what_becomes_active_keeps_its_choice() {
    let Some((base, active)) = all_and_one() else {
        gleaner_testing::skip!("needs two CPUs");
    };
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), "test").unwrap();
    let mut placement = Placement::new(&base);
    let (says, heard) = channel();
    let (tell, thread) = parent(says);
    let tid = heard.recv().unwrap();
    assert!(set_affinity(tid, &active));
    placement.confine(&active, &[tid], &mut journal).unwrap();
    placement.confine(&base, &[tid], &mut journal).unwrap();
    assert_eq!(affinity_of(tid), Some(active));
    drop(tell);
    thread.join().unwrap();
}

#[test]
fn a_choice_that_could_not_be_journalled_is_journalled_later() {
    let Some((base, active)) = all_and_one() else {
        gleaner_testing::skip!("needs two CPUs");
    };
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&folder.path().join("journals"), "test").unwrap();
    let mut refusing = Journal::create(&folder.path().join("refusing"), "test").unwrap();
    refusing.refuse_to_write();
    let mut placement = Placement::new(&base);
    placement.confine(&active, &[], &mut journal).unwrap();
    let (says, heard) = channel();
    let (tell, thread) = parent(says);
    let tid = heard.recv().unwrap();
    assert!(set_affinity(tid, &base.difference(&active)));
    placement.confine(&active, &[tid], &mut refusing).unwrap_err();
    placement.confine(&active, &[tid], &mut journal).unwrap();
    let text = std::fs::read_to_string(journal.path()).unwrap();
    assert!(text.contains(&format!("\"tid\":{tid},")), "{text}");
    drop(tell);
    thread.join().unwrap();
}

#[test]
fn processes_that_join_later_are_journalled_before_the_next_change() {
    let base = affinity_of(0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), "test").unwrap();
    let mut placement = Placement::new(&base);
    let own = i32::try_from(std::process::id()).unwrap();
    placement.program_started(own);
    let journalled = |journal: &Journal| {
        let text = std::fs::read_to_string(journal.path()).unwrap();
        [own, 1].map(|pid| text.matches(&format!("\"root_pid\":{pid},")).count())
    };
    let active: CpuSet = base.iter().take(1).collect();
    placement.before_masks(&mut journal).unwrap();
    assert_eq!(journalled(&journal), [1, 0]);
    placement.another_joined(1);
    placement.another_joined(1);
    placement.confine(&active, &[], &mut journal).unwrap();
    assert_eq!(journalled(&journal), [1, 1]);
}

#[test]
fn who_waits_for_a_child_starts_the_next_one_with_all_it_had() {
    let Some((base, active)) = all_and_one() else {
        gleaner_testing::skip!("needs two CPUs");
    };
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), "test").unwrap();
    let mut placement = Placement::new(&base);
    let mut shell = std::process::Command::new("sh");
    let mut shell = shell.args(["-c", "sleep 600; nproc"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let shell_pid = i32::try_from(shell.id()).unwrap();
    let text = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let waiting = || {
        let child: i32 = text(format!("/proc/{shell_pid}/task/{shell_pid}/children")).trim().parse().ok()?;
        let runs = text(format!("/proc/{child}/comm")).trim() == "sleep";
        (runs && waits_for_child(shell_pid)).then_some(child)
    };
    let child = std::iter::repeat_with(|| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        waiting()
    });
    let child = child.take(6_000).flatten().next().expect("the shell waits for its child");
    placement.confine(&active, &[shell_pid, child], &mut journal).unwrap();
    assert_eq!((affinity_of(shell_pid), affinity_of(child)), (Some(base.clone()), Some(active)));
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::TERM).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut shell.stdout.take().unwrap(), &mut said).unwrap();
    shell.wait().unwrap();
    assert_eq!(said.trim(), base.len().to_string());
}

#[test]
fn who_was_packed_is_put_apart_and_may_run_anywhere_one_pass_later() {
    let Some((base, active)) = all_and_one() else {
        gleaner_testing::skip!("needs two CPUs");
    };
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), "test").unwrap();
    let mut placement = Placement::new(&base);
    let (says, heard) = channel();
    let both = [parent(says.clone()), parent(says)];
    let tids = [heard.recv().unwrap(), heard.recv().unwrap()];
    placement.confine(&active, &tids, &mut journal).unwrap();
    assert!(tids.iter().all(|tid| affinity_of(*tid) == Some(active.clone())));
    placement.confine(&base, &tids, &mut journal).unwrap();
    let mut masks = tids.map(|tid| affinity_of(tid).unwrap());
    masks.sort_by_key(CpuSet::len);
    let given = base.difference(&active);
    assert_eq!(masks[1], base);
    assert_eq!(masks[0], given, "one of them is elsewhere");
    placement.confine(&base, &tids, &mut journal).unwrap();
    assert!(tids.iter().all(|tid| affinity_of(*tid) == Some(base.clone())));
    for (tell, thread) in both {
        drop(tell);
        thread.join().unwrap();
    }
}

#[test]
fn as_large_a_part_of_the_threads_moves_as_there_are_new_vcpus() {
    let (says, heard) = channel();
    let all: Vec<_> = (0..8).map(|_| parent(says.clone())).collect();
    let tids: Vec<i32> = heard.iter().take(8).collect();
    for (given, active, moved) in [(0, 2, 0), (1, 2, 4), (1, 4, 2), (1, 8, 1), (3, 4, 6), (7, 8, 7), (1, 16, 0)] {
        assert_eq!(Affinities::to_move(&tids, given, active).len(), moved, "{given} of {active}");
    }
    for (tell, thread) in all {
        drop(tell);
        thread.join().unwrap();
    }
}
