//! `gleaner daemon`: groups that come and go, reloads, faults; nothing is left.

mod common;

use common::daemon::Daemon;
use common::machine::{idle_values, why_not_kept_awake};
use common::program::Program;
use common::{comes_true, finish, gleaner, is_root};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `name` with these keys.
fn group(name: &str, program: &Program, more: &str) -> String {
    format!("[group.{name}]\npid = {}\n{more}\n", program.pid())
}

const WATCHED: &str = "profile = \"observe-only\"";
/// Whatever others of this host take meanwhile.
const RETAINED: &str = "profile = \"latency\"\ntrial = false\nparams = { steal_share_stop = 1.0 }";

/// A cgroup of a test's own, for as long as there is a hierarchy for it.
fn cgroup(name: &str) -> Option<PathBuf> {
    let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let top = tops.into_iter().find(|top| top.join("cgroup.procs").exists()).filter(|_| is_root())?;
    let folder = top.join(format!("daemon-test-{name}-{}.service", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    Some(folder)
}

#[test]
fn two_groups_are_retained_at_once_and_everything_is_undone_machine() {
    haltpoll_is_free!();
    let acts = why_not_kept_awake().is_none();
    let (before, one, two) = (idle_values(), Program::start(), Program::start());
    let mut daemon = Daemon::start(&(group("one", &one, RETAINED) + &group("two", &two, RETAINED)));
    if acts {
        assert!(comes_true(|| idle_values() != before), "nothing was retained");
    } else {
        gleaner_testing::skipped("needs root and a cpuidle driver");
    }
    // The other one's request stays.
    one.ends_well();
    daemon.says("one: process");
    if is_root() && Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists() {
        assert!(comes_true(|| idle_values() != before));
    }
    assert_eq!(daemon.ends(), (Some(0), false));
    assert_eq!(idle_values(), before);
    two.ends_well();
}

#[test]
fn a_kill_leaves_nothing_changed_machine() {
    if let Some(why) = why_not_kept_awake() {
        gleaner_testing::skip!("{why}");
    }
    let (before, program) = (idle_values(), Program::start());
    let daemon = Daemon::start(&group("one", &program, RETAINED));
    assert!(comes_true(|| idle_values() != before), "nothing was retained");
    daemon.signal(libc::SIGKILL);
    assert!(comes_true(|| idle_values() == before), "{:?}", idle_values());
    program.ends_well();
    assert!(daemon.state().join("daemon.lock").exists(), "a killed one leaves it, and it does no harm");
}

#[test]
fn a_broken_reload_keeps_what_runs_and_a_right_one_changes_only_what_differs() {
    let (one, two, three) = (Program::start(), Program::start(), Program::start());
    let first = group("one", &one, WATCHED) + &group("two", &two, WATCHED);
    let mut daemon = Daemon::start(&first);
    let write = |daemon: &Daemon, text: &str| std::fs::write(daemon.configuration(), text).unwrap();
    for (garbage, told) in [
        ("\0\u{fffd}[[[", "stays as it was"),
        ("[group.one]\npid = 1\nprofle = \"x\"\n", "gleaner.toml:3: unknown key profle: did you mean profile?"),
    ] {
        write(&daemon, garbage);
        daemon.signal(libc::SIGHUP);
        daemon.says(told);
    }
    assert!(daemon.is_running());
    write(&daemon, &(group("one", &one, WATCHED) + &group("three", &three, WATCHED)));
    daemon.signal(libc::SIGHUP);
    daemon.says("two: process");
    daemon.says("three: process");
    daemon.says("reloaded, managing 2 groups");
    write(&daemon, &group("one", &one, "profile = \"observe-only\"\nbudget = \"7%\""));
    daemon.signal(libc::SIGHUP);
    daemon.says("one: profile observe-only from now on");
    daemon.says("three: process");
    daemon.says("reloaded, managing one group");
    assert_eq!(daemon.ends(), (Some(0), false));
    [one, two, three].into_iter().for_each(Program::ends_well);
}

/// Decisions are counted: a group that starts anew decides at once what it had decided.
#[test]
fn a_group_whose_parameters_alone_changed_goes_on_machine() {
    if let Some(why) = why_not_kept_awake() {
        gleaner_testing::skip!("{why}");
    }
    let (before, program) = (idle_values(), Program::start());
    let keys = |stop: &str, more: &str| {
        format!(
            "profile = \"latency\"\ntrial = false\nparams = {{ steal_share_stop = {stop}, learn_timeouts = false }}\n{more}"
        )
    };
    let daemon = Daemon::start(&group("one", &program, &keys("1.0", "")));
    assert!(comes_true(|| idle_values() != before), "nothing was retained");
    let decisions = |text: &str| -> u64 {
        std::fs::write(daemon.configuration(), group("one", &program, text)).unwrap();
        daemon.asked(&["reload"]).with_status(0);
        let said = daemon.asked(&["status", "--json"]).with_status(0).stdout;
        serde_json::from_str::<serde_json::Value>(&said).unwrap()["groups"][0]["decisions_count"].as_u64().unwrap()
    };
    let had = decisions(&keys("1.0", ""));
    assert_eq!(decisions(&keys("0.99", "")), had);
    assert!(decisions(&keys("0.99", "budget = \"7%\"")) > had);
    drop(daemon);
    assert!(comes_true(|| idle_values() == before), "{:?}", idle_values());
    program.ends_well();
}

#[test]
fn a_cgroup_is_adopted_when_it_comes_and_let_go_when_it_is_removed() {
    let Some(folder) = cgroup("come") else { gleaner_testing::skip!("needs root and cgroups of version 2") };
    let unit = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let pattern = format!("{}*", &unit[..unit.len() - "service".len() - 2]);
    let mut daemon = Daemon::start(&format!("[group.web]\nunit = \"{pattern}.service\"\n{WATCHED}\n"));
    let program = Program::start();
    std::fs::write(folder.join("cgroup.procs"), program.pid().to_string()).unwrap();
    daemon.says(&format!("web/{unit}: cgroup"));
    program.ends_well();
    assert!(comes_true(|| std::fs::remove_dir(&folder).is_ok()));
    daemon.says("is managed no more");
    assert!(daemon.is_running());
    assert_eq!(daemon.ends(), (Some(0), false));
}

#[test]
fn a_daemon_that_was_stopped_goes_on() {
    let program = Program::start();
    let mut daemon = Daemon::start(&group("one", &program, WATCHED));
    daemon.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(10));
    daemon.signal(libc::SIGCONT);
    program.ends_well();
    daemon.says("is managed no more: it has ended");
    assert_eq!(daemon.ends(), (Some(0), false));
}

#[test]
fn a_second_daemon_is_told_who_holds_the_lock() {
    let program = Program::start();
    let daemon = Daemon::start(&group("one", &program, WATCHED));
    let second = || {
        let mut command = gleaner(["daemon", "--config", daemon.configuration().to_str().unwrap()]);
        command.arg("--state-dir").arg(daemon.state());
        command
    };
    let pid = daemon.pid().to_string();
    finish(&mut second()).with_status(1).naming(&["a daemon runs already: process", &pid, "daemon.lock"]);
    program.ends_well();
}

#[test]
fn without_a_group_everything_is_watched_and_nothing_changed() {
    let mut daemon = Daemon::start("");
    daemon.signal(libc::SIGHUP);
    daemon.says("reloaded, managing one group");
    daemon.asked(&["status"]).with_status(0);
    let said = daemon.asked(&["status"]).with_status(0).stdout;
    assert!(said.contains("changes nothing (dry run)") && said.contains("machine"), "{said}");
    assert!(daemon.asked(&["verify"]).with_status(0).stdout.contains("nothing is set"));
    assert_eq!(daemon.ends(), (Some(0), false));
}

#[test]
fn a_configuration_is_checked_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let config = |word: &str| finish(gleaner(["config", word]).arg(&file));
    write("[group.redis]\nunit = \"redis\"\nbudgt = \"5%\"\n[daemn]\n");
    let said = config("check").with_status(2).stderr;
    let lines: Vec<&str> = said.lines().collect();
    let ends =
        ["g.toml:3: unknown key budgt: did you mean budget?", "g.toml:4: unknown table daemn: did you mean daemon?"];
    assert!(lines.len() == 2 && lines.iter().zip(ends).all(|(line, end)| line.ends_with(end)), "{said}");
    assert!(lines.iter().all(|line| line.starts_with("gleaner: /")), "{said}");
    finish(gleaner(["daemon", "--config"]).arg(&file)).with_status(2).naming(&["g.toml:3: "]);
    write("[group.redis]\nunit = \"redis\"\nbudget = \"5%\"\n");
    let said = config("check").with_status(0).stdout;
    assert!(said.ends_with("g.toml: right, 1 group.\n  waiting    redis, for unit redis.service to start\n"), "{said}");
    write(&format!("[group.redis]\npid = {}\n", std::process::id()));
    assert!(config("check").with_status(0).stdout.ends_with("g.toml: right, 1 group.\n"));
    write("[group.redis]\nunit = \"redis\"\nbudget = \"5%\"\n");
    let shown = config("show").with_status(0).stdout;
    assert!(shown.contains("[group.redis]") && shown.contains("budget = \"5%\""), "{shown}");
    // What is shown is a configuration.
    write(&shown);
    config("check").with_status(0);
    finish(&mut gleaner(["config", "check", "/no/such/file"]))
        .with_status(2)
        .naming(&["/no/such/file: cannot be read"]);
}

#[test]
fn a_group_that_does_not_run_is_named_with_what_it_waits_for() {
    let program = Program::start();
    let nobody = "[group.nobody]\nprogram = \"no-such-program\"\n[group.off]\npid = 1\npolicy = \"off\"\n";
    let mut daemon = Daemon::start(&(group("one", &program, WATCHED) + nobody));
    let waiting = "nobody, for program no-such-program to start";
    let line = format!("  waiting    {waiting}\n");
    let says = |daemon: &Daemon, command: &str| daemon.asked(&[command]).with_status(0).stdout;
    let (status, explained) = (says(&daemon, "status"), says(&daemon, "explain"));
    assert!(status.contains(&line) && explained.contains("one (process") && explained.ends_with(&line), "{explained}");
    assert_eq!(daemon.asked(&["explain", "nobody"]).with_status(0).stdout, line);
    daemon.asked(&["explain", "x"]).with_status(2).naming(&["there are one, nobody;"]);
    assert_eq!(
        daemon.asked(&["reload"]).with_status(0).stdout,
        format!("The configuration counts; one group managed.\n{line}")
    );
    let top = finish(gleaner(["top", "--once", "--socket"]).arg(daemon.state().join("gleaner.sock"))).with_status(0);
    assert!(top.stdout.contains("[one]") && top.stdout.contains(&format!("waiting (1):  {waiting}")), "{top:#?}");
    let json: serde_json::Value = serde_json::from_str(&daemon.asked(&["status", "--json"]).stdout).unwrap();
    assert_eq!(json["waiting"].as_array().unwrap().len(), 1, "{}", json["waiting"]);
    daemon.says(&format!("reloaded, managing one group; waiting: {waiting}"));
    program.ends_well();
}

#[test]
fn a_daemon_says_how_things_stand_and_why() {
    let (one, two) = (Program::start(), Program::start());
    let mut daemon = Daemon::start(&(group("one", &one, WATCHED) + &group("two", &two, WATCHED)));
    let status = |daemon: &Daemon| -> serde_json::Value {
        let said =
            daemon.asked(&["status", "--json"]).with_status(0).naming(&["one", "two", "observe-only", "watched"]);
        serde_json::from_str(&said.stdout).unwrap()
    };
    let busy = |daemon: &Daemon| status(daemon)["groups"][1]["cpu_time_ns"].as_u64().unwrap() > 0;
    assert!(comes_true(|| busy(&daemon)));
    let json = status(&daemon);
    assert_eq!((json["schema"].as_str(), json["pid"].as_i64()), (Some("gleaner.status/1"), Some(daemon.pid().into())));
    assert_eq!((json["groups"].as_array().unwrap().len(), &json["retention"]), (2, &serde_json::Value::Null));
    let said = daemon.asked(&["explain", "two"]).with_status(0).stdout;
    assert!(said.contains("two (process") && !said.contains("one (") && said.contains("changes if"), "{said}");
    assert!(daemon.asked(&["explain", "0"]).with_status(0).stdout.contains("vCPU 0 halts"));
    daemon.asked(&["explain", "three"]).with_status(2).naming(&["no group is called three; there are one, two"]);
    assert!(daemon.asked(&["verify"]).with_status(0).stdout.contains("nothing is set"));
    // A broken reload is said to whoever asked, and stays in the status.
    std::fs::write(daemon.configuration(), "[group.one]\n").unwrap();
    daemon.asked(&["reload"]).with_status(1).naming(&["stays as it was", "gleaner.toml:1: group one: which?"]);
    daemon.says("stays as it was");
    assert!(status(&daemon)["reload_error"].as_str().unwrap().contains("gleaner.toml:1"));
    std::fs::write(daemon.configuration(), group("one", &one, WATCHED) + &group("two", &two, WATCHED)).unwrap();
    assert_eq!(daemon.asked(&["reload"]).with_status(0).stdout, "The configuration counts; 2 groups managed.\n");
    assert_eq!(status(&daemon)["reload_error"], serde_json::Value::Null);
    let state = daemon.state();
    assert_eq!(daemon.ends(), (Some(0), false));
    [one, two].into_iter().for_each(Program::ends_well);
    for command in [&["status"][..], &["explain"], &["verify"], &["reload"], &["hold", "one"], &["release", "one"]] {
        let mut asks = gleaner(command);
        asks.arg("--state-dir").arg(&state);
        finish(&mut asks).with_status(1).naming(&["no daemon runs here", "gleaner daemon"]);
    }
}

/// Of each group: who sees it, its CPU time, its voluntary switches.
fn seen(daemon: &Daemon) -> Vec<(String, u64, u64)> {
    let said = daemon.asked(&["status", "--json"]).with_status(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    let number = |group: &serde_json::Value, key: &str| group[key].as_u64().unwrap();
    let of = |group: &serde_json::Value| {
        let observer = group["observer"].as_str().unwrap().to_owned();
        (observer, number(group, "cpu_time_ns"), number(group, "voluntary_switches"))
    };
    json["groups"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn several_groups_are_seen_by_bpf_each_with_its_own_counts() {
    if !is_root() || !Path::new("/sys/kernel/btf/vmlinux").exists() {
        gleaner_testing::skip!("needs root and a kernel with BTF");
    }
    let bpf = |groups: &str| format!("[daemon]\nobserver = \"bpf\"\ngroups_max = 2\n{groups}");
    let (one, two, three) = (Program::start(), Program::start(), Program::start());
    let first = bpf(&(group("one", &one, WATCHED) + &group("two", &two, WATCHED)));
    let mut daemon = Daemon::start(&first);
    let all_ran = |daemon: &Daemon| seen(daemon).iter().all(|(.., cpu, switches)| *cpu > 0 && *switches > 0);
    assert!(comes_true(|| all_ran(&daemon)), "{:?}", seen(&daemon));
    assert!(seen(&daemon).iter().all(|(observer, ..)| observer == "bpf"), "{:?}", seen(&daemon));
    let text = daemon.asked(&["status"]).with_status(0).stdout;
    assert!(text.contains("seen by") && text.contains("bpf"), "{text}");
    assert!(daemon.asked(&["explain", "two"]).with_status(0).stdout.contains("seen by    bpf"));
    // One goes, and another takes its place.
    std::fs::write(daemon.configuration(), bpf(&(group("two", &two, WATCHED) + &group("three", &three, WATCHED))))
        .unwrap();
    daemon.signal(libc::SIGHUP);
    daemon.says("three: process");
    let before = seen(&daemon);
    assert!(comes_true(|| {
        let now = seen(&daemon);
        now.len() == 2 && now.iter().zip(&before).all(|(now, before)| now.2 > before.2)
    }));
    assert_eq!(daemon.ends(), (Some(0), false));
    // Whoever only watches looks into /proc, unless it is told otherwise.
    let daemon = Daemon::start(&group("one", &one, WATCHED));
    assert_eq!(seen(&daemon)[0].0, "procfs");
    assert_eq!(daemon.ends(), (Some(0), false));
    [one, two, three].into_iter().for_each(Program::ends_well);
}

/// More threads than `procfs_threads_max`, that switch less often than BPF would be left for.
#[test]
fn so_many_threads_are_seen_by_bpf_also_where_idle_vcpus_poll_machine() {
    if !is_root() || !Path::new("/sys/kernel/btf/vmlinux").exists() {
        gleaner_testing::skip!("needs root and a kernel with BTF");
    }
    let governor = std::fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_governor");
    if !governor.is_ok_and(|governor| governor == "haltpoll\n") {
        gleaner_testing::skip!("needs the haltpoll governor in charge");
    }
    haltpoll_is_free!();
    let napping = "import threading, time\nthreading.stack_size(65536)\nnap = lambda: time.sleep(60)\n\
                   for _ in range(700): threading.Thread(target=nap, daemon=True).start()\nnap()";
    let mut crowd = std::process::Command::new("python3").args(["-c", napping]).spawn().unwrap();
    let one = Program::start();
    let crowd_group = format!("[group.crowd]\npid = {}\n{WATCHED}\n", crowd.id());
    let mut daemon = Daemon::start(&format!("[daemon]\nretain = \"haltpoll\"\n{}", group("one", &one, RETAINED)));
    assert!(comes_true(|| seen(&daemon).iter().all(|(observer, cpu, _)| observer == "procfs" && *cpu > 0)));
    let both = format!("[daemon]\nretain = \"haltpoll\"\n{}{crowd_group}", group("one", &one, RETAINED));
    std::fs::write(daemon.configuration(), both).unwrap();
    daemon.asked(&["reload"]).with_status(0);
    daemon.says("observing went over to BPF");
    assert!(comes_true(|| seen(&daemon).len() == 2 && seen(&daemon).iter().all(|(observer, ..)| observer == "bpf")));
    let before = seen(&daemon);
    // It goes on with what it had counted.
    let counts = |now: &[(String, u64, u64)]| now[0].1 > before[0].1 && now[0].2 > before[0].2;
    assert!(comes_true(|| counts(&seen(&daemon))), "{before:?} {:?}", seen(&daemon));
    assert_eq!(daemon.ends(), (Some(0), false));
    crowd.kill().unwrap();
    crowd.wait().unwrap();
    one.ends_well();
}

#[test]
fn a_daemon_that_may_not_load_bpf_looks_into_proc_and_says_so_machine() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    // In a PID namespace of its own the kernel's numbers are others.
    let run = |observer: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("g.toml");
        let keys = format!("[daemon]\nobserver = \"{observer}\"\nretain = \"yielding\"\n[group.a]\npid = 1\n");
        std::fs::write(&file, keys).unwrap();
        let mut daemon = gleaner(["daemon", "--config", file.to_str().unwrap()]);
        daemon.arg("--state-dir").arg(folder.path().join("state"));
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "timeout", "--preserve-status", "3"]);
        command.arg(daemon.get_program()).args(daemon.get_args());
        finish(&mut command)
    };
    run("bpf").with_status(1).naming(&["PID namespace"]);
    run("auto").with_status(0).naming(&["observing through /proc", "PID namespace", "managing one group"]);
}

#[test]
fn a_held_group_is_left_alone_until_it_is_released_machine() {
    if let Some(why) = why_not_kept_awake() {
        gleaner_testing::skip!("{why}");
    }
    let (before, one, two) = (idle_values(), Program::start(), Program::start());
    let mut daemon = Daemon::start(&(group("one", &one, RETAINED) + &group("two", &two, WATCHED)));
    assert!(comes_true(|| idle_values() != before), "nothing was retained");
    assert_eq!(daemon.asked(&["hold", "one"]).with_status(0).stdout, "one: left alone until it is released\n");
    daemon.says("one: is left alone");
    assert_eq!(idle_values(), before, "it alone wanted something");
    let status = |daemon: &Daemon| -> serde_json::Value {
        serde_json::from_str(&daemon.asked(&["status", "--json"]).with_status(0).stdout).unwrap()
    };
    let decided = |daemon: &Daemon| status(daemon)["groups"][0]["decisions_count"].as_u64().unwrap();
    let (first, counted) = (status(&daemon), decided(&daemon));
    assert_eq!((&first["groups"][0]["held"], &first["groups"][1]["held"]), (&true.into(), &false.into()));
    assert_eq!(first["groups"][0]["state"], "left alone: held by hand");
    let later =
        |daemon: &Daemon| status(daemon)["up_ns"].as_u64() > first["up_ns"].as_u64().map(|ns| ns + 1_000_000_000);
    assert!(comes_true(|| later(&daemon)));
    assert_eq!((decided(&daemon), idle_values()), (counted, before.clone()), "nothing is decided for it");
    // A reload does not release it.
    daemon.asked(&["reload"]).with_status(0);
    assert_eq!((&status(&daemon)["groups"][0]["held"], idle_values()), (&true.into(), before.clone()));
    assert_eq!(daemon.asked(&["release", "one"]).with_status(0).stdout, "one: managed again\n");
    assert!(comes_true(|| idle_values() != before), "what is known of it stays");
    daemon.asked(&["hold", "three"]).with_status(1).naming(&["no group is called three"]);
    assert_eq!(daemon.ends(), (Some(0), false));
    assert_eq!(idle_values(), before);
    [one, two].into_iter().for_each(Program::ends_well);
}

#[test]
fn a_status_tells_of_every_vcpu_and_of_what_is_recent() {
    let program = Program::start();
    let daemon = Daemon::start(&group("one", &program, WATCHED));
    let mut asks = gleaner(["status", "--json", "--every", "100ms", "--state-dir", daemon.state().to_str().unwrap()]);
    let mut asking = asks.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(asking.stdout.take().unwrap()));
    let statuses = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    // One to two seconds of windows, and a group that has been at work in them.
    let is_full = |status: &serde_json::Value| {
        status["recent"]["observed_ns"].as_u64() > Some(1_000_000_000)
            && status["groups"][0]["recent"]["g_comp_ns"].as_f64() > Some(0.0)
    };
    let status = statuses.take(600).find(is_full).expect("a status with something recent in it");
    // It ends when nobody reads any more.
    assert_eq!(asking.wait().unwrap().code(), Some(0));
    let vcpus = status["recent"]["vcpus"].as_array().unwrap();
    assert_eq!(vcpus.len() as u64, status["machine"]["vcpus"].as_u64().unwrap());
    let observed = status["recent"]["observed_ns"].as_u64().unwrap();
    for vcpu in vcpus {
        let parts = ["busy_ns", "retained_ns", "halted_ns", "steal_ns"].map(|key| vcpu[key].as_u64().unwrap_or(0));
        assert_eq!(parts.iter().sum::<u64>(), observed, "{vcpu}");
    }
    assert_eq!(status["groups"][0]["active"].as_array().unwrap().len(), vcpus.len());
    assert!(status["recent"]["idle_entries"].as_u64() > Some(0), "{status}");
    assert_eq!(status["observer"], "procfs");
    assert_eq!(status["groups"][0]["lengths"]["wake_to_run"], serde_json::Value::Null, "/proc does not tell");
    assert_eq!(daemon.ends(), (Some(0), false));
    program.ends_well();
}

#[test]
fn a_thousand_clients_that_never_read_keep_nobody_waiting() {
    let program = Program::start();
    let daemon = Daemon::start(&group("one", &program, WATCHED));
    let mut silent = std::collections::VecDeque::new();
    for _ in 0..1000 {
        let mut stream = std::os::unix::net::UnixStream::connect(daemon.state().join("gleaner.sock")).unwrap();
        let _ = std::io::Write::write_all(&mut stream, b"{\"request\":\"status\"}\n");
        silent.push_back(stream);
        if silent.len() > 200 {
            silent.pop_front();
        }
    }
    daemon.asked(&["status"]).with_status(0);
    let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    assert!(files < 100, "{files} open files");
    assert_eq!(daemon.ends(), (Some(0), false));
    program.ends_well();
}

#[test]
fn what_was_set_is_verified_and_who_changed_it_named_machine() {
    if !is_root() || !Path::new("/sys/module/haltpoll/parameters/guest_halt_poll_ns").exists() {
        gleaner_testing::skip!("needs root and the haltpoll governor");
    }
    haltpoll_is_free!();
    let file = Path::new("/sys/module/haltpoll/parameters/guest_halt_poll_grow_start");
    let (before, was, program) = (idle_values(), std::fs::read_to_string(file).unwrap(), Program::start());
    let daemon = Daemon::start(&("[daemon]\nretain = \"haltpoll\"\n".to_owned() + &group("one", &program, RETAINED)));
    if !comes_true(|| idle_values() != before) {
        gleaner_testing::skip!("needs the haltpoll governor in charge");
    }
    daemon.asked(&["verify"]).with_status(0);
    std::fs::write(file, "12345").unwrap();
    let first = daemon.asked(&["verify"]);
    // Retention ends by that, and everybody who asks is told, for as long as the value stays.
    let words = ["DIFFERS", "left alone: somebody else has set", "the daemon is restarted"];
    let is_told = comes_true(|| {
        let said = daemon.asked(&["explain"]).stdout;
        words.iter().all(|word| said.contains(word))
    });
    let (explained, later) = (daemon.asked(&["explain"]).stdout, daemon.asked(&["verify"]));
    let ended = daemon.ends();
    let stays = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, was.trim()).unwrap();
    for said in [first, later] {
        let said = said.with_status(1).stdout;
        assert!(said.contains("grow_start: 12345, and not") && said.contains("somebody other than Gleaner"), "{said}");
    }
    assert!(is_told, "{explained}");
    assert_eq!((ended, stays.trim()), ((Some(0), false), "12345"));
    assert_eq!(idle_values(), before);
    program.ends_well();
}

#[test]
fn the_packages_files_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let file = folder.join("gleaner.toml");
    let said = finish(gleaner(["config", "check"]).arg(&file)).with_status(0).stdout;
    assert!(said.contains("No group is named"), "{said}");
    // What it shows, with the comment taken off, is right as well.
    let text = std::fs::read_to_string(&file).unwrap();
    let shown: Vec<&str> =
        text.lines().skip_while(|line| *line != "#").map(|line| line.trim_start_matches('#')).collect();
    let example = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(example.path(), shown.join("\n")).unwrap();
    let said = finish(gleaner(["config", "check"]).arg(example.path())).with_status(0).stdout;
    assert!(said.contains("right, 2 groups"), "{said}");
    let unit = std::fs::read_to_string(folder.join("gleaner.service")).unwrap();
    let commands = unit.lines().filter(|line| line.starts_with("Exec"));
    let commands: Vec<&str> = commands.map(|line| line.split_once("=/usr/bin/gleaner ").unwrap().1).collect();
    assert_eq!(commands, ["daemon", "reload", "restore"]);
    for command in commands {
        finish(&mut gleaner([command, "--help"])).with_status(0);
    }
}

#[test]
fn a_service_manager_is_told_what_happens() {
    let (program, folder) = (Program::start(), tempfile::tempdir().unwrap());
    let path = folder.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(common::LONGEST_WAIT)).unwrap();
    let told = |words: &str| {
        // Signs of life and the status come between.
        for _ in 0..1000 {
            let mut bytes = [0; 4096];
            let n = manager.recv(&mut bytes).unwrap();
            if String::from_utf8_lossy(&bytes[..n]).contains(words) {
                return;
            }
        }
        panic!("never told {words}");
    };
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let mut daemon = Daemon::start_in(&environment, &group("one", &program, WATCHED));
    told("STATUS=managing one group");
    told("READY=1");
    told("WATCHDOG=1");
    daemon.signal(libc::SIGHUP);
    told("RELOADING=1");
    told("READY=1");
    daemon.says("reloaded");
    assert_eq!(daemon.ends(), (Some(0), false));
    told("STOPPING=1");
    program.ends_well();
}
