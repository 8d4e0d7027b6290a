//! What the tests of the simulator share: virtual machines in a line.
#![allow(dead_code, reason = "not every test file uses all of it")]

use gleaner_sim::config::{Config, HostConfig, Managed, Scheduler, VmConfig};
use gleaner_sim::program::{Builder, Op, Span, Workload};
use gleaner_sim::{Costs, SimResult, Simulation, Time};

pub const US: Time = 1_000;
pub const MS: Time = 1_000_000;
pub const S: Time = 1_000_000_000;

pub fn compute(time: Time) -> Op {
    Op::Compute(Span::Fixed(time))
}

pub fn sleep(time: Time) -> Op {
    Op::Sleep(Span::Fixed(time))
}

/// Threads that each run their own instructions on a vCPU of their own.
pub fn threads(builder: &mut Builder, programs: Vec<(u32, Vec<Op>)>) -> Workload {
    for (vcpu, ops) in programs {
        for op in ops {
            builder.op(op);
        }
        builder.threads(1, 1 << vcpu);
    }
    builder.build()
}

/// A neighbour that computes without end, one vCPU on each of these pCPUs.
pub fn hog(pcpus: impl IntoIterator<Item = u32> + Clone) -> VmConfig {
    let n = u32::try_from(pcpus.clone().into_iter().count()).unwrap();
    let mut builder = Builder::new();
    let again = builder.label_here();
    builder.op(compute(100 * S)).jump(again);
    builder.threads(n, 0);
    VmConfig::new("hog", n, Costs::FREE, builder.build()).pinned(pcpus).background()
}

pub fn round_robin(pcpus: u32, slice: Time) -> HostConfig {
    HostConfig::new(pcpus, Scheduler::RoundRobin { slice })
}

pub fn run(host: HostConfig, vms: Vec<VmConfig>) -> SimResult {
    run_config(Config::new(host, vms))
}

pub fn run_config(config: Config) -> SimResult {
    let (result, _) = Simulation::new(config).unwrap().run().unwrap();
    for vm in &result.vms {
        for vcpu in &vm.vcpus {
            assert_eq!(vcpu.sum(), result.end_ns, "run + ready + idle + steal = wall in {}", vm.name);
        }
    }
    result
}

pub fn managed(mut vm: VmConfig, managed: Managed) -> VmConfig {
    vm.gleaner = Some(managed);
    vm
}
