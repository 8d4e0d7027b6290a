//! `ab`'s options, validated.

use super::args::AbArgs;
use gleaner_command::args::PolicyArg;
use gleaner_command::failure::Failure;
use gleaner_decide::guest::GuestParams;
use gleaner_model::Policy;
use gleaner_settings::word;
use regex_lite::Regex;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// What is to be compared, and how.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct Plan {
    /// First what the others are compared with.
    pub modes: Vec<Mode>,
    pub pairs: u64,
    pub warmups: u64,
    pub metric: Option<Metric>,
    pub seed: u64,
    pub max_time: Option<Duration>,
    /// Shell scripts around the runs.
    pub scripts: Scripts,
    /// Whether a run counts whatever its status is.
    pub ignore_failure: bool,
    pub show_output: bool,
    /// Where our own stdout is for the JSON alone.
    pub stdout_taken: bool,
    /// As the result names it.
    pub profile: String,
    /// Options of every run.
    pub run_options: Vec<OsString>,
    pub command: Vec<OsString>,
}

/// A mode: a policy of `gleaner run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// In the result; unlike the others'.
    pub name: String,
    /// The policy's word.
    pub word: String,
    pub policy: Policy,
}

/// What is run around CMD, and not measured.
#[derive(Clone, Debug, Default)]
pub struct Scripts {
    /// Before everything else.
    pub setup: Option<String>,
    /// Before each run.
    pub prepare: Option<String>,
    /// At the end.
    pub cleanup: Option<String>,
}

/// A figure in the command's output.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    pub regex: Regex,
    pub higher_is_better: bool,
}

impl Plan {
    pub fn from_args(args: &AbArgs) -> Result<Self, Failure> {
        let modes = modes(&args.modes)?;
        // What is wrong with them is said before the first run.
        args.params.read::<GuestParams>()?;
        let (own_timeout, profile) = (args.group.retain_for.is_some(), args.group.profile());
        Ok(Self {
            modes,
            pairs: args.pairs,
            warmups: args.warmup,
            metric: metric(args)?,
            // The seed of a hash table is the system's own chance.
            seed: args.shuffle_seed.unwrap_or_else(|| RandomState::new().hash_one(0) >> 32),
            max_time: args.max_time,
            scripts: Scripts {
                setup: args.setup.clone(),
                prepare: args.prepare.clone(),
                cleanup: args.cleanup.clone(),
            },
            ignore_failure: args.ignore_failure,
            show_output: args.show_output,
            stdout_taken: args.json.json.as_ref().is_some_and(|path| path.as_os_str() == "-"),
            profile: if own_timeout { "custom".to_owned() } else { word(&profile) },
            run_options: run_options(args),
            command: args.command.clone(),
        })
    }
}

impl Plan {
    /// All modes but the first.
    pub fn others(&self) -> impl Iterator<Item = &Mode> {
        self.modes.iter().skip(1)
    }
}

/// Compared at once: a round of more takes too long to be one.
const MODES_MAX: usize = 6;

fn modes(wanted: &[PolicyArg]) -> Result<Vec<Mode>, Failure> {
    let words: Vec<String> = wanted.iter().map(word).collect();
    if !(2..=MODES_MAX).contains(&wanted.len()) {
        return Err(Failure::input(format!(
            "--modes {}: two to {MODES_MAX} modes are compared, such as off,full",
            words.join(",")
        )));
    }
    let mode = |(place, arg): (usize, &PolicyArg)| {
        let word = word(arg);
        let before = wanted[..place].iter().filter(|other| *other == arg).count();
        let name = if before == 0 { word.clone() } else { format!("{word}-{}", before + 1) };
        Mode { name, word, policy: (*arg).into() }
    };
    Ok(wanted.iter().enumerate().map(mode).collect())
}

fn metric(args: &AbArgs) -> Result<Option<Metric>, Failure> {
    let Some(pattern) = &args.metric else { return Ok(None) };
    if args.lower_is_better == args.higher_is_better {
        return Err(Failure::input("--metric: say whether --higher-is-better or --lower-is-better"));
    }
    let regex = Regex::new(pattern).map_err(|error| Failure::input(format!("--metric {pattern}: {error}")))?;
    if regex.captures_len() != 2 {
        return Err(Failure::input(format!(
            "--metric {pattern}: it has {} groups; put the number, and nothing else, in ( ), and other groups in (?: )",
            regex.captures_len() - 1
        )));
    }
    let name = args.metric_name.clone().unwrap_or_else(|| "metric".to_owned());
    Ok(Some(Metric { name, regex, higher_is_better: args.higher_is_better }))
}

fn run_options(args: &AbArgs) -> Vec<OsString> {
    let mut options: Vec<OsString> = vec!["--quiet".into()];
    options.extend(args.group.options());
    if let Some(config) = &args.params.config {
        options.extend(["--config".into(), config.into()]);
    }
    options
}
