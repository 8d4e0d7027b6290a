//! When how many vCPUs were active in a run, and which decisions made it so.

use super::DrawError;
use super::chart::{Axis, Look, MUTED, SERIES, Scale, Shape, plain_number};
use super::figure::Figure;
use super::section::{Table, program};
use crate::text::{count, duration};
use crate::{DecisionRecord, RunReport};
use std::collections::BTreeSet;

/// Decisions that carry their number in the drawing; beyond these it would be a smear.
const MOST_NUMBERED: usize = 40;

/// Decisions that were one: taken at the same moment for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event<'a> {
    pub at_ns: u64,
    pub action: &'a str,
    /// As a list, `all` for all of them.
    pub vcpus: String,
    pub reason: &'a str,
    /// vCPUs active after it.
    pub active: u64,
}

/// A run's decisions with what they left active. Whatever the file says, no vCPU leaves twice and none is made up.
pub(super) fn events(report: &RunReport) -> Vec<Event<'_>> {
    let alike =
        |a: &DecisionRecord, b: &DecisionRecord| (a.at_ns, &a.action, &a.reason) == (b.at_ns, &b.action, &b.reason);
    let mut inactive = BTreeSet::new();
    let mut all = Vec::new();
    for same in report.decisions.chunk_by(alike) {
        for decision in same {
            match (decision.action.as_str(), decision.vcpu) {
                ("deactivate", Some(vcpu)) => _ = inactive.insert(vcpu),
                ("activate", Some(vcpu)) => _ = inactive.remove(&vcpu),
                ("activate-all", _) => inactive.clear(),
                _ => {}
            }
        }
        let vcpus: Vec<String> =
            same.iter().filter_map(|decision| decision.vcpu).map(|vcpu| vcpu.to_string()).collect();
        all.push(Event {
            at_ns: same[0].at_ns,
            action: &same[0].action,
            vcpus: if vcpus.is_empty() { "all".to_owned() } else { vcpus.join(", ") },
            reason: &same[0].reason,
            active: report.vcpus.saturating_sub(inactive.len() as u64),
        });
    }
    all
}

/// Whether a run ever took a vCPU out of use.
pub(super) fn moved(report: &RunReport) -> bool {
    events(report).iter().any(|event| event.active < report.vcpus)
}

/// The step line with the decisions on it.
pub(super) fn figure(report: &RunReport) -> Result<Figure, DrawError> {
    let events = events(report);
    let wall_s = report.wall_ns as f64 / 1e9;
    let steps: Vec<_> = events.iter().filter(|event| moves(event)).collect();
    let least = steps.iter().map(|event| event.active).min().unwrap_or(report.vcpus);
    let title = format!(
        "{}: between {least} and {} vCPUs were active, {:.2} on average",
        program(&report.command),
        report.vcpus,
        report.active_vcpus_mean
    );
    let told: Vec<String> = steps
        .iter()
        .map(|event| {
            format!("{}: {} {}, {} active", duration(Some(event.at_ns)), event.action, event.vcpus, event.active)
        })
        .collect();
    let mut line = vec![(0.0, report.vcpus as f64)];
    for event in &steps {
        let before = line.last().map_or(0.0, |&(_, active)| active);
        let at = event.at_ns as f64 / 1e9;
        line.extend([(at, before), (at, event.active as f64)]);
    }
    line.push((wall_s, line.last().map_or(0.0, |&(_, active)| active)));
    Figure::draw(title, told.join("; "), caption(report, events.len()), 300, |canvas| {
        let looks = [
            (Look { colour: SERIES[0], shape: Shape::Triangle }, "vCPU deactivated"),
            (Look { colour: SERIES[1], shape: Shape::Circle }, "vCPU given back"),
            (Look { colour: MUTED, shape: Shape::Diamond }, "retention begun or ended"),
        ];
        canvas.legend(&looks)?;
        let x = Axis {
            scale: Scale::exactly(0.0, wall_s.max(1e-9)),
            name: "seconds since the program's exec",
            label: &plain_number,
        };
        let ticks = ticks(report.vcpus);
        let scale = Scale::exactly(0.0, report.vcpus.max(1) as f64 * 1.18).with_ticks(ticks);
        let y = Axis { scale, name: "active vCPUs", label: &plain_number };
        let plot = canvas.plot(x, Some(y), 0, 66)?;
        plot.path(&line, SERIES[0], 2)?;
        for (number, event) in (1..).zip(&events) {
            let at = event.at_ns as f64 / 1e9;
            let (y, look) = match event.action {
                "deactivate" => (event.active as f64, looks[0].0),
                "activate" | "activate-all" => (event.active as f64, looks[1].0),
                _ => (0.0, looks[2].0),
            };
            plot.mark(at, y, look)?;
            if number <= MOST_NUMBERED {
                plot.note_aside(at, y, &number.to_string())?;
            }
        }
        Ok(())
    })
}

fn moves(event: &Event<'_>) -> bool {
    matches!(event.action, "deactivate" | "activate" | "activate-all")
}

fn caption(report: &RunReport, events: usize) -> String {
    let left_out = match report.decisions_left_out {
        0 => String::new(),
        n => format!(" {} are not in the file: the line may differ after the first hundred.", count(n, "decision")),
    };
    format!(
        "The line is the number of vCPUs that the program was allowed to use, out of {}. The marks are {}, numbered \
         as in the table of decisions below, which has the reason of each.{left_out}",
        report.vcpus,
        count(events as u64, "decision")
    )
}

/// Whole numbers of vCPUs, at most nine of them.
fn ticks(vcpus: u64) -> Vec<f64> {
    let every = vcpus.div_ceil(8).max(1);
    (0..=8u64).map(|n| n.saturating_mul(every)).filter(|n| *n <= vcpus).map(|n| n as f64).collect()
}

/// The decisions with their reasons, numbered as in the figure.
pub(super) fn table(report: &RunReport, of: &str) -> Table {
    let mut table =
        Table::new(format!("Decisions in {of}"), &["no.", "after", "decision", "vCPU", "vCPUs active then", "reason"]);
    table.words = vec![2, 3, 5];
    for (number, event) in (1..).zip(events(report)) {
        table.rows.push(vec![
            format!("{number}"),
            duration(Some(event.at_ns)),
            event.action.to_owned(),
            event.vcpus,
            event.active.to_string(),
            event.reason.to_owned(),
        ]);
    }
    table.folded = table.rows.len() > 15;
    table
}
