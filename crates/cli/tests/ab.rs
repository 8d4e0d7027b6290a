//! `gleaner ab` end to end: real commands, what they print, how they fail, and what is written then.

mod common;

use common::{Killed, Said, comes_true, finish, gleaner, pid_of, send, text_of};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Modes that need no privilege and no calibration.
const QUICK: [&str; 3] = ["ab", "--modes", "off,observe"];

/// Managed programs find this in their environment: a program that can tell the modes apart.
const KNOWS_ITS_MODE: &str =
    r#"if [ -n "$GLEANER_RUN_ID" ]; then echo "rate: 110 per s"; else echo "rate: 100 per s"; fi"#;

/// `gleaner ab --modes off,observe OPTIONS -- sh -c SCRIPT`.
fn ab(options: &[&str], script: &str) -> Command {
    let mut command = gleaner(QUICK);
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

/// The same with its JSON.
#[track_caller]
fn ab_json(options: &[&str], script: &str, status: i32) -> (Said, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ab.json");
    let said = finish(&mut ab(&[options, &["--json", file.to_str().unwrap()]].concat(), script)).with_status(status);
    let json = serde_json::from_str(&text_of(&file)).unwrap_or_else(|error| panic!("{error}: {said:#?}"));
    (said, json)
}

fn runs(json: &Value) -> Vec<&Value> {
    json["runs"].as_array().unwrap().iter().collect()
}

/// The interval holds the median, and the verdict is the interval's.
fn consistent(json: &Value) {
    let speedup = &json["speedup"];
    let median = speedup["median"].as_f64().unwrap();
    let verdict = match &speedup["ci95"] {
        Value::Null => "no difference",
        ci95 => {
            let (low, high) = (ci95[0].as_f64().unwrap(), ci95[1].as_f64().unwrap());
            assert!(low <= median && median <= high, "{speedup}");
            if low > 1.0 {
                "helps"
            } else if high < 1.0 {
                "hurts"
            } else {
                "no difference"
            }
        }
    };
    assert_eq!(json["verdict"], verdict, "{speedup}");
}

/// A metric that tells the modes apart, so that the verdict is no matter of chance.
#[test]
fn what_came_out_can_be_a_failure() {
    let with = |fail_if: &str, better: &str, status: i32| {
        let metric = ["-n", "5", "--warmup", "0", "--metric", "rate: ([0-9]+)", better, "--fail-if", fail_if];
        ab_json(&metric, KNOWS_ITS_MODE, status).1["verdict"].clone()
    };
    assert_eq!(with("hurts", "--higher-is-better", 0), "helps");
    assert_eq!(with("no-gain", "--higher-is-better", 0), "helps");
    assert_eq!(with("hurts", "--lower-is-better", 3), "hurts");
    assert_eq!(with("no-gain", "--lower-is-better", 3), "hurts");
    // Two pairs cannot tell; and the command's own failure is told as such.
    let few = ["-n", "2", "--warmup", "0", "--fail-if"];
    ab_json(&[&few[..], &["hurts"]].concat(), "true", 0);
    ab_json(&[&few[..], &["no-gain"]].concat(), "true", 3);
    ab_json(&[&few[..], &["no-gain"]].concat(), "exit 7", 7);
}

#[test]
fn a_wide_interval_is_inconclusive_and_says_what_would_tell() {
    let folder = tempfile::tempdir().unwrap();
    // Managed runs do twice as well, half as well, and so on in turn: no median tells anything.
    let script = format!(
        r#"cd {}; [ -n "$GLEANER_RUN_ID" ] || {{ echo "t 100"; exit; }}; echo x >>n; [ $(($(wc -l <n) % 2)) = 0 ] && echo "t 200" || echo "t 50""#,
        folder.path().display()
    );
    let (said, json) =
        ab_json(&["-n", "6", "--warmup", "0", "--metric", "t ([0-9]+)", "--lower-is-better"], &script, 0);
    assert_eq!(json["verdict"], "no difference", "{json}");
    let pairs = json["pairs_to_tell"].as_u64().unwrap_or_else(|| panic!("{json}"));
    assert!(pairs > 6 && said.stdout.contains(&format!("inconclusive; about {pairs} pairs would tell")), "{said:#?}");
}

#[test]
fn every_pair_has_both_modes_in_an_order_that_the_seed_decides() {
    let compare = |seed: &str| {
        let (said, json) = ab_json(&["-n", "5", "--warmup", "0", "--shuffle-seed", seed], "sleep 0.02", 0);
        assert!(said.stdout.contains("pair") && said.stdout.contains("95 % interval"), "{said:#?}");
        let order = runs(&json).iter().map(|run| format!("{}{}", run["mode"].as_str().unwrap(), run["pair"])).collect();
        (json, order)
    };
    let ((json, order), (_, again)): ((Value, Vec<String>), _) = (compare("7"), compare("7"));
    assert_eq!(order, again);
    assert_eq!(runs(&json).len(), 10);
    for (pair, two) in (1..).zip(runs(&json).chunks(2)) {
        assert_eq!(
            (&two[0]["pair"], &two[1]["pair"], &two[0]["order"], &two[1]["order"]),
            (&pair.into(), &pair.into(), &1.into(), &2.into())
        );
        assert_ne!(two[0]["mode"], two[1]["mode"]);
        for run in two {
            assert!(run["wall_ns"].as_u64() > Some(1_000_000) && run["cpu_time_ns"].as_u64() > Some(0), "{run}");
            assert!(run["voluntary_switches"].as_u64() > Some(0) && run["exit_status"] == 0, "{run}");
        }
    }
    let firsts = runs(&json).iter().filter(|run| run["order"] == 1 && run["mode"] == "observe").count();
    assert!((2..=3).contains(&firsts), "balanced: {firsts}");
    assert_eq!(
        (&json["schema"], &json["shuffle_seed"], &json["pairs"]),
        (&"gleaner.ab/1".into(), &7.into(), &5.into())
    );
    consistent(&json);
}

#[test]
fn a_metric_is_read_from_the_output_and_turned_so_that_above_1_is_better() {
    let metric = ["-n", "6", "--warmup", "0", "--metric", "rate: ([0-9.]+) per s", "--metric-name", "rate"];
    for (better, verdict, ratio) in [("higher", "helps", 1.1), ("lower", "hurts", 1.0 / 1.1)] {
        let direction = format!("--{better}-is-better");
        let (said, json) = ab_json(&[&metric[..], &[&direction]].concat(), KNOWS_ITS_MODE, 0);
        assert_eq!(json["verdict"], verdict);
        assert!((json["speedup"]["median"].as_f64().unwrap() - ratio).abs() < 1e-9, "{}", json["speedup"]);
        assert_eq!((&json["metric"]["name"], &json["metric"]["better"]), (&"rate".into(), &better.into()));
        assert!(runs(&json).iter().all(|run| run["metric"] == if run["mode"] == "off" { 100.0 } else { 110.0 }));
        assert!(said.stdout.contains(&format!("rate ({better} is better)")), "{said:#?}");
        assert!(said.stdout.contains(&format!("observe {verdict}.")), "{said:#?}");
        consistent(&json);
    }
}

#[test]
fn the_last_match_counts_and_long_output_is_no_burden() {
    let script = "echo 'x 1'; echo 'x 2' >&2; head -c 5000000 /dev/zero; echo; echo 'x 3'; seq 100000";
    let (_, json) = ab_json(&["-n", "1", "--warmup", "0", "--metric", "^x ([0-9])$", "--lower-is-better"], script, 0);
    assert!(runs(&json).iter().all(|run| run["metric"] == 3.0), "{json}");
    let (_, json) =
        ab_json(&["-n", "1", "--warmup", "0", "--metric", "^y ([0-9])$", "--lower-is-better"], "echo 'y 4' >&2", 0);
    assert!(runs(&json).iter().all(|run| run["metric"] == 4.0), "{json}");
}

#[test]
fn four_pairs_are_too_few_for_a_verdict_and_that_is_said() {
    let options = ["-n", "4", "--warmup", "0", "--metric", "rate: ([0-9]+)", "--higher-is-better"];
    let (said, json) = ab_json(&options, KNOWS_ITS_MODE, 0);
    assert_eq!((&json["speedup"]["ci95"], &json["verdict"]), (&Value::Null, &"no difference".into()));
    assert!(json["verdict_withheld"].as_str().unwrap().contains("5 pairs"), "{json}");
    assert!(said.stdout.contains("because 5 pairs"), "{said:#?}");
}

#[test]
fn values_without_a_ratio_are_left_out_and_said() {
    let options = ["-n", "2", "--warmup", "0", "--metric", "latency ([0-9.]+)", "--lower-is-better"];
    let (_, json) = ab_json(&options, "echo latency 0.0", 0);
    assert_eq!(json["speedup"], Value::Null);
    assert!(json["notes"].to_string().contains("without a ratio"), "{json}");
}

/// A script that appends a line to `file`, and does `then` in its n-th run.
fn in_run(file: &Path, n: usize, then: &str) -> String {
    format!("echo x >> {0}; if [ $(wc -l < {0}) -eq {n} ]; then {then}; fi", file.display())
}

#[test]
fn a_command_that_fails_ends_it_with_its_own_status_and_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    // Two warm-ups, a pair, and the first of the next.
    let script = in_run(&folder.path().join("count"), 6, "echo 'no space' >&2; exit 7");
    let (said, json) = ab_json(&["-n", "10"], &script, 7);
    let said = said.naming(&["status 7", "pair 2", "no space"]);
    assert!(said.stdout.contains("INCOMPLETE: 1 of 10 pairs"), "{said:#?}");
    assert!(json["incomplete"].as_str().unwrap().contains("status 7"), "{json}");
    assert_eq!((json["pairs"].as_u64(), runs(&json).len()), (Some(1), 3));
    let killed = in_run(&folder.path().join("kills"), 1, "kill -KILL $$");
    finish(&mut ab(&[], &killed)).with_status(137).naming(&["137", "warm-up"]);
}

#[test]
fn a_command_that_cannot_be_run() {
    for (command, status, words) in [("no-such-command-anywhere", 127, "not found"), ("/etc/passwd", 126, "permission")]
    {
        let said =
            finish(gleaner(QUICK).args(["--", command])).with_status(status).saying("").naming(&[command, words]);
        assert_eq!(said.stderr.lines().count(), 1, "one line is enough: {said:?}");
    }
}

#[test]
fn bad_usage() {
    for (options, words) in [
        (&[][..], &["CMD"][..]),
        (&["--modes", "full", "true"], &["--modes full", "two"]),
        (&["--modes", "off,off,off,off,off,off,off", "true"], &["two to 6"]),
        (&["--export-csv", "/no/such/folder/x.csv", "--", "true"], &["/no/such/folder/x.csv"]),
        (&["--modes", "off,most", "true"], &["most", "consolidate"]),
        (&["-n", "0", "true"], &["0", "1000"]),
        (&["--metric", "(", "--lower-is-better", "true"], &["--metric (", "group", "closing"]),
        (&["--metric", "[0-9]+", "--lower-is-better", "true"], &["0 groups", "( )"]),
        (&["--metric", "(a)(b)", "--lower-is-better", "true"], &["2 groups", "(?: )"]),
        (&["--metric", "(a)", "true"], &["--higher-is-better", "--lower-is-better"]),
        (&["--metric", "(a)", "--lower-is-better", "--higher-is-better", "true"], &["--higher-is-better"]),
        (&["--lower-is-better", "true"], &["--metric"]),
        (&["--metric-name", "x", "true"], &["--metric"]),
        (&["--max-time", "5", "true"], &["5", "10m"]),
        (&["--retain-for", "1h", "true"], &["1s"]),
        (&["--config", "/no/such.toml", "true"], &["/no/such.toml"]),
        (&["--json", "/no/such/folder/x.json", "--", "true"], &["/no/such/folder/x.json"]),
    ] {
        finish(gleaner(["ab"]).args(options)).with_status(2).saying("").naming(words);
    }
}

#[test]
fn several_modes_and_the_same_one_twice_are_compared_in_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let [csv, markdown] = ["ab.csv", "ab.md"].map(|name| folder.path().join(name));
    let exports = ["--export-csv", csv.to_str().unwrap(), "--export-markdown", markdown.to_str().unwrap()];
    let options = ["-n", "2", "--warmup", "0", "--modes", "off,observe,off", "--json", "-"];
    let mut command = gleaner(["ab"]);
    let said = finish(command.args(options).args(exports).args(["--", "true"])).with_status(0);
    let json: Value = serde_json::from_str(&said.stdout).unwrap();
    let names: Vec<&str> =
        json["modes"].as_array().unwrap().iter().map(|mode| mode["mode"].as_str().unwrap()).collect();
    assert_eq!(names, ["off", "observe", "off-2"]);
    assert_eq!((runs(&json).len(), &json["further"][0]["mode"]), (6, &"off-2".into()));
    assert_eq!((&json["told_verdict"], &json["verdict"]), (&"inconclusive".into(), &"no difference".into()));
    assert_eq!(text_of(&csv).lines().count(), 7);
    assert!(text_of(&markdown).contains("| off-2 | 2 | "), "{}", text_of(&markdown));
}

#[test]
fn scripts_run_around_the_runs_and_are_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let note = |word: &str| format!("echo {word} >> {}", log.display());
    let (setup, prepare, cleanup) = (note("setup"), note("prepare"), note("cleanup"));
    let scripts = ["--setup", &setup, "--prepare", &prepare, "--cleanup", &cleanup];
    let words = || text_of(&log).lines().map(str::to_owned).collect::<Vec<_>>();
    finish(&mut ab(&[&["-n", "1", "--warmup", "0"], &scripts[..]].concat(), &note("run"))).with_status(0);
    assert_eq!(words(), ["setup", "prepare", "run", "prepare", "run", "cleanup"]);
    // What they start themselves is not the run's.
    std::fs::remove_file(&log).unwrap();
    let server = ["-n", "1", "--warmup", "0", "--setup", "sleep 2 >/dev/null 2>&1 &"];
    let (_, json) = ab_json(&server, "true", 0);
    assert!(!json["notes"].to_string().contains("leaves processes behind"), "{json}");
    // One that fails ends it, and the last one runs all the same.
    for (option, script, ran) in [("--setup", "exit 7", 0), ("--prepare", "echo why >&2; exit 7", 0)] {
        let options = ["-n", "1", "--warmup", "0", option, script, "--cleanup", &cleanup];
        let said = finish(&mut ab(&options, &note("run"))).with_status(7).naming(&[option, "status 7"]);
        assert_eq!(words().iter().filter(|word| *word == "run").count(), ran, "{said:#?}");
        assert_eq!(words().last().map(String::as_str), Some("cleanup"));
        std::fs::remove_file(&log).unwrap();
    }
}

#[test]
fn failures_may_be_ignored_and_are_told() {
    let (_, json) = ab_json(&["-n", "1", "--warmup", "0", "--ignore-failure"], "exit 3", 0);
    assert!(runs(&json).iter().all(|run| run["exit_status"] == 3), "{json}");
    assert!(json["notes"].to_string().contains("status other than 0, and count all the same: 2"), "{json}");
    let (_, json) = ab_json(&["-n", "1", "--warmup", "0"], "exit 3", 3);
    assert!(json["incomplete"].as_str().unwrap().contains("status 3"), "{json}");
}

#[test]
fn a_metric_that_is_not_there_is_named_with_what_there_is() {
    for (script, words) in [
        ("echo tps 5", &["no line", "rate: (.*)", "tps 5"][..]),
        ("echo rate: fast", &["'fast'", "no number"]),
        ("echo rate: 12ms", &["'12ms'", "no number"]),
        ("echo rate: nan", &["'nan'", "no number"]),
        (":", &["no line", "printed nothing"]),
    ] {
        finish(&mut ab(&["--metric", "rate: (.*)", "--lower-is-better"], script))
            .with_status(2)
            .saying("")
            .naming(words);
    }
}

#[test]
fn a_metric_that_is_half_a_number_or_points_the_other_way_is_said() {
    finish(&mut ab(&["--metric", "rate: ([0-9]+)", "--higher-is-better"], "echo rate: 12,345.6 ops"))
        .with_status(2)
        .saying("")
        .naming(&["'12'", "part of '12,345.6'", "([0-9.,]+)"]);
    // A part of the time, and a part of the metric: a latency taken for a rate. A busy machine adds less than seconds.
    let script = r#"if [ -n "$GLEANER_RUN_ID" ]; then echo "x 1.0K"; else sleep 3; echo "x 4.0K"; fi"#;
    let (said, json) = ab_json(&["-n", "2", "--warmup", "0", "--metric", "x (.*)", "--higher-is-better"], script, 0);
    assert!(json["notes"].to_string().contains("say opposite things"), "{json}");
    assert_eq!(said.stderr.matches("--metric found").count(), 1, "{said:#?}");
    assert!(said.stderr.contains(".0K, read as ") && said.stderr.contains("000, in: x "), "{said:#?}");
}

#[test]
fn the_command_reads_nothing_and_is_heard_only_on_demand() {
    let script = "cat; echo out; echo err >&2";
    let said = finish(&mut ab(&["-n", "1"], script)).with_status(0);
    assert!(!said.stdout.contains("out\n") && !said.stderr.contains("err\n"), "{said:#?}");
    let said = finish(&mut ab(&["-n", "1", "--show-output"], script)).with_status(0);
    assert_eq!((said.stdout.matches("out\n").count(), said.stderr.matches("err\n").count()), (4, 4), "{said:#?}");
    // The JSON alone is on stdout.
    let said = finish(&mut ab(&["-n", "1", "--show-output", "--json"], script)).with_status(0);
    assert_eq!(said.stderr.matches("out\n").count(), 4, "{said:#?}");
    let json: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(json["schema"], "gleaner.ab/1");
}

#[test]
fn a_signal_ends_the_run_in_order_and_tells_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    for (signal, status) in [(libc::SIGTERM, 143), (libc::SIGINT, 130)] {
        let count = folder.path().join(format!("count-{signal}"));
        let (ended, file) = (folder.path().join(format!("ended-{signal}")), folder.path().join("ab.json"));
        let waits = folder.path().join(format!("waits-{signal}"));
        let trap = format!("trap 'echo ended > {}; exit 1' TERM; echo > {}", ended.display(), waits.display());
        let wait = format!("{trap}; while :; do sleep 0.05; done");
        let script = in_run(&count, 5, &wait);
        let mut command = ab(&["--json", file.to_str().unwrap()], &script);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = Killed(child.unwrap());
        assert!(comes_true(|| waits.exists()));
        send(pid_of(&child.0), signal);
        assert!(comes_true(|| child.0.try_wait().unwrap().is_some()), "it does not end");
        assert_eq!(child.0.try_wait().unwrap().map(common::shell_status), Some(status));
        assert_eq!(text_of(&ended), "ended\n");
        let json: Value = serde_json::from_str(&text_of(&file)).unwrap();
        assert!(json["incomplete"].as_str().unwrap().contains("interrupted by SIG"), "{json}");
        assert_eq!((json["pairs"].as_u64(), runs(&json).len()), (Some(1), 2));
    }
}

#[test]
fn max_time_ends_it_after_a_pair() {
    let (_, json) = ab_json(&["-n", "50", "--warmup", "0", "--max-time", "1s"], "sleep 0.1", 0);
    let pairs = json["pairs"].as_u64().unwrap();
    assert!((1..50).contains(&pairs) && runs(&json).len() as u64 == 2 * pairs, "{json}");
    assert!(json["notes"].to_string().contains("--max-time") && json["incomplete"].is_null(), "{json}");
}

#[test]
fn what_the_command_leaves_behind_is_said_and_not_waited_for() {
    let (_, json) = ab_json(&["-n", "1", "--warmup", "0"], "sleep 30 &", 0);
    assert!(json["notes"].to_string().contains("leaves processes behind"), "{json}");
}

#[test]
fn an_outlier_is_marked_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let others = format!("; echo t 10$(($(wc -l < {}) % 3))", count.display());
    let script = in_run(&count, 4, "echo t 900; exit") + &others;
    let options = ["-n", "6", "--warmup", "0", "--metric", "t ([0-9]+)", "--lower-is-better"];
    let (said, json) = ab_json(&options, &script, 0);
    let far: Vec<&Value> = runs(&json).into_iter().filter(|run| run["outlier"] == true).collect();
    assert!(far.iter().any(|run| run["metric"] == 900.0) && far.len() < 4, "{far:?}");
    assert_eq!(json["speedup"]["pairs"], 6);
    assert!(said.stdout.contains("900.00*") && said.stdout.contains("counts all the same"), "{said:#?}");
}

#[test]
fn runs_of_milliseconds_get_a_note_and_longer_ones_none() {
    let note = "compare work of a second or more";
    let said = |script: &str| finish(&mut ab(&["-n", "2", "--warmup", "0"], script)).with_status(0).stdout;
    let long = said("sleep 0.2");
    assert!(!long.contains(note), "{long}");
    // On a busy machine they may take longer.
    assert!((0..100).any(|_| said("true").contains(note)));
}

#[test]
fn a_progress_file_that_is_not_there_is_told() {
    let options = ["-n", "2", "--warmup", "0", "--progress", "/no/such/file"];
    // Until it is observed before it ends.
    let is_told = ["0.3", "2", "8", "32"].into_iter().any(|seconds| {
        let said = finish(&mut ab(&options, &format!("sleep {seconds}"))).with_status(0);
        said.stdout.contains("/no/such/file has no number, or is not there")
    });
    assert!(is_told);
}

#[test]
fn managed_runs_show_what_they_cost_on_this_machine() {
    // Where the host takes the vCPUs away, the guard stops the yielding threads, and what it takes counts as anybody's
    // CPU time: then it has to show in one of a few pairs.
    const TRIES: usize = 10;
    let command = ["-n", "1", "--retain-for", "1ms", "--json", "--", "sh", "-c", "sleep 0.3; sleep 0.3"];
    for left in (0..TRIES).rev() {
        let said = finish(gleaner(["ab", "--modes", "off,retain"]).args(command)).with_status(0);
        let json: Value = serde_json::from_str(&said.stdout).unwrap();
        let of = |mode: &str, key: &str| {
            runs(&json).iter().find(|run| run["mode"] == mode).map_or(0, |run| run[key].as_u64().unwrap_or(0))
        };
        assert_eq!((json["profile"].as_str(), of("off", "retained_ns")), (Some("custom"), 0));
        assert!(of("retain", "retained_ns") <= of("retain", "cpu_time_ns"), "{json}");
        if of("retain", "cpu_time_ns") > of("off", "cpu_time_ns") {
            return;
        }
        assert!(left > 0, "in none of {TRIES} pairs; the last: {json}");
    }
}

/// What a run has to report goes through no file with a name.
#[test]
fn nothing_is_left_in_tmp_however_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (temporary, began) = (folder.path().join("tmp"), folder.path().join("began"));
    std::fs::create_dir(&temporary).unwrap();
    let names = || std::fs::read_dir(&temporary).unwrap().count();
    let script = format!("echo >> {}; sleep 0.5", began.display());
    let mut command = ab(&["--warmup", "0"], &script);
    command.env("TMPDIR", &temporary).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = Killed(command.spawn().unwrap());
    assert!(comes_true(|| text_of(&began).lines().count() == 3), "the reports of two runs arrived");
    send(pid_of(&child.0), libc::SIGKILL);
    drop(child);
    assert_eq!(names(), 0);
}
