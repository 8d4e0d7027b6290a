//! What is counted as a simulation goes: of a vCPU, and of a virtual machine's threads.

use crate::engine::Time;
use gleaner_model::Distribution;

/// Where a vCPU's time went, in nanoseconds. The parts add up to the time since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuTotals {
    /// Threads ran, spinning and all.
    pub work: Time,
    /// The guest's kernel: switches, interrupts.
    pub kernel: Time,
    /// The yielding thread held it, or the idle task polled because Gleaner had it poll.
    pub retained: Time,
    /// The guest's idle task polled by itself.
    pub polled: Time,
    /// The host switched to it.
    pub overhead: Time,
    /// Of `overhead`: it was being taken up from a halt, which to the guest is more of the halt.
    pub resuming: Time,
    /// It waited for a pCPU.
    pub ready: Time,
    /// Of `overhead` and `ready`: a thread had the vCPU. A guest that is not told of steal takes it for the thread's
    /// time.
    pub stolen_work: Time,
    /// Of `overhead` and `ready`: the yielding thread had it.
    pub stolen_retained: Time,
    /// It was halted (or the host polled for it).
    pub halted: Time,
    /// Of `halted`: the host polled on a pCPU.
    pub host_polled: Time,
    /// Idle periods that began.
    pub idle_entries: u64,
    pub halts: u64,
    /// Times a pCPU was given to it after another vCPU or idleness.
    pub dispatches: u64,
    /// Times the pCPU was taken from it.
    pub preemptions: u64,
    /// Interrupts handled.
    pub interrupts: u64,
    /// Switches away from a thread.
    pub work_switches: u64,
    /// Times a thread displaced the yielding thread.
    pub yield_switches: u64,
    /// Times the yielding thread went to sleep, having had the vCPU.
    pub yield_sleeps: u64,
    /// Threads woken here by another vCPU.
    pub cross_wakeups: u64,
    /// Pause-loop exits.
    pub pause_exits: u64,
    /// Longest wait for a pCPU.
    pub ready_max: Time,
}

impl VcpuTotals {
    /// All of it together: the time since the beginning.
    pub fn sum(&self) -> Time {
        self.work + self.kernel + self.retained + self.polled + self.overhead + self.ready + self.halted
    }
}

/// What a virtual machine's threads did, as it goes.
#[derive(Clone, Debug, Default)]
pub struct VmTotals {
    /// Items done.
    pub items: u64,
    /// When the last one was.
    pub last_item_at: Time,
    /// From an item's stamp until it was done.
    pub latency: Distribution,
    /// Threads that have not ended.
    pub threads_left: u32,
    /// When the last one ended.
    pub ended_at: Option<Time>,
    /// Switches by threads that blocked.
    pub voluntary_switches: u64,
    /// Switches by the guest's scheduler.
    pub involuntary_switches: u64,
    /// How long threads waited for ticket locks, those that did not wait included.
    pub spin_waits: Distribution,
    /// How long they held them.
    pub spin_holds: Distribution,
    /// How long shootdowns took.
    pub shootdowns: Distribution,
    /// A thread's computation between two waits; kept where somebody observes.
    pub g_comp: Distribution,
    /// From a thread's wake-up until it ran; kept where somebody observes.
    pub wake_to_run: Distribution,
}
