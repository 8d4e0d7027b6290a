//! `ab`'s part of the command line.

use clap::{Args, ValueEnum};
use gleaner_command::args::{JsonArg, PolicyArg, any_duration};
use gleaner_command::params::ParamsArg;
use gleaner_settings::GroupSettings;
use gleaner_stats::Verdict;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner ab [OPTIONS] -- CMD [ARG]...",
    after_help = "Who goes first in a pair is random. Outliers are shown and kept. CMD reads nothing (/dev/null); `ab` \
                  searches its output for the metric and drops the rest.\n\n\
                  Verdicts, by the 95 % interval of the speedup:\n\
                  \x20 helps, hurts   the whole interval is on one side of 1\n\
                  \x20 no difference  it holds 1, and nothing beyond 10 % either way\n\
                  \x20 inconclusive   it holds 1 and more, or there are fewer than five pairs\n\n\
                  CMD has to do the same work in every run: `make` without -B has nothing left to do after the \
                  first.\n\n\
                  Exit status: 0 compared, whatever the verdict; 3 compared, and it came out as --fail-if names; CMD's \
                  own when it fails, and then the comparison stops; 128+n after signal n; 125 when Gleaner failed, 126 \
                  not executable, 127 not found.\n\n\
                  Examples:\n\
                  \x20 gleaner ab -- make -B -j8\n\
                  \x20 gleaner ab -n 20 --modes retain,full --json ab.json -- ./simulate\n\
                  \x20 gleaner ab --fail-if hurts -- ./bench             # status 3 if Gleaner makes it slower\n\
                  \x20 gleaner ab --prepare 'make clean' --modes off,retain,full -- make -j8\n\
                  \x20 gleaner ab --metric 'transactions: .*\\(([0-9.]+) per sec' --higher-is-better -- sysbench ... \
                  run"
)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct AbArgs {
    /// Pairs of runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub pairs: u64,
    /// The policies that are compared: what the others are measured against comes first; the same one twice shows what
    /// noise alone says
    #[arg(long, value_name = "A,B[,C]...", value_enum, value_delimiter = ',', default_value = "off,full")]
    pub modes: Vec<PolicyArg>,
    /// Runs of each mode before the first pair, which are not counted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub warmup: u64,
    #[command(flatten)]
    pub group: GroupSettings,
    #[command(flatten)]
    pub params: ParamsArg,
    /// Compare a number in CMD's output instead of the wall time: the one group of this regular expression, in the last
    /// line that matches
    #[arg(long, value_name = "REGEX")]
    pub metric: Option<String>,
    /// What the metric is called in the result
    #[arg(long, value_name = "NAME", requires = "metric")]
    pub metric_name: Option<String>,
    /// A smaller metric is better (a latency)
    #[arg(long, requires = "metric", conflicts_with = "higher_is_better")]
    pub lower_is_better: bool,
    /// A larger metric is better (transactions per second)
    #[arg(long, requires = "metric")]
    pub higher_is_better: bool,
    /// Decides who goes first in each pair; else chance does
    #[arg(long, value_name = "N")]
    pub shuffle_seed: Option<u64>,
    /// Begin no pair, except the first, that would not be done by this time; warming up counts (e.g. 90s, 10m)
    #[arg(long, value_name = "DURATION", value_parser = any_duration)]
    pub max_time: Option<Duration>,
    /// End with status 3 if this came out
    #[arg(long, value_name = "VERDICT", value_enum)]
    pub fail_if: Option<FailIf>,
    /// Run this before each run of CMD, warm-ups too; a shell reads it, and it is not measured
    #[arg(long, value_name = "SCRIPT")]
    pub prepare: Option<String>,
    /// Run this once, before everything else
    #[arg(long, value_name = "SCRIPT")]
    pub setup: Option<String>,
    /// Run this once at the end, also when CMD failed
    #[arg(long, value_name = "SCRIPT")]
    pub cleanup: Option<String>,
    /// Count runs of CMD that end with another status than 0
    #[arg(long)]
    pub ignore_failure: bool,
    /// Write every run as CSV
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// Write the result as a table in Markdown
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<PathBuf>,
    /// Show what CMD prints
    #[arg(long)]
    pub show_output: bool,
    #[command(flatten)]
    pub json: JsonArg,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// What a comparison may not come out as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailIf {
    /// The second mode is worse
    Hurts,
    /// It is not shown to be better: it hurts, there is no difference, or these pairs cannot tell
    NoGain,
}

impl FailIf {
    /// Whether a verdict is one of those.
    pub fn names(self, verdict: &str) -> bool {
        match self {
            Self::Hurts => verdict == Verdict::Hurts.name(),
            Self::NoGain => verdict != Verdict::Helps.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_failure_is_the_callers_choice() {
        for (verdict, hurts, no_gain) in
            [(Verdict::Helps, false, false), (Verdict::NoDifference, false, true), (Verdict::Hurts, true, true)]
        {
            let of = |fail_if: FailIf| fail_if.names(verdict.name());
            assert_eq!((of(FailIf::Hurts), of(FailIf::NoGain)), (hurts, no_gain), "{verdict:?}");
        }
    }
}
