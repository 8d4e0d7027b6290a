//! In which order everything is measured.
//!
//! A round holds each combination of measured workload, policy and background workloads once, and each background
//! workload alone once, in an order of its own. What is compared with each other (the same programs under other
//! policies and slices, a
//! *case*) comes one after the other, in random order: a host whose speed changes from minute to minute (its other
//! tenants, heat) meets both runs of a pair alike, and neither is always the first.

use crate::{HostSlice, Role, Scenario, Vm, Workload};
use std::collections::BTreeMap;

/// What one VM does in a step: places in its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// Which VM, a place in [`Scenario::vms`].
    pub vm: usize,
    pub workload: usize,
    /// Which of its policies.
    pub policy: usize,
}

/// What runs at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Combination {
    /// Measured VMs that run in this step. A measured VM that is not here is paused.
    pub measured: Vec<Choice>,
    /// Every background VM.
    pub background: Vec<Choice>,
    /// vCPUs' slices meanwhile; `None` where the scenario compares none.
    pub slice: Option<HostSlice>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Measure a combination.
    Run(Combination),
    /// Measure a background workload while no other VM does anything.
    Solo(Choice),
}

/// All steps of a scenario.
#[derive(Clone, Debug)]
pub struct Plan {
    combinations: Vec<Combination>,
    solos: Vec<Choice>,
    seed: u64,
}

impl Plan {
    pub fn of(scenario: &Scenario) -> Self {
        let background = backgrounds(scenario);
        let mut combinations = Vec::new();
        let slices = &scenario.machine.slices;
        let slices = if slices.is_empty() { vec![None] } else { slices.iter().copied().map(Some).collect() };
        for measured in measured(scenario) {
            for background in &background {
                for &slice in &slices {
                    let (measured, background) = (measured.clone(), background.clone());
                    combinations.push(Combination { measured, background, slice });
                }
            }
        }
        let solos = scenario.of_role(Role::Background).filter(|_| !scenario.solo.is_zero()).flat_map(|(vm, of)| {
            let busy = of.workloads.iter().enumerate().filter(|(_, workload)| **workload != Workload::Nothing);
            busy.map(move |(workload, _)| Choice { vm, workload, policy: 0 })
        });
        Self { combinations, solos: solos.collect(), seed: scenario.seed }
    }

    /// How many combinations a scenario has, without making them: a file can ask for very many.
    pub fn count(scenario: &Scenario) -> usize {
        let of = |vm: &Vm| vm.workloads.len().saturating_mul(vm.policies.len());
        let measured = scenario.of_role(Role::Measured).map(|(_, vm)| of(vm));
        let measured = if scenario.together { measured.max() } else { Some(measured.sum()) };
        let measured = measured.map(|measured: usize| measured.saturating_mul(scenario.machine.slices.len().max(1)));
        scenario
            .of_role(Role::Background)
            .fold(measured.unwrap_or(0), |all, (_, vm)| all.saturating_mul(vm.workloads.len()))
    }

    /// Each combination once, in the order of the file.
    pub fn combinations(&self) -> &[Combination] {
        &self.combinations
    }

    /// Steps in each round.
    pub fn steps_per_round(&self) -> usize {
        self.combinations.len() + self.solos.len()
    }

    /// The steps of a round, counted from 0, in its own order: the same for the same scenario and seed.
    pub fn round(&self, round: u32) -> Vec<Step> {
        let mut cases: BTreeMap<_, Vec<Step>> = BTreeMap::new();
        for combination in &self.combinations {
            cases.entry(combination.programs()).or_default().push(Step::Run(combination.clone()));
        }
        let solos = self.solos.iter().map(|solo| vec![Step::Solo(*solo)]);
        let mut cases: Vec<Vec<Step>> = cases.into_values().chain(solos).collect();
        // A stream of its own for each round, so that running fewer rounds changes none of them.
        let mut random =
            fastrand::Rng::with_seed(self.seed ^ (u64::from(round) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        random.shuffle(&mut cases);
        for case in &mut cases {
            random.shuffle(case);
        }
        cases.concat()
    }
}

impl Combination {
    /// Who runs what, whatever the policies and slices: combinations that are alike in this are compared.
    fn programs(&self) -> Vec<(usize, usize)> {
        self.measured.iter().chain(&self.background).map(|choice| (choice.vm, choice.workload)).collect()
    }
}

/// Which measured VMs run what in a step.
fn measured(scenario: &Scenario) -> Vec<Vec<Choice>> {
    let choices = |vm: &Vm| {
        let (workloads, policies) = (vm.workloads.len(), vm.policies.len());
        (0..workloads).flat_map(move |workload| (0..policies).map(move |policy| (workload, policy)))
    };
    let vms: Vec<(usize, &Vm)> = scenario.of_role(Role::Measured).collect();
    let choice = |vm, (workload, policy)| Choice { vm, workload, policy };
    if scenario.together {
        // As many workloads and policies in each: the first goes with the first.
        let Some((_, first)) = vms.first() else { return Vec::new() };
        choices(first).map(|what| vms.iter().map(|(vm, _)| choice(*vm, what)).collect()).collect()
    } else {
        vms.iter().flat_map(|(vm, of)| choices(of).map(|what| vec![choice(*vm, what)])).collect()
    }
}

/// Every combination of what the background VMs do; one empty one if there are none.
fn backgrounds(scenario: &Scenario) -> Vec<Vec<Choice>> {
    scenario.of_role(Role::Background).fold(vec![Vec::new()], |so_far, (vm, of)| {
        let with = |before: &Vec<Choice>, workload| {
            let mut all = before.clone();
            all.push(Choice { vm, workload, policy: 0 });
            all
        };
        so_far.iter().flat_map(|before| (0..of.workloads.len()).map(move |workload| with(before, workload))).collect()
    })
}
