//! Every number the guest policy uses, in one place: with the paper's symbol, unit, default, range and where it is
//! from.
//!
//! Keys carry their unit, so a parameter file is plain numbers (`min_time_slice_us = 4000`). What is not given keeps
//! its default; an unknown key is refused by serde, a bad value by [`GuestParams::validate`], which names the range.

use crate::params::{ParamError, parameters};
use gleaner_model::Nanos;

parameters! {
    /// The parameters of the guest policy (paper, sections 4 to 6; "ours" where the paper has none).
    pub struct GuestParams {
        ["Consolidation: section 5, conditions (1) and (2)"]
        /// rho, load factor, to start from: l_comp <= rho * (N-1) * l_idle. The paper's examples use 1;
        /// at its 0.95 condition (3) is stricter than that for every N, and where `fine_grained_allowance` applies,
        /// less strict for every N.
        load_factor: f64 = 1.0, { FACTOR_MIN } to 1, "";
        /// eta, granularity factor, to start from: g_comp <= eta * l_idle.
        granularity_factor: f64 = 1.0, { FACTOR_MIN } to 1, "";
        /// min_time_slice: threads that compute longer than this are not consolidated. The paper says "a few
        /// milliseconds".
        min_time_slice_us: u64 = 4_000, 100 to 100_000, "us";
        /// Condition (3), ours: predicted utilization of the vCPUs that stay, N*u/(N-k), at most this.
        /// Above `saturated_utilization` steps are tried that may fill a vCPU, and stay where the program is no
        /// slower.
        predicted_utilization_max: f64 = 0.95, 0.01 to 1, "share";
        /// rho, eta and condition (3)'s limit are multiplied with this factor where threads compute for less time
        /// than waking a halted vCPU takes, until a step of one vCPU hurts (ours): there the wake-ups themselves are
        /// most of what fills the vCPUs, and on fewer of them there are fewer.
        fine_grained_allowance: f64 = 1.25, 1 to 2, "";
        /// Until a step has hurt, a step deactivates as many vCPUs as conditions (1) to (3) allow, with the work of k
        /// and the idle time of N-k (ours; the paper deactivates one at a time, and so does what follows a step that
        /// hurt).
        several_at_once: bool = true, any of "true or false", "";
        /// A window with fewer idle periods per second and active vCPU says nothing (ours).
        idle_periods_per_s_min: f64 = 100.0, 1 to 100_000, "per second";

        /// An interrupt that can be moved leaves vCPUs that were deactivated where it lands there at least so often
        /// (ours): each time it would wake one, and what it wakes runs elsewhere (experiments/ahead).
        interrupts_per_s_min: f64 = 50.0, 1 to 1_000_000, "per second";

        ["Judging a step: section 5, made robust against noise (ours)"]
        /// Windows passed over after a step or a change, while threads spread.
        settle_windows: u32 = 3, 0 to 100, "windows";
        /// Settled windows a step is judged over, by their median; also what "recent" means elsewhere.
        judge_windows: u32 = 3, 1 to 100, "windows";
        /// Settled windows that must have been seen before a step is taken.
        baseline_windows_min: u32 = 5, (judge_windows) to 100, "windows";
        /// Settled windows remembered as "before the step" and as the reference of the workload-change detector.
        baseline_windows_max: u32 = 10, (baseline_windows_min) to 100, "windows";
        /// A step hurt only if CPU time and hand-overs (voluntary switches, and preemptions by threads that were
        /// woken) per second both fell by more than this share; one that fills a vCPU stays unless hand-overs fell by
        /// it (ours: utilization cannot tell a vCPU that is full because it is fast from one that is overloaded).
        hurt_loss_min: f64 = 0.03, 0 to 1, "share";
        /// After this time such a step is taken back once, to see whether more vCPUs would be faster by now: nothing
        /// can be seen to grow on a full vCPU (ours).
        look_out_min_ms: u64 = 15_000, 1_000 to 3_600_000, "ms";
        /// The first such look comes after this time where CPU time per second rose with the step by
        /// a tenth: the program may have grown just then (ours).
        look_out_doubtful_ms: u64 = 1_000, 100 to 3_600_000, "ms";
        /// The time doubles up to this while the answer stays the same.
        look_out_max_ms: u64 = 240_000, (look_out_min_ms) to 3_600_000, "ms";

        ["Workload change: section 5, last paragraph"]
        /// The group's CPU seconds per second moved by more than this share (paper: 20 %).
        cpu_change_share: f64 = 0.20, 0.01 to 10, "share";
        /// A vCPU above this utilization in every recent window is saturated (paper: 90 %).
        saturated_utilization: f64 = 0.90, 0.5 to 1, "share";
        /// g_comp moved by this factor, up or down (paper: 2). Up, it is another workload where condition (2) does
        /// not hold any more; down, what was learnt is forgotten, and nothing is given back (ours).
        granularity_change_factor: f64 = 2.0, 1.1 to 100, "";
        /// This many new threads in one window, where no window shortly before had nearly as many, is a burst (ours).
        thread_burst_min: u64 = 4, 1 to 1_000_000, "threads";
        /// First hold-off of consolidation after a change or a step that hurt (ours).
        hold_off_min_ms: u64 = 1_000, 1 to 3_600_000, "ms";
        /// The hold-off doubles up to this while they keep coming.
        hold_off_max_ms: u64 = 60_000, (hold_off_min_ms) to 3_600_000, "ms";

        ["Expanding at once: section 7.1"]
        /// Whether a packed group gets all vCPUs back as soon as its threads wait for one, and not by the next window
        /// (the paper wishes for it).
        expand_at_once: bool = true, any of "true or false", "";

        ["Threads that take turns: ours"]
        /// A group that uses more CPUs than this has threads that run side by side, and is not tried on one vCPU. 0:
        /// none is.
        turns_cpus_max: f64 = 1.3, 0 to 64, "CPUs";

        ["Retention: sections 4.1 and 6"]
        /// Halting costs where the median of a halted wake-up is at least this many times the retained one's (ours):
        /// medians of the hundred-odd samples of a calibration vary by a tenth or two from run to run where both are
        /// the same thing.
        halting_costs_p50_ratio: f64 = 1.3, 1 to 100, "";
        /// ... or where the 99th percentile is at least this many times the retained one's, which rests on one or two
        /// samples and varies accordingly. Where neither is, `frugal` and `balanced` retain nothing.
        halting_costs_p99_ratio: f64 = 2.0, 1 to 100, "";
        /// Where neither is, and the median of a halted wake-up is below this, nothing is packed either (ours): packed
        /// and traced, `fork-join` lost 12 % where that took 6 us (experiments/vcpus-16).
        waking_costs_us_min: u64 = 10, 0 to 1_000_000, "us";
        /// Shortest time-out of profile `balanced`.
        timeout_min_us: u64 = 50, 0 to 1_000_000, "us";
        /// Longest time-out of any profile, and the one of `latency`.
        timeout_max_us: u64 = 5_000, (timeout_min_us) to 1_000_000, "us";
        /// Time-out of profile `balanced` where wake-ups were not measured.
        timeout_unmeasured_balanced_us: u64 = 1_000, 0 to 1_000_000, "us";
        /// First nap of a yielding thread past its time-out, where nothing tells it that its vCPU is busy again.
        nap_min_us: u64 = 50, 10 to 1_000_000, "us";
        /// Naps double up to this.
        nap_max_us: u64 = 10_000, (nap_min_us) to 1_000_000, "us";
        /// How long a yielding thread looks, after a nap, for a task that displaces it.
        nap_check_us: u64 = 50, 0 to 1_000_000, "us";
        /// Whether time-outs follow the lengths of recent idle periods where the idle task polls (ours). `--retain-for`
        /// leaves it out.
        learn_timeouts: bool = true, any of "true or false", "";
        /// Whether retention is tried against none from time to time, and stopped where it does not pay (ours).
        /// `--no-trial` leaves it out.
        retention_trials: bool = true, any of "true or false", "";
        /// Whether yielding threads retain only what a trial has shown to gain by it (ours): untried they may cost a
        /// third of the speed (experiments/vcpus-16).
        yielding_waits_for_trial: bool = true, any of "true or false", "";
        /// Windows in each of the eight blocks of a trial, the first of which settles.
        trial_block_windows: u32 = 2, 2 to 100, "windows";
        /// Windows in a row without a step or a stop before a trial begins.
        trial_quiet_windows: u32 = 10, 1 to 1_000, "windows";
        /// A trial stops retention unless voluntary switches per second rise by this share.
        trial_gain_min: f64 = 0.03, 0 to 1, "share";
        /// A vCPU that was idle, retained or halted, for less than this share of the time that the hypervisor left it
        /// has nothing to retain, and its yielding thread sleeps (ours). 0: no such rule. Profile `latency` retains
        /// all the same.
        never_idle_share: f64 = 0.02, 0 to 0.5, "share";

        ["Contention guard: ours"]
        /// The stolen share is taken over this much of the time in which a yielding thread wanted its vCPU.
        steal_span_ms: u64 = 200, 10 to 60_000, "ms";
        /// Spinning stops above this stolen share.
        steal_share_stop: f64 = 0.15, 0.001 to 1, "share";

        ["Which observer: ours"]
        /// BPF is left for `/proc` where the program switches more often per second, unless `--observer` says
        /// otherwise. BPF costs about 140 ns a switch, so this is 0.7 % of a vCPU; a yield storm would lose a fifth.
        bpf_switches_per_s_max: f64 = 50_000.0, 1_000 to 10_000_000, "per second";
        /// ... in so many windows in a row.
        bpf_leave_windows: u32 = 3, 1 to 1_000, "windows";
        /// Below this many switches per second the first trial of retention, which needs BPF, is waited for. Above it
        /// BPF would cost a fiftieth of a vCPU and more meanwhile.
        bpf_trial_switches_per_s_max: f64 = 150_000.0, 0 to 10_000_000, "per second";

        /// Where a daemon reads `/proc` because idle vCPUs poll, BPF takes its place once there are more threads than
        /// this. Reading a thread's files costs some microseconds a window; BPF costs by the switch.
        procfs_threads_max: u64 = 500, 1 to 1_000_000, "threads";

        ["Polling in the idle task: ours"]
        /// Time-out of profile `balanced` where the idle task polls. `frugal` has a quarter of the default.
        poll_timeout_balanced_us: u64 = 200, 0 to 5_000, "us";
        /// Windows in a row in which nothing else went on before a trial begins, where the idle task polls.
        poll_trial_quiet_windows: u32 = 3, 1 to 1_000, "windows";
    }
}

/// What rho and eta never fall below, given or adapted: at 0 nothing could be told from "never", and multiplying would
/// end there.
pub(super) const FACTOR_MIN: f64 = 0.001;

impl GuestParams {
    /// Checks every value.
    ///
    /// # Errors
    /// The first parameter out of range, with its key, its value and the range allowed.
    pub fn validate(&self) -> Result<(), ParamError> {
        self.out_of_range()
    }

    /// min_time_slice.
    pub fn min_time_slice(&self) -> Nanos {
        Nanos::from_micros(self.min_time_slice_us)
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
            ("never_idle_share = 0.6", "never_idle_share = 0.6", "from 0 to 0.5"),
            ("bpf_switches_per_s_max = 10", "bpf_switches_per_s_max = 10", "from 1000 to"),
        ] {
            let params: GuestParams = toml::from_str(text).unwrap();
            let message = params.validate().unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(allowed), "{text}: {message}");
        }
    }
}
