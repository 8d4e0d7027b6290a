//! Every number the guest policy uses, in one place: with the paper's symbol, unit, default, range and where it is from.
//!
//! Keys carry their unit, so a parameter file is plain numbers (`min_time_slice_us = 4000`). What is not given keeps its
//! default; an unknown key is refused by serde, a bad value by [`GuestParams::validate`], which names the range.

use super::trial::TRIAL_PAIRS;
use gleaner_model::Nanos;
use serde::Deserialize;

/// A parameter that is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value} is not allowed: give a value {allowed}")]
pub struct ParamError {
    /// The key as it is written in the file.
    pub key: &'static str,
    /// The value found.
    pub value: String,
    /// What would be right, in words.
    pub allowed: String,
}

/// The parameters of the guest policy (paper, sections 4 to 6; "ours" where the paper has none).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestParams {
    // --- Consolidation: section 5, conditions (1) and (2) ---
    /// rho, load factor, to start from: l_comp <= rho * (N-1) * l_idle. 0.001 to 1. The paper's examples use 1; at its 0.95
    /// condition (3) is stricter than that for every N, and where `fine_grained_allowance` applies, less strict for every N.
    pub load_factor: f64,
    /// eta, granularity factor, to start from: g_comp <= eta * l_idle. 0.001 to 1.
    pub granularity_factor: f64,
    /// min_time_slice in microseconds: threads that compute longer than this are not consolidated. 100 to 100000; the
    /// paper says "a few milliseconds".
    pub min_time_slice_us: u64,
    /// Condition (3), ours: predicted utilization of the vCPUs that stay, N*u/(N-k), at most this. 0.01 to 1. Above
    /// `saturated_utilization` steps are tried that may fill a vCPU, and stay where the program is no slower.
    pub predicted_utilization_max: f64,
    /// rho, eta and condition (3)'s limit are multiplied with this factor where threads compute for less time than waking a halted
    /// vCPU takes, until a step of one vCPU hurts (ours): there the wake-ups themselves are most of what fills the vCPUs, and on fewer of them there are fewer. 1 to 2.
    pub fine_grained_allowance: f64,
    /// Until a step has hurt, a step deactivates as many vCPUs as conditions (1) to (3) allow, with the work of k and the idle time of
    /// N-k (ours; the paper deactivates one at a time, and so does what follows a step that hurt).
    pub several_at_once: bool,
    /// A window with fewer idle periods per second and active vCPU says nothing (ours). 1 to 100000.
    pub idle_periods_per_s_min: f64,

    // --- Judging a step: section 5, made robust against noise (ours) ---
    /// Windows passed over after a step or a change, while threads spread. 0 to 100.
    pub settle_windows: u32,
    /// Settled windows a step is judged over, by their median; also what "recent" means elsewhere. 1 to 100.
    pub judge_windows: u32,
    /// Settled windows that must have been seen before a step is taken. At least `judge_windows`, at most 100.
    pub baseline_windows_min: u32,
    /// Settled windows remembered as "before the step" and as the reference of the workload-change detector. At least
    /// `baseline_windows_min`, at most 100.
    pub baseline_windows_max: u32,
    /// A step hurt only if CPU time and hand-overs (voluntary switches, and preemptions by threads that were woken) per second both fell by
    /// more than this share; one that fills a vCPU stays unless hand-overs fell by it (ours: utilization cannot tell a vCPU that is full because it is fast from one that is overloaded). 0 to 1.
    pub hurt_loss_min: f64,
    /// ... and by more than this many median absolute deviations of the windows before. 0 to 100.
    pub hurt_mads: f64,
    /// A vCPU at this utilization has "reached 100 %" (ours: it never quite does). 0.5 to 1.
    pub overloaded_utilization: f64,
    /// A vCPU that is full within `judge_windows` and this many more settled windows after a step was filled by the step, which
    /// does so at once; where one fills later and the group computes more, the program grew, whatever it switches (ours). 0 to 100.
    pub filling_windows: u32,
    /// After this time such a step is taken back once, to see whether more vCPUs would be faster by now: nothing can be seen to
    /// grow on a full vCPU (ours), milliseconds. 1000 to 3600000.
    pub look_out_min_ms: u64,
    /// The first such look comes after this time where CPU time per second rose with the step by `cpu_growth_share`: the program
    /// may have grown just then (ours), milliseconds. 100 to 3600000.
    pub look_out_doubtful_ms: u64,
    /// The time doubles up to this while the answer stays the same, milliseconds. At least `look_out_min_ms`, at most 3600000.
    pub look_out_max_ms: u64,
    /// What rho or eta is multiplied with after a step that hurt (paper: 0.9). 0.01 to 0.999.
    pub adaptation: f64,

    // --- Workload change: section 5, last paragraph ---
    /// The group's CPU seconds per second moved by more than this share (paper: 20 %). 0.01 to 10.
    pub cpu_change_share: f64,
    /// ... and by more than this many median absolute deviations of the reference (ours). 0 to 100.
    pub cpu_change_mads: f64,
    /// ... and by at least this many CPU seconds per second (ours: an almost idle program always varies). 0 to 10.
    pub cpu_change_min: f64,
    /// Where a vCPU is saturated and the group's CPU seconds per second rose, since before the last step, by more than this
    /// share (and by more than noise), the program grew and the step is not to blame (ours: half of `cpu_change_share`,
    /// because a full vCPU leaves no room to rise further). 0.005 to 10.
    pub cpu_growth_share: f64,
    /// A vCPU above this utilization in every recent window is saturated (paper: 90 %). 0.5 to 1.
    pub saturated_utilization: f64,
    /// g_comp moved by this factor, up or down (paper: 2). Up, it is another workload where condition (2) does not hold any more; down, what
    /// was learnt is forgotten, and nothing is given back (ours). 1.1 to 100.
    pub granularity_change_factor: f64,
    /// Fewer voluntary switches per second than this count as this many where g_comp is compared (ours: they are
    /// housekeeping, and their ratio is noise). 0 to 100000.
    pub switches_per_s_min: f64,
    /// This many new threads in one window, and `thread_burst_factor` times the rate of any of the last
    /// `thread_burst_windows`, is a burst (ours). 1 to 1000000.
    pub thread_burst_min: u64,
    /// How far above the usual rate of births a burst is (ours: a program that starts a thread per request is no burst). 1 to
    /// 100.
    pub thread_burst_factor: f64,
    /// Windows that say what rate of births is usual (ours). 1 to 1000.
    pub thread_burst_windows: u32,
    /// First hold-off of consolidation after a change or a step that hurt (ours), milliseconds. 1 to 3600000.
    pub hold_off_min_ms: u64,
    /// The hold-off doubles up to this while they keep coming, milliseconds. At least `hold_off_min_ms`, at most 3600000.
    pub hold_off_max_ms: u64,
    /// They "keep coming" unless it was quiet for more than this many times the last hold-off (ours: less quiet than that is
    /// hardly worth the steps). 0 to 1000.
    pub hold_off_quiet_times: u64,

    // --- Retention: sections 4.1 and 6 ---
    /// Halting costs where the median of a halted wake-up is at least this many times the retained one's (ours): medians of the hundred-odd
    /// samples of a calibration vary by a tenth or two from run to run where both are the same thing. 1 to 100.
    pub halting_costs_p50_ratio: f64,
    /// ... or where the 99th percentile is at least this many times the retained one's, which rests on one or two samples and varies
    /// accordingly. 1 to 100. Where neither is, `frugal` and `balanced` retain nothing.
    pub halting_costs_p99_ratio: f64,
    /// Shortest time-out of profile `balanced`, microseconds. 0 to 1000000.
    pub timeout_min_us: u64,
    /// Longest time-out of any profile, and the one of `latency`, microseconds. At least `timeout_min_us`, at most 1000000.
    pub timeout_max_us: u64,
    /// Time-out of profile `frugal` where wake-ups were not measured, microseconds. 0 to 1000000.
    pub timeout_unmeasured_frugal_us: u64,
    /// Time-out of profile `balanced` where wake-ups were not measured, microseconds. 0 to 1000000.
    pub timeout_unmeasured_balanced_us: u64,
    /// First nap of a yielding thread past its time-out, where nothing tells it that its vCPU is busy again, microseconds.
    /// 10 to 1000000.
    pub nap_min_us: u64,
    /// Naps double up to this, microseconds. At least `nap_min_us`, at most 1000000.
    pub nap_max_us: u64,
    /// How long a yielding thread looks, after a nap, for a task that displaces it, microseconds. 0 to 1000000.
    pub nap_check_us: u64,

    /// Whether time-outs follow the lengths of recent idle periods where the idle task polls (ours). `--retain-for` leaves it out.
    pub learn_timeouts: bool,
    /// ... up to so many times what the profile says. 1 to 100.
    pub learnt_timeout_factor: u64,
    /// What polling costs more where the host is short of CPUs: this many times the stolen share (ours). 0 to 1000.
    pub poll_steal_price: f64,
    /// What all vCPUs together may poll, as a share of one CPU: profile `frugal`. 0 to 1000.
    pub poll_budget_frugal_ratio: f64,
    /// The same for profile `balanced`. `latency` has no limit. 0 to 1000.
    pub poll_budget_balanced_ratio: f64,
    /// Whether retention is tried against none from time to time, and stopped where it does not pay (ours). `--no-trial` leaves it out.
    pub retention_trials: bool,
    /// Windows in each of the eight blocks of a trial, the first of which settles. 2 to 100.
    pub trial_block_windows: u32,
    /// Windows in a row without a step or a stop before a trial begins. 1 to 1000.
    pub trial_quiet_windows: u32,
    /// A window with fewer wake-ups or voluntary switches ends a trial without an answer. 1 to 1000000.
    pub trial_wakeups_min: u64,
    /// Retention stops where a synchronization costs more by this share. 0 to 1.
    pub trial_cost_min: f64,
    /// ... in the median, and costs more at all in at least so many of the trial's four pairs of blocks. 1 to 4.
    pub trial_pairs_min: u32,
    /// ... unless voluntary switches per second rise by this share. 0 to 1.
    pub trial_gain_min: f64,
    /// How long the answer of the first trial stands, milliseconds. 1000 to 3600000.
    pub trial_again_min_ms: u64,
    /// It doubles up to this, milliseconds. At least `trial_again_min_ms`, at most 3600000.
    pub trial_again_max_ms: u64,

    /// A vCPU that was idle, retained or halted, for less than this share of the time that the hypervisor left it has nothing to retain, and
    /// its yielding thread sleeps (ours). 0 (no such rule) to 0.5. Profile `latency` retains all the same.
    pub never_idle_share: f64,
    /// ... in so many windows in a row; the first window with half as much brings the yielding thread back. 1 to 1000.
    pub never_idle_windows: u32,
    /// Then it stays for this long at first, milliseconds: idle periods may be that short because they are retained. 1 to 3600000.
    pub never_idle_stay_min_ms: u64,
    /// It doubles up to this each time, unless there was no idle period for ten times as long, milliseconds. At least
    /// `never_idle_stay_min_ms`, at most 3600000.
    pub never_idle_stay_max_ms: u64,

    // --- Contention guard: ours ---
    /// A gap between two yields, without having been switched out, over this is stolen time, microseconds. 10 to 100000.
    pub stolen_gap_us: u64,
    /// The stolen share is taken over this much of the time in which a yielding thread wanted its vCPU, milliseconds. 10 to 60000.
    pub steal_span_ms: u64,
    /// Spinning stops above this stolen share. 0.001 to 1.
    pub steal_share_stop: f64,
    /// The vCPU counts as quiet below this stolen share. 0 to `steal_share_stop`.
    pub steal_share_quiet: f64,
    /// First stop, milliseconds. 1 to 3600000.
    pub guard_hold_off_min_ms: u64,
    /// The stop doubles up to this while it recurs, milliseconds. At least `guard_hold_off_min_ms`, at most 3600000.
    pub guard_hold_off_max_ms: u64,

    // --- Which observer: ours ---
    /// BPF is left for `/proc` where the program switches more often per second, unless `--observer` says otherwise. 1000 to
    /// 10000000. BPF costs about 140 ns a switch, so this is 0.7 % of a vCPU; a yield storm would lose a fifth.
    pub bpf_switches_per_s_max: f64,
    /// ... in so many windows in a row. 1 to 1000.
    pub bpf_leave_windows: u32,
    /// Below this many switches per second the first trial of retention, which needs BPF, is waited for. 0 to 10000000. Above it
    /// BPF would cost a fiftieth of a vCPU and more meanwhile.
    pub bpf_trial_switches_per_s_max: f64,
    /// ... in so many windows in a row at most: a trial takes 16, after ten quiet ones. 1 to 1000.
    pub bpf_trial_windows: u32,

    // --- Polling in the idle task: ours ---
    /// Time-out of profile `frugal` where the idle task polls, microseconds. 0 to 5000.
    pub poll_timeout_frugal_us: u64,
    /// ... of profile `balanced`. 0 to 5000.
    pub poll_timeout_balanced_us: u64,
    /// Windows in a row in which nothing else went on before a trial begins, where the idle task polls. 1 to 1000.
    pub poll_trial_quiet_windows: u32,
}

impl Default for GuestParams {
    fn default() -> Self {
        Self {
            load_factor: 1.0,
            granularity_factor: 1.0,
            min_time_slice_us: 4_000,
            predicted_utilization_max: 0.95,
            fine_grained_allowance: 1.25,
            several_at_once: true,
            idle_periods_per_s_min: 100.0,
            settle_windows: 3,
            judge_windows: 3,
            baseline_windows_min: 5,
            baseline_windows_max: 10,
            hurt_loss_min: 0.03,
            hurt_mads: 2.0,
            overloaded_utilization: 0.98,
            filling_windows: 2,
            look_out_min_ms: 15_000,
            look_out_doubtful_ms: 1_000,
            look_out_max_ms: 240_000,
            adaptation: 0.9,
            cpu_change_share: 0.20,
            cpu_change_mads: 3.0,
            cpu_change_min: 0.05,
            cpu_growth_share: 0.10,
            saturated_utilization: 0.90,
            granularity_change_factor: 2.0,
            switches_per_s_min: 100.0,
            thread_burst_min: 4,
            thread_burst_factor: 2.0,
            thread_burst_windows: 10,
            hold_off_min_ms: 1_000,
            hold_off_max_ms: 60_000,
            hold_off_quiet_times: 4,
            halting_costs_p50_ratio: 1.3,
            halting_costs_p99_ratio: 2.0,
            timeout_min_us: 50,
            timeout_max_us: 5_000,
            timeout_unmeasured_frugal_us: 100,
            timeout_unmeasured_balanced_us: 1_000,
            nap_min_us: 50,
            nap_max_us: 10_000,
            nap_check_us: 50,
            retention_trials: true,
            trial_block_windows: 2,
            trial_quiet_windows: 10,
            trial_wakeups_min: 50,
            trial_cost_min: 0.01,
            trial_pairs_min: 3,
            trial_gain_min: 0.03,
            trial_again_min_ms: 30_000,
            trial_again_max_ms: 600_000,
            never_idle_share: 0.02,
            never_idle_windows: 3,
            never_idle_stay_min_ms: 1_000,
            never_idle_stay_max_ms: 60_000,
            stolen_gap_us: 200,
            steal_span_ms: 200,
            steal_share_stop: 0.15,
            steal_share_quiet: 0.05,
            guard_hold_off_min_ms: 1_000,
            guard_hold_off_max_ms: 30_000,
            bpf_switches_per_s_max: 50_000.0,
            bpf_leave_windows: 3,
            bpf_trial_switches_per_s_max: 150_000.0,
            bpf_trial_windows: 40,
            learn_timeouts: true,
            learnt_timeout_factor: 4,
            poll_steal_price: 20.0,
            poll_budget_frugal_ratio: 0.05,
            poll_budget_balanced_ratio: 1.0,
            poll_timeout_frugal_us: 50,
            poll_timeout_balanced_us: 200,
            poll_trial_quiet_windows: 3,
        }
    }
}

/// What rho and eta never fall below, given or adapted: at 0 nothing could be told from "never", and multiplying would end there.
pub(super) const FACTOR_MIN: f64 = 0.001;

/// Key, value, lowest and highest value allowed.
type Range = (&'static str, f64, f64, f64);

impl GuestParams {
    /// Checks every value.
    ///
    /// # Errors
    /// The first parameter out of range, with its key, its value and the range allowed.
    pub fn validate(&self) -> Result<(), ParamError> {
        let ranges = self.consolidation_ranges().into_iter().chain(self.retention_ranges());
        for (key, value, low, high) in ranges.chain(self.trial_ranges()).chain(self.observer_ranges()) {
            // `contains` is false for NaN, as it has to be.
            if !(low..=high).contains(&value) {
                let allowed = if low < high { format!("from {low} to {high}") } else { format!("exactly {high}") };
                return Err(ParamError { key, value: value.to_string(), allowed });
            }
        }
        Ok(())
    }

    fn consolidation_ranges(&self) -> [Range; 32] {
        const HOUR_MS: f64 = 3_600_000.0;
        let n = |windows: u32| f64::from(windows);
        [
            ("load_factor", self.load_factor, FACTOR_MIN, 1.0),
            ("granularity_factor", self.granularity_factor, FACTOR_MIN, 1.0),
            ("min_time_slice_us", self.min_time_slice_us as f64, 100.0, 1e5),
            ("predicted_utilization_max", self.predicted_utilization_max, 0.01, 1.0),
            ("fine_grained_allowance", self.fine_grained_allowance, 1.0, 2.0),
            ("idle_periods_per_s_min", self.idle_periods_per_s_min, 1.0, 1e5),
            ("settle_windows", n(self.settle_windows), 0.0, 100.0),
            ("judge_windows", n(self.judge_windows), 1.0, 100.0),
            ("baseline_windows_min", n(self.baseline_windows_min), n(self.judge_windows), 100.0),
            ("baseline_windows_max", n(self.baseline_windows_max), n(self.baseline_windows_min), 100.0),
            ("hurt_loss_min", self.hurt_loss_min, 0.0, 1.0),
            ("hurt_mads", self.hurt_mads, 0.0, 100.0),
            ("overloaded_utilization", self.overloaded_utilization, 0.5, 1.0),
            ("filling_windows", n(self.filling_windows), 0.0, 100.0),
            ("look_out_min_ms", self.look_out_min_ms as f64, 1000.0, HOUR_MS),
            ("look_out_doubtful_ms", self.look_out_doubtful_ms as f64, 100.0, HOUR_MS),
            ("look_out_max_ms", self.look_out_max_ms as f64, self.look_out_min_ms as f64, HOUR_MS),
            ("adaptation", self.adaptation, 0.01, 0.999),
            ("cpu_change_share", self.cpu_change_share, 0.01, 10.0),
            ("cpu_change_mads", self.cpu_change_mads, 0.0, 100.0),
            ("cpu_change_min", self.cpu_change_min, 0.0, 10.0),
            ("cpu_growth_share", self.cpu_growth_share, 0.005, 10.0),
            ("saturated_utilization", self.saturated_utilization, 0.5, 1.0),
            ("granularity_change_factor", self.granularity_change_factor, 1.1, 100.0),
            ("switches_per_s_min", self.switches_per_s_min, 0.0, 1e5),
            ("thread_burst_min", self.thread_burst_min as f64, 1.0, 1e6),
            ("thread_burst_factor", self.thread_burst_factor, 1.0, 100.0),
            ("thread_burst_windows", n(self.thread_burst_windows), 1.0, 1000.0),
            ("hold_off_min_ms", self.hold_off_min_ms as f64, 1.0, HOUR_MS),
            ("hold_off_max_ms", self.hold_off_max_ms as f64, self.hold_off_min_ms as f64, HOUR_MS),
            ("hold_off_quiet_times", self.hold_off_quiet_times as f64, 0.0, 1000.0),
            ("steal_share_stop", self.steal_share_stop, 0.001, 1.0),
        ]
    }

    fn retention_ranges(&self) -> [Range; 18] {
        const HOUR_MS: f64 = 3_600_000.0;
        const SECOND_US: f64 = 1e6;
        let guard_min = self.guard_hold_off_min_ms as f64;
        let stay_min = self.never_idle_stay_min_ms as f64;
        [
            ("halting_costs_p50_ratio", self.halting_costs_p50_ratio, 1.0, 100.0),
            ("halting_costs_p99_ratio", self.halting_costs_p99_ratio, 1.0, 100.0),
            ("timeout_min_us", self.timeout_min_us as f64, 0.0, SECOND_US),
            ("timeout_max_us", self.timeout_max_us as f64, self.timeout_min_us as f64, SECOND_US),
            ("timeout_unmeasured_frugal_us", self.timeout_unmeasured_frugal_us as f64, 0.0, SECOND_US),
            ("timeout_unmeasured_balanced_us", self.timeout_unmeasured_balanced_us as f64, 0.0, SECOND_US),
            ("nap_min_us", self.nap_min_us as f64, 10.0, SECOND_US),
            ("nap_max_us", self.nap_max_us as f64, self.nap_min_us as f64, SECOND_US),
            ("nap_check_us", self.nap_check_us as f64, 0.0, SECOND_US),
            ("never_idle_share", self.never_idle_share, 0.0, 0.5),
            ("never_idle_windows", f64::from(self.never_idle_windows), 1.0, 1000.0),
            ("never_idle_stay_min_ms", stay_min, 1.0, HOUR_MS),
            ("never_idle_stay_max_ms", self.never_idle_stay_max_ms as f64, stay_min, HOUR_MS),
            ("stolen_gap_us", self.stolen_gap_us as f64, 10.0, 1e5),
            ("steal_span_ms", self.steal_span_ms as f64, 10.0, 60_000.0),
            ("steal_share_quiet", self.steal_share_quiet, 0.0, self.steal_share_stop),
            ("guard_hold_off_min_ms", guard_min, 1.0, HOUR_MS),
            ("guard_hold_off_max_ms", self.guard_hold_off_max_ms as f64, guard_min, HOUR_MS),
        ]
    }

    fn trial_ranges(&self) -> [Range; 8] {
        const HOUR_MS: f64 = 3_600_000.0;
        let again_min = self.trial_again_min_ms as f64;
        [
            ("trial_block_windows", f64::from(self.trial_block_windows), 2.0, 100.0),
            ("trial_quiet_windows", f64::from(self.trial_quiet_windows), 1.0, 1000.0),
            ("trial_wakeups_min", self.trial_wakeups_min as f64, 1.0, 1e6),
            ("trial_cost_min", self.trial_cost_min, 0.0, 1.0),
            ("trial_pairs_min", f64::from(self.trial_pairs_min), 1.0, TRIAL_PAIRS as f64),
            ("trial_gain_min", self.trial_gain_min, 0.0, 1.0),
            ("trial_again_min_ms", again_min, 1000.0, HOUR_MS),
            ("trial_again_max_ms", self.trial_again_max_ms as f64, again_min, HOUR_MS),
        ]
    }

    fn observer_ranges(&self) -> [Range; 11] {
        [
            ("bpf_switches_per_s_max", self.bpf_switches_per_s_max, 1e3, 1e7),
            ("bpf_leave_windows", f64::from(self.bpf_leave_windows), 1.0, 1000.0),
            ("bpf_trial_switches_per_s_max", self.bpf_trial_switches_per_s_max, 0.0, 1e7),
            ("bpf_trial_windows", f64::from(self.bpf_trial_windows), 1.0, 1000.0),
            ("learnt_timeout_factor", self.learnt_timeout_factor as f64, 1.0, 100.0),
            ("poll_steal_price", self.poll_steal_price, 0.0, 1000.0),
            ("poll_budget_frugal_ratio", self.poll_budget_frugal_ratio, 0.0, 1000.0),
            ("poll_budget_balanced_ratio", self.poll_budget_balanced_ratio, 0.0, 1000.0),
            ("poll_timeout_frugal_us", self.poll_timeout_frugal_us as f64, 0.0, 5_000.0),
            ("poll_timeout_balanced_us", self.poll_timeout_balanced_us as f64, 0.0, 5_000.0),
            ("poll_trial_quiet_windows", f64::from(self.poll_trial_quiet_windows), 1.0, 1000.0),
        ]
    }

    /// min_time_slice.
    pub fn min_time_slice(&self) -> Nanos {
        Nanos::from_micros(self.min_time_slice_us)
    }

    /// The gap between two yields, without having been switched out, above which it is stolen time: act/ classifies
    /// returns of `sched_yield` by it.
    pub fn stolen_gap(&self) -> Nanos {
        Nanos::from_micros(self.stolen_gap_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(GuestParams::default().validate(), Ok(()));
    }

    #[test]
    fn a_file_names_only_what_differs() {
        let read: GuestParams = toml::from_str("load_factor = 0.5\nmin_time_slice_us = 2000").unwrap();
        assert_eq!(read, GuestParams { load_factor: 0.5, min_time_slice_us: 2_000, ..GuestParams::default() });
        let unknown = toml::from_str::<GuestParams>("load_facto = 0.5").unwrap_err().to_string();
        assert!(unknown.contains("load_facto"), "{unknown}");
    }

    #[test]
    fn a_bad_value_is_named_with_the_range_allowed() {
        for (text, key, allowed) in [
            ("load_factor = 0.0", "load_factor = 0", "from 0.001 to 1"),
            ("load_factor = nan", "load_factor = NaN", "from 0.001 to 1"),
            ("granularity_factor = 1.5", "granularity_factor = 1.5", "from 0.001 to 1"),
            ("judge_windows = 6", "baseline_windows_min = 5", "from 6 to 100"),
            ("hold_off_min_ms = 90000", "hold_off_max_ms = 60000", "from 90000 to 3600000"),
            ("timeout_max_us = 20", "timeout_max_us = 20", "from 50 to 1000000"),
            ("nap_min_us = 0", "nap_min_us = 0", "from 10 to"),
            ("halting_costs_p50_ratio = 0.9", "halting_costs_p50_ratio = 0.9", "from 1 to 100"),
            ("trial_pairs_min = 5", "trial_pairs_min = 5", "from 1 to 4"),
            ("never_idle_share = 0.6", "never_idle_share = 0.6", "from 0 to 0.5"),
            ("never_idle_stay_min_ms = 70000", "never_idle_stay_max_ms = 60000", "from 70000 to"),
            ("bpf_switches_per_s_max = 10", "bpf_switches_per_s_max = 10", "from 1000 to"),
            ("steal_share_quiet = 0.2", "steal_share_quiet = 0.2", "from 0 to 0.15"),
        ] {
            let params: GuestParams = toml::from_str(text).unwrap();
            let message = params.validate().unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(allowed), "{text}: {message}");
        }
    }
}
