//! `gleaner-lab sim list`.

use clap::Args;
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_model::Nanos;
use gleaner_sim::program::catalogue;
use gleaner_sim::{CostDescription, Costs};
use serde::Serialize;
use std::fmt;

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Debug, Serialize)]
struct SimList {
    schema: &'static str,
    programs: Vec<Program>,
    schedulers: Vec<Scheduler>,
    costs: Vec<Preset>,
}

#[derive(Debug, Serialize)]
struct Program {
    name: &'static str,
    meaning: &'static str,
    granularity_ns: u64,
}

#[derive(Debug, Serialize)]
struct Scheduler {
    name: &'static str,
    meaning: &'static str,
}

#[derive(Debug, Serialize)]
struct Preset {
    name: &'static str,
    values: Vec<CostDescription>,
}

const SCHEDULERS: [(&str, &str); 7] = [
    (
        "eevdf",
        "Linux since 6.6: earliest virtual deadline, slices of 3 ms that end at ticks of 4 ms unless enforced = true",
    ),
    ("cfs", "Linux before 6.6: a window of 24 ms for all, at least 3 ms each, wake-ups preempt"),
    ("powervm", "PowerVM: a dispatch window of 10 ms, at least 1 ms each"),
    ("credit", "Xen: slices of 30 ms, boost for whoever wakes with credit"),
    ("round-robin", "fixed slices in turn, no preemption by wake-ups"),
    ("dedicated", "each vCPU has a pCPU for itself"),
    ("native", "no hypervisor"),
];

pub fn main(args: &ListArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let preset = |name, costs: Costs| Preset { name, values: costs.described() };
    let programs = catalogue::ALL.iter();
    let list = SimList {
        schema: "gleaner.sim-list/1",
        programs: programs
            .map(|p| Program { name: p.name, meaning: p.meaning, granularity_ns: p.granularity })
            .collect(),
        schedulers: SCHEDULERS.map(|(name, meaning)| Scheduler { name, meaning }).into(),
        costs: vec![
            preset("kvm-2014", Costs::KVM_2014),
            preset("native-2014", Costs::NATIVE_2014),
            preset("xen-2014", Costs::XEN_2014),
        ],
    };
    output.json(&list)?;
    output.text(&list);
    Ok(0)
}

impl fmt::Display for SimList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Programs (granularity unless told otherwise):")?;
        for Program { name, meaning, granularity_ns } in &self.programs {
            writeln!(f, "  {name:14} {:>7}  {meaning}", Nanos(*granularity_ns).to_string())?;
        }
        writeln!(f, "\nSchedulers of the host ([simulator] scheduler = ...):")?;
        for Scheduler { name, meaning } in &self.schedulers {
            writeln!(f, "  {name:14} {meaning}")?;
        }
        let names: Vec<&str> = self.costs.iter().map(|preset| preset.name).collect();
        writeln!(f, "\nCosts in {} (costs = ...; single ones with cost_ns = {{ ipi_ns = 5000 }}):", names.join(", "))?;
        let Some(first) = self.costs.first() else { return Ok(()) };
        for (at, cost) in first.values.iter().enumerate() {
            let values: Vec<String> =
                self.costs.iter().map(|preset| format!("{:>7}", Nanos(preset.values[at].ns).to_string())).collect();
            writeln!(f, "  {:20} {}  {} [{}]", cost.name, values.join(" "), cost.meaning, cost.source)?;
        }
        Ok(())
    }
}
