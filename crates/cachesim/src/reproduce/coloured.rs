//! Figure 7: page colouring beside libquantum.

use super::programs::{Class, Mix, PROGRAMS, Program};
use super::{ContextResult, Extent, Progress, ReproduceError, Row, Setup, Source, long, short, simulate};
use rayon::prelude::*;

/// How the last level is shared: the program's share of page colours, and libquantum's.
const SHARES: [(&str, &[u32]); 3] = [("shared", &[]), ("1:1", &[1, 1]), ("2:1", &[2, 1])];

/// The figure that the text gives for bzip2 at 1 ms, not isolated.
const BZIP2: f64 = 1.42;

struct Found {
    program: &'static Program,
    /// Runtime at 1 ms against 30 ms: without isolation, then against the same; by [`SHARES`].
    ratios: [f64; 3],
    /// The same against 30 ms with the same colours: what colours take from the program at any slice is left out.
    own_ratios: [f64; 3],
}

pub(super) fn rows(
    extent: &Extent,
    mixes: &[Mix],
    source: &Source,
    progress: &dyn Progress,
) -> Result<Vec<Row>, ReproduceError> {
    let beside = Program::by_name("libquantum").expect("of Table VI");
    let here = |program: &&Program| mixes.iter().any(|mix| mix.programs.contains(&program.name));
    let programs: Vec<&'static Program> =
        PROGRAMS.iter().filter(|program| program.class != Class::Thrashing).filter(here).collect();
    progress.planned(programs.len() as u64 * 6);
    let tasks: Vec<(&'static Program, Setup)> = programs
        .iter()
        .flat_map(|program| {
            SHARES.iter().flat_map(|(_, shares)| {
                [long(extent), short(extent)].map(|setup| (*program, Setup { colour_shares: shares.to_vec(), ..setup }))
            })
        })
        .collect();
    let results: Vec<Result<Vec<ContextResult>, ReproduceError>> = tasks
        .par_iter()
        .map(|(program, setup)| {
            let results = simulate(&[program, beside], setup, source);
            progress.done();
            results
        })
        .collect();
    let cpi: Vec<f64> =
        results.into_iter().map(|results| results.map(|results| results[0].cpi)).collect::<Result<_, _>>()?;
    let found: Vec<Found> = programs.iter().zip(cpi.chunks(6)).map(|(program, cpi)| found(program, cpi)).collect();
    let mut rows: Vec<Row> = found.iter().flat_map(measured).collect();
    rows.extend(statements(&found));
    Ok(rows)
}

/// `cpi`: 30 ms and 1 ms, for each of [`SHARES`].
fn found(program: &'static Program, cpi: &[f64]) -> Found {
    let ratio = |of: usize, to: usize| cpi[of] / cpi[to];
    Found {
        program,
        ratios: [1, 3, 5].map(|short| ratio(short, 0)),
        own_ratios: [1, 3, 5].map(|short| ratio(short, short - 1)),
    }
}

fn measured(found: &Found) -> Vec<Row> {
    let row = |metric: String, simulated| Row {
        case: format!("{} beside libquantum", found.program.name),
        metric,
        paper: None,
        paper_order: None,
        simulated: Some(simulated),
        agrees: None,
        note: None,
    };
    let ratios = SHARES.iter().zip(found.ratios).map(|((name, _), ratio)| row(format!("{name} runtime_ratio"), ratio));
    let own = SHARES.iter().zip(found.own_ratios).skip(1);
    ratios.chain(own.map(|((name, _), ratio)| row(format!("{name} runtime_ratio_same_colours"), ratio))).collect()
}

fn statements(all: &[Found]) -> Vec<Row> {
    let statement = |case: String, metric: &str, words: &str, simulated, agrees, note: String| Row {
        case,
        metric: metric.to_owned(),
        paper: None,
        paper_order: Some(words.to_owned()),
        simulated: Some(simulated),
        agrees: Some(agrees),
        note: Some(note),
    };
    let mut rows = Vec::new();
    if let Some(bzip2) = all.iter().find(|found| found.program.name == "bzip2") {
        rows.push(Row {
            paper: Some(BZIP2),
            ..statement(
                "bzip2 beside libquantum".to_owned(),
                "shared runtime_ratio",
                "suffers from the reduced time slice with 42 % increase of execution time",
                bzip2.ratios[0],
                bzip2.ratios[0] > 1.1,
                "judged: more than 1.1. The paper's is a real machine with another cache".to_owned(),
            )
        });
    }
    let hurt: Vec<&Found> = all.iter().filter(|found| found.ratios[0] > 1.05).collect();
    for share in [1, 2] {
        let reduced = |found: &&&Found| found.own_ratios[share] - 1.0 < (found.ratios[0] - 1.0) / 2.0;
        let count = hurt.iter().filter(reduced).count();
        rows.push(statement(
            format!("{} programs that 1 ms slows by 0.05 or more", hurt.len()),
            &format!("{} programs_halved", SHARES[share].0),
            "after isolating the cache, the degradation is reduced significantly for most applications",
            count as f64,
            count * 2 > hurt.len(),
            "judged: the slow-down by 1 ms slices with the same colours is below half of that without, for more than half of them".to_owned(),
        ));
    }
    rows
}
