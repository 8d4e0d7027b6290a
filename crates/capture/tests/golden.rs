//! The format holds still: a file that was written once stays readable, to the last field.
//!
//! Where this fails the layout of something recorded has changed. Of records: `frame::VERSION` goes up. Of set-ups,
//! parameters or states of policies: `GuestPolicy::VERSION` goes up. Then remove the file: the test writes it anew.

mod common;

use common::{Dice, items, machine, replayed, setup, window, windows};
use gleaner_capture::{Item, Machine, Record, Recorder, Target};
use gleaner_decide::guest::GuestPolicy;
use gleaner_model::Nanos;
use std::path::Path;

/// Some of everything; the windows that were told.
fn write(path: &Path) -> Vec<gleaner_model::Window> {
    let dice = &mut Dice(42);
    let file = std::fs::File::create(path).unwrap();
    let mut recorder = Recorder::start(Target::File(file, 1 << 20), machine()).unwrap();
    let setup = setup(dice);
    let mut policy = GuestPolicy::of(setup.clone());
    recorder.group(1, Nanos::ZERO, "one", &setup, &policy.begin());
    let mut told = Vec::new();
    for n in 1..=60 {
        let window = window(dice, Nanos::from_millis(100 * n));
        let decisions = policy.step(&window);
        recorder.window(1, true, &window, &decisions);
        told.push(window);
    }
    recorder.params(1, &setup.params);
    recorder.event("an event");
    recorder.window(1, false, &window(dice, Nanos::from_millis(6_100)), &[]);
    recorder.group_as_it_is(2, "two", &setup, &policy);
    let last = window(dice, Nanos::from_millis(6_200));
    recorder.window(2, true, &last, &policy.step(&last));
    told.push(last);
    recorder.gone(1);
    assert_eq!(recorder.finish(), None);
    told
}

#[test]
fn a_file_of_this_version_stays_readable() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-1.capture");
    if !golden.exists() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        write(&golden);
        panic!("{} was not there; it is now: look at `git status`", golden.display());
    }
    let fresh = tempfile::NamedTempFile::new().unwrap();
    let told = write(fresh.path());
    let found = items(&std::fs::read(&golden).unwrap());
    let decided: Vec<_> = windows(&found).into_iter().filter(|window| window.1).map(|window| window.2).collect();
    assert_eq!(decided, told);
    let of_version = |item: &Item| {
        let Item::Record(Record::Begins(Machine { policy_version, .. })) = item else { return false };
        *policy_version == GuestPolicy::VERSION
    };
    assert!(found.iter().any(of_version), "GuestPolicy::VERSION went up: remove the file");
    // Set-ups and states are bytes to a record; here they are what they were.
    let kept = |items: &[Item]| -> Vec<(Vec<u8>, bool)> {
        let group = |item: &Item| match item {
            Item::Record(Record::Group(group)) => Some((group.setup.clone(), group.state.is_some())),
            _ => None,
        };
        items.iter().filter_map(group).collect()
    };
    let fresh = kept(&items(&std::fs::read(fresh.path()).unwrap()));
    assert!(kept(&found) == fresh, "parameters or set-ups have another layout: see the head of this file");
    // What is decided by then may have changed; that it can be decided has not.
    let outcomes = replayed(&found);
    assert_eq!(
        outcomes.iter().map(|outcome| (outcome.windows, outcome.skipped)).collect::<Vec<_>>(),
        [(60, 0), (1, 0)]
    );
}
