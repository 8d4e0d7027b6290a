//! A bar for each vCPU. Where there are more than rows, several stand in a row; where that does not do, they scroll.

use super::bar::{Spent, spans};
use super::words::UNKNOWN;
use crate::look::{Look, Part, TITLE};
use gleaner_model::Nanos;
use gleaner_report::{StatusReport, StatusVcpuTimes};
use ratatui::text::{Line, Span};
use std::collections::BTreeMap;

/// A bar is not shorter than this where several stand in a row.
const BAR_MIN: usize = 8;
/// Figures behind a bar: four shares and a time-out.
const FIGURES: usize = 34;
/// Narrower screens have bars alone.
const FIGURES_FROM: usize = 60;
/// Between two vCPUs of a row.
const GAP: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    vcpu: u32,
    /// `None`: it is offline, or nothing is known of it yet.
    spent: Option<Spent>,
    /// How long it is kept awake, where it is.
    timeout: Option<Nanos>,
}

/// All vCPUs that were ever seen, ascending.
pub(crate) fn rows(status: &StatusReport) -> Vec<Row> {
    let of = |times: &gleaner_report::StatusTimes| -> BTreeMap<u32, StatusVcpuTimes> {
        times.vcpus.iter().map(|times| (times.vcpu, *times)).collect()
    };
    let recent = of(&status.recent);
    let mut seen = of(&status.times);
    seen.extend(&recent);
    let timeout = |vcpu| status.retaining.iter().find(|kept| kept.vcpu == vcpu).map(|kept| Nanos(kept.timeout_ns));
    let row = |vcpu: &u32| Row { vcpu: *vcpu, spent: recent.get(vcpu).and_then(Spent::of), timeout: timeout(*vcpu) };
    seen.keys().map(row).collect()
}

/// How vCPUs are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    columns: usize,
    rows: usize,
    label: usize,
    bar: usize,
}

impl Plan {
    /// For so many vCPUs, of which the highest has this number, on so much room.
    fn of(count: usize, highest: u32, width: usize, room: usize) -> Self {
        let label = highest.to_string().len().max(3) + 1;
        let room = room.max(1);
        let most = ((width + GAP) / (label + 1 + BAR_MIN + GAP)).max(1);
        let columns = count.div_ceil(room).clamp(1, most);
        let figures = if columns == 1 && width >= FIGURES_FROM { FIGURES } else { 0 };
        let cell = (width + GAP) / columns;
        let bar = cell.saturating_sub(label + 1 + GAP + figures).max(1);
        Self { columns, rows: count.div_ceil(columns).min(room), label, bar }
    }

    fn has_figures(self, width: usize) -> bool {
        self.columns == 1 && width >= FIGURES_FROM
    }
}

/// A legend, all vCPUs together, and each, on so many columns and rows at most.
pub(crate) fn lines(
    rows: &[Row],
    status: &StatusReport,
    scroll: usize,
    look: Look,
    (width, most): (u16, u16),
) -> Vec<Line<'static>> {
    let (width, most) = (usize::from(width), usize::from(most));
    let recent_ns = status.recent.observed_ns;
    if rows.is_empty() || recent_ns == 0 {
        let why = if status.groups.is_empty() {
            "No group runs, so nobody looks at the vCPUs."
        } else {
            "Nothing was seen of the vCPUs yet."
        };
        return vec![Line::raw(why)];
    }
    let highest = rows.last().map_or(0, |row| row.vcpu);
    let plan = Plan::of(rows.len(), highest, width, most.saturating_sub(2));
    let hidden = rows.len().div_ceil(plan.columns).saturating_sub(plan.rows);
    let shown = rows.chunks(plan.columns).skip(scroll.min(hidden)).take(plan.rows);
    let mut lines = vec![head(plan, (rows.len(), hidden > 0), look, width)];
    if rows.len() > 1 {
        let all = rows.iter().filter_map(|row| row.spent).reduce(Spent::plus);
        let whole = Plan { columns: 1, bar: Plan::of(1, highest, width, 1).bar, ..plan };
        lines.push(cell("all", all, None, whole, look).into_iter().chain(figures(all, "", whole, width)).collect());
    }
    lines.extend(shown.map(|row| line(row, plan, look, width)));
    lines.truncate(most);
    lines
}

fn line(row: &[Row], plan: Plan, look: Look, width: usize) -> Line<'static> {
    let cells = row.iter().enumerate().flat_map(|(place, row)| {
        let mut spans = cell(&row.vcpu.to_string(), row.spent, row.timeout, plan, look);
        if place + 1 < plan.columns {
            spans.push(Span::raw(" ".repeat(GAP)));
        }
        spans.extend(figures(row.spent, &row.timeout.map_or_else(|| UNKNOWN.into(), |ns| ns.to_string()), plan, width));
        spans
    });
    cells.collect()
}

/// Its number, with a star where it is kept awake, and its bar.
fn cell(name: &str, spent: Option<Spent>, kept: Option<Nanos>, plan: Plan, look: Look) -> Vec<Span<'static>> {
    let star = if kept.is_some() { '*' } else { ' ' };
    let mut cell = vec![Span::raw(format!("{name:>label$}{star}", label = plan.label))];
    cell.extend(spans(spent, plan.bar, look));
    cell
}

fn figures(spent: Option<Spent>, timeout: &str, plan: Plan, width: usize) -> Option<Span<'static>> {
    if !plan.has_figures(width) {
        return None;
    }
    let shares = spent.map_or([const { None }; 4], |spent| spent.shares().map(Some));
    let shares = shares.map(|share| share.map_or_else(|| UNKNOWN.into(), |share| format!("{:.0}%", share * 100.0)));
    let [work, awake, halted, mut stolen] = shares;
    if spent.is_some_and(|spent| spent.stolen.is_none()) {
        UNKNOWN.clone_into(&mut stolen);
    }
    Some(Span::raw(format!(" {work:>5}{awake:>6}{halted:>6}{stolen:>7}{timeout:>9}")))
}

/// What glyphs mean, and over the figures what they are.
fn head(plan: Plan, (count, scrolls): (usize, bool), look: Look, width: usize) -> Line<'static> {
    let mut spans = vec![Span::styled(format!("{:>label$} ", "vCPU", label = plan.label), TITLE)];
    for (n, (part, name)) in Part::KNOWN.into_iter().enumerate() {
        spans.push(Span::raw(if n > 0 { "  " } else { "" }));
        spans.push(Span::styled(String::from(look.glyph(part)), look.style(part)));
        spans.push(Span::raw(format!(" {name}")));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    let more = match (scrolls, plan.has_figures(width)) {
        (_, true) => {
            let to = (plan.label + 1 + plan.bar).saturating_sub(used);
            let (work, awake, halted, stolen, timeout) = ("work", "awake", "halt", "stolen", "time-out");
            format!("{:to$} {work:>5}{awake:>6}{halted:>6}{stolen:>7}{timeout:>9}", "")
        }
        (true, false) => format!("   * kept awake now; {count} in all, Down for more"),
        (false, false) => "   * kept awake now".to_owned(),
    };
    // Where the legend leaves no room for it, the figures explain themselves.
    if used + more.len() <= width {
        spans.push(Span::raw(more));
    }
    spans.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_fold_and_then_scroll() {
        for (count, width, room, columns, rows) in [
            (1, 80, 5, 1, 1),
            (4, 80, 5, 1, 4),
            (8, 80, 5, 2, 4),
            (256, 80, 5, 5, 5),
            (256, 200, 40, 7, 37),
            (256, 200, 400, 1, 256),
            (3, 10, 2, 1, 2),
            (3, 0, 0, 1, 1),
        ] {
            let plan = Plan::of(count, 255, width, room);
            assert_eq!((plan.columns, plan.rows), (columns, rows), "{count} on {width} x {room}");
            let used = plan.columns * (plan.label + 1 + plan.bar + GAP) - GAP;
            assert!(used <= width || width < 20, "{plan:?}");
        }
    }
}
