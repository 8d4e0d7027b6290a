//! What is compared between one vCPU and several.
//!
//! A switch is no measure there: on one vCPU a thread that is woken preempts the one that woke it, which then need not
//! wait, or finds a lock taken and waits twice. experiments/packing has a table of what 30 programs count by the item
//! in each place. What stays is, in this order:
//!
//! 1. the program's own figure,
//! 2. its system calls but for `futex`; where it makes few others, with its waits on conditions; at last, all of them.
//!
//! Where there is neither, nothing is tried.

use gleaner_model::{Nanos, SystemCalls, Window};
use serde::{Deserialize, Serialize};

/// Less of it in a block says nothing.
const COUNT_MIN: u64 = 20;
/// System calls of a kind tell where there are at least so many for each switch.
const CALLS_A_SWITCH_MIN: f64 = 0.25;

/// What a block counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    length: Nanos,
    cpu_time: Nanos,
    progress: Option<u64>,
    calls: Option<SystemCalls>,
    switches: u64,
}

/// One vCPU as a multiple of several, in one pair of blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compared {
    /// How much it gets done.
    pub(super) rate: f64,
    /// CPU time that its threads took.
    pub(super) cpu: f64,
}

/// Whether the window holds what tells places apart.
pub(super) fn is_counted(window: &Window) -> bool {
    window.group.progress.is_some() || window.group.system_calls.is_some()
}

impl Block {
    /// `None`: it says too little.
    pub(super) fn of(window: &Window) -> Option<Self> {
        let group = &window.group;
        let block = Self {
            length: window.length,
            cpu_time: group.cpu_time,
            progress: group.progress,
            calls: group.system_calls,
            switches: group.voluntary_switches + group.involuntary_switches,
        };
        let tells = block.progress.is_some_and(|progress| progress >= COUNT_MIN) || block.switches >= COUNT_MIN;
        (tells && window.length > Nanos::ZERO && group.cpu_time > Nanos::ZERO).then_some(block)
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.length.as_secs_f64()
    }

    /// CPU time a switch.
    pub(super) fn granularity(&self) -> f64 {
        self.cpu_time.as_f64() / self.switches.max(1) as f64
    }
}

/// Pair by pair; `packed` says which block is on one vCPU.
pub(super) fn pairs(blocks: &[Block], packed: &[bool]) -> Vec<Compared> {
    let pairs = blocks.chunks_exact(2).zip(packed.chunks_exact(2));
    pairs
        .map(|(pair, packed)| if packed[0] { compare(&pair[0], &pair[1]) } else { compare(&pair[1], &pair[0]) })
        .collect()
}

fn compare(packed: &Block, apart: &Block) -> Compared {
    let cpu = packed.cpu_time.share_of(packed.length) / apart.cpu_time.share_of(apart.length).max(1e-9);
    Compared { rate: rate(packed, apart), cpu }
}

fn rate(packed: &Block, apart: &Block) -> f64 {
    let of = |count: fn(&Block) -> Option<u64>| {
        let (packed_count, apart_count) = (count(packed)?, count(apart)?);
        let tells = packed_count.max(apart_count) >= COUNT_MIN;
        tells.then(|| packed.per_s(packed_count) / apart.per_s(apart_count.max(1)))
    };
    let by = |kind: fn(&SystemCalls) -> u64| {
        let tells = |block: &Block| {
            block.calls.is_some_and(|calls| kind(&calls) as f64 >= CALLS_A_SWITCH_MIN * block.switches as f64)
        };
        let count = |block: &Block| block.calls.map(|calls| kind(&calls));
        let (packed_count, apart_count) = (count(packed)?, count(apart)?);
        (tells(packed) && tells(apart)).then(|| packed.per_s(packed_count) / apart.per_s(apart_count.max(1)))
    };
    let by_calls = by(|calls| calls.steady)
        .or_else(|| by(|calls| calls.steady + calls.waits))
        .or_else(|| by(|calls| calls.steady + calls.waits + calls.locks));
    of(|block| block.progress).or(by_calls).unwrap_or(1.0)
}
