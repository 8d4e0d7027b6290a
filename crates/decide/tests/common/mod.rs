//! A fake guest that closes the loop: a workload and the vCPUs it may run on give the next window.
//!
//! The group wants `demand` CPU seconds per second in pieces of `piece`; each piece ends in a voluntary switch, and in
//! an idle period with the probability that nobody else is there. Fewer vCPUs may slow it down or make its wake-ups
//! cheaper.

#![allow(dead_code, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

pub mod changes;

use gleaner_decide::guest::{GuestParams, GuestPolicy, Tuning};
use gleaner_model::{
    Action, CpuSet, Decision, Distribution, GroupWindow, Nanos, Policy, Profile, Source, VcpuId, VcpuWindow,
    WakeupCosts, Window, bucket_index,
};

/// What the program is like.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// CPU seconds per second it uses where nothing holds it back.
    pub demand: f64,
    /// g_comp.
    pub piece: Nanos,
    /// Progress lost for each vCPU taken away, as a share.
    pub loss_per_vcpu: f64,
    /// CPU time saved for each vCPU taken away, as a share.
    pub saving_per_vcpu: f64,
    /// Progress gained when the group is on one vCPU, as a share: no wake-up has to cross vCPUs there.
    pub gain_on_one: f64,
    /// Share of the work that runs on the lowest active vCPU on top of its even share.
    pub skew: f64,
    /// Amplitude of uniform noise on CPU time, switches and idle periods, as a share.
    pub noise: f64,
}

/// Consolidates well: 0.6 CPU seconds per second in pieces of 100 us.
pub const PIPELINE: Workload = Workload {
    demand: 0.6,
    piece: Nanos::from_micros(100),
    loss_per_vcpu: 0.0,
    saving_per_vcpu: 0.0,
    gain_on_one: 0.0,
    skew: 0.0,
    noise: 0.0,
};

/// What a pipeline of two threads looks like where waking each other takes as long as computing: 1.1 vCPUs used, of
/// which half is wake-ups. On one vCPU it is full, and twice as fast.
pub const WAKEUP_BOUND: Workload =
    Workload { demand: 1.06, piece: Nanos::from_micros(60), gain_on_one: 0.8, ..PIPELINE };

/// What wake-ups cost there: more than a computation, halted or not, so that nothing is retained.
pub const SLOW_WAKEUPS: WakeupCosts = WakeupCosts {
    retained_p50: Nanos::from_micros(95),
    retained_mean: Nanos::from_micros(110),
    retained_p99: Nanos::from_micros(480),
    halted_p50: Nanos::from_micros(103),
    halted_mean: Nanos::from_micros(120),
    halted_p99: Nanos::from_micros(500),
};

/// What wake-ups cost where halting does cost: idle vCPUs are retained.
pub const COSTLY_HALTS: WakeupCosts = WakeupCosts {
    retained_p50: Nanos::from_micros(11),
    retained_mean: Nanos::from_micros(12),
    retained_p99: Nanos::from_micros(32),
    halted_p50: Nanos::from_micros(24),
    halted_mean: Nanos::from_micros(90),
    halted_p99: Nanos::from_micros(2_700),
};

/// A program on a guest.
#[derive(Clone, Debug)]
pub struct Guest {
    pub vcpus: CpuSet,
    pub workload: Workload,
    pub length: Nanos,
    /// Stolen share of every vCPU.
    pub steal: f64,
    /// How long a woken thread waits for its vCPU while idle vCPUs are retained, and while they are not; `None`: too
    /// few to be tried.
    pub wakeup: Option<[Nanos; 2]>,
    /// Whether they are, as [`Guest::run`] has it.
    pub retained: bool,
    pub now: Nanos,
    random: u64,
}

impl Guest {
    pub fn new(vcpus: u32, workload: Workload, seed: u64) -> Self {
        Self {
            vcpus: CpuSet::first(vcpus),
            workload,
            length: Nanos::from_millis(100),
            steal: 0.0,
            wakeup: None,
            retained: false,
            now: Nanos::ZERO,
            random: seed.wrapping_mul(2).wrapping_add(1),
        }
    }

    /// 1 +- noise, uniform (splitmix64).
    fn noise(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        1.0 + self.workload.noise * (2.0 * unit - 1.0)
    }

    /// The next window with the group on `active`.
    pub fn window(&mut self, active: &CpuSet) -> Window {
        let w = self.workload;
        let n = active.len().max(1) as f64;
        let taken = self.vcpus.len() as f64 - n;
        let seconds = self.length.as_secs_f64();
        let cost = 1.0 - w.saving_per_vcpu * taken;
        let wanted = w.demand * (1.0 - w.loss_per_vcpu * taken).max(0.0) * cost * self.noise();
        let cpu = wanted.min(n) * (1.0 - self.steal);
        // Cheaper wake-ups: the same CPU time gets further.
        let gain = if active.len() == 1 { 1.0 + w.gain_on_one } else { 1.0 };
        let switches = gain * cpu / cost / w.piece.as_secs_f64() * self.noise();
        let idle_share = (1.0 - cpu / n).max(0.0);
        let idle_entries = (switches * idle_share * self.noise() * seconds) as u64;
        self.now += self.length;
        let time = |share: f64| Nanos::from_f64(share.clamp(0.0, 1.0) * self.length.as_f64());
        let lowest = active.iter().next();
        let vcpu = |id: VcpuId| {
            let mut found = VcpuWindow::new(id);
            found.idle_entries = Some(0);
            let mut busy = 0.0;
            if active.contains(id) {
                let extra = if Some(id) == lowest { w.skew * cpu } else { 0.0 };
                busy = ((cpu - w.skew * cpu) / n + extra).min(1.0 - self.steal);
                found.idle_entries = Some(idle_entries / active.len() as u64);
                found.steal = time(self.steal);
            }
            found.busy = time(busy);
            found.halted = self.length - found.busy - found.steal;
            found
        };
        Window {
            at: self.now,
            length: self.length,
            source: Source::Bpf,
            vcpus: self.vcpus.iter().map(vcpu).collect(),
            idle_entries: Some(idle_entries),
            halts: None,
            group: GroupWindow {
                threads: 4,
                cpu_time: Nanos::from_f64(cpu * self.length.as_f64()),
                voluntary_switches: (switches * seconds) as u64,
                wake_to_run: Some(self.wakeup.map_or_else(Distribution::new, |delay| {
                    all_alike((switches * seconds) as u64, delay[usize::from(!self.retained)])
                })),
                ..GroupWindow::default()
            },
        }
    }

    /// Runs `windows` windows under `policy`; every decision in order.
    pub fn run(&mut self, policy: &mut GuestPolicy, windows: usize) -> Vec<Decision> {
        self.run_changed(policy, windows, |_, _| ())
    }

    /// The same, with every window changed.
    pub fn run_changed(
        &mut self,
        policy: &mut GuestPolicy,
        windows: usize,
        change: impl Fn(&mut Window, &CpuSet),
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for _ in 0..windows {
            self.retained = self.wakeup.is_some() && !policy.explain().retaining.is_empty();
            let mut window = self.window(policy.active());
            change(&mut window, policy.active());
            decisions.extend(policy.step(&window));
            assert!(!policy.active().is_empty(), "never zero active vCPUs");
        }
        decisions
    }
}

/// So many equal durations.
pub fn all_alike(count: u64, duration: Nanos) -> Distribution {
    let mut buckets = vec![0; bucket_index(duration.0) + 1];
    buckets[bucket_index(duration.0)] = count;
    Distribution::from_buckets(buckets, duration.times(count))
}

/// Without a calibration.
pub fn policy(policy: Policy, vcpus: u32) -> GuestPolicy {
    policy_with(policy, vcpus, None)
}

/// As it ships, but for yielding threads that retain from the beginning.
pub fn retaining_untried() -> GuestParams {
    GuestParams { tuning: Tuning { yielding_waits_for_trial: false, ..Tuning::default() }, ..GuestParams::default() }
}

/// Retaining untried, on a machine where wake-ups cost that.
pub fn policy_with(policy: Policy, vcpus: u32, costs: Option<WakeupCosts>) -> GuestPolicy {
    GuestPolicy::new(policy, Profile::Balanced, retaining_untried(), costs, CpuSet::first(vcpus))
}

/// Without a calibration, one vCPU at a time as in the paper.
pub fn one_at_a_time(policy: Policy, vcpus: u32) -> GuestPolicy {
    let params = GuestParams { several_at_once: false, ..retaining_untried() };
    GuestPolicy::new(policy, Profile::Balanced, params, None, CpuSet::first(vcpus))
}

/// How many times something called `name` was decided, of one vCPU or of several.
pub fn times(decisions: &[Decision], name: &str) -> usize {
    let mut at: Vec<Nanos> =
        decisions.iter().filter(|decision| decision.action.name() == name).map(|decision| decision.at).collect();
    at.dedup();
    at.len()
}

/// How many of the decisions are called `name`.
pub fn count(decisions: &[Decision], name: &str) -> usize {
    decisions.iter().filter(|decision| decision.action.name() == name).count()
}

/// Applies decisions to a set of retained vCPUs, as act/ would; refuses what makes no sense.
pub fn apply(retained: &mut CpuSet, decisions: &[Decision]) {
    for decision in decisions {
        match decision.action {
            Action::Retain { vcpu, .. } => assert!(retained.insert(vcpu), "{vcpu} retained twice"),
            Action::Release { vcpu } => assert!(retained.remove(vcpu), "{vcpu} released, but was not retained"),
            _ => {}
        }
    }
}
