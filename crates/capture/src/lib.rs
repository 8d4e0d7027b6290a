//! The flight recorder: a file of what decide was told, what it decided and what happened; and the same decisions again
//! from the file.
//!
//! ```text
//!   recorder   runtime's windows and decisions -> blocks -> a thread that compresses and writes: one file, or a ring
//!   reader     a file -> records, as far as they can be read, and where they cannot
//!   replay     records -> the very same policy -> whether its decisions are those recorded, or what differs
//!
//!   capture    segment, any number, one after the other
//!   segment    magic (8 bytes)  version (1)  frame, any number
//!   frame      marker (4)  length compressed (u32 LE)  length (u32 LE)  CRC-32 (u32 LE)  a zstd frame
//!   inside     length (u32 LE)  record, as postcard encodes it: any number
//! ```
//!
//! The first record of a segment says where it was made. Then comes each group with its set-up, and where the group is
//! older than the segment, with the whole state of its policy: each segment can be replayed without those before it.

mod frame;
mod reader;
mod record;
mod recorder;
mod replay;
mod ring;
mod wire;

pub use reader::{CaptureError, Damage, Item, Reader};
pub use record::{BurstRecord, Ended, GroupRecord, Machine, Record, WindowRecord, policy_version};
pub use recorder::{Recorder, Target};
pub use replay::{Change, Difference, GroupOutcome, Replay, ReplayError};
pub use ring::is_segment;
