//! A cache simulator under time-shared contexts (micro-sliced vCPUs, MICRO'14, sections IV and V).
//!
//! What a shorter time slice costs is above all the last-level cache that the others leave behind. This room answers
//! how much, and what insertion policies save of it: contexts with traces of memory accesses take turns on cores with
//! the caches of the paper's Table V. `docs/research/cachesim.md` states the model, its parameters with their sources,
//! and what it leaves out.
//!
//! ```text
//! trace ──▶ machine ─┬─ core_model   latencies -> cycles
//!                    ├─ paging       virtual -> physical, page colours
//!                    └─ hierarchy ─┬─ cache ── policy ──▶ insertion
//!                                  └─ dram
//! reproduce     the paper's figures
//! ```

pub mod cache;
pub mod core_model;
pub mod dram;
mod geometry;
pub mod hierarchy;
pub mod insertion;
mod line;
pub mod machine;
pub mod paging;
pub mod policy;
pub mod prefetch;
mod recency_tree;
pub mod reproduce;
pub mod trace;

pub use geometry::{Geometry, GeometryError, LINES_MAX, SIZE_BYTES_MAX, WAYS_MAX};
pub use line::{ContextId, LINE_NUMBER_BITS, Line};
