//! Gleaner's host side, the policy that ships: short slices where they help somebody, long ones where nobody waits for
//! anything.

mod common;
use common::{MS, S, US, hog, run_config};
use gleaner_sim::config::{AdaptiveSlices, Config, FairParams, HostConfig, Scheduler, VmConfig};
use gleaner_sim::program::{Builder, Op, Span};
use gleaner_sim::{Costs, SimResult, Time};

/// Answers requests that come at random, every 2 ms on average, each with 100 us of work.
fn server() -> VmConfig {
    let mut b = Builder::new();
    let again = b.label_here();
    b.op(Op::Sleep(Span::Exponential { mean: 2 * MS }));
    b.op(Op::Compute(Span::Fixed(100 * US))).op(Op::Done).jump(again);
    b.threads(1, 0);
    VmConfig::new("server", 1, Costs::KVM_2014, b.build()).pinned([0])
}

fn costly(mut vm: VmConfig) -> VmConfig {
    vm.costs = Costs { cache_refill_ns: 30 * US, ..Costs::KVM_2014 };
    vm.measured = true;
    vm
}

fn simulate(vms: Vec<VmConfig>, adaptive: bool) -> SimResult {
    let host = HostConfig {
        adaptive: adaptive.then(AdaptiveSlices::default),
        ..HostConfig::new(1, Scheduler::Fair(FairParams { slice: 30 * MS, ..FairParams::EEVDF }))
    };
    let mut config = Config::new(host, vms.into_iter().map(costly).collect());
    config.end = 60 * S;
    run_config(config)
}

/// The slice that was decided last, if there was any decision; all virtual machines here share a pCPU and have the
/// same.
fn slice(result: &SimResult) -> Time {
    let gleaner_model::HostAction::SetSlice { slice, .. } = result.slice_decisions.last().expect("a decision").action;
    slice.0
}

#[test]
fn a_server_beside_a_hog_gets_short_slices_and_two_hogs_long_ones() {
    let beside = simulate(vec![server(), hog([0])], true);
    let hogs = simulate(vec![hog([0]), hog([0])], true);
    eprintln!("server {} hogs {}", slice(&beside), slice(&hogs));
    assert!(slice(&beside) <= MS, "{:?}", beside.slice_decisions);
    assert!(slice(&hogs) >= 10 * MS, "{:?}", hogs.slice_decisions);
}

#[test]
fn short_slices_help_the_server_they_are_for() {
    let (with, without) = (simulate(vec![server(), hog([0])], true), simulate(vec![server(), hog([0])], false));
    assert!(without.slice_decisions.is_empty());
    // It asks for the next when it has answered one: whoever waits less answers more.
    let (adapted, alone) = (with.vms[0].totals.items, without.vms[0].totals.items);
    assert!(adapted > alone * 3 / 2, "{adapted} answers, without slices {alone}");
}
