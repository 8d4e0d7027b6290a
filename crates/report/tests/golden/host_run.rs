//! `gleaner.host-run/1`.

use super::{check, has, units_are_named};
use gleaner_report::{
    HostDecisionRecord, HostEnforcement, HostInTurn, HostPrice, HostRunReport, HostRunSet, HostRunVm, HostSlice,
    HostTurn, HostTurnFigures, HostVmFigures,
};

fn whole() -> HostRunReport {
    let figures = |slice_ns: u64| HostVmFigures {
        observed_ns: 9_000_000_000,
        run_ratio: 0.94,
        wait_ratio: 0.97,
        wakeups_per_s: Some(812.5),
        preemptions_per_s: Some(1e9 / slice_ns as f64),
        wake_to_run_p50_ns: Some(slice_ns / 2),
        wake_to_run_p99_ns: Some(slice_ns),
        delivered_p50_ns: Some(slice_ns),
        delivered_p90_ns: Some(slice_ns + 20_000),
    };
    let vm = |vm, name: &str| HostRunVm {
        vm,
        name: name.into(),
        vcpus: 2,
        came_ns: 1_000_000_000,
        left_ns: (vm == 4712).then_some(55_000_000_000),
        slices: vec![
            HostSlice { at_ns: 1_000_000_000, slice_ns: 5_000_000 },
            HostSlice { at_ns: 5_000_000_000, slice_ns: 1_000_000 },
        ],
        before: Some(figures(4_000_000)),
        after: Some(figures(1_000_000)),
        share_ratio: Some(if vm == 4712 { 0.912 } else { 1.012 }),
        unfair: vm == 4712,
    };
    let decision =
        |at_ns, vm, slice_ns, reason: &str| HostDecisionRecord { at_ns, vm, slice_ns, reason: reason.into() };
    let waits = "VM 4711 loses 40 % waiting 2.5ms after a wake-up; switches will take 3.1 %";
    HostRunReport {
        schema: HostRunReport::SCHEMA.into(),
        policy: "adaptive".into(),
        static_slice_ns: None,
        wall_ns: 60_000_000_000,
        windows: 60,
        window_ns_mean: Some(1_000_000_000),
        observer: "bpf".into(),
        price: HostPrice {
            direct_ns: 1_700,
            refill_ns: 30_000,
            tick_ns: 8_000,
            from: "switch measured, refill as configured".into(),
        },
        enforcement: HostEnforcement {
            method: "ticker".into(),
            cpu_ratio: 0.006,
            ticks: 55_000,
            stretched: 0,
            pcpus: 2,
        },
        vms: vec![vm(4711, "web"), vm(4712, "batch")],
        unfair_worst_ratio: Some(0.088),
        unfair_allowed_ratio: 0.03,
        decisions: vec![
            decision(1_000_000_000, 4711, 5_000_000, "policy adaptive starts here"),
            decision(1_000_000_000, 4712, 5_000_000, "policy adaptive starts here"),
            decision(5_000_000_000, 4711, 1_000_000, waits),
            decision(5_000_000_000, 4712, 1_000_000, waits),
        ],
        decisions_left_out: 0,
        sets: vec![HostRunSet {
            vms: vec![4711, 4712],
            slice_ns: 1_000_000,
            lost_ratio: Some(0.08),
            switch_cost_ratio: Some(0.031),
            no_step_because: "no other slice promises enough".into(),
        }],
        overhead_cpu_ns: 120_000_000,
        warnings: vec![],
        restored: true,
        in_turn: None,
    }
}

#[test]
fn host_run_whole() {
    let json = serde_json::to_value(whole()).unwrap();
    has(
        &json,
        &[
            "policy",
            "wall_ns",
            "observer",
            "price.direct_ns",
            "enforcement.cpu_ratio",
            "vms[].slices[].slice_ns",
            "vms[].before.wake_to_run_p99_ns",
            "vms[].after.delivered_p50_ns",
            "vms[].share_ratio",
            "vms[].unfair",
            "unfair_worst_ratio",
            "unfair_allowed_ratio",
            "decisions[].at_ns",
            "decisions[].vm",
            "decisions[].slice_ns",
            "decisions[].reason",
            "restored",
        ],
    );
    units_are_named(
        &json,
        &[
            "windows",
            "ticks",
            "stretched",
            "pcpus",
            "vm",
            "vms",
            "vcpus",
            "decisions_left_out",
            "wakeups_per_s",
            "preemptions_per_s",
        ],
    );
}

#[test]
fn host_run_unknown() {
    let unknown = HostVmFigures { observed_ns: 1_000_000_000, run_ratio: 0.5, ..HostVmFigures::default() };
    let whole = whole();
    let vms = whole.vms.iter().take(1).map(|vm| HostRunVm {
        before: None,
        after: Some(unknown),
        share_ratio: None,
        left_ns: None,
        ..vm.clone()
    });
    check(
        "host_run_unknown",
        &HostRunReport {
            policy: "static".into(),
            static_slice_ns: Some(1_000_000),
            window_ns_mean: None,
            observer: "procfs".into(),
            vms: vms.collect(),
            unfair_worst_ratio: None,
            sets: vec![HostRunSet { lost_ratio: None, switch_cost_ratio: None, ..whole.sets[0].clone() }],
            warnings: vec!["slices end only at the kernel's tick: SCHED_FIFO is refused".into()],
            restored: false,
            in_turn: None,
            ..whole
        },
    );
}

#[test]
fn host_run_in_turn() {
    let whole = whole();
    let figures = |slice_ns: Option<u64>, vm, wait_ratio| {
        let p99 = slice_ns.unwrap_or(1_000_000);
        let figures = HostVmFigures {
            wait_ratio,
            wake_to_run_p99_ns: Some(p99),
            delivered_p50_ns: Some(p99),
            ..whole.vms[0].after.unwrap_or_default()
        };
        HostTurnFigures { slice_ns, vm, figures }
    };
    let turn = |pass, slice_ns, from_ns| HostTurn { pass, slice_ns, from_ns, until_ns: from_ns + 1_000_000_000 };
    let in_turn = HostInTurn {
        lead_ns: 12_000_000_000,
        figures: vec![
            figures(None, 4711, 0.97),
            figures(None, 4712, 0.97),
            figures(Some(30_000_000), 4711, 1.02),
            figures(Some(30_000_000), 4712, 0.88),
        ],
        turns: vec![
            turn(0, Some(30_000_000), 400_000_000_000),
            turn(0, None, 401_400_000_000),
            turn(1, None, 402_800_000_000),
            turn(1, Some(30_000_000), 404_200_000_000),
        ],
    };
    let json = check("host_run_in_turn", &HostRunReport { in_turn: Some(in_turn), ..whole.clone() });
    has(&json, &["in_turn.lead_ns", "in_turn.figures[].slice_ns", "in_turn.figures[].vm", "in_turn.turns[].pass"]);
}
