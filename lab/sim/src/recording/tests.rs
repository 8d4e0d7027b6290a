use super::super::{EndedBy, Writer};
use super::*;
use gleaner_model::Nanos;

const HEADER: &str = "6.18";

/// Events as a file, read back and converted.
fn replayed(events: &[ThreadEvent]) -> Replay {
    let header = Header { kernel: HEADER.to_owned(), command: vec!["test".to_owned()], vcpus: 2 };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    let summary = Summary { ended_by: EndedBy::Exit, ..Summary::default() };
    let (bytes, _) = writer.finish(&summary).unwrap();
    convert(Reader::new(bytes.as_slice()).unwrap()).unwrap()
}

fn at(at: u64, tid: u32, what: ThreadHappening) -> ThreadEvent {
    ThreadEvent { at: Nanos(1_000_000 + at), cpu: tid % 2, tid, what }
}

fn born(when: u64, tid: u32, parent: Option<u32>) -> ThreadEvent {
    at(when, tid, ThreadHappening::Born { parent })
}

fn runs(when: u64, tid: u32) -> ThreadEvent {
    at(when, tid, ThreadHappening::In { from_idle: true })
}

fn leaves(when: u64, tid: u32, ran: u64, why: Left) -> ThreadEvent {
    at(when, tid, ThreadHappening::Out { ran: Nanos(ran), why })
}

fn woken(when: u64, tid: u32, waker: Option<u32>) -> ThreadEvent {
    at(when, tid, ThreadHappening::Woken { waker })
}

fn compute(time: u64) -> Op {
    Op::Compute(Span::Fixed(time))
}

fn end() -> [Op; 2] {
    [Op::Done, Op::Exit]
}

/// Thread 10 creates 11 after 100 ns, waits for it, is woken when 11 has computed 150 of its 200 ns.
#[test]
fn a_block_waits_for_the_place_where_its_waker_was() {
    let replay = replayed(&[
        born(0, 10, None),
        runs(0, 10),
        born(100, 11, Some(10)),
        leaves(120, 10, 120, Left::Blocked),
        runs(110, 11),
        woken(260, 10, Some(11)),
        runs(280, 10),
        leaves(310, 11, 200, Left::Ended),
        leaves(330, 10, 50, Left::Ended),
    ]);
    let [first, second] = replay.workload.programs.as_slice() else { panic!("{:?}", replay.workload) };
    assert_eq!(first[..], [&[compute(100), Op::Post(1), compute(20), Op::Wait(0), compute(50)][..], &end()].concat());
    assert_eq!(second[..], [&[Op::Wait(1), compute(150), Op::Post(0), compute(50)][..], &end()].concat());
    let facts = &replay.facts;
    assert_eq!((facts.threads, facts.unfinished, facts.cpu_ns, facts.wall_ns), (2, 0, 370, 330));
    assert_eq!((facts.waits, facts.delays, facts.idle_wakeups), (2, 0, 0));
    assert_eq!(replay.workload.flaw(), None);
    assert_eq!((replay.header.kernel.as_str(), replay.summary.events), (HEADER, 9));
}

/// Ran 100 ns of CPU time in 400 ns: half of the time was stolen before the wake-up or after it, nobody knows.
#[test]
fn stolen_time_is_no_computation_and_is_spread_over_the_interval() {
    let replay = replayed(&[
        born(0, 10, None),
        born(0, 11, Some(10)),
        runs(0, 11),
        leaves(10, 11, 10, Left::Blocked),
        runs(100, 10),
        woken(300, 11, Some(10)),
        runs(310, 11),
        leaves(320, 11, 10, Left::Ended),
        leaves(500, 10, 100, Left::Ended),
    ]);
    let first = &replay.workload.programs[0];
    // The birth was at time 0, when 10 was not seen to run: it is taken to have begun then.
    assert_eq!(first[..], [&[Op::Post(1), compute(50), Op::Post(1), compute(50)][..], &end()].concat());
}

#[test]
fn who_is_woken_from_outside_waits_as_long_as_it_did() {
    let replay = replayed(&[
        born(0, 10, None),
        runs(0, 10),
        leaves(50, 10, 50, Left::Blocked),
        woken(1_050, 10, None),
        runs(1_090, 10),
        leaves(1_100, 10, 10, Left::Displaced),
        runs(1_400, 10),
        leaves(1_500, 10, 100, Left::Ended),
    ]);
    let sleep = Op::Io(Span::Fixed(1_000));
    assert_eq!(replay.workload.programs[0][..], [&[compute(50), sleep, compute(110)][..], &end()].concat());
    assert_eq!((replay.facts.delays, replay.facts.delays_ns, replay.facts.displaced_ns), (1, 1_000, 300));
}

/// The waker is on its way while the thread still leaves: the wake-up is written down first. Another one finds the
/// thread running.
#[test]
fn a_wake_up_before_the_block_that_it_ends_counts_and_one_that_ends_none_does_not() {
    let replay = replayed(&[
        born(0, 10, None),
        runs(0, 10),
        born(0, 11, Some(10)),
        runs(0, 11),
        woken(90, 10, Some(11)),
        leaves(100, 10, 100, Left::Blocked),
        runs(110, 10),
        woken(150, 10, Some(11)),
        leaves(200, 10, 90, Left::Displaced),
        leaves(200, 11, 200, Left::Ended),
        runs(300, 10),
        leaves(310, 10, 10, Left::Ended),
    ]);
    let [first, second] = replay.workload.programs.as_slice() else { panic!() };
    assert_eq!(first[..], [&[Op::Post(1), compute(100), Op::Wait(0), compute(100)][..], &end()].concat());
    assert_eq!(second[..], [&[Op::Wait(1), compute(90), Op::Post(0), compute(110)][..], &end()].concat());
    assert_eq!((replay.facts.idle_wakeups, replay.facts.waits), (1, 2));
}

/// Wake-ups and switches are missing: delays of the length that is known, and nothing hangs.
#[test]
fn lost_events_become_delays() {
    let replay = replayed(&[
        born(0, 10, None),
        runs(0, 10),
        leaves(10, 10, 10, Left::Blocked),
        // Woken: lost.
        runs(60, 10),
        // Left, woken, ran again: lost.
        leaves(200, 10, 70, Left::Blocked),
        woken(250, 10, None),
        // A thread whose birth was lost, woken by one that was not seen to run.
        leaves(300, 12, 40, Left::Blocked),
        woken(310, 12, Some(10)),
        runs(320, 12),
        leaves(330, 12, 5, Left::Ended),
        leaves(340, 10, 30, Left::Ended),
    ]);
    let [first, second] = replay.workload.programs.as_slice() else { panic!() };
    let delay = |time| Op::Io(Span::Fixed(time));
    let expected = [compute(10), delay(50), compute(70), delay(50), Op::Post(1), compute(30)];
    assert_eq!(first[..], [&expected[..], &end()].concat());
    assert_eq!(second[..], [&[delay(300), compute(40), Op::Wait(1), compute(5)][..], &end()].concat());
}

/// The recording stops while 10 waits and 11 runs; 12 takes the id of one that ended.
#[test]
fn what_the_recording_does_not_show_does_not_happen() {
    let replay = replayed(&[
        born(0, 10, None),
        runs(0, 10),
        born(10, 11, Some(10)),
        runs(20, 11),
        leaves(30, 10, 30, Left::Blocked),
        born(40, 12, Some(11)),
        runs(50, 12),
        leaves(60, 12, 10, Left::Ended),
        born(70, 12, Some(11)),
        runs(80, 12),
        leaves(120, 12, 40, Left::Ended),
    ]);
    let programs = &replay.workload.programs;
    assert_eq!(programs.len(), 4);
    assert_eq!(programs[0][..], [&[compute(10), Op::Post(1), compute(20)][..], &end()].concat());
    let second = [Op::Wait(1), compute(20), Op::Post(2), compute(30), Op::Post(3), compute(50)];
    assert_eq!(programs[1][..], [&second[..], &end()].concat());
    assert_eq!(replay.facts.unfinished, 2);
}

#[test]
fn an_empty_recording_is_refused() {
    let writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    let (bytes, _) = writer.finish(&Summary::default()).unwrap();
    let error = convert(Reader::new(bytes.as_slice()).unwrap()).unwrap_err();
    assert!(matches!(error, RecordingError::Empty), "{error}");
}
