//! Events a second on one core, over a series of sizes: 2 virtual machines of 16 vCPUs on 16 pCPUs up to 1,024 on
//! 4,096.
//!
//! `cargo bench -p gleaner-sim --bench events`
//!
//! Half of the virtual machines run the pipeline, half compute without end; the host is CFS-like with the costs of
//! Table 2. The same order of events at each size: bigger machines are simulated for a shorter time, long enough that
//! the first burst does not count.

use divan::Bencher;
use divan::counter::ItemsCount;
use gleaner_sim::config::{Config, HostConfig, Scheduler, VmConfig, WindowParams};
use gleaner_sim::program::Span;
use gleaner_sim::program::catalogue::{Plan, by_name};
use gleaner_sim::{Costs, Simulation};

/// Virtual machines, pCPUs, simulated time in microseconds.
const SIZES: [(u32, u32, u64); 5] =
    [(2, 16, 400_000), (8, 32, 100_000), (64, 256, 50_000), (256, 1_024, 20_000), (1_024, 4_096, 10_000)];

fn main() {
    divan::main();
}

fn machine((vms, pcpus, us): (u32, u32, u64)) -> Config {
    let host = HostConfig::new(pcpus, Scheduler::Window(WindowParams::CFS));
    let vm = |n: u32| {
        let (name, granularity) = if n.is_multiple_of(2) { ("pipeline", 20_000) } else { ("matmul", 1_000_000) };
        let threads = if n.is_multiple_of(2) { 8 } else { 16 };
        let plan = Plan { threads, items: None, granularity: Span::Exponential { mean: granularity } };
        let build = by_name(name).map(|program| (program.build)(&plan)).unwrap_or_default();
        VmConfig::new(&format!("vm-{n}"), 16, Costs::KVM_2014, build)
    };
    let mut config = Config::new(host, (0..vms).map(vm).collect());
    config.end = us * 1_000;
    config
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn events_per_second(bencher: Bencher, size: (u32, u32, u64)) {
    let run = |simulation: Simulation| simulation.run().map(|(result, _)| result.events).unwrap_or_default();
    let build = || Simulation::new(machine(size)).ok();
    let events = build().map(run).unwrap_or_default();
    bencher.counter(ItemsCount::new(events)).with_inputs(build).bench_values(|simulation| simulation.map(run));
}
