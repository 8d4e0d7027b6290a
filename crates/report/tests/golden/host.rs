//! `gleaner.host-list/1` and `gleaner.host-probe/1`.

use super::{check, has, units_are_named};
use gleaner_report::{
    Finding, HaltPollingFacts, HostListReport, HostProbeReport, HostVcpu, HostVerdict, HostVm, PauseExitFacts,
    RefillFigures, SliceIssueFact, SwitchFigures, VmNesting,
};

/// Numbers that have no unit: ids, counts, and what the kernel itself leaves without.
const PLAIN: &[&str] = &[
    "pid",
    "cgroup_version",
    "cgroup_depth",
    "index",
    "tid",
    "pcpu",
    "nice",
    "rt_priority",
    "runs",
    "pcpus_online",
    "value",
    "n",
    "grow",
    "shrink",
    "ple_gap",
    "ple_window",
    "working_set_bytes",
];

fn vcpu(index: u32) -> HostVcpu {
    HostVcpu {
        index,
        tid: 4_012 + i32::try_from(index).unwrap(),
        thread: format!("CPU {index}/KVM"),
        pcpus_allowed: Some("0-1".into()),
        pcpu: Some(0),
        cgroup: Some(format!(r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu{index}")),
        policy: Some("other".into()),
        nice: Some(0),
        rt_priority: None,
        slice_ns: Some(2_800_000),
        slice_from: "thread".into(),
        run_ns: Some(490_000_000),
        wait_ns: Some(500_000_000),
        runs: Some(125),
        wait_per_run_ns: Some(4_000_000),
        exited: false,
    }
}

fn list() -> HostListReport {
    HostListReport {
        schema: HostListReport::SCHEMA.into(),
        interval_ns: 1_000_000_000,
        vms: vec![HostVm {
            name: "web".into(),
            pid: 4_000,
            vmm: "qemu".into(),
            accelerator: Some("kvm".into()),
            cgroup: Some(r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator".into()),
            cgroup_version: Some(2),
            cgroup_depth: Some(4),
            vcpus: vec![vcpu(0), HostVcpu { policy: Some("fifo".into()), rt_priority: Some(1), ..vcpu(1) }],
            notes: vec![],
        }],
        notes: vec!["not root: other users' VMs are found only by their threads' names".into()],
    }
}

#[test]
fn host_list_whole() {
    let json = check("host_list_whole", &list());
    has(&json, &["interval_ns", "vms", "notes"]);
    units_are_named(&json, PLAIN);
}

#[test]
fn host_list_unknown() {
    let mut report = list();
    let vm = &mut report.vms[0];
    (vm.accelerator, vm.cgroup, vm.cgroup_version, vm.cgroup_depth) = (None, None, None, None);
    vm.notes = vec!["its threads have no names".into()];
    vm.vcpus = vec![HostVcpu {
        pcpus_allowed: None,
        pcpu: None,
        cgroup: None,
        policy: None,
        nice: None,
        slice_ns: None,
        slice_from: "it ended".into(),
        run_ns: None,
        wait_ns: None,
        runs: None,
        wait_per_run_ns: None,
        exited: true,
        ..vcpu(0)
    }];
    check("host_list_unknown", &report);
}

fn known<T>(value: T, from: &str) -> Finding<T> {
    Finding { value: Some(value), from: from.into() }
}

fn unknown<T>(why: &str) -> Finding<T> {
    Finding { value: None, from: why.into() }
}

fn probe() -> HostProbeReport {
    let refill = |working_set_bytes, p50_ns| RefillFigures { working_set_bytes, n: 59, p50_ns, p95_ns: 2 * p50_ns };
    HostProbeReport {
        schema: HostProbeReport::SCHEMA.into(),
        kernel: "6.12.38+deb13-amd64".into(),
        hypervisor: Some("KVM".into()),
        pcpus_online: 8,
        hz: known(250, "resolution of CLOCK_MONOTONIC_COARSE"),
        hrtick: known(false, "/sys/kernel/debug/sched/features"),
        preemption: known("lazy".into(), "/sys/kernel/debug/sched/preempt"),
        base_slice_ns: known(2_800_000, "sched_getattr of a thread that asked for none"),
        slice_per_thread: known(true, "tried"),
        rt_throttling: known(true, "/proc/sys/kernel/sched_rt_runtime_us"),
        rt_runtime_ns: Some(950_000_000),
        rt_period_ns: Some(1_000_000_000),
        rt_group_runtime_ns: known(0, "/sys/fs/cgroup/cpu/a/cpu.rt_runtime_us"),
        fifo: known(true, "tried"),
        slice_issues: vec![SliceIssueFact {
            id: "stale-group-slices".into(),
            since: Some("6.12".into()),
            until: Some("6.15".into()),
            text: "the slices of threads in cgroups reach their groups late".into(),
        }],
        switch: known(
            SwitchFigures {
                pcpu: 7,
                p50_ns: 1_500,
                p95_ns: 3_000,
                by_working_set: vec![refill(0, 1_500), refill(262_144, 90_000)],
            },
            "two threads on one CPU that hand a byte to and fro",
        ),
        pause_exits: known(
            PauseExitFacts {
                on: true,
                parameters: [("ple_gap".to_owned(), 128), ("ple_window".to_owned(), 4_096)].into(),
            },
            "/sys/module/kvm_intel/parameters",
        ),
        halt_polling: known(
            HaltPollingFacts { longest_ns: 200_000, grow: 2, grow_start_ns: Some(10_000), shrink: 0 },
            "/sys/module/kvm/parameters",
        ),
        vms: vec![VmNesting {
            name: "web".into(),
            pid: 4_000,
            cgroup: Some("/machine.slice/web".into()),
            cgroup_depth: Some(2),
        }],
        verdict: HostVerdict {
            shortest_slice_ns: Some(100_000),
            method: Some("ticker".into()),
            text: "slices down to 100us can be delivered by a ticker".into(),
        },
    }
}

#[test]
fn host_probe_whole() {
    let json = check("host_probe_whole", &probe());
    has(
        &json,
        &["hz", "hrtick", "preemption", "base_slice_ns", "fifo", "slice_issues", "switch", "pause_exits", "verdict"],
    );
    units_are_named(&json, PLAIN);
}

#[test]
fn host_probe_unknown() {
    let why = "it cannot be read";
    let report = HostProbeReport {
        hypervisor: None,
        hz: unknown(why),
        hrtick: unknown(why),
        preemption: unknown(why),
        base_slice_ns: unknown(why),
        slice_per_thread: unknown(why),
        rt_throttling: unknown(why),
        rt_runtime_ns: None,
        rt_period_ns: None,
        rt_group_runtime_ns: unknown(why),
        fifo: known(false, "Operation not permitted"),
        slice_issues: vec![],
        switch: unknown(why),
        pause_exits: unknown(why),
        halt_polling: unknown(why),
        vms: vec![VmNesting { name: "web".into(), pid: 4_000, cgroup: None, cgroup_depth: None }],
        verdict: HostVerdict {
            shortest_slice_ns: None,
            method: Some("tick".into()),
            text: "slices end at the kernel's tick".into(),
        },
        ..probe()
    };
    check("host_probe_unknown", &report);
}
