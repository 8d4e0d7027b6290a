//! `gleaner.doctor/1` on the page: the machine and the verdict.

use super::DrawError;
use super::chart::{Axis, Row, Scale, axis_time, rows, rows_height};
use super::figure::Figure;
use super::probe::QUANTILES;
use super::section::{Section, Table, prose, sentence};
use crate::text::{duration, percent};
use crate::{DoctorReport, HaltCost};
use maud::html;

pub(super) fn section(report: &DoctorReport) -> Result<Section, DrawError> {
    let machine = &report.machine;
    let mut section = Section::new("This machine");
    let hypervisor = machine.hypervisor.as_deref().unwrap_or("no hypervisor found");
    section.summary.push(html! { (hypervisor) ", Linux " (machine.kernel) ", " (machine.vcpus_online) " vCPUs." });
    section.summary.push(html! { span.verdict { (prose(&sentence(&report.verdict.text))) } });
    if let Some(halt) = report.halt {
        section.figures.push(figure(halt)?);
    }
    section.tables.push(capabilities(report));
    section.terms = vec!["halt", "steal", "vCPU", "observer", "means"];
    let steal = report.steal.reported_ratio.map_or_else(|| "none ever reported".to_owned(), percent);
    let idle = machine.idle_driver.as_deref().unwrap_or("halts (no cpuidle driver)");
    section.facts = [
        ("hypervisor", hypervisor.to_owned()),
        ("kernel", machine.kernel.clone()),
        ("vCPUs", format!("{} online, {} allowed", machine.vcpus_online, machine.vcpus_allowed)),
        ("idle", idle.to_owned()),
        ("steal", format!("{steal} (sampled for {})", duration(Some(report.steal.sampled_ns)))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let left = report.left_behind.iter().map(|run| format!("{run} left something behind: run gleaner restore"));
    let beside = report.neighbours.iter().map(|one| format!("{}: {}: {}", one.name, one.found, one.respected));
    section.notes = left.chain(beside).collect();
    Ok(section)
}

fn figure(halt: HaltCost) -> Result<Figure, DrawError> {
    let title = if halt.halting_costs {
        "On this machine a halted vCPU answers later than one kept awake"
    } else {
        "On this machine a halted vCPU answers as soon as one kept awake"
    };
    let sides = [
        ("kept awake", halt.retained_p50_ns, halt.retained_p99_ns),
        ("halted", halt.halted_p50_ns, halt.halted_p99_ns),
    ];
    let looks = [QUANTILES[0], QUANTILES[2]];
    let row = |(label, p50, p99): (&str, u64, u64)| {
        let marks = vec![(p50 as f64, looks[0].1), (p99 as f64, looks[1].1)];
        let range = Some((p50 as f64, p99 as f64, super::chart::GRID));
        Row { label: label.to_owned(), range, marks, note: String::new() }
    };
    let lines = sides.map(row);
    let scale = Scale::log(sides.iter().flat_map(|&(_, p50, p99)| [p50 as f64, p99 as f64]));
    let told = |(label, p50, p99): (&str, u64, u64)| {
        format!("{label}: median {}, p99 {}", duration(Some(p50)), duration(Some(p99)))
    };
    Figure::draw(
        title,
        sides.map(told).join("; "),
        format!(
            "Time to wake a thread on another vCPU that had nothing to do for {}. Where both rows agree, keeping \
             vCPUs awake wins nothing here.",
            duration(Some(halt.gap_ns))
        ),
        rows_height(lines.len()),
        |canvas| {
            canvas.legend(&looks.map(|(words, look)| (look, words)))?;
            let axis =
                Axis { scale: scale.clone(), name: "time from wake-up to running (logarithmic)", label: &axis_time };
            rows(canvas, axis, &lines, None)
        },
    )
}

fn capabilities(report: &DoctorReport) -> Table {
    let mut table = Table::new("What Gleaner can do here", &["means", "for", "works", "detail"]);
    table.words = vec![1, 2, 3];
    for (purpose, all) in [("observing", &report.observers), ("acting", &report.actuators)] {
        for one in all {
            let works = if one.available { "yes" } else { "no" };
            table.rows.push(vec![one.name.clone(), purpose.into(), works.into(), one.detail.clone()]);
        }
    }
    table
}
