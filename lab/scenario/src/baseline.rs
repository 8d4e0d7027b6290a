//! What a VM's runs are compared with: its own with policy `off`, or those of another VM.

use crate::values::Wrong;
use crate::{Role, Scenario, Vm, Workload};
use std::ops::Range;

/// Where messages about a VM point at.
pub(crate) struct Places {
    pub vm: Range<usize>,
    pub policies: Range<usize>,
    pub baseline: Range<usize>,
}

/// Every measured VM with something to compare has something to compare it with.
pub(crate) fn check_baselines(scenario: &Scenario, places: &[Places]) -> Result<(), Wrong> {
    for (vm, place) in scenario.vms.iter().zip(places) {
        match &vm.baseline {
            Some(name) => check_baseline(scenario, vm, name).map_err(|what| (place.baseline.clone(), what))?,
            None if vm.role == Role::Measured && vm.policies.len() > 1 && !has_off(vm) => {
                let what = "none of these policies is off under the label \"off\", with which the others are compared; \
                            add \"off\", or name another VM whose off they are compared with, as baseline = \"plain\"";
                return Err((place.policies.clone(), what.to_owned()));
            }
            None => {}
        }
    }
    Ok(())
}

fn check_baseline(scenario: &Scenario, vm: &Vm, name: &str) -> Result<(), String> {
    if vm.role == Role::Background {
        return Err("baseline goes with a measured VM; a background VM's runs are compared with nothing".to_owned());
    }
    if name == vm.name {
        return Err("baseline is the VM itself; leave it out: a VM is compared with its own off anyway".to_owned());
    }
    let others = || scenario.of_role(Role::Measured).map(|(_, other)| other).filter(|other| other.name != vm.name);
    let Some(base) = others().find(|other| other.name == name) else {
        let names: Vec<String> = others().map(|other| format!("{:?}", other.name)).collect();
        let names = if names.is_empty() { "there is none".to_owned() } else { names.join(", ") };
        return Err(format!("baseline = {name:?}: must be another measured VM ({names})"));
    };
    if !has_off(base) {
        return Err(format!(
            "baseline = {name:?}: that VM has no policy off (labelled \"off\") to compare with; add it"
        ));
    }
    if let Some(further) = &base.baseline {
        return Err(format!(
            "baseline = {name:?}: that VM is itself compared with {further:?}; name {further:?} here too"
        ));
    }
    let lacks = |workload: &&Workload| !base.workloads.iter().any(|other| other.label() == workload.label());
    match vm.workloads.iter().find(lacks) {
        None => Ok(()),
        Some(missing) => Err(format!(
            "baseline = {name:?}: that VM has no workload called {:?}, so its runs have nothing to be compared with; \
             add it there, or give both the same label",
            missing.label()
        )),
    }
}

/// Labels are unique, and this one is policy `off`'s alone.
fn has_off(vm: &Vm) -> bool {
    vm.policies.iter().any(|choice| choice.label == "off")
}
