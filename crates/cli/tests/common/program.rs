//! A managed program of known behaviour: this test's own executable, started again with [`MODE`] set.
//!
//! It computes little and waits often, so that a lenient policy consolidates it. Some of its threads choose their vCPUs
//! themselves. It works until its stdin ends, then says what it did and exits with status 7.
//!
//! Modes: `pairs` as above; `family` the same with a second copy in a session of its own; `crowd` 200 threads; `storm`
//! two threads that hand one vCPU to and fro as often as they can.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// The environment variable that makes the test executable the program.
pub const MODE: &str = "GLEANER_TEST_PROGRAM";
/// The environment variable that says how many vCPUs the program may use where nobody confines it.
pub const UNCONFINED: &str = "GLEANER_TEST_UNCONFINED";
/// How the program ends when all went well.
pub const STATUS: i32 = 7;

/// Conditions that nearly always hold: the program is consolidated after a few windows.
pub const LENIENT: &str = "
min_time_slice_us = 100000
[tuning]
idle_periods_per_s_min = 1
settle_windows = 0
judge_windows = 1
baseline_windows_min = 1
baseline_windows_max = 1
predicted_utilization_max = 1.0
hold_off_min_ms = 1
hold_off_max_ms = 1
thread_burst_min = 1000000
cpu_change_share = 10
saturated_utilization = 1.0
granularity_change_factor = 100
hurt_loss_min = 1
";

/// The words that start the program.
pub fn words() -> Vec<String> {
    let own = std::env::current_exe().unwrap().display().to_string();
    let libtest = ["--exact", "common::program::program", "--ignored", "--nocapture", "--test-threads=1", "-q"];
    std::iter::once(own).chain(libtest.map(str::to_owned)).collect()
}

/// A program that goes on until it is told to end.
pub struct Program(Child);

impl Program {
    pub fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(&words()[1..]).env(MODE, "pairs");
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> i32 {
        super::pid_of(&self.0)
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Tells it to end, and waits for that.
    pub fn ends_well(mut self) {
        drop(self.0.stdin.take());
        assert_eq!(self.0.wait().unwrap().code(), Some(STATUS));
    }
}

#[test]
#[ignore = "not a test: the program that the tests manage"]
fn program() {
    // Nothing to do when somebody runs all ignored tests.
    let Ok(mode) = std::env::var(MODE) else { return };
    let copy = (mode == "family").then(|| {
        let mut command = Command::new(&words()[0]);
        command.args(&words()[1..]).env(MODE, "pairs");
        // SAFETY: setsid is async-signal-safe.
        unsafe { command.pre_exec(|| if libc::setsid() < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }) };
        command.stdin(Stdio::inherit()).spawn().unwrap()
    });
    let work = Work::default();
    let threads = match mode.as_str() {
        "crowd" => crowd(&work),
        "storm" => storm(&work),
        _ => pairs(&work),
    };
    say(&format!("started {}", std::process::id()));
    let mut ignored = Vec::new();
    std::io::stdin().read_to_end(&mut ignored).unwrap();
    work.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    if let Some(mut copy) = copy {
        copy.wait().unwrap();
    }
    say(&format!("done {} rounds {}", std::process::id(), work.rounds.load(Ordering::Relaxed)));
    std::process::exit(STATUS);
}

fn say(line: &str) {
    let mut text = String::from("\n");
    writeln!(text, "{line}").unwrap();
    // One write: two copies share the pipe. A test that failed no longer reads it.
    let _ = std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush());
}

#[derive(Clone, Default)]
struct Work {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

impl Work {
    fn thread(&self, name: &str, first: impl FnOnce() + Send + 'static, round: fn()) -> JoinHandle<()> {
        let work = self.clone();
        let body = move || {
            first();
            while !work.stop.load(Ordering::Relaxed) {
                round();
                work.rounds.fetch_add(1, Ordering::Relaxed);
            }
        };
        Builder::new().name(name.to_owned()).spawn(body).unwrap()
    }
}

/// What the program may use from the start.
static ALLOWED: LazyLock<Vec<usize>> = LazyLock::new(allowed);

/// Names say what a thread's affinity has to be: `any`, `first` of what the program may use, `either` of these, `late`
/// any or the last, which it asks for once it finds itself confined. (A thread that is bound to the last from the start
/// would keep that from being deactivated.)
fn pairs(work: &Work) -> Vec<JoinHandle<()>> {
    let first = ALLOWED[0];
    vec![
        work.thread("any", || {}, short_round),
        work.thread("any", || {}, short_round),
        work.thread("any", || {}, short_round),
        work.thread("either", move || pin_and_say(first), short_round),
        work.thread("late", || {}, late_round),
        work.thread("any", || {}, births),
    ]
}

/// A thread that pins itself to what it is confined to at that moment cannot be told from one that did not (crates/act,
/// affinity.rs), and on a busy machine the program may start so slowly that it is confined by then.
fn pin_and_say(cpu: usize) {
    let unconfined = std::env::var(UNCONFINED).ok().and_then(|count| count.parse::<usize>().ok());
    let free = || unconfined.is_none_or(|count| allowed().len() == count);
    let was_free = free();
    pin(cpu);
    if was_free {
        rustix::thread::set_name(c"first").unwrap();
    }
}

fn late_round() {
    short_round();
    let now = allowed();
    if now.len() < ALLOWED.len() && now.first() == ALLOWED.first() {
        // Outside the cpuset of the moment the kernel says EINVAL.
        let _ = try_to_pin(ALLOWED[ALLOWED.len() - 1]);
    }
}

fn crowd(work: &Work) -> Vec<JoinHandle<()>> {
    (0..200).map(|_| work.thread("any", || {}, short_round)).collect()
}

fn storm(work: &Work) -> Vec<JoinHandle<()>> {
    let first = allowed()[0];
    let yields = || (0..1_000).for_each(|_| rustix::thread::sched_yield());
    (0..2).map(|_| work.thread("first", move || pin(first), yields)).collect()
}

fn short_round() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(20) {
        std::hint::spin_loop();
    }
    sleep(Duration::from_millis(2));
}

/// A thread that has one child after the other: each inherits its affinity.
fn births() {
    Builder::new().name("any".into()).spawn(|| sleep(Duration::from_millis(3))).unwrap().join().unwrap();
    sleep(Duration::from_millis(3));
}

fn allowed() -> Vec<usize> {
    let mask = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect()
}

fn pin(cpu: usize) {
    // From the first moment the program may use what it is allowed.
    try_to_pin(cpu).unwrap();
}

fn try_to_pin(cpu: usize) -> rustix::io::Result<()> {
    let mut mask = rustix::thread::CpuSet::new();
    mask.set(cpu);
    rustix::thread::sched_setaffinity(None, &mask)
}
