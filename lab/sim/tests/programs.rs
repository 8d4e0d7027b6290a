//! Every built-in program does all of its items, on any number of vCPUs, under every scheduler, with every policy.

mod common;
use common::{S, US, hog, managed, run_config};
use gleaner_model::Policy;
use gleaner_sim::config::{
    Config, CreditParams, FairParams, HaltPoll, HostConfig, IdleLoop, Managed, PauseLoop, Scheduler, VmConfig,
    WindowParams,
};
use gleaner_sim::program::Span;
use gleaner_sim::program::catalogue::{ALL, Plan};
use gleaner_sim::{Costs, SimResult};

fn simulate(name: &str, threads: u32, items: u64, vcpus: u32, change: impl Fn(&mut Config)) -> SimResult {
    let program = gleaner_sim::program::catalogue::by_name(name).unwrap();
    let plan = Plan { threads, items: Some(items), granularity: Span::Exponential { mean: 10 * US } };
    let vm = VmConfig::new("vm", vcpus, Costs::KVM_2014, (program.build)(&plan));
    let host = HostConfig::new(vcpus, Scheduler::Window(WindowParams::CFS));
    let mut config = Config::new(host, vec![vm]);
    config.end = 100 * S;
    change(&mut config);
    run_config(config)
}

#[test]
fn every_program_does_all_its_items_and_ends() {
    for program in ALL {
        for (threads, vcpus) in [(1, 1), (3, 2), (4, 4), (5, 8)] {
            let result = simulate(program.name, threads, 200, vcpus, |_| {});
            assert!(result.complete, "{} with {threads} threads on {vcpus}", program.name);
            assert_eq!(result.vms[0].totals.items, 200, "{} with {threads} threads on {vcpus}", program.name);
        }
    }
}

#[test]
fn under_every_scheduler_policy_and_idle_loop() {
    let schedulers = [
        Scheduler::RoundRobin { slice: 1_000_000 },
        Scheduler::Window(WindowParams::CFS),
        Scheduler::Window(WindowParams::POWERVM),
        Scheduler::Fair(FairParams::EEVDF),
        Scheduler::Fair(FairParams { slice: 100 * US, tick: 0 }),
        Scheduler::Credit(CreditParams::XEN),
    ];
    let policies = [None, Some(Policy::Observe), Some(Policy::Retain), Some(Policy::Consolidate), Some(Policy::Full)];
    let idles = [IdleLoop::Halt, IdleLoop::Poll, IdleLoop::HALTPOLL];
    for (n, program) in ALL.iter().enumerate() {
        for (m, scheduler) in schedulers.iter().enumerate() {
            let policy = policies[(n + m) % policies.len()];
            let result = simulate(program.name, 4, 300, 4, |config| {
                config.host.scheduler = *scheduler;
                config.host.pcpus = 3;
                config.host.ple = (m % 2 == 0).then_some(PauseLoop::KVM);
                config.host.halt_poll = if m % 3 == 0 { HaltPoll::KVM } else { HaltPoll::OFF };
                config.vms[0].idle = idles[(n + m) % 3];
                config.vms[0].gleaner = policy.map(Managed::new);
                let mut neighbour = hog([0, 1]);
                neighbour.affinity.clear();
                config.vms.push(neighbour);
            });
            assert!(result.complete, "{} under {scheduler:?} with {policy:?}", program.name);
            assert_eq!(result.vms[0].totals.items, 300, "{} under {scheduler:?}", program.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_seed_another() {
    let with = |seed| {
        let result = simulate("pipeline", 3, 500, 4, |config| {
            config.seed = seed;
            let vm = config.vms.pop().unwrap();
            config.vms.push(managed(vm, Managed::new(Policy::Full)));
        });
        format!("{result:?}")
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
}
