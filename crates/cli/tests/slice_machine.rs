//! `gleaner host slice` on threads of this test that compute on one CPU: delivered, put back, refused.
//!
//! Nothing here is compared with a time of the clock: what was delivered with a ticker is compared with what the kernel
//! delivered by itself a moment before.

mod common;

use common::machine::guardian_of;
use common::{Killed, comes_true, finish, gleaner, is_root, own_pid, pid_of, send};
use gleaner_act::thread_attr;
use gleaner_model::Nanos;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// A thread of this test on the last CPU it may use; ended when dropped.
struct Thread {
    tid: i32,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    fn start(nice: i32, turn: fn()) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (tell, told) = channel();
        let handle = std::thread::spawn(move || {
            let may = rustix::thread::sched_getaffinity(None).unwrap();
            let cpu = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|cpu| may.is_set(*cpu)).unwrap();
            let mut only = rustix::thread::CpuSet::new();
            only.set(cpu);
            rustix::thread::sched_setaffinity(None, &only).unwrap();
            // SAFETY: no memory is passed; who = 0 is the calling thread on Linux.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            while !stopped.load(Relaxed) {
                turn();
            }
        });
        Self { tid: told.recv().unwrap(), stop, handle: Some(handle) }
    }

    fn computing() -> Self {
        Self::start(3, || (0..1_000).for_each(|_| std::hint::spin_loop()))
    }

    fn slice(&self) -> Nanos {
        thread_attr(self.tid).unwrap().slice
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(handle) = self.handle.take() {
            handle.join().unwrap();
        }
    }
}

/// Whether the tests can do anything here.
fn can() -> bool {
    let can = is_root() && gleaner_act::SliceSupport::probe().base.is_some();
    if !can {
        gleaner_testing::skipped("needs root and slices of threads (Linux 6.12)");
    }
    can
}

/// What `gleaner host slice` says of these threads, as JSON.
#[track_caller]
fn slice(threads: &[&Thread], arguments: &[&str]) -> Value {
    let tids: Vec<String> = threads.iter().map(|thread| thread.tid.to_string()).collect();
    let mut command = gleaner(["host", "slice", "--json", "--tid"]);
    let said = finish(command.args(&tids).args(arguments)).with_status(0);
    let report = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stdout));
    report
}

/// The median delivered; the mean where there is no BPF.
fn delivered(report: &Value) -> u64 {
    report["delivered_p50_ns"].as_u64().or(report["delivered_mean_ns"].as_u64()).unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn a_slice_is_delivered_and_all_is_as_before_machine() {
    if !can() {
        return;
    }
    let (one, two) = (Thread::computing(), Thread::computing());
    let before = [&one, &two].map(|thread| thread_attr(thread.tid).unwrap());
    let base = format!("{}ns", before[0].slice.0);
    let kernels = slice(&[&one, &two], &["--slice", &base, "--for", "1s", "--no-enforce"]);
    let ours = slice(&[&one, &two], &["--slice", "1ms", "--for", "1s"]);
    let after = [&one, &two].map(|thread| thread_attr(thread.tid).unwrap());
    assert_eq!(before, after);
    assert_eq!((kernels["method"].as_str(), kernels["restored"].as_bool()), (Some("none"), Some(true)));
    for (thread, attr) in ours["threads"].as_array().unwrap().iter().zip(before) {
        assert_eq!(thread["set_ns"], MS);
        assert_eq!(thread["was_ns"], attr.slice.0);
        assert_eq!(thread["nice"], 3);
    }
    // How far from 1 ms, as a factor.
    let off = |report: &Value| (delivered(report) as f64 / MS as f64).ln().abs();
    assert!(off(&ours) < off(&kernels), "{} against {}", delivered(&ours), delivered(&kernels));
    if ours["method"] == "ticker" {
        let ratio = ours["enforcement_cpu_ratio"].as_f64().unwrap();
        assert!(ratio > 0.0 && ratio < 0.2, "{ours:#}");
        assert_eq!(ours["cpus"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn threads_that_sleep_need_no_ticker_machine() {
    if !can() {
        return;
    }
    let nap = || std::thread::sleep(Duration::from_millis(5));
    let (one, two) = (Thread::start(0, nap), Thread::start(0, nap));
    let ticks =
        |report: &Value| report["cpus"].as_array().unwrap().iter().filter_map(|cpu| cpu["ticks"].as_u64()).sum();
    let quiet: u64 = ticks(&slice(&[&one, &two], &["--slice", "1ms", "--for", "700ms"]));
    drop((one, two));
    let (one, two) = (Thread::computing(), Thread::computing());
    let busy: u64 = ticks(&slice(&[&one, &two], &["--slice", "1ms", "--for", "700ms"]));
    assert!(quiet * 4 < busy, "{quiet} ticks for sleepers, {busy} for those that compute");
}

#[test]
fn slices_are_put_back_however_it_ends_machine() {
    if !can() {
        return;
    }
    let thread = Thread::computing();
    let before = thread.slice();
    for kind in ["signal", "kill", "kill both"] {
        let mut command = gleaner(["host", "slice", "--slice", "700us", "--tid", &thread.tid.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = Killed(command.spawn().unwrap());
        let main = pid_of(&child.0);
        assert!(comes_true(|| thread.slice() == Nanos::from_micros(700)), "{kind}: never set");
        let guardian = guardian_of(main).unwrap();
        match kind {
            "signal" => send(main, libc::SIGTERM),
            "kill" => send(main, libc::SIGKILL),
            _ => [guardian, main].into_iter().for_each(|pid| send(pid, libc::SIGKILL)),
        }
        let status = child.0.wait().unwrap();
        if kind == "signal" {
            assert!(status.success(), "{status}");
        }
        if kind == "kill both" {
            assert_eq!(thread.slice(), Nanos::from_micros(700), "somebody else has put it back");
            finish(&mut gleaner(["restore"])).with_status(0).naming(&["undone"]);
        }
        assert!(comes_true(|| thread.slice() == before), "{kind}: {} instead of {before}", thread.slice());
    }
}

#[test]
fn a_thread_that_exits_meanwhile_is_no_failure_machine() {
    if !can() {
        return;
    }
    let (stays, goes) = (Thread::computing(), Thread::computing());
    let (before, tid) = (stays.slice(), goes.tid);
    let leaving = std::thread::spawn(move || {
        assert!(comes_true(|| goes.slice() == Nanos::from_millis(2)));
        drop(goes);
    });
    let tids = [stays.tid.to_string(), tid.to_string()];
    let mut command = gleaner(["host", "slice", "--json", "--slice", "2ms", "--for", "1s", "--tid"]);
    let said = finish(command.args(&tids)).with_status(0);
    leaving.join().unwrap();
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let ended: Vec<_> = report["threads"].as_array().unwrap().iter().map(|thread| thread["ended"].as_bool()).collect();
    assert_eq!(ended, [Some(false), Some(true)]);
    assert!(said.stderr.contains("1 of 2 threads ended"), "{}", said.stderr);
    assert_eq!(stays.slice(), before);
}

#[test]
fn a_command_runs_meanwhile_and_its_status_is_kept_machine() {
    if !can() {
        return;
    }
    let thread = Thread::start(0, || std::thread::sleep(Duration::from_millis(5)));
    let tid = thread.tid.to_string();
    let run = |words: &[&str]| {
        let mut command = gleaner(["host", "slice", "--slice", "1ms", "--tid", &tid, "--"]);
        finish(command.args(words))
    };
    run(&["sh", "-c", "exit 7"]).with_status(7);
    run(&["sh", "-c", "kill -9 $$"]).with_status(137);
    run(&["/no/such/program"]).with_status(127).naming(&["/no/such/program"]);
}

#[test]
fn bad_input_is_named_and_changes_nothing_machine() {
    let thread = Thread::start(0, || std::thread::sleep(Duration::from_millis(5)));
    let before = thread_attr(thread.tid).unwrap();
    let (tid, own) = (thread.tid.to_string(), own_pid().to_string());
    let both = ["--slice", "1ms", "--for", "100ms"];
    for (arguments, words) in [
        (vec!["--tid", &tid, "2147483647"], vec!["no thread 2147483647"]),
        (vec!["--vm", "no-such-vm"], vec!["no-such-vm"]),
        (vec!["--vm", &own], vec![own.as_str()]),
        (vec!["--tid", "0"], vec!["0"]),
        (vec![], vec!["--tid", "--vm", "--all"]),
        (vec!["--tid", &tid, "--all"], vec!["--all"]),
    ] {
        finish(gleaner(["host", "slice"]).args(both).args(arguments)).with_status(2).saying("").naming(&words);
    }
    for (slice, words) in
        [("99us", ["99.0us", "100us"]), ("101ms", ["101ms", "100ms"]), ("1", ["1", "1ms"]), ("soon", ["soon", "1ms"])]
    {
        let said = finish(&mut gleaner(["host", "slice", "--for", "1s", "--slice", slice, "--tid", &tid]));
        said.with_status(2).saying("").naming(&words);
    }
    assert_eq!(thread_attr(thread.tid).unwrap(), before);
}
