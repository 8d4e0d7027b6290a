//! The host policy (micro-sliced vCPUs, MICRO'14, sections III and IV).
//!
//! ```text
//! cache_class  what the last-level cache is to a context: CPU-bound, cache-friendly, thrashing (section IV-B)
//! insertion    where a context's new cache lines go: context preservation by time sampling (section IV-B)
//! ```

mod cache_class;
mod insertion;

pub use cache_class::{CacheClass, CacheClassParams, CacheUse};
pub use insertion::{Insertion, InsertionParams, InsertionSampler, Measure, Phase, Quantum, SampleOrder};
