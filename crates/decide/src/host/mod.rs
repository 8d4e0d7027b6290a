//! The host policy (micro-sliced vCPUs, MICRO'14, sections III and IV).
//!
//! ```text
//! insertion    where a context's new cache lines go: context preservation by time sampling (section IV-B)
//! ```

mod insertion;

pub use insertion::{Insertion, InsertionParams, InsertionSampler, Measure, Phase, Quantum, SampleOrder};
