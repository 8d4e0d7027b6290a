//! What holds for any sequence of windows, and for any stationary workload.

mod common;

use common::{Guest, PIPELINE, Workload, apply, count, policy};
use gleaner_decide::guest::GuestPolicy;
use gleaner_model::{Action, CpuSet, GroupWindow, Nanos, Policy, Reason, Source, VcpuId, VcpuWindow, Window};
use proptest::prelude::*;

/// A window of any content, even one that no guest could produce.
fn any_window(vcpus: u32) -> impl Strategy<Value = Window> {
    let share = || 0u64..=120;
    let vcpu = (share(), share(), share(), proptest::option::weighted(0.9, 0u64..2_000));
    let vcpus = proptest::collection::vec((proptest::bool::weighted(0.98), vcpu), vcpus as usize);
    let group = (
        0u64..500,
        0u64..20_000,
        prop_oneof![9 => Just(0u64), 1 => 0u64..50],
        prop_oneof![19 => Just(0u64), 1 => Just(1)],
    );
    (1u64..300, vcpus, group).prop_map(|(length_ms, vcpus, (cpu_ms, switches, new_threads, execs))| {
        let length = Nanos::from_millis(length_ms);
        let part = |percent: u64| Nanos(length.0 * percent / 100);
        let mut online = Vec::new();
        for (id, (is_online, (busy, halted, steal, idle_entries))) in (0..).zip(vcpus) {
            if is_online {
                let (busy, halted, steal) = (part(busy), part(halted), part(steal / 8));
                online.push(VcpuWindow { busy, halted, steal, idle_entries, ..VcpuWindow::new(VcpuId(id)) });
            }
        }
        Window {
            at: Nanos::ZERO,
            length,
            source: Source::Bpf,
            vcpus: online,
            idle_entries: None,
            halts: None,
            group: GroupWindow {
                cpu_time: Nanos::from_millis(cpu_ms),
                voluntary_switches: switches,
                new_threads,
                execs: Some(execs),
                ..GroupWindow::default()
            },
        }
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Retain), Just(Policy::Consolidate), Just(Policy::Full)]
}

/// What a changed workload looks like in each window from then on, and within how many it must have given everything back:
/// one where it is seen at once, three where the median of three has to move. Last, whether a step may come first: less work,
/// or work in smaller pieces, may be packed further before it is seen as a change, and that step is judged like any other.
type Change = (&'static str, usize, fn(&mut Window, &CpuSet), bool);

/// Windows for three vCPUs, one after the other.
const STEP_BY_STEP: usize = 3 * 7;

const CHANGES: [Change; 7] = [
    ("exec", 1, |window, _| window.group.execs = Some(1), false),
    ("thread burst", 1, |window, _| window.group.new_threads = 1_000_000, false),
    ("CPU use up", 3, |window, _| scale(window, 3, 2, 3, 2), false),
    ("CPU use down", 3, |window, _| scale(window, 1, 2, 1, 2), true),
    ("g_comp up", 3, |window, _| scale(window, 1, 1, 2, 5), false),
    ("g_comp down", 3, |window, _| scale(window, 1, 1, 5, 2), true),
    // If the group computes no more than before, it is our own steps that are taken back, one after the other: each has to
    // settle (3) and be seen (3), and may come in the window of another step (1).
    (
        "a full vCPU",
        STEP_BY_STEP,
        |window, active| {
            let lowest = active.iter().next();
            let length = window.length;
            for vcpu in window.vcpus.iter_mut().filter(|vcpu| Some(vcpu.id) == lowest) {
                (vcpu.busy, vcpu.halted) = (Nanos(length.0 / 100 * 97), Nanos(length.0 / 100 * 3));
            }
        },
        false,
    ),
];

/// The group's CPU time times `a / b`, its switches times `c / d`.
fn scale(window: &mut Window, a: u64, b: u64, c: u64, d: u64) {
    window.group.cpu_time = Nanos(window.group.cpu_time.0 * a / b);
    window.group.voluntary_switches = window.group.voluntary_switches * c / d;
}

/// Runs the guest until the policy has decided nothing for 20 windows, long enough for a reference of what is usual.
fn come_to_rest(guest: &mut Guest, policy: &mut GuestPolicy) {
    // The longest hold-off, in windows of 100 ms, and some.
    guest.run(policy, 700);
    while !guest.run(policy, 20).is_empty() {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each indicator, whatever came before the workload that it ends.
    #[test]
    fn every_change_of_a_workload_gives_everything_back(
        before in proptest::collection::vec(any_window(4), 1..60),
        seed in any::<u64>(),
        load in 0.06f64..0.3,
        piece_us in 50u64..300,
        noise in prop_oneof![Just(0.0), 0.0f64..0.05],
        longer in 0usize..30,
    ) {
        let all = CpuSet::first(4);
        let workload = Workload { demand: 4.0 * load, piece: Nanos::from_micros(piece_us), noise, ..PIPELINE };
        let mut guest = Guest::new(4, workload, seed);
        let mut policy = policy(Policy::Full, 4);
        for mut window in before {
            guest.now += window.length;
            window.at = guest.now;
            policy.step(&window);
        }
        // What came before is over: it must not be the reference.
        let mut exec = guest.window(policy.active());
        exec.group.execs = Some(1);
        policy.step(&exec);
        come_to_rest(&mut guest, &mut policy);
        guest.run(&mut policy, longer);
        // Noise may have looked like harm, once; hardly ever, or proptest gives up.
        prop_assume!(policy.active().len() < 4);
        for (name, windows, change, may_step) in CHANGES {
            let (mut guest, mut policy) = (guest.clone(), policy.clone());
            let recovered = (0..windows).any(|_| {
                let mut window = guest.window(policy.active());
                change(&mut window, policy.active());
                let decisions = policy.step(&window);
                // A step back that was due anyway may come first (a last vCPU that was all but full); it is judged with what is new.
                let step_back = windows < STEP_BY_STEP && count(&decisions, "activate") > 0;
                policy.active() == &all || step_back || may_step && count(&decisions, "deactivate") > 0
            });
            prop_assert!(recovered, "{}: {:?}", name, policy.explain());
        }
    }
}

proptest! {
    #[test]
    fn any_windows(kind in any_policy(), windows in proptest::collection::vec(any_window(4), 1..120)) {
        let mut one = policy(kind, 4);
        let mut other = policy(kind, 4);
        let mut active = CpuSet::first(4);
        let mut retained = CpuSet::new();
        apply(&mut retained, &one.begin());
        other.begin();
        let mut now = Nanos::ZERO;
        for mut window in windows {
            now += window.length;
            window.at = now;
            let decisions = one.step(&window);
            prop_assert_eq!(&decisions, &other.step(&window), "the same windows give the same decisions");
            prop_assert!(count(&decisions, "deactivate") <= 1, "one vCPU at a time");
            for decision in &decisions {
                prop_assert_eq!(decision.at, now);
                match decision.action {
                    Action::Deactivate { vcpu } => prop_assert!(active.remove(vcpu)),
                    Action::Activate { vcpu } => prop_assert!(active.insert(vcpu)),
                    Action::ActivateAll => active = window.vcpus.iter().map(|vcpu| vcpu.id).collect(),
                    Action::Retain { .. } | Action::Release { .. } => {}
                }
            }
            apply(&mut retained, &decisions);
            prop_assert!(!one.active().is_empty(), "never zero active vCPUs");
            prop_assert!(retained.is_subset(one.active()), "nothing is retained where nothing runs");
            if kind.consolidates() {
                prop_assert_eq!(one.active(), &active, "the decisions say all");
            }
            prop_assert_eq!(&retained, &one.explain().retaining);
        }
        // Whatever came before, a change of the workload gives everything back, in the same window.
        let mut guest = Guest::new(4, PIPELINE, 1);
        guest.now = now;
        let mut change = guest.window(one.active());
        change.group.execs = Some(1);
        one.step(&change);
        prop_assert_eq!(one.active(), &CpuSet::first(4));
    }

    /// Stationary, without or with noise of up to 5 %: at most N - 1 steps, and 4 that are tried again; and now and then a look
    /// whether a full vCPU is still the best, which takes a step back and takes it again.
    ///
    /// Why: noise up to 5 % never looks like a workload change (20 % of CPU time, a factor of 2 of g_comp), so factors only
    /// fall. Each step that is undone multiplies rho or eta by at most 0.9, and a ratio within r..R allows at most
    /// 1 + ln(R/r)/ln(1/0.9) of them per factor: here R/r < 1.22, so 2 for rho and 2 for eta. A step that is not undone leaves
    /// one vCPU fewer, at most N - 1 times.
    #[test]
    fn a_stationary_workload_comes_to_rest(
        seed in any::<u64>(),
        vcpus in 1u32..=8,
        load in 0.02f64..1.0,
        piece_us in 20u64..3_000,
        loss_per_vcpu in prop_oneof![Just(0.0), 0.0f64..0.12],
        saving_per_vcpu in prop_oneof![Just(0.0), 0.0f64..0.1],
        gain_on_one in prop_oneof![Just(0.0), 0.0f64..1.0],
        skew in prop_oneof![Just(0.0), 0.0f64..0.5],
        noise in prop_oneof![Just(0.0), 0.0f64..0.05],
    ) {
        let piece = Nanos::from_micros(piece_us);
        let demand = load * f64::from(vcpus);
        let workload = Workload { demand, piece, loss_per_vcpu, saving_per_vcpu, gain_on_one, skew, noise };
        let mut guest = Guest::new(vcpus, workload, seed);
        let mut policy = policy(Policy::Full, vcpus);
        let decisions = guest.run(&mut policy, 1_200);
        let looks = decisions.iter().filter(|decision| decision.reason == Reason::LookOut).count();
        let (steps, undone) = (count(&decisions, "deactivate") - looks, count(&decisions, "activate") - looks);
        prop_assert!(count(&decisions, "activate-all") == 0, "{:?}", decisions);
        // After 15, 30, 60, ... seconds, of 120.
        prop_assert!(looks <= 3, "{} looks", looks);
        prop_assert!(undone <= 4 && steps < vcpus as usize + undone, "{} steps, {} undone", steps, undone);
    }

    /// Larger noise may look like changes. Then the doubling hold-off limits how often steps are tried: at most 60 in five
    /// minutes on four vCPUs (held in 20,000 cases; a series of 3 steps a change, changes mostly 4 s to 60 s apart).
    #[test]
    fn noise_of_any_size_is_held_off(seed in any::<u64>(), load in 0.05f64..1.0, noise in 0.05f64..1.0) {
        let workload = Workload { demand: 4.0 * load, noise, ..PIPELINE };
        let mut guest = Guest::new(4, workload, seed);
        let mut policy = policy(Policy::Full, 4);
        let windows = 3_000;
        let decisions = guest.run(&mut policy, windows);
        let steps = count(&decisions, "deactivate");
        prop_assert!(steps <= 60, "{} steps in {} windows", steps, windows);
    }
}
