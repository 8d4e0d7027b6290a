//! Replacement policies: what a set does at a hit, at a fill, and when something has to go.
//!
//! Recency policies keep a set's lines *in the order of their recency stack* (most recently used first), so that the
//! stack costs no memory of its own: a hit moves a line to the front, an insertion at the LRU position leaves it at the
//! end. RRIP policies leave lines where they are and keep two bits in each.
//!
//! | policy | new lines | from |
//! | --- | --- | --- |
//! | [`recency::Lru`] | at MRU | |
//! | [`recency::Lip`] | at LRU | Qureshi et al., ISCA'07, section 3.1 |
//! | [`recency::Bip`] | at LRU, one in 32 at MRU | section 3.2 |
//! | [`duel::DipDuel`] | as LRU or BIP does, by set dueling | section 4 |
//! | [`rrip::Srrip`], [`rrip::Drrip`] | "long" interval; dueling with BRRIP | Jaleel et al., ISCA'10 |
//! | [`context::PerContext`] | at MRU or LRU, fixed for each context | MICRO'14, SIP-best's parts |
//! | [`context::DipTime`] | at MRU or LRU, by time sampling of each context | MICRO'14, section IV-B |

pub mod context;
pub mod duel;
pub mod recency;
mod replacement;
pub mod rrip;

pub use replacement::Replacement;

use crate::geometry::{Geometry, GeometryError};
use crate::insertion::{Insertion, Quantum};
use crate::line::{ContextId, Line};

/// A policy by name.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyKind {
    /// Insertion at MRU.
    Lru,
    /// Insertion at LRU.
    Lip,
    /// Insertion at LRU, one in 32 at MRU.
    Bip,
    /// LRU against BIP by set dueling.
    DipDuel,
    /// Static RRIP, two bits, hit priority.
    Srrip,
    /// SRRIP against BRRIP by set dueling.
    Drrip,
    /// The MICRO'14 paper's insertion by time sampling.
    DipTime,
    /// A fixed insertion for each context, by its number; contexts beyond the list insert at MRU.
    PerContext(Vec<Insertion>),
}

impl PolicyKind {
    /// Names that [`Self::by_name`] knows.
    pub const NAMES: [&str; 7] = ["lru", "lip", "bip", "dip-duel", "srrip", "drrip", "dip-time"];

    /// The policy with that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "lru" => Self::Lru,
            "lip" => Self::Lip,
            "bip" => Self::Bip,
            "dip-duel" => Self::DipDuel,
            "srrip" => Self::Srrip,
            "drrip" => Self::Drrip,
            "dip-time" => Self::DipTime,
            _ => return None,
        })
    }

    /// The policy's state for one cache. `seed` feeds the chance of BIP and BRRIP.
    pub fn build(&self, geometry: Geometry, seed: u64) -> Result<Policy, GeometryError> {
        Ok(match self {
            Self::Lru => Policy::Lru(recency::Lru),
            Self::Lip => Policy::Lip(recency::Lip),
            Self::Bip => Policy::Bip(recency::Bip::new(seed)),
            Self::DipDuel => Policy::DipDuel(duel::DipDuel::new(geometry.sets(), seed)?),
            Self::Srrip => Policy::Srrip(rrip::Srrip),
            Self::Drrip => Policy::Drrip(rrip::Drrip::new(geometry.sets(), seed)?),
            Self::DipTime => Policy::DipTime(Box::default()),
            Self::PerContext(insertions) => Policy::PerContext(context::PerContext::new(insertions)),
        })
    }
}

/// Any of the policies. An enum and not a trait object: the branch is always the same one, and the bodies can be
/// inlined.
#[derive(Clone, Debug)]
pub enum Policy {
    Lru(recency::Lru),
    Lip(recency::Lip),
    Bip(recency::Bip),
    DipDuel(duel::DipDuel),
    Srrip(rrip::Srrip),
    Drrip(rrip::Drrip),
    DipTime(Box<context::DipTime>),
    PerContext(context::PerContext),
}

/// Does the same with whichever policy it is.
macro_rules! each {
    ($policy:expr, $inner:ident => $body:expr) => {
        match $policy {
            Policy::Lru($inner) => $body,
            Policy::Lip($inner) => $body,
            Policy::Bip($inner) => $body,
            Policy::DipDuel($inner) => $body,
            Policy::Srrip($inner) => $body,
            Policy::Drrip($inner) => $body,
            Policy::DipTime($inner) => $body,
            Policy::PerContext($inner) => $body,
        }
    };
}

impl Replacement for Policy {
    #[inline]
    fn on_hit(&mut self, ways: &mut [Line], way: usize) {
        each!(self, policy => policy.on_hit(ways, way));
    }

    #[inline]
    fn on_miss(&mut self, set: usize) {
        each!(self, policy => policy.on_miss(set));
    }

    #[inline]
    fn victim(&mut self, ways: &mut [Line]) -> usize {
        each!(self, policy => policy.victim(ways))
    }

    #[inline]
    fn on_fill(&mut self, set: usize, ways: &mut [Line], way: usize, context: ContextId) {
        each!(self, policy => policy.on_fill(set, ways, way, context));
    }

    fn on_invalidate(&mut self, ways: &mut [Line], way: usize) {
        each!(self, policy => policy.on_invalidate(ways, way));
    }

    fn quantum_started(&mut self, context: ContextId) {
        each!(self, policy => policy.quantum_started(context));
    }

    fn quantum_ended(&mut self, context: ContextId, quantum: Quantum) {
        each!(self, policy => policy.quantum_ended(context, quantum));
    }
}
