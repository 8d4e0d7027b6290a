//! `host run`'s options, validated.

use super::{PolicyArg, RunArgs};
use crate::failure::Failure;
use crate::params::read_params;
use gleaner_act::{refuse_slice, switch_cost};
use gleaner_decide::host::{HostParams, SlicePolicy};
use gleaner_model::{Nanos, SwitchPrice};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `host run` is to do.
#[derive(Debug)]
pub struct Options {
    pub policy: SlicePolicy,
    pub params: HostParams,
    pub price: SwitchPrice,
    /// Where the price is from, in words.
    pub price_from: &'static str,
    pub vms: Vec<String>,
    /// QEMU monitors to ask.
    pub qmp: Vec<PathBuf>,
    pub length: Option<Duration>,
    pub interval: Duration,
    pub enforce: bool,
    /// Whether exits by PAUSE are to be counted.
    pub pause_exits: bool,
    /// What is weaker than was asked for.
    pub warnings: Vec<String>,
}

/// Windows are at least this long, and at most.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// Policy static's, where none is named.
pub const DEFAULT_SLICE: Duration = Duration::from_millis(1);

impl Options {
    pub fn from_args(args: &RunArgs) -> Result<Self, Failure> {
        let policy = match (args.policy, args.slice) {
            (Some(PolicyArg::Adaptive), Some(_)) => {
                return Err(Failure::input(
                    "--slice is the slice of policy static; policy adaptive finds its own (start_slice_us in --config)",
                ));
            }
            (Some(PolicyArg::Adaptive) | None, None) => SlicePolicy::Adaptive,
            (_, slice) => SlicePolicy::Static(Nanos::from(slice.unwrap_or(DEFAULT_SLICE))),
        };
        if !INTERVALS.contains(&args.interval) {
            return Err(Failure::input("--interval must be within 100ms and 60s"));
        }
        let mut params = args.config.as_deref().map_or_else(|| Ok(HostParams::default()), read_params)?;
        let switch = switch_cost();
        let mut warnings = Vec::new();
        refuse(policy, &mut params, switch, !args.no_enforce, &mut warnings)?;
        let unmeasured = params.unmeasured_price();
        Ok(Self {
            policy,
            price: SwitchPrice { direct: switch.unwrap_or(unmeasured.direct), ..unmeasured },
            price_from: if switch.is_some() { "switch measured, refill as configured" } else { "as configured" },
            params,
            vms: args.vm.clone(),
            qmp: args.qmp.clone(),
            length: args.length,
            interval: args.interval,
            enforce: !args.no_enforce,
            pause_exits: args.pause_exits,
            warnings,
        })
    }
}

/// Refuses a static slice that would starve the machine; takes such slices off `adaptive`'s ladder.
fn refuse(
    policy: SlicePolicy,
    params: &mut HostParams,
    switch: Option<Nanos>,
    enforce: bool,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    let refused = |slice| refuse_slice(slice, enforce, switch, Path::new("/proc"));
    if let SlicePolicy::Static(slice) = policy {
        return refused(slice).map_err(|refusal| Failure::input(format!("--slice: {refusal}")));
    }
    let possible = params.ladder_us.iter().map(|us| refused(Nanos::from_micros(*us)));
    let outcomes: Vec<_> = possible.collect();
    let kept = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
    if let Some(Err(refusal)) = outcomes.get(kept) {
        if kept < 2 {
            return Err(Failure::work(refusal));
        }
        warnings.push(format!("no slices shorter than {}: {refusal}", Nanos::from_micros(params.ladder_us[kept - 1])));
        params.ladder_us.truncate(kept);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_ladder_ends_before_what_is_refused() {
        let mut params = HostParams::default();
        let mut warnings = Vec::new();
        let switch = Some(Nanos::from_micros(60));
        refuse(SlicePolicy::Adaptive, &mut params, switch, false, &mut warnings).unwrap();
        assert_eq!(params.ladder_us, [30_000, 10_000, 5_000, 1_000, 500]);
        assert!(warnings[0].contains("no slices shorter than 500us") && warnings[0].contains("switch"), "{warnings:?}");
        let slow = Some(Nanos::from_millis(20));
        let refused = refuse(SlicePolicy::Adaptive, &mut params, slow, false, &mut warnings).unwrap_err();
        assert_eq!(refused.status, 1);
    }

    #[test]
    fn a_static_slice_out_of_range_is_bad_input() {
        for us in [10, 200_000] {
            let policy = SlicePolicy::Static(Nanos::from_micros(us));
            let refused = refuse(policy, &mut HostParams::default(), None, false, &mut Vec::new()).unwrap_err();
            assert_eq!(refused.status, 2);
            assert!(refused.message.contains("--slice") && refused.message.contains("100us"), "{}", refused.message);
        }
    }

    #[test]
    fn a_bad_parameter_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.toml");
        fs::write(&path, "# mine\nladder_us = [1000]\n").unwrap();
        let failure = read_params::<HostParams>(&path).unwrap_err();
        assert_eq!(failure.status, 2);
        assert!(failure.message.contains("host.toml:2") && failure.message.contains("2 to 16"), "{}", failure.message);
    }
}
