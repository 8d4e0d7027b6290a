//! Gleaner's policy, the code that ships, in simulated guests: where it gains, and where its guard keeps it from harm.

mod common;
use common::{MS, S, US, compute, hog, managed, run_config, sleep};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Action, Policy, Reason, RetainMeans};
use gleaner_sim::config::{Config, HostConfig, IdleLoop, Managed, Scheduler, VmConfig, WindowParams};
use gleaner_sim::program::catalogue::{Plan, by_name};
use gleaner_sim::program::{Builder, Span};
use gleaner_sim::{Costs, SimResult, Time};

/// A chain of threads with 5 us of work each at Table 2's costs: nearly every hand-over wakes a halted vCPU.
fn relay(policy: Option<Policy>, threads: u32, items: u64, vcpus: u32) -> VmConfig {
    let plan = Plan { threads, items: Some(items), granularity: Span::Fixed(5 * US) };
    let vm = VmConfig::new("vm", vcpus, Costs::KVM_2014, (by_name("relay").unwrap().build)(&plan));
    match policy {
        Some(policy) => {
            let mut with = Managed::new(policy);
            // It is over before a trial.
            with.params.tuning.yielding_waits_for_trial = false;
            managed(vm, with)
        }
        None => vm,
    }
}

fn alone(policy: Option<Policy>) -> SimResult {
    run_config(Config::new(HostConfig::new(4, Scheduler::Dedicated), vec![relay(policy, 4, 50_000, 4)]))
}

fn wall(result: &SimResult) -> Time {
    assert!(result.complete);
    result.vms[0].wall_ns(result.end_ns)
}

#[test]
fn retention_and_consolidation_each_gain_where_hand_overs_are_all_there_is() {
    let off = wall(&alone(None));
    let observed = alone(Some(Policy::Observe));
    assert_eq!(wall(&observed), off, "observing changes nothing");
    let retained = alone(Some(Policy::Retain));
    let gain = off as f64 / wall(&retained) as f64;
    assert!(gain > 1.15, "retention: {gain}");
    let full = alone(Some(Policy::Full));
    let gain = off as f64 / wall(&full) as f64;
    assert!(gain > 1.5, "both: {gain}");
    let packed = |decision: &gleaner_model::Decision| matches!(decision.action, Action::Deactivate { .. });
    assert!(full.vms[0].decisions.iter().any(packed), "{:?}", full.vms[0].decisions);
}

#[test]
fn an_idle_task_that_polls_spares_interrupts() {
    // Two vCPUs, half of the time idle each: within the budget of one CPU.
    let host = || HostConfig::new(2, Scheduler::Dedicated);
    let run_one = |vm: VmConfig| wall(&run_config(Config::new(host(), vec![vm])));
    let by = |means: RetainMeans| {
        let mut vm = relay(Some(Policy::Retain), 2, 100_000, 2);
        vm.gleaner = vm.gleaner.map(|managed| Managed { means, ..managed });
        run_one(vm)
    };
    let plain = || relay(None, 2, 100_000, 2);
    let (off, yielding, polling) = (run_one(plain()), by(RetainMeans::Yielding), by(RetainMeans::IdlePoll));
    assert!(polling < yielding && yielding < off, "{polling} {yielding} {off}");
    // idle=poll at boot has no trial.
    let kept = run_one(VmConfig { idle: IdleLoop::Poll, ..plain() }) as f64 / polling as f64;
    assert!((0.9..=1.0).contains(&kept), "{kept}");
}

#[test]
fn an_idle_task_polls_for_its_time_out_and_then_halts() {
    let mut builder = Builder::new();
    builder.op(sleep(MS)).op(compute(10 * US));
    let again = builder.label_here();
    builder.op(sleep(MS)).op(compute(10 * US)).jump(again);
    builder.threads(1, 0);
    let managed_by = Managed {
        means: RetainMeans::IdlePoll,
        timeout: Some(50 * US),
        params: GuestParams { retention_trials: false, ..GuestParams::default() },
        ..Managed::new(Policy::Retain)
    };
    let vm = managed(VmConfig::new("vm", 1, Costs::KVM_2014, builder.build()), managed_by);
    let mut config = Config::new(HostConfig::new(1, Scheduler::Dedicated), vec![vm]);
    config.end = S;
    let vcpu = run_config(config).vms[0].vcpus[0];
    assert!(vcpu.halts > 500 && vcpu.halts <= vcpu.idle_entries, "{vcpu:?}");
    assert!(vcpu.retained <= vcpu.idle_entries * 50 * US && vcpu.retained > vcpu.halts * 45 * US, "{vcpu:?}");
    assert_eq!(vcpu.polled, 0, "the guest does not poll by itself");
}

#[test]
fn a_naive_spinner_harms_where_the_host_is_contended_and_the_guard_stops_it() {
    // Four vCPUs and a hog on each of two pCPUs. Spinning vCPUs take the time that the working one waits for.
    let contended = |managed_by: Option<Managed>| {
        let mut vm = relay(None, 4, 2_000, 4);
        vm.gleaner = managed_by;
        let host = HostConfig::new(2, Scheduler::Window(WindowParams::CFS));
        let mut config = Config::new(host, vec![vm, hog([0, 1])]);
        config.end = 600 * S;
        run_config(config)
    };
    let naive = Managed { timeout: Some(50 * MS), ..Managed::new(Policy::Retain) };
    let unguarded = {
        let mut naive = naive.clone();
        naive.params.steal_share_stop = 1.0;
        naive
    };
    let (unguarded, guarded) = (contended(Some(unguarded)), contended(Some(naive)));
    let trips = |result: &SimResult| result.vms[0].yielding.iter().map(|y| y.guard_trips).sum::<u64>();
    let released = |result: &SimResult| {
        result.vms[0].decisions.iter().filter(|d| matches!(d.reason, Reason::Contended { .. })).count()
    };
    assert!(trips(&guarded) > 0 || released(&guarded) > 0, "the guard never stopped anybody");
    assert_eq!(trips(&unguarded), 0);
    assert!(guarded.vms[0].sum(|vcpu| vcpu.retained) < unguarded.vms[0].sum(|vcpu| vcpu.retained) / 2);
    let (off, guarded, unguarded) = (wall(&contended(None)), wall(&guarded), wall(&unguarded));
    // By orders of magnitude without the guard; with it not by much.
    assert!(
        unguarded > 10 * off,
        "off {off} unguarded {unguarded}: the spinner does no harm here, so nothing is shown"
    );
    assert!(guarded < 2 * off, "off {off} guarded {guarded}");
}

#[test]
fn a_woken_thread_prefers_a_halted_vcpu_to_one_that_only_yields_before_linux_5_4() {
    // One thread that sleeps for 100 us at a time (50 and the slack), with 14.5 us for the timer, the switch and its 10
    // us: a round of 114.5. Where it ran last the yielding thread has taken over, for 1 ms: at the ninth wake-up after
    // that, 100 + 8 * 114.5 = 1,016 us, that vCPU has halted and the thread goes there. It left the other one 100 us
    // before: a move every 916 us, 54 in 50 ms.
    let migrations = |yielding_is_idle: bool| {
        let mut builder = Builder::new();
        let again = builder.label_here();
        builder.op(compute(10 * US)).op(sleep(50 * US)).jump(again);
        builder.threads(1, 0);
        let retained = Managed { timeout: Some(MS), ..Managed::new(Policy::Retain) };
        let mut vm = managed(VmConfig::new("vm", 2, Costs::NATIVE_2014, builder.build()), retained);
        vm.guest.yielding_is_idle = yielding_is_idle;
        let mut config = Config::new(HostConfig::new(2, Scheduler::Dedicated), vec![vm]);
        config.end = 50 * MS;
        run_config(config).vms[0].migrations
    };
    assert_eq!(migrations(true), 0);
    assert_eq!(migrations(false), 54);
}
