//! `gleaner.record/1` and `gleaner.sim-recording/1`.

use super::{check, units_are_named};
use gleaner_report::{RecordReport, Recorded, Replayed, SimRecordingReport, WhatIf, WhatIfRow};

fn record() -> RecordReport {
    RecordReport {
        schema: RecordReport::SCHEMA.into(),
        command: vec!["pigz".into(), "-p4".into(), "big.tar".into()],
        file: "pigz.glthreads".into(),
        file_bytes: 183_202,
        kernel: "6.18.0".into(),
        vcpus: 2,
        wall_ns: 2_310_000_000,
        threads: 6,
        events: 41_220,
        lost_events: 12,
        untracked_threads: 0,
        ended_by: "exit".into(),
        exit_status: 0,
        notes: vec!["12 events were lost".into()],
    }
}

fn simulated() -> SimRecordingReport {
    let row = |policy: &str, wall_ns: u64| WhatIfRow {
        policy: policy.into(),
        wall_ns: Some(wall_ns),
        speedup: Some(2_400_000_000.0 / wall_ns as f64),
        policy_speedup: Some(1_200_000_000.0 / wall_ns as f64),
        stolen_ns: 310_000_000,
        halts: 9_200,
        active_vcpus_mean: (policy != "off").then_some(7.5),
        neighbour_items_per_s: Some(3_900.0),
    };
    SimRecordingReport {
        stopped_by: None,
        schema: SimRecordingReport::SCHEMA.into(),
        file: "pigz.glthreads".into(),
        command: vec!["pigz".into(), "-p4".into(), "big.tar".into()],
        kernel: "6.18.0".into(),
        recorded: Recorded {
            vcpus: 2,
            wall_ns: 2_310_000_000,
            cpu_ns: 4_100_000_000,
            displaced_ns: 200_000_000,
            threads: 6,
            unfinished_threads: 0,
            waits: 8_100,
            delays: 44,
            delays_ns: 31_000_000,
            events: 41_220,
            lost_events: 12,
            ended_by: "exit".into(),
            wake_p10_ns: Some(9_000),
            wake_p50_ns: Some(31_000),
        },
        replay: Replayed { wall_ns: 2_400_000_000, wall_ratio: 2_400.0 / 2_310.0 },
        what_if: WhatIf {
            vcpus: 16,
            pcpus: 8,
            scheduler: "eevdf".into(),
            slice_ns: Some(1_000_000),
            neighbour: Some("matmul".into()),
            costs: "recorded".into(),
        },
        rows: vec![row("off", 1_200_000_000), row("full", 1_000_000_000)],
        notes: vec!["12 events were lost".into()],
    }
}

#[test]
fn a_recording() {
    let plain = ["file_bytes", "vcpus", "threads", "events", "lost_events", "untracked_threads", "exit_status"];
    units_are_named(&check("record_whole", &record()), &plain);
    check("record_unknown", &RecordReport { notes: Vec::new(), lost_events: 0, ..record() });
}

#[test]
fn a_recording_simulated() {
    let plain = [
        "vcpus",
        "pcpus",
        "threads",
        "unfinished_threads",
        "waits",
        "delays",
        "events",
        "lost_events",
        "speedup",
        "policy_speedup",
        "halts",
        "active_vcpus_mean",
        "neighbour_items_per_s",
    ];
    units_are_named(&check("sim_recording_whole", &simulated()), &plain);
    let mut unknown = simulated();
    (unknown.recorded.wake_p10_ns, unknown.recorded.wake_p50_ns) = (None, None);
    (unknown.what_if.slice_ns, unknown.what_if.neighbour) = (None, None);
    for row in &mut unknown.rows {
        (row.wall_ns, row.speedup, row.policy_speedup) = (None, None, None);
        (row.active_vcpus_mean, row.neighbour_items_per_s) = (None, None);
    }
    unknown.notes.clear();
    check("sim_recording_unknown", &unknown);
}
