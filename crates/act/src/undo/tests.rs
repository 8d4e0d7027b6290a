use super::*;
use crate::affinity::{affinity_of, set_affinity};
use crate::journal::Change;
use crate::process_start_time;
use gleaner_model::CpuSet;
use std::fs;

#[test]
fn a_controller_goes_with_the_last_run_that_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("cgroup.subtree_control");
    fs::write(&control, "cpu\n").unwrap();
    let undo = DisableController { parent: dir.path().to_owned(), controller: "cpu".into() };
    let state_dir = dir.path().join("state");
    let runs = ["run-1", "run-2"].map(|run_id| {
        let mut journal = Journal::create(&state_dir, run_id).unwrap();
        journal.before(&undo).unwrap();
        journal
    });
    for (journal, left) in runs.iter().zip(["cpu\n", "-cpu"]) {
        undo_own(journal).unwrap();
        assert!(fs::read_to_string(&control).unwrap().starts_with(left));
    }
}

#[test]
fn a_process_that_outlives_the_program_without_its_mark_is_widened() {
    let base = affinity_of(0).unwrap();
    let Some(first) = base.iter().next().filter(|_| base.len() > 1) else { gleaner_testing::skip!("needs two CPUs") };
    let active: CpuSet = std::iter::once(first).collect();
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&dir.path().join("state"), "run-1").unwrap();
    let mut orphan = std::process::Command::new("sleep").arg("30").env_clear().spawn().unwrap();
    let pid = i32::try_from(orphan.id()).unwrap();
    let confined = set_affinity(pid, &active);
    // The program itself is gone; it started when this child did.
    let root_start_time = process_start_time(pid).unwrap();
    let group = GroupAffinity { root_pid: i32::MAX, root_start_time, base: base.to_string() };
    journal.before(&group).unwrap();
    journal.before(&AffinityStep { active: active.to_string() }).unwrap();
    undo_own(&journal).unwrap();
    let given = affinity_of(pid);
    orphan.kill().unwrap();
    orphan.wait().unwrap();
    assert_eq!((confined, given), (true, Some(base)));
}

#[test]
fn of_runs_that_end_together_one_takes_the_controller_away() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("cgroup.subtree_control");
    let undo = DisableController { parent: dir.path().to_owned(), controller: "cpu".into() };
    for round in 0..200 {
        fs::write(&control, "cpu\n").unwrap();
        let state_dir = dir.path().join("state");
        let journals = [0, 1, 2].map(|run| Journal::create(&state_dir, &format!("run-{run}")).unwrap());
        let together = std::sync::Barrier::new(journals.len());
        std::thread::scope(|scope| {
            for mut journal in journals {
                let (undo, together) = (&undo, &together);
                scope.spawn(move || {
                    journal.before(undo).unwrap();
                    together.wait();
                    undo_own(&journal).unwrap();
                });
            }
        });
        let left = fs::read_to_string(&control).unwrap();
        assert!(left.starts_with("-cpu"), "round {round}: {left:?}");
    }
}

#[test]
fn what_was_made_is_removed_even_if_somebody_removed_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made");
    let mut journal = Journal::create(&dir.path().join("state"), "run-1").unwrap();
    journal.before(&RemoveCgroup { path: made.clone() }).unwrap();
    fs::create_dir(&made).unwrap();
    fs::remove_file(journal.path()).unwrap();
    assert_eq!(undo_own(&journal).unwrap(), UndoOutcome::Undone { entries: 1 });
    assert!(!made.exists());
}

#[test]
fn a_journal_whose_name_was_removed_is_undone_by_whoever_holds_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let value = dir.path().join("irq/1/smp_affinity_list");
    fs::create_dir_all(value.parent().unwrap()).unwrap();
    fs::write(&value, "ours").unwrap();
    let mut journal = Journal::create(&dir.path().join("state"), "run-1").unwrap();
    let undo = FileValue { path: value.clone(), had: "theirs".into(), set: "ours".into() };
    journal.before(&undo).unwrap();
    let path = journal.path().to_owned();
    let held = journal.take_new().unwrap();
    assert!(journal.take_new().is_none(), "it is the same file");
    assert!(matches!(undo_held(&path, Some(&held)), Ok(UndoOutcome::InUse { .. })));
    fs::remove_file(&path).unwrap();
    assert!(matches!(undo_held(&path, Some(&held)), Ok(UndoOutcome::InUse { .. })), "its run goes on");
    take_values_back(&path, Some(&held)).unwrap();
    assert_eq!(fs::read_to_string(&value).unwrap(), "theirs");
    // As if it were over.
    let text = fs::read_to_string(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held))).unwrap();
    let dead = text.replace(&format!("\"main_pid\":{}", std::process::id()), "\"main_pid\":2147483646");
    for (undone_before, expected) in [(false, UndoOutcome::Undone { entries: 1 }), (true, UndoOutcome::Gone)] {
        fs::write(&value, "ours").unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &dead).unwrap();
        let held = fs::File::open(&path).unwrap();
        if undone_before {
            journal::remove(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(undo_held(&path, Some(&held)).unwrap(), expected);
        assert_eq!(fs::read_to_string(&value).unwrap(), if undone_before { "ours" } else { "theirs" });
    }
}

#[test]
fn what_is_none_of_gleaners_is_not_undone_for_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let value = dir.path().join("shadow");
    fs::write(&value, "ours").unwrap();
    let mut journal = Journal::create(&dir.path().join("state"), "run-1").unwrap();
    journal.before(&FileValue { path: value.clone(), had: "theirs".into(), set: "ours".into() }).unwrap();
    let text = fs::read_to_string(journal.path()).unwrap();
    let dead = text.replace(&format!("\"main_pid\":{}", std::process::id()), "\"main_pid\":2147483646");
    fs::write(journal.path(), dead).unwrap();
    let said = undo_journal(journal.path(), false).unwrap_err().to_string();
    assert!(said.contains("no file that Gleaner sets") && said.contains("0 of its 1"), "{said}");
    assert_eq!((fs::read_to_string(&value).unwrap().as_str(), journal.path().exists()), ("ours", true));
}

#[test]
fn what_is_no_cgroup_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("gleaner-1-1");
    fs::create_dir(&folder).unwrap();
    assert!(RemoveCgroup { path: folder }.check().is_err());
    // Never made, or gone.
    let gone = dir.path().join("gleaner-2-1");
    assert!(RemoveCgroup { path: gone }.check().is_ok());
    assert!(RemoveCgroup { path: dir.path().to_owned() }.check().is_err());
    let controller = |parent: &Path, controller: &str| {
        DisableController { parent: parent.to_owned(), controller: controller.into() }.check()
    };
    assert!(controller(dir.path(), "cpu").is_err());
    assert!(controller(Path::new("/sys/fs/cgroup/no/such"), "cpu").is_ok());
    assert!(controller(Path::new("/sys/fs/cgroup/no/such"), "memory").is_err());
}

/// As every version has written them.
#[test]
fn lines_of_every_kind_are_known() {
    let lines = [
        r#"{"remove-cgroup":{"path":"/x"}}"#,
        r#"{"disable-controller":{"parent":"/x","controller":"cpu"}}"#,
        r#"{"group-affinity":{"root_pid":1,"root_start_time":2,"base":"0-3"}}"#,
        r#"{"affinity-step":{"active":"0"}}"#,
        r#"{"thread-affinity":{"tid":1,"start_time":2,"own":"0"}}"#,
        r#"{"slice":{"tid":1,"start_time":2,"was_ns":0,"set_ns":1000000}}"#,
        r#"{"file-value":{"path":"/x","had":"0","set":"1"}}"#,
        r#"{"reset-haltpoll":{"sys":"/sys"}}"#,
        r#"{"xen":{"xl":"/usr/sbin/xl","pool":"Pool-0","was":{"slice_ms":30,"ratelimit_us":1000},"set":{"slice_ms":null,"ratelimit_us":100}}}"#,
    ];
    assert_eq!(lines.len(), KINDS.len());
    for line in lines {
        let entry = Entry::read(line, &KINDS).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(serde_json::to_value(&entry).unwrap(), serde_json::from_str::<serde_json::Value>(line).unwrap());
    }
}
