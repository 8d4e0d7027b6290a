//! `gleaner-lab sim`: the same bytes from the same seed, a trace that is one, errors that say what and where.

use std::path::Path;
use std::process::{Command, Output};

const SCENARIO: &str = r#"
name = "small"
description = "A chain of threads, off and retained, alone and beside a neighbour"
rounds = 2
seed = 7
run_timeout = "20s"

[machine]
cpus = "0-1"

[simulator]
scheduler = "cfs"
halt_poll = "0s"
cost_ns = { cache_refill_ns = 5000 }

[[vm]]
name = "app"
role = "measured"
vcpus = 2
pin = ["0", "1"]
policies = ["off", { policy = "retain", timeout = "1ms" }, "full"]
workloads = [{ program = "relay", threads = 2, items = 2000, granularity = "5us" }]

[[vm]]
name = "neighbour"
role = "background"
vcpus = 2
pin = ["0", "1"]
workloads = ["nothing", { program = "matmul", threads = 1, granularity = "100us" }]
"#;

fn gleaner(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner-lab")).args(args).output().unwrap()
}

fn with_file(text: &str, then: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    then(&path);
}

fn run(path: &Path, more: &[&str]) -> Output {
    let mut args = vec!["sim", "run", path.to_str().unwrap(), "--json"];
    args.extend(more);
    gleaner(&args)
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    with_file(SCENARIO, |path| {
        let (first, second) = (run(path, &[]), run(path, &[]));
        assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
        assert_eq!(first.stdout, second.stdout);
        assert_ne!(first.stdout, run(path, &["--seed", "8"]).stdout);
        let result: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
        assert_eq!(result["schema"], "gleaner.sim/1");
        // Three policies beside two neighbours, two rounds.
        assert_eq!((result["rows"].as_array().unwrap().len(), result["runs"].as_array().unwrap().len()), (6, 12));
        let sum = |vm: &serde_json::Value| {
            let parts = ["work", "kernel", "retained", "polled", "overhead", "stolen", "halted"];
            parts.iter().map(|part| vm[format!("{part}_ns")].as_u64().unwrap()).sum::<u64>()
        };
        for run in result["runs"].as_array().unwrap() {
            for vm in run["vms"].as_array().unwrap() {
                assert_eq!(sum(vm), vm["vcpus"].as_u64().unwrap() * run["end_ns"].as_u64().unwrap());
            }
        }
        let retained = result["rows"].as_array().unwrap().iter().find(|row| row["policy"] == "retain").unwrap();
        assert!(retained["speedup"].as_f64().unwrap() > 1.1, "{retained}");
    });
}

#[test]
fn costs_come_from_a_probe_and_the_files_own_stay() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("probe.json");
    let file = file.to_str().unwrap();
    let settings: Vec<_> = [("A", 3_000), ("B", 8_000), ("C", 50_000)]
        .map(|(setting, p50_ns)| {
            serde_json::json!({
                "setting": setting, "n": 100, "mean_ns": 1, "p50_ns": p50_ns, "p90_ns": 1, "p99_ns": 1, "max_ns": 1,
                "steal_ratio": null
            })
        })
        .into();
    let probe = |settings: &[serde_json::Value]| {
        let probe = serde_json::json!({
            "schema": "gleaner.probe/1", "gap_ns": 1_000_000, "waiter_vcpu": 0, "waker_vcpu": 1,
            "d_kind": null, "settings": settings, "timeouts": null, "notes": [] });
        std::fs::write(file, probe.to_string()).unwrap();
    };
    with_file(&SCENARIO.replace("cache_refill_ns = 5000", "ipi_ns = 7000"), |path| {
        probe(&settings);
        let done = run(path, &["--seeds", "1", "--probe", file]);
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        let cost = |name: &str| {
            report["costs"].as_array().unwrap().iter().find(|cost| cost["name"] == name).unwrap()["value_ns"].clone()
        };
        assert_eq!([cost("guest_switch_ns"), cost("ipi_ns"), cost("vcpu_resume_ns")], [3_000, 7_000, 42_000]);

        probe(&settings[..2]);
        for (told, bad) in [("setting C was not measured", file), ("No such file", "/nowhere/probe.json")] {
            let done = run(path, &["--probe", bad]);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.code() == Some(2) && said.contains(told) && said.contains(bad), "{said}");
        }
    });
}

#[test]
fn a_trace_has_every_vcpu_and_no_span_outside_the_run() {
    with_file(SCENARIO, |path| {
        let trace = path.with_file_name("trace.json");
        let ran = run(path, &["--seeds", "1", "--trace", trace.to_str().unwrap()]);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let result: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let end_us = result["runs"][0]["end_ns"].as_u64().unwrap() as f64 / 1e3;
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.iter().filter(|event| event["name"] == "thread_name").count(), 4);
        let spans: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert!(spans.len() > 1_000);
        for span in spans {
            assert!(span["ts"].as_f64().unwrap() + span["dur"].as_f64().unwrap() <= end_us + 0.001);
        }
    });
}

#[test]
fn what_cannot_be_simulated_is_named() {
    for (from, to, said) in [
        (
            "scheduler = \"cfs\"",
            "scheduler = \"best\"",
            "scenario.toml:12: scheduler = \"best\": must be one of \"eevdf\"",
        ),
        ("halt_poll = \"0s\"", "halt_pol = \"0s\"", "unknown field `halt_pol`"),
        ("halt_poll", "idle_states = \"deep\"\nhalt_poll", "must be one of \"shallow\", \"sandy-bridge\""),
        ("cache_refill_ns", "refill_ns", "it may set guest_switch_ns"),
        (
            "program = \"relay\"",
            "program = \"block-io\"",
            "no program \"block-io\" can be simulated; there are pipeline",
        ),
        ("pin = [\"0\", \"1\"]", "pin = [\"0\", \"5\"]", "pinned to CPU 5, which the simulated host does not have"),
        ("scheduler = \"cfs\"", "scheduler = \"dedicated\"", "use another scheduler"),
    ] {
        with_file(&SCENARIO.replacen(from, to, 1), |path| {
            let ran = run(path, &[]);
            let error = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert_eq!(ran.status.code(), Some(2), "{to}: {error}");
            assert!(error.contains(said), "{to}: {error}");
        });
    }
}

#[test]
fn the_slices_that_a_scenario_compares_are_simulated() {
    let slices = "cpus = \"0-1\"\nslices = [\"kernel\", \"100us\", \"adaptive\"]";
    with_file(&SCENARIO.replacen("cpus = \"0-1\"", slices, 1), |path| {
        let ran = run(path, &["--seeds", "1"]);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        // The chain beside the program that computes, unmanaged: the shorter the slices, the sooner it goes on.
        let rate = |slice: &str| {
            let rows = report["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| {
                row["slice"] == slice && row["policy"] == "off" && row["beside"].to_string().contains("matmul")
            });
            row.unwrap_or_else(|| panic!("no row of {slice} in {rows:?}"))["items_per_s"].as_f64().unwrap()
        };
        assert!(rate("100us") > rate("kernel"), "{} {}", rate("100us"), rate("kernel"));
        assert!(rate("adaptive") > 0.0);
    });
}

#[test]
fn the_list_has_a_source_for_every_cost() {
    let listed = gleaner(&["sim", "list", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    for cost in list["costs"][0]["values"].as_array().unwrap() {
        assert!(!cost["source"].as_str().unwrap().is_empty(), "{cost}");
    }
    assert!(String::from_utf8_lossy(&gleaner(&["sim", "list"]).stdout).contains("Gleaner Table 2, row A"));
}
