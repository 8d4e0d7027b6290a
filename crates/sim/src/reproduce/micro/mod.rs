//! The micro-sliced paper's scheduling results (MICRO'14): kernel locks and interrupts of guests on Xen's credit scheduler.
//!
//! ```text
//!   bed      the paper's machine and what a capped solo run is
//!   kernel   sections under ticket locks, ticks, shootdowns        --> parsec   the 13 programs from published counts
//!   table1, fig2, fig3, fig5, fig6, fig9: what is run, and what the paper says about it
//! ```
//!
//! Nothing was fitted. Inputs are the table in `parsec`, Table I's holding times alone, and costs with their sources.

mod bed;
mod kernel;
mod parsec;
mod table1;

use super::{Extent, ReproduceError, Reproduced};

/// `None`: not one of this paper's.
pub fn reproduce(id: &str, extent: &Extent) -> Option<Result<Reproduced, ReproduceError>> {
    match id {
        "micro:table1" => Some(table1::reproduce(extent)),
        _ => None,
    }
}

/// What all of them have in common.
fn parameters() -> Vec<(String, String)> {
    let costs = bed::costs();
    let named = |name: &str, value: String| (name.to_owned(), value);
    let mut all = vec![
        named("host", "4 pCPUs (one socket of a Xeon E5620), Xen credit, 4 vCPUs a VM, none pinned".to_owned()),
        named("ple_window_ns", "1700".to_owned()),
        named(
            "programs",
            "Bienia et al. (PACT'08) Table 1, simlarge; one instruction a cycle at 2.4 GHz (ours)".to_owned(),
        ),
    ];
    let described = costs.described();
    let used = described.iter().filter(|cost| cost.ns > 0);
    all.extend(used.map(|cost| (cost.name.to_owned(), format!("{} ({})", cost.ns, cost.source))));
    all
}
