//! `gleaner run` passes everything through: bytes, signals, job control, exit status; the program sees no difference.

mod common;

use common::machine::{cgroups_of_run, children_of, comm, state_of, status_line};
use common::terminal::Terminal;
use common::{
    GLEANER, Killed, Random, comes_true, finish, finish_with_stdin, is_root, pid_of, program, run, send, shell_status,
};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Each way of managing, and not managing.
const WAYS: [&[&str]; 4] = [
    &["--policy", "off"],
    &["--policy", "observe"],
    &["--policy", "full", "--observer", "procfs"],
    &["--policy", "full"],
];

/// `gleaner run WAY --quiet -- sh -c SCRIPT`.
fn shell(way: &[&str], script: &str) -> Command {
    let mut command = run(way);
    command.args(["--quiet", "--", "sh", "-c", script]);
    command
}

fn bytes(n: usize) -> Vec<u8> {
    let mut random = Random(42);
    (0..n).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

#[test]
fn bytes_pass_unchanged() {
    let sent = bytes(1 << 20);
    for way in WAYS {
        let through = finish_with_stdin(&mut shell(way, "cat"), &sent);
        assert!(through.stdout == sent && through.stderr.is_empty(), "{way:?}: stdout");
        let through = finish_with_stdin(&mut shell(way, "cat >&2"), &sent);
        assert!(through.stderr == sent && through.stdout.is_empty(), "{way:?}: stderr");
    }
}

#[test]
fn a_program_that_reads_nothing_ends_a_pipe_as_ever() {
    // `yes` is ended by SIGPIPE, which must not be ignored for it.
    let said = finish(&mut shell(&[], "yes | head -n 2"));
    said.with_status(0).saying("y\ny\n");
    let mut yes = shell(&[], "exec yes").stdout(Stdio::piped()).spawn().unwrap();
    drop(yes.stdout.take());
    assert_eq!(yes.wait().unwrap().signal(), Some(libc::SIGPIPE));
}

#[test]
fn the_exit_status_is_the_programs() {
    for way in WAYS {
        for (script, status) in
            [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
        {
            finish(&mut shell(way, script)).with_status(status).saying("");
        }
    }
}

#[test]
fn a_program_that_executes_another_is_followed() {
    let script = "exec sh -c 'exec sh -c \"exec sh -c \\\"exit 9\\\"\"'";
    finish(&mut shell(&[], script)).with_status(9);
}

#[test]
fn programs_that_end_at_once() {
    for round in 0..10 {
        finish(run(WAYS[round % WAYS.len()]).args(["--quiet", "--", "true"])).with_status(0).saying("").naming(&[]);
    }
}

/// Before Gleaner has begun beside it, while it sets up, and just after.
#[test]
fn a_program_that_ends_while_gleaner_sets_up_leaves_nothing_behind() {
    let yielding: &[&str] = &["--retain", "yielding", "--policy", "full"];
    for (round, way) in WAYS.iter().chain([&yielding]).cycle().take(100).enumerate() {
        let script = format!("sleep 0.0{:02}; echo $GLEANER_RUN_ID; exit 4", round / 2);
        let said = finish(&mut shell(way, &script)).with_status(4);
        assert_eq!(said.stderr, "", "{way:?}");
        let id = said.stdout.trim();
        if id.is_empty() {
            continue;
        }
        let state = std::path::Path::new("/run/gleaner").read_dir().into_iter().flatten().flatten();
        let left: Vec<_> =
            state.map(|entry| entry.path()).filter(|path| path.display().to_string().contains(id)).collect();
        assert_eq!(left, Vec::<std::path::PathBuf>::new(), "{way:?}, {script}");
        let pid: i32 = id.split('-').next().unwrap().parse().unwrap();
        assert_eq!(cgroups_of_run(pid), Vec::<std::path::PathBuf>::new(), "{way:?}, {script}");
    }
}

/// A run whose program has said that it is ready; it leads its process group.
fn ready(command: &mut Command) -> (Killed, BufReader<std::process::ChildStdout>) {
    let child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let mut child = Killed(child.unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, lines)
}

fn status_of(child: &mut Child) -> i32 {
    assert!(comes_true(|| child.try_wait().unwrap().is_some()), "it does not end");
    shell_status(child.wait().unwrap())
}

#[test]
fn signals_reach_the_program() {
    let named = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("TERM", libc::SIGTERM),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("ALRM", libc::SIGALRM),
        ("WINCH", libc::SIGWINCH),
    ];
    for (name, signal) in named {
        for way in [WAYS[0], WAYS[2]] {
            let script = format!("trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.02; done");
            let (mut child, mut lines) = ready(&mut shell(way, &script));
            send(pid_of(&child.0), signal);
            assert_eq!(status_of(&mut child.0), 5, "{name} {way:?}");
            let mut rest = String::new();
            lines.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, format!("got {name}\n"));
        }
    }
}

#[test]
fn a_signal_that_ends_the_program_is_in_the_status() {
    for (signal, status) in [(libc::SIGTERM, 143), (libc::SIGINT, 130), (libc::SIGHUP, 129)] {
        let (mut child, _lines) = ready(&mut shell(&[], "echo ready; exec sleep 30"));
        send(pid_of(&child.0), signal);
        assert_eq!(status_of(&mut child.0), status);
    }
}

/// As env(1) and time(1) do: a shell knows by that whether to go on.
#[test]
fn what_a_signal_ends_is_ended_by_it_without_a_core() {
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGQUIT, libc::SIGPIPE, 40];
    for (number, signal) in signals.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = shell(WAYS[number % WAYS.len()], &format!("ulimit -c 0; kill -{signal} $$"));
        let status = command.current_dir(folder.path()).status().unwrap();
        assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false), "{status}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    // A program that says so itself has ended by itself.
    for status in [130, 137, 143] {
        assert_eq!(shell(&[], &format!("exit {status}")).status().unwrap().code(), Some(status));
    }
    // The first process of a container is not ended by its own signals.
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", GLEANER, "run", "--retain-for", "1ms", "-q", "--", "sh", "-c"]);
    assert_eq!(command.arg("kill -TERM $$").status().unwrap().code(), Some(128 + libc::SIGTERM));
}

#[test]
fn control_c_ends_a_shells_loop() {
    let mut terminal = Terminal::open();
    let run = format!("{GLEANER} run -q --retain-for 1ms -- sh -c 'echo up:$$:; exec sleep 30'");
    terminal.type_in(&format!("for i in 1 2 3; do {run}; done\n"));
    let program = terminal.number_after("up:");
    terminal.type_in("\x03");
    assert!(comes_true(|| state_of(program).is_none()), "{:?}", terminal.shown());
    terminal.type_in("echo status=$?=\n");
    assert_eq!(terminal.number_after("status="), 130, "{:?}", terminal.shown());
    let begun = terminal.shown().lines().filter(|line| line.starts_with("up:")).count();
    assert_eq!(begun, 1, "{:?}", terminal.shown());
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    // As nohup does it: the run and its program outlive the hang-up.
    let script =
        format!("trap '' HUP; exec {GLEANER} run --retain-for 1ms -q -- sh -c 'echo ready; sleep 0.3; exit 6'");
    let (mut child, _lines) = ready(Command::new("sh").args(["-c", &script]));
    send(-pid_of(&child.0), libc::SIGHUP);
    assert_eq!(status_of(&mut child.0), 6);
}

/// What a program can see of its surroundings, one line each.
const SURROUNDINGS: &str = "
    nproc; umask; pwd; cat /proc/self/limits /proc/self/oom_score_adj
    grep -E '^(Sig(Ign|Blk)|Cap|Groups|Uid|Gid|NoNewPrivs|Seccomp|Cpus_allowed|Mems_allowed)' /proc/self/status
    cut -d ' ' -f 18,19,40,41 /proc/self/stat
    for fd in /proc/self/fd/*; do echo \"${fd##*/}\"; done
    env -u GLEANER_RUN_ID -u _ | sort
    for word in \"$@\"; do echo \"<$word>\"; done
";

/// What [`SURROUNDINGS`] says, with `prefix` before the shell and `words` after it, all below a shell that ran
/// `before`.
fn surroundings(before: &str, prefix: &str) -> String {
    let script = format!("{before}; exec {prefix} sh -c \"$0\" sh a 'b  c' '' --json '*'");
    let said = finish(Command::new("sh").args(["-c", &script, SURROUNDINGS]).env("ODD", "a\nb=c")).with_status(0);
    assert!(said.stdout.lines().count() > 30, "{said:#?}");
    // Signals 32 and 33 are the C library's own, and no program's business.
    let own_of_libc = |mask: &str| u64::from_str_radix(mask, 16).map(|mask| format!("{:x}", mask & !(3 << 31))).ok();
    let line = |line: &str| match line.strip_prefix("SigIgn:\t").and_then(own_of_libc) {
        Some(mask) => format!("SigIgn {mask}"),
        None => line.to_owned(),
    };
    said.stdout.lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn the_program_sees_no_difference() {
    let ways = WAYS.map(|way| format!("{GLEANER} run --retain-for 1ms --quiet {} --", way.join(" ")));
    let surrounded = [
        (":", ""),
        ("trap '' HUP INT TERM USR1", ""),
        (":", "env --ignore-signal=CHLD,PIPE,TSTP,TTOU,VTALRM"),
        (":", "env --block-signal=CHLD,TERM,USR2,PIPE"),
        ("ulimit -n 100; umask 077; cd /", ""),
    ];
    for (before, prefix) in surrounded {
        let without = surroundings(before, prefix);
        for way in &ways {
            let with = surroundings(before, &format!("{prefix} {way}"));
            let differences: Vec<_> = without.lines().zip(with.lines()).filter(|(a, b)| a != b).collect();
            assert!(with == without, "after {before:?} {prefix}, with {way}: {differences:#?}");
        }
    }
}

#[test]
fn the_program_sees_every_vcpu_that_it_may_use() {
    let without = finish(&mut Command::new("nproc"));
    let with = finish(common::gleaner(["run", "--quiet", "--", "nproc"]).stdin(Stdio::null()));
    assert_eq!((with.stdout, with.status), (without.stdout, without.status));
}

#[test]
fn an_environment_has_the_runs_mark_and_nothing_else_new() {
    let environment = |command: &mut Command| {
        let said = finish(command.env_clear().env("PATH", std::env::var("PATH").unwrap()).env("ODD", "=x"));
        let mut lines: Vec<String> = said.with_status(0).stdout.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let without = environment(&mut Command::new("env"));
    let off = environment(&mut run(["--policy", "off", "--quiet", "--", "env"]));
    assert_eq!(off, without);
    let mut full = environment(&mut run(["--quiet", "--", "env"]));
    full.retain(|line| !line.starts_with("GLEANER_RUN_ID="));
    assert_eq!(full, without);
}

#[test]
fn orphans_go_on_and_are_reaped() {
    // Forty processes whose parents leave them; the program itself lives on.
    let script = "i=0; while [ $i -lt 40 ]; do sh -c 'sleep 0.05 & exit 0'; i=$((i+1)); done; echo ready; sleep 30";
    let (child, _lines) = ready(&mut shell(&[], script));
    let main = pid_of(&child.0);
    // The program and the guardian stay.
    assert!(comes_true(|| children_of(main).len() == 2), "{:?}", children_of(main));
    let states: Vec<_> = children_of(main).into_iter().map(state_of).collect();
    assert!(!states.contains(&Some('Z')), "{states:?}");
    drop(child);
    // What the program leaves behind when it ends is not waited for, but not harmed either.
    let said = finish(&mut shell(&[], "(sleep 0.3; echo late) & exit 2"));
    said.with_status(2).saying("late\n");
}

#[test]
fn closed_streams_do_no_harm() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        for way in ["", "--quiet", "--json"] {
            let script = format!("exec {GLEANER} run {way} --retain-for 1ms -- sh -c 'exit 4' {closed}");
            finish(Command::new("sh").args(["-c", &script])).with_status(4);
        }
    }
    // A reader that goes away.
    let script = format!("{GLEANER} run --json --retain-for 1ms -- sh -c 'exit 4' | true");
    finish(Command::new("sh").args(["-c", &script])).with_status(0);
}

#[test]
fn the_json_goes_where_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let said = finish(run(["--json"]).arg(&file).args(["--", "sh", "-c", "echo out; echo err >&2; exit 3"]));
    let said = said.with_status(3).saying("out\n").naming(&["err\n", "exit status 3"]);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&json["schema"], &json["exit_status"]), (&"gleaner.run/1".into(), &3.into()), "{said:?}");
    // An earlier, longer result is replaced whole.
    std::fs::write(&file, "x".repeat(100_000)).unwrap();
    finish(run(["--quiet", "--json"]).arg(&file).args(["--", "true"])).with_status(0).saying("");
    serde_json::from_slice::<serde_json::Value>(&std::fs::read(&file).unwrap()).unwrap();
    // A pipe is a file too.
    let said = finish(&mut run(["--quiet", "--json", "/dev/stderr", "--", "true"])).with_status(0);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&said.stderr).unwrap()["schema"], "gleaner.run/1");
    // Alone on stdout.
    let said = finish(run(["--json"]).args(["--", "sh", "-c", "echo err >&2"]))
        .with_status(0)
        .naming(&["err", "exit status 0"]);
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(json["schema"], "gleaner.run/1");
}

#[test]
fn quiet_is_quiet() {
    let said = finish(run(["--quiet"]).args(["--", "true"])).with_status(0).saying("");
    assert_eq!(said.stderr, "");
    let said = finish(run(["--"]).arg("true")).with_status(0).saying("");
    assert!(said.stderr.contains("exit status 0"), "{said:?}");
}

#[test]
fn a_gleaner_that_is_stopped_does_not_stop_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (go, mark) = (folder.path().join("go"), folder.path().join("mark"));
    let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", go.display());
    let script = format!("echo ready; {wait}; echo done > {}; exit 8", mark.display());
    let (mut child, _lines) = ready(&mut shell(&[], &script));
    let main = pid_of(&child.0);
    send(main, libc::SIGSTOP);
    assert!(comes_true(|| state_of(main) == Some('T')));
    std::fs::write(&go, "").unwrap();
    assert!(comes_true(|| mark.exists()), "the program stood still");
    assert_eq!(state_of(main), Some('T'));
    send(main, libc::SIGCONT);
    assert_eq!(status_of(&mut child.0), 8);
}

/// The report on a program that worked for so long in a mode of [`program`], once it had so many threads.
fn report_on(mode: &str, crowd: u32, way: &[&str], time: Duration) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut command = run(way);
    command.args(["--quiet", "--json"]).arg(&file).arg("--").args(program::words()).env(program::MODE, mode);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn().map(Killed).unwrap();
    let main = pid_of(&child.0);
    let threads = |pid: i32| status_line(pid, "Threads").and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    assert!(comes_true(|| children_of(main).into_iter().any(|pid| threads(pid) >= crowd)));
    std::thread::sleep(time);
    drop(child.0.stdin.take());
    assert_eq!(status_of(&mut child.0), program::STATUS);
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

/// By limits that every machine exceeds, and that none does: how fast this one is makes no difference.
#[test]
fn a_storm_of_switches_is_not_watched_with_bpf() {
    for (observer, limit, leaves) in [("auto", "1e7", false), ("bpf", "1e3", false), ("auto", "1e3", true)] {
        let config = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&config, format!("bpf_switches_per_s_max = {limit}\n")).unwrap();
        // Where idle vCPUs poll, BPF is not needed from the start.
        let config = config.path().to_str().unwrap();
        // Not after a trial, which needs BPF.
        let way =
            ["--policy", "full", "--retain", "yielding", "--no-trial", "--observer", observer, "--config", config];
        // On a busy machine it takes a while until there are windows.
        let report = |seconds| report_on("storm", 3, &way, Duration::from_secs(seconds));
        let is_seen = |report: &serde_json::Value| report["windows"].as_u64() > Some(8);
        let report = [2, 8, 32].into_iter().map(report).find(is_seen).expect("windows");
        let means = report["means"]["observer"].as_str();
        if observer == "auto" && !leaves && means != Some("bpf") {
            gleaner_testing::skip!("needs BPF: {report}");
        }
        let warned = report["warnings"].to_string().contains("observing went over to /proc");
        let wanted = if leaves { "procfs" } else { "bpf" };
        assert_eq!((means, warned), (Some(wanted), leaves), "{report}");
        assert_eq!(report["restored"], true);
        // One clock for all decisions, whoever observed.
        let at: Vec<u64> =
            report["decisions"].as_array().unwrap().iter().map(|d| d["at_ns"].as_u64().unwrap()).collect();
        assert!(at.is_sorted(), "{report}");
    }
}

#[test]
fn a_crowd_of_threads() {
    for way in [WAYS[2], WAYS[3]] {
        // On a busy machine it takes a while until a window has seen them all.
        let mut seconds = [1, 4, 16, 64].into_iter().map(Duration::from_secs);
        let seen = seconds.any(|time| {
            let report = report_on("crowd", 200, way, time);
            assert_eq!(report["restored"], true);
            report["threads_max"].as_u64() >= Some(200)
        });
        assert!(seen, "{way:?}");
    }
}

#[test]
fn two_thousand_short_processes() {
    for way in [WAYS[2], WAYS[3]] {
        let script = "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done; echo $i";
        finish(&mut shell(way, script)).with_status(0).saying("2000\n");
    }
}

#[test]
fn runs_side_by_side_and_inside_each_other() {
    // Each cleans up at its start what dead runs have left, and must not take a run just begun for one.
    for _ in 0..5 {
        let start = |n: i32| shell(&[], &format!("sleep 0.0{n}; exit {n}")).stdout(Stdio::null()).spawn().unwrap();
        let all: Vec<(i32, Child)> = (1..10).map(|n| (n, start(n))).collect();
        for (n, mut child) in all {
            assert_eq!(child.wait().unwrap().code(), Some(n));
            assert_eq!(cgroups_of_run(pid_of(&child)), Vec::<std::path::PathBuf>::new());
        }
    }
    let inner = format!("{GLEANER} run --retain-for 1ms --quiet -- sh -c 'echo inside; exit 5'");
    finish(&mut shell(&[], &inner)).with_status(5).saying("inside\n");
}

#[test]
fn control_z_stops_both_and_control_c_ends_the_program() {
    let mut terminal = Terminal::open();
    // One process: a shell that forks may be met between vfork and exec, where it can be neither stopped nor seen
    // running.
    let sleeping = "sh -c 'echo up:$$:; exec sleep 30'";
    terminal.type_in(&format!("{GLEANER} run -q --retain-for 1ms -- {sleeping}\n"));
    let program = terminal.number_after("up:");
    let main: i32 = status_line(program, "PPid").unwrap().parse().unwrap();
    let both = |stopped: bool| [program, main].into_iter().all(|pid| (state_of(pid) == Some('T')) == stopped);
    for _ in 0..20 {
        terminal.type_in("\x1a");
        let states = || [program, main].map(state_of);
        assert!(comes_true(|| both(true)), "{:?} {:?}", states(), terminal.shown());
        terminal.type_in("echo stopped=$?=\n");
        assert_eq!(terminal.number_after("stopped="), 128 + libc::SIGTSTP, "{:?}", terminal.shown());
        terminal.type_in("fg\n");
        assert!(comes_true(|| both(false)), "{:?} {:?}", states(), terminal.shown());
    }
    terminal.type_in("\x03");
    assert!(comes_true(|| state_of(program).is_none() && state_of(main).is_none()), "{:?}", terminal.shown());
    terminal.type_in("echo status=$?=\n");
    assert_eq!(terminal.number_after("status="), 130);
}

#[test]
fn a_job_in_the_background_is_stopped_and_ended_by_its_shell() {
    let mut terminal = Terminal::open();
    terminal.type_in(&format!("{GLEANER} run -q --retain-for 1ms -- sh -c 'echo up:$$:; exec sleep 30' &\n"));
    let program = terminal.number_after("up:");
    let main: i32 = status_line(program, "PPid").unwrap().parse().unwrap();
    let both = |stopped: bool| [program, main].into_iter().all(|pid| (state_of(pid) == Some('T')) == stopped);
    terminal.type_in("kill -TSTP %1\n");
    assert!(comes_true(|| both(true)), "{:?}", terminal.shown());
    // The shell has to have heard of it too.
    assert!(comes_true(|| {
        terminal.type_in("jobs\n");
        std::thread::sleep(Duration::from_millis(50));
        terminal.shown().contains("Stopped")
    }));
    terminal.type_in("bg\n");
    assert!(comes_true(|| both(false)), "{:?}", terminal.shown());
    terminal.type_in("kill %1; wait %1; echo status=$?=\n");
    assert_eq!(terminal.number_after("status="), 143, "{:?}", terminal.shown());
}

#[test]
fn what_is_stopped_through_gleaner_alone_is_continued_through_it() {
    let (mut child, _lines) = ready(&mut shell(&[], "echo ready; exec sleep 30"));
    let main = pid_of(&child.0);
    let program = || children_of(main).into_iter().find(|pid| comm(*pid) == "sleep");
    // The shell may not have become it yet.
    assert!(comes_true(|| program().is_some()));
    let program = program().unwrap();
    let both = |stopped: bool| [program, main].into_iter().all(|pid| (state_of(pid) == Some('T')) == stopped);
    for _ in 0..3 {
        send(main, libc::SIGTSTP);
        assert!(comes_true(|| both(true)));
        send(main, libc::SIGCONT);
        assert!(comes_true(|| both(false)));
    }
    send(main, libc::SIGTERM);
    assert_eq!(status_of(&mut child.0), 143);
}

#[test]
fn a_program_in_the_foreground_reads_the_terminal() {
    let mut terminal = Terminal::open();
    terminal.type_in(&format!("{GLEANER} run -q --retain-for 1ms -- sh -c 'echo up:1:; read a; echo read:$a:'\n"));
    terminal.number_after("up:");
    terminal.type_in("42\n");
    assert_eq!(terminal.number_after("read:"), 42);
}
