//! When how many vCPUs were active in a run, and which decisions made it so.

use crate::show::{
    Axis, Body, Chart, Extent, Look, MUTED, Mark, Part, Plane, Row, SERIES, Shape, number, table as rows,
};
use crate::text::{count, program, time};
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

impl Event<'_> {
    fn moves(&self) -> bool {
        matches!(self.action, "deactivate" | "activate" | "activate-all")
    }
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
pub(super) fn chart(report: &RunReport) -> Chart {
    const DOWN: Look = Look(SERIES[0], Shape::Triangle);
    const UP: Look = Look(SERIES[1], Shape::Circle);
    const RETENTION: Look = Look(MUTED, Shape::Diamond);
    let events = events(report);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let steps: Vec<&Event<'_>> = events.iter().filter(|event| event.moves()).collect();
    let least = steps.iter().map(|event| event.active).min().unwrap_or(report.vcpus);
    let told = steps.iter().map(|Event { at_ns, action, vcpus, active, .. }| {
        format!("{}: {action} {vcpus}, {active} active", time(*at_ns))
    });
    let mut line = vec![(0.0, report.vcpus as f64)];
    for event in &steps {
        let before = line.last().map_or(0.0, |&(_, active)| active);
        line.extend([(seconds(event.at_ns), before), (seconds(event.at_ns), event.active as f64)]);
    }
    line.push((seconds(report.wall_ns), line.last().map_or(0.0, |&(_, active)| active)));
    let marks = (1..).zip(&events).map(|(number, event)| {
        let (name, look) = match event.action {
            "deactivate" => ("vCPU deactivated", DOWN),
            "activate" | "activate-all" => ("vCPU given back", UP),
            _ => ("retention begun or ended", RETENTION),
        };
        let y = if event.moves() { event.active as f64 } else { 0.0 };
        let note = if number <= MOST_NUMBERED { number.to_string() } else { String::new() };
        (seconds(event.at_ns), Mark::new(y, name, look), note)
    });
    let vcpus = report.vcpus.max(1) as f64;
    Chart {
        title: format!(
            "{}: between {least} and {} vCPUs were active, {:.2} on average",
            program(&report.command),
            report.vcpus,
            report.active_vcpus_mean
        ),
        caption: caption(report, events.len()),
        x: Axis::new(
            "seconds since the program's exec",
            number,
            Extent::Exactly(0.0, seconds(report.wall_ns).max(1e-9)),
        ),
        body: Body::Plane(Plane {
            y: Axis::new("active vCPUs", number, Extent::Whole(0.0, vcpus + 0.9, 8)),
            height: 300,
            description: told.collect::<Vec<String>>().join("; "),
            paths: vec![(line, SERIES[0], 2)],
            marks: marks.collect(),
        }),
    }
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

/// The decisions with their reasons, numbered as in the chart.
pub(super) fn table(report: &RunReport, of: &str) -> Option<Part> {
    let row = |(number, event): (u64, Event<'_>)| {
        Row::default()
            .number("no.", number)
            .time("after", event.at_ns)
            .text("decision", event.action)
            .text("vCPU", event.vcpus)
            .number("vCPUs active then", event.active)
            .text("reason", event.reason)
    };
    rows(format!("Decisions in {of}"), (1..).zip(events(report)).map(row)).map(|part| part.folded(15))
}
