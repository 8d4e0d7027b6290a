//! Who wakes whom, thread by thread, and what each thread took. It is counted only while a policy asks for it.

use crate::{Nanos, VcpuId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// One thread over one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTime {
    /// On a vCPU.
    pub ran: Nanos,
    /// It could run, and waited for a vCPU.
    pub waited: Nanos,
    /// How often it got one.
    pub stints: u64,
    /// Where it ran last.
    pub vcpu: Option<VcpuId>,
}

impl AddAssign for ThreadTime {
    fn add_assign(&mut self, other: Self) {
        self.ran += other.ran;
        self.waited += other.waited;
        self.stints += other.stints;
        self.vcpu = other.vcpu.or(self.vcpu);
    }
}

/// The threads of a group, and how they hang together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ties {
    /// Those that lived through the window, by id.
    pub threads: BTreeMap<i32, ThreadTime>,
    /// How often the first woke the second.
    pub wakes: BTreeMap<(i32, i32), u64>,
}

impl Ties {
    /// All wake-ups.
    pub fn woken(&self) -> u64 {
        self.wakes.values().sum()
    }
}

impl AddAssign for Ties {
    fn add_assign(&mut self, other: Self) {
        for (tid, time) in other.threads {
            *self.threads.entry(tid).or_default() += time;
        }
        for (pair, wakes) in other.wakes {
            *self.wakes.entry(pair).or_default() += wakes;
        }
    }
}

/// What a policy asks to be told of a group's threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TiesWanted {
    /// Nothing.
    Nothing,
    /// The times of these.
    Times(Vec<i32>),
    /// The times of all, and who wakes whom.
    All,
}
