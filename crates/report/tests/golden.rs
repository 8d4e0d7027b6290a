//! The JSON contracts and their plain words, held still by golden files (`snapshots/`).
//!
//! Each schema has two examples: `whole`, in which everything is known, and `unknown`, in which nothing is that need
//! not be. A change of a golden file is a change of a contract: keys may be added within a version, never removed,
//! renamed or given another meaning. `cargo insta review` shows a change, or set `INSTA_UPDATE=always`.

#[path = "golden/ab.rs"]
mod ab;
#[path = "golden/capture.rs"]
mod capture;
#[path = "golden/host.rs"]
mod host;
#[path = "golden/host_run.rs"]
mod host_run;
#[path = "golden/replay.rs"]
mod replay;
#[path = "golden/status.rs"]
mod status;
#[path = "golden/workload.rs"]
mod workload;
#[path = "golden/xen.rs"]
mod xen;

#[path = "support/keys.rs"]
mod keys;

use gleaner_report::{
    Capability, DecisionRecord, DoctorReport, HaltCost, IdleEndedBy, LengthStats, MachineFacts, Means, Neighbour,
    ObservedLengths, ProbeReport, RunReport, SettingResult, StatusTrial, StealFacts, TimeOuts, VcpuTimes, Verdict,
};
use keys::{has, units_are_named};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::fmt::{Debug, Display};

/// Compares JSON and text with their golden files; checks what holds for every schema.
fn check<T: Serialize + DeserializeOwned + Display + PartialEq + Debug>(name: &str, report: &T) -> Value {
    let json = serde_json::to_string_pretty(report).unwrap();
    let text = report.to_string();
    insta::assert_snapshot!(format!("{name}.json"), json);
    insta::assert_snapshot!(format!("{name}.txt"), text);
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), report, "what was written is read back");
    assert!(json.trim_start_matches(|c: char| c == '{' || c.is_whitespace()).starts_with("\"schema\""), "schema first");
    for word in ["NaN", "inf", "null", "None", "Some("] {
        assert!(!text.contains(word), "{word:?} is no plain word: {text}");
    }
    serde_json::from_str(&json).unwrap()
}

fn run() -> RunReport {
    let stats =
        |mean_ns: f64| Some(LengthStats { mean_ns, n: Some(9_000), p50_ns: Some(40_000), p99_ns: Some(310_000) });
    let decision = |at_ns, action: &str, vcpu, reason: &str| DecisionRecord {
        at_ns,
        action: action.into(),
        vcpu,
        reason: reason.into(),
    };
    RunReport {
        schema: RunReport::SCHEMA.into(),
        command: vec!["pbzip2".into(), "-k".into(), "big \"file\".tar".into()],
        policy: "full".into(),
        profile: "balanced".into(),
        attached: false,
        wall_ns: 2_000_000_000,
        exit_status: 143,
        idle_entries: Some(18_000),
        halts: Some(2_000),
        idle_ended_by: Some(IdleEndedBy { interrupts: 5_000, wakeups: 13_000 }),
        retained_ns: 350_000_000,
        steal_ns: Some(12_000_000),
        cpu_time_ns: Some(3_100_000_000),
        voluntary_switches: Some(20_000),
        involuntary_switches: Some(300),
        cross_wakeups: Some(11_000),
        threads_max: Some(9),
        vcpus: 4,
        active_vcpus_mean: 3.25,
        vcpu_times: vec![VcpuTimes {
            vcpu: 0,
            busy_ns: 1_400_000_000,
            retained_ns: 350_000_000,
            halted_ns: 238_000_000,
            steal_ns: 12_000_000,
        }],
        lengths: ObservedLengths {
            l_comp: stats(172_000.5),
            g_comp: stats(155_000.0),
            l_idle: stats(61_000.0),
            wake_to_run: stats(9_000.0),
        },
        timeout_ns: Some(1_250_000),
        timeout_from: Some("p99 of a halted wake-up 1.30ms - retained 50us, within 50us and 5ms".into()),
        guard_trips: 1,
        means: Means {
            observer: Some("bpf".into()),
            placement: Some("affinity".into()),
            retention: Some("yielding".into()),
            yielding: Some("sched-idle+cpu.idle".into()),
        },
        windows: 20,
        window_ns_mean: Some(100_000_000),
        overhead_cpu_ns: 4_000_000,
        decisions: vec![
            decision(0, "retain", Some(0), "idle periods shorter than the time-out are bridged without halting"),
            decision(800_000_000, "deactivate", Some(3), "its work fits into the others' idle time"),
            decision(1_900_000_000, "activate-all", None, "the workload changed: CPU time moved by 31 %"),
        ],
        decisions_left_out: 2,
        no_step_because: Some("holding off after the last change for another 900ms".into()),
        retention_cost_ratio: Some(0.87),
        trial: None,
        warnings: vec!["the guardian process died and was replaced".into()],
        restored: true,
    }
}

#[test]
fn run_whole() {
    let json = check("run_whole", &run());
    has(
        &json,
        &[
            "wall_ns",
            "exit_status",
            "idle_entries",
            "halts",
            "retained_ns",
            "active_vcpus_mean",
            "decisions[].at_ns",
            "decisions[].action",
            "decisions[].reason",
            "restored",
        ],
    );
    let counts = [
        "exit_status",
        "idle_entries",
        "halts",
        "interrupts",
        "wakeups",
        "voluntary_switches",
        "involuntary_switches",
        "cross_wakeups",
        "threads_max",
        "vcpus",
        "vcpu",
        "active_vcpus_mean",
        "n",
        "guard_trips",
        "windows",
        "decisions_left_out",
    ];
    units_are_named(&json, &counts);
}

#[test]
fn run_unknown() {
    // Policy off: nothing is observed, nothing done.
    let report = RunReport {
        policy: "off".into(),
        exit_status: 0,
        idle_entries: None,
        halts: None,
        idle_ended_by: None,
        retained_ns: 0,
        steal_ns: None,
        cpu_time_ns: None,
        voluntary_switches: None,
        involuntary_switches: None,
        cross_wakeups: None,
        threads_max: None,
        active_vcpus_mean: 4.0,
        lengths: ObservedLengths::default(),
        timeout_ns: None,
        timeout_from: None,
        guard_trips: 0,
        means: Means { observer: None, placement: None, retention: None, yielding: None },
        windows: 0,
        window_ns_mean: None,
        overhead_cpu_ns: 0,
        decisions: vec![],
        decisions_left_out: 0,
        no_step_because: None,
        retention_cost_ratio: None,
        warnings: vec![],
        ..run()
    };
    let json = check("run_unknown", &report);
    // Null, and there: a reader need not ask whether a key exists.
    for key in
        ["idle_entries", "halts", "cross_wakeups", "timeout_ns", "timeout_from", "window_ns_mean", "no_step_because"]
    {
        assert_eq!(json.get(key), Some(&Value::Null), "{key}");
    }
    for key in ["l_comp", "g_comp", "l_idle", "wake_to_run"] {
        assert_eq!(json["lengths"].get(key), Some(&Value::Null), "{key}");
    }
}

#[test]
fn run_without_privilege_and_not_restored() {
    let mean = |mean_ns| LengthStats::from_mean(mean_ns);
    let report = RunReport {
        // 0 / 0 and 1 / 0, as a program makes them that ends before its first window.
        idle_ended_by: None,
        cross_wakeups: None,
        lengths: ObservedLengths {
            l_comp: mean(0.0),
            g_comp: mean(f64::NAN),
            l_idle: mean(f64::INFINITY),
            wake_to_run: None,
        },
        means: Means {
            observer: Some("procfs".into()),
            placement: Some("affinity".into()),
            retention: Some("yielding".into()),
            yielding: Some("nice-19".into()),
        },
        trial: Some(StatusTrial {
            at_ns: 900_000_000,
            pays: true,
            reason: "bridging idle periods pays: 1.08 times the rate without".into(),
            rate_ratio: Some(1.08),
            rate_range: Some([0.97, 1.2]),
            pairs: 4,
            next_at_ns: None,
        }),
        restored: false,
        ..run()
    };
    let json = check("run_without_privilege", &report);
    assert_eq!((&json["lengths"]["g_comp"], &json["lengths"]["l_idle"]), (&Value::Null, &Value::Null));
}

#[test]
fn run_with_long_windows() {
    let says = |window_ns| RunReport { window_ns_mean: Some(window_ns), ..run() }.to_string().contains("windows took");
    assert_eq!([100_400_000, 105_000_000, 105_300_000].map(says), [false, false, true]);
}

fn probe() -> ProbeReport {
    let setting = |setting: &str, p50_ns: u64, steal_ratio| SettingResult {
        setting: setting.into(),
        n: 1_000,
        mean_ns: p50_ns + 2_000,
        p50_ns,
        p90_ns: 2 * p50_ns,
        p99_ns: 10 * p50_ns,
        max_ns: 100 * p50_ns,
        steal_ratio,
    };
    ProbeReport {
        schema: ProbeReport::SCHEMA.into(),
        gap_ns: 1_000_000,
        waiter_vcpu: 1,
        waker_vcpu: Some(0),
        means: None,
        d_kind: Some("guest".into()),
        settings: vec![
            setting("A", 5_000, Some(0.001)),
            setting("B", 11_000, Some(0.012)),
            setting("C", 60_000, Some(0.0)),
            setting("D", 4_000_000, Some(0.002)),
        ],
        timeouts: Some(TimeOuts { frugal_ns: 49_000, balanced_ns: 490_000, latency_ns: 5_000_000 }),
        notes: vec![
            "the scheduling class alone instead of cpu.idle=1: no cpu controller is mounted or delegated".into(),
        ],
    }
}

#[test]
fn probe_whole() {
    let json = check("probe_whole", &probe());
    has(
        &json,
        &[
            "settings[].setting",
            "settings[].n",
            "settings[].p50_ns",
            "settings[].p90_ns",
            "settings[].p99_ns",
            "settings[].max_ns",
            "d_kind",
            "timeouts",
        ],
    );
    units_are_named(&json, &["n", "waiter_vcpu", "waker_vcpu"]);
}

#[test]
fn probe_unknown() {
    let mut settings = probe().settings;
    settings.truncate(1);
    settings[0].steal_ratio = None;
    let notes = vec!["only vCPU 0 may be used here: settings B, C and D need two vCPUs".into()];
    let report =
        ProbeReport { waiter_vcpu: 0, waker_vcpu: None, d_kind: None, settings, timeouts: None, notes, ..probe() };
    let json = check("probe_unknown", &report);
    for key in ["waker_vcpu", "d_kind", "timeouts"] {
        assert_eq!(json.get(key), Some(&Value::Null), "{key}");
    }
    assert_eq!(json["settings"][0].get("steal_ratio"), Some(&Value::Null));
}

fn doctor() -> DoctorReport {
    let capability =
        |name: &str, available, detail: &str| Capability { name: name.into(), available, detail: detail.into() };
    DoctorReport {
        schema: DoctorReport::SCHEMA.into(),
        machine: MachineFacts {
            hypervisor: Some("KVM".into()),
            kernel: "6.18.0".into(),
            vcpus_online: 4,
            vcpus_allowed: "0-2".into(),
            idle_driver: Some("haltpoll, governor haltpoll".into()),
        },
        steal: StealFacts { sampled_ns: 1_500_000_000, reported_ratio: Some(0.004) },
        halt: Some(HaltCost {
            gap_ns: 1_000_000,
            retained_p50_ns: 11_000,
            retained_p99_ns: 32_000,
            halted_p50_ns: 24_000,
            halted_p99_ns: 2_717_000,
            halting_costs: true,
        }),
        observers: vec![
            capability("bpf", false, "no permission to load BPF programs; run as root"),
            capability("procfs", true, "means; needs no privilege"),
        ],
        actuators: vec![
            capability("guardian", true, "every change is undone, after kill -9 too"),
            capability("cpu.idle", false, "no cpu controller is mounted or delegated"),
            capability("yielding", true, "SCHED_IDLE"),
        ],
        left_behind: vec!["/run/gleaner/812-99.journal".into()],
        neighbours: vec![Neighbour {
            name: "irqbalance".into(),
            found: "process 611 moves interrupts".into(),
            respected: "interrupts are left to it".into(),
        }],
        verdict: Verdict {
            would_benefit: Some(true),
            text: "programs whose threads wait for each other would benefit. Try `gleaner run -- YOUR-PROGRAM`".into(),
        },
        advice: Some("an administrator could boot with cpuidle_haltpoll.force=1".into()),
    }
}

#[test]
fn doctor_whole() {
    let json = check("doctor_whole", &doctor());
    has(
        &json,
        &[
            "machine.hypervisor",
            "machine.vcpus_online",
            "observers[].available",
            "observers[].detail",
            "actuators[].available",
            "actuators[].detail",
            "steal.reported_ratio",
            "halt.halting_costs",
            "verdict.text",
        ],
    );
    units_are_named(&json, &["vcpus_online"]);
}

#[test]
fn doctor_unknown() {
    let report = DoctorReport {
        machine: MachineFacts { hypervisor: None, idle_driver: None, ..doctor().machine },
        steal: StealFacts { sampled_ns: 1_500_000_000, reported_ratio: None },
        halt: None,
        left_behind: vec![],
        verdict: Verdict { would_benefit: None, text: "wake-ups could not be measured; try `gleaner probe`".into() },
        advice: None,
        ..doctor()
    };
    let json = check("doctor_unknown", &report);
    assert_eq!(json.get("halt"), Some(&Value::Null));
    assert_eq!(json["machine"].get("hypervisor"), Some(&Value::Null));
    assert_eq!(json["machine"].get("idle_driver"), Some(&Value::Null));
    assert_eq!(json["steal"].get("reported_ratio"), Some(&Value::Null));
    assert_eq!(json["verdict"].get("would_benefit"), Some(&Value::Null));
}
