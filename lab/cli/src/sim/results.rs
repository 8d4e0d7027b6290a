//! What came out of simulations, as `gleaner.sim/1`.

use gleaner_lab_report::{SimCost, SimHost, SimReport, SimRow, SimRun, SimVm};
use gleaner_model::Distribution;
use gleaner_report::DecisionRecord;
use gleaner_scenario::{Choice, Combination, Role, Scenario, Simulator};
use gleaner_sim::config::HostConfig;
use gleaner_sim::{CostDescription, SimResult, VmResult};
use serde_json::{Map, Value};

/// Decisions that a result keeps.
const DECISIONS_KEPT: usize = 100;

/// One simulation that has been run.
pub struct Ran<'a> {
    pub combination: &'a Combination,
    pub run: SimRun,
}

/// What all of them had in common.
pub struct Common<'a> {
    pub scenario: &'a Scenario,
    pub set: Map<String, Value>,
    pub seed: u64,
    pub host: &'a HostConfig,
    pub costs: &'a [CostDescription],
}

pub fn report(common: Common<'_>, ran: Vec<Ran<'_>>) -> SimReport {
    let Common { scenario, set, seed, host, costs } = common;
    let default = Simulator::default();
    let simulator = scenario.simulator.as_ref().unwrap_or(&default);
    SimReport {
        schema: SimReport::SCHEMA.to_owned(),
        scenario: scenario.name.clone(),
        set,
        seed,
        host: SimHost {
            pcpus: host.pcpus,
            scheduler: word(simulator.scheduler),
            slice_ns: simulator.slice.map(|slice| u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX)),
            halt_poll_ns: host.halt_poll.max,
            ple: host.ple.is_some(),
        },
        costs: costs.iter().map(cost).collect(),
        rows: rows(scenario, &ran),
        runs: ran.into_iter().map(|ran| ran.run).collect(),
    }
}

/// The scheduler as the scenario writes it.
fn word(scheduler: impl serde::Serialize) -> String {
    match serde_json::to_value(scheduler) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

fn cost(cost: &CostDescription) -> SimCost {
    SimCost { name: cost.name.to_owned(), value_ns: cost.ns, meaning: cost.meaning.to_owned() }
}

/// One simulation's result.
pub fn run(scenario: &Scenario, combination: &Combination, round: u32, seed: u64, result: &SimResult) -> SimRun {
    let choices = combination.measured.iter().chain(&combination.background);
    let wall = result.pcpu_busy_ns.len() as f64 * result.end_ns as f64;
    let busy: u64 = result.pcpu_busy_ns.iter().sum();
    SimRun {
        round,
        seed,
        end_ns: result.end_ns,
        complete: result.complete,
        events: result.events,
        pcpu_busy_ratio: if wall > 0.0 { busy as f64 / wall } else { 0.0 },
        vcpu_switches: result.vcpu_switches,
        vms: choices.zip(&result.vms).map(|(choice, vm)| sim_vm(scenario, choice, vm, result.end_ns)).collect(),
    }
}

fn sim_vm(scenario: &Scenario, choice: &Choice, vm: &VmResult, end_ns: u64) -> SimVm {
    let asked = &scenario.vms[choice.vm];
    let (totals, wall) = (&vm.totals, vm.wall_ns(end_ns));
    let quantile = |q: f64| (totals.latency.count() > 0).then(|| totals.latency.quantile(q).map(|ns| ns.0)).flatten();
    SimVm {
        vm: vm.name.clone(),
        role: if asked.role == Role::Measured { "measured" } else { "background" }.to_owned(),
        workload: asked.workloads[choice.workload].label().to_owned(),
        policy: asked.policies[choice.policy].label.clone(),
        vcpus: asked.vcpus,
        wall_ns: totals.ended_at,
        items: totals.items,
        items_per_s: if wall > 0 { totals.items as f64 * 1e9 / wall as f64 } else { 0.0 },
        latency_p50_ns: quantile(0.5),
        latency_p99_ns: quantile(0.99),
        work_ns: vm.sum(|vcpu| vcpu.work),
        spun_ns: vm.spun_ns,
        kernel_ns: vm.sum(|vcpu| vcpu.kernel),
        retained_ns: vm.sum(|vcpu| vcpu.retained),
        polled_ns: vm.sum(|vcpu| vcpu.polled),
        overhead_ns: vm.sum(|vcpu| vcpu.overhead),
        stolen_ns: vm.sum(|vcpu| vcpu.ready),
        halted_ns: vm.sum(|vcpu| vcpu.halted),
        idle_entries: vm.sum(|vcpu| vcpu.idle_entries),
        halts: vm.sum(|vcpu| vcpu.halts),
        voluntary_switches: totals.voluntary_switches,
        involuntary_switches: totals.involuntary_switches,
        pause_exits: vm.sum(|vcpu| vcpu.pause_exits),
        spin_wait_mean_ns: mean(&totals.spin_waits),
        spin_hold_mean_ns: mean(&totals.spin_holds),
        shootdown_mean_ns: mean(&totals.shootdowns),
        active_vcpus_mean: vm.active_vcpus_mean,
        timeout_ns: vm.timeout_ns,
        decisions: vm.decisions.iter().take(DECISIONS_KEPT).map(DecisionRecord::from).collect(),
        decisions_count: vm.decisions.len() as u64,
    }
}

fn mean(of: &Distribution) -> Option<u64> {
    of.sum().0.checked_div(of.count())
}

/// Each measured VM, workload and policy at each slice beside each background, over the rounds; against the first
/// policy at the first slice, round by round.
fn rows(scenario: &Scenario, ran: &[Ran<'_>]) -> Vec<SimRow> {
    let first_round: Vec<&Combination> =
        ran.iter().filter(|ran| ran.run.round == 0).map(|ran| ran.combination).collect();
    let per_round = first_round.len();
    let first_slice = first_round.first().and_then(|combination| combination.slice);
    let mut rows = Vec::new();
    for (at, combination) in first_round.iter().copied().enumerate() {
        for (place, choice) in combination.measured.iter().enumerate() {
            let is_base = |other: &Combination| {
                other.background == combination.background
                    && other.slice == first_slice
                    && other.measured.get(place).is_some_and(|base| *base == Choice { policy: 0, ..*choice })
            };
            let base = first_round.iter().position(|other| is_base(other));
            let rounds = ran.len() / per_round.max(1);
            let here = |round: usize| &ran[round * per_round + at].run;
            let there = |round: usize| base.map(|base| &ran[round * per_round + base].run);
            let ratio = |of: &dyn Fn(&SimRun) -> f64| {
                let ratios = (0..rounds).filter_map(|round| Some((of(here(round)), of(there(round)?))));
                median(ratios.filter(|(_, base)| *base > 0.0).map(|(here, base)| here / base).collect())
            };
            let beside = |run: &SimRun| run.vms.iter().skip(combination.measured.len()).map(|vm| vm.items_per_s).sum();
            let vm = &scenario.vms[choice.vm];
            rows.push(SimRow {
                vm: vm.name.clone(),
                workload: vm.workloads[choice.workload].label().to_owned(),
                beside: beside_label(scenario, combination),
                policy: vm.policies[choice.policy].label.clone(),
                slice: combination.slice.map(|slice| slice.to_string()),
                items_per_s: median((0..rounds).map(|round| here(round).vms[place].items_per_s).collect())
                    .unwrap_or_default(),
                speedup: ratio(&|run| run.vms[place].items_per_s),
                beside_speedup: ratio(&beside),
            });
        }
    }
    rows
}

/// What the background VMs of a combination run, in words.
pub fn beside_label(scenario: &Scenario, combination: &Combination) -> String {
    let label = |choice: &Choice| scenario.vms[choice.vm].workloads[choice.workload].label().to_owned();
    let labels: Vec<String> = combination.background.iter().map(label).collect();
    if labels.is_empty() { "nothing".to_owned() } else { labels.join(" + ") }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}
