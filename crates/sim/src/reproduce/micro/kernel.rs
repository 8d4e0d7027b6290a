//! What a guest's kernel does under its ticket locks, whatever the program: ticks, futexes, shootdowns.
//!
//! | section | lock | whose |
//! | --- | --- | --- |
//! | tick (from memory: kernel/hrtimer.c, sched/core.c, timer.c) | the run queue's; three times the timers' | who wakes this one; nobody |
//! | wake-up (try_to_wake_up) | the sleeper's own, and its run queue's, over the interrupt | the sleeper, when it goes on |
//! | leaving a vCPU, coming back (__schedule) | the run queue's | who wakes this one |
//! | futex wait, futex wake | the hash bucket's | those who wait for the same |
//! | memory goes back | none that keeps others out | - |
//!
//! A worker thread's heap is trimmed with madvise (glibc 2.15, malloc/arena.c, shrink_heap: MADV_DONTNEED), which takes the address space's semaphore to read
//! (mm/madvise.c of Linux 3.5) and interrupts the other vCPUs when the page table's lock has been given back (mm/memory.c, tlb_finish_mmu), each sender with a
//! state of its own (arch/x86/mm/tlb.c): shootdowns of several threads go on at once, and each spins for its answers.
//!
//! Section lengths are the paper's Table I, solo, holding time: the mean is known and nothing else, so they are exponential.

use crate::engine::Time;
use crate::program::{Builder, Op, Span};

/// HZ = 250 (Ubuntu 12.04's kernel configuration), on average: ticks of different vCPUs, which the host delays, are not in step.
const TICK: Time = 4_000_000;
/// Slices of different pCPUs and programs of different machines do not begin together; without this they would for ever.
const BEGINS_WITHIN: Time = 30_000_000;

/// A kernel, as one of its threads meets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    run_queue: u32,
    /// task_struct.pi_lock.
    own: u32,
    /// Its vCPU's timers', which nobody else wants.
    timers: u32,
    hold_ns: Time,
    /// Whether what is done now counts as the virtual machine's work.
    counted: bool,
}

/// A tick's section after each 4 ms of computation, whatever the length of the parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    each: Time,
    /// Parts until the next tick, and how many there are between two.
    left: Option<(u32, i64)>,
}

impl Kernel {
    pub(super) fn new(b: &mut Builder, hold_ns: Time) -> Self {
        Self { run_queue: b.spinlock(), own: b.spinlock(), timers: b.spinlock(), hold_ns, counted: true }
    }

    /// The same kernel, for a program whose work counts or does not.
    pub(super) fn counting(self, counted: bool) -> Self {
        Self { counted, ..self }
    }

    /// The same kernel, for another thread.
    pub(super) fn of_thread(self, b: &mut Builder) -> Self {
        Self { run_queue: b.spinlock(), own: b.spinlock(), timers: b.spinlock(), ..self }
    }

    /// A piece of work is done.
    pub(super) fn done(&self, b: &mut Builder) {
        if self.counted {
            b.op(Op::Done);
        }
    }

    pub(super) fn hold(&self) -> Span {
        Span::Exponential { mean: self.hold_ns }
    }

    /// A program's thread begins at some time.
    pub(super) fn begin(b: &mut Builder) {
        b.op(Op::Sleep(Span::Uniform { low: 0, high: BEGINS_WITHIN }));
    }

    /// One section under this lock.
    pub(super) fn section(&self, b: &mut Builder, lock: u32) {
        b.op(Op::SpinLock(lock)).op(Op::Compute(self.hold())).op(Op::SpinUnlock(lock));
    }

    /// Wakes the thread whose kernel that is: try_to_wake_up (kernel/sched/core.c, 3.5) sends the interrupt with both locks held.
    pub(super) fn wakes_thread(&self, b: &mut Builder, other: &Self, wake: Op) {
        b.op(Op::SpinLock(other.own)).op(Op::SpinLock(other.run_queue)).op(Op::Compute(self.hold())).op(wake);
        Self::sends(b);
        b.op(Op::SpinUnlock(other.run_queue)).op(Op::SpinUnlock(other.own));
    }

    /// The thread sleeps until another one has posted this: __schedule takes the run queue's lock when it leaves and when it is back.
    pub(super) fn sleeps(&self, b: &mut Builder, semaphore: u32) {
        self.section(b, self.run_queue);
        b.op(Op::Wait(semaphore));
        self.section(b, self.run_queue);
    }

    /// Wakes others under this lock. futex_wake (kernel/futex.c, 3.5) holds the bucket's lock until the last interrupt is sent.
    pub(super) fn wakes(&self, b: &mut Builder, lock: u32, wake: Op) {
        b.op(Op::SpinLock(lock)).op(Op::Compute(self.hold())).op(wake);
        Self::sends(b);
        b.op(Op::SpinUnlock(lock));
    }

    /// The interrupts that the last instruction asked for are sent before anything else.
    pub(super) fn sends(b: &mut Builder) {
        b.op(Op::Compute(Span::Fixed(0)));
    }

    /// Memory goes back: the page table changes, and so does every vCPU's TLB before the thread goes on.
    pub(super) fn shootdown(&self, b: &mut Builder) {
        b.op(Op::Compute(self.hold())).op(Op::Shootdown);
    }

    /// A tick with high resolution timers: hrtimer_interrupt before and after the timer's function, which calls scheduler_tick, and __run_timers.
    fn tick(&self, b: &mut Builder) {
        for lock in [self.timers, self.run_queue, self.timers, self.timers] {
            self.section(b, lock);
        }
    }

    /// Computation from one tick to the next.
    pub(super) fn compute_a_tick(&self, b: &mut Builder) {
        b.op(Op::Compute(Span::Uniform { low: 0, high: 2 * TICK }));
        self.tick(b);
    }

    /// For computation in parts of this length.
    pub(super) fn ticks(b: &mut Builder, each: Time) -> Ticks {
        let parts = i64::try_from(TICK / each.max(1)).unwrap_or(1);
        Ticks { each, left: (parts > 1).then(|| (b.counter(parts), parts)) }
    }
}

impl Ticks {
    /// Computes one part.
    pub(super) fn compute(&self, b: &mut Builder, kernel: &Kernel) {
        let Some((left, parts)) = self.left else {
            (0..self.each / TICK).for_each(|_| kernel.compute_a_tick(b));
            b.op(Op::Compute(Span::Fixed(self.each % TICK)));
            return;
        };
        let (tick, done) = (b.label(), b.label());
        b.op(Op::Compute(Span::Fixed(self.each))).claim(left, tick).jump(done);
        b.here(tick);
        b.op(Op::Add(left, parts - 1));
        kernel.tick(b);
        b.here(done);
    }
}
