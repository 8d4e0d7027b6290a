//! What one thread of a recorded program did: the vocabulary between the observer that sees it, the file that keeps it
//! and the simulator that plays it back.

use crate::Nanos;

/// Something that happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadEvent {
    /// When, by the kernel's monotonic clock. Events of different vCPUs may be out of order by microseconds.
    pub at: Nanos,
    /// The vCPU on which it happened; of a wake-up the waker's.
    pub cpu: u32,
    /// The thread's id in the kernel. It may come back for another thread once this one has ended.
    pub tid: u32,
    /// What.
    pub what: ThreadHappening,
}

/// What can happen to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadHappening {
    /// It was created.
    Born {
        /// By this thread; `None` for the first one, whose parent is not recorded.
        parent: Option<u32>,
    },
    /// It got a vCPU.
    In {
        /// Whether the vCPU idled until then.
        from_idle: bool,
    },
    /// It left its vCPU.
    Out {
        /// CPU time since it last left one, as the kernel charges it.
        ran: Nanos,
        /// Why.
        why: Left,
    },
    /// It was woken.
    Woken {
        /// By this recorded thread; `None`: by an interrupt, or by somebody who is not recorded.
        waker: Option<u32>,
    },
}

/// Why a thread left its vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Another one took it.
    Displaced,
    /// It waits for something.
    Blocked,
    /// It ended.
    Ended,
}
