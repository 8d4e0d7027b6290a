//! The programs, one a file. Each has a `run`.

pub(crate) mod address_space;
pub(crate) mod barrier;
pub(crate) mod block_io;
pub(crate) mod fork_join;
pub(crate) mod freqsleep;
pub(crate) mod independent;
pub(crate) mod matmul;
pub(crate) mod open_loop;
pub(crate) mod pipeline;
pub(crate) mod relay;
pub(crate) mod request_reply;
pub(crate) mod spin_lock;
pub(crate) mod task_queue;

use crate::catalogue::Program;
use crate::job::{Job, Tally};
use crate::plan::WorkloadError;

/// What runs it.
pub(crate) fn of(program: Program) -> fn(&Job) -> Result<Tally, WorkloadError> {
    match program {
        Program::Pipeline => pipeline::run,
        Program::Relay => relay::run,
        Program::Barrier => barrier::run,
        Program::TaskQueue => task_queue::run,
        Program::ForkJoin => fork_join::run,
        Program::Independent => independent::run,
        Program::Matmul => matmul::run,
        Program::Freqsleep => freqsleep::run,
        Program::RequestReply => request_reply::run,
        Program::AddressSpace => address_space::run,
        Program::BlockIo => block_io::run,
        Program::SpinLock => spin_lock::run,
        Program::OpenLoop => open_loop::run,
    }
}

#[cfg(test)]
mod tests;
