//! Which machine this is, by what means vCPUs are kept awake, since when; and what is wrong.

use super::bar::Spent;
use super::words::{UNKNOWN, age, fitting, percent, rate};
use crate::app::App;
use crate::look::{CHOSEN, Look, TITLE};
use gleaner_model::Nanos;
use gleaner_report::StatusReport;
use ratatui::text::{Line, Span};

/// Two or three lines, and one more where something is wrong.
pub(crate) fn lines(app: &App, look: Look, width: u16) -> Vec<Line<'static>> {
    let Some(status) = app.status() else { return alerts(app, look) };
    let mut lines = vec![title(app, status, width), means(status, width), idle(status, width)];
    lines.extend(alerts(app, look));
    lines
}

fn title(app: &App, status: &StatusReport, width: u16) -> Line<'static> {
    let machine = &status.machine;
    let hypervisor = machine.hypervisor.as_deref().unwrap_or("no hypervisor");
    let on = format!("{hypervisor}, Linux {}, {} vCPUs", machine.kernel, machine.vcpus);
    let name = format!("gleaner {}", status.version);
    let mode = app.paused.then_some(" PAUSED ");
    let taken = name.len() + 2 + mode.map_or(0, |mode| mode.len() + 2);
    let rest = fitting(
        [on, format!("up {}", age(status.up_ns)), format!("process {}", status.pid)],
        width.saturating_sub(u16::try_from(taken).unwrap_or(0)),
    );
    let mut spans = vec![Span::styled(name, TITLE), Span::raw(format!("  {rest}"))];
    if let Some(mode) = mode {
        spans.extend([Span::raw("  "), Span::styled(mode, CHOSEN)]);
    }
    spans.into()
}

fn means(status: &StatusReport, width: u16) -> Line<'static> {
    let kept = match (status.dry_run, status.retention.as_deref()) {
        (true, _) => "changes nothing (dry run)".to_owned(),
        (false, None) => "keeps no vCPU awake".to_owned(),
        (false, Some("haltpoll")) if !status.retaining.is_empty() => {
            format!("{} vCPUs kept awake by haltpoll, which makes all poll", status.retaining.len())
        }
        (false, Some(means)) => format!("{} vCPUs kept awake by {means}", status.retaining.len()),
    };
    let overhead = if status.up_ns == 0 { UNKNOWN.to_owned() } else { percent(status.cpu_share()) };
    let by = if status.observer == "bpf" { "BPF" } else { "/proc" };
    let observing = format!("observing by {by} takes {overhead} of one CPU");
    let bridged = format!("{} bridged", Nanos(status.retained_ns));
    Line::raw(fitting([kept, observing, bridged, format!("windows {}", Nanos(status.window_ns))], width))
}

fn idle(status: &StatusReport, width: u16) -> Line<'static> {
    let recent = &status.recent;
    let spent = recent.vcpus.iter().filter_map(Spent::of).reduce(Spent::plus);
    let steal = match spent {
        Some(spent) if spent.stolen.is_some() => format!("steal {}", percent(spent.shares()[3])),
        Some(_) => "steal not reported".to_owned(),
        None => format!("steal {UNKNOWN}"),
    };
    let trips = format!("guard trips {}", status.guard_trips);
    let entries = format!("idle entries {}", rate(recent.idle_entries, recent.observed_ns));
    let halts = format!("halts {}", rate(recent.halts, recent.observed_ns));
    let since = format!("in the last {}:", Nanos(recent.observed_ns));
    Line::raw(fitting([since, steal, entries, halts, trips], width))
}

fn alerts(app: &App, look: Look) -> Vec<Line<'static>> {
    let status = app.status();
    let lost = app.lost.as_ref().map(|why| format!("No news, asking again: {why}"));
    let reload = status.and_then(|status| status.reload_error.as_ref()).map(|why| format!("Reload failed: {why}"));
    let differs = status.and_then(|status| {
        let first = status.settings_differ.first()?;
        let more = status.settings_differ.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        Some(format!("Somebody else set {}{more}", first.difference()))
    });
    let warnings = status.map(|status| status.warnings.as_slice()).unwrap_or_default();
    let more = if warnings.len() > 1 { format!(" (and {} more)", warnings.len() - 1) } else { String::new() };
    let warning = warnings.last().map(|warning| format!("Note: {warning}{more}"));
    lost.or(reload).or(differs).or(warning).map(|text| Line::styled(text, look.alert())).into_iter().collect()
}
