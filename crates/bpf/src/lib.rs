//! What the rooms with BPF programs of their own share: getting programs into the kernel, why that was refused, and the
//! memory shared with them.

mod load;
mod maps;
mod refusal;

pub use bytemuck;
pub use load::{loading, refusal, run_time};
pub use maps::{Access, MappedArray, Mapping, ReadOnly, Writable};
pub use refusal::BpfRefusal;
