//! `gleaner workload`: its list, its JSON, its progress, its ends, and what it refuses.

mod common;

use common::{Killed, comes_true, finish, gleaner, pid_of, send, text_of};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

const NAMES: [&str; 13] = [
    "pipeline",
    "relay",
    "barrier",
    "task-queue",
    "fork-join",
    "independent",
    "matmul",
    "freqsleep",
    "request-reply",
    "address-space",
    "block-io",
    "spin-lock",
    "open-loop",
];

/// `gleaner workload` with these arguments.
fn workload(arguments: &[&str]) -> Command {
    let mut command = gleaner(["workload"]);
    command.args(arguments);
    command
}

/// The JSON on stdout.
#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let said = finish(workload(arguments).arg("--json")).with_status(0);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:#?}"))
}

#[test]
fn the_list_names_every_program_and_whom_it_stands_for() {
    let said = finish(&mut workload(&["list"])).with_status(0);
    for name in NAMES {
        assert!(said.stdout.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name} in {said:#?}");
    }
    assert_eq!(said.stdout.matches("stands for").count(), NAMES.len());
}

#[test]
fn every_program_runs_and_proves_it() {
    for name in NAMES.iter().filter(|name| **name != "open-loop") {
        let fixed = ["--items", "20", "--granularity", "1us", "--threads", "2", "--seed", "7"];
        let arguments: Vec<&str> = std::iter::once(*name).chain(fixed).collect();
        let (first, again) = (json(&arguments), json(&arguments));
        assert_eq!((&first["name"], &first["items"], &first["threads"]), (&(*name).into(), &20.into(), &2.into()));
        assert_eq!(first["schema"], "gleaner.workload/1");
        assert_eq!((&first["ended_by"], &first["granularity_ns"]), (&"items".into(), &1_000.into()), "{name}");
        assert_eq!(first["checksum"], again["checksum"], "{name}");
        let checksum = first["checksum"].as_str().unwrap();
        assert!(checksum.len() == 16 && checksum.bytes().all(|digit| digit.is_ascii_hexdigit()), "{checksum}");
        let rate = 20.0 / first["wall_ns"].as_f64().unwrap() * 1e9;
        assert!((first["items_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-6, "{first}");
        assert!(first["cpu_time_ns"].as_u64() > Some(0), "{name}");
    }
}

#[test]
fn a_granularity_in_turns_is_the_same_work() {
    let with = |option, value| json(&["independent", "--items", "5", option, value])["checksum"].clone();
    assert_eq!(with("--granularity", "3us"), with("--granularity-iterations", "1500"));
    assert_ne!(with("--granularity", "3us"), with("--granularity-iterations", "1501"));
}

#[test]
fn a_timed_run_ends_by_time() {
    let timed = json(&["barrier", "--for", "50ms"]);
    assert_eq!(timed["ended_by"], "time");
    assert!(timed["wall_ns"].as_u64() >= Some(50_000_000), "{timed}");
}

/// `progress AT_NS ITEMS`.
fn progress(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("progress ")?.split(' ').map(|word| word.parse().ok());
    Some((words.next()??, words.next()??)).filter(|_| words.next().is_none())
}

#[test]
fn progress_rises_and_its_last_line_is_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.json");
    let arguments = ["independent", "--granularity", "10us", "--for", "2s", "--progress-every", "10ms", "--json"];
    let said = finish(workload(&arguments).arg(&file)).with_status(0);
    let lines: Vec<(u64, u64)> = said.stdout.lines().filter_map(progress).collect();
    assert!(lines.len() >= 2 && lines.is_sorted(), "{said:#?}");
    let report: Value = serde_json::from_str(&text_of(&file)).unwrap();
    assert_eq!(Some(lines[lines.len() - 1].1), report["items"].as_u64());
}

#[test]
fn progress_has_a_name_where_one_is_given() {
    let arguments = ["independent", "--for", "1s", "--progress-every", "10ms", "--progress-name", "a-1"];
    let said = finish(&mut workload(&arguments)).with_status(0);
    let named: Vec<&str> = said.stdout.lines().filter(|line| line.starts_with("progress ")).collect();
    assert!(!named.is_empty(), "{said:#?}");
    for line in named {
        assert!(line.strip_suffix(" a-1").and_then(progress).is_some(), "{line}");
    }
}

#[test]
fn seconds_0_goes_on_until_told_and_then_ends_well() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut child = Killed(
            workload(&["freqsleep", "--for", "0s", "--progress-every", "5ms"]).stdout(Stdio::piped()).spawn().unwrap(),
        );
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.by_ref().take(1_000).filter_map(|line| progress(&line)).any(|(_, items)| items > 0));
        send(pid_of(&child.0), signal);
        assert!(comes_true(|| child.0.try_wait().unwrap().is_some()));
        assert!(child.0.wait().unwrap().success(), "signal {signal}");
        assert!(lines.any(|line| line.contains("items/s")), "the result is told");
    }
}

#[test]
fn fixed_work_that_is_interrupted_has_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.json");
    let arguments = ["matmul", "--items", "100000000", "--progress-every", "5ms", "--json"];
    let mut child = Killed(workload(&arguments).arg(&file).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().is_some());
    send(pid_of(&child.0), libc::SIGINT);
    assert!(comes_true(|| child.0.try_wait().unwrap().is_some()));
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    assert!(!lines.any(|line| line.contains("items/s")) && !file.exists());
}

#[test]
fn open_loop_asks_a_server_by_name() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || {
                let connection = connection.unwrap();
                for line in BufReader::new(&connection).lines().map_while(Result::ok) {
                    (&connection).write_all(format!("{}\r\n", line.to_lowercase()).as_bytes()).unwrap();
                }
            });
        }
    });
    let server = format!("localhost:{port}");
    let arguments = ["open-loop", "--connect", &server, "--rate", "1000", "--items", "50", "--request", r"ECHO\x21\n"];
    let report = json(&arguments);
    assert_eq!((&report["errors"], &report["latency"]["n"]), (&0.into(), &50.into()), "{report}");
    assert!(report["latency"]["p999_ns"].as_u64() >= report["send_delay"]["p50_ns"].as_u64(), "{report}");
}

#[test]
fn what_is_wrong_is_named() {
    for (arguments, words) in [
        (&["workload"][..], &["NAME"][..]),
        (&["workload", "dedup"], &["dedup", "pipeline", "freqsleep", "open-loop", "list"]),
        (&["workload", "matmul", "--items", "5", "--for", "1s"], &["--items", "--for"]),
        (&["workload", "matmul", "--items", "0"], &["--items", "0"]),
        (&["workload", "matmul", "--threads", "0"], &["--threads", "1..=1024"]),
        (&["workload", "matmul", "--threads", "1025"], &["1025", "1..=1024"]),
        (&["workload", "matmul", "--granularity", "20"], &["20", "20us"]),
        (&["workload", "matmul", "--granularity", "1h"], &["1h", "10s"]),
        (&["workload", "matmul", "--granularity", "1us", "--granularity-iterations", "5"], &["cannot be used with"]),
        (&["workload", "matmul", "--for=-1s"], &["-1s"]),
        (&["workload", "matmul", "--for", "nan"], &["nan"]),
        (&["workload", "matmul", "--progress-every", "1us"], &["1us", "1ms"]),
        (&["workload", "matmul", "--progress-every", "1s", "--json"], &["--progress-every", "--json FILE"]),
        (&["workload", "matmul", "--progress-name", "a"], &["--progress-every"]),
        (
            &["workload", "matmul", "--progress-every", "1s", "--progress-name", "a b"],
            &["--progress-name", "single word"],
        ),
        (&["workload", "matmul", "--connect", "localhost:1"], &["--connect", "matmul", "open-loop"]),
        (&["workload", "open-loop"], &["server", "--connect localhost:6379"]),
        (&["workload", "open-loop", "--connect", "example.org:80"], &["example.org:80", "IP address"]),
        (&["workload", "open-loop", "--connect", "127.0.0.1:1"], &["127.0.0.1:1", "refused", "listening"]),
        (&["workload", "open-loop", "--connect", "127.0.0.1:1", "--rate", "0"], &["--rate", "within 0.01"]),
        (&["workload", "open-loop", "--connect", "127.0.0.1:1", "--request", r"a\q"], &["--request", "backslash"]),
    ] {
        finish(&mut gleaner(arguments)).with_status(2).saying("").naming(words);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let said = finish(workload(&["block-io", "--items", "1"]).env("TMPDIR", "/no/such/folder")).with_status(1);
    said.saying("").naming(&["/no/such/folder", "TMPDIR"]);
}

#[test]
fn nothing_is_left_in_the_folder_for_temporary_files() {
    let folder = tempfile::tempdir().unwrap();
    finish(workload(&["block-io", "--items", "9"]).env("TMPDIR", folder.path())).with_status(0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
