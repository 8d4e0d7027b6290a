//! The statements about Figures 8, 10, 11 and 12, on made-up results: what agrees, and what it takes to disagree.

use super::matrix::{MixResults, Technique};
use super::programs::{MIXES, Mix};
use super::simulate::ContextResult;
use super::statements;
use Technique::{Dip, DipPrefetch, Long, Prefetch, Short, SipBest};
use gleaner_papers::Row;

/// A context with this CPI and no requests.
pub(super) fn context(cpi: f64) -> ContextResult {
    ContextResult {
        instructions: 1000,
        cpi,
        memory_cpi: 0.0,
        demand_per_instruction: 0.0,
        prefetches_per_instruction: 0.0,
        records_per_instruction: 0.0,
    }
}

/// Results of every mix: CPIs of 2 at 30 ms, and by type and technique what `of` makes of them.
fn results(of: impl Fn(u32, Technique) -> ContextResult) -> Vec<MixResults> {
    let all = [Long].into_iter().chain(Technique::COMPARED);
    let mix = |mix: Mix| {
        MixResults::made_up(mix, all.clone().map(|technique| (technique, vec![of(mix.kind, technique); 2])).collect())
    };
    MIXES.into_iter().map(mix).collect()
}

/// CPI against 30 ms such that everything in the paper's text is true.
fn as_the_paper_says(kind: u32, technique: Technique) -> f64 {
    match (kind, technique) {
        (_, Long) => 1.0,
        (3, Dip | DipPrefetch | SipBest) => 1.03,
        (3, _) => 1.04,
        (4, Prefetch | DipPrefetch) => 1.15,
        (4, Dip | SipBest) => 1.19,
        (4, _) => 1.20,
        (5, Dip | DipPrefetch | SipBest) => 1.10,
        (5, Prefetch) => 1.37,
        (5, _) => 1.40,
        _ => 1.02,
    }
}

/// Figure 10's results, or 12's, with one figure changed.
fn cpis(kind: u32, technique: Technique, ratio: f64) -> Vec<MixResults> {
    results(|of_kind, of| {
        context(2.0 * if (of_kind, of) == (kind, technique) { ratio } else { as_the_paper_says(of_kind, of) })
    })
}

fn unchanged() -> Vec<MixResults> {
    cpis(0, Long, 1.0)
}

/// Whether the one statement with these words about this type agrees.
fn agrees(rows: &[Row], case: &str, words: &str) -> bool {
    let has =
        |row: &&Row| row.case.starts_with(case) && row.paper_order.as_ref().is_some_and(|order| order.contains(words));
    let found: Vec<&Row> = rows.iter().filter(has).collect();
    assert_eq!(found.len(), 1, "{case} '{words}': {found:?}");
    found[0].agrees.unwrap()
}

#[test]
fn each_statement_on_figure_10_agrees_and_can_disagree() {
    let good = statements::cpi(&unchanged());
    assert!(good.iter().all(|row| row.agrees == Some(true)), "{good:#?}");
    for (case, words, technique, ratio) in [
        ("type-1", "only minor", Short, 1.06),
        ("type-2", "only minor", Short, 1.06),
        ("type-3", "only minor", Short, 1.06),
        ("type-6", "negligible", Short, 1.06),
        // Below a twentieth, but not below type-4's and type-5's.
        ("type-4", "only minor", Short, 1.01),
        ("type-4", "gains most from preservation", Dip, 0.85),
        ("type-5", "DIP outperforms", Prefetch, 1.10),
        ("type-3", "also benefits", Dip, 0.85),
        ("type-3", "also benefits", Dip, 1.05),
        ("type-4", "does not improve it significantly", Dip, 1.10),
        ("type-5", "is the ideal", SipBest, 1.12),
        ("type-4", "effectively reduces the degradation", Prefetch, 1.20),
        ("type-4", "effectively reduces the degradation", Dip, 1.14),
        ("type-5", "gains most from prefetching", Prefetch, 1.30),
        ("type-4", "relatively limited", Prefetch, 1.05),
        ("type-1", "neither affects", Dip, 0.95),
        ("type-2", "neither affects", Prefetch, 1.08),
        ("type-3", "neither affects", Prefetch, 0.95),
        ("type-4", "combining both", DipPrefetch, 1.17),
        ("type-5", "combining both", DipPrefetch, 1.12),
    ] {
        let kind = case[5..].parse().unwrap();
        let rows = statements::cpi(&cpis(kind, technique, ratio));
        // What is said of one type may be overturned by another.
        let about = match (case, words) {
            ("type-4", "only minor") => "type-1",
            ("type-4", "gains most from preservation") => "type-5",
            ("type-5", "gains most from prefetching") => "type-4",
            _ => case,
        };
        assert!(agrees(&good, about, words));
        assert!(!agrees(&rows, about, words), "{about} '{words}' with {case} {} {ratio}", technique.name());
    }
}

/// Lines per instruction: demand of 0.010 at 30 ms; (demand, prefetches) by type and technique, with one changed.
fn requests(kind: u32, technique: Technique, changed: (f64, f64)) -> Vec<Row> {
    let lines = |of_kind: u32, of| match (of_kind, of) {
        _ if (of_kind, of) == (kind, technique) => changed,
        (4 | 5, Short) => (0.013, 0.0),
        (4 | 5, Prefetch) => (0.011, 0.004),
        (4 | 5, DipPrefetch) => (0.011, 0.002),
        _ => (0.010, 0.0),
    };
    statements::requests(&results(|kind, technique| {
        let (demand_per_instruction, prefetches) = lines(kind, technique);
        let halved = prefetches / 2.0;
        ContextResult {
            demand_per_instruction,
            prefetches_per_instruction: halved,
            records_per_instruction: halved,
            ..context(2.0)
        }
    }))
}

#[test]
fn each_statement_on_figure_11_agrees_and_can_disagree() {
    let good = requests(0, Long, (0.0, 0.0));
    assert_eq!((good.len(), good.iter().all(|row| row.agrees == Some(true))), (6, true), "{good:#?}");
    for kind in [4, 5] {
        let case = format!("type-{kind}");
        let increase = "at 1 ms increase significantly";
        assert!(!agrees(&requests(kind, Short, (0.0104, 0.0)), &case, increase), "too little");
        assert!(!agrees(&requests(3, Short, (0.014, 0.0)), &case, increase), "another type's is more");
        assert!(!agrees(&requests(kind, Prefetch, (0.010, 0.002)), &case, "further increases"));
        assert!(!agrees(&requests(kind, DipPrefetch, (0.011, 0.005)), &case, "reduces the number of prefetches"));
    }
}

#[test]
fn figure_12_gains_are_similar_and_reduced_or_not() {
    // Two contexts save 0.30 of type 5.
    for (saved, similar, reduced) in [
        (0.10, false, true),
        (0.16, true, true),
        (0.29, true, true),
        (0.31, true, false),
        (0.46, false, false),
        (-0.1, false, true),
    ] {
        let rows = statements::four(&unchanged(), &cpis(5, Dip, 1.40 - saved));
        let found = (agrees(&rows, "type-5", "similar"), agrees(&rows, "type-5", "is reduced"));
        assert_eq!(found, (similar, reduced), "{saved}");
    }
    // Two losses are no similar gains.
    let worse = cpis(5, Dip, 1.5);
    assert!(!agrees(&statements::four(&worse, &worse), "type-5", "similar"));
    for kind in [4, 5] {
        let rows = |ratio| statements::four(&unchanged(), &cpis(kind, DipPrefetch, ratio));
        let verdict = |ratio| agrees(&rows(ratio), &format!("type-{kind}"), "combining both");
        assert_eq!((verdict(1.10), verdict(1.18)), (true, false));
    }
}

#[test]
fn figure_8_wants_the_overhead_to_be_waiting_for_memory() {
    // 1 ms adds 1 to a CPI of 2; so much of it is memory.
    for (of_memory, agrees) in [(0.9, true), (0.7, false)] {
        let rows = statements::pollution(&results(|_, technique| match technique {
            Short => ContextResult { memory_cpi: 0.5 + of_memory, ..context(3.0) },
            _ => ContextResult { memory_cpi: 0.5, ..context(2.0) },
        }));
        assert_eq!((rows.len(), rows[0].agrees), (1, Some(agrees)));
        assert!((rows[0].simulated.unwrap() - of_memory).abs() < 1e-9);
    }
}

#[test]
fn without_all_types_nothing_is_said() {
    let some: Vec<MixResults> = unchanged().into_iter().filter(|mix| mix.mix.kind != 6).collect();
    assert!(statements::cpi(&some).is_empty() && statements::requests(&some).is_empty());
    assert!(statements::pollution(&some).is_empty());
    let fives: Vec<MixResults> = unchanged().into_iter().filter(|mix| mix.mix.kind == 5).collect();
    assert_eq!(statements::four(&fives, &fives).len(), 2);
    assert!(statements::four(&fives, &some[..1]).is_empty());
}
