//! The programs there are: names, what they mean, what they stand for.

use crate::work::ITERATIONS_PER_US;
use std::fmt;

/// A program of this room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Stages with bounded queues between them.
    Pipeline,
    /// Items handed on from thread to thread.
    Relay,
    /// Short phases with a barrier after each.
    Barrier,
    /// Small tasks in one queue under one mutex.
    TaskQueue,
    /// A pool woken for each parallel region.
    ForkJoin,
    /// Threads that never wait for one another.
    Independent,
    /// The paper's busy neighbour.
    Matmul,
    /// The paper's neighbour that sleeps all the time.
    Freqsleep,
    /// A server and its clients, with row locks.
    RequestReply,
    /// Memory mapped, protected, unmapped by several threads.
    AddressSpace,
    /// Short blocking reads and writes.
    BlockIo,
    /// Threads that spin for one lock, as kernels do.
    SpinLock,
    /// A client that asks a server at a fixed rate.
    OpenLoop,
}

/// What there is to say about a program.
#[derive(Debug)]
pub struct Description {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub meaning: &'static str,
    /// Which real programs it stands for.
    pub stands_for: &'static str,
    /// One item of its work.
    pub item: &'static str,
    /// What `threads` counts, and how many are started where that is another number.
    pub threads: &'static str,
    /// Its granularity unless told otherwise, in turns of [`crate::compute`]'s loop.
    pub iterations: u64,
}

impl Program {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 13] = [
        Self::Pipeline,
        Self::Relay,
        Self::Barrier,
        Self::TaskQueue,
        Self::ForkJoin,
        Self::Independent,
        Self::Matmul,
        Self::Freqsleep,
        Self::RequestReply,
        Self::AddressSpace,
        Self::BlockIo,
        Self::SpinLock,
        Self::OpenLoop,
    ];

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.description().name == name)
    }

    /// What there is to say about it.
    pub fn description(self) -> &'static Description {
        match self {
            Self::Pipeline => &PIPELINE,
            Self::Relay => &RELAY,
            Self::Barrier => &BARRIER,
            Self::TaskQueue => &TASK_QUEUE,
            Self::ForkJoin => &FORK_JOIN,
            Self::Independent => &INDEPENDENT,
            Self::Matmul => &MATMUL,
            Self::Freqsleep => &FREQSLEEP,
            Self::RequestReply => &REQUEST_REPLY,
            Self::AddressSpace => &ADDRESS_SPACE,
            Self::BlockIo => &BLOCK_IO,
            Self::SpinLock => &SPIN_LOCK,
            Self::OpenLoop => &OPEN_LOOP,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.description().name)
    }
}

static PIPELINE: Description = Description {
    name: "pipeline",
    meaning: "stages with bounded queues hash and compress chunks of text",
    stands_for: "dedup (PARSEC)",
    item: "chunk",
    threads: "threads in each of the two middle stages; 2N+2 are started",
    iterations: 40 * ITERATIONS_PER_US,
};

static RELAY: Description = Description {
    name: "relay",
    meaning: "a chain of threads, each of which computes a little and hands on to the next",
    stands_for: "pipelines with short critical sections, request chains",
    item: "item through all threads",
    threads: "threads of the chain",
    iterations: 5 * ITERATIONS_PER_US,
};

static BARRIER: Description = Description {
    name: "barrier",
    meaning: "all threads compute a little, then wait for each other",
    stands_for: "streamcluster (PARSEC)",
    item: "phase of all threads",
    threads: "threads",
    iterations: 50 * ITERATIONS_PER_US,
};

static TASK_QUEUE: Description = Description {
    name: "task-queue",
    meaning: "small tasks that make others, in one queue under one mutex",
    stands_for: "cholesky, volrend (SPLASH-2)",
    item: "task",
    threads: "threads",
    iterations: 20 * ITERATIONS_PER_US,
};

static FORK_JOIN: Description = Description {
    name: "fork-join",
    meaning: "a main thread wakes a pool for each parallel region of 8 parts and waits for it",
    stands_for: "bodytrack, vips (PARSEC)",
    item: "region",
    threads: "threads of the pool; N+1 are started",
    iterations: 50 * ITERATIONS_PER_US,
};

static INDEPENDENT: Description = Description {
    name: "independent",
    meaning: "threads that never wait for one another",
    stands_for: "blackscholes, swaptions (PARSEC)",
    item: "computation",
    threads: "threads",
    iterations: 200 * ITERATIONS_PER_US,
};

static MATMUL: Description = Description {
    name: "matmul",
    meaning: "matrices are multiplied without a pause",
    stands_for: "the Gleaner paper's CPU-bound neighbour",
    item: "rows of a product",
    threads: "threads",
    iterations: 1_000 * ITERATIONS_PER_US,
};

static FREQSLEEP: Description = Description {
    name: "freqsleep",
    meaning: "threads that compute for a moment and call nanosleep(1), over and over",
    stands_for: "the Gleaner paper's neighbour that never stays awake",
    item: "sleep",
    threads: "threads",
    iterations: ITERATIONS_PER_US,
};

static REQUEST_REPLY: Description = Description {
    name: "request-reply",
    meaning: "clients and a server with a thread for each; transactions of three requests hold row locks",
    stands_for: "MySQL or MariaDB under sysbench OLTP",
    item: "transaction",
    threads: "clients; 2N are started",
    iterations: 20 * ITERATIONS_PER_US,
};

static ADDRESS_SPACE: Description = Description {
    name: "address-space",
    meaning: "threads map, touch, protect and unmap memory, which interrupts the other vCPUs",
    stands_for: "allocators and garbage collectors (TLB shootdowns)",
    item: "mapping",
    threads: "threads",
    iterations: 5 * ITERATIONS_PER_US,
};

static BLOCK_IO: Description = Description {
    name: "block-io",
    meaning: "short writes flushed to disk, reads, and a pipe to a partner thread",
    stands_for: "databases' logs, shells, build tools",
    item: "round of them",
    threads: "workers; 2N are started",
    iterations: 20 * ITERATIONS_PER_US,
};

static SPIN_LOCK: Description = Description {
    name: "spin-lock",
    meaning: "threads compute and take one ticket lock, spinning, for a microsecond",
    stands_for: "a guest kernel's spinlocks (micro-sliced paper, Table I)",
    item: "critical section",
    threads: "threads",
    iterations: 10 * ITERATIONS_PER_US,
};

static OPEN_LOOP: Description = Description {
    name: "open-loop",
    meaning: "a client that asks a TCP server at a fixed rate, whether or not it keeps up",
    stands_for: "users of Redis, memcached and the like",
    item: "request",
    threads: "connections, one thread each",
    iterations: 0,
};
