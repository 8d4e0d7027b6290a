//! What the paper's section V-B says in words, each as a row that agrees or does not.
//!
//! "Minor", "significant" and "effective" are no numbers. Where one was needed it is stated in the row's note, and is
//! ours.

use super::Row;
use super::matrix::{MixResults, Technique};
use super::programs::kind_name;
use std::ops::RangeInclusive;

/// More than this above 30 ms is not "minor", nor a change beyond it "insignificant".
const MINOR: f64 = 0.05;
/// Ratios nearer than this are equal.
const EQUAL: f64 = 0.005;
/// A gain this many times another is "similar".
const SIMILAR: RangeInclusive<f64> = 0.5..=1.5;

/// A statement: what is compared, the paper's words, the figure found, whether it agrees, and by what that was judged.
fn row(case: impl Into<String>, metric: &str, paper: &str, simulated: f64, agrees: bool, judged: String) -> Row {
    Row {
        case: case.into(),
        metric: metric.to_owned(),
        paper: None,
        paper_order: Some(paper.to_owned()),
        simulated: Some(simulated),
        agrees: Some(agrees),
        note: Some(judged),
    }
}

fn case(kind: u32) -> String {
    format!("type-{kind} ({})", kind_name(kind))
}

/// Means over all contexts of a type's mixes.
struct Types<'a>(&'a [MixResults]);

impl Types<'_> {
    fn has(&self, kinds: &[u32]) -> bool {
        kinds.iter().all(|kind| self.0.iter().any(|mix| mix.mix.kind == *kind))
    }

    fn mean(&self, kind: u32, of: impl Fn(&MixResults) -> Vec<f64>) -> f64 {
        let values: Vec<f64> = self.0.iter().filter(|mix| mix.mix.kind == kind).flat_map(of).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    }

    /// CPI against 30 ms.
    fn cpi(&self, kind: u32, technique: Technique) -> f64 {
        self.mean(kind, |mix| mix.cpi_ratios(technique))
    }

    /// How much of it a technique takes away.
    fn gain(&self, kind: u32, technique: Technique) -> f64 {
        self.cpi(kind, Technique::Short) - self.cpi(kind, technique)
    }

    fn requests(&self, kind: u32, technique: Technique) -> f64 {
        self.mean(kind, |mix| vec![mix.request_ratios(technique).0])
    }

    fn prefetched(&self, kind: u32, technique: Technique) -> f64 {
        self.mean(kind, |mix| vec![mix.request_ratios(technique).1])
    }

    /// The type with the largest value.
    fn largest(of: impl Fn(u32) -> f64) -> u32 {
        (1..=6).max_by(|one, other| of(*one).total_cmp(&of(*other))).unwrap_or(0)
    }
}

/// Section V-B on Figure 10.
pub(super) fn cpi(results: &[MixResults]) -> Vec<Row> {
    let types = Types(results);
    if !types.has(&[1, 2, 3, 4, 5, 6]) {
        return Vec::new();
    }
    let mut rows = little_lost(&types);
    rows.extend(preservation(&types));
    rows.extend(prefetching(&types));
    rows.extend(combined(&types));
    rows
}

fn little_lost(types: &Types<'_>) -> Vec<Row> {
    let (four, five) = (types.cpi(4, Technique::Short), types.cpi(5, Technique::Short));
    let statement = |kind: u32| {
        let ratio = types.cpi(kind, Technique::Short);
        let words = if kind == 6 {
            "negligible performance degradation at 1 ms"
        } else {
            "only minor performance degradation at 1 ms"
        };
        let agrees = ratio - 1.0 <= MINOR && ratio < four && ratio < five;
        let judged = format!("at most {MINOR} above 30 ms, and below type-4's {four:.3} and type-5's {five:.3}");
        row(case(kind), "1ms cpi_ratio", words, ratio, agrees, judged)
    };
    [1, 2, 3, 6].map(statement).to_vec()
}

fn preservation(types: &Types<'_>) -> Vec<Row> {
    let gain = |kind| types.gain(kind, Technique::Dip);
    let (five, three, four) = (gain(5), gain(3), gain(4));
    let best = Types::largest(gain);
    let ahead = types.cpi(5, Technique::Prefetch) - types.cpi(5, Technique::Dip);
    let sip = types.cpi(5, Technique::Dip) - types.cpi(5, Technique::SipBest);
    vec![
        row(
            case(5),
            "DIP cpi_ratio_saved",
            "gains most from preservation",
            five,
            best == 5,
            format!("type-{best}'s is the largest, {:.3}", gain(best)),
        ),
        row(
            case(5),
            "DIP ahead of prefetch, cpi_ratio",
            "DIP outperforms the context prefetcher",
            ahead,
            ahead > EQUAL,
            format!("more than {EQUAL}"),
        ),
        row(
            case(3),
            "DIP cpi_ratio_saved",
            "also benefits from preservation, though much less than type-5",
            three,
            three > 0.0 && three < five / 2.0,
            format!("above 0, below half of type-5's {five:.3}"),
        ),
        row(
            case(4),
            "DIP cpi_ratio_saved",
            "preservation does not improve it significantly",
            four,
            four <= MINOR,
            format!("at most {MINOR}"),
        ),
        row(
            case(5),
            "SIP-best ahead of DIP, cpi_ratio",
            "SIP-best is the ideal of the insertion policy",
            sip,
            sip >= -EQUAL,
            format!("not behind by more than {EQUAL}"),
        ),
    ]
}

fn prefetching(types: &Types<'_>) -> Vec<Row> {
    let gain = |kind| types.gain(kind, Technique::Prefetch);
    let best = Types::largest(gain);
    let share = gain(4) / (types.cpi(4, Technique::Short) - 1.0);
    let mut rows = vec![
        row(
            case(4),
            "prefetch cpi_ratio_saved",
            "the prefetcher effectively reduces the degradation, preservation does not",
            gain(4),
            gain(4) > EQUAL && gain(4) > types.gain(4, Technique::Dip),
            format!("more than {EQUAL}, and than preservation's {:.3}", types.gain(4, Technique::Dip)),
        ),
        row(
            case(4),
            "prefetch cpi_ratio_saved",
            "gains most from prefetching",
            gain(4),
            best == 4,
            format!("type-{best}'s is the largest, {:.3}", gain(best)),
        ),
        row(
            case(4),
            "prefetch saved_share_ratio",
            "the performance improvement even with the prefetcher is relatively limited",
            share,
            share < 0.5,
            "less than half of the degradation is taken away".to_owned(),
        ),
    ];
    rows.extend([1, 2, 3].map(|kind| {
        let most = gain(kind).abs().max(types.gain(kind, Technique::Dip).abs());
        row(
            case(kind),
            "prefetch or DIP, cpi_ratio_saved",
            "neither affects the performance significantly",
            most,
            most <= MINOR,
            format!("at most {MINOR}"),
        )
    }));
    rows
}

fn combined(types: &Types<'_>) -> Vec<Row> {
    let statement = |kind: u32| {
        let of = |technique| types.cpi(kind, technique);
        let better = of(Technique::Prefetch).min(of(Technique::Dip));
        let both = of(Technique::DipPrefetch);
        row(
            case(kind),
            "DIP+prefetch cpi_ratio",
            "combining both covers type-4 and type-5 effectively",
            both,
            both <= better + MINOR / 5.0,
            format!("no worse than the better of the two, {better:.3}, by more than {}", MINOR / 5.0),
        )
    };
    [4, 5].map(statement).to_vec()
}

/// Section V-B on Figure 11.
pub(super) fn requests(results: &[MixResults]) -> Vec<Row> {
    let types = Types(results);
    if !types.has(&[1, 2, 3, 4, 5, 6]) {
        return Vec::new();
    }
    let mut rows = Vec::new();
    let others = [1, 2, 3, 6].map(|kind| types.requests(kind, Technique::Short)).into_iter().fold(0.0, f64::max);
    for kind in [4, 5] {
        let at_1ms = types.requests(kind, Technique::Short);
        rows.push(row(
            case(kind),
            "1ms requests_ratio",
            "memory requests at 1 ms increase significantly",
            at_1ms,
            at_1ms > 1.0 + MINOR && at_1ms > others,
            format!("more than {MINOR} above 30 ms, and than the most of types 1, 2, 3 and 6, {others:.3}"),
        ));
        let further = types.requests(kind, Technique::Prefetch);
        rows.push(row(
            case(kind),
            "prefetch requests_ratio",
            "context prefetching further increases memory bandwidth usage",
            further,
            further > at_1ms,
            format!("more than without, {at_1ms:.3}"),
        ));
        let (alone, with_dip) =
            (types.prefetched(kind, Technique::Prefetch), types.prefetched(kind, Technique::DipPrefetch));
        rows.push(row(
            case(kind),
            "DIP+prefetch prefetched_ratio",
            "preservation effectively reduces the number of prefetches",
            with_dip,
            with_dip < alone,
            format!("fewer than without preservation, {alone:.3}"),
        ));
    }
    rows
}

/// Section IV-A on Figure 8.
pub(super) fn pollution(results: &[MixResults]) -> Vec<Row> {
    if !Types(results).has(&[1, 2, 3, 4, 5, 6]) {
        return Vec::new();
    }
    let (mut more, mut of_memory) = (0.0, 0.0);
    for mix in results {
        for (short, long) in mix.of(Technique::Short).iter().zip(mix.of(Technique::Long)) {
            more += short.cpi / long.cpi - 1.0;
            of_memory += (short.memory_cpi - long.memory_cpi) / long.cpi;
        }
    }
    let share = if more > 0.0 { of_memory / more } else { 0.0 };
    vec![row(
        "all mixes",
        "share_of_memory_ratio",
        "almost all of the overhead of 1 ms slices results from cache pollution; the rest of the CPI stays",
        share,
        share >= 0.8,
        "waiting for memory is at least 0.8 of what 1 ms adds, of the sum of all contexts' CPIs, each divided by its CPI at 30 ms. \
         Nearly by construction: the base CPI is fixed, and the ROB hides hits in the L3"
            .to_owned(),
    )]
}

/// Section V-B on Figure 12.
pub(super) fn four(two: &[MixResults], four: &[MixResults]) -> Vec<Row> {
    let (two, four) = (Types(two), Types(four));
    if !two.has(&[5]) || !four.has(&[5]) {
        return Vec::new();
    }
    let gains = [two.gain(5, Technique::Dip), four.gain(5, Technique::Dip)];
    let share = gains[1] / gains[0];
    let mut rows = vec![
        row(
            case(5),
            "DIP saved_of_two_contexts_ratio",
            "similar performance improvements as with two contexts",
            share,
            gains[0] > EQUAL && SIMILAR.contains(&share),
            format!(
                "{:.3} of the CPI at 30 ms is saved, two contexts' {:.3} times {} to {}",
                gains[1],
                gains[0],
                SIMILAR.start(),
                SIMILAR.end()
            ),
        ),
        row(
            case(5),
            "DIP cpi_ratio_saved",
            "the improvement is reduced, since several cache-friendly contexts compete",
            gains[1],
            gains[1] < gains[0],
            format!("less than two contexts' {:.3}", gains[0]),
        ),
    ];
    if four.has(&[4]) {
        rows.extend(combined(&four));
    }
    rows
}
