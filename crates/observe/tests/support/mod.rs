//! A workload whose synchronization is known, run by the test binary itself in a child process.
//!
//! Two threads, pinned to two vCPUs where there are two, hand a byte to and fro through pipes and compute for a while
//! each time they get it. Every round blocks each thread once, and while one computes the other's vCPU is idle; but
//! where the host takes a vCPU away before its thread reads, the byte is there already. So the program counts the reads
//! that found none.

#![allow(dead_code, reason = "each test file uses its part")]

use gleaner_model::{RetainCounters, VcpuId};
use gleaner_observe::{Observer, ObserverChoice, ObserverConfig};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const ROLE: &str = "GLEANER_TEST_ROLE";

/// Every child of the test process is taken for managed by the `/proc` observer, so tests with children take turns.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// BPF tests must run where they can: as root on a kernel with BTF. Elsewhere they say loudly that they did not.
pub fn bpf_expected() -> bool {
    let expected = is_root() && std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    if !expected {
        gleaner_testing::skipped("needs root and a kernel with BTF");
    }
    expected
}

/// A child process that plays a role; it waits for a byte before it begins and for the end of its input at the end.
pub struct Player {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Player {
    /// Starts this test binary as `role`, which its `player` test hands to [`play`].
    pub fn start(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self::run(command.args(["--exact", "player", "--nocapture", "--test-threads=1"]).env(ROLE, role))
    }

    /// Starts a shell that runs `script`.
    pub fn shell(script: &str) -> Self {
        Self::run(
            Command::new("/bin/sh")
                .args(["-c", &format!("echo ready; read go; {script}; echo done; read end; exit 0")]),
        )
    }

    /// Starts this test binary as `role` for a user without any privilege.
    pub fn start_as_nobody(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "player", "--nocapture", "--test-threads=1"]).env(ROLE, role).uid(65534).gid(65534);
        Self::run(&mut command)
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut player = Self { child, output };
        player.expect("ready");
        player
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Lets it begin.
    pub fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"g\n").unwrap();
    }

    /// Waits until it has done its work, and returns what it says about it; its threads are still there.
    pub fn wait_done(&mut self) -> String {
        self.expect("done").trim().trim_start_matches("done").trim().to_owned()
    }

    fn expect(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if line.contains(word) {
                return line;
            }
            line.clear();
        }
        panic!("the player ended before it said '{word}'");
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end.
    pub fn finish(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// What the `player` test of each file calls: does nothing unless this process was started for a role.
pub fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let say = |word: &str| {
        println!("{word}");
        std::io::stdout().flush().unwrap();
    };
    say("ready");
    // The whole line, so that a program that takes this one's place finds none of it.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let words: Vec<&str> = role.split(':').collect();
    let number = |index: usize| words[index].parse::<u64>().unwrap();
    match words[0] {
        "pingpong" => {
            let threads = ping_pong(number(1), Duration::from_micros(number(2)));
            say(&format!("done {}", threads.waited));
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            drop(threads);
        }
        "crowd" => {
            // All at once: pair after pair would be two threads at a time.
            let playing: Vec<Playing> = (0..number(1))
                .map(|_| start_ping_pong(&my_cpus(), number(2), Duration::from_micros(number(3))))
                .collect();
            let played: Vec<Played> = playing.into_iter().map(Playing::wait).collect();
            say("done");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            drop(played);
        }
        "switches" => {
            let began = Instant::now();
            let threads = ping_pong_on(&my_cpus()[..1], number(1), Duration::ZERO);
            // Two threads on one vCPU: each round switches to the other and back.
            say(&format!("done {}", began.elapsed().as_nanos() / u128::from(2 * number(1))));
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            drop(threads);
        }
        "naps" => {
            (0..number(1)).for_each(|_| thread::sleep(Duration::from_millis(1)));
            say("done");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "barrier" => {
            meet(usize::try_from(number(1)).unwrap(), number(2));
            say("done");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "hogs" => {
            hog(number(1), Duration::from_millis(number(2)));
            say("done");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "spawner" => {
            for _ in 0..number(1) {
                thread::spawn(|| ()).join().unwrap();
            }
            say("done");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "exec" => {
            let shell = || Command::new("/bin/sh").args(["-c", "echo done; read end; exit 0"]).exec();
            panic!("{}", thread::spawn(shell).join().unwrap());
        }
        "observe" => {
            let (observer, refusal) = Observer::new(ObserverChoice::Auto, &ObserverConfig::default()).unwrap();
            say(&format!("done {:?} {}", observer.source(), refusal.map_or_else(String::new, |why| why.to_string())));
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "children" => {
            let children: Vec<i32> = (0..number(1)).map(|_| sleeping_child()).collect();
            say("done");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            for child in children {
                // SAFETY: signals and awaits a child of this process; no memory is passed.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                }
            }
        }
        "sleepers" => {
            for _ in 0..number(1) {
                thread::Builder::new()
                    .stack_size(16 << 10)
                    .spawn(|| {
                        loop {
                            thread::sleep(Duration::from_millis(20));
                        }
                    })
                    .unwrap();
            }
            say("done");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            // The sleepers never end by themselves.
            std::process::exit(0);
        }
        other => panic!("no role {other}"),
    }
}

/// So many threads wait for each other at a barrier.
fn meet(all: usize, rounds: u64) {
    let barrier = std::sync::Barrier::new(all);
    let one = || {
        for _ in 0..rounds {
            barrier.wait();
        }
    };
    thread::scope(|scope| {
        for _ in 0..all {
            scope.spawn(one);
        }
    });
}

/// So many threads compute on one vCPU.
fn hog(threads: u64, time: Duration) {
    let cpu = my_cpus()[0];
    let hog = move || {
        pin(cpu);
        compute(time);
    };
    let hogs: Vec<JoinHandle<()>> = (0..threads).map(|_| thread::spawn(hog)).collect();
    for hog in hogs {
        hog.join().unwrap();
    }
}

/// A child process that does nothing, and ends with its parent if not before.
fn sleeping_child() -> i32 {
    // SAFETY: after fork the child makes system calls only, and never returns.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "{}", std::io::Error::last_os_error());
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
        pid
    }
}

/// The vCPUs this process may use, ascending.
pub fn my_cpus() -> Vec<usize> {
    let mine = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| mine.is_set(*cpu)).collect()
}

pub fn pin(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).unwrap();
}

/// Computes for `time` of the calling thread's own CPU time.
pub fn compute(time: Duration) {
    if time.is_zero() {
        return;
    }
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let end = now() + time;
    while now() < end {
        std::hint::spin_loop();
    }
}

/// Threads that have played and wait to be let go.
pub struct Played {
    release: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Times that they slept, by the kernel's own count.
    waited: u64,
}

/// A test that failed leaves none behind.
impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.release.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }
}

fn pipe() -> (File, File) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    (read.into(), write.into())
}

fn ping_pong(rounds: u64, time: Duration) -> Played {
    ping_pong_on(&my_cpus(), rounds, time)
}

fn ping_pong_on(cpus: &[usize], rounds: u64, time: Duration) -> Played {
    start_ping_pong(cpus, rounds, time).wait()
}

/// Two threads that play.
struct Playing {
    played: Played,
    all_done: Receiver<u64>,
}

impl Playing {
    fn wait(mut self) -> Played {
        self.played.waited = (0..2).map(|_| self.all_done.recv().unwrap()).sum();
        self.played
    }
}

fn start_ping_pong(cpus: &[usize], rounds: u64, time: Duration) -> Playing {
    let (a_in, b_out) = pipe();
    let (b_in, a_out) = pipe();
    let release = Arc::new(AtomicBool::new(false));
    let (done, all_done) = std::sync::mpsc::channel();
    let side = |mut input: File, mut output: File, cpu: usize, first: bool| {
        let (release, done) = (Arc::clone(&release), done.clone());
        thread::spawn(move || {
            pin(cpu);
            let slept = |usage: libc::rusage| u64::try_from(usage.ru_nvcsw).unwrap();
            let before = slept(own_usage());
            for _ in 0..rounds {
                if first {
                    compute(time);
                    output.write_all(b"x").unwrap();
                }
                input.read_exact(&mut [0]).unwrap();
                if !first {
                    compute(time);
                    output.write_all(b"x").unwrap();
                }
            }
            done.send(slept(own_usage()) - before).unwrap();
            while !release.load(Ordering::SeqCst) {
                thread::park();
            }
        })
    };
    let threads = vec![side(a_in, a_out, cpus[0], true), side(b_in, b_out, cpus[cpus.len() - 1], false)];
    Playing { played: Played { release, threads, waited: 0 }, all_done }
}

/// A plain yielding thread: SCHED_IDLE, pinned, counting its own displacements. It sleeps only if told to nap.
pub struct Spinner {
    cpu: usize,
    tid: Arc<AtomicI32>,
    stop: Arc<AtomicBool>,
    counted: Arc<Mutex<Counted>>,
    thread: Option<JoinHandle<()>>,
}

/// What a [`Spinner`] counts.
#[derive(Clone, Copy, Default)]
struct Counted {
    displaced: u64,
    ran_ns: u64,
    idle_naps: u64,
}

impl Spinner {
    /// One that never sleeps.
    pub fn start(cpu: usize) -> Self {
        Self::run(cpu, None)
    }

    /// One that naps for `nap` whenever nobody has come for `patience`, as a yielding thread does that no signal wakes.
    pub fn napping(cpu: usize, patience: Duration, nap: Duration) -> Self {
        Self::run(cpu, Some((patience, nap)))
    }

    fn run(cpu: usize, nap: Option<(Duration, Duration)>) -> Self {
        let (tid, stop, counted) =
            (Arc::new(AtomicI32::new(0)), Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Counted::default())));
        let (my_tid, my_stop, my_count) = (Arc::clone(&tid), Arc::clone(&stop), Arc::clone(&counted));
        let thread = thread::spawn(move || {
            pin(cpu);
            // SAFETY: plain system calls on the calling thread, with memory of their own.
            unsafe {
                let param: libc::sched_param = std::mem::zeroed();
                assert_eq!(libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param), 0);
            }
            my_tid.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
            let mut counts = own_counts();
            let mut idle_since = Instant::now();
            while !my_stop.load(Ordering::SeqCst) {
                rustix::thread::sched_yield();
                let now = Counted { idle_naps: counts.idle_naps, ..own_counts() };
                if now.displaced != counts.displaced {
                    idle_since = Instant::now();
                }
                counts = now;
                if let Some((_, nap)) = nap.filter(|(patience, _)| idle_since.elapsed() > *patience) {
                    counts.idle_naps += u64::from(nap_was_prompt(nap));
                    idle_since = Instant::now();
                }
                if let Ok(mut counted) = my_count.try_lock() {
                    *counted = counts;
                }
            }
        });
        while tid.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        Self { cpu, tid, stop, counted, thread: Some(thread) }
    }

    pub fn counters(&self) -> RetainCounters {
        let Counted { displaced, ran_ns, idle_naps } = *self.counted.lock().unwrap();
        RetainCounters {
            vcpu: Some(VcpuId(u32::try_from(self.cpu).unwrap())),
            tid: self.tid.load(Ordering::SeqCst),
            retained: gleaner_model::Nanos(ran_ns),
            displaced,
            idle_naps,
            ..RetainCounters::default()
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Naps; whether the vCPU was idle when the nap ended. If another task had it, the thread was kept waiting.
fn nap_was_prompt(nap: Duration) -> bool {
    let run_delay_ns = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = run_delay_ns();
    thread::sleep(nap);
    run_delay_ns() - before <= 20_000
}

/// What the kernel counted of the calling thread.
fn own_usage() -> libc::rusage {
    // SAFETY: getrusage fills the struct it is given.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    }
}

/// Involuntary switches and CPU time of the calling thread.
fn own_counts() -> Counted {
    let usage = own_usage();
    let time = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    Counted {
        displaced: u64::try_from(usage.ru_nivcsw).unwrap(),
        ran_ns: u64::try_from(time.as_nanos()).unwrap(),
        idle_naps: 0,
    }
}
