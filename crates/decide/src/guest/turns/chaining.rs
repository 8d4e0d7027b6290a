//! The other arm of the trial: several chains, each on a vCPU of its own.
//!
//! A group that looks like more than one chain is asked who wakes whom, for some windows. Where that shows several
//! chains they are tried as one vCPU is. Once they are in force, the times of their threads tell whether they still are
//! what they were.

use super::chains::{Chain, Differs, differ, placed};
use super::{
    AGAIN_MAX, AGAIN_MIN, Change, Comparing, SWITCHES_PER_S_MIN, State, Turns, UNCOUNTED_WINDOWS, evidence,
    is_more_than_a_chain,
};
use crate::guest::GuestParams;
use crate::guest::backoff::Backoff;
use gleaner_model::{CpuSet, Nanos, Reason, Ties, TiesWanted, Topology, Window};
use serde::{Deserialize, Serialize};

/// So many wake-ups for each thread tell who wakes whom.
const WAKES_A_THREAD: u64 = 40;
/// Nobody counts them, or there are too few.
const TYING_WINDOWS_MAX: u32 = 12;
/// Windows in a row that differ before chains are given up.
const DIFFERS_WINDOWS: u32 = 2;

/// What is being learnt of who wakes whom.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Tying {
    ties: Ties,
    length: Nanos,
    windows: u32,
    /// It shows these. They wait until somebody counts what is compared.
    found: Vec<Chain>,
}

/// What is known of a group's chains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Chaining {
    topology: Topology,
    /// When who wakes whom is next asked.
    again: Backoff,
    tying: Option<Tying>,
    /// Those that are tried or in force; none where one vCPU is.
    held: Vec<Chain>,
    differ: u32,
}

impl Chaining {
    pub(super) fn new() -> Self {
        Self {
            topology: Topology::default(),
            again: Backoff::new(AGAIN_MIN, AGAIN_MAX, u64::MAX),
            tying: None,
            held: Vec::new(),
            differ: 0,
        }
    }

    pub(super) fn set_topology(&mut self, topology: Topology) {
        self.topology = topology;
    }

    pub(super) fn is_tying(&self) -> bool {
        self.tying.is_some()
    }

    /// How many there are; 0 where one vCPU is tried.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn again(&mut self) -> &mut Backoff {
        &mut self.again
    }

    /// There are none any more.
    pub(super) fn let_go(&mut self) {
        self.held.clear();
        self.tying = None;
        self.differ = 0;
    }
}

/// Whether there may be several chains: more threads are on the way at once than one has, and they hand over often.
fn may_be_several(window: &Window, params: &GuestParams) -> bool {
    let cpus = window.group.cpu_time.share_of(window.length);
    let switches = window.group.voluntary_switches + window.group.involuntary_switches;
    let per_s = switches as f64 / window.length.as_secs_f64().max(1e-9);
    window.group.threads >= 4
        && window.vcpus.len() >= 2
        && (cpus > params.turns_cpus_max || is_more_than_a_chain(window))
        && per_s >= 2.0 * SWITCHES_PER_S_MIN
}

impl Turns {
    /// What it has to be told of threads.
    pub(in crate::guest) fn wants_ties(&self) -> TiesWanted {
        if self.chaining.tying.as_ref().is_some_and(|tying| tying.found.is_empty()) {
            return TiesWanted::All;
        }
        let held = &self.chaining.held;
        if held.is_empty() {
            return TiesWanted::Nothing;
        }
        TiesWanted::Times(held.iter().flat_map(|chain| chain.threads.iter().copied()).collect())
    }

    /// The chains that are each on a vCPU now.
    pub(in crate::guest) fn bound(&self) -> &[Chain] {
        if self.is_packed() { &self.chaining.held } else { &[] }
    }

    /// A window of a group that runs on all vCPUs, and is not tried.
    pub(super) fn look_for_chains(&mut self, window: &Window, may: bool) -> Option<Change> {
        let due = may
            && self.params.turns_chains
            && self.looked == 0
            && self.is_looking()
            && self.chaining.again.remaining(window.at) == Nanos::ZERO
            && may_be_several(window, &self.params);
        if !due {
            self.chaining.tying = None;
            return None;
        }
        let mut tying = self.chaining.tying.take().unwrap_or_default();
        tying.windows += 1;
        if tying.found.is_empty() {
            return self.tie(window, tying);
        }
        if !evidence::is_counted(window) {
            if tying.windows < UNCOUNTED_WINDOWS {
                self.chaining.tying = Some(tying);
            } else {
                self.chaining.again.hold(window.at + AGAIN_MAX);
            }
            return None;
        }
        self.chaining.held = tying.found;
        let comparing = Comparing::begun(window, false, window.group.cpu_time.share_of(window.length));
        let packs = comparing.is_packed();
        let reason = self.trial_of(&comparing);
        self.state = State::Trying(comparing);
        packs.then_some(Change::Pack(reason))
    }

    /// Learns who wakes whom.
    fn tie(&mut self, window: &Window, mut tying: Tying) -> Option<Change> {
        if let Some(ties) = &window.group.ties {
            // A thread that has ended is of no chain.
            tying.ties.threads.retain(|tid, _| ties.threads.contains_key(tid) || ties.threads.is_empty());
            tying.ties += (**ties).clone();
            tying.length += window.length;
        }
        let enough = WAKES_A_THREAD.saturating_mul(tying.ties.threads.len() as u64);
        if enough == 0 || tying.ties.woken() < enough {
            if tying.windows < TYING_WINDOWS_MAX {
                self.chaining.tying = Some(tying);
                return None;
            }
            if tying.ties.woken() == 0 {
                // Nobody tells.
                self.chaining.again.hold(window.at + AGAIN_MAX);
                return None;
            }
        }
        let vcpus: CpuSet = window.vcpus.iter().map(|vcpu| vcpu.id).collect();
        let found = placed(&tying.ties, tying.length, &vcpus, &self.chaining.topology, &self.params);
        match found {
            Some(found) => self.chaining.tying = Some(Tying { found, ..Tying::default() }),
            None => drop(self.chaining.again.trigger(window.at, window.at, window.at)),
        }
        None
    }

    /// Gives chains up that are not what they were.
    pub(super) fn check_chains(&mut self, window: &Window) -> Option<Change> {
        let ties = window.group.ties.as_deref().filter(|_| self.chaining.count() > 0)?;
        let differs = differ(&self.chaining.held, ties, window.length, self.is_packed(), &self.params);
        self.chaining.differ = if differs.is_some() { self.chaining.differ + 1 } else { 0 };
        let reason = match differs? {
            Differs::Ended => Reason::ChainsChanged,
            Differs::SideBySide(_) if self.chaining.differ < DIFFERS_WINDOWS => return None,
            Differs::SideBySide(threads) => Reason::SideBySide { threads },
        };
        self.state = State::Apart;
        self.chaining.let_go();
        self.chaining.again.trigger(window.at, window.at, window.at);
        Some(Change::Spread(reason))
    }

    /// Why a block is begun.
    pub(super) fn trial_of(&self, comparing: &Comparing) -> Reason {
        let cpus = comparing.cpus;
        match self.chaining.count() {
            0 => Reason::TurnsTrial { cpus },
            chains => Reason::ChainsTrial { chains, cpus },
        }
    }
}

#[cfg(test)]
mod tests;
