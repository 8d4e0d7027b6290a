//! What a guest's kernel does under its ticket locks, whatever the program: ticks, futexes, shootdowns.
//!
//! | section | lock | whose |
//! | --- | --- | --- |
//! | tick (kernel/hrtimer.c, sched/core.c, timer.c) | the run queue's; three times the timers' | who wakes this one; nobody |
//! | wake-up (try_to_wake_up) | the sleeper's own, and its run queue's, over the interrupt | the sleeper, when it goes on |
//! | leaving a vCPU, coming back (__schedule) | the run queue's | who wakes this one |
//! | futex wait, futex wake | the hash bucket's | those who wait for the same |
//! | memory goes back | none that keeps others out | - |
//!
//! A worker thread's heap is trimmed with madvise (glibc 2.15, malloc/arena.c, shrink_heap: MADV_DONTNEED), which takes
//! the address space's semaphore to read (mm/madvise.c of Linux 3.5) and interrupts the other vCPUs when the page
//! table's lock has been given back (mm/memory.c, tlb_finish_mmu), each sender with a state of its own
//! (arch/x86/mm/tlb.c): shootdowns of several threads go on at once, and each spins for its answers.
//!
//! Of these only glibc's source and madvise.c's own words were read for this; the rest of Linux 3.5 is from memory.
//!
//! Section lengths are the paper's Table I, solo, holding time: the mean is known and nothing else, so they are
//! exponential.

use crate::engine::Time;
use crate::program::{Builder, Label, Op, Span};

/// HZ = 250 (Ubuntu 12.04's kernel configuration), on average: ticks of different vCPUs, which the host delays, are not
/// in step.
const TICK: Time = 4_000_000;
/// Slices of different pCPUs and programs of different machines do not begin together; without this they would for
/// ever.
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
    fn begin(b: &mut Builder) {
        b.op(Op::Sleep(Span::Uniform { low: 0, high: BEGINS_WITHIN }));
    }

    /// A program's thread that does something over and over, in which it may come back to the beginning.
    pub(super) fn thread(b: &mut Builder, body: impl FnOnce(&mut Builder, Label)) {
        Self::begin(b);
        let again = b.label_here();
        body(b, again);
        b.jump(again);
        b.threads(1, 0);
    }

    /// One section under this lock.
    pub(super) fn section(&self, b: &mut Builder, lock: u32) {
        b.op(Op::SpinLock(lock)).op(Op::Compute(self.hold())).op(Op::SpinUnlock(lock));
    }

    /// Wakes the thread whose kernel that is: try_to_wake_up (kernel/sched/core.c, 3.5) sends the interrupt with both
    /// locks held.
    pub(super) fn wakes_thread(&self, b: &mut Builder, other: &Self, wake: Op) {
        b.op(Op::SpinLock(other.own)).op(Op::SpinLock(other.run_queue)).op(Op::Compute(self.hold())).op(wake);
        Self::sends(b);
        b.op(Op::SpinUnlock(other.run_queue)).op(Op::SpinUnlock(other.own));
    }

    /// The thread sleeps until another one has posted this: __schedule takes the run queue's lock when it leaves and
    /// when it is back.
    pub(super) fn sleeps(&self, b: &mut Builder, semaphore: u32) {
        self.section(b, self.run_queue);
        b.op(Op::Wait(semaphore));
        self.section(b, self.run_queue);
    }

    /// Wakes others under this lock. futex_wake (kernel/futex.c, 3.5) holds the bucket's lock until the last interrupt
    /// is sent.
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

    /// A tick with high resolution timers: hrtimer_interrupt before and after the timer's function, which calls
    /// scheduler_tick, and __run_timers.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, CreditParams, HostConfig, Scheduler, VmConfig};
    use crate::{Costs, SimResult, Simulation, Time};

    const MS: Time = 1_000_000;

    fn run(pcpus: u32, vcpus: u32, b: &mut Builder) -> SimResult {
        let costs = Costs { ipi_ns: 11_000, ipi_send_ns: 830, ..Costs::FREE };
        let host = HostConfig::new(pcpus, Scheduler::Credit(CreditParams::XEN));
        let config = Config::new(host, vec![VmConfig::new("vm", vcpus, costs, b.build())]);
        Simulation::new(config).and_then(Simulation::run).unwrap().0
    }

    /// A wakes B after 5 ms; B goes on for 3 ms when it is back on its run queue.
    fn wake_up(pcpus: u32) -> SimResult {
        let mut b = Builder::new();
        let kernel = Kernel::new(&mut b, 0);
        let (other, woken) = (kernel.of_thread(&mut b), b.semaphore());
        b.op(Op::Compute(Span::Fixed(5 * MS)));
        kernel.wakes_thread(&mut b, &other, Op::Post(woken));
        b.threads(1, 0);
        b.op(Op::Wait(woken));
        other.section(&mut b, other.run_queue);
        b.op(Op::Compute(Span::Fixed(3 * MS))).threads(1, 0);
        run(pcpus, 2, &mut b)
    }

    #[test]
    fn who_is_woken_on_the_same_pcpu_spins_for_the_lock_its_waker_holds() {
        // B is there when the sender's exit is over, at 5.000 83, and preempts A under B's run queue's lock. B spins
        // until its slice ends at 35.000 83; then A gives the lock back, and B has its 3 ms.
        let together = wake_up(1);
        assert_eq!(together.vms[0].totals.spin_waits.sum().0, 30 * MS);
        assert_eq!(together.vms[0].totals.ended_at, Some(38 * MS + 830));
        // A has held B's own lock as long as the run queue's, 30.000 83 ms each; B the latter for no time.
        assert_eq!(together.vms[0].totals.spin_holds.sum().0, 2 * (30 * MS + 830));
        // On pCPUs of their own A gives it back before B is awake, at 5.011.
        let apart = wake_up(2);
        assert_eq!(apart.vms[0].totals.spin_waits.sum().0, 0);
        assert_eq!(apart.vms[0].totals.ended_at, Some(8 * MS + 11_000));
    }

    #[test]
    fn shootdowns_of_two_threads_go_on_at_once() {
        // Both ask at 1 ms; each answers when its own interrupt has arrived, 11 us later, while it spins for the
        // other's answer.
        let mut b = Builder::new();
        let kernel = Kernel::new(&mut b, 0);
        for _ in 0..2 {
            b.op(Op::Compute(Span::Fixed(MS)));
            kernel.shootdown(&mut b);
            b.threads(1, 0);
        }
        let result = run(2, 2, &mut b);
        assert_eq!(result.vms[0].totals.shootdowns.count(), 2);
        assert_eq!(result.vms[0].totals.ended_at, Some(MS + 11_000));
    }
}
