//! Retention retains, end to end: the same program with and without it, in turn, on this machine's own vCPUs.

mod common;

use common::machine::{busy_share, guardian_of, idle_values, journals_of_run, state_of, why_not_kept_awake};
use common::{GLEANER, Killed, comes_true, finish, is_root, lasting, pid_of, run, send};
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A client and a server that wait for each other all the time and never spin first.
fn request_reply(policy: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut command = run(["--policy", policy, "--observer", "bpf", "--no-trial", "--quiet", "--json"]);
    command.arg(&file).args(["--", GLEANER, "workload", "request-reply", "--threads", "1", "--for", "1s"]);
    finish(&mut command).with_status(0);
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

fn per_s(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap() / report["wall_ns"].as_f64().unwrap() * 1e9
}

/// The middle one of three.
fn median(reports: &[Value], of: impl Fn(&Value) -> f64) -> f64 {
    let mut all: Vec<f64> = reports.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn idle_periods_are_retained_and_end_sooner_on_this_machine() {
    let probe = finish(&mut run(["--observer", "bpf", "--policy", "observe", "--quiet", "--", "true"]));
    if probe.status != Some(0) {
        gleaner_testing::skip!("needs BPF: {}", probe.stderr);
    }
    // Where others take the vCPUs, none is idle for long, and whoever is woken waits for them.
    if busy_share() > 0.2 {
        gleaner_testing::skip!("needs a machine with idle time");
    }
    let pairs: Vec<[Value; 2]> = (0..3).map(|_| ["observe", "retain"].map(request_reply)).collect();
    let [without, with] = [0, 1].map(|way| pairs.iter().map(|pair| pair[way].clone()).collect::<Vec<Value>>());
    let halts = |reports: &[Value]| median(reports, |report| per_s(report, "halts"));
    if halts(&without) < 100.0 {
        gleaner_testing::skip!("needs idle vCPUs that halt: {:.0} halts/s", halts(&without));
    }
    for report in &with {
        assert!(report["retained_ns"].as_u64() > Some(0), "{report:#}");
    }
    assert!(without.iter().all(|report| report["retained_ns"] == 0), "{without:#?}");
    assert!(halts(&with) < halts(&without) / 2.0, "{:.0} halts/s, {:.0} without", halts(&with), halts(&without));
    if with.iter().any(|report| report["means"]["retention"] == "yielding") {
        gleaner_testing::skip!(
            "needs polling in the idle loop: a yielding thread need not answer sooner than the host"
        );
    }
    let wakeup =
        |reports: &[Value]| median(reports, |report| report["lengths"]["wake_to_run"]["p50_ns"].as_f64().unwrap());
    assert!(wakeup(&with) < wakeup(&without), "{} ns, {} without", wakeup(&with), wakeup(&without));
}

/// The same program twice: one counter grows ten times as fast while nobody polls, the other while somebody does.
#[test]
fn a_progress_figure_decides_on_this_machine() {
    let parameter = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
    let Ok(had) = std::fs::read_to_string(parameter) else {
        gleaner_testing::skip!("needs the haltpoll governor");
    };
    haltpoll_is_free!();
    // On a vCPU that is never idle nothing is tried.
    if busy_share() > 0.2 {
        gleaner_testing::skip!("needs a machine with idle time");
    }
    let folder = tempfile::tempdir().unwrap();
    let [file, counter] = ["run.json", "done"].map(|name| folder.path().join(name));
    let last_step = |seconds: u32, unpolled: u32, polled: u32| {
        let script = format!(
            "(i=0; while read now <{parameter}; do
                [ \"$now\" = {had} ] && i=$((i + {unpolled})) || i=$((i + {polled}))
                echo $i >{done}.new; mv {done}.new {done}; sleep 0.002
            done) & counter=$!
            {GLEANER} workload relay --threads 2 --for {seconds}s; kill $counter",
            had = had.trim(),
            done = counter.display()
        );
        let mut command = run(["--policy", "retain", "--retain", "haltpoll", "--quiet", "--json"]);
        command.arg(&file).arg("--progress").arg(&counter).args(["--", "sh", "-c", &script]);
        finish(&mut command);
        let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let last = report["decisions"].as_array().unwrap().last().cloned().unwrap_or_default();
        (report["means"]["retention"] == "haltpoll").then_some(last)
    };
    // How long it takes until it is tried is the machine's affair.
    for (unpolled, polled, action) in [(1000, 100, "release"), (100, 1000, "retain")] {
        let mut steps = Vec::new();
        for seconds in [3, 12, 48] {
            let Some(step) = last_step(seconds, unpolled, polled) else {
                gleaner_testing::skip!("needs the haltpoll governor");
            };
            steps.push(step);
            if steps[steps.len() - 1]["action"] == action {
                break;
            }
        }
        assert_eq!(steps[steps.len() - 1]["action"], action, "{steps:?}");
    }
}

/// What a run that is ended or killed gives back in the end, one that is stopped gives back meanwhile.
#[test]
fn a_stopped_run_keeps_no_vcpu_awake_on_this_machine() {
    if let Some(why) = why_not_kept_awake() {
        gleaner_testing::skip!("{why}");
    }
    let before = idle_values();
    // It ends soon after Gleaner, however that ends.
    let busy = "gleaner=$PPID; while kill -0 $gleaner 2>/dev/null; do sleep 0.005; done";
    for means in ["haltpoll", "pm-qos"] {
        for killed in [false, true] {
            let options = ["--policy", "retain", "--no-trial", "--retain", means, "--quiet"];
            let mut command = run(options);
            command.args(["--", "sh", "-c", busy]).stdin(Stdio::null()).stderr(Stdio::null());
            let mut child = Killed(command.process_group(0).spawn().unwrap());
            let pid = pid_of(&child.0);
            let about = format!("{means}, {}", if killed { "killed" } else { "told to end" });
            assert!(comes_true(|| idle_values() != before), "{about}: nothing is retained");
            // Another guardian watches as the first did.
            if killed {
                let first = guardian_of(pid).unwrap();
                send(first, libc::SIGKILL);
                assert!(comes_true(|| guardian_of(pid).is_some_and(|now| now != first)), "{about}");
            }
            for round in 0..2 {
                assert!(comes_true(|| idle_values() != before), "{about}, round {round}: not set again");
                send(pid, libc::SIGSTOP);
                assert!(comes_true(|| state_of(pid) == Some('T')));
                assert!(comes_true(|| idle_values() == before), "{about}, round {round}: {:#?}", idle_values());
                assert_eq!((state_of(pid), child.0.try_wait().unwrap()), (Some('T'), None), "{about}");
                assert!(!journals_of_run(Path::new("/run/gleaner"), pid).is_empty(), "{about}: undone for good");
                if killed {
                    break;
                }
                send(pid, libc::SIGCONT);
            }
            send(pid, if killed { libc::SIGKILL } else { libc::SIGTERM });
            child.0.wait().unwrap();
            let journals = || journals_of_run(Path::new("/run/gleaner"), pid);
            assert!(comes_true(|| idle_values() == before && journals().is_empty()), "{about}: {:#?}", idle_values());
        }
    }
}

const HALT_POLL_NS: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// A value of the machine's, given back when the test ends, however it ends.
struct GivenBack(PathBuf, String);

impl GivenBack {
    fn of(path: &Path) -> Self {
        Self(path.to_owned(), std::fs::read_to_string(path).unwrap())
    }
}

impl Drop for GivenBack {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.0, self.1.trim());
    }
}

#[test]
fn a_value_that_somebody_else_sets_meanwhile_stays_theirs_on_this_machine() {
    let limit = Path::new("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us");
    if !is_root() || !Path::new(HALT_POLL_NS).exists() || !limit.exists() {
        gleaner_testing::skip!("needs root and the haltpoll governor");
    }
    for (means, path) in [("haltpoll", Path::new(HALT_POLL_NS)), ("pm-qos", limit)] {
        let (before, given_back) = (idle_values(), GivenBack::of(path));
        let mut command = run(["--policy", "retain", "--no-trial", "--retain", means, "-q"]);
        let busy = "while [ ! -e \"$0\" ]; do sleep 0.005; done";
        let folder = tempfile::tempdir().unwrap();
        let end = folder.path().join("end");
        command.args(["--", "sh", "-c", busy]).arg(&end).stdin(Stdio::null()).stderr(Stdio::piped());
        let child = Killed(command.process_group(0).spawn().unwrap());
        assert!(comes_true(|| idle_values()[path] != before[path]), "{means}: nothing is retained");
        let theirs = "77777";
        std::fs::write(path, theirs).unwrap();
        // All else is given back soon, and that is not touched: not by another time-out, not by the end.
        let mut expected = before.clone();
        expected.insert(path.to_owned(), theirs.to_owned());
        assert!(comes_true(|| idle_values() == expected), "{means}: {:#?}", idle_values());
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert_eq!(idle_values(), expected, "{means}: it was taken up again");
        std::fs::write(&end, "").unwrap();
        let mut child = child;
        let mut said = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.0.wait().unwrap().success());
        assert_eq!(idle_values(), expected, "{means}: {said}");
        drop(given_back);
    }
}

/// By `words` before it: a program, beside which `files` are as before.
#[track_caller]
fn changes_nothing(words: &[&str], means: &str, files: &str) {
    let before = idle_values();
    let during = finish(Command::new("sh").args(["-c", &format!("cat {files}")])).stdout;
    let script = format!("sleep $0; cat {files}; exit 7");
    let said = lasting(|seconds| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args([GLEANER, "run", "--retain-for", "1ms", "--no-trial", "--policy", "retain"]);
        finish(command.args(["--retain", means, "--", "sh", "-c", &script, seconds]))
    });
    let said = said.with_status(7).saying(&during);
    assert!(!said.stderr.contains("run `gleaner restore`"), "{said:#?}");
    assert_eq!(idle_values(), before);
}

#[test]
fn root_that_lacks_a_privilege_changes_nothing_on_this_machine() {
    if !is_root() || !Path::new(HALT_POLL_NS).exists() {
        gleaner_testing::skip!("needs root and the haltpoll governor");
    }
    // PM QoS takes no more than to be root.
    changes_nothing(&["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"], "haltpoll", HALT_POLL_NS);
    let all = format!("{HALT_POLL_NS} /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us");
    for namespace in [&["unshare", "-Ur"][..], &["unshare", "-U"]] {
        for means in ["haltpoll", "pm-qos"] {
            changes_nothing(namespace, means, &all);
        }
    }
}

/// Whether a process has a journal open that is in no folder any more.
fn has_removed_journal(pid: i32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    names.any(|name| name.to_string_lossy().ends_with(".journal (deleted)"))
}

#[test]
fn a_journal_that_somebody_removed_is_undone_after_a_kill_on_this_machine() {
    if !is_root() || !Path::new(HALT_POLL_NS).exists() {
        gleaner_testing::skip!("needs root and the haltpoll governor");
    }
    let before = idle_values();
    for replace_guardian in [false, true] {
        let busy = "gleaner=$PPID; while kill -0 $gleaner 2>/dev/null; do sleep 0.005; done";
        let mut command = run(["--policy", "retain", "--no-trial", "--retain", "haltpoll", "-q", "--"]);
        command.args(["sh", "-c", busy]).stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = Killed(command.process_group(0).spawn().unwrap());
        let pid = pid_of(&child.0);
        assert!(comes_true(|| idle_values() != before), "nothing is retained");
        for journal in journals_of_run(Path::new("/run/gleaner"), pid) {
            std::fs::remove_file(journal).unwrap();
        }
        if replace_guardian {
            let first = guardian_of(pid).unwrap();
            send(first, libc::SIGKILL);
            assert!(comes_true(|| guardian_of(pid).is_some_and(|now| now != first)));
            // It is handed the file a moment after it is there.
            assert!(comes_true(|| guardian_of(pid).is_some_and(has_removed_journal)));
        }
        send(pid, libc::SIGKILL);
        child.0.wait().unwrap();
        assert!(comes_true(|| idle_values() == before), "{replace_guardian}: {:#?}", idle_values());
    }
}
