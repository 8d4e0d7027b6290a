//! `gleaner.run/1` on the page: runs of the same command stand together.

use super::DrawError;
use super::answer::{Answer, Verdict};
use super::chart::{Axis, Look, Row, Scale, axis_time, rows, rows_height};
use super::figure::Figure;
use super::probe::QUANTILES;
use super::section::{Section, Table, command_line, program, prose};
use super::timeline;
use crate::text::{count, duration, percent};
use crate::{LengthStats, RunReport};
use gleaner_model::Nanos;
use maud::{Markup, html};

/// Timelines drawn of one command's runs.
const MOST_TIMELINES: usize = 4;

/// One section for each command; those in `compared` have a verdict already.
pub(super) fn sections(runs: &[&RunReport], compared: &[&Vec<String>]) -> Result<Vec<Section>, DrawError> {
    let mut groups: Vec<Vec<&RunReport>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| group[0].command == run.command) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups.iter().map(|group| section(group, compared.contains(&&group[0].command))).collect()
}

fn section(runs: &[&RunReport], compared: bool) -> Result<Section, DrawError> {
    let first = runs[0];
    let mut section = Section::new(format!("{} under gleaner run", program(&first.command)));
    let policies = policies(runs);
    if !compared {
        section.answers.push(not_compared(runs));
    }
    section.summary = if runs.len() == 1 { told_alone(first) } else { told_together(runs, &policies) };
    if runs.len() > 1 {
        section.figures.push(walls(runs, &policies)?);
    }
    let stepped: Vec<(usize, &RunReport)> =
        (1..).zip(runs.iter().copied()).filter(|(_, run)| timeline::moved(run)).collect();
    for (_, run) in stepped.iter().rev().take(MOST_TIMELINES).rev() {
        section.figures.push(timeline::figure(run)?);
    }
    let measured = runs.iter().rev().find(|run| run.lengths.l_idle.is_some_and(|length| length.p50_ns.is_some()));
    if let Some(run) = measured {
        section.figures.push(lengths_figure(run)?);
    }
    section.tables = vec![runs_table(runs), lengths_table(runs), cost_table(runs)];
    for (number, run) in (1..).zip(runs).filter(|(_, run)| !run.decisions.is_empty()) {
        section.tables.push(timeline::table(run, &format!("run {number} ({})", run.policy)));
    }
    section.tables.retain(|table| !table.rows.is_empty());
    section.terms = vec![
        "policy",
        "profile",
        "retained",
        "steal",
        "vCPU",
        "idle entry",
        "halt",
        "activate",
        "decision",
        "contention guard",
        "computation length",
        "computation granularity",
        "length of idle periods",
        "time-out",
    ];
    section.facts.push(("command".into(), command_line(&first.command, 2_000)));
    let means = [&first.means.observer, &first.means.placement, &first.means.yielding];
    let means = runs
        .iter()
        .find(|run| run.means.observer.is_some())
        .map_or(means, |run| [&run.means.observer, &run.means.placement, &run.means.yielding]);
    let means: Vec<&str> = means.into_iter().flatten().map(String::as_str).collect();
    if !means.is_empty() {
        section.facts.push(("means".into(), means.join(", ")));
    }
    if let Some(from) = runs.iter().find_map(|run| run.timeout_from.as_ref()) {
        section.facts.push(("time-out from".into(), from.clone()));
    }
    let mut notes: Vec<String> = runs.iter().flat_map(|run| run.warnings.iter().cloned()).collect();
    if stepped.len() > MOST_TIMELINES {
        notes.push(format!("timelines of the last {MOST_TIMELINES} of {} runs with steps are drawn", stepped.len()));
    }
    notes.dedup();
    section.notes = notes;
    Ok(section)
}

/// The policies in the order of how much they may do.
fn policies<'a>(runs: &[&'a RunReport]) -> Vec<&'a str> {
    let order = ["off", "observe", "retain", "consolidate", "full"];
    let mut policies: Vec<&str> = runs.iter().map(|run| run.policy.as_str()).collect();
    policies.sort_by_key(|policy| order.iter().position(|known| known == policy).unwrap_or(order.len()));
    policies.dedup();
    policies
}

/// What `run` can answer.
fn not_compared(runs: &[&RunReport]) -> Answer {
    Answer {
        of: program(&runs[0].command),
        verdict: Verdict::NotCompared,
        told: html! {
            @if runs.len() == 1 { "One run compares nothing. " }
            @else { "These are single runs without an interval: they show what happens, and prove nothing. " }
            code { "gleaner ab" } " with the same command tells whether Gleaner helps."
        },
        speedup: None,
    }
}

fn undone(runs: &[&RunReport]) -> Markup {
    html! {
        @if runs.iter().all(|run| run.restored) { "All changes to the machine were undone." }
        @else { span.hurts { "Not everything could be undone: run gleaner restore." } }
    }
}

fn told_alone(run: &RunReport) -> Vec<Markup> {
    let wall = run.wall_ns.max(1) as f64;
    let policy = &run.policy;
    let mut told = vec![html! {
        code { (command_line(&run.command, 200)) } " ran for " (duration(Some(run.wall_ns)))
        " under policy " (policy) " and ended with status " (run.exit_status) ". "
        "On average " (format!("{:.2}", run.active_vcpus_mean)) " of " (run.vcpus) " vCPUs were active"
        @if let Some(entries) = run.idle_entries {
            ", with " (format!("{:.0}", entries as f64 / wall * 1e9)) " idle entries a second"
        }
        "."
    }];
    if let Some(why) = &run.no_step_because {
        told.push(html! { "Gleaner took no (further) step, because " (prose(why)) "." });
    }
    told.push(html! {
        "It cost " (duration(Some(run.retained_ns))) " of vCPU time retained"
        @if let Some(cpu_time) = run.cpu_time_ns.filter(|ns| *ns > 0) {
            " (" (percent(run.retained_ns as f64 / cpu_time as f64)) " of what the program used)"
        }
        " and " (percent(run.overhead_cpu_ns as f64 / wall)) " of one CPU for observing. " (undone(&[run]))
    });
    told
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn walls_of(runs: &[&RunReport], policy: &str) -> Vec<u64> {
    runs.iter().filter(|run| run.policy == policy).map(|run| run.wall_ns).collect()
}

fn told_together(runs: &[&RunReport], policies: &[&str]) -> Vec<Markup> {
    let on: Vec<&RunReport> = runs.iter().copied().filter(|run| run.policy != "off").collect();
    let mut told = vec![html! {
        code { (command_line(&runs[0].command, 200)) } " ran "
        @for (at, policy) in policies.iter().enumerate() {
            @let walls = walls_of(runs, policy);
            @if at > 0 { ", and " }
            (count(walls.len() as u64, "time")) " under policy " (policy) " (median " (duration(median(walls))) ")"
        }
        "."
    }];
    if let Some(retained) = median(on.iter().map(|run| run.retained_ns).collect()) {
        told.push(html! {
            "It cost " (duration(Some(retained))) " of vCPU time retained per run (median). " (undone(runs))
        });
    }
    told
}

fn walls(runs: &[&RunReport], policies: &[&str]) -> Result<Figure, DrawError> {
    let lines: Vec<Row> = policies
        .iter()
        .enumerate()
        .map(|(at, policy)| {
            let walls = walls_of(runs, policy);
            let ends = walls.iter().min().zip(walls.iter().max());
            Row {
                label: format!("{policy} ({})", count(walls.len() as u64, "run")),
                range: ends.map(|(low, high)| (*low as f64, *high as f64, super::chart::GRID)),
                marks: walls.iter().map(|ns| (*ns as f64, Look::nth(at))).collect(),
                note: String::new(),
            }
        })
        .collect();
    let medians: Vec<String> = policies
        .iter()
        .map(|policy| format!("{policy}: median {}", duration(median(walls_of(runs, policy)))))
        .collect();
    Figure::draw(
        format!("{}: run time by policy ({})", program(&runs[0].command), medians.join(", ")),
        medians.join("; "),
        "Each mark is one run, from exec to exit; further left is faster. \
         Where the rows overlap, these runs do not tell the policies apart.",
        rows_height(lines.len()),
        |canvas| {
            let looks: Vec<(Look, &str)> =
                policies.iter().enumerate().map(|(at, policy)| (Look::nth(at), *policy)).collect();
            canvas.legend(&looks)?;
            let scale = Scale::from_zero(runs.iter().map(|run| run.wall_ns as f64));
            rows(canvas, Axis { scale, name: "run time", label: &axis_time }, &lines, None)
        },
    )
}

/// The lengths with their names.
fn lengths(run: &RunReport) -> Vec<(&'static str, LengthStats)> {
    [
        ("l_comp: a vCPU's work between two idle periods", run.lengths.l_comp),
        ("g_comp: a thread's work between two waits", run.lengths.g_comp),
        ("l_idle: an idle period", run.lengths.l_idle),
        ("wake: from wake-up to running", run.lengths.wake_to_run),
    ]
    .into_iter()
    .filter_map(|(name, stats)| stats.map(|stats| (name, stats)))
    .collect()
}

fn lengths_figure(run: &RunReport) -> Result<Figure, DrawError> {
    let all = lengths(run);
    let looks = [QUANTILES[0], QUANTILES[2]];
    let lines: Vec<Row> = all
        .iter()
        .map(|(name, stats)| {
            let ends = [stats.p50_ns, stats.p99_ns].map(|ns| ns.map(|ns| ns as f64));
            Row {
                label: (*name).to_owned(),
                range: ends[0].zip(ends[1]).map(|(p50, p99)| (p50, p99, super::chart::GRID)),
                marks: ends.iter().zip(looks).filter_map(|(ns, (_, look))| ns.map(|ns| (ns, look))).collect(),
                note: String::new(),
            }
        })
        .collect();
    let values = lines
        .iter()
        .flat_map(|row| row.marks.iter().map(|(ns, _)| *ns))
        .chain(run.timeout_ns.filter(|ns| *ns > 0).map(|ns| ns as f64));
    let scale = Scale::log(values);
    let told: Vec<String> = all
        .iter()
        .map(|(name, stats)| format!("{name}: median {}, p99 {}", duration(stats.p50_ns), duration(stats.p99_ns)))
        .collect();
    let timeout = run.timeout_ns.filter(|ns| *ns > 0);
    let bridged = match timeout {
        Some(_) => {
            "Idle periods left of the time-out were bridged where a yielding thread ran: the vCPU stayed awake. \
             Those right of it were let go."
        }
        None => "No idle period was bridged in this run: its policy does not, or halting is free on this machine.",
    };
    Figure::draw(
        format!("{}: how long it computed and how long it waited (policy {})", program(&run.command), run.policy),
        told.join("; "),
        format!(
            "{bridged} Where a thread's work between two waits (g_comp) is long, packing threads onto fewer vCPUs \
             would make others wait."
        ),
        rows_height(lines.len()),
        |canvas| {
            canvas.legend(&looks.map(|(words, look)| (look, words)))?;
            let axis = Axis { scale: scale.clone(), name: "length (logarithmic)", label: &axis_time };
            let words = timeout.map(|ns| format!("time-out {}", duration(Some(ns))));
            rows(canvas, axis, &lines, timeout.map(|ns| ns as f64).zip(words.as_deref()))
        },
    )
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn runs_table(runs: &[&RunReport]) -> Table {
    let header = [
        "run",
        "policy",
        "profile",
        "run time",
        "status",
        "idle entries/s",
        "halts/s",
        "steal",
        "vCPUs active",
        "of",
        "undone",
    ];
    let mut table = Table::new("Every run", &header);
    table.words = vec![1, 2];
    for (number, run) in (1..).zip(runs) {
        let rate = |n: Option<u64>| or_dash(n.map(|n| format!("{:.0}", n as f64 / run.wall_ns.max(1) as f64 * 1e9)));
        table.rows.push(vec![
            format!("{number}"),
            run.policy.clone(),
            run.profile.clone(),
            duration(Some(run.wall_ns)),
            run.exit_status.to_string(),
            rate(run.idle_entries),
            rate(run.halts),
            duration(run.steal_ns),
            format!("{:.2}", run.active_vcpus_mean),
            run.vcpus.to_string(),
            if run.restored { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    table
}

fn cost_table(runs: &[&RunReport]) -> Table {
    let header = [
        "run",
        "policy",
        "CPU time",
        "retained",
        "observing",
        "voluntary switches",
        "involuntary",
        "cross wake-ups",
        "threads",
        "guard trips",
    ];
    let mut table = Table::new("What each run used, and what Gleaner cost", &header);
    table.words = vec![1];
    for (number, run) in (1..).zip(runs) {
        table.rows.push(vec![
            format!("{number}"),
            run.policy.clone(),
            duration(run.cpu_time_ns),
            duration(Some(run.retained_ns)),
            duration(Some(run.overhead_cpu_ns)),
            or_dash(run.voluntary_switches),
            or_dash(run.involuntary_switches),
            or_dash(run.cross_wakeups),
            or_dash(run.threads_max),
            run.guard_trips.to_string(),
        ]);
    }
    table
}

fn lengths_table(runs: &[&RunReport]) -> Table {
    let mut table = Table::new("Lengths", &["run", "policy", "length", "mean", "p50", "p99", "seen"]);
    table.words = vec![1, 2];
    for (number, run) in (1..).zip(runs) {
        for (name, stats) in lengths(run) {
            table.rows.push(vec![
                format!("{number}"),
                run.policy.clone(),
                name.to_owned(),
                Nanos::from_f64(stats.mean_ns).to_string(),
                duration(stats.p50_ns),
                duration(stats.p99_ns),
                or_dash(stats.n),
            ]);
        }
    }
    table.folded = table.rows.len() > 12;
    table
}
