//! Groups of the host's scheduler, and balancing between busy pCPUs: small cases with the arithmetic.

mod common;
use common::{MS, S, compute, hog, run, run_config, sleep, threads};
use gleaner_sim::config::{Config, HostConfig, Scheduler, VmConfig, WindowParams};
use gleaner_sim::program::Builder;
use gleaner_sim::{Costs, SimResult};

fn cfs(pcpus: u32) -> HostConfig {
    HostConfig::new(pcpus, Scheduler::Window(WindowParams::CFS))
}

fn grouped(pcpus: u32) -> HostConfig {
    HostConfig { groups: true, ..cfs(pcpus) }
}

/// A virtual machine whose vCPU 0 wakes at 3,201 ms on pCPU 0, which a hog has, while its other vCPUs are busy on pCPUs
/// of their own.
fn wakes_beside(busy: u32) -> SimResult {
    let mut builder = Builder::new();
    let mut programs = vec![(0, vec![sleep(3_201 * MS), compute(MS)])];
    programs.extend((1..=busy).map(|vcpu| (vcpu, vec![compute(10 * S)])));
    let work = threads(&mut builder, programs);
    let vm = VmConfig::new("vm", busy + 1, Costs::FREE, work).pinned(0..=busy);
    let mut config = Config::new(grouped(busy + 1), vec![vm, hog([0])]);
    config.end = 3_215 * MS;
    run_config(config)
}

#[test]
fn whether_a_wakeup_preempts_depends_on_how_busy_its_virtual_machine_is() {
    // Placed 12 ms behind. With one vCPU busy elsewhere it weighs 1,024 / 2: granularity of 4 ms * 2, so it preempts.
    assert_eq!(wakes_beside(1).vms[0].vcpus[0].ready, 0);
    // With two, 1,024 / 3: 12 ms and a little (341 for 341.3), so it does not; with three neither. The hog has long
    // used up its slice: the tick at 3,204 ms preempts it.
    assert_eq!(wakes_beside(2).vms[0].vcpus[0].ready, 3 * MS);
    assert_eq!(wakes_beside(3).vms[0].vcpus[0].ready, 3 * MS);
}

/// Time that vCPU 0 of a virtual machine with two busy vCPUs has beside the only vCPU of another one, of 6 s.
fn share() -> u64 {
    let mut builder = Builder::new();
    let work = threads(&mut builder, vec![(0, vec![compute(60 * S)]), (1, vec![compute(60 * S)])]);
    let vm = VmConfig::new("vm", 2, Costs::FREE, work).pinned([0, 1]);
    let mut config = Config::new(grouped(2), vec![vm, hog([0])]);
    config.end = 6 * S;
    run_config(config).vms[0].vcpus[0].work
}

#[test]
fn a_vcpu_that_never_sleeps_keeps_the_weight_it_woke_with() {
    // It woke with all of its group's weight: half the pCPU, in slices of 12 ms. 6 s are 250 times both.
    assert_eq!(share(), 3 * S);
}

#[test]
fn three_vcpus_on_two_pcpus_get_two_thirds_each_once_busy_pcpus_pull() {
    let works = |rebalances| {
        let free = |name| {
            let mut builder = Builder::new();
            let work = threads(&mut builder, vec![(0, vec![compute(100 * S)])]);
            VmConfig::new(name, 1, Costs::FREE, work)
        };
        let mut config = Config::new(HostConfig { rebalances, ..cfs(2) }, ["a", "b", "c"].map(free).into());
        config.end = 12 * S;
        let result = run_config(config);
        [0, 1, 2].map(|vm: usize| result.vms[vm].vcpus[0].work)
    };
    // The first and the third begin on pCPU 0 and stay there.
    assert_eq!(works(false), [6 * S, 12 * S, 6 * S]);
    for work in works(true) {
        assert!(work.abs_diff(8 * S) < S, "{work}");
    }
}

#[test]
fn nothing_is_lost_and_the_same_comes_out_again() {
    let once = || {
        let host = HostConfig { rebalances: true, ..grouped(4) };
        let free = |name| {
            let mut builder = Builder::new();
            let body =
                |n: u64| (0..200).flat_map(move |k| [compute((1 + (n * 7 + k) % 5) * MS), sleep((k + n) % 3 * MS)]);
            let work = threads(&mut builder, (0..4).map(|n| (n, body(u64::from(n)).collect())).collect());
            VmConfig::new(name, 4, Costs::FREE, work)
        };
        run(host, ["a", "b", "c"].map(free).into())
    };
    let result = once();
    assert!(result.complete);
    assert_eq!(format!("{result:?}"), format!("{:?}", once()));
}
