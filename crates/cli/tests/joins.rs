//! `gleaner run` and `attach` beside a daemon: it manages the program as one more group, and nothing harms the program.

mod common;

use common::daemon::Daemon;
use common::machine::{allowed_of, busy_share, children_of, comm, idle_values, threads_of};
use common::program::{LENIENT, MODE, Program, STATUS, words};
use common::unprivileged::Unprivileged;
use common::{LONGEST_WAIT, Said, comes_true, finish, gleaner, is_root, lasting, own_pid, send};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program under `gleaner run`, which goes on until its stdin ends.
struct Run {
    child: Child,
    folder: tempfile::TempDir,
}

impl Run {
    fn beside(daemon: &Daemon, options: &[&str]) -> Self {
        Self::start(gleaner(["run"]), &daemon.state(), options)
    }

    fn start(mut command: Command, state: &Path, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        command.arg("--daemon-dir").arg(state).args(options).arg("--json").arg(folder.path().join("run.json"));
        command.arg("--").args(words()).env(MODE, "pairs");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap(), folder }
    }

    /// Its report, and what it said.
    fn ends_well(mut self) -> (serde_json::Value, String) {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(STATUS), "{said}");
        let report = std::fs::read(self.folder.path().join("run.json")).unwrap();
        (serde_json::from_slice(&report).unwrap(), said)
    }
}

/// What `start` began, after as long as it takes to be observed.
fn observed(start: impl Fn() -> Run) -> (serde_json::Value, String) {
    for seconds in [1, 4, 16, 64] {
        let run = start();
        std::thread::sleep(Duration::from_secs(seconds));
        let (report, said) = run.ends_well();
        if report["windows"].as_u64() > Some(0) {
            return (report, said);
        }
    }
    panic!("it is not observed");
}

fn status(daemon: &Daemon) -> serde_json::Value {
    serde_json::from_str(&daemon.asked(&["status", "--json"]).with_status(0).stdout).unwrap()
}

fn notes(report: &serde_json::Value) -> String {
    report["warnings"].to_string()
}

/// One that would manage something, and has nothing yet.
const NOTHING_YET: &str = "[group.nobody]\nprogram = \"no-such-program\"\n";

#[test]
fn a_run_joins_and_leaves_with_its_report_on_this_machine() {
    let before = idle_values();
    let mut daemon = Daemon::start(NOTHING_YET);
    let run = Run::beside(&daemon, &["--profile", "latency", "--no-trial", "--budget", "300%"]);
    let said = daemon.says("joins, handed over by process");
    assert!(said.contains("gleaner: run/"), "{said}");
    let group = || status(&daemon)["groups"][0].clone();
    assert!(comes_true(|| group()["cpu_time_ns"].as_u64().is_some_and(|ns| ns > 0)));
    assert_eq!((&group()["policy"], &group()["profile"]), (&"full".into(), &"latency".into()));
    assert!(comes_true(|| group()["decisions_count"].as_u64().is_some_and(|n| n > 0)));
    // A reload leaves it alone.
    daemon.asked(&["reload"]).with_status(0);
    assert_eq!(status(&daemon)["groups"].as_array().unwrap().len(), 1);
    let (report, said) = run.ends_well();
    daemon.says("leaves");
    assert!(said.contains("managed by the daemon (process "), "{said}");
    assert!(notes(&report).contains("as run/"), "{report}");
    assert_eq!((&report["schema"], &report["restored"]), (&"gleaner.run/1".into(), &true.into()));
    assert_eq!((&report["policy"], &report["exit_status"]), (&"full".into(), &STATUS.into()));
    assert!(report["threads_max"].as_u64().unwrap() > 1 && report["cpu_time_ns"].as_u64().unwrap() > 0, "{report}");
    assert!(report["wall_ns"].as_u64() >= report["decisions"][0]["at_ns"].as_u64(), "{report}");
    assert!(!report["decisions"].as_array().unwrap().is_empty(), "{report}");
    assert_eq!(status(&daemon)["groups"].as_array().unwrap().len(), 0);
    assert!(comes_true(|| idle_values() == before), "{:?}", idle_values());
    assert_eq!(daemon.ends(), (Some(0), false));
}

/// The package's configuration names no group, and `run` has to do its work beside it.
#[test]
fn a_daemon_that_watches_everything_takes_a_run_too() {
    let mut daemon = Daemon::start("");
    let run = Run::beside(&daemon, &["--policy", "observe"]);
    daemon.says("joins, handed over");
    assert!(comes_true(|| {
        let status = status(&daemon);
        let names: Vec<_> = status["groups"].as_array().unwrap().iter().map(|group| group["name"].clone()).collect();
        names.len() == 2 && names[0] == "machine"
    }));
    assert!(notes(&run.ends_well().0).contains("managed by the daemon"));
    assert_eq!(daemon.ends(), (Some(0), false));
}

/// Of the threads that the program leaves to the kernel: whether one is confined.
fn is_confined(program: i32) -> bool {
    let all = allowed_of(own_pid()).unwrap();
    let mut free = threads_of(program).into_iter().filter(|(tid, _)| comm(*tid) == "any");
    free.any(|(tid, _)| allowed_of(tid).is_some_and(|allowed| allowed != all))
}

#[test]
fn a_group_that_joined_is_confined_by_itself_and_given_back_whoever_is_killed_machine() {
    if !is_root() || allowed_of(own_pid()).is_some_and(|all| all == "0") {
        gleaner_testing::skip!("needs root and two vCPUs");
    }
    if busy_share() > 0.2 {
        gleaner_testing::skip!("needs a machine with idle time");
    }
    let folder = tempfile::tempdir().unwrap();
    let lenient = folder.path().join("lenient.toml");
    std::fs::write(&lenient, LENIENT).unwrap();
    let mut daemon = Daemon::start("[daemon]\nretain = \"yielding\"\n[group.nobody]\nprogram = \"no-such-program\"\n");
    let mut start = |options: &[&str]| {
        let run = Run::beside(&daemon, options);
        daemon.says("joins, handed over");
        let pid = i32::try_from(run.child.id()).unwrap();
        assert!(comes_true(|| !children_of(pid).is_empty()));
        (run, children_of(pid)[0])
    };
    let consolidates = ["--no-trial", "--config", lenient.to_str().unwrap()];
    let (mut killed, first) = start(&consolidates);
    let (last, second) = start(&consolidates);
    let (watched, third) = start(&["--policy", "observe"]);
    assert!(comes_true(|| is_confined(first) && is_confined(second)), "nobody was consolidated");
    send(i32::try_from(killed.child.id()).unwrap(), libc::SIGKILL);
    killed.child.wait().unwrap();
    assert!(comes_true(|| !is_confined(first)), "its runner is no more");
    // It may just be given all vCPUs for a burst.
    assert!(comes_true(|| is_confined(second)) && !is_confined(third), "the others are managed as before");
    let (report, _) = watched.ends_well();
    assert_eq!(report["means"]["placement"], serde_json::Value::Null, "{report}");
    daemon.signal(libc::SIGKILL);
    assert!(comes_true(|| !is_confined(second)), "the guardian gives it back");
    let (report, said) = last.ends_well();
    assert!(said.contains("the daemon has ended"), "{said}\n{report}");
}

#[test]
fn a_run_goes_on_when_the_daemon_is_killed_machine() {
    let before = idle_values();
    let mut daemon = Daemon::start(NOTHING_YET);
    let mut run = Run::beside(&daemon, &["--no-trial"]);
    daemon.says("joins, handed over");
    // By now it has its answer.
    assert!(comes_true(|| status(&daemon)["groups"][0]["cpu_time_ns"].as_u64().is_some_and(|ns| ns > 0)));
    daemon.signal(libc::SIGKILL);
    assert!(comes_true(|| !daemon.is_running()));
    assert!(comes_true(|| idle_values() == before), "{:?}", idle_values());
    assert!(run.child.try_wait().unwrap().is_none(), "the program ended with the daemon");
    let (report, said) = run.ends_well();
    assert!(said.contains("gleaner: the daemon has ended, and the program goes on unmanaged"), "{said}");
    assert_eq!((&report["threads_max"], &report["restored"]), (&serde_json::Value::Null, &true.into()));
}

#[test]
fn a_daemon_lets_go_when_the_run_is_killed() {
    let mut daemon = Daemon::start(NOTHING_YET);
    let mut run = Run::beside(&daemon, &["--policy", "observe"]);
    daemon.says("joins, handed over");
    send(i32::try_from(run.child.id()).unwrap(), libc::SIGKILL);
    run.child.wait().unwrap();
    daemon.says("is managed no more: who handed it over has ended");
    // The program goes on until its stdin ends.
    drop(run);
    assert_eq!(daemon.ends(), (Some(0), false));
}

#[test]
fn a_stopped_daemon_keeps_nobody_waiting() {
    let daemon = Daemon::start(NOTHING_YET);
    daemon.signal(libc::SIGSTOP);
    let (report, _) = observed(|| Run::beside(&daemon, &["--policy", "observe"]));
    assert!(notes(&report).contains("managed beside the daemon, not by it: no answer"), "{report}");
    daemon.signal(libc::SIGCONT);
}

#[test]
fn what_the_daemon_refuses_or_does_not_know_the_run_does_itself() {
    let daemon = Daemon::start("[daemon]\nretain = \"none\"\n[group.nobody]\nprogram = \"no-such-program\"\n");
    for (options, why) in [
        (&["--policy", "retain"][..], "daemon.retain"),
        (&["--policy", "observe", "--observer", "procfs"], "does not know --observer"),
        (&["--policy", "observe", "--overhead", "1"], "does not know --overhead"),
    ] {
        let (report, said) = observed(|| Run::beside(&daemon, options));
        assert!(notes(&report).contains("managed beside the daemon, not by it: ") && said.contains(why), "{said}");
    }
    let (report, _) = Run::beside(&daemon, &["--policy", "observe", "--no-daemon"]).ends_well();
    assert_eq!(report["warnings"].as_array().unwrap().len(), 0, "{report}");
    assert_eq!(daemon.ends(), (Some(0), false));
}

#[test]
fn attach_joins_and_leaves() {
    let (mut daemon, program) = (Daemon::start(NOTHING_YET), Program::start());
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("attach.json");
    let state = daemon.state();
    let attach = |more: &[&str]| -> Said {
        let mut command = gleaner(["attach", "--pid", &program.pid().to_string(), "--policy", "observe"]);
        finish(command.args(more).arg("--daemon-dir").arg(&state).arg("--json").arg(&json))
    };
    // Until there was a window meanwhile.
    let is_seen = ["1s", "5s", "25s"].into_iter().any(|time| {
        attach(&["--for", time]).with_status(0).naming(&["managed by the daemon", "attached to process"]);
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!((&report["attached"], &report["restored"]), (&true.into(), &true.into()));
        daemon.says("leaves");
        report["cpu_time_ns"].as_u64() > Some(0)
    });
    assert!(is_seen, "it is not observed");
    program.ends_well();
    assert_eq!(daemon.ends(), (Some(0), false));
}

#[test]
fn what_is_managed_already_does_not_join() {
    let program = Program::start();
    let daemon = Daemon::start(&format!("[group.one]\npid = {}\nprofile = \"observe-only\"\n", program.pid()));
    let mut command = gleaner(["attach", "--pid", &program.pid().to_string(), "--policy", "observe", "--for", "1s"]);
    let said = finish(command.arg("--daemon-dir").arg(daemon.state())).with_status(0);
    said.naming(&["managed beside the daemon, not by it: it is managed already, as one"]);
    assert_eq!(daemon.ends(), (Some(0), false));
    program.ends_well();
}

/// A user whom the socket does not let in, then one of `control.group`.
#[test]
fn another_users_run_joins_where_that_user_may_ask_and_only_with_its_own() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    let (user, of_root) = (Unprivileged::new(), Program::start());
    let reachable = |daemon: &Daemon| {
        let folder = daemon.state().parent().unwrap().to_owned();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run = |daemon: &Daemon, options: &[&str]| {
        let start = |seconds: &str| {
            let mut command = user.gleaner(&["run", "--daemon-dir"]);
            finish(command.arg(daemon.state()).args(options).args(["--policy", "observe", "--", "sleep", seconds]))
        };
        lasting(start).with_status(0)
    };
    let daemon = Daemon::start(NOTHING_YET);
    reachable(&daemon);
    run(&daemon, &[]).naming(&["managed beside the daemon, not by it: the daemon does not listen to you"]);
    assert_eq!(daemon.ends(), (Some(0), false));

    let daemon = Daemon::start(&format!("[control]\ngroup = \"65534\"\n{NOTHING_YET}"));
    reachable(&daemon);
    run(&daemon, &[]).naming(&["managed by the daemon"]);
    run(&daemon, &["--no-trial"]).naming(&["managed beside", "only root and the daemon's own user may ask for"]);
    // Straight to the socket: a process of root's, then the first one.
    for pid in [of_root.pid(), 1] {
        let request = format!(
            "{{\"request\":\"join\",\"name\":\"x\",\"pid\":{pid},\"policy\":\"retain\",\"profile\":\"balanced\"}}\n"
        );
        let answer = asked_as_nobody(&daemon, &request);
        assert!(answer.contains(&format!("process {pid} is not yours")), "{answer}");
    }
    assert!(asked_as_nobody(&daemon, "{\"request\":\"leave\",\"group\":1}\n").contains("no such group of yours"));
    assert_eq!(status(&daemon)["groups"].as_array().unwrap().len(), 0);
    assert_eq!(daemon.ends(), (Some(0), false));
    of_root.ends_well();
}

/// What the daemon answers the user nobody.
fn asked_as_nobody(daemon: &Daemon, request: &str) -> String {
    const NOBODY: libc::c_long = 65_534;
    let (socket, request) = (daemon.state().join("gleaner.sock"), request.to_owned());
    let ask = move || {
        for call in [libc::SYS_setresgid, libc::SYS_setresuid] {
            // SAFETY: no memory is passed. The kernel's own call changes this thread alone, which ends here.
            assert_eq!(unsafe { libc::syscall(call, NOBODY, NOBODY, NOBODY) }, 0);
        }
        asked(&socket, &request)
    };
    std::thread::spawn(ask).join().unwrap()
}

fn asked(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LONGEST_WAIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The one that leaves has to be the one that came.
#[test]
fn a_group_is_not_told_to_leave_by_garbage() {
    let mut daemon = Daemon::start(NOTHING_YET);
    let run = Run::beside(&daemon, &["--policy", "observe"]);
    daemon.says("joins, handed over");
    for request in ["{\"request\":\"leave\",\"group\":99}\n", "{\"request\":\"leave\"}\n", "{\"request\":\"join\"}\n"] {
        let answer = asked(&daemon.state().join("gleaner.sock"), request);
        assert!(answer.contains("error"), "{answer}");
    }
    assert_eq!(status(&daemon)["groups"].as_array().unwrap().len(), 1);
    assert!(notes(&run.ends_well().0).contains("managed by the daemon"));
    assert_eq!(daemon.ends(), (Some(0), false));
}

/// Does not outlive its test; nor does its program.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let runner = i32::try_from(self.0.id()).unwrap();
            for pid in children_of(runner) {
                send(pid, libc::SIGKILL);
            }
            let _ = self.0.wait();
        }
    }
}

/// Whoever joins may call a process what they like.
#[test]
fn a_configured_group_has_its_program_although_somebody_who_joined_took_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("gl-victim");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let run = |daemon: &Daemon| {
        let mut command = gleaner(["run", "--policy", "observe", "--daemon-dir"]);
        command.arg(daemon.state()).arg("--").arg(&program).arg("600");
        Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let configured = "[group.victim]\nprogram = \"gl-victim\"\nprofile = \"observe-only\"\n";
    for configuration in [configured.to_owned(), format!("[daemon]\ngroups_max = 1\n{configured}")] {
        let mut daemon = Daemon::start(NOTHING_YET);
        let mut taker = run(&daemon);
        daemon.says("joins, handed over by process");
        let runner = i32::try_from(taker.0.id()).unwrap();
        let children = || children_of(runner);
        assert!(comes_true(|| children().iter().any(|pid| comm(*pid) == "gl-victim")));
        let child = children()[0];
        std::fs::write(daemon.configuration(), &configuration).unwrap();
        daemon.asked(&["reload"]).with_status(0);
        daemon.says("is managed no more: some of it is victim, which was configured");
        daemon.says("victim: program gl-victim is managed");
        let names = status(&daemon)["groups"].to_string();
        assert!(names.contains("\"victim\"") && !names.contains("run/"), "{names}");
        send(child, libc::SIGTERM);
        let mut said = String::new();
        taker.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        taker.0.wait().unwrap();
        assert!(said.contains("no such group of yours"), "{said}");
        assert_eq!(daemon.ends(), (Some(0), false));
    }
}
