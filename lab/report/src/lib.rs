//! What the simulators and the test bed found: the JSON that other programs read (`gleaner.scenario/1`,
//! `gleaner.sim/1`,
//! `gleaner.reproduction/1` and others), and the same in plain words.
//!
//! The rules are those of `gleaner_report`, whose documents are printed and laid out on a page here too.

mod reproduction;
mod scenario;
mod sim;

pub use reproduction::{ReproductionParameter, ReproductionReport, ReproductionRow};
pub use scenario::{
    BackgroundRate, DeliveredSlices, HostFacts, InTurnRun, InTurnSlice, InTurnVm, MetricFound, MetricMedian,
    RatioSpread, RunFigures, ScenarioReport, ScenarioRow, ScenarioRun, SliceTurn, SoloRun, VmFacts,
};
pub use sim::{SimCost, SimHost, SimReport, SimRow, SimRun, SimVm};

use gleaner_report::html::{Known, alone};

gleaner_report::contracts! {
    ReproductionReport: "gleaner.reproduction/1",
    ScenarioReport: "gleaner.scenario/1",
    SimReport: "gleaner.sim/1",
}

/// The results that a page can show, in the order of their kinds.
pub const KNOWN: &[Known] = &[
    (ScenarioReport::SCHEMA, "gleaner-lab bed run --json FILE", alone::<ScenarioReport>),
    (SimReport::SCHEMA, "gleaner-lab sim run --json FILE", alone::<SimReport>),
    (ReproductionReport::SCHEMA, "gleaner-lab sim (or cache) reproduce --json FILE", alone::<ReproductionReport>),
];
