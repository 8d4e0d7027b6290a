//! Figures for the host agent's report: slices over time, and each VM before and after.

use super::options::Options;
use super::watch::{Sample, id};
use gleaner_decide::host::{HostExplanation, HostParams, SlicePolicy, VmShare, deviation};
use gleaner_model::{HostDecision, HostVcpuWindow, Nanos, VmId, VmWindow};
use gleaner_observe::{IntervalDistribution, Vm};
use gleaner_report::{
    HostDecisionRecord, HostEnforcement, HostPrice, HostRunReport, HostRunSet, HostRunVm, HostSlice, HostVmFigures,
    StatusHost, StatusVm, unfair_words,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Decisions that are listed.
const LISTED: usize = 1000;
/// Decisions that a status tells.
const NEWEST: usize = 20;
/// Most VMs that are remembered: those that left are forgotten first.
const MOST_VMS: usize = 1000;

/// Sums over some windows of one VM.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    length: Nanos,
    run: Nanos,
    wait: Nanos,
    wakeups: Option<u64>,
    preemptions: Option<u64>,
    wake_to_run: gleaner_model::Distribution,
    delivered: IntervalDistribution,
}

impl Sums {
    pub fn add(&mut self, vm: &VmWindow, length: Nanos, delivered: Option<&IntervalDistribution>) {
        let first = self.length == Nanos::ZERO;
        self.length += length;
        self.run += vm.vcpus.iter().map(|vcpu| vcpu.run).sum();
        self.wait += vm.vcpus.iter().map(|vcpu| vcpu.wait).sum();
        let sum = |of: fn(&HostVcpuWindow) -> Option<u64>| vm.vcpus.iter().map(of).sum::<Option<u64>>();
        let add = |mine: Option<u64>, more: Option<u64>| if first { more } else { mine.zip(more).map(|(a, b)| a + b) };
        self.wakeups = add(self.wakeups, sum(|vcpu| vcpu.wakeups));
        self.preemptions = add(self.preemptions, sum(|vcpu| vcpu.preemptions));
        for delays in vm.vcpus.iter().filter_map(|vcpu| vcpu.wake_to_run.as_ref()) {
            self.wake_to_run.merge(delays);
        }
        if let Some(delivered) = delivered {
            self.delivered.merge(delivered);
        }
    }

    pub fn figures(&self) -> Option<HostVmFigures> {
        if self.length == Nanos::ZERO {
            return None;
        }
        let rate = |count: Option<u64>| count.map(|count| count as f64 / self.length.as_secs_f64());
        let ns = |value: Option<Nanos>| value.map(|value| value.0);
        Some(HostVmFigures {
            observed_ns: self.length.0,
            run_ratio: self.run.share_of(self.length),
            wait_ratio: self.wait.share_of(self.length),
            wakeups_per_s: rate(self.wakeups),
            preemptions_per_s: rate(self.preemptions),
            wake_to_run_p50_ns: ns(self.wake_to_run.quantile(0.5)),
            wake_to_run_p99_ns: ns(self.wake_to_run.quantile(0.99)),
            delivered_p50_ns: ns(self.delivered.quantile(0.5)),
            delivered_p90_ns: ns(self.delivered.quantile(0.9)),
        })
    }
}

/// One VM.
#[derive(Clone, Debug, Default)]
struct VmRecord {
    name: String,
    vcpus: u64,
    came: Nanos,
    left: Option<Nanos>,
    slices: Vec<HostSlice>,
    before: Sums,
    after: Sums,
    /// Windows to pass over: the slice changed in them.
    passing: u32,
}

/// The record of one run of the agent.
#[derive(Debug, Default)]
pub struct Record {
    vms: BTreeMap<VmId, VmRecord>,
    decisions: Vec<HostDecisionRecord>,
    newest: VecDeque<HostDecisionRecord>,
    left_out: u64,
    windows: u64,
    length: Nanos,
    /// VMs of which was said that their share is unfair, that are there still.
    unfair: BTreeSet<VmId>,
    pub warnings: Vec<String>,
}

impl Record {
    /// Adds a window, what was decided on it, and who is there now.
    pub fn add(&mut self, seen: &Sample, decisions: &[HostDecision], there: &[Vm]) {
        let window = &seen.window;
        self.windows += 1;
        self.length += window.length;
        for vm in &window.vms {
            let record = self.vms.entry(vm.vm).or_insert_with(|| VmRecord { came: window.at, ..VmRecord::default() });
            (record.vcpus, record.left) = (vm.vcpus.len() as u64, None);
            let sums = match (record.slices.is_empty(), record.passing) {
                (true, _) => &mut record.before,
                (false, 0) => &mut record.after,
                (false, _) => {
                    record.passing -= 1;
                    continue;
                }
            };
            sums.add(vm, window.length, seen.delivered.get(&vm.vm));
        }
        for decision in decisions {
            self.decided(decision);
        }
        for vm in there {
            if let Some(record) = self.vms.get_mut(&id(vm)) {
                record.name.clone_from(&vm.name);
            }
        }
        for (vm, record) in &mut self.vms {
            if record.left.is_none() && there.iter().all(|there| id(there) != *vm) {
                record.left = Some(window.at);
            }
        }
        self.forget();
    }

    fn decided(&mut self, decision: &HostDecision) {
        let decision = HostDecisionRecord::from(decision);
        if let Some(record) = self.vms.get_mut(&VmId(decision.vm)) {
            record.slices.push(HostSlice { at_ns: decision.at_ns, slice_ns: decision.slice_ns });
            record.slices.drain(..record.slices.len().saturating_sub(LISTED));
            (record.after, record.passing) = (Sums::default(), 1);
        }
        self.newest.push_back(decision.clone());
        if self.newest.len() > NEWEST {
            self.newest.pop_front();
        }
        if self.decisions.len() < LISTED {
            self.decisions.push(decision);
        } else {
            self.left_out += 1;
        }
    }

    /// Warns of VMs that got less or more than their share; once, for an agent looks every second.
    pub fn warn_of_unfair(&mut self, shares: &[VmShare], at: Nanos, params: &HostParams) {
        self.unfair.retain(|vm| self.vms.get(vm).is_some_and(|record| record.left.is_none()));
        for share in shares {
            let Some(record) = self.vms.get(&share.vm) else { continue };
            if self.unfair.insert(share.vm) {
                let words = unfair_words(&record.name, share.vm.0, share.ratio, params.unfair_share);
                let span = Nanos::from_millis(params.fairness_span_ms);
                self.warnings.push(format!("{words} (the {span} before {at}; said once)"));
            }
        }
    }

    /// Of VMs whose share cannot be judged, which without a word would look like VMs that hardly ran.
    pub fn unjudged(&self, stand: &HostExplanation) -> Option<String> {
        let name = |vm: &VmId| self.vms.get(vm).map_or_else(|| vm.to_string(), |record| record.name.clone());
        let names: Vec<String> = stand.unjudged.iter().take(6).map(name).collect();
        let more = stand.unjudged.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| {
            format!(
                "no share is known of {}{more}: their vCPUs share some pCPUs with others', and not all, and what each \
                 pCPU gave is not known",
                names.join(", ")
            )
        })
    }

    fn forget(&mut self) {
        while self.vms.len() > MOST_VMS {
            let gone =
                self.vms.iter().filter(|(_, record)| record.left.is_some()).min_by_key(|(_, record)| record.left);
            let Some(gone) = gone.map(|(vm, _)| *vm) else { return };
            self.vms.remove(&gone);
        }
    }

    /// In a line: how things stand.
    pub fn line(&self, at: Nanos, slices: &BTreeMap<VmId, Nanos>) -> String {
        let vms: Vec<String> = slices
            .iter()
            .take(6)
            .map(|(vm, slice)| {
                let name = self.vms.get(vm).map_or_else(|| vm.to_string(), |record| record.name.clone());
                format!("{name} {slice}")
            })
            .collect();
        let more =
            if slices.len() > vms.len() { format!(" and {} more", slices.len() - vms.len()) } else { String::new() };
        format!("{at} {}{more}", if vms.is_empty() { "no VM yet".to_owned() } else { vms.join(", ") })
    }

    /// How things stand now, as far as it is known here.
    pub fn status(&self, observer: &str, method: &str, slices: &BTreeMap<VmId, Nanos>) -> StatusHost {
        let there = self.vms.iter().filter(|(_, record)| record.left.is_none());
        let vm = |(vm, record): (&VmId, &VmRecord)| StatusVm {
            vm: vm.0,
            name: record.name.clone(),
            vcpus: record.vcpus,
            slice_ns: slices.get(vm).map(|slice| slice.0),
        };
        StatusHost {
            observer: Some(observer.to_owned()),
            enforcement: Some(method.to_owned()),
            vms: there.map(vm).collect(),
            decisions_count: self.decisions.len() as u64 + self.left_out,
            decisions: self.newest.iter().cloned().collect(),
            warnings: self.warnings.clone(),
            ..StatusHost::default()
        }
    }

    /// The report.
    pub fn report(
        self,
        options: &Options,
        observer: &str,
        tick: Nanos,
        (wall, overhead): (Nanos, Nanos),
        stand: &HostExplanation,
        (enforcement, restored): (HostEnforcement, bool),
    ) -> HostRunReport {
        let static_slice = match options.policy {
            SlicePolicy::Static(slice) => Some(slice.0),
            SlicePolicy::Adaptive => None,
        };
        let unfair = stand.shares.iter().map(deviation).max_by(f64::total_cmp);
        HostRunReport {
            schema: HostRunReport::SCHEMA.to_owned(),
            policy: options.policy_name().to_owned(),
            static_slice_ns: static_slice,
            wall_ns: wall.0,
            windows: self.windows,
            window_ns_mean: self.length.0.checked_div(self.windows),
            observer: observer.to_owned(),
            price: HostPrice {
                direct_ns: options.price.direct.0,
                refill_ns: options.price.refill.0,
                tick_ns: tick.0,
                from: options.price_from.to_owned(),
            },
            enforcement,
            unfair_worst_ratio: unfair,
            unfair_allowed_ratio: options.params.unfair_share,
            vms: self.vms.into_iter().map(|(vm, record)| vm_report(vm, record, stand)).collect(),
            decisions: self.decisions,
            decisions_left_out: self.left_out,
            sets: sets(stand),
            overhead_cpu_ns: overhead.0,
            warnings: self.warnings,
            restored,
            in_turn: None,
        }
    }
}

fn vm_report(vm: VmId, record: VmRecord, stand: &HostExplanation) -> HostRunVm {
    HostRunVm {
        vm: vm.0,
        name: record.name,
        vcpus: record.vcpus,
        came_ns: record.came.0,
        left_ns: record.left.map(|left| left.0),
        slices: record.slices,
        before: record.before.figures(),
        after: record.after.figures(),
        share_ratio: stand.shares.iter().find(|share| share.vm == vm).map(|share| share.ratio),
        unfair: stand.unfair.iter().any(|share| share.vm == vm),
    }
}

fn sets(stand: &HostExplanation) -> Vec<HostRunSet> {
    let sets = stand.sets.iter().map(|set| HostRunSet {
        vms: set.vms.iter().map(|vm| vm.0).collect(),
        slice_ns: set.slice.0,
        lost_ratio: set.lost,
        switch_cost_ratio: set.switch_cost,
        no_step_because: set.no_step.to_string(),
    });
    sets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfair_share_is_said_once_for_each_vm_and_again_if_another_has_its_id() {
        let mut record = Record::default();
        for (vm, name) in [(1, "web"), (2, "db")] {
            record.vms.insert(VmId(vm), VmRecord { name: name.into(), ..VmRecord::default() });
        }
        let share = |vm| VmShare { vm: VmId(vm), vcpus: 1, ratio: 0.9, entitled: Nanos::from_secs(5) };
        let told = |record: &mut Record, shares: &[VmShare]| {
            let before = record.warnings.len();
            record.warn_of_unfair(shares, Nanos::from_secs(12), &HostParams::default());
            record.warnings[before..].to_vec()
        };
        let first = told(&mut record, &[share(1)]);
        assert!(first.len() == 1 && first[0].contains("web (1) got 90.0 %") && first[0].contains("3.0 %"), "{first:?}");
        assert_eq!(told(&mut record, &[share(1), share(2)]).len(), 1);
        assert!(told(&mut record, &[]).is_empty() && told(&mut record, &[share(1), share(2)]).is_empty());
        record.vms.entry(VmId(1)).and_modify(|vm| vm.left = Some(Nanos::from_secs(13)));
        told(&mut record, &[]);
        record.vms.entry(VmId(1)).and_modify(|vm| vm.left = None);
        assert_eq!(told(&mut record, &[share(1), share(2)]).len(), 1);
    }
}
