//! The parameters of the guest policy that users may set, with the paper's symbol, unit, default, range and where each
//! is from; and the numbers that only the simulator and tests set. All other numbers are constants beside what uses
//! them.
//!
//! Keys carry their unit, so a parameter file is plain numbers (`min_time_slice_us = 4000`). What is not given keeps
//! its default; an unknown key is refused by serde, a bad value by [`GuestParams::validate`], which names the range.

use crate::params::{ParamError, parameters};
use gleaner_model::Nanos;
use serde::{Deserialize, Serialize};

parameters! {
    /// The parameters of the guest policy (paper, sections 4 to 6; "ours" where the paper has none).
    pub struct GuestParams {
        ["Consolidation: section 5, conditions (1) and (2)"]
        /// rho, load factor, to start from: l_comp <= rho * (N-1) * l_idle. The paper's examples use 1.
        load_factor: f64 = 1.0, { FACTOR_MIN } to 1, "";
        /// eta, granularity factor, to start from: g_comp <= eta * l_idle.
        granularity_factor: f64 = 1.0, { FACTOR_MIN } to 1, "";
        /// min_time_slice: threads that compute longer than this are not consolidated. The paper says "a few
        /// milliseconds".
        min_time_slice_us: u64 = 4_000, 100 to 100_000, "us";
        /// Until a step has hurt, a step deactivates as many vCPUs as conditions (1) to (3) allow, with the work of k
        /// and the idle time of N-k (ours; the paper deactivates one at a time, and so does what follows a step that
        /// hurt).
        several_at_once: bool = true, any of "true or false", "";

        ["Threads that take turns: ours"]
        /// A group that uses more CPUs than this has threads that run side by side, and is not tried on one vCPU. 0:
        /// none is.
        turns_cpus_max: f64 = 1.3, 0 to 64, "CPUs";

        ["Retention: sections 4.1 and 6"]
        /// Whether time-outs follow the lengths of recent idle periods where the idle task polls (ours). `--retain-for`
        /// leaves it out.
        learn_timeouts: bool = true, any of "true or false", "";
        /// Whether retention is tried against none from time to time, and stopped where it does not pay (ours).
        /// `--no-trial` leaves it out.
        retention_trials: bool = true, any of "true or false", "";

        ["Contention guard: ours"]
        /// Spinning stops above this stolen share.
        steal_share_stop: f64 = 0.15, 0.001 to 1, "share";

        ["Which observer: ours"]
        /// BPF is left for `/proc` where the program switches more often per second, unless `--observer` says
        /// otherwise. BPF costs about 140 ns a switch, so this is 0.7 % of a vCPU; a yield storm would lose a fifth.
        bpf_switches_per_s_max: f64 = 50_000.0, 1_000 to 10_000_000, "per second";
        /// Where a daemon reads `/proc` because idle vCPUs poll, BPF takes its place once there are more threads than
        /// this. Reading a thread's files costs some microseconds a window; BPF costs by the switch.
        procfs_threads_max: u64 = 500, 1 to 1_000_000, "threads";
    }
    tuning: Tuning
}

/// What rho and eta never fall below, given or adapted: at 0 nothing could be told from "never", and multiplying would
/// end there.
pub(super) const FACTOR_MIN: f64 = 0.001;

/// Numbers that users have no reason to set. The simulator sets some to be as the paper describes its policy, and tests
/// set some to provoke a decision. A file has them in a table `[tuning]`. Nobody checks them: if they make no sense,
/// decisions are poor, never unsafe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Condition (3), ours: predicted utilization of the vCPUs that stay, N*u/(N-k), at most this. Above
    /// `saturated_utilization` steps are tried that may fill a vCPU, and stay where the program is no slower.
    pub predicted_utilization_max: f64,
    /// rho, eta and condition (3)'s limit are multiplied with this factor where threads compute for less time than
    /// waking a halted vCPU takes, until a step of one vCPU hurts (ours): there the wake-ups themselves are most of
    /// what fills the vCPUs, and on fewer of them there are fewer.
    pub fine_grained_allowance: f64,
    /// A window with fewer idle periods per second and active vCPU says nothing (ours).
    pub idle_periods_per_s_min: f64,
    /// Windows passed over after a step or a change, while threads spread.
    pub settle_windows: u32,
    /// Settled windows a step is judged over, by their median; also what "recent" means elsewhere.
    pub judge_windows: u32,
    /// Settled windows that must have been seen before a step is taken.
    pub baseline_windows_min: u32,
    /// Settled windows remembered as "before the step" and as the reference of the workload-change detector.
    pub baseline_windows_max: u32,
    /// A step hurt only if CPU time and hand-overs (voluntary switches, and preemptions by threads that were woken) per
    /// second both fell by more than this share; one that fills a vCPU stays unless hand-overs fell by it (ours:
    /// utilization cannot tell a vCPU that is full because it is fast from one that is overloaded).
    pub hurt_loss_min: f64,
    /// After this time such a step is taken back once, to see whether more vCPUs would be faster by now: nothing can be
    /// seen to grow on a full vCPU (ours).
    pub look_out_min_ms: u64,
    /// The first such look comes after this time where CPU time per second rose with the step by a tenth: the program
    /// may have grown just then (ours).
    pub look_out_doubtful_ms: u64,
    /// The time doubles up to this while the answer stays the same.
    pub look_out_max_ms: u64,
    /// The group's CPU seconds per second moved by more than this share (paper: 20 %).
    pub cpu_change_share: f64,
    /// A vCPU above this utilization in every recent window is saturated (paper: 90 %).
    pub saturated_utilization: f64,
    /// g_comp moved by this factor, up or down (paper: 2). Up, it is another workload where condition (2) does not hold
    /// any more; down, what was learnt is forgotten, and nothing is given back (ours).
    pub granularity_change_factor: f64,
    /// This many new threads in one window, where no window shortly before had nearly as many, is a burst (ours).
    pub thread_burst_min: u64,
    /// First hold-off of consolidation after a change or a step that hurt (ours).
    pub hold_off_min_ms: u64,
    /// The hold-off doubles up to this while they keep coming.
    pub hold_off_max_ms: u64,
    /// Whether a packed group gets all vCPUs back as soon as its threads wait for one, and not by the next window (the
    /// paper wishes for it, section 7.1).
    pub expand_at_once: bool,
    /// First nap of a yielding thread past its time-out, where nothing tells it that its vCPU is busy again.
    pub nap_min_us: u64,
    /// Naps double up to this.
    pub nap_max_us: u64,
    /// How long a yielding thread looks, after a nap, for a task that displaces it.
    pub nap_check_us: u64,
    /// Whether yielding threads retain only what a trial has shown to gain by it (ours): untried they may cost a third
    /// of the speed.
    pub yielding_waits_for_trial: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            predicted_utilization_max: 0.95,
            fine_grained_allowance: 1.25,
            idle_periods_per_s_min: 100.0,
            settle_windows: 3,
            judge_windows: 3,
            baseline_windows_min: 5,
            baseline_windows_max: 10,
            hurt_loss_min: 0.03,
            look_out_min_ms: 15_000,
            look_out_doubtful_ms: 1_000,
            look_out_max_ms: 240_000,
            cpu_change_share: 0.20,
            saturated_utilization: 0.90,
            granularity_change_factor: 2.0,
            thread_burst_min: 4,
            hold_off_min_ms: 1_000,
            hold_off_max_ms: 60_000,
            expand_at_once: true,
            nap_min_us: 50,
            nap_max_us: 10_000,
            nap_check_us: 50,
            yielding_waits_for_trial: true,
        }
    }
}

impl GuestParams {
    /// The key of the numbers that are no parameters of users.
    pub const TUNING: &str = "tuning";

    /// Checks every value.
    ///
    /// # Errors
    /// The first parameter out of range, with its key, its value and the range allowed.
    pub fn validate(&self) -> Result<(), ParamError> {
        self.out_of_range()
    }

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
        let read: GuestParams = toml::from_str("[tuning]\nsettle_windows = 0").unwrap();
        assert_eq!(
            read,
            GuestParams { tuning: Tuning { settle_windows: 0, ..Tuning::default() }, ..Default::default() }
        );
        let unknown = toml::from_str::<GuestParams>("load_facto = 0.5").unwrap_err().to_string();
        assert!(unknown.contains("load_facto"), "{unknown}");
    }

    #[test]
    fn a_bad_value_is_named_with_the_range_allowed() {
        for (text, key, allowed) in [
            ("load_factor = 0.0", "load_factor = 0", "from 0.001 to 1"),
            ("load_factor = nan", "load_factor = NaN", "from 0.001 to 1"),
            ("granularity_factor = 1.5", "granularity_factor = 1.5", "from 0.001 to 1"),
            ("min_time_slice_us = 20", "min_time_slice_us = 20", "from 100 to 100000"),
            ("steal_share_stop = 1.1", "steal_share_stop = 1.1", "from 0.001 to 1"),
            ("bpf_switches_per_s_max = 10", "bpf_switches_per_s_max = 10", "from 1000 to"),
        ] {
            let params: GuestParams = toml::from_str(text).unwrap();
            let message = params.validate().unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(allowed), "{text}: {message}");
        }
    }
}
