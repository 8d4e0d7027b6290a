//! The slice policy as a whole: windows of the host in, decisions with reasons out (paper, section III).
//!
//! `static` is the paper: one slice for all VMs. `adaptive` is ours: one slice for each set of VMs that share pCPUs
//! (why a set and not a VM is in [`super::sharing`]), as short as discontinuity makes worthwhile and as long as the
//! price of switches demands.

use super::HostParams;
use super::adaptive::{MEMORY, SetState};
use super::explain::{HostExplanation, HostNoStep, SetExplanation};
use super::fairness::{FairnessMeter, VmShare, is_unfair};
use super::sharing::{SharingSet, sharing_sets};
use gleaner_model::{HostAction, HostDecision, HostReason, HostWindow, Nanos, SwitchPrice, VmId};
use std::collections::BTreeMap;

/// How slices are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlicePolicy {
    /// This slice for every VM.
    Static(Nanos),
    /// One for each set of VMs that share pCPUs, found by trying.
    Adaptive,
}

/// The policy of one host. A total function of its windows: no I/O, no clock.
#[derive(Clone, Debug)]
pub struct HostPolicy {
    policy: SlicePolicy,
    params: HostParams,
    price: SwitchPrice,
    sets: Vec<(SharingSet, SetState)>,
    /// What was decided last for each VM there is.
    slices: BTreeMap<VmId, Nanos>,
    fairness: FairnessMeter,
}

impl HostPolicy {
    /// `price`: what a switch was measured to cost; [`HostParams::unmeasured_price`] where it was not. With params that
    /// are not [valid](HostParams::validate) decisions are poor, never unsafe.
    pub fn new(policy: SlicePolicy, params: HostParams, price: SwitchPrice) -> Self {
        let span = Nanos::from_millis(params.fairness_span_ms);
        Self {
            policy,
            fairness: FairnessMeter::new(span, params.runnable_share_min),
            params,
            price,
            sets: Vec::new(),
            slices: BTreeMap::new(),
        }
    }

    /// One window. A window without length is ignored.
    pub fn step(&mut self, window: &HostWindow) -> Vec<HostDecision> {
        if window.length == Nanos::ZERO {
            return Vec::new();
        }
        self.fairness.push(window);
        self.price.tick = window.tick.unwrap_or(self.price.tick);
        self.slices.retain(|vm, _| window.vms.iter().any(|there| there.vm == *vm));
        match self.policy {
            SlicePolicy::Static(slice) => {
                let vms: Vec<VmId> = window.vms.iter().map(|vm| vm.vm).collect();
                self.give(&vms, slice, window.at, |_| HostReason::Static)
            }
            SlicePolicy::Adaptive => self.adapt(window),
        }
    }

    /// The slice decided for each VM that was there in the last window.
    pub fn slices(&self) -> &BTreeMap<VmId, Nanos> {
        &self.slices
    }

    /// What a switch is taken to cost now.
    pub fn price(&self) -> SwitchPrice {
        self.price
    }

    /// Where the policy stands and why it did not step.
    pub fn explain(&self) -> HostExplanation {
        let sets = self.sets.iter().map(|(set, state)| {
            let toll = state.toll(self.price);
            SetExplanation {
                vms: set.vms.clone(),
                slice: self.slice_at(state.level()),
                lost: toll.map(|(lost, _)| lost),
                switch_cost: toll.map(|(_, cost)| cost),
                no_step: state.no_step(),
            }
        });
        let mut sets: Vec<SetExplanation> = sets.collect();
        if let SlicePolicy::Static(slice) = self.policy {
            sets.extend(self.slices.keys().map(|vm| SetExplanation {
                vms: vec![*vm],
                slice,
                lost: None,
                switch_cost: None,
                no_step: HostNoStep::NotAsked,
            }));
        }
        let shares = self.fairness.shares();
        let unfair = self.unfair_among(&shares);
        HostExplanation { sets, shares, unfair, unjudged: self.fairness.unjudged() }
    }

    /// VMs that got less or more than their share over all of `fairness_span_ms`. Nobody until so much was seen: for
    /// whoever asks after each window, and would else be told of every beginning.
    pub fn unfair(&self) -> Vec<VmShare> {
        let seen_enough = self.fairness.length() >= Nanos::from_millis(self.params.fairness_span_ms);
        if seen_enough { self.unfair_among(&self.fairness.shares()) } else { Vec::new() }
    }

    fn unfair_among(&self, shares: &[VmShare]) -> Vec<VmShare> {
        let slice = |vm: VmId| self.slices.get(&vm).copied().unwrap_or_default();
        let unfair = |share: &&VmShare| is_unfair(share, self.params.unfair_share, slice(share.vm));
        shares.iter().filter(unfair).copied().collect()
    }

    fn adapt(&mut self, window: &HostWindow) -> Vec<HostDecision> {
        let mut decisions = Vec::new();
        let mut old = std::mem::take(&mut self.sets);
        for set in sharing_sets(window) {
            let known = old.iter().position(|(before, _)| before.vms == set.vms);
            let mut state = match known {
                Some(known) => old.swap_remove(known).1,
                None => self.begin(&old, &set),
            };
            let changed = state.step(window, &set, self.price);
            let slice = self.slice_at(state.level());
            let alone = self.slices.keys().all(|vm| !set.vms.contains(vm));
            let otherwise = if alone { HostReason::Begins } else { HostReason::Joins };
            decisions.extend(self.give(&set.vms, slice, window.at, |_| changed.unwrap_or(otherwise)));
            self.sets.push((set, state));
        }
        decisions
    }

    /// The state of a set that was not there before: it starts with the shortest slice that any of its VMs has already,
    /// because somebody there was found to need it, and with the longest memory.
    fn begin(&self, old: &[(SharingSet, SetState)], set: &SharingSet) -> SetState {
        let related = || old.iter().filter(|(before, _)| before.vms.iter().any(|vm| set.vms.contains(vm)));
        let level = related().map(|(_, state)| state.level()).max();
        let memory = related().map(|(_, state)| state.memory()).max();
        SetState::new(level.unwrap_or_else(|| self.start_level()), memory.unwrap_or(MEMORY.0), &self.params)
    }

    /// The step nearest to `start_slice_us`, by ratio.
    fn start_level(&self) -> usize {
        let start = (self.params.start_slice_us as f64).ln();
        let distance = |us: u64| ((us as f64).ln() - start).abs();
        let ladder = self.params.ladder_us.iter().enumerate();
        ladder.min_by(|a, b| distance(*a.1).total_cmp(&distance(*b.1))).map_or(0, |(level, _)| level)
    }

    fn slice_at(&self, level: usize) -> Nanos {
        self.params.ladder_us.get(level).copied().map_or(Nanos::ZERO, Nanos::from_micros)
    }

    /// Decides `slice` for those of `vms` that have another.
    fn give(
        &mut self,
        vms: &[VmId],
        slice: Nanos,
        at: Nanos,
        reason: impl Fn(VmId) -> HostReason,
    ) -> Vec<HostDecision> {
        let mut decisions = Vec::new();
        for &vm in vms {
            if self.slices.insert(vm, slice) != Some(slice) {
                decisions.push(HostDecision { at, action: HostAction::SetSlice { vm, slice }, reason: reason(vm) });
            }
        }
        decisions
    }
}
