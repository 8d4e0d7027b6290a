//! `gleaner.ab/1` in words, as CSV and as a table in Markdown.

use super::{AbComparison, AbMedians, AbMode, AbReport, AbRun};
use crate::text::{self, count, duration};
use std::fmt::{self, Write};

/// Pairs printed in full; beyond that only those with an outlier.
const PRINTED: u64 = 20;

/// The verdict in a word: that of the JSON, or `inconclusive` where the interval says too little for it.
fn told<'a>(verdict: &'a str, withheld: Option<&String>, pairs_to_tell: Option<u64>) -> &'a str {
    if withheld.is_none() && pairs_to_tell.is_none() { verdict } else { "inconclusive" }
}

impl AbComparison {
    /// The verdict as it is told.
    pub fn told_verdict(&self) -> &str {
        told(&self.verdict, self.verdict_withheld.as_ref(), self.pairs_to_tell)
    }
}

impl AbReport {
    /// The schema's name.
    pub const SCHEMA: &'static str = "gleaner.ab/1";

    pub(crate) fn name(&self, which: usize) -> &str {
        self.modes.get(which).map_or("?", |mode| &mode.mode)
    }

    /// Each mode after the first, against the first.
    pub fn comparisons(&self) -> Vec<AbComparison> {
        let second = AbComparison {
            mode: self.name(1).to_owned(),
            speedup: self.speedup,
            verdict: self.verdict.clone(),
            verdict_withheld: self.verdict_withheld.clone(),
            pairs_to_tell: self.pairs_to_tell,
            side_costs: self.side_costs,
        };
        std::iter::once(second).chain(self.further.iter().cloned()).collect()
    }

    /// The verdict of each.
    pub fn verdicts(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.verdict.as_str()).chain(self.further.iter().map(|of| of.verdict.as_str()))
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

    /// First/other, or other/first where more is better: above 1 the other mode is better.
    fn ratio(&self, first: &AbRun, other: &AbRun) -> Option<f64> {
        let (a, b) = match &self.metric {
            None => (first.wall_ns as f64, other.wall_ns as f64),
            Some(metric) if metric.better == "higher" => (other.metric?, first.metric?),
            Some(_) => (first.metric?, other.metric?),
        };
        (a > 0.0 && b > 0.0).then(|| a / b)
    }

    /// What a column of ratios is called, of one mode or of several.
    fn ratio_name(&self, which: usize) -> String {
        if self.modes.len() > 2 { format!("speedup of {}", self.name(which)) } else { "speedup".to_owned() }
    }

    fn write_pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = self.modes.len().max(2);
        let names = (0..modes).map(|which| self.name(which).to_owned());
        let header: Vec<String> = names.chain((1..modes).map(|which| self.ratio_name(which))).collect();
        let header: Vec<&str> = std::iter::once("pair").chain(header.iter().map(String::as_str)).collect();
        let mut table = text::table(&header);
        let last = self.runs.iter().map(|run| run.pair).max().unwrap_or(0);
        for pair in 1..=last {
            let runs: Vec<Option<&AbRun>> = (0..modes).map(|which| self.run_of(pair, which)).collect();
            let outlying = runs.iter().flatten().any(|run| run.outlier);
            if pair > PRINTED && !outlying {
                continue;
            }
            let figure = |run: Option<&AbRun>| run.map_or_else(|| "-".to_owned(), |run| self.figure(run));
            let ratio = |other: Option<&AbRun>| {
                let ratio = runs[0].zip(other).and_then(|(first, other)| self.ratio(first, other));
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"))
            };
            let cells = runs.iter().copied().map(figure).chain(runs[1..].iter().copied().map(ratio));
            table.add_row(std::iter::once(pair.to_string()).chain(cells));
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
        if medians.len() < self.modes.len().max(2) {
            return Ok(());
        }
        let comparisons = self.comparisons();
        let over: Vec<String> = comparisons.iter().map(|of| format!("{}/{}", of.mode, self.name(0))).collect();
        let names = self.modes.iter().map(|mode| mode.mode.as_str()).chain(over.iter().map(String::as_str));
        let mut table = text::table(&std::iter::once("median").chain(names).collect::<Vec<&str>>());
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        // `over`: of the mode at this place.
        let mut row = |what: &str, of: &dyn Fn(&AbMedians) -> String, over: &dyn Fn(usize) -> Option<f64>| {
            let figures = medians.iter().map(|median| of(median));
            let ratios = (1..medians.len()).map(|which| ratio(over(which)));
            table.add_row(std::iter::once(what.to_owned()).chain(figures).chain(ratios));
        };
        let time = |ns: u64| duration(Some(ns));
        let plain = |of: &dyn Fn(&AbMedians) -> Option<f64>, which: usize| {
            let (a, b) = (of(medians[0])?, of(medians[which])?);
            (a > 0.0).then(|| b / a)
        };
        let cost = |which: usize| &comparisons[which - 1].side_costs;
        if let Some(metric) = &self.metric {
            let of = |m: &AbMedians| m.metric.map_or_else(|| "-".to_owned(), number);
            let what = format!("{} ({} is better)", metric.name, metric.better);
            row(&what, &of, &|which| plain(&|m| m.metric, which));
        }
        row("wall time", &|m| time(m.wall_ns), &|which| plain(&|m| Some(m.wall_ns as f64), which));
        row("CPU time", &|m| time(m.cpu_time_ns), &|which| cost(which).cpu_time_ratio);
        let less = |m: &AbMedians| time(m.cpu_time_ns.saturating_sub(m.retained_ns));
        row("  less retained", &less, &|which| cost(which).cpu_time_less_retained_ratio);
        row("retained", &|m| time(m.retained_ns), &|_| None);
        row("steal", &|m| duration(m.steal_ns), &|_| None);
        let voluntary = |m: &AbMedians| m.voluntary_switches.to_string();
        row("voluntary switches", &voluntary, &|which| cost(which).voluntary_switches_ratio);
        let involuntary = |m: &AbMedians| m.involuntary_switches.to_string();
        row("involuntary switches", &involuntary, &|which| cost(which).involuntary_switches_ratio);
        row("active vCPUs", &|m| format!("{:.2}", m.active_vcpus_mean), &|_| None);
        writeln!(f, "{table}")?;
        let what = self.metric.as_ref().map_or("wall time", |metric| &metric.name);
        let spreads: Vec<String> = self
            .modes
            .iter()
            .filter_map(|mode| Some((mode, self.mean(mode)?)))
            .map(|(mode, mean)| format!("{} {mean}", mode.mode))
            .collect();
        if spreads.is_empty() {
            Ok(())
        } else {
            writeln!(f, "  mean {what}, with its standard deviation: {}", spreads.join(", "))
        }
    }

    /// Mean and deviation of what is compared.
    fn mean(&self, mode: &AbMode) -> Option<String> {
        let spread = mode.spread?;
        let (mean, deviation) = if self.metric.is_some() {
            (number(spread.metric_mean?), spread.metric_deviation.map(number))
        } else {
            (duration(Some(spread.wall_ns_mean)), spread.wall_deviation_ns.map(|ns| duration(Some(ns))))
        };
        Some(deviation.map_or(mean.clone(), |deviation| format!("{mean} ± {deviation}")))
    }

    /// The second mode's verdict as it is told.
    pub fn told_verdict(&self) -> &str {
        told(&self.verdict, self.verdict_withheld.as_ref(), self.pairs_to_tell)
    }

    /// A verdict with its interval, as the page has it too.
    pub(crate) fn verdict_sentence(&self, of: &AbComparison) -> String {
        let (first, other) = (self.name(0), &of.mode);
        let Some(speedup) = &of.speedup else {
            return format!("No pair of runs could be compared: {}.", of.told_verdict());
        };
        let words = self.words();
        let change = words.change(speedup.median);
        let than = if change.ends_with(words.as_much) { "as" } else { "than" };
        let interval = speedup.ci95.map(|[low, high]| format!(", 95 % interval {}", words.interval(low, high)));
        let verdict = match of.told_verdict() {
            verdict @ ("helps" | "hurts") => format!("{other} {verdict}"),
            verdict => verdict.to_owned(),
        };
        let because = match (&of.verdict_withheld, of.pairs_to_tell) {
            (Some(why), _) => format!(", because {why}"),
            (None, Some(pairs)) => format!("; about {pairs} pairs would tell"),
            (None, None) => String::new(),
        };
        format!("{other} is {change} {than} {first}{}: {verdict}{because}.", interval.unwrap_or_default())
    }

    fn words(&self) -> Words {
        if self.metric.is_some() {
            Words { up: "better", down: "worse", as_much: "as good" }
        } else {
            Words { up: "faster", down: "slower", as_much: "as fast" }
        }
    }

    /// Every run as a line of comma-separated values, by the JSON's names; what is unknown is empty.
    pub fn csv(&self) -> String {
        let mut text = "mode,pair,order,wall_ns,metric,cpu_time_ns,retained_ns,steal_ns,voluntary_switches,\
                        involuntary_switches,guard_trips,active_vcpus_mean,exit_status,outlier\n"
            .to_owned();
        for run in &self.runs {
            let known = |value: Option<String>| value.unwrap_or_default();
            // A String takes everything.
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                run.mode,
                run.pair,
                run.order,
                run.wall_ns,
                known(run.metric.map(|metric| metric.to_string())),
                run.cpu_time_ns,
                run.retained_ns,
                known(run.steal_ns.map(|ns| ns.to_string())),
                run.voluntary_switches,
                run.involuntary_switches,
                run.guard_trips,
                run.active_vcpus_mean,
                run.exit_status,
                run.outlier,
            );
        }
        text
    }

    /// The result as a table in Markdown.
    pub fn markdown(&self) -> String {
        let what = self.metric.as_ref().map_or("wall time", |metric| &metric.name);
        let mut text = format!(
            "| mode | runs | median {what} | mean ± deviation | speedup | 95 % interval | verdict |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | --- |\n"
        );
        let comparisons = self.comparisons();
        for (place, mode) in self.modes.iter().enumerate() {
            let median = mode.median.and_then(|median| match self.metric {
                Some(_) => median.metric.map(number),
                None => Some(duration(Some(median.wall_ns))),
            });
            let of = place.checked_sub(1).and_then(|place| comparisons.get(place));
            let speedup = of.and_then(|of| of.speedup);
            let cells = [
                median,
                self.mean(mode),
                speedup.map(|speedup| format!("{:.3}", speedup.median)),
                speedup.and_then(|speedup| speedup.ci95).map(|[low, high]| format!("{low:.3} to {high:.3}")),
                of.map(|of| of.told_verdict().to_owned()),
            ];
            let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            let _ = writeln!(text, "| {} | {} | {} |", mode.mode, mode.runs, cells.join(" | "));
        }
        text
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
        let several = self.modes.len() > 2;
        let last = self.modes.len().max(2) - 1;
        let before: Vec<&str> = (0..last).map(|which| self.name(which)).collect();
        let names = format!("{} and {}", before.join(", "), self.name(last));
        writeln!(
            f,
            "  {} of {}, in random order within {}, after {} of each",
            if several { count(self.pairs, "round") } else { count(self.pairs, "pair") },
            names,
            if several { "rounds" } else { "pairs" },
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
        self.comparisons().iter().try_for_each(|of| writeln!(f, "{}", self.verdict_sentence(of)))?;
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
