//! `gleaner.ab/1` on the page: the verdict, every run, and what it cost.

use super::DrawError;
use super::answer::{Answer, Ratio, Verdict};
use super::chart::{Axis, Look, MUTED, Scale, Shape, axis_time, plain_number};
use super::figure::Figure;
use super::section::{Section, Table, command_line, program, prose};
use crate::text::{count, duration, percent};
use crate::{AbComparison, AbMedians, AbReport, AbRun};
use maud::{Markup, html};

/// The mark around an outlier.
const OUTLIER: Look = Look { colour: MUTED, shape: Shape::Halo };

/// A section for each report, with the name of its file.
pub(super) fn sections(reports: &[(&str, &AbReport)]) -> Result<Vec<Section>, DrawError> {
    let alike = reports.windows(2).all(|two| choice(two[0].1) == choice(two[1].1));
    let called = |(file, report): &(&str, &AbReport)| {
        let once = reports.iter().filter(|(_, other)| name(other) == name(report)).count() == 1;
        let choice = if alike { String::new() } else { format!(", {}", choice(report)) };
        let file = if once { String::new() } else { format!(" ({})", file.rsplit('/').next().unwrap_or(file)) };
        format!("{}{choice}{file}", name(report))
    };
    reports.iter().map(|named| section(named.1, &called(named))).collect()
}

/// What is compared with what.
fn choice(report: &AbReport) -> String {
    let others: Vec<String> = report.comparisons().into_iter().map(|of| of.mode).collect();
    format!("{} against {}", others.join(", "), mode(report, 0))
}

fn mode(report: &AbReport, which: usize) -> &str {
    report.modes.get(which).map_or("?", |mode| &mode.mode)
}

/// What one file is about, in a few words.
fn name(report: &AbReport) -> String {
    let metric = report.metric.as_ref().map(|metric| format!(", {}", metric.name));
    format!("{}{}", program(&report.command), metric.unwrap_or_default())
}

/// `called` tells it from the page's other comparisons.
fn section(report: &AbReport, called: &str) -> Result<Section, DrawError> {
    let mut section = Section::new(format!("{}: {}", name(report), choice(report)));
    let comparisons = report.comparisons();
    let several = comparisons.len() > 1;
    section.answers.extend(comparisons.iter().map(|of| Answer {
        of: if several { format!("{called}: {}", of.mode) } else { called.to_owned() },
        verdict: Verdict::named(of.told_verdict()),
        told: html! {
            (prose(&report.verdict_sentence(of)))
            @if let Some(why) = &report.incomplete {
                " " span.hurts {
                    "Incomplete: " (report.pairs) " of " (count(report.pairs_planned, "pair")) ", because " (why) "."
                }
            }
        },
        speedup: of.speedup.map(Ratio::from),
    }));
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
    let first = mode(report, 0);
    let what = report.metric.as_ref().map_or("its run time", |metric| &metric.name);
    let comparisons = report.comparisons();
    let rounds = if comparisons.len() > 1 { "round" } else { "pair" };
    let ran = html! {
        code { (command_line(&report.command, 200)) } " ran in " (count(report.pairs, rounds)) " of runs, one under policy "
        (first)
        @for of in &comparisons { " and one under policy " (of.mode) }
        ", in random order, on Linux " (report.machine.kernel) " with " (count(report.machine.vcpus, "vCPU"))
        ". Compared is " (what) "."
    };
    std::iter::once(ran).chain(comparisons.iter().map(|of| html! { (prose(&costs(first, of))) })).collect()
}

/// What a mode cost, in a sentence.
fn costs(first: &str, of: &AbComparison) -> String {
    let (second, costs) = (&of.mode, &of.side_costs);
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

/// Wall time, or the metric.
fn figure_of(report: &AbReport, run: &AbRun) -> Option<f64> {
    if report.metric.is_some() { run.metric } else { Some(run.wall_ns as f64) }
}

fn pairs_figure(report: &AbReport) -> Result<Figure, DrawError> {
    let names: Vec<&str> = report.modes.iter().map(|mode| mode.mode.as_str()).collect();
    let outliers = report.runs.iter().filter(|run| run.outlier).count() as u64;
    let what = report.metric.as_ref().map_or("run time", |metric| metric.name.as_str());
    let better =
        if report.metric.as_ref().is_some_and(|metric| metric.better == "higher") { "higher" } else { "lower" };
    let values: Vec<(u64, usize, f64, bool)> = report
        .runs
        .iter()
        .filter_map(|run| {
            let which = report.modes.iter().position(|mode| mode.mode == run.mode)?;
            Some((run.pair, which, figure_of(report, run)?, run.outlier))
        })
        .collect();
    let last = report.runs.iter().map(|run| run.pair).max().unwrap_or(1);
    let description = format!(
        "{} runs in {}: {what} of each, {} joined within pairs",
        values.len(),
        count(report.pairs, "pair"),
        names.join(" and ")
    );
    let circled = match outliers {
        0 => "No run is far from the others of its mode.".to_owned(),
        n => format!(
            "{} far from the others of the same mode and circled; outliers count all the same.",
            is_or_are(n, "run")
        ),
    };
    let caption = format!(
        "Every run is a mark, the two of a pair are joined; {better} is better. \
         A drift of the machine moves both runs of a pair. {circled}"
    );
    Figure::draw_both(
        format!("{}: {what} of every run, pair by pair", name(report)),
        description,
        caption,
        320,
        |canvas| {
            let mut legend: Vec<(Look, &str)> =
                names.iter().enumerate().map(|(n, name)| (Look::nth(n), *name)).collect();
            if outliers > 0 {
                legend.push((OUTLIER, "outlier"));
            }
            canvas.legend(&legend)?;
            let most = if canvas.is_narrow() { 8 } else { 20 };
            let every = last.div_ceil(most).max(1);
            let ticks = (1..=most).map(|n| n.saturating_mul(every)).filter(|n| *n <= last).map(|n| n as f64).collect();
            let scale = Scale::exactly(0.5, last as f64 + 0.5).with_ticks(ticks);
            let x = Axis { scale, name: "pair, in the order in which they ran", label: &plain_number };
            let time: &dyn Fn(f64) -> String = if report.metric.is_some() { &plain_number } else { &axis_time };
            let y =
                Axis { scale: Scale::from_zero(values.iter().map(|(_, _, value, _)| *value)), name: what, label: time };
            let plot = canvas.plot(x, Some(y), 0, 84)?;
            for pair in values.chunk_by(|a, b| a.0 == b.0) {
                let ends: Vec<(f64, f64)> = pair.iter().map(|(pair, _, value, _)| (*pair as f64, *value)).collect();
                if ends.len() > 1 {
                    plot.path(&ends, MUTED, 1)?;
                }
                for &(pair, which, value, outlier) in pair {
                    plot.mark(pair as f64, value, Look::nth(which))?;
                    if outlier {
                        plot.mark(pair as f64, value, OUTLIER)?;
                    }
                }
            }
            Ok(())
        },
    )
}

fn is_or_are(n: u64, what: &str) -> String {
    format!("{} {}", count(n, what), if n == 1 { "is" } else { "are" })
}

fn plain(value: f64) -> String {
    if value.abs() >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// Where nothing but the run time was compared, there is no other figure to show.
fn without_figure(report: &AbReport, table: &mut Table, column: usize) {
    if let Some(metric) = &report.metric {
        metric.name.clone_into(&mut table.header[column]);
        return;
    }
    table.header.remove(column);
    table.rows.iter_mut().for_each(|row| _ = row.remove(column));
    table.words.iter_mut().for_each(|word| *word -= usize::from(*word > column));
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
    without_figure(report, &mut table, 4);
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
    without_figure(report, &mut table, 4);
    table
}
