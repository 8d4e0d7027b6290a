//! Cache groups on a resctrl that answers as the kernel's does (support/fake_resctrl.rs): made, refused, undone by
//! whoever is left.

#[path = "support/fake_resctrl.rs"]
mod fake_resctrl;

use fake_resctrl::{FakeResctrl, Machine};
use gleaner_act::{
    CacheReading, Joined, Journal, RemoveResctrlGroup, Resctrl, UndoOutcome, UnmountResctrl, undo_journal, undo_own,
};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

/// A process to be moved about; ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("60").env_clear().spawn().unwrap())
    }

    fn tid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Fixture {
    fake: FakeResctrl,
    resctrl: Resctrl,
    journal: Journal,
    _state: tempfile::TempDir,
}

fn fixture(machine: Machine) -> Option<Fixture> {
    let fake = FakeResctrl::mount(machine)?;
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::create(&state.path().join("state"), "run-1").unwrap();
    let resctrl = Resctrl::open(fake.path()).unwrap();
    Some(Fixture { fake, resctrl, journal, _state: state })
}

#[test]
fn a_group_holds_what_joins_it_until_it_is_undone() {
    let Some(mut on) = fixture(Machine::default()) else { return };
    let sleeper = Sleeper::start();
    let group = on.resctrl.group("thrash", 0x600, &mut on.journal).unwrap();
    assert_eq!(on.resctrl.join(&group, sleeper.tid()).unwrap(), Joined::Yes);
    let name = "gleaner-run-1-thrash";
    assert_eq!(group.name(&on.resctrl), format!("/{name}"));
    assert!(on.fake.holds(name, sleeper.tid()) && !on.fake.holds("", sleeper.tid()));
    let expected = [
        format!("mkdir /{name}"),
        format!("/{name}/schemata < L3:0=600;1=600"),
        format!("/{name}/tasks < {}", sleeper.tid()),
    ];
    assert_eq!(on.fake.take_log(), expected);
    assert_eq!(undo_own(&on.journal).unwrap(), UndoOutcome::Undone { entries: 1 });
    assert!(on.fake.groups().is_empty() && on.fake.holds("", sleeper.tid()));
    // And once more, now that the journal's name is gone.
    assert_eq!(undo_own(&on.journal).unwrap(), UndoOutcome::Undone { entries: 1 });
}

#[test]
fn code_and_data_apart_get_the_same_ways() {
    let Some(mut on) = fixture(Machine { cdp: true, domains: vec![0, 4], ..Machine::default() }) else { return };
    on.resctrl.group("rest", 0x1ff, &mut on.journal).unwrap();
    let log = on.fake.take_log();
    assert!(log.contains(&"/gleaner-run-1-rest/schemata < L3CODE:0=1ff;4=1ff\nL3DATA:0=1ff;4=1ff".into()), "{log:?}");
}

#[test]
fn amd_is_given_an_empty_mask_and_intel_refuses_it() {
    let amd = Machine { min_cbm_bits: 0, sparse_masks: true, shareable_bits: 0, ..Machine::default() };
    let Some(mut on) = fixture(amd) else { return };
    on.resctrl.group("thrash", 0, &mut on.journal).unwrap();
    assert!(on.fake.take_log().contains(&"/gleaner-run-1-thrash/schemata < L3:0=0;1=0".into()));
    let Some(mut on) = fixture(Machine::default()) else { return };
    let error = on.resctrl.group("thrash", 0, &mut on.journal).unwrap_err().to_string();
    assert!(error.contains("Mask out of range"), "{error}");
}

#[test]
fn what_the_kernel_refuses_is_told_in_its_words_and_undone() {
    for (machine, mask, word) in [
        (Machine { closids: 1, ..Machine::default() }, 0x1, "Out of CLOSIDs"),
        (Machine { rmids: 1, ..Machine::default() }, 0x1, "Out of RMIDs"),
        (Machine::default(), 0x5, "non-consecutive"),
        (Machine { min_cbm_bits: 2, ..Machine::default() }, 0x1, "more bits"),
        (Machine { exclusive: 0x3, ..Machine::default() }, 0x1, "exclusive"),
        (Machine::default(), 0x1000, "out of range"),
    ] {
        let Some(mut on) = fixture(machine) else { return };
        let error = on.resctrl.group("thrash", mask, &mut on.journal).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("gleaner-run-1-thrash"), "{error}");
        undo_own(&on.journal).unwrap();
        assert!(on.fake.groups().is_empty());
    }
}

#[test]
fn threads_that_are_gone_are_no_error() {
    let Some(mut on) = fixture(Machine::default()) else { return };
    let mut sleeper = Sleeper::start();
    let group = on.resctrl.group("thrash", 0x1, &mut on.journal).unwrap();
    sleeper.end();
    assert_eq!(on.resctrl.join(&group, sleeper.tid()).unwrap(), Joined::Gone);
    on.resctrl.monitor(&group, "web", &[sleeper.tid()], &mut on.journal).unwrap();
}

#[test]
fn somebody_elses_groups_and_their_threads_are_known_and_left_alone() {
    let Some(mut on) = fixture(Machine::default()) else { return };
    let (theirs, watched, ours) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
    let libvirt = on.fake.path().join("qemu-1-web");
    fs::create_dir(&libvirt).unwrap();
    fs::write(libvirt.join("tasks"), theirs.tid().to_string()).unwrap();
    let pqos = on.fake.path().join("mon_groups/pqos");
    fs::create_dir(&pqos).unwrap();
    fs::write(pqos.join("tasks"), watched.tid().to_string()).unwrap();
    let group = on.resctrl.group("thrash", 0x1, &mut on.journal).unwrap();
    on.resctrl.join(&group, ours.tid()).unwrap();
    let root = on.resctrl.root_group();
    on.resctrl.monitor(&root, "web", &[], &mut on.journal).unwrap();
    let foreign = on.resctrl.foreign("run-1").unwrap();
    assert_eq!(foreign, [theirs.tid(), watched.tid()].into());
    // To another run ours are foreign.
    assert!(on.resctrl.foreign("run-2").unwrap().contains(&ours.tid()));
    undo_own(&on.journal).unwrap();
    assert_eq!(on.fake.groups(), ["/mon_groups/pqos", "qemu-1-web"]);
    assert!(on.fake.holds("qemu-1-web", theirs.tid()));
}

#[test]
fn a_monitoring_group_reports_sums_and_is_made_again_with_one_line_in_the_journal() {
    let Some(mut on) = fixture(Machine::default()) else { return };
    let sleeper = Sleeper::start();
    let group = on.resctrl.group("thrash", 0x1, &mut on.journal).unwrap();
    on.resctrl.join(&group, sleeper.tid()).unwrap();
    for _ in 0..3 {
        let monitor = on.resctrl.monitor(&group, "web/../1", &[sleeper.tid()], &mut on.journal).unwrap();
        let reading = on.resctrl.reading(&monitor);
        assert_eq!(reading, CacheReading { occupancy_bytes: Some(131_072), memory_bytes: Some(2000) });
        on.resctrl.remove_monitor(&monitor).unwrap();
        on.resctrl.remove_monitor(&monitor).unwrap();
        assert_eq!(on.resctrl.reading(&monitor), CacheReading::default());
    }
    let journal = fs::read_to_string(on.journal.path()).unwrap();
    assert_eq!(journal.lines().count(), 3, "header, group, monitoring group: {journal}");
    // Left to the kernel, which takes it along with its group.
    on.resctrl.monitor(&group, "web", &[sleeper.tid()], &mut on.journal).unwrap();
    assert_eq!(undo_own(&on.journal).unwrap(), UndoOutcome::Undone { entries: 3 });
    assert!(on.fake.groups().is_empty());
}

#[test]
fn a_kill_at_any_moment_leaves_nothing_behind() {
    let Some(fake) = FakeResctrl::mount(Machine::default()) else { return };
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().join("state");
    let sleeper = Sleeper::start();
    let root: PathBuf = fake.path().into();
    let group = root.join("gleaner-1-1-thrash");
    let monitor = group.join("mon_groups/gleaner-1-1-web");
    let steps: [&dyn Fn(); 4] = [
        &|| (),
        &|| fs::create_dir(&group).unwrap(),
        &|| fs::write(group.join("tasks"), sleeper.tid().to_string()).unwrap(),
        &|| fs::create_dir(&monitor).unwrap(),
    ];
    for killed_after in 0..=steps.len() {
        let mut journal = Journal::create(&dir, "1-1").unwrap();
        for path in [&group, &monitor] {
            journal.before(&RemoveResctrlGroup { path: path.clone() }).unwrap();
        }
        steps.iter().take(killed_after).for_each(|step| step());
        // As the guardian finds it: the process that wrote it is dead.
        let text = fs::read_to_string(journal.path()).unwrap();
        let dead = text.replace(&format!("\"main_pid\":{}", std::process::id()), "\"main_pid\":2147483646");
        assert_ne!(text, dead);
        fs::write(journal.path(), dead).unwrap();
        assert_eq!(undo_journal(journal.path(), false).unwrap(), UndoOutcome::Undone { entries: 2 });
        assert!(fake.groups().is_empty(), "killed after {killed_after}: {:?}", fake.groups());
        assert!(fake.holds("", sleeper.tid()));
    }
}

#[test]
fn a_mount_of_ours_goes_unless_somebody_uses_it() {
    type Use<'a> = (&'a str, &'a dyn Fn(&std::path::Path));
    let uses: [Use<'_>; 4] = [
        ("nobody", &|_| ()),
        ("a group", &|root| fs::create_dir(root.join("theirs")).unwrap()),
        ("a monitor", &|root| fs::create_dir(root.join("mon_groups/theirs")).unwrap()),
        ("the root's mask", &|root| fs::write(root.join("schemata"), "L3:0=ff").unwrap()),
    ];
    for (who, uses) in uses {
        let Some(on) = fixture(Machine::default()) else { return };
        let (root, mut journal) = (on.fake.path().to_owned(), on.journal);
        journal.before(&UnmountResctrl { path: root.clone() }).unwrap();
        uses(&root);
        assert!(root.join("info").is_dir());
        undo_own(&journal).unwrap();
        assert_eq!(root.join("info").is_dir(), who != "nobody", "{who}");
        undo_own(&journal).unwrap();
    }
}

#[test]
fn of_two_runs_the_last_one_unmounts() {
    let Some(on) = fixture(Machine::default()) else { return };
    let (root, mut first) = (on.fake.path().to_owned(), on.journal);
    first.before(&UnmountResctrl { path: root.clone() }).unwrap();
    let mut second = Journal::create(first.path().parent().unwrap(), "run-2").unwrap();
    Resctrl::share_mount(&root, &mut second).unwrap();
    undo_own(&first).unwrap();
    assert!(root.join("info").is_dir());
    undo_own(&second).unwrap();
    assert!(!root.join("info").is_dir());
    // Nobody's mount but the machine's own: not ours to take away.
    let Some(on) = fixture(Machine::default()) else { return };
    let mut journal = on.journal;
    Resctrl::share_mount(on.fake.path(), &mut journal).unwrap();
    assert_eq!(undo_own(&journal).unwrap(), UndoOutcome::Undone { entries: 0 });
}

#[test]
fn a_host_without_allocation_or_without_monitoring_says_so() {
    let Some(without) = fixture(Machine { cat: false, ..Machine::default() }) else { return };
    assert!(without.resctrl.info().allocation.is_none() && without.resctrl.info().monitoring.is_some());
    let Some(mut without) = fixture(Machine { rmids: 0, ..Machine::default() }) else { return };
    assert!(without.resctrl.info().monitoring.is_none());
    let group = without.resctrl.group("thrash", 1, &mut without.journal).unwrap();
    assert!(without.resctrl.monitor(&group, "web", &[], &mut without.journal).is_err());
}
