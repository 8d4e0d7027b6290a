//! `host run`'s options, validated.

use super::args::{InTurnArgs, RunArgs};
use crate::host::shared::takes_ticker;
use gleaner_act::{SliceRefusal, refuse_slice, switch_cost};
use gleaner_command::failure::Failure;
use gleaner_command::params::read_params;
use gleaner_decide::host::{HostParams, SlicePolicy};
use gleaner_model::{Nanos, SwitchPrice};
use gleaner_settings::HostSlice;
use std::path::Path;
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
    /// Threads of no VM; then no VM is meant.
    pub tids: Vec<i32>,
    pub length: Option<Duration>,
    pub interval: Duration,
    pub enforce: bool,
    /// Whether exits by PAUSE are to be counted.
    pub pause_exits: bool,
    /// Slices for all that the policy takes turns with.
    pub in_turn: Option<TurnOptions>,
    /// Whether how things stand is told after each window.
    pub status: bool,
    /// What is weaker than was asked for.
    pub warnings: Vec<String>,
}

/// What takes turns, and for how long.
#[derive(Clone, Debug)]
pub struct TurnOptions {
    /// Slices for all; the policy comes on top.
    pub slices: Vec<Nanos>,
    /// What counts of a turn.
    pub length: Duration,
    /// How long the policy has all to itself at first.
    pub lead: Duration,
    /// Passes, then the agent ends; `None`: until it is told to.
    pub passes: Option<u32>,
    /// Of the order.
    pub seed: u64,
}

/// A window's length where none is given; with `--in-turn`.
const INTERVAL: Duration = Duration::from_secs(1);
const INTERVAL_IN_TURN: Duration = Duration::from_millis(200);
/// With `--in-turn`: a turn begins and ends with a window.
const LONGEST_WINDOW_OF_TURN: Duration = Duration::from_millis(400);

impl Options {
    pub fn from_args(args: &RunArgs) -> Result<Self, Failure> {
        let policy = match args.settings.slice() {
            HostSlice::Adaptive => SlicePolicy::Adaptive,
            HostSlice::Fixed(slice) => SlicePolicy::Static(Nanos::from(slice)),
        };
        let usual = if args.compare.in_turn.is_empty() { INTERVAL } else { INTERVAL_IN_TURN };
        let interval = args.settings.interval.as_ref().map_or(usual, |interval| interval.0);
        let mut params = args.tuning.config.as_deref().map_or_else(|| Ok(HostParams::default()), read_params)?;
        let switch = switch_cost();
        let mut warnings = Vec::new();
        let (enforce, takes_ticker) = (args.settings.enforce != Some(false), takes_ticker());
        let refused = |slice| refuse_slice(slice, enforce && takes_ticker(slice), switch, Path::new("/proc"));
        refuse(policy, &mut params, refused, &mut warnings)?;
        let in_turn = in_turn(&args.compare, interval, policy, refused)?;
        let unmeasured = params.unmeasured_price();
        Ok(Self {
            policy,
            price: SwitchPrice { direct: switch.unwrap_or(unmeasured.direct), ..unmeasured },
            price_from: if switch.is_some() { "switch measured, refill as configured" } else { "as configured" },
            params,
            vms: args.vm.clone(),
            tids: args.tid.clone(),
            length: args.length,
            interval,
            enforce,
            pause_exits: args.settings.pause_exits == Some(true),
            in_turn,
            status: args.status,
            warnings,
        })
    }
}

impl Options {
    /// As reports have it.
    pub fn policy_name(&self) -> &'static str {
        match self.policy {
            SlicePolicy::Static(_) => "static",
            SlicePolicy::Adaptive => "adaptive",
        }
    }
}

/// Refuses a static slice that would starve the machine; takes such slices off `adaptive`'s ladder.
fn refuse(
    policy: SlicePolicy,
    params: &mut HostParams,
    refused: impl Fn(Nanos) -> Result<(), SliceRefusal>,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
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

/// What `--in-turn` asks for.
fn in_turn(
    args: &InTurnArgs,
    interval: Duration,
    policy: SlicePolicy,
    refused: impl Fn(Nanos) -> Result<(), SliceRefusal>,
) -> Result<Option<TurnOptions>, Failure> {
    let wrong = |what: String| Err(Failure::input(format!("--in-turn: {what}")));
    let mut slices = Vec::new();
    for slice in args.in_turn.iter().copied().map(Nanos::from) {
        if let Err(refusal) = refused(slice) {
            return wrong(refusal.to_string());
        }
        if slices.contains(&slice) || policy == SlicePolicy::Static(slice) {
            return wrong(format!("{slice} is there twice"));
        }
        slices.push(slice);
    }
    if slices.is_empty() {
        return Ok(None);
    }
    // The first and the last part of a turn are windows.
    if interval > args.turn || interval > LONGEST_WINDOW_OF_TURN {
        let turn = humantime::format_duration(args.turn.min(LONGEST_WINDOW_OF_TURN));
        return wrong(format!("windows must be shorter than turns: --interval {turn} or less, such as 200ms"));
    }
    let seed = fastrand::u64(..);
    Ok(Some(TurnOptions { slices, length: args.turn, lead: args.lead, passes: args.passes, seed }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_ladder_ends_before_what_is_refused() {
        let mut params = HostParams::default();
        let mut warnings = Vec::new();
        let by_switch = |us| move |slice| refuse_slice(slice, false, Some(Nanos::from_micros(us)), Path::new("/proc"));
        refuse(SlicePolicy::Adaptive, &mut params, by_switch(60), &mut warnings).unwrap();
        assert_eq!(params.ladder_us, [30_000, 10_000, 5_000, 1_000, 500]);
        assert!(warnings[0].contains("no slices shorter than 500us") && warnings[0].contains("switch"), "{warnings:?}");
        let refused = refuse(SlicePolicy::Adaptive, &mut params, by_switch(20_000), &mut warnings).unwrap_err();
        assert_eq!(refused.status, 1);
    }

    #[test]
    fn without_throttling_the_ladder_keeps_what_the_kernel_ends_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sys/kernel");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("sched_rt_runtime_us"), "1000000").unwrap();
        fs::write(folder.join("sched_rt_period_us"), "1000000").unwrap();
        let all = HostParams::default().ladder_us;
        // From this slice on the kernel needs no help, with HRTICK, the tick at HZ=1000, and nothing.
        for (by_kernel_us, kept) in [(0, Some(all.len())), (10_000, Some(2)), (u64::MAX / 1000, None)] {
            let (mut params, mut warnings) = (HostParams::default(), Vec::new());
            let takes_ticker = |slice| slice < Nanos::from_micros(by_kernel_us);
            let refused = |slice| refuse_slice(slice, takes_ticker(slice), None, dir.path());
            let outcome = refuse(SlicePolicy::Adaptive, &mut params, refused, &mut warnings);
            assert_eq!(outcome.is_ok().then_some(params.ladder_us.len()), kept, "{outcome:?}");
            let said = warnings.join("") + &outcome.err().map(|failure| failure.message).unwrap_or_default();
            assert_eq!(said.contains("real-time throttling is off"), kept != Some(all.len()), "{said}");
            let fixed = refuse(SlicePolicy::Static(Nanos::from_millis(5)), &mut params, refused, &mut Vec::new());
            assert_eq!(fixed.is_ok(), kept == Some(all.len()), "{fixed:?}");
        }
    }

    #[test]
    fn a_static_slice_out_of_range_is_bad_input() {
        for us in [10, 200_000] {
            let policy = SlicePolicy::Static(Nanos::from_micros(us));
            let in_range = |slice| refuse_slice(slice, false, None, Path::new("/proc"));
            let refused = refuse(policy, &mut HostParams::default(), in_range, &mut Vec::new()).unwrap_err();
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
