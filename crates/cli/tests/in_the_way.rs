//! What may be in Gleaner's way, and must not be in the program's: files that are not there or are somebody else's,
//! limits that were meant for the program, processes and threads that are refused. The program runs as it would alone,
//! and one line says why it was not managed; only `--strict` refuses.

mod common;

use common::unprivileged::Unprivileged;
use common::{GLEANER, Said, finish, is_root, lasting, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Skipped aloud: a namespace, a mount or a cgroup takes root.
fn needs_root() -> bool {
    if !is_root() {
        gleaner_testing::skipped("needs root");
    }
    !is_root()
}

/// A script of sh, in namespaces of its own; `$G` is gleaner, `$W` a folder.
fn in_namespaces(flags: &[&str], folder: &Path, script: &str) -> Said {
    let mut command = Command::new("unshare");
    command.args(flags).args(["sh", "-c", script]).env("G", GLEANER).env("W", folder);
    finish(command.env_remove("GLEANER_LOG").env_remove("GLEANER_RUN_ID"))
}

/// A script of sh on this machine as it is.
fn sh(script: &str) -> Said {
    finish(Command::new("sh").args(["-c", script]).env("G", GLEANER).env_remove("GLEANER_RUN_ID"))
}

const RUN: &str = "$G run --retain-for 1ms";

#[test]
fn a_proc_without_the_machines_files_costs_nobody_a_run() {
    if needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = |what: &str, strict: &str, seconds: &str| {
        format!("{what} || exit 90; {RUN} {strict} -- sh -c 'echo ran; sleep {seconds}; exit 3'")
    };
    fs::write(folder.path().join("empty"), "").unwrap();
    fs::write(folder.path().join("garbage"), "cpu0 1\nno\u{1}thing\n").unwrap();
    for (what, why) in [
        // systemd's ProcSubset=pid.
        ("mount -t proc -o subset=pid proc /proc", "cannot read /proc/stat"),
        ("mount -t proc proc /proc && mount --bind $W/empty /proc/stat", ""),
        ("mount -t proc proc /proc && mount --bind $W/garbage /proc/stat", "/proc/stat:1"),
        ("mount -t proc -o hidepid=2 proc /proc", ""),
        // None at all.
        ("mount -t tmpfs none /proc", "/proc"),
        ("mount -t tmpfs none /sys", ""),
        ("mount -t tmpfs none /proc && mount -t tmpfs none /sys", "/proc"),
    ] {
        let said = lasting(|seconds| in_namespaces(&["-mpf"], folder.path(), &script(what, "", seconds)));
        let said = said.with_status(3).saying("ran\n");
        assert!(said.stderr.contains(why), "{what}: {said:#?}");
        if !why.is_empty() {
            assert_eq!(said.stderr.matches("unmanaged").count(), 1, "{what}: {said:#?}");
            in_namespaces(&["-mpf"], folder.path(), &script(what, "--strict", "0"))
                .with_status(125)
                .saying("")
                .naming(&["--strict"]);
        }
    }
}

/// A kernel that lacks what a means needs: doctor names it, and a run uses the next one.
#[test]
fn what_a_means_lacks_is_named_and_the_next_one_is_used_on_this_machine() {
    if needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = |said: &Said| -> serde_json::Value { serde_json::from_str(&said.stdout).unwrap() };
    let whole = json(&finish(Command::new(GLEANER).args(["doctor", "--json"])));
    let available = |report: &serde_json::Value, name: &str| {
        let found = report["actuators"].as_array().unwrap().iter().find(|found| found["name"] == name).unwrap().clone();
        (found["available"].as_bool().unwrap(), found["detail"].as_str().unwrap().to_owned())
    };
    let in_order = ["haltpoll", "idle-poll", "pm-qos", "yielding"];
    let mut tried = 0;
    for (what, refused, why) in [
        ("mount -o remount,bind,ro /sys", &["haltpoll", "pm-qos"][..], "Read-only file system"),
        ("mount -t tmpfs none /sys/devices/system/cpu", &["haltpoll", "pm-qos"], "no cpuidle driver"),
        ("mount -t tmpfs none /sys/module", &["haltpoll"], "haltpoll"),
        ("mount -t tmpfs none /sys/kernel/btf", &["idle-poll"], "CONFIG_DEBUG_INFO_BTF"),
    ] {
        let run = format!("{what} || exit 90; $G doctor --json");
        let report = json(&in_namespaces(&["-m"], folder.path(), &run).with_status(0));
        for name in refused {
            // What the whole machine does not have says its own reason.
            if available(&whole, name).0 || why.contains("BTF") {
                tried += 1;
                let (there, detail) = available(&report, name);
                assert!(!there && detail.contains(why), "{what}: {name}: {detail}");
            }
        }
        let left = in_order.iter().find(|name| available(&report, name).0);
        let run = format!("{what} || exit 90; $G run --policy retain --profile latency --json -- sh -c");
        let said =
            lasting(|seconds| in_namespaces(&["-m"], folder.path(), &format!("{run} 'sleep {seconds}; exit 3'")));
        let used = json(&said.with_status(3))["means"]["retention"].clone();
        assert_eq!(used.as_str(), left.copied(), "{what}");
    }
    assert!(tried > 0, "{whole}");
}

#[test]
fn folders_that_cannot_be_written_cost_nobody_a_run() {
    if needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for what in ["mount -t tmpfs -o ro none /run", "mount -t tmpfs -o ro none /run; mount -t tmpfs -o ro none /tmp"] {
        // In a clone below /tmp that hides the binary too.
        let what = format!("exec 9<$G; G=/proc/self/fd/9; {what}");
        let said = lasting(|seconds| {
            let script = format!("{what}; {RUN} -- sh -c 'echo ran; sleep {seconds}; exit 3'");
            in_namespaces(&["-m"], folder.path(), &script)
        });
        said.with_status(3).saying("ran\n").naming(&["nothing is changed", "/run/gleaner"]);
        let strict = format!("{what}; {RUN} --strict -- echo ran");
        in_namespaces(&["-m"], folder.path(), &strict)
            .with_status(125)
            .saying("")
            .naming(&["--strict", "/run/gleaner"]);
    }
}

#[test]
fn the_proc_of_another_pid_namespace_is_recognized() {
    if needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The outer /proc, in which pid 1 is the machine's init.
    for policy in ["observe", "consolidate", "full"] {
        let said = lasting(|seconds| {
            let options = format!("--policy {policy} --json $W/x.json");
            in_namespaces(&["-pf"], folder.path(), &format!("{RUN} {options} -- sh -c 'sleep {seconds}; exit 3'"))
        });
        let said = said.with_status(3).naming(&["another PID namespace", "unmanaged"]);
        let report = fs::read_to_string(folder.path().join("x.json")).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["threads_max"], serde_json::Value::Null, "{said:#?}");
        assert_eq!(report["warnings"].as_array().unwrap().len(), 1, "{report}");
    }
    // With one of its own it is managed.
    let said = lasting(|seconds| {
        let script = format!("{RUN} --json $W/x.json -- sh -c 'sleep {seconds}; exit 3'");
        in_namespaces(&["-pf", "--mount-proc"], folder.path(), &script)
    });
    said.with_status(3);
    let report = fs::read_to_string(folder.path().join("x.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!((1..=4).contains(&report["threads_max"].as_u64().unwrap()), "{report}");
}

#[test]
fn a_containers_own_cpu_numbers_are_not_taken_for_the_kernels() {
    if needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let last = gleaner_sys::usable_cpus(&gleaner_sys::ProcRoot::default()).iter().next_back().unwrap();
    if last.0 == 0 {
        gleaner_testing::skip!("needs a CPU other than 0");
    }
    let stat = "cpu  10 0 10 1000 0 0 0 0 0 0\ncpu0 10 0 10 1000 0 0 0 0 0 0\nctxt 9\nprocesses 1\n";
    for (online, stat, observer, why) in [
        (Some("0"), Some(stat), "auto", ""),
        (Some("0"), Some(stat), "procfs", "numbers its CPUs otherwise"),
        (Some("0"), None, "procfs", ""),
        (Some(""), None, "procfs", ""),
        (Some("none"), None, "procfs", ""),
        (Some("7000-8000"), None, "procfs", ""),
    ] {
        let mut mounts = Vec::new();
        for (text, path) in [(online, "/sys/devices/system/cpu/online"), (stat, "/proc/stat")] {
            let Some(text) = text else { continue };
            let file = folder.path().join(path.replace('/', "-"));
            fs::write(&file, format!("{text}\n")).unwrap();
            mounts.push(format!("mount --bind {} {path} && ", file.display()));
        }
        let mounts = mounts.concat();
        let on_last = format!("taskset -c {} {RUN} --observer {observer}", last.0);
        let said = lasting(|seconds| {
            let script = format!("{mounts} {on_last} --json $W/x.json -- sh -c 'sleep {seconds}; exit 3'");
            in_namespaces(&["-m"], folder.path(), &script)
        });
        let said = said.with_status(3);
        assert!(
            said.stderr.contains(why) && (!why.is_empty() || said.stderr.contains("of 1 vCPUs")),
            "{online:?}: {said:#?}"
        );
        let report: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(folder.path().join("x.json")).unwrap()).unwrap();
        assert_eq!((&report["vcpus"], &report["active_vcpus_mean"]), (&1.into(), &1.0.into()), "{online:?} {report}");
        let script = format!("{mounts} taskset -c {} $G probe --samples 20 --setting A", last.0);
        in_namespaces(&["-m"], folder.path(), &script).with_status(0);
        let script = format!("{mounts} taskset -c {} $G doctor", last.0);
        in_namespaces(&["-m"], folder.path(), &script).with_status(0);
    }
}

/// What a program finds: limits, signals, nice value, OOM score, affinity, open files.
const LOOK: &str = "ulimit -a; ulimit -aH; grep -E '^(Sig(Blk|Ign|Cgt|Q)|ShdPnd|Cpus_allowed|NoNewPrivs|Seccomp|Umask|Cap)' \
                    /proc/self/status; nice; cat /proc/self/oom_score_adj /proc/self/timerslack_ns /proc/self/cgroup; \
                    ls /proc/self/fd | wc -l; umask";

#[test]
fn the_program_finds_what_the_caller_had() {
    // dash has no signals 0 beside: `trap '' X` ignores X for what is started.
    for set_up in [
        "true",
        "ulimit -f 100",
        "ulimit -S -f 100",
        "ulimit -S -t 7",
        "ulimit -t 7",
        "ulimit -S -n 50",
        "ulimit -n 50",
        "ulimit -S -u 5000",
        "ulimit -S -s 1000",
        "ulimit -S -v 4000000",
        "ulimit -v 100000",
        "ulimit -c 0; ulimit -S -d 1000000",
        "trap '' XFSZ XCPU",
        "trap '' PIPE USR1 40",
        "trap '' CHLD",
        "renice -n 3 -p $$ >/dev/null",
        "umask 077; echo 500 >/proc/self/oom_score_adj",
        "exec </dev/null 3</dev/null",
        "exec <&-",
    ] {
        for policy in ["off", "full"] {
            let alone = sh(&format!("{set_up}; exec sh -c \"{LOOK}\"")).with_status(0);
            let under = sh(&format!("{set_up}; exec {RUN} -q --policy {policy} -- sh -c \"{LOOK}\"")).with_status(0);
            assert!(alone.stdout.contains("SigIgn"), "{alone:#?}");
            let cut = |said: &Said| {
                let ours = |line: &&str| !line.contains("gleaner-");
                // How many signals the user has pending is others' doing; how many it may have is not.
                let limit = |line: &str| match line.strip_prefix("SigQ:") {
                    Some(pending) => pending.split_once('/').map_or_else(String::new, |(_, most)| most.to_owned()),
                    None => line.to_owned(),
                };
                said.stdout.lines().filter(ours).map(limit).collect::<Vec<_>>()
            };
            assert_eq!(cut(&alone), cut(&under), "{set_up}, {policy}: {}", under.stderr);
        }
    }
}

#[test]
fn limits_that_were_meant_for_the_program_do_not_end_gleaner() {
    let user = Unprivileged::new();
    let computes = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep $0; echo ran; exit 3";
    for (limit, why) in [
        (&["--fsize=0"][..], ""),
        (&["--fsize=0:unlimited"], ""),
        (&["--cpu=1:unlimited"], ""),
        (&["--cpu=20"], "ulimit -t"),
        (&["--nofile=8"], "unmanaged"),
        (&["--nofile=12"], "unmanaged"),
        (&["--nofile=8:1000"], ""),
        (&["--nofile=40"], "ulimit -n"),
        (&["--nproc=1"], "unmanaged"),
        (&["--nproc=3"], "unmanaged"),
        (&["--as=100000000"], "ulimit -v"),
        (&["--data=40000000"], ""),
        (&["--stack=65536:unlimited"], ""),
        // Hard ones: the command line is read on another stack, or not at all.
        (&["--stack=262144"], ""),
        (&["--stack=65536"], ""),
        (&["--stack=32768"], ""),
        (&["--stack=65536", "--nproc=1"], "ulimit -s"),
        (&["--stack=65536", "--nofile=8"], "unmanaged"),
        (&["--sigpending=0"], ""),
        (&["--memlock=0", "--rss=0", "--core=0", "--msgqueue=0", "--locks=0"], ""),
        (&["--nice=0", "--rtprio=0", "--rttime=0"], ""),
        (&["--nofile=5"], "unmanaged"),
    ] {
        let mut behind = vec!["prlimit"];
        behind.extend(limit);
        let run = ["run", "--retain-for", "5ms", "--", "sh", "-c", computes];
        let said = lasting(|seconds| finish(user.behind(&behind, &run).arg(seconds)));
        // Too few processes are too few for the program's own, too: its shell says so.
        let refused = said.stderr.contains("Cannot fork");
        assert!(said.status == Some(3) && said.stdout == "ran\n" || refused, "{limit:?}: {said:#?}");
        assert!(said.stderr.contains(why), "{limit:?}: {said:#?}");
        assert!(common::comes_true(|| !user.state().exists()), "{limit:?}: its journal is left: {said:#?}");
        if !why.is_empty() {
            let strict = ["run", "--retain-for", "5ms", "--strict", "--policy", "observe", "--", "echo", "ran"];
            finish(&mut user.behind(&behind, &strict)).with_status(125).saying("");
        }
    }
}

#[test]
fn a_small_stack_is_enough_for_every_command() {
    let user = Unprivileged::new();
    for command in [
        &["--version"][..],
        &["doctor"],
        &["params", "guest"],
        &["probe", "--samples", "20", "--setting", "A"],
        &["ab", "-n", "2", "--", "true"],
        &["restore"],
    ] {
        finish(&mut user.behind(&["prlimit", "--stack=65536"], command)).with_status(0);
    }
    let found = ["run", "-q", "--", "sh", "-c", "ulimit -s; ulimit -Hs"];
    finish(&mut user.behind(&["prlimit", "--stack=65536"], &found)).with_status(0).saying("64\n64\n");
    let refused = |words: &[&str]| finish(&mut user.behind(&["prlimit", "--stack=65536", "--nproc=1"], words));
    for command in ["run", "ab"] {
        refused(&[command, "--strict"]).with_status(125).naming(&["ulimit -s"]);
    }
    refused(&["restore"]).with_status(1).naming(&["ulimit -s"]);
    refused(&["run", "--", "/no/such/command"]).with_status(127);
    // What stands behind the program's name is the program's.
    refused(&["run", "--", "echo", "--strict", "run"]).with_status(0).saying("--strict run\n");
}

#[test]
fn a_limit_that_the_program_exceeds_ends_the_program() {
    // The kernel's signal to the program is the program's.
    let script = format!("ulimit -S -t 1; exec {RUN} -q -- sh -c 'while :; do :; done'");
    sh(&script).with_status(128 + libc::SIGXCPU);
    // What somebody sends to Gleaner is passed on.
    let script = "trap 'exit 7' XCPU; kill -XCPU $PPID; sleep 5 & wait";
    finish(run(["-q", "--", "sh", "-c", script]).env("X", "1")).with_status(7);
}

#[test]
fn a_caller_that_ignores_its_children_gets_a_comparison() {
    sh("trap '' CHLD; exec $G ab -n 2 --modes off,observe -- true").with_status(0);
}

#[test]
fn slices_are_not_set_by_another_namespaces_numbers() {
    if needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for command in ["list --for 10ms", "run --tid 1 --slice 1ms --for 1s", "run --for 1s"] {
        let said = in_namespaces(&["-pf"], folder.path(), &format!("$G host {command}"));
        said.with_status(1).naming(&["another PID namespace"]);
    }
    // Nor is anything undone by them.
    let script = "mount -t tmpfs none /run; mkdir -m 700 /run/gleaner; \
                  echo '{\"gleaner_journal\":1,\"run_id\":\"x\",\"boot_id\":\"y\",\"main_pid\":1,\"main_start_time\":1}' \
                  >/run/gleaner/x.journal; $G restore; s=$?; ls /run/gleaner; exit $s";
    in_namespaces(&["-mpf"], folder.path(), script)
        .with_status(1)
        .saying("x.journal\n")
        .naming(&["another PID namespace"]);
    in_namespaces(&["-mpf", "--mount-proc"], folder.path(), script).with_status(0);
}

/// A v1 or v2 group with a limit, removed in the end.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str, files: &[(&str, &str)]) -> Option<Self> {
        let roots = gleaner_act::CgroupRoots::default();
        let parent = gleaner_act::own_group(&roots, controller)?.own;
        let group = Self(parent.join(format!("in-the-way-{}-{controller}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        files.iter().try_for_each(|(file, text)| fs::write(group.0.join(file), text)).ok()?;
        Some(group)
    }

    fn run(&self, command: &str) -> Said {
        sh(&format!("echo $$ >{}/cgroup.procs; {command}", self.0.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process of it may still be on its way out.
        common::comes_true(|| fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[test]
fn refused_threads_and_processes_are_named_and_nothing_panics() {
    if needs_root() {
        return;
    }
    let Some(group) = Group::new("pids", &[("pids.max", "max")]) else {
        gleaner_testing::skip!("no group with pids.max can be made here");
    };
    let own = std::process::id();
    for most in 1..=6 {
        fs::write(group.0.join("pids.max"), most.to_string()).unwrap();
        // `finish` fails where somebody panicked.
        let said = lasting(|seconds| group.run(&format!("exec {RUN} -- sleep {seconds}")));
        said.with_status(0).naming(&["unmanaged", "pids.max"]);
        group.run(&format!("exec {RUN} --policy off -- true")).with_status(0);
        group.run(&format!("exec {RUN} --strict -- true")).with_status(125).naming(&["--strict"]);
        group.run("exec $G ab -n 2 -- true");
        for command in [
            "doctor",
            "probe --samples 20",
            "host probe",
            "host list --for 10ms",
            "workload pipeline --for 1s",
            &format!("host run --tid {own} --slice 1ms --for 100ms"),
            &format!("host run --tid {own} --slice 1ms --for 100ms --no-enforce"),
            "host run --for 100ms",
            "restore",
        ] {
            group.run(&format!("exec $G {command}"));
        }
    }
    // With room it is managed as ever.
    fs::write(group.0.join("pids.max"), "4000").unwrap();
    let said = lasting(|seconds| group.run(&format!("exec {RUN} -- sleep {seconds}"))).with_status(0);
    assert!(!said.stderr.contains("unmanaged"), "{said:#?}");
}

#[test]
fn a_group_with_little_memory_keeps_it_for_the_program() {
    if needs_root() {
        return;
    }
    let group = |bytes: &str| {
        let files = ["memory.limit_in_bytes", "memory.max"].map(|file| [(file, bytes)]);
        Group::new("memory", &files[0]).or_else(|| Group::new("memory", &files[1]))
    };
    for (bytes, unmanaged) in [("16777216", true), ("268435456", false)] {
        let Some(group) = group(bytes) else {
            gleaner_testing::skip!("no group with a memory limit can be made here");
        };
        let said =
            lasting(|seconds| group.run(&format!("exec {RUN} -- sh -c 'sleep {seconds}; exit 3'"))).with_status(3);
        assert_eq!(said.stderr.contains("MiB of memory"), unmanaged, "{said:#?}");
    }
}

#[test]
fn yielding_threads_never_spend_the_programs_quota() {
    if needs_root() {
        return;
    }
    let files = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")];
    let Some(group) = Group::new("cpu", &files).or_else(|| Group::new("cpu", &[("cpu.max", "50000 100000")])) else {
        gleaner_testing::skip!("no group with a CPU quota can be made here");
    };
    let user = Unprivileged::new();
    // Without privilege they would be in the program's group; with it, and cgroup v2, they are above.
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let run = format!("exec {nobody} {} run --retain-for 1ms", user.binary().display());
    let said = lasting(|seconds| group.run(&format!("{run} -- sleep {seconds}")));
    said.with_status(0).naming(&["nothing is retained", "CPU quota (0.5 CPUs by"]);
    if gleaner_act::cpu_controller(&gleaner_act::CgroupRoots::default()).is_some_and(|found| found.v2) {
        let said = lasting(|seconds| group.run(&format!("exec {RUN} -- sleep {seconds}"))).with_status(0);
        assert!(!said.stderr.contains("quota"), "{said:#?}");
    }
}

#[test]
fn a_cgroup_mount_that_shows_another_group_is_left_alone() {
    if needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(group) = Group::new("cpu", &[]) else {
        gleaner_testing::skip!("no cgroup with the cpu controller can be made here");
    };
    let roots = gleaner_act::CgroupRoots::default();
    let mount = gleaner_act::own_group(&roots, "cpu").unwrap().mount;
    let (mount, group) = (mount.display(), group.0.display());
    // Mounted twice, first a part that this process is not in; and one that hides the place of the right one.
    for mounts in [
        format!("mkdir $W/a && mount --bind {group} $W/a && mount --bind {mount} $W/b_ 2>/dev/null; true"),
        format!("mount --bind {group} {mount}"),
        format!("mount -t tmpfs none {mount}"),
    ] {
        let look = "cat /proc/self/cgroup";
        let script = format!("mount --make-rprivate /; {mounts}; {RUN} -q --policy consolidate -- {look}");
        let said = in_namespaces(&["-m"], folder.path(), &script).with_status(0);
        assert!(!said.stdout.contains("in-the-way"), "{mounts}: {said:#?}");
    }
    assert!(fs::read_to_string(format!("{group}/cgroup.procs")).unwrap().is_empty());
}
