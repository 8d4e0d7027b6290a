//! What the paper's section V-B says in words, each as a row that agrees or does not: the figures that gleaner-papers'
//! files ask for.

use super::matrix::{MixResults, Technique};
use super::programs::kind_name;
use gleaner_papers::{Found, Row, table};

/// No worse than the better of two means by no more than this.
const A_LITTLE: f64 = 0.01;

/// Section V-B's types.
const KINDS: [u32; 6] = [1, 2, 3, 4, 5, 6];

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

    /// The type that it takes away most of.
    fn most(&self, technique: Technique) -> u32 {
        let gain = |kind: &u32| self.gain(*kind, technique);
        KINDS.into_iter().max_by(|one, other| gain(one).total_cmp(&gain(other))).unwrap_or(0)
    }
}

/// On Figure 10.
pub(super) fn cpi(results: &[MixResults]) -> Vec<Row> {
    let types = Types(results);
    if !types.has(&KINDS) {
        return Vec::new();
    }
    let mut found = Found::default();
    for kind in KINDS {
        let saved = [Technique::Dip, Technique::Prefetch].map(|technique| types.gain(kind, technique));
        found.put(format!("{} 1ms", case(kind)), types.cpi(kind, Technique::Short));
        found.put(format!("{} DIP saved", case(kind)), saved[0]);
        found.put(format!("{} prefetch saved", case(kind)), saved[1]);
        found.put(format!("{} changed by either", case(kind)), saved[1].abs().max(saved[0].abs()));
    }
    for technique in [Technique::Dip, Technique::Prefetch] {
        let most = types.most(technique);
        found.put(format!("most by {}", technique.name()), f64::from(most));
        found.put(format!("largest {} saved", technique.name()), types.gain(most, technique));
    }
    let of_5 = |technique| types.cpi(5, technique);
    found.put("DIP ahead of prefetch", of_5(Technique::Prefetch) - of_5(Technique::Dip));
    found.put("SIP-best ahead of DIP", of_5(Technique::Dip) - of_5(Technique::SipBest));
    let share = types.gain(4, Technique::Prefetch) / (types.cpi(4, Technique::Short) - 1.0);
    found.put("share of type-4's loss that prefetch saves", share);
    [table("micro:fig10").rows(&found), combined(&types)].concat()
}

fn combined(types: &Types<'_>) -> Vec<Row> {
    let mut found = Found::default();
    for kind in [4, 5] {
        let of = |technique| types.cpi(kind, technique);
        let better = of(Technique::Prefetch).min(of(Technique::Dip));
        found.put(format!("{} better", case(kind)), better);
        found.put(format!("{} better by a little more", case(kind)), better + A_LITTLE);
        found.put(format!("{} DIP+prefetch", case(kind)), of(Technique::DipPrefetch));
    }
    table("micro:combined").rows(&found)
}

/// On Figure 11.
pub(super) fn requests(results: &[MixResults]) -> Vec<Row> {
    let types = Types(results);
    if !types.has(&KINDS) {
        return Vec::new();
    }
    let requests = |kind, technique| types.mean(kind, |mix| vec![mix.request_ratios(technique).0]);
    let prefetched = |kind, technique| types.mean(kind, |mix| vec![mix.request_ratios(technique).1]);
    let mut found = Found::default();
    let others = [1, 2, 3, 6].map(|kind| requests(kind, Technique::Short)).into_iter().fold(0.0, f64::max);
    found.put("most of the others", others);
    for kind in [4, 5] {
        for technique in [Technique::Short, Technique::Prefetch] {
            found.put(format!("{} {} requests", case(kind), technique.name()), requests(kind, technique));
        }
        for technique in [Technique::Prefetch, Technique::DipPrefetch] {
            found.put(format!("{} {} prefetched", case(kind), technique.name()), prefetched(kind, technique));
        }
    }
    table("micro:fig11").rows(&found)
}

/// Section IV-A on Figure 8.
pub(super) fn pollution(results: &[MixResults]) -> Vec<Row> {
    if !Types(results).has(&KINDS) {
        return Vec::new();
    }
    let (mut more, mut of_memory) = (0.0, 0.0);
    for mix in results {
        for (short, long) in mix.of(Technique::Short).iter().zip(mix.of(Technique::Long)) {
            more += short.cpi / long.cpi - 1.0;
            of_memory += (short.memory_cpi - long.memory_cpi) / long.cpi;
        }
    }
    let mut found = Found::default();
    found.put("share of memory", if more > 0.0 { of_memory / more } else { 0.0 });
    table("micro:fig8").rows(&found)
}

/// On Figure 12.
pub(super) fn four(two: &[MixResults], four: &[MixResults]) -> Vec<Row> {
    let (two, four) = (Types(two), Types(four));
    if !two.has(&[5]) || !four.has(&[5]) {
        return Vec::new();
    }
    let gains = [two.gain(5, Technique::Dip), four.gain(5, Technique::Dip)];
    let mut found = Found::default();
    found.put("two", gains[0]);
    found.put("four", gains[1]);
    found.put("four / two", gains[1] / gains[0]);
    let mut rows = table("micro:fig12").rows(&found);
    if four.has(&[4]) {
        rows.extend(combined(&four));
    }
    rows
}
