//! What `gleaner.ab/1` shows, and the same as CSV and as a table in Markdown.

use super::{AbComparison, AbMedians, AbMode, AbReport, AbRun, chart};
use crate::show::{Answer, Document, Part, Row, Shown, Verdict, bad, fact, line, notes, table};
use crate::text::{UNKNOWN, command_line, count, fixed, known, percent, time};

/// Pairs printed in full; beyond that only those with an outlier.
const PRINTED: u64 = 20;

/// What the page explains.
const TERMS: &[&str] = &["policy", "profile", "vCPU", "steal", "retained", "contention guard", "yielding thread"];

/// The verdict in a word: that of the JSON, or `inconclusive` where the interval says too little for it.
fn told<'a>(verdict: &'a str, withheld: Option<&String>, pairs_to_tell: Option<u64>) -> &'a str {
    if withheld.is_none() && pairs_to_tell.is_none() { verdict } else { "inconclusive" }
}

impl AbComparison {
    pub fn told_verdict(&self) -> &str {
        told(&self.verdict, self.verdict_withheld.as_ref(), self.pairs_to_tell)
    }
}

impl Shown for AbReport {
    fn document(&self) -> Document {
        document(self, &self.subject())
    }
}

/// A document for each report, with the name of its file.
pub(crate) fn documents(reports: &[(&str, &AbReport)]) -> Vec<Document> {
    let alike = reports.windows(2).all(|two| two[0].1.choice() == two[1].1.choice());
    let called = |(file, report): &(&str, &AbReport)| {
        let once = reports.iter().filter(|(_, other)| other.subject() == report.subject()).count() == 1;
        let choice = if alike { String::new() } else { format!(", {}", report.choice()) };
        let file = if once { String::new() } else { format!(" ({})", file.rsplit('/').next().unwrap_or(file)) };
        format!("{}{choice}{file}", report.subject())
    };
    reports.iter().map(|named| document(named.1, &called(named))).collect()
}

/// `called` tells it from the page's other comparisons.
fn document(report: &AbReport, called: &str) -> Document {
    let comparisons = report.comparisons();
    let several = comparisons.len() > 1;
    let AbReport { pairs, pairs_planned, warmups, machine, .. } = report;
    let answer = |of: &AbComparison| Answer {
        of: if several { format!("{called}: {}", of.mode) } else { called.to_owned() },
        verdict: Verdict::named(of.told_verdict()),
        told: report.verdict_sentence(of),
        bad: report
            .incomplete
            .as_ref()
            .map(|why| format!("Incomplete: {pairs} of {}, because {why}.", count(*pairs_planned, "pair"))),
        speedup: of.speedup.map(|speedup| (speedup.median, speedup.ci95)),
    };
    let mut document = Document {
        answers: comparisons.iter().map(answer).collect(),
        terms: TERMS,
        ..Document::new(format!("{}: {}", report.subject(), report.choice()))
    };
    let (round, rounds) = if several { ("round", "rounds") } else { ("pair", "pairs") };
    document.words(line(format!("gleaner ab: {}", report.command.join(" "))));
    document.page(line(format!("`{}`", command_line(&report.command, 200))));
    document.both([
        line(format!(
            "  {} of {}, in random order within {rounds}, after {} of each",
            count(*pairs, round),
            report.mode_names(),
            count(*warmups, "warm-up run")
        )),
        line(format!("  Linux {}, {}, profile {}\n", machine.kernel, count(machine.vcpus, "vCPU"), report.profile)),
    ]);
    document.page(comparisons.iter().map(|of| line(costs(report.name(0), of))));
    if !report.runs.is_empty() {
        document.words(report.pairs_table());
        document.words(line(""));
        document.page(chart::pairs(report));
        document.both(report.medians_table(&comparisons));
        document.words(report.means().map(line));
        document.words(line(""));
    }
    document.page(report.runs_table());
    document.words(comparisons.iter().map(|of| line(report.verdict_sentence(of))));
    document.words(
        report.incomplete.iter().map(|why| bad(format!("INCOMPLETE: {pairs} of {pairs_planned} pairs: {why}."))),
    );
    let runs = report
        .modes
        .iter()
        .map(|mode| format!("{} of {}, {}", count(mode.runs, "run"), mode.mode, count(mode.outliers, "outlier")));
    document.page([
        fact("command", command_line(&report.command, 2_000)),
        fact("runs", runs.collect::<Vec<String>>().join("; ")),
        fact("order", format!("random within each pair, seed {}", report.shuffle_seed)),
    ]);
    document.page(report.metric.as_ref().map(|metric| {
        fact("figure", format!("{}, read by {}; {} is better", metric.name, metric.regex, metric.better))
    }));
    document.both(notes(&report.notes));
    document
}

impl AbReport {
    /// All modes, at least two.
    fn mode_names(&self) -> String {
        let last = self.modes.len().max(2) - 1;
        let before: Vec<&str> = (0..last).map(|which| self.name(which)).collect();
        format!("{} and {}", before.join(", "), self.name(last))
    }

    /// What is compared with what.
    fn choice(&self) -> String {
        let others: Vec<String> = self.comparisons().into_iter().map(|of| of.mode).collect();
        format!("{} against {}", others.join(", "), self.name(0))
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
    fn figure(&self, wall_ns: u64, metric: Option<f64>) -> String {
        if self.metric.is_none() { time(wall_ns) } else { known(metric.map(number)) }
    }

    /// What is compared.
    pub(super) fn what(&self) -> &str {
        self.metric.as_ref().map_or("wall time", |metric| &metric.name)
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

    fn pairs_table(&self) -> impl Iterator<Item = Part> {
        let modes = self.modes.len().max(2);
        let last = self.runs.iter().map(|run| run.pair).max().unwrap_or(0);
        let row = |pair: u64| {
            let run_of = |which| self.runs.iter().find(|run| run.pair == pair && run.mode == self.name(which));
            let runs: Vec<Option<&AbRun>> = (0..modes).map(run_of).collect();
            let mut row = Row::default().number("pair", pair);
            for (which, run) in runs.iter().enumerate() {
                let mark = |run: &AbRun| if run.outlier { "*" } else { "" };
                let figure = run.map(|run| self.figure(run.wall_ns, run.metric) + mark(run));
                row = row.number(self.name(which), figure);
            }
            for (which, other) in runs.iter().enumerate().skip(1) {
                // Of one mode or of several.
                let column = if modes > 2 { format!("speedup of {}", self.name(which)) } else { "speedup".to_owned() };
                row = row.fixed(column, runs[0].zip(*other).and_then(|(first, other)| self.ratio(first, other)), 3);
            }
            (pair <= PRINTED || runs.iter().flatten().any(|run| run.outlier)).then_some(row)
        };
        let left_out = format!("  of the pairs after {PRINTED}, only those with outliers are shown (--json has all)");
        let outlier = "  * an outlier: far from the other runs of its mode; it counts all the same";
        let below =
            [(last > PRINTED).then(|| line(left_out)), self.runs.iter().any(|run| run.outlier).then(|| line(outlier))];
        table("", (1..=last).filter_map(row)).into_iter().chain(below.into_iter().flatten())
    }

    fn medians_table(&self, comparisons: &[AbComparison]) -> Option<Part> {
        let medians: Vec<&AbMedians> = self.modes.iter().filter_map(|mode| mode.median.as_ref()).collect();
        if medians.len() < self.modes.len().max(2) {
            return None;
        }
        // `over`: of the mode at this place.
        let row = |what: &str, of: &dyn Fn(&AbMedians) -> String, over: &dyn Fn(usize) -> Option<f64>| {
            let named = |row: Row, (mode, median): (&AbMode, &&AbMedians)| row.number(&mode.mode, of(median));
            let row = self.modes.iter().zip(&medians).fold(Row::default().text("median", what), named);
            let ratio = |row: Row, (at, other): (usize, &AbComparison)| {
                row.fixed(format!("{}/{}", other.mode, self.name(0)), over(at), 2)
            };
            comparisons.iter().enumerate().fold(row, ratio)
        };
        let ratio = |of: &dyn Fn(&AbMedians) -> Option<f64>, at: usize| {
            let (a, b) = (of(medians[0])?, of(medians.get(at + 1)?)?);
            (a > 0.0).then(|| b / a)
        };
        let times = |of: &dyn Fn(&AbMedians) -> u64, at: usize| ratio(&|m| Some(of(m) as f64), at);
        let less = |m: &AbMedians| m.cpu_time_ns.saturating_sub(m.retained_ns);
        let metric = self.metric.as_ref().map(|metric| {
            let what = format!("{} ({} is better)", metric.name, metric.better);
            row(&what, &|m| known(m.metric.map(number)), &|at| ratio(&|m| m.metric, at))
        });
        let rows = [
            row("wall time", &|m| time(m.wall_ns), &|at| times(&|m| m.wall_ns, at)),
            row("CPU time", &|m| time(m.cpu_time_ns), &|at| times(&|m| m.cpu_time_ns, at)),
            row("  less retained", &|m| time(less(m)), &|at| times(&less, at)),
            row("retained", &|m| time(m.retained_ns), &|_| None),
            row("steal", &|m| time(m.steal_ns), &|_| None),
            row("voluntary switches", &|m| m.voluntary_switches.to_string(), &|at| {
                times(&|m| m.voluntary_switches, at)
            }),
            row("involuntary switches", &|m| m.involuntary_switches.to_string(), &|at| {
                times(&|m| m.involuntary_switches, at)
            }),
            row("active vCPUs", &|m| fixed(m.active_vcpus_mean, 2), &|_| None),
        ];
        table("Medians over the runs of each mode", metric.into_iter().chain(rows))
    }

    fn runs_table(&self) -> Option<Part> {
        let row = |run: &AbRun| {
            let row = Row::default()
                .number("pair", run.pair)
                .number("order", run.order)
                .text("mode", &run.mode)
                .time("run time", run.wall_ns);
            let row = if self.metric.is_none() { row } else { row.number(self.what(), run.metric.map(number)) };
            row.time("CPU time", run.cpu_time_ns)
                .time("retained", run.retained_ns)
                .time("steal", run.steal_ns)
                .number("voluntary switches", run.voluntary_switches)
                .number("guard trips", run.guard_trips)
                .fixed("vCPUs active", run.active_vcpus_mean, 2)
                .number("status", run.exit_status)
                .text("outlier", if run.outlier { "yes" } else { "" })
        };
        table("Every run, in the order in which they ran", self.runs.iter().map(row)).map(|part| part.folded(12))
    }

    /// Means and deviations of what is compared; `None` where they are not known.
    fn means(&self) -> Option<String> {
        let told = |mode: &AbMode| Some(format!("{} {}", mode.mode, self.mean(mode)?));
        let told: Vec<String> = self.modes.iter().filter_map(told).collect();
        let all_ran = self.modes.iter().filter(|mode| mode.median.is_some()).count() >= self.modes.len().max(2);
        (all_ran && !told.is_empty())
            .then(|| format!("  mean {}, with its standard deviation: {}", self.what(), told.join(", ")))
    }

    /// Mean and deviation of what is compared.
    fn mean(&self, mode: &AbMode) -> Option<String> {
        let spread = mode.spread?;
        let (mean, deviation) = if self.metric.is_some() {
            (number(spread.metric_mean?), spread.metric_deviation.map(number))
        } else {
            (time(spread.wall_ns_mean), spread.wall_deviation_ns.map(time))
        };
        Some(deviation.map_or(mean.clone(), |deviation| format!("{mean} ± {deviation}")))
    }

    /// The second mode's verdict as it is told.
    pub fn told_verdict(&self) -> &str {
        told(&self.verdict, self.verdict_withheld.as_ref(), self.pairs_to_tell)
    }

    /// A verdict with its interval.
    fn verdict_sentence(&self, of: &AbComparison) -> String {
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
        const COLUMNS: &str = "mode,pair,order,wall_ns,metric,cpu_time_ns,retained_ns,steal_ns,voluntary_switches,\
                               involuntary_switches,guard_trips,active_vcpus_mean,exit_status,outlier";
        let rows = self.runs.iter().map(|run| crate::text::csv(run, COLUMNS) + "\n");
        std::iter::once(format!("{COLUMNS}\n")).chain(rows).collect()
    }

    /// The result as a table in Markdown.
    pub fn markdown(&self) -> String {
        let head = format!(
            "| mode | runs | median {} | mean ± deviation | speedup | 95 % interval | verdict |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | --- |\n",
            self.what()
        );
        let comparisons = self.comparisons();
        let row = |(place, mode): (usize, &AbMode)| {
            let of = place.checked_sub(1).and_then(|place| comparisons.get(place));
            let speedup = of.and_then(|of| of.speedup);
            let interval = speedup.and_then(|speedup| speedup.ci95);
            let cells = [
                mode.median.map_or_else(|| UNKNOWN.to_owned(), |median| self.figure(median.wall_ns, median.metric)),
                known(self.mean(mode)),
                fixed(speedup.map(|speedup| speedup.median), 3),
                known(interval.map(|[low, high]| format!("{low:.3} to {high:.3}"))),
                known(of.map(AbComparison::told_verdict)),
            ];
            format!("| {} | {} | {} |\n", mode.mode, mode.runs, cells.join(" | "))
        };
        std::iter::once(head).chain(self.modes.iter().enumerate().map(row)).collect()
    }
}

/// What a mode cost, in a sentence.
fn costs(first: &str, of: &AbComparison) -> String {
    let (second, costs) = (&of.mode, &of.side_costs);
    let share = costs.retained_ratio.map(|ratio| format!(" ({} of the vCPUs' time)", percent(ratio)));
    let parts = [
        costs.cpu_time_ratio.map(|ratio| format!("{ratio:.2} times the CPU time of {first}")),
        costs.retained_ns.map(|ns| format!("{} of idle time bridged per run{}", time(ns), share.unwrap_or_default())),
        costs.voluntary_switches_ratio.map(|ratio| format!("{ratio:.2} times the voluntary context switches")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        format!("What {second} cost is not known.")
    } else {
        format!("What {second} cost: {}.", parts.join("; "))
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
