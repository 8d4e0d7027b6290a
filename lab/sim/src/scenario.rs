//! From a scenario, which the test bed runs too, to configurations: one for each combination of workloads and policies.

use crate::config::{
    AdaptiveSlices, Config, CreditParams, FairParams, HaltPoll, HostConfig, IdleLoop, IdleStates, Managed, PauseLoop,
    Scheduler, SimError, VmConfig, WindowParams,
};
use crate::costs::Costs;
use crate::engine::Time;
use crate::ids::PcpuIx;
use crate::program::catalogue::{self, Plan as WorkPlan};
use crate::program::{Span, Workload};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{CpuSet, Policy, RetainMeans, VcpuId};
use gleaner_scenario::{
    Choice, Combination, HostSlice, PolicyChoice, Program, Role, Scenario, SimCosts, SimIdleStates, SimScheduler,
    Simulator, TimeoutFrom, Vm, Workload as Asked,
};
use std::time::Duration;

fn ns(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}

/// The host's pCPUs, as the scenario names them.
fn cpus(scenario: &Scenario, simulator: &Simulator) -> Vec<VcpuId> {
    let largest = scenario.vms.iter().map(|vm| vm.vcpus).max().unwrap_or(1);
    let named = scenario.machine.cpus.as_ref().map_or(0, CpuSet::len);
    match (simulator.pcpus, &scenario.machine.cpus) {
        (Some(n), Some(named_cpus)) if n as usize == named => named_cpus.iter().collect(),
        (Some(n), _) => (0..n).map(VcpuId).collect(),
        (None, Some(named_cpus)) => named_cpus.iter().collect(),
        (None, None) => (0..largest).map(VcpuId).collect(),
    }
}

/// Of a number of CPUs, which scenarios have from 0.05 to 64.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn permille(cpus: f64) -> u32 {
    (cpus * 1_000.0).round() as u32
}

fn scheduler(simulator: &Simulator) -> Scheduler {
    let slice = simulator.slice.map(ns);
    let tick = |tick: Time| if simulator.enforced { 0 } else { tick };
    match simulator.scheduler {
        SimScheduler::Dedicated | SimScheduler::Native => Scheduler::Dedicated,
        SimScheduler::RoundRobin => Scheduler::RoundRobin { slice: slice.unwrap_or(CreditParams::XEN.slice) },
        SimScheduler::Cfs => {
            Scheduler::Window(WindowParams { tick: tick(WindowParams::CFS.tick), ..WindowParams::CFS })
        }
        SimScheduler::Powervm => Scheduler::Window(WindowParams::POWERVM),
        SimScheduler::Eevdf => {
            let eevdf = FairParams::EEVDF;
            Scheduler::Fair(FairParams { slice: slice.unwrap_or(eevdf.slice), tick: tick(eevdf.tick) })
        }
        SimScheduler::Credit => {
            Scheduler::Credit(CreditParams { slice: slice.unwrap_or(CreditParams::XEN.slice), ..CreditParams::XEN })
        }
    }
}

fn costs(simulator: &Simulator) -> Result<Costs, SimError> {
    let mut costs = match simulator.costs {
        _ if simulator.scheduler == SimScheduler::Native => Costs::NATIVE_2014,
        SimCosts::Kvm2014 => Costs::KVM_2014,
        SimCosts::Xen2014 => Costs::XEN_2014,
        SimCosts::Native2014 => Costs::NATIVE_2014,
        SimCosts::Free => Costs::FREE,
    };
    for (name, value) in &simulator.cost_ns {
        if !costs.set(name, *value) {
            let names: Vec<&str> = costs.described().iter().map(|cost| cost.name).collect();
            return Err(SimError::Config(format!("cost_ns has no {name:?}; it may set {}", names.join(", "))));
        }
    }
    Ok(costs)
}

fn host(simulator: &Simulator, pcpus: usize) -> HostConfig {
    let native = simulator.scheduler == SimScheduler::Native;
    let halt_poll = HaltPoll { max: ns(simulator.halt_poll), ..HaltPoll::KVM };
    let pause_loop = if simulator.scheduler == SimScheduler::Credit { PauseLoop::XEN } else { PauseLoop::KVM };
    HostConfig {
        pcpus: u32::try_from(pcpus).unwrap_or(u32::MAX),
        llc_pcpus: simulator.llc_pcpus.unwrap_or(0),
        smt: if simulator.smt { 2 } else { 1 },
        scheduler: scheduler(simulator),
        halt_poll: if native || halt_poll.max == 0 { HaltPoll::OFF } else { halt_poll },
        ple: (simulator.ple && !native).then_some(pause_loop),
        idle_states: match simulator.idle_states {
            SimIdleStates::Shallow => IdleStates::SHALLOW,
            SimIdleStates::SandyBridge => IdleStates::SANDY_BRIDGE,
        },
        ..HostConfig::default()
    }
}

/// The host with one of the slices that `machine.slices` compares: a fixed one is enforced, as `gleaner host run`
/// enforces it.
fn with_slice(simulator: &Simulator, combination: &Combination) -> Simulator {
    match combination.slice {
        Some(HostSlice::Fixed(slice)) => Simulator { slice: Some(slice), enforced: true, ..simulator.clone() },
        Some(HostSlice::Kernel | HostSlice::Adaptive) | None => simulator.clone(),
    }
}

/// What a policy file says; the caller reads it.
pub type ReadParams<'a> = &'a dyn Fn(&str) -> Result<GuestParams, String>;

/// The configuration of one combination in one round.
///
/// # Errors
/// If the scenario asks for what cannot be simulated: a command, an unknown program, a pin outside the machine.
pub fn config(
    scenario: &Scenario,
    combination: &Combination,
    seed: u64,
    read_params: ReadParams<'_>,
) -> Result<Config, SimError> {
    let default = Simulator::default();
    let simulator = &with_slice(scenario.simulator.as_ref().unwrap_or(&default), combination);
    let cpus = cpus(scenario, simulator);
    let costs = costs(simulator)?;
    let choices = combination.measured.iter().chain(&combination.background);
    let vms = choices.map(|choice| vm(scenario, choice, &cpus, costs, simulator, read_params));
    let mut config = Config::new(host(simulator, cpus.len()), vms.collect::<Result<_, _>>()?);
    config.host.adaptive = (combination.slice == Some(HostSlice::Adaptive)).then(AdaptiveSlices::default);
    config.seed = seed;
    config.end = ns(scenario.run_timeout);
    Ok(config)
}

fn vm(
    scenario: &Scenario,
    choice: &Choice,
    cpus: &[VcpuId],
    costs: Costs,
    simulator: &Simulator,
    read_params: ReadParams<'_>,
) -> Result<VmConfig, SimError> {
    let vm = &scenario.vms[choice.vm];
    let measured = vm.role == Role::Measured;
    let workload = workload(vm, &vm.workloads[choice.workload], measured)?;
    let mut config = VmConfig::new(&vm.name, vm.vcpus, costs, workload);
    config.measured = measured;
    config.slice = simulator.slice.map(ns);
    config.affinity = affinity(vm, cpus)?;
    config.cap_permille = vm.cap.map_or(0, permille);
    if vm.append.split_whitespace().any(|word| word == "idle=poll") {
        config.idle = IdleLoop::Poll;
    } else if vm.modules.iter().any(|module| module == "haltpoll") {
        config.idle = IdleLoop::HALTPOLL;
    }
    config.gleaner = managed(&vm.policies[choice.policy], read_params)?;
    Ok(config)
}

fn managed(choice: &PolicyChoice, read_params: ReadParams<'_>) -> Result<Option<Managed>, SimError> {
    if choice.policy == Policy::Off {
        return Ok(None);
    }
    let params = match &choice.config {
        Some(file) => read_params(file).map_err(SimError::Config)?,
        None => GuestParams::default(),
    };
    let timeout = match choice.timeout {
        TimeoutFrom::Fixed(timeout) => Some(ns(timeout)),
        TimeoutFrom::Boot | TimeoutFrom::Run => None,
    };
    let means = choice.retain.unwrap_or(RetainMeans::Yielding);
    Ok(Some(Managed { profile: choice.profile, means, timeout, params, ..Managed::new(choice.policy) }))
}

fn affinity(vm: &Vm, cpus: &[VcpuId]) -> Result<Vec<Vec<PcpuIx>>, SimError> {
    let place = |cpu: VcpuId| {
        cpus.iter().position(|known| *known == cpu).map(PcpuIx::of).ok_or_else(|| {
            let what =
                format!("virtual machine {}: pinned to CPU {}, which the simulated host does not have", vm.name, cpu.0);
            SimError::Config(format!("{what}; see machine.cpus and simulator.pcpus"))
        })
    };
    vm.pin.iter().map(|set| set.iter().map(place).collect()).collect()
}

fn workload(vm: &Vm, asked: &Asked, measured: bool) -> Result<Workload, SimError> {
    let program = match asked {
        Asked::Nothing => return Ok(Workload::nothing()),
        Asked::Program(program) => program,
        Asked::Command(command) => {
            let what = format!("virtual machine {}: a command ({}) cannot be simulated", vm.name, command.label);
            return Err(SimError::Config(format!("{what}; give it a program: {}", names())));
        }
    };
    let Some(known) = catalogue::by_name(&program.program) else {
        let what = format!("virtual machine {}: no program {:?} can be simulated", vm.name, program.program);
        return Err(SimError::Config(format!("{what}; there are {}", names())));
    };
    Ok((known.build)(&plan(vm, program, known.granularity, measured)))
}

fn plan(vm: &Vm, program: &Program, granularity: Time, measured: bool) -> WorkPlan {
    let mean = program.granularity.map_or(granularity, ns);
    WorkPlan {
        threads: program.threads.unwrap_or(vm.vcpus),
        items: if measured { program.items } else { None },
        // Ours: on a real machine the same turns of a loop vary too, and nothing stays in step for ever.
        granularity: Span::Uniform { low: mean - mean / 10, high: mean + mean / 10 },
    }
}

fn names() -> String {
    let names: Vec<&str> = catalogue::ALL.iter().map(|program| program.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What they do to whoever wakes there: tests/phenomena.rs.
    #[test]
    fn a_host_sleeps_as_deep_as_its_file_says() {
        for (said, states) in
            [(SimIdleStates::Shallow, IdleStates::SHALLOW), (SimIdleStates::SandyBridge, IdleStates::SANDY_BRIDGE)]
        {
            assert_eq!(host(&Simulator { idle_states: said, ..Simulator::default() }, 1).idle_states, states);
        }
    }

    #[test]
    fn xens_pause_loop_exits_prefer_nobody() {
        for (scheduler, ple) in [(SimScheduler::Credit, PauseLoop::XEN), (SimScheduler::Cfs, PauseLoop::KVM)] {
            assert_eq!(host(&Simulator { scheduler, ..Simulator::default() }, 1).ple, Some(ple));
        }
    }
}
