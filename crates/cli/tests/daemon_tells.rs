//! What a daemon says of its groups, and by whom they are seen.

mod common;

use common::daemon::{Daemon, RETAINED, WATCHED, group};
use common::program::Program;
use common::{Said, comes_true, finish, gleaner, is_root};
use std::path::Path;

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
    daemon.asked(&["explain", "999"]).with_status(2).naming(&["there is no vCPU 999, and no group of that name"]);
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

#[test]
fn a_daemon_that_says_nothing_is_named_and_not_waited_for() {
    let program = Program::start();
    let mut daemon = Daemon::start(&group("one", &program, WATCHED));
    daemon.signal(libc::SIGSTOP);
    let process = format!("process {} said nothing for 10 s", daemon.pid());
    daemon.asked(&["status"]).with_status(1).naming(&[&process, "it may be stopped"]);
    daemon.signal(libc::SIGCONT);
    assert!(daemon.is_running());
    daemon.asked(&["status"]).with_status(0);
    assert_eq!(daemon.ends(), (Some(0), false));
    program.ends_well();
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
    let run = |observer: &str, seconds: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("g.toml");
        let keys = format!("[daemon]\nobserver = \"{observer}\"\nretain = \"yielding\"\n[group.a]\npid = 1\n");
        std::fs::write(&file, keys).unwrap();
        let mut daemon = gleaner(["daemon", "--config", file.to_str().unwrap()]);
        daemon.arg("--state-dir").arg(folder.path().join("state"));
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "timeout", "--preserve-status", seconds]);
        command.arg(daemon.get_program()).args(daemon.get_args());
        finish(&mut command)
    };
    run("bpf", "60").with_status(1).naming(&["PID namespace"]);
    // It is ended once it has begun.
    let begins = |said: &Said| said.stderr.contains("managing one group");
    let said = ["3", "12", "48"].into_iter().map(|seconds| run("auto", seconds)).find(begins).expect("it begins");
    said.with_status(0).naming(&["observing through /proc", "PID namespace"]);
}

#[test]
fn a_status_tells_of_every_vcpu_and_of_what_is_recent() {
    let program = Program::start();
    let daemon = Daemon::start(&group("one", &program, WATCHED));
    let statuses = std::iter::repeat_with(|| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let said = daemon.asked(&["status", "--json"]).with_status(0);
        serde_json::from_str::<serde_json::Value>(&said.stdout).unwrap()
    });
    // One to two seconds of windows, and a group that has been at work in them.
    let is_full = |status: &serde_json::Value| {
        status["recent"]["observed_ns"].as_u64() > Some(1_000_000_000)
            && status["groups"][0]["recent"]["g_comp_ns"].as_f64() > Some(0.0)
    };
    let status = statuses.take(600).find(is_full).expect("a status with something recent in it");
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
