//! The format holds still: a file that was written once stays readable, to the last field.
//!
//! Where this fails the layout of windows or decisions has changed: `frame::VERSION` goes up. Then remove both files of
//! `data/`, and the test writes them anew. Policies may change: their layout has a number of its own
//! (`policy_version`), and what another policy recorded is read and not replayed.

mod common;

use common::{Dice, items, machine, setup, window, windows};
use gleaner_capture::{GroupOutcome, Item, Record, Recorder, Replay, ReplayError, Target, policy_version};
use gleaner_decide::guest::GuestPolicy;
use gleaner_model::{Nanos, Window};
use std::fmt::Write;
use std::path::Path;

/// Some of everything; the windows that were told.
fn write(path: &Path) -> Vec<Window> {
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

/// What is in it beside windows, which can be made anew, and the bytes of policies.
fn described(items: &[Item]) -> String {
    let mut text = String::new();
    for item in items {
        let _ = match item {
            Item::Record(Record::Window(of)) => {
                writeln!(text, "window of {}, {}: {:?}", of.group, of.decided, of.decisions)
            }
            Item::Record(Record::Group(of)) => {
                let (at, policy, profile) = (of.at, of.policy, of.profile);
                writeln!(text, "{} {} {at} {policy:?} {profile:?} {:?}", of.group, of.name, of.decisions)
            }
            Item::Record(Record::Params { group, .. }) => writeln!(text, "parameters of {group}"),
            Item::Record(Record::Begins(of)) => {
                writeln!(text, "{} {} {} {}", of.gleaner, of.kernel, of.vcpus, of.session)
            }
            other => writeln!(text, "{other:?}"),
        };
    }
    text
}

#[test]
fn a_file_of_this_version_stays_readable() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let (golden, described_then) = (data.join("version-4.capture"), data.join("version-4.txt"));
    if !golden.exists() {
        std::fs::create_dir_all(&data).unwrap();
        write(&golden);
        std::fs::write(&described_then, described(&items(&std::fs::read(&golden).unwrap()))).unwrap();
        panic!("{} was not there; it is now: look at `git status`", golden.display());
    }
    let told = write(tempfile::NamedTempFile::new().unwrap().path());
    let found = items(&std::fs::read(&golden).unwrap());
    let decided: Vec<_> = windows(&found).into_iter().filter(|window| window.1).map(|window| window.2).collect();
    assert_eq!(decided, told);
    assert_eq!(described(&found), std::fs::read_to_string(described_then).unwrap());
    replays_or_says_why_not(&found);
}

fn replays_or_says_why_not(found: &[Item]) {
    let mut replay = Replay::new(None);
    for item in found {
        match (replay.feed(item), item) {
            (Ok(()), _) => {}
            (Err(ReplayError::Policy { .. }), Item::Record(Record::Begins(machine))) => {
                assert_ne!(machine.policy_version, policy_version());
                return;
            }
            (Err(error), _) => panic!("{error}"),
        }
    }
    let of = |outcome: &GroupOutcome| (outcome.windows, outcome.skipped);
    assert_eq!(replay.outcomes().iter().map(of).collect::<Vec<_>>(), [(60, 0), (1, 0)]);
}
