//! Tabs, and the open one: how the group stands, its figures, its vCPUs over time, decisions as they fall.

use super::words::{age, duration, fitting, named, rate, vcpus};
use crate::app::{App, Moment};
use crate::look::{CHOSEN, Look, TITLE};
use gleaner_model::Nanos;
use gleaner_report::{StatusGroup, StatusReport, StatusTrial, Told, told};
use ratatui::text::{Line, Span};
use std::collections::VecDeque;

/// Groups, the open one marked. Where they have no room, those around it.
pub(crate) fn tabs(app: &App, width: u16) -> Vec<Line<'static>> {
    let groups = app.groups();
    let Some(chosen) = app.chosen() else {
        let all = app.status().map_or(0, |status| status.groups.len());
        let none = Line::raw(match all {
            0 => "Nothing of what the configuration names runs.".to_owned(),
            _ if app.filter.is_empty() => format!("All {all} groups are idle: i shows them."),
            _ => format!("None of {all} groups has {} in its name: Esc shows all.", app.filter),
        });
        return std::iter::once(none).chain(waiting(app, width)).collect();
    };
    let names: Vec<String> = groups.iter().map(|group| tab(group, group.name == groups[chosen].name)).collect();
    let mut shown = VecDeque::from([chosen]);
    let (mut before, mut after) = (chosen, chosen + 1);
    let folded = app.folded();
    let folded = if folded > 0 { format!("  {folded} idle (i)") } else { String::new() };
    let mut left = usize::from(width).saturating_sub(names[chosen].len() + 8 + folded.len());
    // By turns to the right and to the left, as long as there is room.
    loop {
        let mut grown = false;
        if after < names.len() && names[after].len() < left {
            left -= names[after].len() + 1;
            shown.push_back(after);
            (after, grown) = (after + 1, true);
        }
        if before > 0 && names[before - 1].len() < left {
            left -= names[before - 1].len() + 1;
            shown.push_front(before - 1);
            (before, grown) = (before - 1, true);
        }
        if !grown {
            break;
        }
    }
    let mut spans = vec![Span::raw(if before > 0 { "< " } else { "" })];
    for place in shown {
        let style = if place == chosen { CHOSEN } else { ratatui::style::Style::new() };
        spans.extend([Span::styled(names[place].clone(), style), Span::raw(" ")]);
    }
    spans.push(Span::raw(if after < names.len() { format!("> {}", names.len()) } else { String::new() }));
    spans.push(Span::raw(folded));
    if !app.filter.is_empty() {
        spans.push(Span::raw(format!("  /{}", app.filter)));
    }
    [Line::raw(""), spans.into()].into_iter().chain(waiting(app, width)).collect()
}

/// What is named and is not managed, where there is any; as many as have room.
fn waiting(app: &App, width: u16) -> Option<Line<'static>> {
    let waiting = &app.status()?.waiting;
    let all = Some(format!("waiting ({}):", waiting.len())).filter(|_| !waiting.is_empty())?;
    Some(Line::raw(fitting(std::iter::once(all).chain(waiting.iter().map(ToString::to_string)), width)))
}

fn tab(group: &StatusGroup, is_chosen: bool) -> String {
    let held = if group.held { " (held)" } else { "" };
    if is_chosen { format!("[{}{held}]", group.name) } else { format!(" {}{held} ", group.name) }
}

fn open(app: &App) -> Option<(&StatusReport, &StatusGroup)> {
    let group = app.groups().get(app.chosen()?).copied()?;
    app.status().map(|status| (status, group))
}

/// How the open group stands, and what it does.
pub(crate) fn figures(app: &App, look: Look, width: u16) -> Vec<Line<'static>> {
    let Some((status, group)) = open(app) else { return Vec::new() };
    let managed = status.up_ns.saturating_sub(group.since_ns);
    let what = format!("profile {}  managed {}  {}", group.profile, age(managed), group.target);
    let strip = |name: &str, numbers: &[u32], of: fn(Moment) -> usize| {
        let all = usize::try_from(group.vcpus).unwrap_or(0);
        let now = format!(" {} of {all}: {}", numbers.len(), vcpus(numbers));
        let room = usize::from(width).saturating_sub(8 + now.len().min(30));
        let moments: Vec<char> =
            app.moments(&group.name).rev().take(room).map(|moment| look.level(of(moment), all)).collect();
        named(name, moments.into_iter().rev().collect::<String>() + &now)
    };
    vec![
        Line::raw(what),
        named("now", &group.state),
        named("won", group.trial.as_ref().map_or_else(|| "not tried yet".to_owned(), |trial| won(trial, status))),
        named("does", fitting(does(group, managed), width.saturating_sub(8))),
        named("lengths", fitting(lengths(group), width.saturating_sub(8))),
        strip("active", &group.active, |moment| moment.active),
        strip("awake", &group.retaining, |moment| moment.awake),
    ]
}

fn won(trial: &StatusTrial, status: &StatusReport) -> String {
    let ago = age(status.up_ns.saturating_sub(trial.at_ns));
    match (trial.rate_ratio, trial.rate_range) {
        (Some(ratio), Some([low, high])) => {
            let how = match (trial.is_shown(), trial.pays) {
                (false, _) => "not shown: ",
                (true, true) => "",
                (true, false) => "no gain: ",
            };
            let next = trial.next(status.up_ns).map(|next| format!("; again {next}")).unwrap_or_default();
            let pairs = if trial.pairs == 1 { "1 pair" } else { &format!("{} pairs", trial.pairs) };
            format!("{how}x{ratio:.2} the rate ({low:.2} to {high:.2} in {pairs}), {ago} ago{next}")
        }
        _ => format!("{}, {ago} ago", trial.reason),
    }
}

fn does(group: &StatusGroup, managed_ns: u64) -> Vec<String> {
    let recent = Some(group.recent).filter(|recent| recent.observed_ns > 0);
    let (cpu_ns, of_ns) = recent.map_or((group.cpu_time_ns, managed_ns), |now| (now.cpu_time_ns, now.observed_ns));
    let observed = recent.map_or(0, |recent| recent.observed_ns);
    vec![
        format!("uses {:.2} CPUs", cpu_ns as f64 / of_ns.max(1) as f64),
        format!("up to {} threads", group.threads_max.map_or_else(|| "?".to_owned(), |threads| threads.to_string())),
        format!("idle entries {}", rate(recent.and_then(|recent| recent.idle_entries), observed)),
        format!("switches {}", rate(recent.map(|recent| recent.voluntary_switches), observed)),
    ]
}

fn lengths(group: &StatusGroup) -> Vec<String> {
    let recent = group.recent;
    let wake = group.lengths.wake_to_run.as_ref();
    let wake = match wake.and_then(|wake| wake.p50_ns.zip(wake.p99_ns)) {
        Some((p50, p99)) => format!("wake p50 {} p99 {}", Nanos(p50), Nanos(p99)),
        None => "wake - (needs BPF)".to_owned(),
    };
    vec![
        format!("l_comp {}", duration(recent.l_comp_ns)),
        format!("g_comp {}", duration(recent.g_comp_ns)),
        format!("l_idle {}", duration(recent.l_idle_ns)),
        wake,
    ]
}

/// The open group's newest decisions, newest first, on so many rows.
pub(crate) fn decisions(app: &App, rows: usize) -> Vec<Line<'static>> {
    let Some((status, group)) = open(app) else { return Vec::new() };
    let all = told(&group.decisions);
    let newer = app.newer.min(all.len().saturating_sub(1));
    let above = if newer > 0 { format!("; {newer} newer above (k, g)") } else { String::new() };
    let mut lines = vec![Line::styled(format!("decisions ({}), newest first{above}", group.decisions_count), TITLE)];
    let told = |told: &Told| format!("{:>7} ago  {told}", age(status.up_ns.saturating_sub(told.at_ns())));
    lines.extend(all.iter().rev().skip(newer).map(|line| Line::raw(told(line))));
    lines.truncate(rows);
    lines
}
