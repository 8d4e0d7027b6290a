//! What threads do: small programs of computation and synchronization, as assembler for a machine without data.
//!
//! An instruction either takes no time of its own (locks that are free, counters, jumps), takes time on a vCPU
//! (`Compute`, spinning), or blocks. The wait for a condition is `WaitUntil`, which is `while (!condition)
//! pthread_cond_wait()`: it tests the condition with the mutex held, every time it is woken. So a woken thread that
//! comes too late waits again, as in reality.

mod build;
pub mod catalogue;
mod code;
mod line;
mod sync;
mod thread;

pub use build::{Builder, Label};
pub(crate) use code::Code;
pub(crate) use line::Line;
pub(crate) use sync::Objects;
pub(crate) use thread::{Doing, Thread, ThreadState};

use crate::engine::{Random, Time};

/// A length of time, fixed or drawn anew each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Always the same.
    Fixed(Time),
    /// Exponentially distributed.
    Exponential { mean: Time },
    /// Every value from `low` to `high` as often.
    Uniform {
        /// Smallest.
        low: Time,
        /// Largest.
        high: Time,
    },
}

/// No instruction may take longer: 100 days, far beyond every simulation's end, and sums of such times are numbers
/// still.
pub const SPAN_MAX: Time = 100 * 86_400 * 1_000_000_000;

impl Span {
    /// The longest there is, or for an exponential one, its mean.
    fn longest(self) -> Time {
        match self {
            Self::Fixed(time) => time,
            Self::Exponential { mean } => mean,
            Self::Uniform { low, high } => low.max(high),
        }
    }

    pub(crate) fn draw(self, random: &mut Random) -> Time {
        match self {
            Self::Fixed(time) => time,
            Self::Exponential { mean } => random.exponential(mean),
            Self::Uniform { low, high } => low + random.below(high.saturating_sub(low) + 1),
        }
    }
}

/// A condition on a virtual machine's queues and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// There is an item in the queue.
    NotEmpty(u32),
    /// There are fewer items in the queue.
    Shorter { queue: u32, than: u32 },
    /// The counter is at least this.
    AtLeast(u32, i64),
    /// The counter is at most this.
    AtMost(u32, i64),
}

/// Either of two conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard(pub Test, pub Option<Test>);

impl From<Test> for Guard {
    fn from(test: Test) -> Self {
        Self(test, None)
    }
}

impl Test {
    pub fn or(self, other: Self) -> Guard {
        Guard(self, Some(other))
    }
}

/// One instruction. Numbers name a virtual machine's objects ([`Shared`]); targets are places in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Compute(Span),
    /// Takes a mutex, blocking; whoever comes first after an unlock has it.
    Lock(u32),
    /// Gives it back and wakes the first waiter.
    Unlock(u32),
    /// With the mutex held: goes on when the condition holds, waits at the condition variable until then.
    WaitUntil {
        /// The condition variable.
        cond: u32,
        mutex: u32,
        /// The condition.
        guard: Guard,
    },
    /// Wakes the first who waits there.
    Signal(u32),
    /// Wakes all who wait there.
    Broadcast(u32),
    /// Waits, blocked, until all parties have come.
    Barrier(u32),
    /// Takes one from a semaphore; blocks while it has none.
    Wait(u32),
    /// Gives a semaphore one; wakes the first who waits for it.
    Post(u32),
    /// Takes a kernel's ticket spinlock: spins with preemption off, in the order of arrival.
    SpinLock(u32),
    /// Gives it back.
    SpinUnlock(u32),
    /// Takes a read-write semaphore to read, blocking; not before who waits already.
    ReadLock(u32),
    /// Gives it back; the last wakes the first who waits.
    ReadUnlock(u32),
    /// Takes a read-write semaphore to write, blocking; [`Writers`] says whether before who waits already.
    WriteLock(u32),
    /// Gives it back, and wakes the first who waits: all readers up to the first writer, or a writer.
    WriteUnlock(u32),
    /// Interrupts the virtual machine's other vCPUs, and spins until all have answered.
    Shootdown,
    /// Sleeps; a timer of the thread's vCPU ends it.
    Sleep(Span),
    /// Asks a device and blocks until its interrupt comes to the thread's vCPU.
    Io(Span),
    /// The thread's item is new: its latency counts from now.
    Stamp,
    /// Puts the thread's item into a queue.
    Push(u32),
    /// Takes the first item of a queue, if there is one.
    Pop(u32),
    /// The thread's item is done.
    Done,
    /// Adds to a counter.
    Add(u32, i64),
    /// Takes one from a counter above 0; else jumps.
    Claim {
        counter: u32,
        /// Where to, when there is none left.
        otherwise: u32,
    },
    /// Jumps unless the condition holds.
    Unless(Guard, u32),
    Jump(u32),
    /// Ends.
    Exit,
}

/// How a read-write semaphore comes to a writer that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// It is given to it, as to readers, and nobody overtakes: Linux before 3.9.
    InTurn,
    /// It is woken and takes it when it runs, unless another writer that runs has come first (commit ce6c711cd11d).
    Steal,
}

/// What the threads of a virtual machine share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// How many mutexes.
    pub mutexes: u32,
    /// How many condition variables.
    pub conds: u32,
    /// How many ticket spinlocks.
    pub spinlocks: u32,
    /// Each read-write semaphore, by what it does with writers.
    pub rwsems: Vec<Writers>,
    /// How many queues.
    pub queues: u32,
    /// How many semaphores; each begins with none.
    pub semaphores: u32,
    /// Parties of each barrier.
    pub barriers: Vec<u32>,
    /// Each counter's first value.
    pub counters: Vec<i64>,
}

/// Some threads that run the same program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which of the workload's programs.
    pub program: u32,
    /// How many.
    pub count: u32,
    /// vCPUs that each may use, as bits; 0: all.
    pub vcpus: u64,
}

/// What a virtual machine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    pub programs: Vec<Vec<Op>>,
    /// The threads, in the order in which they start.
    pub groups: Vec<Group>,
    /// What they share.
    pub shared: Shared,
}

impl Workload {
    /// Nothing: the virtual machine idles.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// One program on some threads, with nothing shared.
    pub fn one(program: Vec<Op>, threads: u32) -> Self {
        let groups = vec![Group { program: 0, count: threads, vcpus: 0 }];
        Self { programs: vec![program], groups, shared: Shared::default() }
    }

    /// How many threads.
    pub fn threads(&self) -> u32 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// What is wrong with it, if something is: the first number that names nothing.
    pub fn flaw(&self) -> Option<String> {
        let bad_group = self.groups.iter().find(|group| group.program as usize >= self.programs.len());
        if let Some(group) = bad_group {
            return Some(format!(
                "a group of threads runs program {}, and there are {}",
                group.program,
                self.programs.len()
            ));
        }
        let long =
            |op: &&Op| matches!(op, Op::Compute(span) | Op::Sleep(span) | Op::Io(span) if span.longest() > SPAN_MAX);
        if let Some(op) = self.programs.iter().flatten().find(long) {
            return Some(format!(
                "{op:?} takes more than 100 days, which no simulation reaches: give it a shorter time"
            ));
        }
        self.programs.iter().zip(0..).find_map(|(program, number)| {
            let wrong = program.iter().zip(0..).find(|(op, _)| !self.has_all_of(op, program.len()));
            wrong.map(|(op, at): (_, usize)| {
                format!("program {number}, instruction {at}: {op:?} names something that there is not")
            })
        })
    }

    fn has_all_of(&self, op: &Op, length: usize) -> bool {
        let shared = &self.shared;
        let counter = |n: u32| (n as usize) < shared.counters.len();
        let target = |n: u32| n as usize <= length;
        let test = |test: Test| match test {
            Test::NotEmpty(queue) | Test::Shorter { queue, .. } => queue < shared.queues,
            Test::AtLeast(n, _) | Test::AtMost(n, _) => counter(n),
        };
        let guard = |guard: Guard| test(guard.0) && guard.1.is_none_or(test);
        match *op {
            Op::Lock(mutex) | Op::Unlock(mutex) => mutex < shared.mutexes,
            Op::WaitUntil { cond, mutex, guard: of } => cond < shared.conds && mutex < shared.mutexes && guard(of),
            Op::Signal(cond) | Op::Broadcast(cond) => cond < shared.conds,
            Op::Barrier(barrier) => (barrier as usize) < shared.barriers.len(),
            Op::Wait(semaphore) | Op::Post(semaphore) => semaphore < shared.semaphores,
            Op::SpinLock(lock) | Op::SpinUnlock(lock) => lock < shared.spinlocks,
            Op::ReadLock(sem) | Op::ReadUnlock(sem) | Op::WriteLock(sem) | Op::WriteUnlock(sem) => {
                (sem as usize) < shared.rwsems.len()
            }
            Op::Push(queue) | Op::Pop(queue) => queue < shared.queues,
            Op::Add(n, _) => counter(n),
            Op::Claim { counter: n, otherwise } => counter(n) && target(otherwise),
            Op::Unless(of, to) => guard(of) && target(to),
            Op::Jump(to) => target(to),
            Op::Compute(_) | Op::Shootdown | Op::Sleep(_) | Op::Io(_) | Op::Stamp | Op::Done | Op::Exit => true,
        }
    }
}
