//! `gleaner.sim/1` on the page: policies against the first one, round by round, and where the vCPUs' time went.

use super::DrawError;
use super::chart::Look;
use super::figure::Figure;
use super::forest::{self, Estimate, Words};
use super::section::{Section, Table};
use crate::text::{count, duration, partial_words, percent};
use crate::{SimReport, SimRow, SimRun, SimVm};
use maud::{Markup, html};

/// Rows of one figure; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;
/// Rows told at the top of the page.
const MOST_TOLD: usize = 12;

pub(super) fn section(report: &SimReport) -> Result<Section, DrawError> {
    let mut section = Section::new(format!("{}, simulated", report.scenario));
    section.summary = told(report);
    for ratio in &RATIOS {
        section.figures.extend(figures(report, ratio)?);
    }
    section.tables = vec![rows_table(report), time_table(report), costs_table(report)];
    section.tables.retain(|table| !table.rows.is_empty());
    section.terms = vec!["policy", "vCPU", "steal", "retained", "halt"];
    let host = &report.host;
    let slice = host.slice_ns.map_or_else(|| "the scheduler's own".to_owned(), |ns| duration(Some(ns)));
    let polls = if host.halt_poll_ns == 0 { "none".to_owned() } else { duration(Some(host.halt_poll_ns)) };
    section.facts = vec![
        ("simulated host".into(), format!("{} under {}", count(u64::from(host.pcpus), "pCPU"), host.scheduler)),
        ("slice".into(), slice),
        ("halt polling".into(), polls),
        ("pause-loop exits".into(), if host.ple { "yes" } else { "no" }.into()),
        ("seed".into(), format!("{} in the first round, the next in each further one", report.seed)),
    ];
    section.notes.extend(report.stopped_by.as_deref().map(partial_words));
    let cut = report.runs.iter().filter(|run| !run.complete && !run.stopped).count() as u64;
    if cut > 0 {
        section.notes.push(format!(
            "{} ended at run_timeout before the measured work was done; rates count until then.",
            count(cut, "run")
        ));
    }
    Ok(section)
}

fn told(report: &SimReport) -> Vec<Markup> {
    let rounds = rounds(report);
    let mut told: Vec<Markup> = report.stopped_by.iter().map(|by| html! { (partial_words(by)) }).collect();
    told.push(html! {
        "Simulated, not measured: " (count(u64::from(report.host.pcpus), "pCPU")) " under " (report.host.scheduler) ", "
        (count(report.runs.len() as u64, "simulation")) " in " (count(u64::from(rounds), "round")) "."
    });
    let compared: Vec<(&SimRow, f64)> = report
        .rows
        .iter()
        .filter(|row| base(report, row) != Some(row))
        .filter_map(|row| Some((row, row.speedup?)))
        .collect();
    for (row, speedup) in compared.iter().take(MOST_TOLD) {
        let first = base(report, row).map_or_else(String::new, choice);
        told.push(html! {
            (case(row)) ": under " (choice(row)) " "
            span.verdict { (forest::told(*speedup, spread(report, row, &RATIOS[0]))) }
            " times the throughput of " (first) "."
        });
    }
    if compared.len() > MOST_TOLD {
        told.push(
            html! { "And " (count((compared.len() - MOST_TOLD) as u64, "other comparison")) ": the figures have \
            them all." },
        );
    }
    told
}

/// What was chosen for it: the policy, and the slice where slices are compared.
fn choice(row: &SimRow) -> String {
    row.slice.as_ref().map_or_else(|| row.policy.clone(), |slice| format!("{} at {slice}", row.policy))
}

fn rounds(report: &SimReport) -> u32 {
    report.runs.iter().map(|run| run.round).max().map_or(0, |last| last.saturating_add(1))
}

fn case(row: &SimRow) -> String {
    format!("{} {} beside {}", row.vm, row.workload, row.beside)
}

/// The row that this one is compared with: the first policy of the same virtual machine, workload and neighbours.
fn base<'a>(report: &'a SimReport, row: &SimRow) -> Option<&'a SimRow> {
    let same = |other: &&SimRow| (&other.vm, &other.workload, &other.beside) == (&row.vm, &row.workload, &row.beside);
    report.rows.iter().find(same)
}

/// What of a run is compared.
struct Ratio {
    of: fn(&SimRow) -> Option<f64>,
    of_run: fn(&SimRun, &SimVm) -> f64,
    title: &'static str,
    axis: &'static str,
    caption: &'static str,
}

const RATIOS: [Ratio; 2] = [
    Ratio {
        of: |row| row.speedup,
        of_run: |_, vm| vm.items_per_s,
        title: "throughput by policy against the first",
        axis: "speedup (policy / first policy; above 1 is better)",
        caption: "Each mark is the median over rounds of a policy's throughput over the first policy's in the same \
                  round; the line reaches from the least round to the greatest, and says how much chance there is in \
                  it. Right of 1 it is faster.",
    },
    Ratio {
        of: |row| row.beside_speedup,
        of_run: |run, _| neighbours(run).map(|vm| vm.items_per_s).sum(),
        title: "what the neighbours got done, against the first policy",
        axis: "neighbours' throughput (policy / first policy; above 1 is better)",
        caption: "What the other virtual machines got done meanwhile, medians over rounds with the least and the \
                  greatest: left of 1 the policy took something from its neighbours.",
    },
];

fn neighbours(run: &SimRun) -> impl Iterator<Item = &SimVm> {
    run.vms.iter().filter(|vm| vm.role == "background")
}

/// The runs of a row, one a round, each with the row's virtual machine in it: rows are in the order of a round's runs
/// and their measured machines.
fn runs<'a>(report: &'a SimReport, row: &'a SimRow) -> impl Iterator<Item = (&'a SimRun, &'a SimVm)> {
    let per_round = report.runs.iter().take_while(|run| run.round == 0).count();
    let measured = |run: &'a SimRun| run.vms.iter().filter(|vm| vm.role == "measured");
    let places = report.runs.iter().take(per_round).enumerate().flat_map(move |(n, run)| measured(run).map(move |_| n));
    let place = places.zip(&report.rows).find(|(_, other)| std::ptr::eq(*other, row)).map(|(n, _)| n);
    let mine = report.runs.chunks(per_round.max(1)).filter_map(move |round| round.get(place?));
    mine.filter_map(move |run| {
        let is_row = |vm: &&SimVm| (&vm.vm, &vm.workload, &vm.policy) == (&row.vm, &row.workload, &row.policy);
        Some((run, measured(run).find(is_row)?))
    })
}

/// The least and the greatest ratio of any round; `None` where there is one round only.
fn spread(report: &SimReport, row: &SimRow, ratio: &Ratio) -> Option<[f64; 2]> {
    let first = base(report, row)?;
    let ratios: Vec<f64> = runs(report, row)
        .filter_map(|(run, vm)| {
            let (base_run, base_vm) = runs(report, first).find(|(other, _)| other.round == run.round)?;
            let base = (ratio.of_run)(base_run, base_vm);
            (base > 0.0).then(|| (ratio.of_run)(run, vm) / base)
        })
        .filter(|ratio| ratio.is_finite())
        .collect();
    let (least, greatest) = (ratios.iter().copied().reduce(f64::min)?, ratios.iter().copied().reduce(f64::max)?);
    (ratios.len() > 1).then_some([least, greatest])
}

fn figures(report: &SimReport, ratio: &Ratio) -> Result<Vec<Figure>, DrawError> {
    let mut policies: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    let look = |policy: &str| Look::nth(policies.iter().position(|known| *known == policy).unwrap_or(0));
    let estimates: Vec<(Estimate, &str)> = report
        .rows
        .iter()
        // The first policy against itself says nothing.
        .filter(|row| base(report, row) != Some(row))
        .filter_map(|row| {
            let median = (ratio.of)(row)?;
            let label = format!("{}, {}", case(row), choice(row));
            let estimate = Estimate { label, median, ci95: spread(report, row, ratio), look: look(&row.policy) };
            Some((estimate, row.policy.as_str()))
        })
        .collect();
    let draw = |part: &[(Estimate, &str)]| {
        let shown = policies.iter().filter(|policy| part.iter().any(|(_, of)| of == *policy));
        let words = Words {
            title: format!("{}: {}", report.scenario, ratio.title),
            caption: ratio.caption.to_owned(),
            axis: ratio.axis,
            one: Some("1: as with the first policy"),
            legend: shown.map(|policy| (look(policy), *policy)).collect(),
        };
        let part: Vec<Estimate> = part.iter().map(|(estimate, _)| estimate.clone()).collect();
        forest::figure(words, &part)
    };
    estimates.chunks(MOST_ROWS).map(draw).collect()
}

fn rows_table(report: &SimReport) -> Table {
    let mut table = Table::new(
        "Per machine, workload, neighbours and policy (medians over rounds; in brackets the least and the greatest \
         round)",
        &["machine", "workload", "beside", "policy", "items/s", "speedup", "neighbours"],
    );
    table.words = vec![1, 2, 3];
    for row in &report.rows {
        let told = |value: Option<f64>, ratio| {
            value.map_or_else(|| "-".to_owned(), |value| forest::told(value, spread(report, row, ratio)))
        };
        table.rows.push(vec![
            row.vm.clone(),
            row.workload.clone(),
            row.beside.clone(),
            choice(row),
            format!("{:.1}", row.items_per_s),
            told(row.speedup, &RATIOS[0]),
            told(row.beside_speedup, &RATIOS[1]),
        ]);
    }
    table
}

/// What the vCPUs of a machine did, in the order of the header.
fn parts(vm: &SimVm) -> [u64; 7] {
    [vm.work_ns, vm.kernel_ns, vm.retained_ns, vm.polled_ns, vm.overhead_ns, vm.stolen_ns, vm.halted_ns]
}

fn time_table(report: &SimReport) -> Table {
    let mut table = Table::new(
        "Where the measured machines' vCPU time went, in the first round",
        &[
            "machine",
            "workload",
            "beside",
            "policy",
            "ran",
            "guest kernel",
            "retained",
            "polled",
            "host switches",
            "stolen",
            "halted",
            "halts",
            "active vCPUs",
        ],
    );
    table.words = vec![1, 2, 3];
    for row in &report.rows {
        let Some((_, vm)) = runs(report, row).next() else { continue };
        let all: f64 = parts(vm).iter().map(|ns| *ns as f64).sum();
        let share = |ns: u64| if all > 0.0 { percent(ns as f64 / all) } else { "-".to_owned() };
        let mut cells = vec![row.vm.clone(), row.workload.clone(), row.beside.clone(), choice(row)];
        cells.extend(parts(vm).map(share));
        cells.push(vm.halts.to_string());
        cells.push(vm.active_vcpus_mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.2}")));
        table.rows.push(cells);
    }
    table.folded = table.rows.len() > 12;
    table
}

fn costs_table(report: &SimReport) -> Table {
    let mut table = Table::new("What things cost in this simulation", &["cost", "time", "paid for"]);
    table.words = vec![2];
    for cost in &report.costs {
        table.rows.push(vec![cost.name.clone(), duration(Some(cost.value_ns)), cost.meaning.clone()]);
    }
    table.folded = true;
    table
}
