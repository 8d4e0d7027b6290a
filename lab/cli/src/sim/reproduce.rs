//! `gleaner-lab sim reproduce`: both papers' scheduling results, simulated.

use super::progress;
use clap::Args;
use clap::builder::PossibleValuesParser;
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_lab_report::{ReproductionParameter, ReproductionReport, ReproductionRow};
use gleaner_sim::reproduce::{Extent, IDS, Reproduced, Row, reproduce};

/// Stands for every identifier.
const ALL: &str = "all";

#[derive(Debug, Args)]
#[command(after_help = "Of the Gleaner paper (ATC'14):\n\
                  \x20 gleaner:table1  dedup natively, in a virtual machine, and beside another one\n\
                  \x20 gleaner:table2  what a wake-up takes\n\
                  \x20 gleaner:fig1    slowdowns against idle transitions\n\
                  \x20 gleaner:fig2    how much the neighbour matters\n\
                  \x20 gleaner:fig5    slowdowns with and without Gleaner, one virtual machine\n\
                  \x20 gleaner:fig7    speedups and throughput with Gleaner, two virtual machines\n\
                  \x20 gleaner:fig8    MySQL by connections\n\
                  \x20 gleaner:fig9    dedup and MySQL by virtual machines\n\
                  Of the micro-sliced paper (MICRO'14): micro:table1, fig2, fig3, fig5, fig6, fig9; its cache figures are \
                  `gleaner-lab cache reproduce`'s.\n\n\
                  A figure agrees within 25 % of the paper's, a statement by the criterion in its note. `predicted` means that nothing \
                  of the row was fitted. docs/research.md has the models, the calibration and what disagrees.\n\n\
                  Examples:\n\
                  \x20 gleaner-lab sim reproduce gleaner:table2\n\
                  \x20 gleaner-lab sim reproduce all --json reproductions.json")]
pub struct ReproduceArgs {
    /// Which table or figure, or all of them
    #[arg(value_name = "ID", value_parser = PossibleValuesParser::new(IDS.iter().copied().chain([ALL])))]
    id: String,
    /// Shorten everything: shows that it runs, and is no result
    #[arg(long)]
    smoke: bool,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    json: JsonArg,
}

pub fn main(args: &ReproduceArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let extent = Extent { smoke: args.smoke, seed: args.seed };
    let ids = IDS.iter().copied().filter(|id| args.id == ALL || args.id == *id).collect::<Vec<_>>();
    let bar = progress(ids.len());
    let mut reports = Vec::new();
    for id in ids {
        bar.set_message(id);
        reports.push(report(id, reproduce(id, &extent).map_err(Failure::work)?, extent));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if args.id != ALL
        && let Some(report) = reports.first()
    {
        output.json(report)?;
        output.text(report);
        return Ok(0);
    }
    output.json(&reports)?;
    for report in &reports {
        output.text(report);
    }
    output.text(&Summary(reports));
    Ok(0)
}

/// A row as results have it; `based` where it matters whether anything was fitted.
pub fn row(row: Row, smoke: bool, based: bool) -> ReproductionRow {
    ReproductionRow {
        error_ratio: row.error_ratio().filter(|_| based),
        case: row.case,
        metric: row.metric,
        paper: row.paper,
        paper_order: row.paper_order,
        simulated: row.simulated,
        calibrated: None,
        agrees: row.agrees,
        smoke,
        note: row.note,
        basis: based.then(|| row.basis.name().to_owned()),
    }
}

fn report(id: &str, reproduced: Reproduced, extent: Extent) -> ReproductionReport {
    let parameter = |(name, value): (String, String)| ReproductionParameter { name, value };
    ReproductionReport {
        schema: ReproductionReport::SCHEMA.to_owned(),
        id: id.to_owned(),
        title: reproduced.title,
        smoke: extent.smoke,
        parameters: reproduced.parameters.into_iter().map(parameter).collect(),
        rows: reproduced.rows.into_iter().map(|one| row(one, extent.smoke, true)).collect(),
        notes: reproduced.notes,
    }
}

/// All identifiers in a line each.
struct Summary(Vec<ReproductionReport>);

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let agree = |report: &ReproductionReport| {
            (report.predicted().filter(|row| row.agrees == Some(true)).count(), report.predicted().count())
        };
        for report in &self.0 {
            let (agrees, of) = agree(report);
            let fitted = report.compared().count() - of;
            writeln!(f, "{:<16}{agrees} of {of} predicted rows agree; {fitted} calibrated", report.id)?;
        }
        let sum = self.0.iter().map(agree).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        writeln!(f, "{} of {} predicted rows agree.", sum.0, sum.1)
    }
}
