//! A program with phases: narrow ones, in which a token goes from thread to thread, and wide ones, in which all
//! compute. It says how long it took from the beginning of a wide phase until each vCPU worked for it.
//!
//! `phases THREADS HANDOVERS WORK_MS PHASES`: so many hand-overs in a narrow phase, so much work for each thread in a
//! wide one. The work is the same however fast it is done, so runs may be compared by their time.

use gleaner_workloads::{ITERATIONS_PER_US, compute};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// CPUs that can be told apart.
const CPUS: usize = 1024;
/// What a thread computes before it hands on, and between two looks at its CPU.
const PIECE_US: u64 = 5;

struct Shared {
    /// Whose turn it is in a narrow phase; `THREADS + n` is everybody's: the wide one n. `u64::MAX`: the end.
    turn: Mutex<u64>,
    /// One for each thread: a hand-over wakes one.
    changed: Vec<Condvar>,
    began: Instant,
    /// When the wide phase began, and which CPUs have worked for it.
    wide_at: AtomicU64,
    seen: Vec<AtomicBool>,
    count: AtomicUsize,
    all_at: AtomicU64,
    /// Threads that are done with it.
    done: AtomicUsize,
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, thread: usize, until: impl Fn(u64) -> bool) -> u64 {
        let mut turn = self.lock();
        while !until(*turn) {
            turn = self.changed[thread].wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        *turn
    }

    fn set(&self, to: u64) {
        *self.lock() = to;
        match self.changed.get(usize::try_from(to).unwrap_or(usize::MAX)) {
            Some(one) => one.notify_one(),
            None => self.changed.iter().for_each(Condvar::notify_one),
        }
    }

    /// The calling thread computes here.
    fn note_cpu(&self, cpus: usize) {
        let cpu = current_cpu();
        if cpu < CPUS
            && !self.seen[cpu].swap(true, Ordering::Relaxed)
            && self.count.fetch_add(1, Ordering::Relaxed) + 1 == cpus
        {
            self.all_at.store(self.now(), Ordering::Relaxed);
        }
    }
}

/// The CPU that the calling thread is on.
fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [threads, handovers, work_ms, phases] = numbers[..] else {
        eprintln!("phases THREADS HANDOVERS WORK_MS PHASES, for example 2 100000 20 10");
        std::process::exit(2);
    };
    let count = usize::try_from(threads).unwrap_or(1).max(1);
    let cpus = count.min(std::thread::available_parallelism().map_or(1, usize::from));
    let shared = Shared {
        turn: Mutex::new(0),
        changed: (0..count).map(|_| Condvar::new()).collect(),
        began: Instant::now(),
        wide_at: AtomicU64::new(0),
        seen: (0..CPUS).map(|_| AtomicBool::new(false)).collect(),
        count: AtomicUsize::new(0),
        all_at: AtomicU64::new(0),
        done: AtomicUsize::new(0),
    };
    let mut delays = Vec::new();
    let (mut wide_ns, mut missed) = (0, 0_u64);
    std::thread::scope(|scope| {
        for thread in 1..count {
            let shared = &shared;
            scope.spawn(move || worker(shared, thread, threads, work_ms, cpus));
        }
        for phase in 0..phases {
            for _ in 0..handovers / threads {
                compute(7, PIECE_US * ITERATIONS_PER_US);
                if count > 1 {
                    shared.set(1);
                    shared.wait(0, |turn| turn == 0);
                }
            }
            let before = shared.now();
            shared.seen.iter().for_each(|seen| seen.store(false, Ordering::Relaxed));
            shared.count.store(0, Ordering::Relaxed);
            shared.all_at.store(0, Ordering::Relaxed);
            shared.wide_at.store(before, Ordering::Relaxed);
            shared.set(threads + phase);
            wide(&shared, 0, work_ms, cpus);
            shared.wait(0, |turn| turn == 0);
            wide_ns += shared.now() - before;
            match shared.all_at.load(Ordering::Relaxed) {
                0 => missed += 1,
                at => delays.push(at.saturating_sub(before)),
            }
        }
        shared.set(u64::MAX);
    });
    delays.sort_unstable();
    let at = |permille: usize| delays.get((delays.len() * permille / 1_000).min(delays.len().saturating_sub(1)));
    let us = |ns: Option<&u64>| ns.map_or_else(|| "null".to_owned(), |ns| format!("{:.1}", *ns as f64 / 1e3));
    let all: Vec<String> = delays.iter().map(|ns| us(Some(ns))).collect();
    println!(
        "{{\"wall_ms\": {:.1}, \"wide_ms\": {:.1}, \"bursts\": {phases}, \"missed\": {missed}, \"p50_us\": {}, \
         \"p90_us\": {}, \"p99_us\": {}, \"max_us\": {}, \"delays_us\": [{}]}}",
        shared.now() as f64 / 1e6,
        wide_ns as f64 / 1e6,
        us(at(500)),
        us(at(900)),
        us(at(990)),
        us(delays.last()),
        all.join(", "),
    );
}

fn worker(shared: &Shared, thread: usize, threads: u64, work_ms: u64, cpus: usize) {
    let own = thread as u64;
    // Between two wide phases there may be nothing that a thread sees.
    let mut done = None;
    loop {
        let turn = shared.wait(thread, |turn| turn == own || turn >= threads && done != Some(turn));
        if turn == u64::MAX {
            return;
        }
        if turn >= threads {
            wide(shared, thread, work_ms, cpus);
            done = Some(turn);
            continue;
        }
        compute(own, PIECE_US * ITERATIONS_PER_US);
        shared.set((own + 1) % threads);
    }
}

fn wide(shared: &Shared, thread: usize, work_ms: u64, cpus: usize) {
    for piece in 0..work_ms * 1_000 / PIECE_US {
        compute(piece ^ thread as u64, PIECE_US * ITERATIONS_PER_US);
        shared.note_cpu(cpus);
    }
    if shared.done.fetch_add(1, Ordering::AcqRel) + 1 == shared.changed.len() {
        shared.done.store(0, Ordering::Release);
        let mut turn = shared.lock();
        *turn = 0;
        drop(turn);
        shared.changed.iter().for_each(Condvar::notify_one);
    }
}
