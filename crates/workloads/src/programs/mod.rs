//! The programs, one a file. Each has a `run` that the catalogue names.

pub(crate) mod freqsleep;
pub(crate) mod independent;
pub(crate) mod matmul;
pub(crate) mod open_loop;
pub(crate) mod pipeline;
