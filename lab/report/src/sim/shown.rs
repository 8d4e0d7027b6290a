//! What `gleaner.sim/1` shows: policies against the first one, round by round, and where the vCPUs' time went.

use super::{SimCost, SimReport, SimRow, SimRun, SimVm};
use gleaner_report::show::{Axis, Bar, Chart, Document, Mark, Part, Row, Shown, fact, line, nth, table, verdict};
use gleaner_report::text::{count, distinct, interval, percent, time};
use serde_json::Value;

/// Rows of one figure; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;
/// Rows told at the top of the page.
const MOST_TOLD: usize = 12;

/// What the page explains.
const TERMS: &[&str] = &["policy", "vCPU", "steal", "retained", "halt"];

impl Shown for SimReport {
    fn document(&self) -> Document {
        let mut document = Document { terms: TERMS, ..Document::new(format!("{}, simulated", self.scenario)) };
        let host = &self.host;
        let pcpus = format!("{} under {}", count(u64::from(host.pcpus), "pCPU"), host.scheduler);
        let slice = host.slice_ns.map_or_else(String::new, |ns| format!(", slices of {}", time(ns)));
        document.both(line(format!("{}: simulated on {pcpus}{slice}", self.scenario)));
        let set = |(key, value): (&String, &Value)| match value.as_str() {
            Some(word) => format!("{key}={word}"),
            None => format!("{key}={value}"),
        };
        let set: Vec<String> = self.set.iter().map(set).collect();
        document.both((!set.is_empty()).then(|| line(format!("Set: {}", set.join(", ")))));
        document.page(self.told());
        document.page(RATIOS.iter().flat_map(|ratio| self.charts(ratio)).map(Part::from));
        document.both(self.rows_table());
        document.page(self.tables());
        document.page([
            fact("simulated host", pcpus),
            fact("slice", host.slice_ns.map_or_else(|| "the scheduler's own".to_owned(), time)),
            fact("halt polling", if host.halt_poll_ns == 0 { "none".to_owned() } else { time(host.halt_poll_ns) }),
            fact("pause-loop exits", if host.ple { "yes" } else { "no" }),
            fact("seed", format!("{} in the first round, the next in each further one", self.seed)),
        ]);
        document.both(self.cut_off().into_iter().map(line));
        let events: u64 = self.runs.iter().map(|run| run.events).sum();
        document.both(line(format!("{}, {events} events.", count(self.runs.len() as u64, "simulation"))));
        document
    }
}

impl SimRow {
    fn named(&self) -> Row {
        Row::default()
            .text("machine", &self.vm)
            .text("workload", &self.workload)
            .text("beside", &self.beside)
            .text("policy", choice(self))
    }
}

/// What was chosen for it: the policy, and the slice where slices are compared.
fn choice(row: &SimRow) -> String {
    row.slice.as_ref().map_or_else(|| row.policy.clone(), |slice| format!("{} at {slice}", row.policy))
}

fn case(row: &SimRow) -> String {
    format!("{} {} beside {}", row.vm, row.workload, row.beside)
}

impl SimReport {
    /// Runs that did not come to their end, and what one round is worth.
    fn cut_off(&self) -> Vec<String> {
        let cut = self.runs.iter().filter(|run| !run.complete).count() as u64;
        let cut = (cut > 0).then(|| {
            let cut = count(cut, "run");
            format!("{cut} ended at run_timeout before the measured work was done; rates count until then.")
        });
        let compared = |row: &SimRow| row.speedup.is_some() && row.policy != self.rows[0].policy;
        let one = (self.runs.iter().all(|run| run.round == 0) && self.rows.iter().any(compared))
            .then(|| "One round shows nothing: seeds differ. --seeds 5 gives medians of five.".to_owned());
        [cut, one].into_iter().flatten().collect()
    }

    /// What the page says first.
    fn told(&self) -> Vec<Part> {
        let compared: Vec<(&SimRow, f64)> = self.others().filter_map(|row| Some((row, row.speedup?))).collect();
        let mut told = Vec::new();
        told.extend(compared.iter().take(MOST_TOLD).map(|(row, speedup)| {
            let first = self.base(row).map_or_else(String::new, choice);
            let speedup = interval(*speedup, self.spread(row, &RATIOS[0]));
            let (case, choice) = (case(row), choice(row));
            verdict(format!("{case}: under {choice} {speedup} times the throughput of {first}."))
        }));
        let more = compared.len().saturating_sub(MOST_TOLD) as u64;
        let more = (more > 0).then(|| count(more, "other comparison"));
        told.extend(more.map(|more| line(format!("And {more}: the figures have them all."))));
        told
    }

    /// The row that this one is compared with: the first policy of the same virtual machine, workload and neighbours.
    fn base(&self, row: &SimRow) -> Option<&SimRow> {
        let same =
            |other: &&SimRow| (&other.vm, &other.workload, &other.beside) == (&row.vm, &row.workload, &row.beside);
        self.rows.iter().find(same)
    }

    /// Rows that are compared: the first policy against itself says nothing.
    fn others(&self) -> impl Iterator<Item = &SimRow> {
        self.rows.iter().filter(|row| self.base(row) != Some(row))
    }

    /// The least and the greatest ratio of any round; `None` where there is one round only.
    fn spread(&self, row: &SimRow, ratio: &Ratio) -> Option<[f64; 2]> {
        let first = self.base(row)?;
        let ratios: Vec<f64> = runs(self, row)
            .filter_map(|(run, vm)| {
                let (base_run, base_vm) = runs(self, first).find(|(other, _)| other.round == run.round)?;
                let base = (ratio.of_run)(base_run, base_vm);
                (base > 0.0).then(|| (ratio.of_run)(run, vm) / base)
            })
            .filter(|ratio| ratio.is_finite())
            .collect();
        let (least, greatest) = (ratios.iter().copied().reduce(f64::min)?, ratios.iter().copied().reduce(f64::max)?);
        (ratios.len() > 1).then_some([least, greatest])
    }

    fn charts(&self, ratio: &Ratio) -> Vec<Chart> {
        let policies = distinct(self.rows.iter().map(|row| row.policy.as_str()));
        let bar = |row: &SimRow| {
            let place = policies.iter().position(|known| *known == row.policy).unwrap_or(0);
            let mark = Mark::new((ratio.of)(row)?, &row.policy, nth(place));
            Some(Bar::ratio(format!("{}, {}", case(row), choice(row)), mark, self.spread(row, ratio)))
        };
        let bars: Vec<Bar> = self.others().filter_map(bar).collect();
        let title = format!("{}: {}", self.scenario, ratio.title);
        let chart = |bars: &[Bar]| {
            Chart::rows(&title, ratio.caption, Axis::ratios(ratio.axis), bars.to_vec())
                .at((1.0, "1: as with the first policy".to_owned()))
        };
        bars.chunks(MOST_ROWS).map(chart).collect()
    }

    fn rows_table(&self) -> Option<Part> {
        let title = "Per machine, workload, neighbours and policy (medians over rounds; in brackets the least and the \
                     greatest round)";
        let rows = self.rows.iter().map(|row| {
            let told = |value: Option<f64>, ratio| value.map(|value| interval(value, self.spread(row, ratio)));
            row.named()
                .fixed("items/s", row.items_per_s, 1)
                .number("speedup", told(row.speedup, &RATIOS[0]))
                .number("neighbours", told(row.beside_speedup, &RATIOS[1]))
        });
        table(title, rows)
    }

    fn tables(&self) -> impl Iterator<Item = Part> {
        let times = self.rows.iter().filter_map(|row| {
            let (_, vm) = runs(self, row).next()?;
            let parts = [
                ("ran", vm.work_ns),
                ("guest kernel", vm.kernel_ns),
                ("retained", vm.retained_ns),
                ("polled", vm.polled_ns),
                ("host switches", vm.overhead_ns),
                ("stolen", vm.stolen_ns),
                ("halted", vm.halted_ns),
            ];
            let all: f64 = parts.iter().map(|(_, ns)| *ns as f64).sum();
            let share =
                |row: Row, (name, ns): &(&str, u64)| row.number(*name, (all > 0.0).then(|| percent(*ns as f64 / all)));
            let row = parts.iter().fold(row.named(), share);
            Some(row.number("halts", vm.halts).fixed("active vCPUs", vm.active_vcpus_mean, 2))
        });
        let cost = |SimCost { name, value_ns, meaning }: &SimCost| {
            Row::default().text("cost", name).time("time", *value_ns).text("paid for", meaning)
        };
        let tables = [
            table("Where the measured machines' vCPU time went, in the first round", times).map(|part| part.folded(12)),
            table("What things cost in this simulation", self.costs.iter().map(cost)).map(|part| part.folded(0)),
        ];
        tables.into_iter().flatten()
    }
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
