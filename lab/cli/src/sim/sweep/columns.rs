//! A point's rows: one for each VM, what was swept first, then everything that its simulation says.

use super::axis::Axis;
use super::grid::Point;
use super::table::{Cell, Column};
use crate::sim::results::beside_label;
use gleaner_lab_report::{SimRun, SimVm};
use serde_json::Value;
use std::time::Duration;
use toml::Value as Toml;

/// The swept parameters' columns: their name, and a cell for each value.
#[derive(Debug)]
pub struct Columns {
    swept: Vec<(String, String, Vec<Cell>)>,
}

/// A column of what came out.
type Figure = (&'static str, fn(&SimRun, &SimVm) -> Cell);

const FIGURES: [Figure; 31] = [
    ("vcpus", |_, vm| Cell::Count(Some(vm.vcpus.into()))),
    ("end_ns", |run, _| Cell::Count(Some(run.end_ns))),
    ("complete", |run, _| Cell::Truth(run.complete)),
    ("events", |run, _| Cell::Count(Some(run.events))),
    ("pcpu_busy_ratio", |run, _| Cell::Real(Some(run.pcpu_busy_ratio))),
    ("vcpu_switches", |run, _| Cell::Count(Some(run.vcpu_switches))),
    ("wall_ns", |_, vm| Cell::Count(vm.wall_ns)),
    ("items", |_, vm| Cell::Count(Some(vm.items))),
    ("items_per_s", |_, vm| Cell::Real(Some(vm.items_per_s))),
    ("latency_p50_ns", |_, vm| Cell::Count(vm.latency_p50_ns)),
    ("latency_p99_ns", |_, vm| Cell::Count(vm.latency_p99_ns)),
    ("work_ns", |_, vm| Cell::Count(Some(vm.work_ns))),
    ("spun_ns", |_, vm| Cell::Count(Some(vm.spun_ns))),
    ("kernel_ns", |_, vm| Cell::Count(Some(vm.kernel_ns))),
    ("retained_ns", |_, vm| Cell::Count(Some(vm.retained_ns))),
    ("polled_ns", |_, vm| Cell::Count(Some(vm.polled_ns))),
    ("overhead_ns", |_, vm| Cell::Count(Some(vm.overhead_ns))),
    ("stolen_ns", |_, vm| Cell::Count(Some(vm.stolen_ns))),
    ("halted_ns", |_, vm| Cell::Count(Some(vm.halted_ns))),
    ("idle_entries", |_, vm| Cell::Count(Some(vm.idle_entries))),
    ("halts", |_, vm| Cell::Count(Some(vm.halts))),
    ("voluntary_switches", |_, vm| Cell::Count(Some(vm.voluntary_switches))),
    ("involuntary_switches", |_, vm| Cell::Count(Some(vm.involuntary_switches))),
    ("pause_exits", |_, vm| Cell::Count(Some(vm.pause_exits))),
    ("spin_wait_mean_ns", |_, vm| Cell::Count(vm.spin_wait_mean_ns)),
    ("spin_hold_mean_ns", |_, vm| Cell::Count(vm.spin_hold_mean_ns)),
    ("shootdown_mean_ns", |_, vm| Cell::Count(vm.shootdown_mean_ns)),
    ("active_vcpus_mean", |_, vm| Cell::Real(vm.active_vcpus_mean)),
    ("timeout_ns", |_, vm| Cell::Count(vm.timeout_ns)),
    ("decisions_count", |_, vm| Cell::Count(Some(vm.decisions_count))),
    ("role", |_, vm| Cell::text(&vm.role)),
];

impl Columns {
    pub fn of(axes: &[Axis]) -> Self {
        let column = |axis: &Axis| {
            let (column, cells) = cells(axis);
            (axis.key.clone(), column, cells)
        };
        Self { swept: axes.iter().map(column).collect() }
    }

    /// Key, column and values of each parameter.
    pub fn described(&self) -> impl Iterator<Item = (String, String, Vec<Value>)> + '_ {
        let value = |cell: &Cell| match cell {
            Cell::Count(n) => (*n).into(),
            Cell::Real(x) => (*x).into(),
            Cell::Truth(yes) => (*yes).into(),
            Cell::Text(text) => text.clone().into(),
        };
        self.swept
            .iter()
            .map(move |(key, column, cells)| (key.clone(), column.clone(), cells.iter().map(value).collect()))
    }

    /// All columns of a point, a row for each VM.
    pub fn of_point(&self, point: Point<'_>, run: &SimRun) -> Vec<Column> {
        let rows = run.vms.len();
        let same = |name: &str, cell: Cell| Column { name: name.to_owned(), cells: vec![cell; rows] };
        let each = |name: &str, of: &dyn Fn(&SimVm) -> Cell| Column {
            name: name.to_owned(),
            cells: run.vms.iter().map(of).collect(),
        };
        let mut columns = vec![same("point", Cell::Count(Some(point.number as u64)))];
        let swept = self.swept.iter().zip(&point.setting.values);
        columns.extend(swept.map(|((_, column, cells), value)| same(column, cells[*value].clone())));
        let scenario = &point.setting.scenario;
        columns.extend([
            same("scenario", Cell::text(&scenario.name)),
            same("seed", Cell::Count(Some(point.seed))),
            each("vm", &|vm| Cell::text(&vm.vm)),
            each("workload", &|vm| Cell::text(&vm.workload)),
            same("beside", Cell::text(beside_label(scenario, point.combination))),
            each("policy", &|vm| Cell::text(&vm.policy)),
            same("slice", Cell::Text(point.combination.slice.map(|slice| slice.to_string()))),
        ]);
        columns.extend(FIGURES.iter().map(|(name, of)| each(name, &|vm| of(run, vm))));
        columns
    }
}

/// Whole numbers, numbers, truths; times in nanoseconds, as everywhere; else words.
fn cells(axis: &Axis) -> (String, Vec<Cell>) {
    let of = |cell: &dyn Fn(&Toml) -> Option<Cell>| axis.values.iter().map(cell).collect::<Option<Vec<Cell>>>();
    let whole = |value: &Toml| Some(Cell::Count(Some(u64::try_from(value.as_integer()?).ok()?)));
    let real = |value: &Toml| {
        let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64))?;
        number.is_finite().then_some(Cell::Real(Some(number)))
    };
    let truth = |value: &Toml| value.as_bool().map(Cell::Truth);
    let time = |value: &Toml| {
        let time: Duration = humantime::parse_duration(value.as_str()?).ok()?;
        Some(Cell::Count(Some(u64::try_from(time.as_nanos()).ok()?)))
    };
    let key = &axis.key;
    if let Some(cells) = of(&whole).or_else(|| of(&real)).or_else(|| of(&truth)) {
        return (key.clone(), cells);
    }
    match of(&time) {
        Some(cells) => (format!("{key}_ns"), cells),
        None => (key.clone(), axis.values.iter().map(|value| Cell::text(super::axis::word_of(value))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_kind_of_their_values() {
        let of = |text: &str| cells(&Axis::parse(text).unwrap());
        let count = |n| Cell::Count(Some(n));
        let text = |text: &str| Cell::text(text);
        assert_eq!(of("vm.0.vcpus=4,8"), ("vm.0.vcpus".to_owned(), vec![count(4), count(8)]));
        assert_eq!(of("a.slice=30ms,1us"), ("a.slice_ns".to_owned(), vec![count(30_000_000), count(1_000)]));
        assert_eq!(of("x=1,0.5"), ("x".to_owned(), vec![Cell::Real(Some(1.0)), Cell::Real(Some(0.5))]));
        assert_eq!(of("x=true,false"), ("x".to_owned(), vec![Cell::Truth(true), Cell::Truth(false)]));
        assert_eq!(of("x=run,1ms"), ("x".to_owned(), vec![text("run"), text("1ms")]));
        assert_eq!(of("x=[\"off\"],4"), ("x".to_owned(), vec![text("[\"off\"]"), text("4")]));
    }
}
