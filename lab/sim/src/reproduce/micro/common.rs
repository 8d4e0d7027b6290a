//! What all results of this paper share: the machine's description, and when a ratio is larger or smaller.

use super::bed::{REFILL_SOURCE, costs};
use super::parsec::PARSEC;

/// What all of them have in common.
pub(super) fn parameters() -> Vec<(String, String)> {
    let costs = costs();
    let named = |name: &str, value: String| (name.to_owned(), value);
    let mut all = vec![
        named("host", "4 pCPUs (one socket of a Xeon E5620), Xen 4.2 credit, 4 vCPUs a VM, free to move".to_owned()),
        named("pause_loop_exits", "after 1700 ns, plain yields, as in Xen 4.2".to_owned()),
        named(
            "programs",
            "Bienia et al. (PACT'08) Table 1, simlarge; one instruction a cycle at 2.4 GHz (ours)".to_owned(),
        ),
    ];
    let described = costs.described();
    let used = described.iter().filter(|cost| cost.ns > 0);
    all.extend(used.map(|cost| match cost.name {
        "cache_refill_ns" => (cost.name.to_owned(), format!("{} ({})", cost.ns, REFILL_SOURCE)),
        name => (name.to_owned(), format!("{} ({})", cost.ns, cost.source)),
    }));
    all.extend(PARSEC.iter().map(|program| (program.name.clone(), program.source.clone())));
    all
}

/// A ratio has to differ from 1 by more than this to be larger or smaller: runs differ by less.
const CLEARLY: f64 = 0.02;

pub(super) fn falls(ratio: f64) -> bool {
    ratio < 1.0 - CLEARLY
}

pub(super) fn rises(ratio: f64) -> bool {
    ratio > 1.0 + CLEARLY
}
