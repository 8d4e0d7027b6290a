//! Against theory: queues with known means, shared processors, halting against polling, work conservation.
//!
//! Means and standard errors are of independent batches (seeds). Costs are nothing: what is left is the engine and the
//! schedulers.

mod common;
use common::{MS, S, US, compute, hog, managed, round_robin, run, run_config, threads};
use gleaner_sim::config::{Config, FairParams, HostConfig, Managed, Scheduler, VmConfig, WindowParams};
use gleaner_sim::program::{Builder, Op, Span, Test, Workload};
use gleaner_sim::{Costs, Time};

/// Arrivals at random into a queue with one server; 100 us of service on average.
fn open_queue(service: Span, utilization: f64, items: i64) -> Workload {
    let mut b = Builder::new();
    let (queue, mutex, cond, left, to_serve) = (b.queue(), b.mutex(), b.cond(), b.counter(items), b.counter(items));
    let mean = 100_000.0 / utilization;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let gap = Span::Exponential { mean: mean as Time };
    let (again, out) = (b.label_here(), b.label());
    b.claim(left, out);
    b.op(Op::Sleep(gap)).op(Op::Stamp).op(Op::Push(queue)).op(Op::Signal(cond)).jump(again);
    b.here(out);
    b.threads(1, 1);
    let (again, out) = (b.label_here(), b.label());
    b.claim(to_serve, out);
    b.op(Op::Lock(mutex));
    b.op(Op::WaitUntil { cond, mutex, guard: Test::NotEmpty(queue).into() });
    b.op(Op::Pop(queue)).op(Op::Unlock(mutex)).op(Op::Compute(service)).op(Op::Done).jump(again);
    b.here(out);
    b.threads(1, 2);
    b.build()
}

/// Mean and its standard error over batches with a seed each.
fn over_seeds(batches: u64, one: impl Fn(u64) -> f64) -> (f64, f64) {
    let values: Vec<f64> = (1..=batches).map(one).collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

fn agrees(what: &str, (mean, error): (f64, f64), theory: f64) {
    eprintln!("{what}: {mean:.4} +- {error:.4}, theory {theory:.4}");
    assert!(error / mean < 0.005, "{what}: standard error {error} of {mean} is too large to say anything");
    assert!((mean - theory).abs() < 3.0 * error, "{what}: {mean} +- {error}, theory says {theory}");
}

/// Mean time in the system, in units of the service time.
fn response(service: Span, utilization: f64, seed: u64) -> f64 {
    let vm = VmConfig::new("vm", 2, Costs::FREE, open_queue(service, utilization, 400_000));
    let mut config = Config::new(HostConfig::new(2, Scheduler::Dedicated), vec![vm]);
    config.seed = seed;
    let result = run_config(config);
    let latency = &result.vms[0].totals.latency;
    latency.sum().as_f64() / latency.count() as f64 / 100_000.0
}

#[test]
fn m_m_1_has_its_mean_response_time() {
    // 1 / (1 - rho) service times.
    for (utilization, batches) in [(0.5, 4), (0.8, 12)] {
        let measured = over_seeds(batches, |seed| response(Span::Exponential { mean: 100 * US }, utilization, seed));
        agrees(&format!("M/M/1 at {utilization}"), measured, 1.0 / (1.0 - utilization));
    }
}

#[test]
fn m_d_1_has_its_mean_response_time() {
    // 1 + rho / (2 (1 - rho)) service times.
    for (utilization, batches) in [(0.5, 4), (0.8, 6)] {
        let measured = over_seeds(batches, |seed| response(Span::Fixed(100 * US), utilization, seed));
        agrees(&format!("M/D/1 at {utilization}"), measured, 1.0 + utilization / 2.0 / (1.0 - utilization));
    }
}

#[test]
fn a_closed_system_has_its_utilization() {
    // Ten virtual machines with one vCPU each on one pCPU: each thinks, exponentially, then computes, exponentially, in
    // turn (FIFO). The machine repairman: utilization from Erlang's sums.
    let (n, service, think) = (10i32, 100_000.0f64, 1_150_000.0f64);
    let r = service / think;
    let term = |k: i32| (0..k).map(|i| f64::from(n - i) * r).product::<f64>();
    let idle = 1.0 / (0..=n).map(term).sum::<f64>();
    assert!((0.7..0.8).contains(&(1.0 - idle)), "utilization {}", 1.0 - idle);
    let one = |seed| {
        let program = |mean_think: Time| {
            let mut b = Builder::new();
            let again = b.label_here();
            b.op(Op::Sleep(Span::Exponential { mean: mean_think }));
            b.op(Op::Compute(Span::Exponential { mean: 100 * US })).jump(again);
            b.threads(1, 0);
            b.build()
        };
        let vms = (0..n).map(|k| VmConfig::new(&format!("vm-{k}"), 1, Costs::FREE, program(1_150 * US)));
        // Slices longer than any service: first come, first served.
        let mut config = Config::new(round_robin(1, 100 * S), vms.collect());
        config.seed = seed;
        config.end = 5 * S;
        let result = run_config(config);
        result.pcpu_busy_ns[0] as f64 / result.end_ns as f64
    };
    agrees("closed system, utilization", over_seeds(24, one), 1.0 - idle);
}

#[test]
fn shares_are_equal_under_every_time_sharing_scheduler() {
    // Processor sharing: k hogs on one pCPU have 1/k each, to within a slice or two.
    for scheduler in [
        Scheduler::RoundRobin { slice: MS },
        Scheduler::Window(WindowParams::CFS),
        Scheduler::Fair(FairParams::EEVDF),
        Scheduler::Credit(gleaner_sim::config::CreditParams::XEN),
    ] {
        let vms = (0..4).map(|k| {
            let mut vm = hog([0]);
            vm.name = format!("hog-{k}");
            vm.measured = true;
            vm
        });
        let mut config = Config::new(HostConfig::new(1, scheduler), vms.collect());
        config.end = 12 * S;
        let result = run_config(config);
        for vm in &result.vms {
            let share = vm.cpu_ns as f64 / result.end_ns as f64;
            assert!((share - 0.25).abs() < 0.01, "{scheduler:?}: {} has {share}", vm.name);
        }
    }
}

#[test]
fn weights_are_obeyed() {
    for scheduler in [Scheduler::Window(WindowParams::CFS), Scheduler::Fair(FairParams::EEVDF)] {
        let (mut light, mut heavy) = (hog([0]), hog([0]));
        (light.name, heavy.name) = ("light".to_owned(), "heavy".to_owned());
        (light.measured, heavy.weight) = (true, 3 * 1024);
        let mut config = Config::new(HostConfig::new(1, scheduler), vec![light, heavy]);
        config.end = 10 * S;
        let result = run_config(config);
        let share = result.vms[1].cpu_ns as f64 / result.end_ns as f64;
        assert!((share - 0.75).abs() < 0.02, "{scheduler:?}: {share}");
    }
}

#[test]
fn polling_for_as_long_as_a_halt_costs_is_at_most_twice_the_best() {
    // Ski rental. Idle periods of a fixed length; a halt costs RV = 20 us at the wake-up, retaining its own time. The
    // best knows the length: min(length, RV). A time-out of RV costs the length up to RV, and RV again where that was
    // not enough.
    let mut costs = Costs::FREE;
    costs.vcpu_resume_ns = 20 * US;
    for (length, each) in [(5 * US, 5 * US), (19 * US, 19 * US), (40 * US, 40 * US), (MS, 40 * US)] {
        let mut b = Builder::new();
        let (rounds, out) = (b.counter(500), b.label());
        let again = b.label_here();
        b.claim(rounds, out);
        b.op(compute(US)).op(Op::Io(Span::Fixed(length))).jump(again);
        b.here(out);
        b.threads(1, 0);
        let retain = Managed { timeout: Some(20 * US), ..Managed::new(gleaner_model::Policy::Retain) };
        let vm = managed(VmConfig::new("vm", 1, costs, b.build()), retain);
        let result = run(HostConfig::new(1, Scheduler::Dedicated), vec![vm]);
        let vcpu = &result.vms[0].vcpus[0];
        let cost = vcpu.retained + vcpu.overhead;
        assert!(each <= 2 * length.min(20 * US));
        // The first halt is the one before the program begins.
        assert!(cost.abs_diff(500 * each) <= 41 * US, "{length}: {cost} is not 500 times {each}");
    }
}

#[test]
fn no_pcpu_idles_while_a_vcpu_waits() {
    // Eight single-vCPU machines of 10 ms of work each on three pCPUs, free to move: 80 ms / 3, and the last slices'
    // rest.
    for scheduler in [
        Scheduler::RoundRobin { slice: MS },
        Scheduler::Window(WindowParams::CFS),
        Scheduler::Fair(FairParams::EEVDF),
        Scheduler::Credit(gleaner_sim::config::CreditParams::XEN),
    ] {
        let work = || threads(&mut Builder::new(), vec![(0, vec![compute(10 * MS)])]);
        let vms = (0..8).map(|n| VmConfig::new(&format!("vm-{n}"), 1, Costs::FREE, work()));
        let result = run(HostConfig::new(3, scheduler), vms.collect());
        let busy: Time = result.pcpu_busy_ns.iter().sum();
        assert_eq!(busy, 80 * MS, "{scheduler:?}");
        assert!(result.end_ns < 80 * MS / 3 + 10 * MS, "{scheduler:?}: {}", result.end_ns);
    }
}
