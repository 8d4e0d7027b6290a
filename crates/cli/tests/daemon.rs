//! `gleaner daemon`: groups that come and go, reloads, faults; nothing is left.

mod common;

use common::daemon::{Daemon, RETAINED, WATCHED, group};
use common::machine::{idle_values, why_not_kept_awake};
use common::program::Program;
use common::{comes_true, finish, gleaner, is_root};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
