//! The programs, one a file. Each has a `run` that the catalogue names.

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

#[cfg(test)]
mod tests;
