//! Recordings: what is written is read back, no damage is believed, and what was recorded plays back in the simulator.

mod common;
use common::run;
use gleaner_model::{Left, Nanos, ThreadEvent, ThreadHappening};
use gleaner_sim::Costs;
use gleaner_sim::config::{HostConfig, Scheduler, VmConfig};
use gleaner_sim::recording::{EndedBy, Header, Reader, RecordingError, Summary, Writer, convert};
use proptest::prelude::*;

fn header() -> Header {
    Header { kernel: "6.18.0".to_owned(), command: vec!["make".to_owned(), "-j2 é".to_owned()], vcpus: 2 }
}

fn written(events: &[ThreadEvent], summary: &Summary) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish(summary).unwrap().0
}

fn read(bytes: &[u8]) -> Result<(Header, Vec<ThreadEvent>, Summary), RecordingError> {
    let mut reader = Reader::new(bytes)?;
    let mut events = Vec::new();
    while let Some(event) = reader.event()? {
        events.push(event);
    }
    Ok((reader.header().clone(), events, reader.summary().unwrap()))
}

fn events() -> impl Strategy<Value = Vec<ThreadEvent>> {
    let left = prop_oneof![Just(Left::Displaced), Just(Left::Blocked), Just(Left::Ended)];
    let what = prop_oneof![
        any::<Option<u32>>().prop_map(|parent| ThreadHappening::Born { parent }),
        any::<bool>().prop_map(|from_idle| ThreadHappening::In { from_idle }),
        (any::<u64>(), left).prop_map(|(ran, why)| ThreadHappening::Out { ran: Nanos(ran), why }),
        any::<Option<u32>>().prop_map(|waker| ThreadHappening::Woken { waker }),
    ];
    let event = (any::<u64>(), any::<u32>(), any::<u32>(), what).prop_map(|(at, cpu, tid, what)| ThreadEvent {
        at: Nanos(at),
        cpu,
        tid,
        what,
    });
    prop::collection::vec(event, 0..200)
}

/// Any events of few threads at times that grow: nonsense as an order of events, but an order.
fn jumble() -> impl Strategy<Value = Vec<ThreadEvent>> {
    let tid = || 1_u32..6;
    let left = prop_oneof![4 => Just(Left::Displaced), 8 => Just(Left::Blocked), 1 => Just(Left::Ended)];
    let what = prop_oneof![
        1 => prop::option::of(tid()).prop_map(|parent| ThreadHappening::Born { parent }),
        4 => any::<bool>().prop_map(|from_idle| ThreadHappening::In { from_idle }),
        4 => (0_u64..2_000, left).prop_map(|(ran, why)| ThreadHappening::Out { ran: Nanos(ran), why }),
        4 => prop::option::of(tid()).prop_map(|waker| ThreadHappening::Woken { waker }),
    ];
    let event = (0_u64..1_000, 0_u32..2, tid(), what);
    prop::collection::vec(event, 1..300).prop_map(|events| {
        let mut now = 0;
        let timed = events.into_iter().map(|(later, cpu, tid, what)| {
            now += later;
            ThreadEvent { at: Nanos(now), cpu, tid, what }
        });
        timed.collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(events in events(), lost: u64, untracked: u64, wall_ns: u64) {
        let summary = Summary { ended_by: EndedBy::Limit, events: 0, lost, untracked, wall_ns };
        let (header_read, events_read, summary_read) = read(&written(&events, &summary)).unwrap();
        prop_assert_eq!(header_read, header());
        prop_assert_eq!(summary_read, Summary { events: events.len() as u64, ..summary });
        prop_assert_eq!(events_read, events);
    }

    /// Whatever was lost or came out of order: the replay ends on any number of vCPUs.
    #[test]
    fn a_replay_never_deadlocks(events in jumble(), vcpus in 1_u32..4) {
        let bytes = written(&events, &Summary::default());
        let replay = convert(Reader::new(bytes.as_slice()).unwrap()).unwrap();
        prop_assert_eq!(replay.workload.flaw(), None);
        let threads = u64::from(replay.workload.threads());
        let vm = VmConfig::new("vm", vcpus, Costs::KVM_2014, replay.workload);
        let result = run(HostConfig::new(vcpus, Scheduler::Dedicated), vec![vm]);
        prop_assert!(result.complete);
        prop_assert_eq!(result.vms[0].totals.items, threads);
        prop_assert_eq!(result.vms[0].cpu_ns, replay.facts.cpu_ns);
    }
}

/// Two threads hand something to and fro through blocks; 40 us of computation each time, 1,000 times.
fn ping_pong(rounds: u64) -> Vec<ThreadEvent> {
    let at = |at, tid, what| ThreadEvent { at: Nanos(at), cpu: tid, tid, what };
    let mut events = vec![
        at(0, 1, ThreadHappening::Born { parent: None }),
        at(0, 1, ThreadHappening::In { from_idle: true }),
        at(0, 2, ThreadHappening::Born { parent: Some(1) }),
        at(0, 2, ThreadHappening::In { from_idle: true }),
        at(0, 2, ThreadHappening::Out { ran: Nanos(0), why: Left::Blocked }),
    ];
    for round in 0..rounds {
        // Each wakes the other at the end of its turn, and 10 us later the other runs.
        let (one, other) = if round % 2 == 0 { (1, 2) } else { (2, 1) };
        let end = (round + 1) * 50_000 - 10_000;
        let woken = at(end, other, ThreadHappening::Woken { waker: Some(one) });
        events.push(ThreadEvent { cpu: one, ..woken });
        events.push(at(end, one, ThreadHappening::Out { ran: Nanos(40_000), why: Left::Blocked }));
        events.push(at(end + 10_000, other, ThreadHappening::In { from_idle: true }));
    }
    let last = if rounds.is_multiple_of(2) { 1 } else { 2 };
    events.push(at(rounds * 50_000, last, ThreadHappening::Out { ran: Nanos(0), why: Left::Ended }));
    events
}

#[test]
fn a_replay_with_the_recorded_costs_takes_as_long_as_the_recording() {
    let events = ping_pong(1_000);
    let bytes = written(&events, &Summary::default());
    assert!(bytes.len() < events.len() * 4, "{} bytes for {} events", bytes.len(), events.len());
    let replay = convert(Reader::new(bytes.as_slice()).unwrap()).unwrap();
    let latency = replay.facts.latency.unwrap();
    assert_eq!((latency.p10, latency.p50, replay.facts.wall_ns), (10_000, 10_000, 50_000_000));
    let mut costs = Costs::KVM_2014;
    latency.costs().iter().for_each(|(name, ns)| assert!(costs.set(name, *ns)));
    let wall = |vcpus: u32, costs: Costs| {
        let vm = VmConfig::new("vm", vcpus, costs, replay.workload.clone());
        run(HostConfig::new(vcpus, Scheduler::Dedicated), vec![vm]).vms[0].totals.ended_at.unwrap()
    };
    // Every turn waits for the one before: 1,000 times 40 us and, on two vCPUs, 10 us.
    assert!((50_000_000..50_100_000).contains(&wall(2, costs)), "{}", wall(2, costs));
    // One vCPU has nothing to wake for, but it has to be taken up once.
    assert_eq!(wall(1, costs), 40_000_000 + costs.vcpu_switch_ns);
    assert_eq!(wall(2, Costs::FREE), 40_000_000);
}

/// A recording with several blocks, so that a cut can be between two.
fn long() -> Vec<u8> {
    written(&ping_pong(60_000), &Summary::default())
}

#[test]
fn wherever_it_is_cut_off_it_is_refused() {
    let short = written(&ping_pong(3), &Summary::default());
    for length in 0..short.len() {
        let error = read(&short[..length]).expect_err("cut");
        let expected = if length == 0 {
            matches!(error, RecordingError::NotARecording)
        } else {
            matches!(error, RecordingError::Truncated { .. })
        };
        assert!(expected, "{length}: {error}");
    }
    let whole = long();
    assert!(read(&whole).is_ok());
    for length in (0..whole.len()).step_by(997) {
        assert!(read(&whole[..length]).is_err(), "{length} of {}", whole.len());
    }
}

#[test]
fn no_changed_byte_is_believed() {
    let good = written(&ping_pong(20), &Summary::default());
    let expected = read(&good).unwrap();
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            // A byte that means nothing (zstd's frame header has some bits) may change; nothing else may.
            match read(&bad) {
                Ok(found) => assert_eq!(found, expected, "byte {at}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    let mut more = good.clone();
    more.push(0);
    assert!(matches!(read(&more), Err(RecordingError::Damaged { .. })));
}

#[test]
fn other_files_and_versions_are_named() {
    let text = "schema = 1\nnothing of ours";
    let error = read(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("no recording of threads") && error.contains("gleaner record"), "{error}");
    let mut newer = written(&[], &Summary::default());
    newer[8] = 9;
    let error = read(&newer).unwrap_err().to_string();
    assert!(error.contains("version 9") && error.contains("reads version 1"), "{error}");
}

/// A length that somebody made up allocates nothing.
#[test]
fn a_made_up_length_is_refused_before_it_is_believed() {
    let good = written(&ping_pong(3), &Summary::default());
    for place in [10, 14] {
        let mut bad = good.clone();
        bad[place..place + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = read(&bad).unwrap_err();
        assert!(matches!(error, RecordingError::Damaged { block: 0, what: "its length cannot be" }), "{error}");
    }
}
