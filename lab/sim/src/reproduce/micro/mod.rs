//! The micro-sliced paper's scheduling results (MICRO'14): kernel locks and interrupts of guests on Xen's credit
//! scheduler.
//!
//! ```text
//!   bed      the paper's machine and what a capped solo run is
//!   kernel   sections under ticket locks, ticks, shootdowns        --> parsec, dedup   the 13 programs from published counts
//!   table1, fig2, fig3, fig5, fig6, fig9: what is run, and what the paper says about it
//! ```
//!
//! Nothing was fitted. Inputs are the table in `parsec`, what dedup was counted to ask of its kernel (`memory`), Table
//! I's holding times alone, and costs with their sources.

mod bed;
mod dedup;
mod fig2;
mod fig3;
mod fig5;
mod fig6;
mod fig9;
mod guests;
mod kernel;
mod network;
mod parsec;
mod table1;
#[cfg(test)]
mod tests;
mod threadgroup;

use super::{Extent, ReproduceError, Reproduced};

/// `None`: not one of this paper's.
pub fn reproduce(id: &str, extent: &Extent) -> Option<Result<Reproduced, ReproduceError>> {
    match id {
        "micro:table1" => Some(table1::reproduce(extent)),
        "micro:fig2" => Some(fig2::reproduce(extent)),
        "micro:fig3" => Some(fig3::reproduce(extent)),
        "micro:fig5" => Some(fig5::reproduce(extent)),
        "micro:fig6" => Some(fig6::reproduce(extent)),
        "micro:fig9" => Some(fig9::reproduce(extent)),
        _ => None,
    }
}

/// What all of them have in common.
fn parameters() -> Vec<(String, String)> {
    let costs = bed::costs();
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
        "cache_refill_ns" => (cost.name.to_owned(), format!("{} ({})", cost.ns, bed::REFILL_SOURCE)),
        name => (name.to_owned(), format!("{} ({})", cost.ns, cost.source)),
    }));
    all.extend(parsec::PARSEC.iter().map(|program| (program.name.to_owned(), program.source.to_owned())));
    all
}

/// A ratio has to differ from 1 by more than this to be larger or smaller: runs differ by less.
const CLEARLY: f64 = 0.02;

fn falls(ratio: f64) -> bool {
    ratio < 1.0 - CLEARLY
}

fn rises(ratio: f64) -> bool {
    ratio > 1.0 + CLEARLY
}
