//! What to run: a program, how many threads, how much work.

use crate::catalogue::Program;
use crate::work::ITERATIONS_PER_US;
use std::net::SocketAddr;
use std::time::Duration;

/// Most threads that a plan may ask for; programs start up to `2 * threads + 2`.
pub const THREADS_MAX: usize = 1024;
/// Most computation between two synchronization points that a plan may ask for: ten seconds.
pub const ITERATIONS_MAX: u64 = 10_000_000 * ITERATIONS_PER_US;
/// Most items: beyond it nothing is a count any more.
pub const ITEMS_MAX: u64 = 1 << 50;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub program: Program,
    /// Its threads, 1 to [`THREADS_MAX`]; each program says in its description what they are.
    pub threads: usize,
    /// Computation between two synchronization points, in turns of [`crate::compute`]'s loop, 0 to [`ITERATIONS_MAX`].
    pub iterations: u64,
    /// When it ends.
    pub stop: Stop,
    /// Where all data come from.
    pub seed: u64,
    /// Whom to ask how often; of [`Program::OpenLoop`] only, and needed there.
    pub requests: Option<Requests>,
}

impl Plan {
    /// The program with its own granularity, on one thread, until told to stop, seed 1.
    pub fn new(program: Program) -> Self {
        let iterations = program.description().iterations;
        Self { program, threads: 1, iterations, stop: Stop::Told, seed: 1, requests: None }
    }

    pub(crate) fn check(&self) -> Result<(), WorkloadError> {
        let out_of = |what, value: u64, min, max| {
            let inside = (min..=max).contains(&value);
            if inside { Ok(()) } else { Err(WorkloadError::OutOfRange { what, value, min, max }) }
        };
        out_of("threads", self.threads as u64, 1, THREADS_MAX as u64)?;
        out_of("iterations", self.iterations, 0, ITERATIONS_MAX)?;
        if let Stop::Items(items) = self.stop {
            out_of("items", items, 1, ITEMS_MAX)?;
        }
        match &self.requests {
            None if self.program == Program::OpenLoop => Err(WorkloadError::NoServer),
            Some(requests) if !(Requests::RATE_MIN..=Requests::RATE_MAX).contains(&requests.per_second) => {
                let (min, max) = (Requests::RATE_MIN, Requests::RATE_MAX);
                Err(WorkloadError::Rate { value: requests.per_second, min, max })
            }
            _ => Ok(()),
        }
    }
}

/// When a program ends. It always finishes the items it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After so many items: the same work in every run.
    Items(u64),
    /// After so much time.
    After(Duration),
    /// When [`crate::Progress`] is told.
    Told,
}

/// What the open-loop client sends, where, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    pub server: SocketAddr,
    /// The bytes of each request.
    pub request: Vec<u8>,
    /// Lines in each reply.
    pub reply_lines: u32,
    /// Requests per second, over all connections; [`Requests::RATE_MIN`] to [`Requests::RATE_MAX`].
    pub per_second: f64,
}

impl Requests {
    /// One request in a hundred seconds.
    pub const RATE_MIN: f64 = 0.01;
    /// A million a second: more than a client of threads can time.
    pub const RATE_MAX: f64 = 1e6;
}

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A number of the plan's is not one that works.
    #[error("{what} must be within {min} and {max}, not {value}")]
    OutOfRange {
        what: &'static str,
        value: u64,
        /// Smallest that works.
        min: u64,
        /// Largest that works.
        max: u64,
    },
    /// The rate is not one that works.
    #[error("the rate must be within {min} and {max} requests per second, not {value}")]
    Rate {
        value: f64,
        /// Smallest that works.
        min: f64,
        /// Largest that works.
        max: f64,
    },
    /// The server does not answer.
    #[error("cannot connect to {server}: {source}; is a server listening there?")]
    Connect {
        server: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The open-loop client was not told whom to ask.
    #[error("open-loop needs a server to send requests to")]
    NoServer,
    /// A thread could not be started.
    #[error("cannot start thread {number} of {of}: {source}; ask for fewer, or raise the limit on processes")]
    Thread {
        number: usize,
        /// Of how many.
        of: usize,
        /// Why not.
        source: std::io::Error,
    },
    /// A thread panicked: a bug of this room.
    #[error("a thread of {0} panicked; that is a bug of Gleaner's")]
    Panicked(&'static str),
    /// The kernel refused memory.
    #[error("cannot {call} {bytes} bytes: {source}")]
    Memory {
        call: &'static str,
        /// How much.
        bytes: usize,
        /// Why not.
        source: std::io::Error,
    },
    /// The temporary file, a pipe or a socket failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried, and on what.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A result is not what it must be: memory, disk or a lock does not do what it should.
    #[error("{0}; this machine, or Gleaner, does not compute correctly")]
    Wrong(String),
}

impl WorkloadError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
