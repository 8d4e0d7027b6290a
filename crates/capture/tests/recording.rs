//! What is recorded is read again and decided again; limits are kept, and trouble is told once.

mod common;

use common::{Dice, joined, record, recorded, records, replayed, setup, windows};
use gleaner_capture::{Ended, Reader, Record, Recorder, Replay, Target};
use gleaner_decide::guest::{GuestParams, GuestPolicy};
use gleaner_model::Nanos;
use std::io::Cursor;

#[test]
fn what_was_recorded_is_read_and_decided_again() {
    let mut at_once = 0;
    let (mut decisions, mut kinds) = (0, std::collections::BTreeSet::new());
    for seed in 0..40 {
        let (told, bytes) = recorded(seed, 3, 400);
        let records = records(&bytes);
        assert_eq!(windows(&records), told.windows);
        at_once += told.at_once;
        let events = records.iter().filter(|record| matches!(record, Record::Event { .. })).count() as u64;
        assert_eq!(events, told.events);
        for outcome in replayed(&records) {
            assert!(outcome.is_identical(), "seed {seed}: {outcome:?}");
            decisions += outcome.actions.values().map(|(recorded, _)| recorded).sum::<u64>();
            kinds.extend(outcome.actions.into_keys());
        }
        let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
        assert_eq!(reader.by_ref().count() as u64, reader.records_read());
        assert!(reader.is_finished());
    }
    // Otherwise the same would be said of nothing.
    assert!(decisions > 1_000 && at_once > 10, "{decisions}, {at_once} between windows");
    for kind in ["activate-all", "deactivate", "release", "retain"] {
        assert!(kinds.contains(kind), "{kind}: {kinds:?}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..Default::default()
    })]

    /// Whichever policy was told whatever windows.
    #[test]
    fn any_recording_is_decided_again(seed: u64, groups in 1u64..4, count in 0u64..150) {
        let (told, bytes) = recorded(seed, groups, count);
        let records = records(&bytes);
        proptest::prop_assert_eq!(windows(&records), told.windows);
        for outcome in replayed(&records) {
            proptest::prop_assert!(outcome.is_identical(), "{outcome:?}");
        }
    }
}

#[test]
fn other_parameters_show_what_would_have_differed() {
    let (_, bytes) = recorded(3, 4, 600);
    let records = records(&bytes);
    let change =
        |params: &GuestParams| Ok(GuestParams { learn_timeouts: false, retention_trials: false, ..params.clone() });
    let mut replay = Replay::new(Some(&change));
    for record in &records {
        replay.feed(record).unwrap();
    }
    let outcomes = replay.outcomes();
    let differing: u64 = outcomes.iter().map(|outcome| outcome.differing).sum();
    assert!(differing > 10, "{outcomes:?}");
    let first = outcomes.iter().find_map(|outcome| outcome.differences.first()).unwrap();
    assert_ne!(first.recorded, first.replayed);
    // What is not allowed beside what was recorded is refused.
    let wrong = |params: &GuestParams| {
        let params = GuestParams { load_factor: 7.0, ..params.clone() };
        params.validate().map(|()| params.clone())
    };
    let mut replay = Replay::new(Some(&wrong));
    let said = records.iter().find_map(|record| replay.feed(record).err()).unwrap().to_string();
    assert!(said.contains("load_factor = 7"), "{said}");
}

#[test]
fn a_ring_keeps_the_newest_and_each_segment_is_replayed_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 160 << 10;
    let (told, trouble) = record(Target::Ring(folder.path().join("ring"), limit), 7, 3, 3_000);
    assert_eq!(trouble, None);
    let mut paths: Vec<_> = std::fs::read_dir(folder.path().join("ring")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 4, "{paths:?}");
    assert!(paths.iter().all(|path| gleaner_capture::is_segment(path)));
    let all = joined(&folder.path().join("ring"));
    assert!(all.len() as u64 <= limit, "{} bytes", all.len());
    let records = records(&all);
    let kept = windows(&records);
    assert!(kept.len() > 1_000 && kept.len() < told.windows.len(), "{} of {}", kept.len(), told.windows.len());
    assert_eq!(kept, told.windows[told.windows.len() - kept.len()..]);
    for path in &paths {
        let segment = common::records(&std::fs::read(path).unwrap());
        let outcomes = replayed(&segment);
        assert!(outcomes.iter().all(gleaner_capture::GroupOutcome::is_identical), "{path:?}: {outcomes:?}");
        assert!(outcomes.len() >= 3 && outcomes.iter().any(|outcome| outcome.windows > 0), "{path:?}: {outcomes:?}");
    }
    assert!(replayed(&records).iter().all(gleaner_capture::GroupOutcome::is_identical));
    // Who comes next goes on with what is there, also where a kill left half a frame.
    let newest = paths.last().unwrap();
    let length = std::fs::metadata(newest).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(newest).unwrap().set_len(length - 3).unwrap();
    let (_, trouble) = record(Target::Ring(folder.path().join("ring"), limit), 8, 3, 50);
    assert_eq!(trouble, None);
    let all = joined(&folder.path().join("ring"));
    assert!(all.len() as u64 <= limit);
    assert!(replayed(&common::records(&all)).iter().all(gleaner_capture::GroupOutcome::is_identical));
}

#[test]
fn a_full_file_says_so_and_what_is_in_it_is_whole() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let limit = 64 << 10;
    let (told, trouble) = record(Target::File(file.reopen().unwrap(), limit), 1, 2, 4_000);
    assert_eq!(trouble.as_deref(), Some("it is as long as it may be"));
    let bytes = std::fs::read(file.path()).unwrap();
    assert!(bytes.len() as u64 <= limit && bytes.len() as u64 > limit / 2, "{}", bytes.len());
    let records = records(&bytes);
    assert_eq!(records.last(), Some(&Record::Ends(Ended::Full)));
    let kept = windows(&records);
    assert!(!kept.is_empty() && kept.len() < told.windows.len());
    assert_eq!(kept, told.windows[..kept.len()]);
    assert!(replayed(&records).iter().all(gleaner_capture::GroupOutcome::is_identical));
}

#[test]
fn a_full_disk_and_a_vanished_folder_end_the_recording_and_nothing_else() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (_, trouble) = record(Target::File(full, 1 << 30), 1, 1, 500);
    assert!(trouble.as_ref().is_some_and(|why| why.contains("No space left")), "{trouble:?}");

    let folder = tempfile::tempdir().unwrap();
    let ring = folder.path().join("ring");
    let dice = &mut Dice(1);
    let mut recorder = Recorder::start(Target::Ring(ring.clone(), 1 << 20), common::machine()).unwrap();
    let setup = setup(dice);
    let mut policy = GuestPolicy::of(setup.clone());
    recorder.group(1, Nanos::ZERO, "one", &setup, &policy.begin());
    assert_eq!(recorder.flush(std::time::Duration::from_secs(60)).unwrap().len(), 1);
    assert_eq!(recorder.trouble(), None);
    std::fs::remove_dir_all(&ring).unwrap();
    for n in 0..50 {
        let window = common::window(dice, Nanos::from_millis(100 * n));
        recorder.window(1, true, &window, &policy.step(&window));
    }
    assert_eq!(recorder.flush(std::time::Duration::from_secs(60)), None);
    let why = recorder.trouble().unwrap();
    assert!(why.contains("No such file"), "{why}");
    assert!(!ring.exists(), "somebody wanted it to be gone");
    assert_eq!(recorder.finish(), Some(why));
}

#[test]
fn what_another_policy_recorded_is_read_and_not_replayed() {
    let (_, bytes) = recorded(1, 1, 20);
    let mut records = records(&bytes);
    let Some(Record::Begins(machine)) = records.first_mut() else { panic!("{:?}", records.first()) };
    machine.policy_version ^= 1;
    let said = Replay::new(None).feed(&records[0]).unwrap_err().to_string();
    assert!(said.contains("gleaner 0.0.0 recorded it") && said.contains("gleaner dump"), "{said}");
}
