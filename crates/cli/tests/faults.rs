//! What happens to a service that is always there: full disks, floods, a kernel that changes its mind half-way. It goes
//! on as far as it can, or ends, and leaves nothing changed. (`testbed/faults.sh` has what takes a machine of its own:
//! the clock that jumps, vCPUs that come and go.)

mod common;

use common::daemon::{Daemon, RETAINED, WATCHED, group};
use common::machine::{idle_values, why_not_kept_awake};
use common::program::Program;
use common::seccomp::refusing_bpf;
use common::{comes_true, finish, lasting, run};
use gleaner_act::{FileValue, Journal};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The daemon after this script of sh, in a mount namespace of its own; `$W` is `folder`.
fn after(script: &str, folder: &Path) -> impl FnOnce(Command) -> Command {
    let script = format!("{script}; exec \"$@\"");
    let folder = folder.to_owned();
    move |usual| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, "sh"]).arg(usual.get_program()).args(usual.get_args());
        command.env("W", folder).env_remove("GLEANER_LOG").env_remove("GLEANER_RUN_ID");
        command
    }
}

fn warnings(daemon: &Daemon) -> String {
    let said = daemon.asked(&["status", "--json"]).with_status(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    json["warnings"].to_string()
}

#[test]
fn with_a_full_run_folder_it_watches_and_changes_nothing_machine() {
    if let Some(why) = why_not_kept_awake() {
        gleaner_testing::skip!("{why}");
    }
    let (before, program, folder) = (idle_values(), Program::start(), tempfile::tempdir().unwrap());
    let configuration = "[capture]\nfolder = \"/run/recorder\"\n".to_owned() + &group("one", &program, RETAINED);
    let full = "mount -t tmpfs -o size=8k none /run && head -c 99999 /dev/zero >/run/full 2>/dev/null";
    let daemon = Daemon::start_as(&configuration, after(full, folder.path()));
    let told = || warnings(&daemon);
    assert!(comes_true(|| told().contains("recording has stopped")), "{}", told());
    assert!(told().contains("nothing is changed, only observed") && told().contains("No space left"), "{}", told());
    assert_eq!(told().matches("recording has stopped").count(), 1);
    assert_eq!(idle_values(), before);
    assert_eq!(daemon.ends(), (Some(0), false));
    assert_eq!(idle_values(), before);
    program.ends_well();
}

#[test]
fn where_the_run_folder_fills_up_everything_is_undone_all_the_same_machine() {
    if let Some(why) = why_not_kept_awake() {
        gleaner_testing::skip!("{why}");
    }
    let (before, program, folder) = (idle_values(), Program::start(), tempfile::tempdir().unwrap());
    let fills_up = "mount -t tmpfs -o size=64k none /run && \
                    (while [ ! -e $W/go ]; do sleep 0.05; done; head -c 999999 /dev/zero >/run/full 2>/dev/null; touch $W/full) &";
    let fills_up = format!("{{ {fills_up} }}");
    let daemon = Daemon::start_as(&group("one", &program, RETAINED), after(&fills_up, folder.path()));
    assert!(comes_true(|| idle_values() != before), "nothing was retained: {}", warnings(&daemon));
    std::fs::write(folder.path().join("go"), "").unwrap();
    assert!(comes_true(|| folder.path().join("full").exists()));
    // What is to be set now cannot be journalled.
    std::fs::write(daemon.configuration(), group("one", &program, &format!("{RETAINED}\nretain_for = \"77us\"")))
        .unwrap();
    daemon.asked(&["reload"]).with_status(0);
    daemon.asked(&["status"]).with_status(0);
    assert_eq!(daemon.ends(), (Some(0), false));
    assert_eq!(idle_values(), before);
    program.ends_well();
}

#[test]
fn a_stopped_daemon_keeps_no_vcpu_awake_and_goes_on_machine() {
    if let Some(why) = why_not_kept_awake() {
        gleaner_testing::skip!("{why}");
    }
    let (before, program) = (idle_values(), Program::start());
    let daemon = Daemon::start(&group("one", &program, RETAINED));
    assert!(comes_true(|| idle_values() != before), "nothing was retained");
    daemon.signal(libc::SIGSTOP);
    assert!(comes_true(|| idle_values() == before), "its guardian takes back what was set");
    daemon.signal(libc::SIGCONT);
    assert!(comes_true(|| idle_values() != before), "and it sets that again");
    assert_eq!(daemon.ends(), (Some(0), false));
    assert_eq!(idle_values(), before);
    program.ends_well();
}

#[test]
fn bpf_refused_half_way_leaves_nothing_changed_machine() {
    let (before, program) = (idle_values(), Program::start());
    // Creating and filling maps, loading programs, attaching them in the old way and the new, types.
    for bpf_command in [0, 2, 5, 17, 18, 28] {
        for (means, instead) in [("idle-poll", "instead of idle-poll"), ("yielding", "observing through /proc")] {
            let said = lasting(|seconds| {
                let mut command = run(["--retain", means, "--", "sh", "-c", "echo ran; sleep $0; exit 3", seconds]);
                refusing_bpf(&mut command, bpf_command);
                finish(&mut command)
            });
            let said = said.with_status(3).saying("ran\n");
            // Without maps and programs there is nothing to go on with.
            let refused = said.stderr.contains(instead);
            assert!(refused || ![0, 5].contains(&bpf_command), "command {bpf_command}, {means}: {said:#?}");
        }
        let configuration = group("one", &program, RETAINED);
        let daemon = Daemon::start_as(&configuration, |mut command| {
            refusing_bpf(&mut command, bpf_command);
            command
        });
        daemon.asked(&["status"]).with_status(0);
        assert_eq!(daemon.ends(), (Some(0), false), "command {bpf_command}");
        assert_eq!(idle_values(), before, "command {bpf_command}");
    }
    program.ends_well();
}

#[test]
fn a_thousand_clients_at_once_that_never_read_keep_nobody_waiting() {
    // Who holds a thousand needs as many descriptors.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain data, filled and read by the calls.
    let may = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 && limit.rlim_max > 1_200
    };
    if !may {
        gleaner_testing::skip!("needs 1,200 open files");
    }
    let program = Program::start();
    let daemon = Daemon::start(&group("one", &program, WATCHED));
    let of = |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", daemon.pid())).unwrap().count();
    daemon.asked(&["status"]).with_status(0);
    let (files, threads, memory) = (of("fd"), of("task"), resident_kib(daemon.pid()));
    let mut silent = Vec::new();
    for n in 0..1000 {
        let mut stream = std::os::unix::net::UnixStream::connect(daemon.state().join("gleaner.sock")).unwrap();
        // Some never write, either.
        if n % 3 != 0 {
            let _ = std::io::Write::write_all(&mut stream, b"{\"request\":\"status\"}\n");
        }
        silent.push(stream);
    }
    for _ in 0..3 {
        daemon.asked(&["status"]).with_status(0);
    }
    assert!(of("fd") < files + 50 && of("task") == threads, "{} files, {} threads", of("fd"), of("task"));
    let grown = resident_kib(daemon.pid()).saturating_sub(memory);
    assert!(grown < 16 << 10, "{grown} KiB");
    drop(silent);
    assert!(comes_true(|| of("fd") <= files + 1), "{} files, and {files} before", of("fd"));
    assert_eq!(daemon.ends(), (Some(0), false));
    program.ends_well();
}

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Shortened: the test of a minute and more is `scripts/soak.sh`.
#[test]
fn a_soak_of_half_a_minute_leaves_memory_files_and_threads_flat() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/soak.sh");
    let mut command = Command::new(script);
    command.args(["--seconds", "30", "--dry-run", "--binary", common::GLEANER]);
    let said = finish(&mut command).with_status(0);
    assert!(said.stdout.contains("flat"), "{said:?}");
}

/// Main may be stopped before it says that it is to be watched, and again in the middle of setting something, without a
/// sign of life between.
#[test]
fn a_guardian_takes_values_back_untold_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let value = folder.path().join("irq/1/smp_affinity_list");
    fs::create_dir_all(value.parent().unwrap()).unwrap();
    fs::write(&value, "ours").unwrap();
    let mut journal = Journal::create(&folder.path().join("state"), "run-1").unwrap();
    journal.before(&FileValue { path: value.clone(), had: "before".into(), set: "ours".into() }).unwrap();
    // The last sign of life, long ago.
    let heart = tempfile::tempfile().unwrap();
    heart.write_all_at(&1_u64.to_ne_bytes(), 0).unwrap();
    let mut guardian = Command::new(env!("CARGO_BIN_EXE_gleaner"));
    guardian.arg("guardian").arg(journal.path()).stdin(Stdio::piped()).stdout(heart).stderr(Stdio::null());
    let mut guardian = guardian.spawn().unwrap();
    for round in 0..3 {
        assert!(comes_true(|| fs::read_to_string(&value).unwrap() == "before"), "round {round}");
        fs::write(&value, "ours").unwrap();
    }
    guardian.stdin.take().unwrap().write_all(b".").unwrap();
    assert!(guardian.wait().unwrap().success());
}
