//! What the threads of a real program did, as a file and as a workload.
//!
//! ```text
//!   gleaner record --threads        gleaner-recording         convert               program
//!   ThreadEvents, one by one   -->   a small file   -->   who waits for whom   -->   Workload
//! ```
//!
//! A wake-up becomes a post to the woken thread's semaphore, at the place in its waker's program where it was made; a
//! block becomes a wait. So the simulator may run things in another order than the recording, but nobody goes on before
//! those who woke him have come to that place. docs/research/recording.md says what is kept and what is lost.

mod convert;
mod costs;

pub use convert::{Conversion, INSTRUCTIONS_MAX, Replay, convert};
pub use costs::{LatencyDigest, WakeLatencies};
pub use gleaner_recording::{EndedBy, Header, Reader, RecordingError, Summary, VERSION, Writer};
