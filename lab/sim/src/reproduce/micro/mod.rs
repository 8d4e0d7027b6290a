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
mod common;
mod dedup;
mod fig2;
mod fig3;
mod fig5;
mod fig6;
mod fig9;
mod guests;
mod kernel;
mod lock_times;
mod network;
mod parsec;
mod queue;
mod table1;
#[cfg(test)]
mod tests;
mod threadgroup;

use super::result::{Extent, ReproduceError, Reproduced};

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
