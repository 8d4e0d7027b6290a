//! The built-in programs, as the real ones of `gleaner workload` are built: the same threads, the same locks, the same
//! order of operations (crates/workloads/src/programs; each function names its file).
//!
//! What the real ones spend on a mutex or a queue's memory is not modelled: granularity is the computation between two
//! synchronization points.

use super::{Builder, Guard, Label, Op, Span, Test, Workload};
use crate::engine::Time;

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Threads, as `gleaner workload list` says for each program.
    pub threads: u32,
    /// Items of work; `None`: without end.
    pub items: Option<u64>,
    /// Computation between two synchronization points.
    pub granularity: Span,
}

/// A program that can be asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// As `gleaner workload` calls it.
    pub name: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// Its granularity unless told otherwise, nanoseconds: `gleaner workload`'s.
    pub granularity: Time,
    /// Writes it.
    pub build: fn(&Plan) -> Workload,
}

/// All of them.
pub const ALL: [Description; 10] = [
    describe("pipeline", "stages with bounded queues (dedup)", 40_000, pipeline),
    describe("relay", "a chain of threads with places for one", 5_000, relay),
    describe("barrier", "all compute a little, then wait for each other (streamcluster)", 50_000, barrier),
    describe("task-queue", "trees of small tasks in one queue under one mutex (cholesky, volrend)", 20_000, task_queue),
    describe("fork-join", "a pool woken for each parallel region of 8 parts (bodytrack, vips)", 50_000, fork_join),
    describe("independent", "threads that never wait for one another (blackscholes, swaptions)", 200_000, independent),
    describe("matmul", "the Gleaner paper's CPU-bound neighbour", 1_000_000, independent),
    describe("freqsleep", "computes for a moment and sleeps, over and over", 1_000, freqsleep),
    describe("request-reply", "clients, a server thread for each, row locks (MySQL under OLTP)", 20_000, request_reply),
    describe(
        "address-space",
        "maps, protects and unmaps memory: TLB shootdowns under a kernel lock",
        5_000,
        address_space,
    ),
];

const fn describe(
    name: &'static str,
    meaning: &'static str,
    granularity: Time,
    build: fn(&Plan) -> Workload,
) -> Description {
    Description { name, meaning, granularity, build }
}

/// The program of that name.
pub fn by_name(name: &str) -> Option<&'static Description> {
    ALL.iter().find(|program| program.name == name)
}

/// A bounded queue of a mutex and two condition variables (crates/workloads/src/queue.rs).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    items: u32,
    mutex: u32,
    not_empty: u32,
    not_full: u32,
    /// Producers that have not left.
    producers: u32,
    capacity: u32,
}

impl Queue {
    pub(crate) fn new(b: &mut Builder, capacity: u32, producers: u32) -> Self {
        let items = b.queue();
        let (mutex, not_empty, not_full) = (b.mutex(), b.cond(), b.cond());
        Self { items, mutex, not_empty, not_full, producers: b.counter(i64::from(producers)), capacity }
    }

    pub(crate) fn put(&self, b: &mut Builder) {
        let room = Test::Shorter { queue: self.items, than: self.capacity }.into();
        b.op(Op::Lock(self.mutex));
        b.op(Op::WaitUntil { cond: self.not_full, mutex: self.mutex, guard: room });
        b.op(Op::Push(self.items)).op(Op::Signal(self.not_empty)).op(Op::Unlock(self.mutex));
    }

    /// Jumps to `closed` when it is empty and stays so.
    pub(crate) fn take(&self, b: &mut Builder, closed: Label) {
        let something: Guard = Test::NotEmpty(self.items).or(Test::AtMost(self.producers, 0));
        let (empty, taken) = (b.label(), b.label());
        b.op(Op::Lock(self.mutex));
        b.op(Op::WaitUntil { cond: self.not_empty, mutex: self.mutex, guard: something });
        b.unless(Test::NotEmpty(self.items), empty);
        b.op(Op::Pop(self.items)).op(Op::Signal(self.not_full)).op(Op::Unlock(self.mutex)).jump(taken);
        b.here(empty);
        b.op(Op::Unlock(self.mutex)).jump(closed);
        b.here(taken);
    }

    /// The producer leaves.
    pub(crate) fn close(&self, b: &mut Builder) {
        let others = b.label();
        b.op(Op::Lock(self.mutex)).op(Op::Add(self.producers, -1));
        b.unless(Test::AtMost(self.producers, 0), others);
        b.op(Op::Broadcast(self.not_empty));
        b.here(others);
        b.op(Op::Unlock(self.mutex));
    }
}

/// The items that are left to claim.
pub(crate) fn items(b: &mut Builder, plan: &Plan) -> u32 {
    b.counter(plan.items.and_then(|items| i64::try_from(items).ok()).unwrap_or(i64::MAX))
}

/// Takes from one queue and puts into another, over and over.
pub(crate) fn hand_on(b: &mut Builder, from: Queue, to: Queue, item: impl FnOnce(&mut Builder)) {
    b.repeat(|b, out| {
        from.take(b, out);
        item(b);
        to.put(b);
    });
    to.close(b);
}

/// pipeline.rs: source -> hash (a table under a mutex) -> compress -> sink. A quarter of the chunks are duplicates and
/// skip the compression; here every fourth.
fn pipeline(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let (n, work) = (plan.threads.max(1), plan.granularity);
    let left = items(&mut b, plan);
    let (to_hash, to_compress, to_sink) =
        (Queue::new(&mut b, 4, 1), Queue::new(&mut b, 4, n), Queue::new(&mut b, 4, 2 * n));
    let (seen, fresh) = (b.mutex(), b.counter(3));
    b.repeat(|b, out| {
        b.claim(left, out);
        b.op(Op::Compute(work)).op(Op::Stamp);
        to_hash.put(b);
    });
    to_hash.close(&mut b);
    b.threads(1, 0);

    let again = b.label_here();
    b.repeat(|b, out| {
        let duplicate = b.label();
        to_hash.take(b, out);
        b.op(Op::Compute(work));
        b.op(Op::Lock(seen)).claim(fresh, duplicate).op(Op::Unlock(seen));
        to_compress.put(b);
        b.jump(again);
        b.here(duplicate);
        b.op(Op::Add(fresh, 3)).op(Op::Unlock(seen));
        to_sink.put(b);
    });
    to_compress.close(&mut b);
    to_sink.close(&mut b);
    b.threads(n, 0);

    hand_on(&mut b, to_compress, to_sink, |b| {
        b.op(Op::Compute(work));
    });
    b.threads(n, 0);

    b.repeat(|b, out| {
        to_sink.take(b, out);
        b.op(Op::Done);
    });
    b.threads(1, 0);
    b.build()
}

/// relay.rs: each thread computes on an item and hands it on through a place for one.
fn relay(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let n = plan.threads.max(1);
    let left = items(&mut b, plan);
    let places: Vec<Queue> = (1..n).map(|_| Queue::new(&mut b, 1, 1)).collect();
    for thread in 0..n as usize {
        let (before, after) = (thread.checked_sub(1).map(|place| places[place]), places.get(thread));
        b.repeat(|b, out| {
            match before {
                Some(before) => before.take(b, out),
                None => {
                    b.claim(left, out).op(Op::Stamp);
                }
            }
            b.op(Op::Compute(plan.granularity));
            match after {
                Some(after) => after.put(b),
                None => {
                    b.op(Op::Done);
                }
            }
        });
        if let Some(after) = after {
            after.close(&mut b);
        }
        b.threads(1, 0);
    }
    b.build()
}

/// barrier.rs: an item is a phase of all threads; the last to arrive decides whether there is another.
fn barrier(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let n = plan.threads.max(1);
    let (left, all) = (items(&mut b, plan), b.barrier(n));
    let (arrived, more) = (b.counter(0), b.counter(1));
    let (again, out) = (b.label_here(), b.label());
    let (not_last, none_left, go) = (b.label(), b.label(), b.label());
    // Counted before the barrier, so that the last one claims for all before anybody goes on.
    b.op(Op::Add(arrived, 1));
    b.unless(Test::AtLeast(arrived, i64::from(n)), not_last);
    b.op(Op::Add(arrived, -i64::from(n)));
    b.claim(left, none_left);
    b.jump(go);
    b.here(none_left);
    b.op(Op::Add(more, -1));
    b.jump(go);
    b.here(not_last);
    b.op(Op::Barrier(all)).unless(Test::AtLeast(more, 1), out);
    b.op(Op::Stamp).op(Op::Compute(plan.granularity)).jump(again);
    b.here(go);
    b.op(Op::Barrier(all)).unless(Test::AtLeast(more, 1), out);
    // Whoever was last counts the phase.
    b.op(Op::Stamp).op(Op::Compute(plan.granularity)).op(Op::Done).jump(again);
    b.here(out);
    b.threads(n, 0);
    b.build()
}

/// task_queue.rs: a task makes two others until its tree has 15; when a tree is done, the next is planted.
fn task_queue(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let left = items(&mut b, plan);
    let (mutex, changed) = (b.mutex(), b.cond());
    // Tasks that are ready; tasks of the present tree yet to be made; tasks ready or running; whether it is over.
    let (ready, unmade, alive, over) = (b.counter(0), b.counter(0), b.counter(0), b.counter(0));
    let (again, run, out) = (b.label(), b.label(), b.label());
    b.op(Op::Lock(mutex));
    b.here(again);
    let (plant, dry, wait) = (b.label(), b.label(), b.label());
    // No task is alive: plant.
    b.unless(Test::AtMost(alive, 0), wait);
    b.unless(Test::AtMost(over, 0), wait);
    b.here(plant);
    b.claim(left, dry);
    b.op(Op::Add(ready, 1)).op(Op::Add(alive, 1)).op(Op::Add(unmade, 14)).op(Op::Signal(changed)).jump(wait);
    b.here(dry);
    b.op(Op::Add(over, 1)).op(Op::Broadcast(changed));
    b.here(wait);
    b.op(Op::WaitUntil { cond: changed, mutex, guard: Test::AtLeast(ready, 1).or(Test::AtLeast(over, 1)) });
    b.claim(ready, out);
    b.here(run);
    b.op(Op::Unlock(mutex)).op(Op::Stamp).op(Op::Compute(plan.granularity)).op(Op::Done).op(Op::Lock(mutex));
    b.op(Op::Add(alive, -1));
    for _ in 0..2 {
        let none = b.label();
        b.claim(unmade, none);
        b.claim(left, none);
        b.op(Op::Add(ready, 1)).op(Op::Add(alive, 1)).op(Op::Signal(changed));
        b.here(none);
    }
    b.jump(again);
    b.here(out);
    b.op(Op::Unlock(mutex));
    b.threads(plan.threads.max(1), 0);
    b.build()
}

/// Parts of a region of `fork_join`.
const PARTS: i64 = 8;

/// fork_join.rs: the leader computes, hands out 8 parts to the pool, waits for all.
fn fork_join(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let (left, mutex, work, all_done) = (items(&mut b, plan), b.mutex(), b.cond(), b.cond());
    let (parts, done, over) = (b.counter(0), b.counter(0), b.counter(0));
    let (again, out) = (b.label_here(), b.label());
    b.claim(left, out);
    b.op(Op::Stamp).op(Op::Compute(plan.granularity));
    b.op(Op::Lock(mutex)).op(Op::Add(parts, PARTS)).op(Op::Broadcast(work));
    b.op(Op::WaitUntil { cond: all_done, mutex, guard: Test::AtLeast(done, PARTS).into() });
    b.op(Op::Add(done, -PARTS)).op(Op::Unlock(mutex)).op(Op::Done).jump(again);
    b.here(out);
    b.op(Op::Lock(mutex)).op(Op::Add(over, 1)).op(Op::Broadcast(work)).op(Op::Unlock(mutex));
    b.threads(1, 0);

    let out = b.label();
    b.op(Op::Lock(mutex));
    let again = b.label_here();
    b.op(Op::WaitUntil { cond: work, mutex, guard: Test::AtLeast(parts, 1).or(Test::AtLeast(over, 1)) });
    b.claim(parts, out);
    b.op(Op::Unlock(mutex)).op(Op::Compute(plan.granularity)).op(Op::Lock(mutex)).op(Op::Add(done, 1));
    b.unless(Test::AtLeast(done, PARTS), again);
    b.op(Op::Signal(all_done)).jump(again);
    b.here(out);
    b.op(Op::Unlock(mutex));
    b.threads(plan.threads.max(1), 0);
    b.build()
}

/// Threads that each claim items and do the same for every one.
fn each_alone(plan: &Plan, item: impl FnOnce(&mut Builder)) -> Workload {
    let mut b = Builder::new();
    let left = items(&mut b, plan);
    b.repeat(|b, out| {
        b.claim(left, out).op(Op::Stamp).op(Op::Compute(plan.granularity));
        item(b);
        b.op(Op::Done);
    });
    b.threads(plan.threads.max(1), 0);
    b.build()
}

/// independent.rs, matmul.rs.
fn independent(plan: &Plan) -> Workload {
    each_alone(plan, |_| {})
}

/// freqsleep.rs: nanosleep(1) takes the timers' slack.
fn freqsleep(plan: &Plan) -> Workload {
    each_alone(plan, |b| {
        b.op(Op::Sleep(Span::Fixed(1)));
    })
}

/// Row locks of `request_reply`, taken two at a time, lower first. 16 pairs in turn stand for 64 rows at random.
const ROWS: u32 = 16;

/// request_reply.rs: a transaction is three requests through a socket; the second takes two rows, the third gives them
/// back.
fn request_reply(plan: &Plan) -> Workload {
    let mut b = Builder::new();
    let left = items(&mut b, plan);
    let rows: Vec<u32> = (0..ROWS).map(|_| b.mutex()).collect();
    for client in 0..plan.threads.max(1) {
        let (request, reply) = (Queue::new(&mut b, 8, 1), Queue::new(&mut b, 8, 1));
        b.repeat(|b, out| {
            b.claim(left, out).op(Op::Stamp);
            for _ in 0..3 {
                request.put(b);
                reply.take(b, out);
            }
            b.op(Op::Done);
        });
        request.close(&mut b);
        b.threads(1, 0);

        let (low, high) = (rows[(client * 5 % ROWS) as usize], rows[((client * 5 + 3) % ROWS) as usize]);
        let (low, high) = (low.min(high), low.max(high));
        b.repeat(|b, out| {
            for statement in 0..3 {
                request.take(b, out);
                if statement == 1 {
                    b.op(Op::Lock(low)).op(Op::Lock(high));
                }
                b.op(Op::Compute(plan.granularity));
                if statement == 2 {
                    b.op(Op::Unlock(high)).op(Op::Unlock(low));
                }
                reply.put(b);
            }
        });
        b.threads(1, 0);
    }
    b.build()
}

/// address_space.rs: every mapping takes the kernel's lock of the address space three times (map, protect, unmap); the
/// latter two interrupt the other vCPUs with the lock held.
fn address_space(plan: &Plan) -> Workload {
    /// Of a page table's change under the lock: ours, within the micro-sliced paper's 1.2 to 16 us (Table I, solo).
    const LOCKED: Span = Span::Fixed(1_000);
    each_alone(plan, |b| {
        let lock = b.spinlock();
        for flushes in [false, true, true] {
            b.op(Op::SpinLock(lock)).op(Op::Compute(LOCKED));
            if flushes {
                b.op(Op::Shootdown);
            }
            b.op(Op::SpinUnlock(lock));
        }
    })
}
