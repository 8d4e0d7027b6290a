//! `gleaner.sim/1`.

use super::{check, has, units_are_named};
use gleaner_lab_report::{SimCost, SimHost, SimReport, SimRow, SimRun, SimVm};
use gleaner_report::DecisionRecord;
use serde_json::Value;

fn vm(vm: &str, role: &str, policy: &str, items_per_s: f64) -> SimVm {
    let managed = policy != "off";
    SimVm {
        vm: vm.into(),
        role: role.into(),
        workload: if role == "measured" { "pipeline" } else { "matmul" }.into(),
        policy: policy.into(),
        vcpus: 4,
        wall_ns: Some(900_000_000),
        items: 1_000,
        items_per_s,
        latency_p50_ns: Some(40_000),
        latency_p99_ns: Some(310_000),
        work_ns: 1_700_000_000,
        spun_ns: 3_000_000,
        kernel_ns: 100_000_000,
        retained_ns: if managed { 300_000_000 } else { 0 },
        polled_ns: 50_000_000,
        overhead_ns: 50_000_000,
        stolen_ns: 400_000_000,
        halted_ns: if managed { 1_400_000_000 } else { 1_700_000_000 },
        idle_entries: 18_000,
        halts: if managed { 2_000 } else { 17_000 },
        voluntary_switches: 20_000,
        involuntary_switches: 300,
        pause_exits: 12,
        spin_wait_mean_ns: Some(1_500),
        spin_hold_mean_ns: Some(700),
        shootdown_mean_ns: Some(9_000),
        active_vcpus_mean: managed.then_some(3.25),
        timeout_ns: managed.then_some(49_000),
        decisions: if managed {
            vec![DecisionRecord {
                at_ns: 800_000_000,
                action: "deactivate".into(),
                vcpu: Some(3),
                reason: "its work fits into the others' idle time".into(),
            }]
        } else {
            Vec::new()
        },
        decisions_count: u64::from(managed),
    }
}

fn run(round: u32, policy: &str, items_per_s: f64, beside: f64) -> SimRun {
    SimRun {
        round,
        seed: 7 + u64::from(round),
        end_ns: 1_000_000_000,
        complete: true,
        events: 123_456,
        pcpu_busy_ratio: 0.75,
        vcpu_switches: 40_000,
        vms: vec![vm("app", "measured", policy, items_per_s), vm("neighbour", "background", "off", beside)],
    }
}

fn row(policy: &str, items_per_s: f64, speedup: Option<f64>, beside_speedup: Option<f64>) -> SimRow {
    SimRow {
        vm: "app".into(),
        workload: "pipeline".into(),
        beside: "matmul".into(),
        policy: policy.into(),
        slice: None,
        items_per_s,
        speedup,
        beside_speedup,
    }
}

fn sim() -> SimReport {
    SimReport {
        schema: SimReport::SCHEMA.into(),
        scenario: "small".into(),
        set: [("simulator.slice".to_owned(), "1ms".into())].into_iter().collect(),
        seed: 7,
        host: SimHost {
            pcpus: 4,
            scheduler: "eevdf".into(),
            slice_ns: Some(1_000_000),
            halt_poll_ns: 200_000,
            ple: true,
        },
        costs: vec![SimCost { name: "ipi_ns".into(), value_ns: 5_000, meaning: "an interrupt to another vCPU".into() }],
        runs: vec![
            run(0, "off", 1_000.0, 50.0),
            run(0, "full", 1_500.0, 48.0),
            run(1, "off", 1_000.0, 50.0),
            run(1, "full", 1_300.0, 46.0),
        ],
        rows: vec![row("off", 1_000.0, Some(1.0), Some(1.0)), row("full", 1_400.0, Some(1.4), Some(0.94))],
    }
}

#[test]
fn sim_whole() {
    let json = check("sim_whole", &sim());
    has(
        &json,
        &["host.slice_ns", "costs[].value_ns", "rows[].speedup", "rows[].beside_speedup", "runs[].vms[].policy"],
    );
    let counts = [
        "seed",
        "pcpus",
        "round",
        "events",
        "vcpu_switches",
        "vcpus",
        "items",
        "items_per_s",
        "idle_entries",
        "halts",
        "voluntary_switches",
        "involuntary_switches",
        "pause_exits",
        "active_vcpus_mean",
        "decisions_count",
        "vcpu",
        "speedup",
        "beside_speedup",
    ];
    units_are_named(&json, &counts);
}

#[test]
fn sim_unknown() {
    let nothing = SimVm {
        wall_ns: None,
        items: 0,
        items_per_s: 0.0,
        latency_p50_ns: None,
        latency_p99_ns: None,
        spin_wait_mean_ns: None,
        spin_hold_mean_ns: None,
        shootdown_mean_ns: None,
        ..vm("app", "measured", "off", 0.0)
    };
    let report = SimReport {
        host: SimHost { slice_ns: None, halt_poll_ns: 0, ple: false, ..sim().host },
        costs: Vec::new(),
        runs: vec![SimRun { complete: false, vms: vec![nothing], ..run(0, "off", 0.0, 0.0) }],
        rows: vec![SimRow { beside: "nothing".into(), ..row("off", 0.0, None, None) }],
        ..sim()
    };
    let json = check("sim_unknown", &report);
    // Null, and there: a reader need not ask whether a key exists.
    for key in
        ["wall_ns", "latency_p50_ns", "spin_wait_mean_ns", "shootdown_mean_ns", "active_vcpus_mean", "timeout_ns"]
    {
        assert_eq!(json["runs"][0]["vms"][0].get(key), Some(&Value::Null), "{key}");
    }
    assert_eq!(
        (json["rows"][0].get("speedup"), json["host"].get("slice_ns")),
        (Some(&Value::Null), Some(&Value::Null))
    );
}

#[test]
fn one_round_says_that_it_shows_nothing() {
    let one = SimReport { runs: sim().runs.into_iter().filter(|run| run.round == 0).collect(), ..sim() };
    assert!(one.to_string().contains("One round shows nothing"), "{one}");
    assert!(!sim().to_string().contains("One round"), "{}", sim());
}
