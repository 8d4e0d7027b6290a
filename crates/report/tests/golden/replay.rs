//! `gleaner.replay/1`.

use super::{check, units_are_named};
use gleaner_report::{
    DamageRecord, DecisionRecord, ReplayAction, ReplayChange, ReplayDifference, ReplayGroup, ReplayReport,
};

fn decision(action: &str, vcpu: u32, reason: &str) -> DecisionRecord {
    DecisionRecord { at_ns: 3_200_000_000, action: action.into(), vcpu: Some(vcpu), reason: reason.into() }
}

fn replay() -> ReplayReport {
    let action = |action: &str, recorded, replayed| ReplayAction { action: action.into(), recorded, replayed };
    ReplayReport {
        schema: ReplayReport::SCHEMA.into(),
        file: "redis.capture".into(),
        recorded_by: Some("0.1.0".into()),
        changed: vec![ReplayChange { key: "load_factor".into(), recorded: "1".into(), replayed: "0.5".into() }],
        identical: false,
        groups: vec![
            ReplayGroup {
                name: "redis".into(),
                windows: 1_200,
                skipped_windows: 3,
                differing_windows: 2,
                actions: vec![action("deactivate", 2, 1), action("retain", 4, 4)],
                differences: vec![
                    ReplayDifference {
                        at_ns: 3_200_000_000,
                        window: 32,
                        recorded: vec![
                            decision("deactivate", 1, "its work fits into the others' idle time"),
                            decision("release", 1, "deactivated: nothing to retain there"),
                        ],
                        replayed: Vec::new(),
                    },
                    ReplayDifference {
                        at_ns: 9_900_000_000,
                        window: 99,
                        recorded: Vec::new(),
                        replayed: vec![decision("deactivate", 0, "its work fits into the others' idle time")],
                    },
                ],
            },
            ReplayGroup {
                name: "web".into(),
                windows: 1_200,
                skipped_windows: 0,
                differing_windows: 0,
                actions: vec![action("retain", 8, 8)],
                differences: Vec::new(),
            },
        ],
        damage: Some(DamageRecord { offset: 70_112, record: 1_033, what: "the file ends within a frame".into() }),
    }
}

#[test]
fn a_replay() {
    let plain = [
        "offset",
        "record",
        "windows",
        "skipped_windows",
        "differing_windows",
        "recorded",
        "replayed",
        "window",
        "vcpu",
    ];
    units_are_named(&check("replay_whole", &replay()), &plain);
    let unknown = ReplayReport {
        recorded_by: None,
        changed: Vec::new(),
        identical: true,
        damage: None,
        groups: replay().groups.split_off(1),
        ..replay()
    };
    check("replay_unknown", &unknown);
}
