//! `gleaner daemon`: groups that come and go, reloads, faults; nothing is left.

mod common;

use common::daemon::Daemon;
use common::machine::idle_values;
use common::{comes_true, finish, gleaner, is_root, pid_of, program};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that goes on until it is told to end.
struct Program(Child);

impl Program {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(&program::words()[1..]).env(program::MODE, "pairs");
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        pid_of(&self.0)
    }

    /// Tells it to end, and waits for that.
    fn ends_well(mut self) {
        drop(self.0.stdin.take());
        assert_eq!(self.0.wait().unwrap().code(), Some(program::STATUS));
    }
}

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
    let (before, one, two) = (idle_values(), Program::start(), Program::start());
    let mut daemon = Daemon::start(&(group("one", &one, RETAINED) + &group("two", &two, RETAINED)));
    if is_root() && Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists() {
        assert!(comes_true(|| idle_values() != before), "nothing was retained");
    } else {
        gleaner_testing::skipped("needs root and a cpuidle driver");
    }
    // The other one's wish stays.
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
    if !is_root() || !Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists() {
        gleaner_testing::skip!("needs root and a cpuidle driver");
    }
    let (before, program) = (idle_values(), Program::start());
    let daemon = Daemon::start(&group("one", &program, RETAINED));
    assert!(comes_true(|| idle_values() != before), "nothing was retained");
    daemon.signal(libc::SIGKILL);
    assert!(comes_true(|| idle_values() == before), "{:?}", idle_values());
    program.ends_well();
    // The next one begins where a killed one left its lock.
    let state = daemon.state();
    assert!(state.join("daemon.lock").exists());
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
    let before = idle_values();
    let mut daemon = Daemon::start("");
    daemon.signal(libc::SIGHUP);
    daemon.says("reloaded, managing one group");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.ends(), (Some(0), false));
    assert_eq!(idle_values(), before);
}

#[test]
fn a_configuration_is_checked_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let config = |word: &str| finish(gleaner(["config", word]).arg(&file));
    write("[group.redis]\nunit = \"redis\"\nbudgt = \"5%\"\n");
    config("check").with_status(2).naming(&["g.toml:3: unknown key budgt: did you mean budget?"]);
    finish(gleaner(["daemon", "--config"]).arg(&file)).with_status(2).naming(&["g.toml:3: "]);
    write("[group.redis]\nunit = \"redis\"\nbudget = \"5%\"\n");
    let said = config("check").with_status(0).stdout;
    assert!(said.ends_with("g.toml: right, 1 group.\n"), "{said}");
    let shown = config("show").with_status(0).stdout;
    assert!(shown.contains("[group.\"redis\"]") && shown.contains("budget = \"5%\""), "{shown}");
    // What is shown is a configuration.
    write(&shown);
    config("check").with_status(0);
    finish(&mut gleaner(["config", "check", "/no/such/file"]))
        .with_status(2)
        .naming(&["/no/such/file: cannot be read"]);
}
