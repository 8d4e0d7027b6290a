//! What is wrong is named, with the next step; what is refused is replaced, and that is said; nothing panics.

mod common;

use common::machine::{cgroups_of_run, journals_of_run};
use common::unprivileged::{Unprivileged, json};
use common::{GLEANER, Killed, Said, comes_true, finish, gleaner, is_root, lasting, pid_of, run, send, text_of};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn a_command_that_cannot_be_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let plain = file("plain", "echo x\n", 0o644);
    let no_interpreter = file("no-interpreter", "#!/no/such/interpreter\n", 0o755);
    let headless = file("headless", "echo x\n", 0o755);
    for way in [&["--policy", "off"][..], &["--policy", "full"]] {
        for (command, status, words) in [
            ("no-such-command-anywhere", 127, "not found"),
            ("./no/such/path", 127, "not found"),
            (no_interpreter.as_str(), 127, "not found"),
            ("", 127, "not found"),
            (plain.as_str(), 126, "permission denied"),
            ("/", 126, "it is a folder"),
        ] {
            let said = finish(run(way).args(["--", command])).with_status(status).saying("").naming(&[command, words]);
            assert_eq!(said.stderr.lines().count(), 1, "one line is enough: {said:?}");
        }
        // As a shell does it, and env(1).
        finish(run(way).args(["--", &headless])).with_status(0).saying("x\n");
    }
}

#[test]
fn bad_usage() {
    for (arguments, words) in [
        (&["run"][..], &["CMD"][..]),
        (&["run", "--"], &["CMD"]),
        (&["run", "--policy", "most", "true"], &["most", "consolidate"]),
        (&["run", "--profile", "fast", "true"], &["fast", "balanced"]),
        (&["run", "--retain-for", "5", "true"], &["5", "500us"]),
        (&["run", "--retain-for", "soon", "true"], &["soon", "1ms"]),
        (&["run", "--retain-for", "0ms", "true"], &["1us"]),
        (&["run", "--retain-for", "1h", "true"], &["1s"]),
        (&["run", "--retain-for=-1ms", "true"], &["-1ms"]),
        (&["run", "--retain-for", "99999999999999999999s", "true"], &["99999999999999999999s"]),
        (&["run", "--observer", "perf", "true"], &["perf", "procfs"]),
        (&["run", "--no-such-option", "true"], &["--no-such-option"]),
        (&["probe", "--gap", "0s"], &["0s", "10s"]),
        (&["probe", "--gap", "1000"], &["1000", "1ms"]),
        (&["probe", "--samples", "0"], &["0"]),
        (&["probe", "--setting", "E"], &["E", "A, B, C, D"]),
        (&["doctor", "extra"], &["extra"]),
        (&["restore", "--all"], &["--all"]),
        (&["heal"], &["heal"]),
        (&[], &["run", "doctor"]),
    ] {
        finish(&mut gleaner(arguments)).with_status(2).saying("").naming(words);
    }
}

#[test]
fn a_bad_policy_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    let mark = folder.path().join("mark");
    let with = |path: &Path| {
        let said = finish(run(["--config"]).arg(path).arg("--").arg("touch").arg(&mark)).with_status(2).saying("");
        assert!(!mark.exists(), "the program ran: {said:?}");
        said
    };
    for (text, line, words) in [
        ("load_factor = 0.5\nturns_cpus_max = 101\n", 2, &["turns_cpus_max", "101", "from 0 to 64"][..]),
        ("load_factor = nan\n", 1, &["load_factor", "NaN", "from 0.001 to 1"]),
        ("load_factor = -inf\n", 1, &["load_factor", "from 0.001 to 1"]),
        ("\n\nlod_factor = 0.5\n", 3, &["lod_factor", "load_factor"]),
        ("load_factor = \"much\"\n", 1, &["load_factor", "much"]),
        ("min_time_slice_us = -1\n", 1, &["-1"]),
        ("min_time_slice_us = 1.5\n", 1, &["1.5"]),
        ("load_factor = 0.5\nload_factor = 0.6\n", 2, &["duplicate"]),
        ("load_factor 0.5\n", 1, &["load_factor 0.5"]),
        ("[table]\nx = 1\n", 1, &["table"]),
    ] {
        fs::write(&path, text).unwrap();
        let said = with(&path).naming(&["policy.toml"]).naming(words);
        let line_named =
            [format!("policy.toml:{line}:"), format!("line {line},")].iter().any(|way| said.stderr.contains(way));
        assert!(line_named, "line {line} of {text:?} is not named: {said:#?}");
    }
    fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    with(&path).naming(&["policy.toml", "UTF-8"]);
    with(&folder.path().join("none.toml")).naming(&["none.toml", "No such file"]);
    with(folder.path()).naming(&[&folder.path().display().to_string(), "directory"]);
}

#[test]
fn a_json_file_that_cannot_be_written_is_named_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    for path in [
        folder.path().join("no/such/folder/x.json"),
        folder.path().to_owned(),
        PathBuf::from("/proc/x.json"),
        "".into(),
    ] {
        let name = path.display().to_string();
        let said = finish(run(["--json"]).arg(&path).arg("--").arg("touch").arg(&mark)).with_status(2).naming(&[&name]);
        assert!(!mark.exists(), "the program ran: {said:?}");
        for command in ["doctor", "probe"] {
            finish(gleaner([command, "--json"]).arg(&path)).with_status(2).naming(&[&name]);
        }
    }
    // A full disk shows only in the end: that is said, and the status is the program's all the same.
    let said = finish(run(["--quiet", "--json", "/dev/full", "--"]).args(["sh", "-c", "echo out; exit 3"]));
    said.with_status(3).saying("out\n").naming(&["/dev/full", "No space"]);
    finish(&mut run(["--quiet", "--json", "/dev/full", "--", "true"]))
        .with_status(0)
        .naming(&["/dev/full", "No space"]);
}

/// In a folder like /tmp another user's file may be writable, and still nothing may be moved into its place.
#[test]
fn a_writable_json_file_of_somebody_else_in_a_sticky_folder_is_written() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    let user = Unprivileged::new();
    let shared = user.folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let path = shared.join("x.json");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    finish(user.gleaner(&["doctor", "--json"]).arg(&path)).with_status(0);
    let written: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert!(written["schema"].is_string(), "{written}");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
}

#[test]
fn a_state_folder_that_cannot_be_trusted_or_written_is_not_used() {
    let user = Unprivileged::new();
    let run = |user: &Unprivileged| {
        let words = ["run", "--retain-for", "1ms", "--", "sh", "-c", "sleep $0; exit 3"];
        lasting(|seconds| finish(user.gleaner(&words).arg(seconds))).with_status(3)
    };
    let strict = ["run", "--retain-for", "1ms", "--strict", "--", "echo", "ran"];
    // A file instead of a folder.
    fs::write(user.state(), "").unwrap();
    run(&user).naming(&["nothing is changed", "runtime/gleaner"]);
    finish(&mut user.gleaner(&strict)).with_status(125).saying("").naming(&["--strict", "runtime/gleaner"]);
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["runtime/gleaner"]);
    finish(&mut user.gleaner(&["doctor"])).with_status(0);
    fs::remove_file(user.state()).unwrap();
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    // Somebody else's, with a forged journal in it that would write to the user's files.
    // Called as one that Gleaner sets: nothing else would be set even by the user's own journal.
    let treasure = user.folder.path().join("irq/1/smp_affinity_list");
    fs::create_dir_all(treasure.parent().unwrap()).unwrap();
    fs::write(&treasure, "gold").unwrap();
    user.give(&treasure);
    fs::create_dir(user.state()).unwrap();
    let path = treasure.display();
    let entry = format!(r#"{{"file-value":{{"path":"{path}","had":"lead","set":"gold"}}}}"#);
    let forged = Journal::dead().with(&entry) + "\n";
    fs::write(user.state().join("1-1.journal"), &forged).unwrap();
    run(&user).naming(&["nothing is changed", "belongs to user 0"]);
    finish(&mut user.gleaner(&strict)).with_status(125).saying("").naming(&["belongs to user 0"]);
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["belongs to user 0"]);
    finish(&mut user.gleaner(&["doctor"])).with_status(0).naming(&[]);
    assert_eq!(text_of(&treasure), "gold");
    // The same journal in a folder of the user's own is obeyed: the above could have failed.
    fs::remove_dir_all(user.state()).unwrap();
    // But not one that somebody else has put into that folder, once it was open.
    let planted = user.journal("1-1.journal", &forged);
    std::os::unix::fs::chown(&planted, Some(0), Some(0)).unwrap();
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["belongs to user 0", "remove it"]);
    assert_eq!(text_of(&treasure), "gold");
    user.journal("1-1.journal", &forged);
    finish(&mut user.gleaner(&["restore"])).with_status(0).naming(&["undone"]);
    assert_eq!(text_of(&treasure), "lead");
    // A folder that others may write to.
    user.make_folder(&user.state());
    fs::set_permissions(user.state(), fs::Permissions::from_mode(0o770)).unwrap();
    run(&user).naming(&["nothing is changed", "others may write"]);
    fs::remove_dir(user.state()).unwrap();
    // A runtime folder in which nothing can be made.
    fs::set_permissions(user.runtime(), fs::Permissions::from_mode(0o500)).unwrap();
    run(&user).naming(&["nothing is changed", "Permission denied"]);
    // One that is root's, as under `su`, is not asked.
    chown(user.runtime(), Some(0), Some(0)).unwrap();
    let said = run(&user);
    assert!(!said.stderr.contains("nothing is changed"), "{said:#?}");
}

/// The first line of a journal.
struct Journal {
    version: u32,
    boot_id: String,
    pid: i32,
    start_time: u64,
}

impl Journal {
    /// Of a run that is over: this test's pid, but another process's.
    fn dead() -> Self {
        let boot_id = text_of("/proc/sys/kernel/random/boot_id").trim().to_owned();
        Self { version: 1, boot_id, pid: i32::try_from(std::process::id()).unwrap(), start_time: 1 }
    }

    fn with(&self, lines: &str) -> String {
        let Self { version, boot_id, pid, start_time } = self;
        format!(
            r#"{{"gleaner_journal":{version},"run_id":"t-1","boot_id":"{boot_id}","main_pid":{pid},"main_start_time":{start_time}}}"#
        ) + "\n"
            + lines
    }
}

#[test]
fn restore_undoes_what_it_understands_and_keeps_the_rest() {
    let user = Unprivileged::new();
    finish(&mut user.gleaner(&["restore"])).with_status(0).naming(&["Nothing to restore", "runtime/gleaner"]);
    let own_start = common::machine::stat_field(common::own_pid(), 22).unwrap();
    let entry = r#"{"remove-cgroup":{"path":"/nowhere/at/all"}}"#.to_owned() + "\n";
    let dead = Journal::dead();
    let alive = Journal { start_time: own_start, ..Journal::dead() };
    let other_boot = Journal { boot_id: "another-boot".into(), ..Journal::dead() };
    let other_version = Journal { version: 2, ..Journal::dead() };
    let whole = dead.with(&entry);
    // (journal, status, what is said, whether it is kept)
    let cases = [
        (whole.clone(), 0, "undone (1 entries)", false),
        (whole[..whole.len() - 5].to_owned(), 0, "undone (0 entries)", false),
        (whole[..20].to_owned(), 0, "undone", false),
        (String::new(), 0, "undone", false),
        (other_boot.with("what this is nobody knows any more\n"), 0, "undone (0 entries)", false),
        (alive.with(&entry), 0, "left alone", true),
        (dead.with("nonsense\n"), 1, "t.journal:2", true),
        (dead.with(&(entry.clone() + "{\"burn-down\":1}\n" + &entry)), 1, "t.journal:3", true),
        ("nonsense\n".to_owned(), 1, "t.journal:1", true),
        ("{}\n".to_owned(), 1, "t.journal:1", true),
        (other_version.with(&entry), 1, "version 2", true),
        (dead.with(r#"{"affinity-step":{"active":"9-1"}}"#) + "\n", 0, "undone", false),
        (dead.with(r#"{"group-affinity":{"root_pid":-5,"root_start_time":1,"base":"x-y"}}"#) + "\n", 1, "x-y", true),
    ];
    for (text, status, words, kept) in cases {
        let path = user.journal("t.journal", &text);
        let said = finish(&mut user.gleaner(&["restore"])).with_status(status).naming(&[words]);
        assert_eq!(path.exists(), kept, "{text:?}: {said:#?}");
        if kept {
            assert_eq!(text_of(&path), text, "a journal that is kept is kept as it is");
            // A run beside it says so, and goes on.
            let run = ["run", "--retain-for", "1ms", "--", "sh", "-c", "sleep $0; exit 3"];
            let said = lasting(|seconds| finish(user.gleaner(&run).arg(seconds))).with_status(3);
            assert_eq!(said.stderr.contains("t.journal"), status == 1, "{said:#?}");
            fs::remove_file(path).unwrap();
        }
    }
    // What is no text, no file, or not to be read.
    let path = user.journal("t.journal", "");
    fs::write(&path, [0xff, 0, 0xfe, b'\n']).unwrap();
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["t.journal"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["t.journal", "Permission denied"]);
    fs::remove_file(&path).unwrap();
    user.make_folder(&path);
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["t.journal"]);
    fs::remove_dir(&path).unwrap();
    // A pipe nobody writes to, and a link to nothing: neither is waited for, nor taken for undone.
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["t.journal", "no regular file"]);
    finish(&mut user.gleaner(&["doctor"])).with_status(0);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/nonexistent", &path).unwrap();
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["t.journal"]);
    fs::remove_file(&path).unwrap();
    // One that fails does not keep the next from being undone.
    let (bad, good) = (user.journal("a.journal", "nonsense\n"), user.journal("b.journal", &whole));
    finish(&mut user.gleaner(&["restore"])).with_status(1).naming(&["a.journal:1", "b.journal: undone"]);
    assert!(bad.exists() && !good.exists());
}

#[test]
fn a_run_that_goes_on_is_left_alone_by_restore() {
    let user = Unprivileged::new();
    let mut command = user.gleaner(&["run", "--retain-for", "1ms", "-q", "--", "sleep", "30"]);
    let child = Killed(command.process_group(0).spawn().unwrap());
    let pid = pid_of(&child.0);
    assert!(comes_true(|| !journals_of_run(&user.state(), pid).is_empty()));
    let said = finish(&mut user.gleaner(&["restore"])).with_status(0);
    assert!(said.stderr.contains("left alone") && said.stderr.contains(&pid.to_string()), "{said:#?}");
    assert_eq!(journals_of_run(&user.state(), pid).len(), 1);
    let mut child = child;
    send(pid, libc::SIGTERM);
    assert!(comes_true(|| child.0.try_wait().unwrap().is_some()));
    // It may still have been setting up: then the signal ended it, and its guardian is just undoing.
    assert!(comes_true(|| !user.state().exists()));
}

/// Gleaner where every cgroup file system is read-only, in a mount namespace of its own.
fn with_read_only_cgroups(arguments: &[&str]) -> Said {
    let script = r#"
        mount --make-rprivate / || exit 77
        grep ' cgroup2\? ' /proc/self/mounts | while read -r _ point _; do mount -o remount,bind,ro "$point" || exit 77; done || exit 77
        exec "$@"
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", GLEANER]).args(arguments);
    finish(&mut command)
}

#[test]
fn read_only_cgroups_are_done_without() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    // Where cgroup v1 has the cpu controller, nothing would be set in any case, and that is what is said.
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let is_v1 = mounts.lines().any(|line| line.contains(" cgroup ") && line.contains(",cpu"));
    let why = if is_v1 { "cgroup v1" } else { "Read-only file system" };
    let run = ["run", "--retain", "yielding", "--retain-for", "1ms", "--json", "--", "sh", "-c", "sleep $0; exit 3"];
    let said = lasting(|seconds| with_read_only_cgroups(&[&run[..], &[seconds]].concat()));
    let said = said.with_status(3).naming(&[why, "cpu.idle"]);
    let report = json(&said);
    assert_eq!((&report["means"]["placement"], &report["restored"]), (&"affinity".into(), &true.into()), "{report}");
    with_read_only_cgroups(&["run", "--retain", "yielding", "--strict", "--", "echo", "ran"])
        .with_status(125)
        .saying("")
        .naming(&["--strict", why]);
    let said = with_read_only_cgroups(&["doctor"]).with_status(0);
    assert!(said.stdout.contains(why), "{said:#?}");
    assert!(!said.stdout.contains("gleaner restore"), "something could not be undone: {said:#?}");
}

#[test]
fn one_vcpu_is_enough_for_a_sensible_answer() {
    let only = finish(Command::new("taskset").args(["-pc", &std::process::id().to_string()])).with_status(0);
    let first: String = only.stdout.rsplit(' ').next().unwrap().chars().take_while(char::is_ascii_digit).collect();
    let on_one = |arguments: &[&str]| finish(Command::new("taskset").args(["-c", &first, GLEANER]).args(arguments));
    for policy in ["off", "observe", "retain", "consolidate", "full"] {
        let said = on_one(&["run", "--policy", policy, "--json", "--", "sh", "-c", "sleep 0.3; exit 3"]).with_status(3);
        let report = json(&said);
        assert_eq!((&report["vcpus"], &report["restored"]), (&1.into(), &true.into()), "{report}");
    }
    let said = lasting(|seconds| on_one(&["run", "--", "sh", "-c", "sleep $0; exit 3", seconds])).with_status(3);
    assert!(said.stderr.contains("of 1 vCPUs used"), "{said:#?}");
    let said = on_one(&["probe", "--samples", "50", "--json"]).with_status(0).naming(&["two vCPUs"]);
    let report = json(&said);
    assert_eq!(report["settings"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!((&report["waker_vcpu"], &report["timeouts"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    on_one(&["probe", "--setting", "C"]).with_status(1).naming(&["two vCPUs"]);
    let said = on_one(&["doctor", "--json"]).with_status(0).naming(&["one vCPU"]);
    assert_eq!(json(&said)["verdict"]["would_benefit"], false, "{said:#?}");
}

/// The least memory in which the binary, however large it was built, starts at all, a stack for the thread that runs,
/// and as much for its messages: where these cannot be allocated, nothing can be said.
fn least_memory() -> String {
    let starts = |limit: &String| {
        let version = Command::new("prlimit").args([limit, GLEANER, "--version"]).stdout(Stdio::null()).status();
        version.unwrap().success()
    };
    let limit = |mib: u64| format!("--as={}", mib << 20);
    let least = (8..512).find(|mib| starts(&limit(*mib))).expect("it starts in 512 MiB");
    limit(least + 4)
}

#[test]
fn too_few_of_everything() {
    let user = Unprivileged::new();
    let memory = least_memory();
    let few = ["--nofile=8", "--nofile=12", "--nofile=20", "--nproc=1", "--nproc=3", "--nproc=6", memory.as_str()];
    for limit in few {
        for way in [&["--policy", "full"][..], &["--policy", "off"]] {
            let arguments = [&["run", "--retain-for", "1ms"], way, &["--", "sh", "-c", "exit 3"]].concat();
            let said = finish(&mut user.behind(&["prlimit", limit], &arguments));
            // The shell itself may be what does not fit.
            let known = [Some(3), Some(2), Some(125), Some(126), Some(127)].contains(&said.status);
            assert!(known && (said.status == Some(3) || !said.stderr.is_empty()), "{limit}: {said:#?}");
            // What main could not undo, its guardian does.
            assert!(comes_true(|| !user.state().exists()), "{limit} {way:?}: its journal is left: {said:#?}");
        }
    }
}

#[test]
fn a_folder_that_is_gone_does_no_harm() {
    let script =
        format!("d=$(mktemp -d) && cd $d && rmdir $d && exec {GLEANER} run --retain-for 1ms -q -- sh -c 'exit 3'");
    finish(Command::new("sh").args(["-c", &script])).with_status(3);
    // Nor does an environment without anything.
    finish(run(["--", "/bin/sh", "-c", "exit 3"]).env_clear()).with_status(3);
}

#[test]
fn a_refused_run_leaves_nothing() {
    // The guardian, the journal and the cgroups are made before the command turns out to be missing.
    let mut child = run(["--", "no-such-command-anywhere"]).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(127));
    let pid = pid_of(&child);
    assert_eq!(cgroups_of_run(pid), Vec::<PathBuf>::new());
    assert_eq!(journals_of_run(Path::new("/run/gleaner"), pid), Vec::<PathBuf>::new());
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    for (arguments, status) in [
        (&["workload", "list"][..], 1),
        (&["workload", "relay", "--threads", "2", "--items", "5"], 1),
        (&["host", "list", "--for", "10ms"], 1),
        (&["--help"], 1),
        (&["--version"], 1),
        (&["run", "--help"], 1),
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = gleaner(arguments);
        let output = command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains("No space left"), "{arguments:?}: {said}");
    }
}

#[test]
fn files_without_an_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("x.html");
    finish(gleaner(["report", "/dev/zero", "-o"]).arg(page)).with_status(2).naming(&["/dev/zero", "MiB"]);
    finish(&mut gleaner(["run", "--config", "/dev/zero", "--", "true"])).naming(&["/dev/zero", "longer than"]);
}
