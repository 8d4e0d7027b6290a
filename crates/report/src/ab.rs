//! `gleaner.ab/1`: two modes of one command, in interleaved pairs: every run, what the interval says, what it cost.

use crate::text::{self, count, duration};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `gleaner ab` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AbReport {
    /// `gleaner.ab/1`.
    pub schema: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The two modes: first what is compared with, then what is compared.
    pub modes: Vec<AbMode>,
    /// The retention profile of managed runs; `custom` for a time-out of the user's own.
    pub profile: String,
    /// What is compared; null for wall time.
    pub metric: Option<AbMetric>,
    /// Pairs asked for.
    pub pairs_planned: u64,
    /// Complete pairs.
    pub pairs: u64,
    /// Warm-up runs of each mode before the pairs; they are not in `runs`.
    pub warmups: u64,
    /// Decided who goes first in each pair.
    pub shuffle_seed: u64,
    /// Where.
    pub machine: AbMachine,
    /// Every run, in the order in which they ran.
    pub runs: Vec<AbRun>,
    /// How much better the second mode is; null when no pair has a ratio.
    pub speedup: Option<AbSpeedup>,
    /// `helps`, `hurts` or `no difference`.
    pub verdict: String,
    /// What kept a verdict from being given, other than the interval; null when nothing did.
    pub verdict_withheld: Option<String>,
    /// Where the interval is too wide to say anything (`no difference` would be taken for "equal"): about how many
    /// pairs would tell, if the median and the noise stay. Null where the verdict stands, or there is no interval.
    #[serde(default)]
    pub pairs_to_tell: Option<u64>,
    /// What the second mode cost.
    pub side_costs: AbSideCosts,
    /// Why there are fewer pairs than planned, when a run failed or somebody interrupted; else null.
    pub incomplete: Option<String>,
    /// What the reader should know about these numbers.
    pub notes: Vec<String>,
}

/// A mode and the medians over its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AbMode {
    /// A policy's name.
    pub mode: String,
    /// Its runs.
    pub runs: u64,
    /// Of those, outliers.
    pub outliers: u64,
    /// Medians; null when there is no run.
    pub median: Option<AbMedians>,
}

/// Medians over the runs of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AbMedians {
    /// From exec to exit.
    pub wall_ns: u64,
    /// The metric; null without one.
    pub metric: Option<f64>,
    /// CPU time of the command, and of Gleaner around it.
    pub cpu_time_ns: u64,
    /// Idle time bridged.
    pub retained_ns: u64,
    /// Stolen time of all vCPUs; null where the hypervisor has never reported any.
    pub steal_ns: Option<u64>,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary ones.
    pub involuntary_switches: u64,
    /// Mean number of vCPUs that the command was allowed.
    pub active_vcpus_mean: f64,
}

/// A figure read from the command's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AbMetric {
    /// What it is called.
    pub name: String,
    /// The regular expression whose group it is.
    pub regex: String,
    /// `lower` or `higher`.
    pub better: String,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AbMachine {
    /// Kernel release.
    pub kernel: String,
    /// vCPUs that the command might use.
    pub vcpus: u64,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AbRun {
    /// A policy's name.
    pub mode: String,
    /// Which pair, from 1.
    pub pair: u64,
    /// 1 or 2: whether it ran first or second in its pair.
    pub order: u64,
    /// From exec to exit.
    pub wall_ns: u64,
    /// The metric; null without one.
    pub metric: Option<f64>,
    /// CPU time of the command and its descendants, and of Gleaner around it, what retention takes included: yielding
    /// threads, or polling.
    pub cpu_time_ns: u64,
    /// Idle time bridged, summed over vCPUs.
    pub retained_ns: u64,
    /// Stolen time, summed over vCPUs; null where the hypervisor has never reported any.
    pub steal_ns: Option<u64>,
    /// Voluntary context switches, of whom `cpu_time_ns` is.
    pub voluntary_switches: u64,
    /// Involuntary ones; a yielding thread that makes room is one.
    pub involuntary_switches: u64,
    /// How often the contention guard stopped a yielding thread.
    pub guard_trips: u64,
    /// Mean number of vCPUs that the command was allowed.
    pub active_vcpus_mean: f64,
    /// As a shell would say it.
    pub exit_status: i32,
    /// Far from the other runs of its mode. It counts all the same.
    pub outlier: bool,
}

/// How much better the second mode is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AbSpeedup {
    /// Median of the pairs' ratios: above 1 the second mode is better.
    pub median: f64,
    /// 95 % interval; null for fewer than five pairs.
    pub ci95: Option<[f64; 2]>,
    /// Pairs that it rests on.
    pub pairs: u64,
}

/// The second mode's costs as ratios to the first's: medians over pairs; null where the first had none, or there is no
/// pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AbSideCosts {
    /// CPU time.
    pub cpu_time_ratio: Option<f64>,
    /// CPU time without what yielding threads spent on bridging idle time.
    pub cpu_time_less_retained_ratio: Option<f64>,
    /// Voluntary context switches.
    pub voluntary_switches_ratio: Option<f64>,
    /// Involuntary ones.
    pub involuntary_switches_ratio: Option<f64>,
    /// Idle time that the second mode bridged, median of its runs.
    pub retained_ns: Option<u64>,
    /// The same as a share of its runs' wall time and vCPUs.
    pub retained_ratio: Option<f64>,
}

/// Pairs printed in full; beyond that only those with an outlier.
const PRINTED: u64 = 20;

impl AbReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.ab/1";

    fn name(&self, which: usize) -> &str {
        self.modes.get(which).map_or("?", |mode| &mode.mode)
    }

    /// Wall time, or the metric.
    fn figure(&self, run: &AbRun) -> String {
        let figure = match self.metric {
            None => duration(Some(run.wall_ns)),
            Some(_) => run.metric.map_or_else(|| "-".to_owned(), number),
        };
        if run.outlier { format!("{figure}*") } else { figure }
    }

    fn run_of(&self, pair: u64, which: usize) -> Option<&AbRun> {
        self.runs.iter().find(|run| run.pair == pair && run.mode == self.name(which))
    }

    /// First/second, or second/first where more is better: above 1 the second mode is better.
    fn ratio(&self, first: &AbRun, second: &AbRun) -> Option<f64> {
        let (a, b) = match &self.metric {
            None => (first.wall_ns as f64, second.wall_ns as f64),
            Some(metric) if metric.better == "higher" => (second.metric?, first.metric?),
            Some(_) => (first.metric?, second.metric?),
        };
        (a > 0.0 && b > 0.0).then(|| a / b)
    }

    fn write_pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = text::table(&["pair", self.name(0), self.name(1), "speedup"]);
        let last = self.runs.iter().map(|run| run.pair).max().unwrap_or(0);
        for pair in 1..=last {
            let (first, second) = (self.run_of(pair, 0), self.run_of(pair, 1));
            let outlying = [first, second].into_iter().flatten().any(|run| run.outlier);
            if pair > PRINTED && !outlying {
                continue;
            }
            let figure = |run: Option<&AbRun>| run.map_or_else(|| "-".to_owned(), |run| self.figure(run));
            let ratio = first.zip(second).and_then(|(first, second)| self.ratio(first, second));
            let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
            table.add_row([pair.to_string(), figure(first), figure(second), ratio]);
        }
        writeln!(f, "{table}")?;
        if last > PRINTED {
            writeln!(f, "  of the pairs after {PRINTED}, only those with outliers are shown (--json has all)")?;
        }
        if self.runs.iter().any(|run| run.outlier) {
            writeln!(f, "  * an outlier: far from the other runs of its mode; it counts all the same")?;
        }
        Ok(())
    }

    fn write_medians(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let medians: Vec<&AbMedians> = self.modes.iter().filter_map(|mode| mode.median.as_ref()).collect();
        let [first, second] = medians[..] else { return Ok(()) };
        let costs = &self.side_costs;
        let over = format!("{}/{}", self.name(1), self.name(0));
        let mut table = text::table(&["median", self.name(0), self.name(1), &over]);
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let mut row = |what: &str, of: &dyn Fn(&AbMedians) -> String, over: Option<f64>| {
            table.add_row([what.to_owned(), of(first), of(second), ratio(over)]);
        };
        let time = |ns: u64| duration(Some(ns));
        let plain = |a: f64, b: f64| (a > 0.0).then(|| b / a);
        if let Some(metric) = &self.metric {
            let of = |m: &AbMedians| m.metric.map_or_else(|| "-".to_owned(), number);
            let over = first.metric.zip(second.metric).and_then(|(a, b)| plain(a, b));
            row(&format!("{} ({} is better)", metric.name, metric.better), &of, over);
        }
        row("wall time", &|m| time(m.wall_ns), plain(first.wall_ns as f64, second.wall_ns as f64));
        row("CPU time", &|m| time(m.cpu_time_ns), costs.cpu_time_ratio);
        let less = |m: &AbMedians| time(m.cpu_time_ns.saturating_sub(m.retained_ns));
        row("  less retained", &less, costs.cpu_time_less_retained_ratio);
        row("retained", &|m| time(m.retained_ns), None);
        row("steal", &|m| duration(m.steal_ns), None);
        row("voluntary switches", &|m| m.voluntary_switches.to_string(), costs.voluntary_switches_ratio);
        row("involuntary switches", &|m| m.involuntary_switches.to_string(), costs.involuntary_switches_ratio);
        row("active vCPUs", &|m| format!("{:.2}", m.active_vcpus_mean), None);
        writeln!(f, "{table}")
    }

    /// The verdict in a word: that of the JSON, or `inconclusive` where the interval says too little for it.
    pub fn told_verdict(&self) -> &str {
        let told = self.pairs_to_tell.is_none() && self.verdict_withheld.is_none();
        if told { &self.verdict } else { "inconclusive" }
    }

    /// The verdict with its interval, as the page has it too.
    pub(crate) fn verdict_sentence(&self) -> String {
        struct Sentence<'a>(&'a AbReport);
        impl fmt::Display for Sentence<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write_verdict(f)
            }
        }
        Sentence(self).to_string().trim_end().to_owned()
    }

    fn write_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = (self.name(0), self.name(1));
        let Some(speedup) = &self.speedup else {
            return writeln!(f, "No pair of runs could be compared: {}.", self.told_verdict());
        };
        let words = self.words();
        let change = words.change(speedup.median);
        let than = if change.ends_with(words.as_much) { "as" } else { "than" };
        write!(f, "{second} is {change} {than} {first}")?;
        if let Some([low, high]) = speedup.ci95 {
            write!(f, ", 95 % interval {}", words.interval(low, high))?;
        }
        let verdict = match self.told_verdict() {
            verdict @ ("helps" | "hurts") => format!("{second} {verdict}"),
            verdict => verdict.to_owned(),
        };
        match (&self.verdict_withheld, self.pairs_to_tell) {
            (Some(why), _) => writeln!(f, ": {verdict}, because {why}."),
            (None, Some(pairs)) => writeln!(f, ": {verdict}; about {pairs} pairs would tell."),
            (None, None) => writeln!(f, ": {verdict}."),
        }
    }

    fn words(&self) -> Words {
        if self.metric.is_some() {
            Words { up: "better", down: "worse", as_much: "as good" }
        } else {
            Words { up: "faster", down: "slower", as_much: "as fast" }
        }
    }
}

/// How a ratio is told.
#[derive(Clone, Copy)]
struct Words {
    up: &'static str,
    down: &'static str,
    as_much: &'static str,
}

impl Words {
    fn change(self, ratio: f64) -> String {
        let percent = format!("{:.1}", (ratio - 1.0).abs() * 100.0);
        match ratio {
            _ if percent == "0.0" => self.as_much.to_owned(),
            1.5.. | ..0.5 => format!("{ratio:.2} times {}", self.as_much),
            1.0.. => format!("{percent} % {}", self.up),
            _ => format!("{percent} % {}", self.down),
        }
    }

    fn interval(self, low: f64, high: f64) -> String {
        format!("{} to {}", self.change(low), self.change(high))
    }
}

/// Up to five significant digits.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        10_000.0.. => 0,
        1_000.0.. => 1,
        100.0.. => 2,
        10.0.. => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

impl fmt::Display for AbReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "gleaner ab: {}", self.command.join(" "))?;
        writeln!(
            f,
            "  {} of {} and {}, in random order within pairs, after {} of each",
            count(self.pairs, "pair"),
            self.name(0),
            self.name(1),
            count(self.warmups, "warm-up run"),
        )?;
        let vcpus = count(self.machine.vcpus, "vCPU");
        writeln!(f, "  Linux {}, {vcpus}, profile {}\n", self.machine.kernel, self.profile)?;
        if !self.runs.is_empty() {
            self.write_pairs(f)?;
            writeln!(f)?;
            self.write_medians(f)?;
            writeln!(f)?;
        }
        self.write_verdict(f)?;
        if let Some(why) = &self.incomplete {
            writeln!(f, "INCOMPLETE: {} of {} pairs: {why}.", self.pairs, self.pairs_planned)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "Note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_in_words() {
        let words = Words { up: "faster", down: "slower", as_much: "as fast" };
        for (ratio, text) in [
            (1.021, "2.1 % faster"),
            (0.997, "0.3 % slower"),
            (1.000_2, "as fast"),
            (2.6, "2.60 times as fast"),
            (0.1, "0.10 times as fast"),
            (0.6, "40.0 % slower"),
        ] {
            assert_eq!(words.change(ratio), text);
        }
        assert_eq!(words.interval(0.997, 1.045), "0.3 % slower to 4.5 % faster");
    }

    #[test]
    fn numbers_have_about_five_digits() {
        for (value, text) in [(12_345.6, "12346"), (1_234.56, "1234.6"), (123.456, "123.46"), (0.1234, "0.1234")] {
            assert_eq!(number(value), text);
        }
    }
}
