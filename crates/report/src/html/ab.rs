//! `gleaner.ab/1` on the page: the verdict, every run, and what it cost.

use super::DrawError;
use super::chart::{Axis, Look, MUTED, SERIES, Scale, Shape, axis_time, plain_number};
use super::figure::Figure;
use super::forest::{self, Estimate, VERDICTS, Words, look_of};
use super::section::{Section, Table, command_line, program, prose};
use crate::text::{count, duration, percent};
use crate::{AbMedians, AbReport, AbRun};
use maud::{Markup, html};

/// The first mode's look, the second's, and the mark around an outlier.
const LOOKS: [Look; 2] =
    [Look { colour: SERIES[0], shape: Shape::Circle }, Look { colour: SERIES[1], shape: Shape::Square }];
const OUTLIER: Look = Look { colour: MUTED, shape: Shape::Halo };

/// A section for each; the first shows them all together.
pub(super) fn sections(reports: &[&AbReport]) -> Result<Vec<Section>, DrawError> {
    let mut sections = reports.iter().map(|report| section(report)).collect::<Result<Vec<_>, _>>()?;
    if let (Some(first), Some(forest)) = (sections.first_mut(), forest_figure(reports)?) {
        first.figures.insert(0, forest);
    }
    Ok(sections)
}

fn mode(report: &AbReport, which: usize) -> &str {
    report.modes.get(which).map_or("?", |mode| &mode.mode)
}

/// What one file is about, in a few words.
fn name(report: &AbReport) -> String {
    let metric = report.metric.as_ref().map(|metric| format!(", {}", metric.name));
    format!("{}{}", program(&report.command), metric.unwrap_or_default())
}

fn section(report: &AbReport) -> Result<Section, DrawError> {
    let (first, second) = (mode(report, 0), mode(report, 1));
    let mut section = Section::new(format!("{}: {second} against {first}", name(report)));
    section.summary = told(report);
    if !report.runs.is_empty() {
        section.figures.push(pairs_figure(report)?);
    }
    section.tables = vec![medians_table(report), runs_table(report)];
    section.terms = vec!["policy", "profile", "vCPU", "steal", "retained", "contention guard", "yielding thread"];
    section.facts = vec![
        ("command".into(), command_line(&report.command, 2_000)),
        ("machine".into(), format!("Linux {}, {}", report.machine.kernel, count(report.machine.vcpus, "vCPU"))),
        ("profile".into(), report.profile.clone()),
        (
            "pairs".into(),
            format!(
                "{} of {} planned, after {} of each mode",
                report.pairs,
                report.pairs_planned,
                count(report.warmups, "warm-up run")
            ),
        ),
        ("order".into(), format!("random within each pair, seed {}", report.shuffle_seed)),
    ];
    if let Some(metric) = &report.metric {
        section
            .facts
            .push(("figure".into(), format!("{}, read by {}; {} is better", metric.name, metric.regex, metric.better)));
    }
    section.notes.clone_from(&report.notes);
    Ok(section)
}

fn told(report: &AbReport) -> Vec<Markup> {
    let (first, second) = (mode(report, 0), mode(report, 1));
    let what = report.metric.as_ref().map_or("its run time", |metric| &metric.name);
    let class = match report.told_verdict() {
        "helps" => "verdict helps",
        "hurts" => "verdict hurts",
        _ => "verdict",
    };
    let mut told = vec![html! {
        code { (command_line(&report.command, 200)) } " ran in " (count(report.pairs, "pair")) " of runs, one under policy " (first)
        " and one under policy " (second) ", in random order, on Linux " (report.machine.kernel) " with " (count(report.machine.vcpus, "vCPU"))
        "; compared is " (what) "."
    }];
    told.push(html! {
        span class=(class) { (prose(&report.verdict_sentence())) }
    });
    told.push(html! { (prose(&costs(report))) });
    if let Some(why) = &report.incomplete {
        told.push(html! { span.hurts { "Incomplete: " (report.pairs) " of " (count(report.pairs_planned, "pair")) ", because " (why) "." } });
    }
    told
}

/// What the second mode cost, in a sentence.
fn costs(report: &AbReport) -> String {
    let (first, second) = (mode(report, 0), mode(report, 1));
    let costs = &report.side_costs;
    let mut parts = Vec::new();
    if let Some(ratio) = costs.cpu_time_ratio {
        parts.push(format!("{ratio:.2} times the CPU time of {first}"));
    }
    if let Some(retained) = costs.retained_ns {
        let share = costs.retained_ratio.map(|ratio| format!(" ({} of the vCPUs' time)", percent(ratio)));
        parts.push(format!("{} of idle time bridged per run{}", duration(Some(retained)), share.unwrap_or_default()));
    }
    if let Some(ratio) = costs.voluntary_switches_ratio {
        parts.push(format!("{ratio:.2} times the voluntary context switches"));
    }
    if parts.is_empty() {
        format!("What {second} cost is not known.")
    } else {
        format!("What {second} cost: {}.", parts.join("; "))
    }
}

fn forest_figure(reports: &[&AbReport]) -> Result<Option<Figure>, DrawError> {
    let estimates: Vec<Estimate> = reports
        .iter()
        .filter_map(|report| {
            let speedup = report.speedup?;
            Some(Estimate {
                label: format!("{} ({}/{})", name(report), mode(report, 1), mode(report, 0)),
                median: speedup.median,
                ci95: speedup.ci95,
                look: look_of(&report.verdict),
            })
        })
        .collect();
    let helped = |verdict: &str| reports.iter().filter(|report| report.verdict == verdict).count();
    let title = match (&estimates[..], reports) {
        ([], _) => return Ok(None),
        ([one], [report]) => format!("{}: speedup {}, {}", name(report), one.told(), report.told_verdict()),
        _ => format!(
            "Speedup of {}: {} helped, {} hurt, {} without a clear difference",
            count(reports.len() as u64, "comparison"),
            helped("helps"),
            helped("hurts"),
            helped("no difference")
        ),
    };
    let words = Words {
        title,
        caption: "The mark is the median of the pairs' ratios, the bar its 95 % interval; right of 1 the second mode is better. Only where the whole bar is on one side \
                  of 1 do these runs show that it helps or hurts. A mark without a bar rests on too few pairs."
            .into(),
        axis: "speedup (ratio; above 1 is better)",
        one: Some("1: no difference"),
        legend: VERDICTS.iter().map(|(name, look)| (*look, *name)).collect(),
    };
    forest::figure(words, &estimates).map(Some)
}

/// Wall time, or the metric.
fn figure_of(report: &AbReport, run: &AbRun) -> Option<f64> {
    if report.metric.is_some() { run.metric } else { Some(run.wall_ns as f64) }
}

fn pairs_figure(report: &AbReport) -> Result<Figure, DrawError> {
    let (first, second) = (mode(report, 0), mode(report, 1));
    let outliers = report.runs.iter().filter(|run| run.outlier).count() as u64;
    let what = report.metric.as_ref().map_or("run time", |metric| metric.name.as_str());
    let better =
        if report.metric.as_ref().is_some_and(|metric| metric.better == "higher") { "higher" } else { "lower" };
    let values: Vec<(u64, usize, f64, bool)> = report
        .runs
        .iter()
        .filter_map(|run| {
            let which = usize::from(run.mode != first);
            Some((run.pair, which, figure_of(report, run)?, run.outlier))
        })
        .collect();
    let last = report.runs.iter().map(|run| run.pair).max().unwrap_or(1);
    let description = format!(
        "{} runs in {}: {what} of each, {first} and {second} joined within pairs",
        values.len(),
        count(report.pairs, "pair")
    );
    let circled = match outliers {
        0 => "No run is far from the others of its mode.".to_owned(),
        n => format!(
            "{} far from the others of the same mode and circled; outliers count all the same.",
            is_or_are(n, "run")
        ),
    };
    let caption = format!(
        "Every run is a mark, the two of a pair are joined; {better} is better. A drift of the machine moves both runs of a pair. {circled}"
    );
    Figure::draw(format!("{}: {what} of every run, pair by pair", name(report)), description, caption, 320, |canvas| {
        let mut legend = vec![(LOOKS[0], first), (LOOKS[1], second)];
        if outliers > 0 {
            legend.push((OUTLIER, "outlier"));
        }
        canvas.legend(&legend)?;
        let every = last.div_ceil(20).max(1);
        let ticks = (1..=20u64).map(|n| n.saturating_mul(every)).filter(|n| *n <= last).map(|n| n as f64).collect();
        let scale = Scale::exactly(0.5, last as f64 + 0.5).with_ticks(ticks);
        let x = Axis { scale, name: "pair, in the order in which they ran", label: &plain_number };
        let time: &dyn Fn(f64) -> String = if report.metric.is_some() { &plain_number } else { &axis_time };
        let y = Axis { scale: Scale::linear(values.iter().map(|(_, _, value, _)| *value)), name: what, label: time };
        let plot = canvas.plot(x, Some(y), 0, 84)?;
        for pair in values.chunk_by(|a, b| a.0 == b.0) {
            let ends: Vec<(f64, f64)> = pair.iter().map(|(pair, _, value, _)| (*pair as f64, *value)).collect();
            if ends.len() > 1 {
                plot.path(&ends, MUTED, 1)?;
            }
            for &(pair, which, value, outlier) in pair {
                plot.mark(pair as f64, value, LOOKS[which])?;
                if outlier {
                    plot.mark(pair as f64, value, OUTLIER)?;
                }
            }
        }
        Ok(())
    })
}

fn is_or_are(n: u64, what: &str) -> String {
    format!("{} {}", count(n, what), if n == 1 { "is" } else { "are" })
}

fn plain(value: f64) -> String {
    if value.abs() >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn medians_table(report: &AbReport) -> Table {
    let mut table = Table::new(
        "Medians over the runs of each mode",
        &[
            "mode",
            "runs",
            "outliers",
            "run time",
            "figure",
            "CPU time",
            "retained",
            "steal",
            "voluntary switches",
            "involuntary",
            "vCPUs active",
        ],
    );
    let cells = |median: &AbMedians| {
        vec![
            duration(Some(median.wall_ns)),
            median.metric.map_or_else(|| "-".to_owned(), plain),
            duration(Some(median.cpu_time_ns)),
            duration(Some(median.retained_ns)),
            duration(median.steal_ns),
            median.voluntary_switches.to_string(),
            median.involuntary_switches.to_string(),
            format!("{:.2}", median.active_vcpus_mean),
        ]
    };
    for mode in &report.modes {
        let mut row = vec![mode.mode.clone(), mode.runs.to_string(), mode.outliers.to_string()];
        row.extend(mode.median.as_ref().map_or_else(|| vec!["-".to_owned(); 8], cells));
        table.rows.push(row);
    }
    table
}

fn runs_table(report: &AbReport) -> Table {
    let mut table = Table::new(
        "Every run, in the order in which they ran",
        &[
            "pair",
            "order",
            "mode",
            "run time",
            "figure",
            "CPU time",
            "retained",
            "steal",
            "voluntary switches",
            "guard trips",
            "vCPUs active",
            "status",
            "outlier",
        ],
    );
    table.words = vec![2, 12];
    for run in &report.runs {
        table.rows.push(vec![
            run.pair.to_string(),
            run.order.to_string(),
            run.mode.clone(),
            duration(Some(run.wall_ns)),
            run.metric.map_or_else(|| "-".to_owned(), plain),
            duration(Some(run.cpu_time_ns)),
            duration(Some(run.retained_ns)),
            duration(run.steal_ns),
            run.voluntary_switches.to_string(),
            run.guard_trips.to_string(),
            format!("{:.2}", run.active_vcpus_mean),
            run.exit_status.to_string(),
            if run.outlier { "yes" } else { "" }.to_owned(),
        ]);
    }
    table.folded = table.rows.len() > 12;
    table
}
