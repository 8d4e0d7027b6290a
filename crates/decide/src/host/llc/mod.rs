//! Who may fill how much of the last-level cache: context preservation (micro-sliced vCPUs, MICRO'14, section IV-B)
//! with what processors have today, allocation by ways.
//!
//! The paper inserts the lines of contexts that do not use the last level at the least recently used position, so that
//! they push out one another and not the data of the contexts that wait for their turn. No processor lets software
//! choose that; a mask of few ways comes nearest.
//!
//! ```text
//! CPU-bound       stays where it is: it hardly fills anything
//! cache-friendly  the rest: every way but those of the thrashing
//! thrashing       the minimal allocation, all of them together                    (split: which ways these are)
//! ```
//!
//! What a context is, [`CacheClass`] says, from counters of an interval. Two things spoil such a judgement, and are
//! what this file is about:
//!
//! - *Neighbours.* A friendly VM whose lines a thrashing one pushes out misses like a thrashing one. So of several that
//!   look thrashing, only the one that misses most is confined at a time; then the others are looked at afresh.
//! - *The allocation itself.* A VM with the minimal allocation misses, whatever it is. So, as in the paper, time is
//!   sampled: of every period (10 intervals, as the paper's 10 quanta) the VM has the rest for two, of which the first
//!   fills the cache and the second is measured. One VM at a time is sampled, for if it thrashes everybody pays;
//!   meanwhile nobody else is judged, and between two samples there is time for it. So with many confined VMs the
//!   period of each is longer.

mod split;

pub use split::{LlcGeometry, LlcSplit, split};

use super::cache_class::{CacheClass, CacheClassParams, CacheUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The policy's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LlcParams {
    /// What makes a class.
    pub class: CacheClassParams,
    /// Intervals from one sample of a confined VM to the next. The paper's: 10 quanta.
    pub period: u32,
    /// Intervals after a change of allocation that are not judged: the cache has to fill, or to be lost. Ours: 1.
    pub settle: u32,
    /// Intervals in a row that must agree before a VM's allocation is changed. Ours: 2. A sample counts alone, as the
    /// paper's.
    pub agree: u32,
    /// Fewer instructions in an interval say nothing about a VM. Ours: a million.
    pub instructions_min: u64,
}

impl Default for LlcParams {
    fn default() -> Self {
        Self { class: CacheClassParams::default(), period: 10, settle: 1, agree: 2, instructions_min: 1_000_000 }
    }
}

/// A VM, as whoever asks numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LlcVm(pub u32);

/// One VM's counters in one interval, all its vCPU threads together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlcCounts {
    /// Instructions executed.
    pub instructions: u64,
    /// Accesses that reached the last level.
    pub accesses: u64,
    /// Those of them that missed.
    pub misses: u64,
}

/// What part of the cache a VM may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LlcShare {
    /// Whatever it had before.
    Untouched,
    /// The ways of the thrashing.
    Minimal,
    /// All other ways.
    Rest,
}

/// Why a VM's share changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LlcReason {
    /// It was judged.
    Class(CacheClass),
    /// Somebody said so.
    Told(CacheClass),
    /// It has had the minimal allocation for a period: is it still thrashing?
    Sample,
    /// It is.
    StillThrashing,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlcMove {
    /// Whose.
    pub vm: LlcVm,
    /// From now on.
    pub to: LlcShare,
    /// Why.
    pub reason: LlcReason,
}

#[derive(Clone, Copy, Debug)]
struct VmState {
    told: Option<CacheClass>,
    share: LlcShare,
    /// Judged intervals or not: all since its share last changed.
    intervals: u32,
    sampled: bool,
    cache_use: CacheUse,
    class: Option<CacheClass>,
    agreed: u32,
    misses: u64,
}

/// The policy. Feed it each interval's counters; do what it says before the next interval begins.
#[derive(Clone, Debug)]
pub struct LlcPolicy {
    params: LlcParams,
    vms: BTreeMap<LlcVm, VmState>,
    /// Intervals since a VM was last being sampled.
    undisturbed: u32,
}

impl LlcPolicy {
    /// Nobody yet.
    pub fn new(params: LlcParams) -> Self {
        Self { params, vms: BTreeMap::new(), undisturbed: u32::MAX }
    }

    /// Begins with a VM, to be judged, or of a class that somebody has told. One that is known stays as it is.
    pub fn add(&mut self, vm: LlcVm, told: Option<CacheClass>) {
        self.vms.entry(vm).or_insert(VmState {
            told,
            share: LlcShare::Untouched,
            intervals: u32::MAX,
            sampled: false,
            cache_use: CacheUse::default(),
            class: told,
            agreed: 0,
            misses: 0,
        });
    }

    /// Forgets a VM that is gone.
    pub fn remove(&mut self, vm: LlcVm) {
        self.vms.remove(&vm);
    }

    /// What a VM is, as far as known, and from which figures.
    pub fn class(&self, vm: LlcVm) -> (Option<CacheClass>, CacheUse) {
        self.vms.get(&vm).map_or((None, CacheUse::default()), |state| (state.class, state.cache_use))
    }

    /// One interval is over. `counts` has every VM that could be counted.
    pub fn step(&mut self, counts: &BTreeMap<LlcVm, LlcCounts>) -> Vec<LlcMove> {
        let params = self.params;
        let sampling = self.vms.values().any(|state| state.sampled);
        self.undisturbed = if sampling { 0 } else { self.undisturbed.saturating_add(1) };
        let disturbed = self.undisturbed <= params.settle;
        for (vm, state) in &mut self.vms {
            state.intervals = state.intervals.saturating_add(1);
            let judged = state.told.is_none() && (!disturbed || state.sampled || state.share == LlcShare::Minimal);
            if let Some(counts) = counts.get(vm).filter(|_| judged) {
                state.judge(counts, &params);
            }
        }
        let mut moves: Vec<LlcMove> = self.vms.iter().filter_map(|(vm, state)| state.placed(*vm, &params)).collect();
        self.one_at_a_time(&mut moves);
        moves.extend(self.sample(&moves));
        for change in &moves {
            self.change(*change);
        }
        moves
    }

    /// Of those that are to be confined for the first time only the one that misses most; what the others missed was in
    /// its company.
    fn one_at_a_time(&mut self, moves: &mut Vec<LlcMove>) {
        let judged = |change: &LlcMove| change.reason == LlcReason::Class(CacheClass::Thrashing);
        let misses = |change: &LlcMove| self.vms.get(&change.vm).map_or(0, |state| state.misses);
        let Some(worst) = moves.iter().filter(|change| judged(change)).max_by_key(|change| misses(change)) else {
            return;
        };
        let worst = worst.vm;
        moves.retain(|change| !judged(change) || change.vm == worst);
        for state in self.vms.values_mut().filter(|state| state.class == Some(CacheClass::Thrashing)) {
            state.agreed = 0;
            if state.told.is_none() && state.share != LlcShare::Minimal {
                // As after a change of its own: the first interval without the worst is not judged.
                state.intervals = 0;
            }
        }
    }

    /// The confined VM whose turn it is, if no other is being sampled: the one that has waited longest.
    fn sample(&self, moves: &[LlcMove]) -> Option<LlcMove> {
        let busy = |vm: LlcVm| moves.iter().any(|change| change.vm == vm);
        let pause = self.params.settle.saturating_add(self.params.agree);
        if self.undisturbed < pause || self.vms.values().any(|state| state.sampled) {
            return None;
        }
        let sample = self.params.settle.saturating_add(1);
        let due = self.params.period.saturating_sub(sample).max(1);
        let waits =
            |state: &VmState| state.told.is_none() && state.share == LlcShare::Minimal && state.intervals >= due;
        let confined = self.vms.iter().filter(|(vm, state)| waits(state) && !busy(**vm));
        let (vm, _) = confined.max_by_key(|(vm, state)| (state.intervals, std::cmp::Reverse(**vm)))?;
        Some(LlcMove { vm: *vm, to: LlcShare::Rest, reason: LlcReason::Sample })
    }

    fn change(&mut self, change: LlcMove) {
        if let Some(state) = self.vms.get_mut(&change.vm) {
            state.share = change.to;
            state.intervals = 0;
            state.agreed = 0;
            state.sampled = change.reason == LlcReason::Sample;
            if state.share != LlcShare::Minimal && !state.sampled {
                // What it missed with the minimal allocation was long ago by the time it is needed.
                state.cache_use.misses_minimal_pki = None;
            }
        }
    }
}

impl VmState {
    fn judge(&mut self, counts: &LlcCounts, params: &LlcParams) {
        if counts.instructions < params.instructions_min || self.intervals <= params.settle {
            return;
        }
        let pki = |events: u64| events as f64 * 1000.0 / counts.instructions as f64;
        self.cache_use.accesses_pki = Some(pki(counts.accesses));
        self.misses = counts.misses;
        if self.share == LlcShare::Minimal {
            self.cache_use.misses_minimal_pki = Some(pki(counts.misses));
            // Whether a whole cache would help, only a sample tells.
            let unsampled = CacheUse { misses_full_pki: None, ..self.cache_use };
            let class = unsampled.class(&params.class).unwrap_or(CacheClass::Thrashing);
            return self.agree(Some(class));
        }
        self.cache_use.misses_full_pki = Some(pki(counts.misses));
        // More misses with the minimal allocation than there are accesses now: it did something else then.
        let accesses = pki(counts.accesses);
        self.cache_use.misses_minimal_pki = self.cache_use.misses_minimal_pki.filter(|misses| *misses <= accesses);
        self.agree(self.cache_use.class(&params.class));
        if self.class == Some(CacheClass::CacheFriendly) {
            // It keeps what it was lent.
            self.sampled = false;
        }
    }

    fn agree(&mut self, class: Option<CacheClass>) {
        self.agreed = if class == self.class { self.agreed.saturating_add(1) } else { 1 };
        self.class = class.or(self.class);
    }

    /// The change that its class asks for, if it is sure enough.
    fn placed(&self, vm: LlcVm, params: &LlcParams) -> Option<LlcMove> {
        let class = self.class?;
        let to = match class {
            CacheClass::CpuBound => LlcShare::Untouched,
            CacheClass::CacheFriendly => LlcShare::Rest,
            CacheClass::Thrashing => LlcShare::Minimal,
        };
        if self.told.is_some() {
            return (to != self.share).then_some(LlcMove { vm, to, reason: LlcReason::Told(class) });
        }
        if self.sampled {
            // An idle VM's sample is never measured, and must not keep the others from theirs.
            let over = self.agreed > 0 || self.intervals >= params.period.max(1);
            let reason = if to == LlcShare::Minimal { LlcReason::StillThrashing } else { LlcReason::Class(class) };
            return (over && to != self.share).then_some(LlcMove { vm, to, reason });
        }
        let sure = self.agreed >= params.agree.max(1);
        (sure && to != self.share).then_some(LlcMove { vm, to, reason: LlcReason::Class(class) })
    }
}

#[cfg(test)]
mod tests;
