//! `run`'s options, validated.

use super::args::RunArgs;
use crate::joined::Asking;
use gleaner_command::failure::Failure;
use gleaner_model::Policy;
use gleaner_runtime::Config;
use gleaner_settings::{MachineSettings, Profile};
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
        let RunArgs { mut group, machine, .. } = args;
        let policy = match (args.policy, group.profile()) {
            (Some(policy), _) => policy.into(),
            (None, Profile::ObserveOnly) => Policy::Observe,
            (None, _) => Policy::Full,
        };
        let usual = MachineSettings::default();
        let own = [
            (args.recording.capture.is_some(), "--capture"),
            (args.strict, "--strict"),
            (machine.retain() != usual.retain(), "--retain"),
            (machine.observer() != usual.observer(), "--observer"),
            (machine.overhead_ratio().to_bits() != usual.overhead_ratio().to_bits(), "--overhead"),
        ];
        group.params = args.params.read()?;
        group.policy = Some(policy);
        let config = Config {
            retain: machine.retain(),
            observer: machine.observer(),
            overhead_ratio: machine.overhead_ratio(),
            strict: args.strict,
            ..Config::of(crate::capture::name_of(&args.command), group)
        };
        let asking = Asking::new(args.daemon, &own);
        let records = args.recording.capture.is_some();
        Ok(Self { config, quiet: gleaner_command::output::quiet(), command: args.command, asking, records })
    }
}

#[cfg(test)]
mod tests {
    use gleaner_command::params::read_params;
    use gleaner_decide::guest::GuestParams;
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
