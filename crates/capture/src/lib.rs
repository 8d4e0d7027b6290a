//! The flight recorder: a file of what decide was told, what it decided and what happened; and the same decisions again
//! from the file.
//!
//! ```text
//!   recorder   runtime's windows and decisions -> blocks -> a thread that compresses and writes: one file, or a ring
//!   reader     a file -> records, up to the first place that cannot be read
//!   replay     records -> the very same policy -> whether its decisions are those recorded, or what differs
//!
//!   capture    zstd frames with checksums, one after the other (`zstd -dc` reads them): segments, any number
//!   segment    one frame, whose block begins with magic (8 bytes) and version (1); others, any number
//!   block      length (u32 LE)  record, as postcard encodes it: any number
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

pub use reader::{CaptureError, Damage, Reader};
pub use record::{BurstRecord, Ended, GroupRecord, Machine, Record, WindowRecord, policy_version};
pub use recorder::{Recorder, Target};
pub use replay::{Change, Difference, GroupOutcome, Replay, ReplayError};
pub use ring::is_segment;
