//! The programs there are: names, what they mean, what they stand for.

use crate::plan::WorkloadError;
use crate::programs;
use crate::run::{Job, Tally};
use crate::work::ITERATIONS_PER_US;
use std::fmt;

/// A program of this room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Stages with bounded queues between them.
    Pipeline,
    /// Threads that never wait for one another.
    Independent,
    /// The paper's busy neighbour.
    Matmul,
    /// The paper's neighbour that sleeps all the time.
    Freqsleep,
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
    /// What `threads` counts, and which others it starts.
    pub threads: &'static str,
    /// Its granularity unless told otherwise, in turns of [`crate::compute`]'s loop.
    pub iterations: u64,
    pub(crate) run: fn(&Job) -> Result<Tally, WorkloadError>,
}

impl Program {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 5] = [Self::Pipeline, Self::Independent, Self::Matmul, Self::Freqsleep, Self::OpenLoop];

    /// The program with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.description().name == name)
    }

    /// What there is to say about it.
    pub fn description(self) -> &'static Description {
        match self {
            Self::Pipeline => &PIPELINE,
            Self::Independent => &INDEPENDENT,
            Self::Matmul => &MATMUL,
            Self::Freqsleep => &FREQSLEEP,
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
    run: programs::pipeline::run,
};

static INDEPENDENT: Description = Description {
    name: "independent",
    meaning: "threads that never wait for one another",
    stands_for: "blackscholes, swaptions (PARSEC)",
    item: "computation",
    threads: "threads",
    iterations: 200 * ITERATIONS_PER_US,
    run: programs::independent::run,
};

static MATMUL: Description = Description {
    name: "matmul",
    meaning: "matrices are multiplied without a pause",
    stands_for: "the Gleaner paper's CPU-bound neighbour",
    item: "some rows of a product",
    threads: "threads",
    iterations: 1_000 * ITERATIONS_PER_US,
    run: programs::matmul::run,
};

static FREQSLEEP: Description = Description {
    name: "freqsleep",
    meaning: "threads that compute for a moment and call nanosleep(1), over and over",
    stands_for: "the Gleaner paper's neighbour that never stays awake",
    item: "sleep",
    threads: "threads",
    iterations: ITERATIONS_PER_US,
    run: programs::freqsleep::run,
};

static OPEN_LOOP: Description = Description {
    name: "open-loop",
    meaning: "a client that asks a TCP server at a fixed rate, whether or not it keeps up",
    stands_for: "users of Redis, memcached and the like",
    item: "request",
    threads: "connections, one thread each",
    iterations: 0,
    run: programs::open_loop::run,
};
