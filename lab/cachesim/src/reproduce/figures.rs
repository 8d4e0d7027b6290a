//! Figures 8, 10, 11 and 12: rows for every mix.

use super::matrix::{self, MixResults, Technique};
use super::programs::{MIXES, Mix};
use super::result::{Extent, Figure, Progress, ReproduceError};
use super::source::Source;
use super::statements;
use gleaner_papers::Row;

pub(super) fn rows(
    figure: Figure,
    extent: &Extent,
    mixes: &[Mix],
    source: &Source,
    progress: &dyn Progress,
) -> Result<Vec<Row>, ReproduceError> {
    let run = |mixes: &[Mix], techniques: &[Technique], copies| {
        matrix::run(mixes, techniques, copies, extent, source, progress)
    };
    Ok(match figure {
        Figure::Eight => {
            let results = run(mixes, &[Technique::Short], 1)?;
            [pollution(&results), statements::pollution(&results)].concat()
        }
        Figure::Ten => {
            let results = run(mixes, &Technique::COMPARED, 1)?;
            [cpi(&results), statements::cpi(&results)].concat()
        }
        Figure::Eleven => {
            let techniques: Vec<Technique> =
                Technique::COMPARED.into_iter().filter(|technique| *technique != Technique::SipBest).collect();
            let results = run(mixes, &techniques, 1)?;
            [requests(&results), statements::requests(&results)].concat()
        }
        Figure::Twelve | Figure::Seven => {
            let four = run(mixes, &Technique::COMPARED, 2)?;
            // What its type-5 mixes are compared with.
            let fives: Vec<Mix> = MIXES.into_iter().filter(|mix| mix.kind == 5 && mixes.contains(mix)).collect();
            let two = run(&fives, &[Technique::Short, Technique::Dip], 1)?;
            [cpi(&four), statements::four(&two, &four)].concat()
        }
    })
}

/// `mix-12 A gcc`, or `mix-12 A2 gcc` for the second of two.
fn case(mix: &Mix, context: usize, contexts: usize) -> String {
    let program = context % 2;
    let copy = if contexts > 2 { (context / 2 + 1).to_string() } else { String::new() };
    format!("mix-{} {}{copy} {}", mix.number, ["A", "B"][program], mix.programs[program])
}

fn cpi(results: &[MixResults]) -> Vec<Row> {
    let mut rows = Vec::new();
    for mix in results {
        for technique in Technique::COMPARED {
            let ratios = mix.cpi_ratios(technique);
            rows.extend(ratios.iter().enumerate().map(|(context, ratio)| {
                Row::measured(case(&mix.mix, context, ratios.len()), format!("{} cpi_ratio", technique.name()), *ratio)
            }));
        }
    }
    // One context after the other, for whoever reads them.
    rows.sort_by_key(|row| order(&row.case));
    rows
}

/// By mix number, then by context.
fn order(case: &str) -> (u32, String) {
    let mut words = case.split_whitespace();
    let mix = words.next().and_then(|mix| mix.strip_prefix("mix-")).and_then(|number| number.parse().ok());
    (mix.unwrap_or(0), words.next().unwrap_or_default().to_owned())
}

fn requests(results: &[MixResults]) -> Vec<Row> {
    let mut rows = Vec::new();
    for mix in results {
        let case = format!("mix-{} {}", mix.mix.number, mix.mix.programs.join("+"));
        for technique in Technique::COMPARED.into_iter().filter(|technique| *technique != Technique::SipBest) {
            let (all, extra) = mix.request_ratios(technique);
            rows.push(Row::measured(case.clone(), format!("{} requests_ratio", technique.name()), all));
            if technique.name().contains("prefetch") {
                rows.push(Row::measured(case.clone(), format!("{} prefetched_ratio", technique.name()), extra));
            }
        }
    }
    rows
}

fn pollution(results: &[MixResults]) -> Vec<Row> {
    let mut rows = Vec::new();
    for mix in results {
        for context in 0..2 {
            let case = case(&mix.mix, context, 2);
            for technique in [Technique::Long, Technique::Short] {
                let Some(result) = mix.of(technique).get(context) else { continue };
                rows.push(Row::measured(case.clone(), format!("{} cpi", technique.name()), result.cpi));
                rows.push(Row::measured(
                    case.clone(),
                    format!("{} cpi_of_memory", technique.name()),
                    result.memory_cpi,
                ));
            }
        }
    }
    rows
}
