//! `gleaner host run --slice 1ms --tid` on threads of this test that compute on one CPU: delivered, put back, refused.
//!
//! Nothing here is compared with a time of the clock: what was delivered with a ticker is compared with what the kernel
//! delivered by itself a moment before.

mod common;

use common::machine::guardian_of;
use common::{Killed, comes_true, finish, gleaner, is_root, pid_of, send};
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

/// What `gleaner host run` says of these threads, as JSON.
#[track_caller]
fn run(threads: &[&Thread], arguments: &[&str]) -> Value {
    let tids: Vec<String> = threads.iter().map(|thread| thread.tid.to_string()).collect();
    let mut command = gleaner(["host", "run", "--json", "--interval", "200ms", "--for", "2s", "--tid"]);
    let said = finish(command.args(&tids).args(arguments)).with_status(0);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stdout))
}

#[test]
fn a_slice_is_delivered_and_all_is_as_before_machine() {
    if !can() {
        return;
    }
    let (one, two) = (Thread::computing(), Thread::computing());
    let before = [&one, &two].map(|thread| thread_attr(thread.tid).unwrap());
    let base = format!("{}ns", before[0].slice.0);
    let kernels = run(&[&one, &two], &["--slice", &base, "--no-enforce"]);
    let ours = run(&[&one, &two], &["--slice", "1ms"]);
    let after = [&one, &two].map(|thread| thread_attr(thread.tid).unwrap());
    assert_eq!(before, after);
    let method = |report: &Value| report["enforcement"]["method"].clone();
    assert_eq!((method(&kernels), &kernels["restored"]), ("none".into(), &true.into()));
    let vms = ours["vms"].as_array().unwrap();
    assert_eq!(vms.iter().map(|vm| vm["vm"].as_i64().unwrap()).collect::<Vec<_>>(), [one.tid, two.tid].map(i64::from));
    assert!(vms.iter().all(|vm| vm["slices"][0]["slice_ns"] == MS && vm["left_ns"].is_null()), "{ours:#}");
    if method(&ours) == "ticker" {
        let ratio = ours["enforcement"]["cpu_ratio"].as_f64().unwrap();
        assert!(ratio > 0.0 && ratio < 0.3, "{ours:#}");
        assert_eq!(ours["enforcement"]["pcpus"], 1, "{ours:#}");
    }
    if ours["observer"] != "bpf" {
        gleaner_testing::skip!("needs BPF, to say what was delivered");
    }
    // How far from 1 ms, as a factor.
    let off = |report: &Value| {
        let delivered = report["vms"][0]["after"]["delivered_p50_ns"].as_f64().unwrap_or_else(|| panic!("{report:#}"));
        (delivered / MS as f64).ln().abs()
    };
    assert!(off(&ours) < off(&kernels), "{} against {}", off(&ours), off(&kernels));
}

#[test]
fn threads_that_sleep_need_no_ticker_machine() {
    if !can() {
        return;
    }
    let nap = || std::thread::sleep(Duration::from_millis(5));
    let ticks = |report: &Value| report["enforcement"]["ticks"].as_u64().unwrap();
    let (one, two) = (Thread::start(0, nap), Thread::start(0, nap));
    let quiet = ticks(&run(&[&one, &two], &["--slice", "1ms"]));
    drop((one, two));
    let (one, two) = (Thread::computing(), Thread::computing());
    let busy = ticks(&run(&[&one, &two], &["--slice", "1ms"]));
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
        let tid = thread.tid.to_string();
        let mut command = gleaner(["host", "run", "--slice", "700us", "--interval", "100ms", "--tid", &tid]);
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
fn a_thread_that_exits_meanwhile_is_no_failure_and_the_last_one_ends_it_machine() {
    if !can() {
        return;
    }
    let (stays, goes) = (Thread::computing(), Thread::computing());
    let (before, tids) = (stays.slice(), [stays.tid.to_string(), goes.tid.to_string()]);
    let leaving = |thread: Thread| {
        std::thread::spawn(move || {
            assert!(comes_true(|| thread.slice() == Nanos::from_millis(2)));
            drop(thread);
        })
    };
    let gone = leaving(goes);
    let mut command =
        gleaner(["host", "run", "--json", "--slice", "2ms", "--interval", "200ms", "--for", "3s", "--tid"]);
    let said = finish(command.args(&tids)).with_status(0);
    gone.join().unwrap();
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let left: Vec<bool> = report["vms"].as_array().unwrap().iter().map(|vm| vm["left_ns"].is_u64()).collect();
    assert_eq!(left, [false, true], "{report:#}");
    assert_eq!(stays.slice(), before);
    // Nobody is left: it ends without being told to.
    let tid = stays.tid.to_string();
    let gone = leaving(stays);
    finish(&mut gleaner(["host", "run", "--slice", "2ms", "--interval", "200ms", "--tid", &tid])).with_status(0);
    gone.join().unwrap();
}
