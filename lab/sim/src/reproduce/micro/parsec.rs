//! The PARSEC programs, as far as schedulers see them: how long a thread computes between two synchronization points,
//! what they synchronize with, and which kernel sections that takes.
//!
//! Counts are those of Bienia et al. (PACT'08, the paper's reference [4]), Table 1: instructions and synchronization
//! operations of all threads, input simlarge, 8 cores. A processor at 2.4 GHz that retires one instruction a cycle
//! turns instructions into time; dividing by the operations gives the time between them. Nothing here was fitted to the
//! figures that are compared.

use super::dedup;
use super::kernel::Kernel;
use super::lock_times::hold_ns;
use super::queue::Queue;
use super::threadgroup::{self, Tile};
use crate::engine::Time;
use crate::program::{Builder, Op, Span, Test, Workload};
use serde::Deserialize;
use std::sync::LazyLock;

/// Threads of a program: its VM's vCPUs.
pub(super) const THREADS: u32 = 4;
/// Xeon E5620; one instruction a cycle is ours.
const INSTRUCTIONS_PER_US: u64 = 2_400;

/// How threads depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shape {
    /// Not at all, in the steady state.
    Independent,
    /// All compute, then wait for all: so many phases.
    Phases(u64),
    /// As [`Self::Phases`], with a barrier at which they spin before they block.
    SpinningPhases(u64),
    /// Parallel stages with bounded queues, so many threads a stage; so many items; a serial stage before and after.
    /// One of them, counted from 0, gives memory back.
    Pipeline { stages: u32, items: u64, frees: u32 },
    /// dedup's stages; so many items of 128 KiB.
    Dedup { items: u64 },
    /// A thread hands tiles of an image to the others: so many tiles.
    Tiles(u64),
    /// Frames in turn; each needs its predecessor's rows, and waits for them so often.
    Frames { frames: u64, waits: u64 },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    /// As PARSEC calls it.
    pub name: String,
    pub shape: Shape,
    /// Instructions of all threads, millions.
    pub minstructions: u64,
    /// How often memory is given back to the kernel, which is a shootdown.
    #[serde(default)]
    pub shootdowns: u64,
    /// Where it is from.
    pub source: String,
}

/// The programs of PARSEC 2.1.
pub(super) static PARSEC: LazyLock<Vec<Program>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        program: Vec<Program>,
    }
    let file: File = toml::from_str(include_str!("parsec.toml")).expect("part of the program");
    file.program
});

impl Program {
    /// By its name, which is one of the table's.
    pub(super) fn named(name: &str) -> &'static Self {
        PARSEC.iter().find(|program| program.name == name).unwrap_or(&PARSEC[0])
    }

    /// Alone in its VM, with the kernel sections of Table I.
    pub(super) fn vm(name: &str) -> (String, Workload) {
        (name.to_owned(), Self::named(name).workload(hold_ns(name)))
    }

    /// CPU time of a run, all threads together.
    fn cpu_ns(&self) -> Time {
        self.minstructions * 1_000_000 / INSTRUCTIONS_PER_US * 1_000
    }

    /// Written without end into `b`, with so many threads (of a stage) and what its kernel does.
    pub(super) fn write(&self, b: &mut Builder, kernel: &Kernel, threads: u32) {
        match self.shape {
            Shape::Independent => independent(b, kernel, threads),
            Shape::Phases(phases) => self::phases(b, kernel, threads, self.cpu_ns() / phases / u64::from(threads)),
            Shape::SpinningPhases(phases) => {
                spinning_phases(b, kernel, threads, self.cpu_ns() / phases / u64::from(threads));
            }
            Shape::Pipeline { stages, items, frees } => {
                let each = self.cpu_ns() / items / u64::from(stages);
                pipeline(b, kernel, threads, (stages, each), (frees, self.shootdowns / items));
            }
            Shape::Dedup { items } => dedup::write(b, kernel, threads, self.cpu_ns() / items),
            Shape::Tiles(tiles) => {
                let ratio = [self.shootdowns, tiles].map(|n| i64::try_from(n).unwrap_or(1));
                let tile = Tile { each: self.cpu_ns() / tiles, shootdowns: (ratio[0], ratio[1]) };
                threadgroup::tiles(b, kernel, threads, tile);
            }
            Shape::Frames { frames, waits } => self::frames(b, kernel, threads, self.cpu_ns() / frames / waits, waits),
        }
    }

    /// Alone in its VM.
    pub(super) fn workload(&self, hold_ns: Time) -> Workload {
        let mut b = Builder::new();
        let kernel = Kernel::new(&mut b, hold_ns);
        self.write(&mut b, &kernel, THREADS);
        b.build()
    }
}

/// Computes, and counts what it did as items of a tick's length.
fn independent(b: &mut Builder, kernel: &Kernel, threads: u32) {
    for _ in 0..threads {
        let kernel = kernel.of_thread(b);
        Kernel::thread(b, |b, _| {
            kernel.compute_a_tick(b);
            kernel.done(b);
        });
    }
}

/// Threads that wake each other, each on a vCPU of its own.
fn siblings(b: &mut Builder, kernel: &Kernel, threads: u32) -> Vec<(Kernel, u32)> {
    (0..threads).map(|_| (kernel.of_thread(b), b.semaphore())).collect()
}

/// All compute, all wait for all (bodytrack's and facesim's pool is the same: none goes on before all are done).
fn phases(b: &mut Builder, kernel: &Kernel, threads: u32, each: Time) {
    let (arrived, bucket, all) = (b.counter(0), b.spinlock(), siblings(b, kernel, threads));
    for (me, (kernel, woken)) in all.iter().enumerate() {
        let ticks = Kernel::ticks(b, each);
        Kernel::thread(b, |b, again| {
            ticks.compute(b, kernel);
            let not_last = b.label();
            // futex: the bucket's lock is held by whoever goes to sleep, and by the last one while it wakes the others.
            b.op(Op::SpinLock(bucket)).op(Op::Compute(kernel.hold())).op(Op::Add(arrived, 1));
            b.unless(Test::AtLeast(arrived, i64::from(threads)), not_last);
            b.op(Op::Add(arrived, -i64::from(threads)));
            for (_, (other, wake)) in all.iter().enumerate().filter(|(other, _)| *other != me) {
                kernel.wakes_thread(b, other, Op::Post(*wake));
            }
            b.op(Op::SpinUnlock(bucket));
            kernel.done(b);
            b.jump(again);
            b.here(not_last);
            b.op(Op::SpinUnlock(bucket));
            kernel.sleeps(b, *woken);
        });
    }
}

/// parsec_barrier.cpp: whoever waits looks at a flag "for no more than 0.1 ms", without a pause instruction, then waits
/// on a condition.
const SPINS: Time = 100_000;
/// How often it looks here; the real loop does so every few nanoseconds.
const LOOK: Time = 5_000;

/// All compute, all wait for all, awake at first. The kernel is entered only to sleep, and to wake who sleeps.
fn spinning_phases(b: &mut Builder, kernel: &Kernel, threads: u32, each: Time) {
    let (mutex, bucket, asleep) = (b.mutex(), b.spinlock(), b.counter(0));
    let all: Vec<(Kernel, u32, u32)> =
        siblings(b, kernel, threads).into_iter().map(|(kernel, woken)| (kernel, woken, b.counter(0))).collect();
    // Two barriers in turn, so that nobody overtakes: arrived[n] counts up to `threads`, open[n] is 1 when all have
    // come.
    let (arrived, open) = ([b.counter(0), b.counter(0)], [b.counter(0), b.counter(0)]);
    for (kernel, woken, sleeps) in &all {
        let (ticks, turns) = (Kernel::ticks(b, each), b.counter(0));
        Kernel::thread(b, |b, _| {
            for n in 0..2 {
                let (last, through, blocks) = (b.label(), b.label(), b.label());
                ticks.compute(b, kernel);
                b.op(Op::Lock(mutex)).op(Op::Add(arrived[n], 1));
                b.unless(Test::AtMost(arrived[n], i64::from(threads) - 1), last);
                b.op(Op::Unlock(mutex)).op(Op::Add(turns, i64::try_from(SPINS / LOOK).unwrap_or(0)));
                let spins = b.label_here();
                b.unless(Test::AtMost(open[n], 0), through).claim(turns, blocks);
                b.op(Op::Compute(Span::Fixed(LOOK))).jump(spins);
                b.here(blocks);
                kernel.section(b, bucket);
                b.unless(Test::AtMost(open[n], 0), through);
                b.op(Op::Add(asleep, 1)).op(Op::Add(*sleeps, 1));
                kernel.sleeps(b, *woken);
                b.op(Op::Lock(mutex)).op(Op::Unlock(mutex)).jump(through);
                b.here(last);
                opens(b, (arrived[n], open), n, threads);
                kernel.done(b);
                let nobody = b.label();
                b.unless(Test::AtLeast(asleep, 1), nobody);
                wakes_all(b, kernel, bucket, (asleep, &all));
                b.here(nobody);
                b.op(Op::Unlock(mutex));
                b.here(through);
                let none = b.label();
                let forgets = b.label_here();
                b.claim(turns, none).jump(forgets);
                b.here(none);
            }
        });
    }
}

/// Wakes all who sleep, under the bucket's lock.
fn wakes_all(b: &mut Builder, kernel: &Kernel, bucket: u32, (asleep, all): (u32, &[(Kernel, u32, u32)])) {
    b.op(Op::SpinLock(bucket)).op(Op::Compute(kernel.hold()));
    for (other, wake, sleeps) in all {
        let awake = b.label();
        b.claim(*sleeps, awake).op(Op::Add(asleep, -1));
        kernel.wakes_thread(b, other, Op::Post(*wake));
        b.here(awake);
    }
    b.op(Op::SpinUnlock(bucket));
}

/// Closes the other barrier before it opens this one.
fn opens(b: &mut Builder, (arrived, open): (u32, [u32; 2]), n: usize, threads: u32) {
    let closed = b.label();
    b.op(Op::Add(arrived, -i64::from(threads))).claim(open[1 - n], closed);
    b.here(closed);
    b.op(Op::Add(open[n], 1));
}

/// A serial stage that reads, parallel ones with so much computation each, a serial one that writes. One of them gives
/// memory back.
fn pipeline(
    b: &mut Builder,
    kernel: &Kernel,
    threads: u32,
    (stages, each): (u32, Time),
    (frees, shootdowns): (u32, u64),
) {
    let queues: Vec<Queue> = (0..=stages).map(|_| Queue::new(b)).collect();
    Kernel::thread(b, |b, _| {
        b.op(Op::Compute(kernel.hold()));
        queues[0].put(b, kernel);
    });
    for stage in 0..stages as usize {
        let mine = if stage == frees as usize { shootdowns } else { 0 };
        for _ in 0..threads {
            let kernel = kernel.of_thread(b);
            let ticks = Kernel::ticks(b, each);
            Kernel::thread(b, |b, _| {
                queues[stage].take(b, &kernel);
                ticks.compute(b, &kernel);
                (0..mine).for_each(|_| kernel.shootdown(b));
                queues[stage + 1].put(b, &kernel);
            });
        }
    }
    Kernel::thread(b, |b, _| {
        queues[stages as usize].take(b, kernel);
        b.op(Op::Compute(kernel.hold()));
        kernel.done(b);
    });
}

/// x264: thread k has every fourth frame; a row group waits for that of the frame before, which thread k - 1 has.
fn frames(b: &mut Builder, kernel: &Kernel, threads: u32, each: Time, waits: u64) {
    // The first frame has no predecessor: all its row groups may begin.
    let may_begin = |k: usize| if k == 0 { i64::try_from(waits).unwrap_or(1) } else { 0 };
    let all = siblings(b, kernel, threads);
    let done: Vec<[u32; 3]> = (0..all.len()).map(|k| [b.counter(may_begin(k)), b.counter(0), b.spinlock()]).collect();
    for (k, (kernel, woken)) in all.iter().enumerate() {
        let next = (k + 1) % all.len();
        let ([rows, sleeps, bucket], [next_rows, next_sleeps, next_bucket]) = (done[k], done[next]);
        let (ticks, at_once, nobody) = (Kernel::ticks(b, each), b.label(), b.label());
        Kernel::thread(b, |b, _| {
            b.unless(Test::AtMost(rows, 0), at_once);
            kernel.section(b, bucket);
            b.unless(Test::AtMost(rows, 0), at_once).op(Op::Add(sleeps, 1));
            kernel.sleeps(b, *woken);
            b.here(at_once);
            b.op(Op::Add(rows, -1));
            ticks.compute(b, kernel);
            b.op(Op::Add(next_rows, 1)).claim(next_sleeps, nobody);
            b.op(Op::SpinLock(next_bucket)).op(Op::Compute(kernel.hold()));
            kernel.wakes_thread(b, &all[next].0, Op::Post(all[next].1));
            b.op(Op::SpinUnlock(next_bucket));
            b.here(nobody);
            kernel.done(b);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_synchronizations_are_those_of_the_counts() {
        let streamcluster = Program::named("streamcluster");
        // 22.12e9 instructions at 2.4e9 a second over 16,200 phases of 4 threads.
        assert_eq!(streamcluster.shape, Shape::SpinningPhases(16_200));
        assert_eq!(streamcluster.cpu_ns() / 16_200 / 4, 142_232);
        assert!(PARSEC.iter().all(|program| program.workload(7_000).flaw().is_none()));
    }
}
