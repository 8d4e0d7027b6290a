//! `run`'s options, validated.

use crate::args::{DEFAULT_OVERHEAD, ObserverArg, PlacementArg, RetainArg, RunArgs};
use crate::failure::Failure;
use crate::joined::Asking;
use crate::params::read_params;
use gleaner_act::PlacementRequest;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Nanos, Policy, Profile};
use gleaner_observe::ObserverChoice;
use gleaner_runtime::Config;
use std::ffi::OsString;

/// What `run` is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is to run beside the program.
    pub config: Config,
    pub quiet: bool,
    pub command: Vec<OsString>,
    /// Whether a daemon is to do it.
    pub asking: Asking,
    /// Whether what Gleaner sees and decides is recorded.
    pub records: bool,
}

impl Options {
    pub fn from_args(args: RunArgs) -> Result<Self, Failure> {
        if Policy::from(args.policy) == Policy::Off && args.timer_slack.is_some() {
            return Err(Failure::input("--timer-slack does nothing under --policy off; take --policy observe"));
        }
        let mut params = args.config.as_deref().map_or_else(|| Ok(GuestParams::default()), read_params)?;
        if let Some(timeout) = args.retain_for {
            let us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
            params.timeout_unmeasured_balanced_us = us;
            params.timeout_min_us = params.timeout_min_us.min(us);
            params.timeout_max_us = params.timeout_max_us.max(us);
        }
        params.retention_trials &= !args.no_trial;
        let own = [
            (args.recording.capture.is_some(), "--capture"),
            (args.strict, "--strict"),
            (args.timer_slack.is_some(), "--timer-slack"),
            (args.retain != RetainArg::Auto, "--retain"),
            (args.observer != ObserverArg::Auto, "--observer"),
            (args.placement != PlacementArg::Auto, "--placement"),
            (args.overhead.to_bits() != DEFAULT_OVERHEAD.to_bits(), "--overhead"),
        ];
        let config = Config {
            name: crate::capture::name_of(&args.command),
            policy: args.policy.into(),
            retain: args.retain.into(),
            profile: if args.retain_for.is_some() { Profile::Balanced } else { args.profile.into() },
            timeout: args.retain_for.map(Nanos::from),
            budget: args.budget,
            progress: args.progress.clone(),
            costs: args.wakeup_costs,
            refused: Vec::new(),
            params,
            observer: match args.observer {
                ObserverArg::Auto => ObserverChoice::Auto,
                ObserverArg::Bpf => ObserverChoice::Bpf,
                ObserverArg::Procfs => ObserverChoice::Procfs,
            },
            placement: match args.placement {
                PlacementArg::Auto => PlacementRequest::Auto,
                PlacementArg::Cpuset => PlacementRequest::Cpuset,
                PlacementArg::Affinity => PlacementRequest::Affinity,
            },
            groups_max: 1,
            timer_slack: args.timer_slack.map(Nanos::from),
            overhead_ratio: args.overhead / 100.0,
            strict: args.strict,
            dry_run: false,
        };
        let asking = Asking::new(args.daemon, &own);
        let records = args.recording.capture.is_some();
        Ok(Self { config, quiet: crate::output::quiet(), command: args.command, asking, records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn read(text: &str) -> Result<GuestParams, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.toml");
        fs::write(&path, text).unwrap();
        read_params(&path).map_err(|failure| {
            assert_eq!(failure.status, 2);
            failure.message
        })
    }

    #[test]
    fn a_policy_file_changes_what_it_names() {
        let params = read("# mine\nload_factor = 0.5\n").unwrap();
        assert_eq!(params, GuestParams { load_factor: 0.5, ..GuestParams::default() });
    }

    #[test]
    fn a_bad_value_is_named_with_its_line() {
        let out_of_range = read("min_time_slice_us = 4000\nload_factor = 7.5\n").unwrap_err();
        assert!(out_of_range.contains("policy.toml:2") && out_of_range.contains("load_factor"), "{out_of_range}");
        let unknown = read("lod_factor = 0.5\n").unwrap_err();
        assert!(unknown.contains("policy.toml:1: unknown key lod_factor: did you mean load_factor?"), "{unknown}");
        let no_number = read("\nload_factor = \"much\"\n").unwrap_err();
        assert!(no_number.contains("line 2"), "{no_number}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let failure = read_params::<GuestParams>(Path::new("/no/such/policy.toml")).unwrap_err();
        assert_eq!(failure.status, 2);
        assert!(failure.message.contains("/no/such/policy.toml"), "{}", failure.message);
    }
}
