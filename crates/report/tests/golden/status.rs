//! `gleaner.status/1` and `gleaner.verify/1`.

use super::{check, has, units_are_named};
use gleaner_report::{
    DecisionRecord, HostDecisionRecord, IdleEndedBy, LengthStats, ObservedLengths, StatusCost, StatusGroup, StatusHost,
    StatusMachine, StatusRecent, StatusReport, StatusTimes, StatusTrial, StatusVcpu, StatusVcpuTimes, StatusVm,
    StatusWaiting, VerifiedFile, VerifyReport,
};
use serde_json::Value;

fn group() -> StatusGroup {
    let decision = |at_ns, action: &str, vcpu, reason: &str| DecisionRecord {
        at_ns,
        action: action.into(),
        vcpu,
        reason: reason.into(),
    };
    StatusGroup {
        name: "redis".into(),
        target: "cgroup /sys/fs/cgroup/system.slice/redis-server.service".into(),
        profile: "latency".into(),
        policy: "retain".into(),
        observer: "bpf".into(),
        since_ns: 2_000_000_000,
        vcpus: 4,
        state: "vCPUs 0-3 kept awake".into(),
        held: false,
        active: vec![0, 1, 2, 3],
        retaining: vec![0, 1, 2, 3],
        timeout_ns: Some(200_000),
        cpu_time_ns: 30_000_000_000,
        voluntary_switches: 1_000_000,
        threads_max: Some(6),
        idle_entries: Some(2_000_000),
        idle_ended_by: Some(IdleEndedBy { interrupts: 1_500_000, wakeups: 500_000 }),
        lengths: ObservedLengths {
            l_comp: LengthStats::from_mean(15_000.0),
            g_comp: LengthStats::from_mean(30_000.0),
            l_idle: LengthStats::from_mean(40_000.5),
            wake_to_run: Some(LengthStats { mean_ns: 9_000.0, n: Some(5), p50_ns: Some(8_191), p99_ns: Some(40_959) }),
        },
        recent: StatusRecent {
            observed_ns: 1_400_000_000,
            cpu_time_ns: 700_000_000,
            voluntary_switches: 30_000,
            idle_entries: Some(60_000),
            l_comp_ns: Some(11_666.5),
            g_comp_ns: Some(23_333.0),
            l_idle_ns: Some(35_000.0),
        },
        turns: Some(StatusTrial {
            at_ns: 61_000_000_000,
            pays: true,
            reason: "its threads take turns: on one vCPU 1.62 times the rate, 1.58 to 1.66 in 4 pairs".into(),
            rate_ratio: Some(1.62),
            rate_range: Some([1.58, 1.66]),
            pairs: 4,
            next_at_ns: None,
        }),
        trial: Some(StatusTrial {
            at_ns: 4_000_000_000,
            pays: true,
            reason: "bridging idle periods pays: 1.31 times the rate without".into(),
            rate_ratio: Some(1.31),
            rate_range: Some([1.18, 1.4]),
            pairs: 4,
            next_at_ns: Some(34_000_000_000),
        }),
        decisions_count: 40,
        decisions: vec![
            decision(2_100_000_000, "release", Some(0), "a trial whether bridging idle periods pays"),
            decision(4_000_000_000, "retain", Some(0), "bridging idle periods pays: 1.31 times"),
        ],
        would_change: vec!["a trial finds less than 3 % more synchronizations a second than without".into()],
    }
}

fn times(observed_ns: u64) -> StatusTimes {
    let known = |part| Some(observed_ns / 100 * part);
    StatusTimes {
        observed_ns,
        idle_entries: Some(observed_ns / 20_000),
        halts: Some(observed_ns / 100_000),
        vcpus: vec![
            StatusVcpuTimes {
                vcpu: 0,
                busy_ns: known(50),
                retained_ns: known(30),
                halted_ns: known(18),
                steal_ns: known(2),
            },
            StatusVcpuTimes { vcpu: 1, ..StatusVcpuTimes::default() },
        ],
    }
}

fn status() -> StatusReport {
    StatusReport {
        schema: StatusReport::SCHEMA.into(),
        version: "0.1.0".into(),
        pid: 4711,
        up_ns: 62_000_000_000,
        began_unix_ns: 1_795_843_200_000_000_000,
        dry_run: false,
        machine: StatusMachine { hypervisor: Some("KVM".into()), kernel: "6.12.38+deb13-amd64".into(), vcpus: 4 },
        observer: "procfs".into(),
        times: times(60_000_000_000),
        recent: times(1_400_000_000),
        configuration: vec!["/etc/gleaner/gleaner.toml".into()],
        reload_error: Some("/etc/gleaner/gleaner.toml:3: unknown key profil: did you mean profile?".into()),
        window_ns: 100_000_000,
        windows_paced: true,
        overhead_cpu_ns: 200_000_000,
        cost: StatusCost { elapsed_ns: 10_400_000_000, cpu_ns: 52_000_000, bpf_ns: Some(104_000_000) },
        retention: Some("haltpoll".into()),
        retained_ns: 9_000_000_000,
        guard_trips: 1,
        retaining: vec![StatusVcpu { vcpu: 0, timeout_ns: 200_000 }],
        settings_differ: vec![verified().files.remove(1)],
        groups: vec![group()],
        waiting: vec![StatusWaiting { name: "web".into(), waits_for: "unit web.service to start".into() }],
        host: Some(host()),
        warnings: vec!["the guardian process died and was replaced".into()],
    }
}

fn host() -> StatusHost {
    let vm = |vm, name: &str, slice_ns| StatusVm { vm, name: name.into(), vcpus: 2, slice_ns };
    let decision = |at_ns, vm, slice_ns| HostDecisionRecord {
        at_ns,
        vm,
        slice_ns,
        reason: "waiting costs more than switches do".into(),
    };
    StatusHost {
        pid: Some(4720),
        why_not: None,
        up_ns: 61_000_000_000,
        policy: "adaptive".into(),
        observer: Some("bpf".into()),
        enforcement: Some("ticker".into()),
        vms: vec![vm(900, "web", Some(1_000_000)), vm(901, "db", Some(5_000_000)), vm(902, "new", None)],
        decisions_count: 41,
        decisions: vec![decision(9_000_000_000, 900, 1_000_000), decision(60_000_000_000, 7, 5_000_000)],
        warnings: vec!["slices end only at the kernel's tick: refused".into()],
    }
}

#[test]
fn of_many_groups_those_that_do_something_have_a_line_and_the_busiest_is_first() {
    let recent = |cpu_time_ns| StatusRecent { observed_ns: 1_000_000, cpu_time_ns, ..StatusRecent::default() };
    let of = |n: u64| StatusGroup {
        name: format!("w@{n}"),
        recent: recent(if n % 50 == 7 { n } else { 0 }.saturating_mul(1_000)),
        retaining: Vec::new(),
        ..group()
    };
    let text = StatusReport { groups: (0..200).map(of).collect(), ..status() }.to_string();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("w@")).collect();
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["w@157", "w@107", "w@57", "w@7"], "{text}");
    assert!(text.contains("196 groups idle now"), "{text}");
    let text = StatusReport { groups: (0..20).map(of).collect(), ..status() }.to_string();
    assert_eq!(text.matches("w@").count(), 20, "{text}");
}

#[test]
fn status_whole() {
    let json = check("status_whole", &status());
    has(&json, &["groups[].trial.rate_ratio", "groups[].decisions[].reason", "retaining[].timeout_ns", "up_ns"]);
    has(&json, &["recent.vcpus[].steal_ns", "groups[].recent.l_idle_ns", "groups[].lengths.wake_to_run.p99_ns"]);
    has(&json, &["settings_differ[].path", "settings_differ[].found", "began_unix_ns"]);
    has(&json, &["host.vms[].slice_ns", "host.decisions[].reason", "host.enforcement"]);
    let counts = ["pid", "guard_trips", "vcpu", "vcpus", "retaining", "voluntary_switches", "threads_max", "pairs"];
    let more = ["decisions_count", "rate_range", "idle_entries", "halts", "interrupts", "wakeups", "active", "n", "vm"];
    units_are_named(&json, &[&counts[..], &more].concat());
    let differs = "  DIFFERS    /sys/module/haltpoll/parameters/guest_halt_poll_ns: 0, and not 200000; changed by another Gleaner, process 815\n";
    assert!(status().to_string().contains(differs), "{}", status());
    let waiting = "  waiting    web, for unit web.service to start\n";
    assert!(status().to_string().contains(waiting) && status().explain_all().ends_with(waiting), "{}", status());
    assert!(StatusReport { groups: Vec::new(), ..status() }.to_string().ends_with(waiting));
    let text = status().explain(&[&group()]);
    assert!(text.starts_with(differs), "{text}");
    for line in [
        "redis (cgroup /sys/fs/cgroup/system.slice/redis-server.service), profile latency, policy retain\n",
        "  now        vCPUs 0-3 kept awake\n",
        "  tried      58.0s ago: bridging idle periods pays: 1.31 times",
        "             1.31 times the rate, 1.18 to 1.40 in 4 pairs\n",
        "             tried again as soon as it is quiet\n",
        "  turns      1.00s ago: its threads take turns: on one vCPU 1.62 times the rate, 1.58 to 1.66 in 4 pairs\n",
        "    58.0s ago  retain vCPU 0: bridging idle periods pays: 1.31 times (2 changes in 1.90s)\n",
        "             and 38 decisions before\n",
        "  changes if a trial finds less than 3 % more",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    let mut busy = group();
    let trial = busy.trial.as_mut().unwrap();
    (trial.rate_ratio, trial.rate_range) = (Some(1.0), Some([0.82, 1.07]));
    let text = status().explain(&[&busy]);
    assert!(text.contains("0.82 to 1.07 in 4 pairs: no difference is shown\n"), "{text}");
    let text = StatusReport { groups: vec![busy], ..status() }.to_string();
    assert!(text.contains("not shown") && !text.contains("x1.31"), "{text}");
    let text = status().explain_vcpu(0);
    assert_eq!(
        text,
        "vCPU 0 is kept awake for 200us\n  redis: retain 58.0s ago: bridging idle periods pays: 1.31 times\n"
    );
    assert!(status().explain_vcpu(1).starts_with("vCPU 1 polls too"));
    let text = host().explain();
    for line in [
        "host agent, adaptive: 3 VMs, slices 1.00ms, 5.00ms\n",
        "  web (900), 2 vCPUs: slice 1.00ms\n",
        "  new (902), 2 vCPUs: its own slice\n",
        "    52.0s ago  web: 1.00ms: waiting costs more",
        "    1.00s ago  a VM that has gone: 5.00ms: ",
        "  note       slices end only",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    let by_pm_qos = StatusReport { retention: Some("pm-qos".into()), ..status() };
    assert!(by_pm_qos.explain_vcpu(1).starts_with("vCPU 1 halts"));
    let (dry, without) = (StatusReport { dry_run: true, ..status() }, StatusReport { retention: None, ..status() });
    assert!(status().acts() && !dry.acts() && !without.acts());
    assert!(StatusReport { groups: Vec::new(), ..without }.acts(), "nobody asks for it");
}

#[test]
fn status_unknown() {
    let report = StatusReport {
        retention: None,
        retaining: Vec::new(),
        reload_error: None,
        host: None,
        groups: vec![StatusGroup {
            trial: None,
            turns: None,
            timeout_ns: None,
            idle_entries: None,
            idle_ended_by: None,
            lengths: ObservedLengths::default(),
            recent: StatusRecent { observed_ns: 100_000_000, ..StatusRecent::default() },
            ..group()
        }],
        machine: StatusMachine { hypervisor: None, ..status().machine },
        recent: StatusTimes { idle_entries: None, halts: None, ..times(100_000_000) },
        ..status()
    };
    let json = check("status_unknown", &report);
    assert_eq!(json["groups"][0]["trial"], Value::Null);
    assert_eq!(json["recent"]["vcpus"][1]["busy_ns"], Value::Null, "not 0");
    assert_eq!(json["groups"][0]["recent"]["l_comp_ns"], Value::Null);
}

fn verified() -> VerifyReport {
    let file = |found: Option<&str>, as_set, changed_by: Option<&str>| VerifiedFile {
        path: "/sys/module/haltpoll/parameters/guest_halt_poll_ns".into(),
        expected: vec!["200000".into()],
        found: found.map(Into::into),
        as_set,
        changed_by: changed_by.map(Into::into),
    };
    let files = vec![file(Some("200000"), true, None), file(Some("0"), false, Some("another Gleaner, process 815"))];
    VerifyReport { schema: VerifyReport::SCHEMA.into(), as_set: false, files }
}

#[test]
fn verify_whole() {
    has(&check("verify_whole", &verified()), &["files[].path", "files[].expected", "files[].found", "as_set"]);
    let text = verified().to_string();
    assert!(text.contains("stays theirs, also when the daemon ends") && text.contains("restart the daemon"), "{text}");
}

#[test]
fn verify_unknown() {
    let files = vec![VerifiedFile { found: None, ..verified().files.remove(1) }];
    let json = check("verify_unknown", &VerifyReport { files, ..verified() });
    assert_eq!(json["files"][0]["found"], Value::Null);
}
