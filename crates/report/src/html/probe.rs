//! `gleaner.probe/1` on the page: what waking a thread costs, by setting.

use super::DrawError;
use super::chart::{Axis, Look, MUTED, Row, SERIES, Scale, Shape, axis_time, rows, rows_height};
use super::figure::Figure;
use super::section::{Section, Table};
use crate::text::{duration, percent};
use crate::{ProbeReport, SettingResult};
use maud::html;

/// Where the four times of a distribution are drawn, and as what.
pub(super) const QUANTILES: [(&str, Look); 4] = [
    ("p50", Look { colour: SERIES[0], shape: Shape::Circle }),
    ("p90", Look { colour: SERIES[2], shape: Shape::Square }),
    ("p99", Look { colour: SERIES[1], shape: Shape::Triangle }),
    ("largest", Look { colour: MUTED, shape: Shape::Ring }),
];

fn name(setting: &SettingResult, d_kind: Option<&str>) -> String {
    let words = match (setting.setting.as_str(), d_kind) {
        ("A", _) => "same vCPU",
        ("B", _) => "other vCPU, kept awake",
        ("C", _) => "other vCPU, halted",
        ("D", Some("host")) => "other vCPU, a second VM runs",
        ("D", _) => "other vCPU, busy",
        _ => "",
    };
    format!("{} {words}", setting.setting)
}

pub(super) fn section(report: &ProbeReport) -> Result<Section, DrawError> {
    let gap = duration(Some(report.gap_ns));
    let mut section = Section::new(format!("What a wake-up costs here, {gap} after the last"));
    let pair = report.setting("B").zip(report.setting("C"));
    section.summary.push(html! {
        "A thread that had slept for " (gap) " was woken, again and again: "
        @for (at, setting) in report.settings.iter().enumerate() {
            @if at > 0 { ", " }
            (name(setting, report.d_kind.as_deref()).split_once(' ').map_or("", |(_, words)| words)) " "
            (duration(Some(setting.p50_ns))) " (p99 " (duration(Some(setting.p99_ns))) ")"
        }
        "."
    });
    if let Some((b, c)) = pair {
        let ratio = |c: u64, b: u64| c as f64 / b.max(1) as f64;
        section.summary.push(html! {
            span.verdict {
                "Waking a thread on a halted vCPU takes " (format!("{:.1}", ratio(c.p50_ns, b.p50_ns)))
                " times as long as on one kept awake (p99: " (format!("{:.1}", ratio(c.p99_ns, b.p99_ns))) " times)."
            }
        });
    }
    section.figures.push(figure(report, pair)?);
    section.tables.push(table(report));
    if let Some(timeouts) = report.timeouts {
        let mut table = Table::new("Retention time-outs that follow, by profile", &["profile", "time-out", "from"]);
        table.words.push(2);
        for (profile, ns, from) in [
            ("frugal", timeouts.frugal_ns, "mean of C - mean of B"),
            ("balanced", timeouts.balanced_ns, "p99 of C - p99 of B, within bounds"),
            ("latency", timeouts.latency_ns, "fixed"),
        ] {
            table.rows.push(vec![profile.into(), duration(Some(ns)), from.into()]);
        }
        section.tables.push(table);
    }
    section.terms =
        vec!["halt", "retained", "time-out", "vCPU", "steal", "profile", "blocked-waiter wake-up (BWW) problem"];
    section.facts.push(("waiter's vCPU".into(), report.waiter_vcpu.to_string()));
    if let Some(waker) = report.waker_vcpu {
        section.facts.push(("waker's vCPU".into(), waker.to_string()));
    }
    section.notes.clone_from(&report.notes);
    Ok(section)
}

fn figure(report: &ProbeReport, pair: Option<(&SettingResult, &SettingResult)>) -> Result<Figure, DrawError> {
    let title = match pair {
        Some((b, c)) if c.p50_ns as f64 >= 1.3 * b.p50_ns as f64 || c.p99_ns >= b.p99_ns.saturating_mul(2) => {
            "Waking a thread takes longer when its vCPU has halted (C) than when it was kept awake (B)"
        }
        Some(_) => "Waking a thread takes about as long whether its vCPU has halted (C) or not (B)",
        None => "How long waking a thread takes",
    };
    let times =
        |setting: &SettingResult| [setting.p50_ns, setting.p90_ns, setting.p99_ns, setting.max_ns].map(|ns| ns as f64);
    let mut lines = Vec::new();
    let mut words = Vec::new();
    for setting in &report.settings {
        let label = name(setting, report.d_kind.as_deref());
        words.push(format!(
            "{label}: median {}, p99 {}",
            duration(Some(setting.p50_ns)),
            duration(Some(setting.p99_ns))
        ));
        lines.push(quantile_row(label, &times(setting)));
    }
    let scale = Scale::log(report.settings.iter().flat_map(times));
    Figure::draw(
        title,
        words.join("; "),
        "Each row is one setting of the paper's Table 2: where the waiting thread's vCPU was and in what state. The \
         further right, the later the woken thread ran. The scale is logarithmic: one step from 1 to 10 is ten times \
         as long.",
        rows_height(lines.len()),
        |canvas| {
            canvas.legend(&QUANTILES.map(|(words, look)| (look, words)))?;
            let label = |ns: f64| axis_time(ns);
            let axis = Axis { scale: scale.clone(), name: "time from wake-up to running (logarithmic)", label: &label };
            rows(canvas, axis, &lines, None)
        },
    )
}

/// A row with the median, p90, p99 and largest of a distribution.
pub(super) fn quantile_row(label: String, times: &[f64; 4]) -> Row {
    let marks = times.iter().zip(QUANTILES).map(|(&ns, (_, look))| (ns, look)).collect();
    Row { label, range: Some((times[0], times[3], super::chart::GRID)), marks, note: String::new() }
}

fn table(report: &ProbeReport) -> Table {
    let mut table = Table::new(
        format!("Time to wake a blocked thread, {} apart", duration(Some(report.gap_ns))),
        &["setting", "samples", "mean", "p50", "p90", "p99", "largest", "steal"],
    );
    for setting in &report.settings {
        let times = [setting.mean_ns, setting.p50_ns, setting.p90_ns, setting.p99_ns, setting.max_ns];
        let mut row = vec![name(setting, report.d_kind.as_deref()), setting.n.to_string()];
        row.extend(times.map(|ns| duration(Some(ns))));
        row.push(setting.steal_ratio.map_or_else(|| "-".to_owned(), percent));
        table.rows.push(row);
    }
    table
}
