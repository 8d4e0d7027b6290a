//! CPU-bound, cache-friendly or thrashing: what the last-level cache is to a context (micro-sliced vCPUs, MICRO'14,
//! section IV-B).
//!
//! The paper names three types by where the working set ends: within the second level (*CPU*: the last level is hardly
//! used), beyond it and within the last level (*cache-friendly*), beyond the last level (*thrashing*: it is used and
//! does not help). Table VI sorts the programs of SPEC into them and gives no threshold, so the two numbers here are
//! ours:
//!
//! ```text
//! misses without the last level, or with the least of it   < 1 per 1,000 instructions ---> CPU-bound
//!   and of these a whole last level saves   >= half ------------------------------------> cache-friendly
//!                                           <  half ------------------------------------> thrashing
//! ```
//!
//! One miss per 1,000 instructions costs at most 170 cycles (docs/research/cachesim.md, memory), a CPI of 0.17 beside
//! the program's own of 0.25 or, usually, much more; below that, nothing that is done to the cache is felt. And a
//! working set fits a cache when most of its accesses hit. Whoever measures a curve
//! (`gleaner-lab cache classify`) gives what they know.

/// How much a context uses the last level, per 1,000 instructions ("pki"); `None` where it is not known. Figures that
/// are not finite or are below 0 count as not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheUse {
    /// Accesses that reach the last level, that is misses of the level before it.
    pub accesses_pki: Option<f64>,
    /// Misses of the last level with all of it to itself.
    pub misses_full_pki: Option<f64>,
    /// Misses of the last level with the smallest allocation (one way, or what the levels before it hold). Where nobody
    /// has tried, the accesses stand for it: the smallest cache is taken to serve nothing.
    pub misses_minimal_pki: Option<f64>,
}

/// The thresholds; see the head of this file for where they are from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheClassParams {
    /// Fewer misses per 1,000 instructions without the last level are CPU-bound. Ours: 1.
    pub without_pki_min: f64,
    /// A cache that saves at least this share of the misses is of use, 0 to 1. Ours: 0.5.
    pub saved_ratio_min: f64,
}

impl Default for CacheClassParams {
    fn default() -> Self {
        Self { without_pki_min: 1.0, saved_ratio_min: 0.5 }
    }
}

/// The paper's types of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CacheClass {
    /// *CPU*: its working set fits the second level. It needs no last level and disturbs nobody much.
    CpuBound,
    /// *CFR*: its working set fits the last level, and it suffers when others take it.
    CacheFriendly,
    /// *THR*: its working set fits no cache. It needs no last level and pushes out everybody else's lines.
    Thrashing,
}

impl CacheClass {
    /// In words, as in tables and sentences.
    pub fn words(self) -> &'static str {
        match self {
            Self::CpuBound => "CPU-bound",
            Self::CacheFriendly => "cache-friendly",
            Self::Thrashing => "thrashing",
        }
    }
}

impl CacheUse {
    /// Misses per 1,000 instructions without the last level, as far as known.
    fn without(&self) -> Option<f64> {
        known(self.misses_minimal_pki).or(known(self.accesses_pki))
    }

    /// Misses that a whole last level saves per 1,000 instructions.
    pub fn saved_pki(&self) -> Option<f64> {
        Some((self.without()? - known(self.misses_full_pki)?).max(0.0))
    }

    /// The same as a share of the misses without it, 0 to 1; `None` also where there are none.
    pub fn saved_ratio(&self) -> Option<f64> {
        let without = self.without().filter(|without| *without > 0.0)?;
        Some((self.saved_pki()? / without).min(1.0))
    }

    /// Which type it is; `None` where too little is known to tell.
    pub fn class(&self, params: &CacheClassParams) -> Option<CacheClass> {
        if self.without()? < params.without_pki_min {
            return Some(CacheClass::CpuBound);
        }
        let useful = self.saved_ratio()? >= params.saved_ratio_min;
        Some(if useful { CacheClass::CacheFriendly } else { CacheClass::Thrashing })
    }
}

fn known(figure: Option<f64>) -> Option<f64> {
    figure.filter(|figure| figure.is_finite() && *figure >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use CacheClass::{CacheFriendly, CpuBound, Thrashing};

    fn of(accesses: Option<f64>, full: Option<f64>, minimal: Option<f64>) -> CacheUse {
        CacheUse { accesses_pki: accesses, misses_full_pki: full, misses_minimal_pki: minimal }
    }

    #[test]
    fn types_by_table() {
        for (accesses, full, minimal, expected) in [
            // Working set within the L2; whatever little comes through may miss.
            (Some(0.2), Some(0.2), Some(0.2), Some(CpuBound)),
            (Some(0.99), None, None, Some(CpuBound)),
            (None, Some(0.1), Some(0.5), Some(CpuBound)),
            // Within the last level.
            (Some(20.0), Some(2.0), None, Some(CacheFriendly)),
            (Some(20.0), Some(10.0), None, Some(CacheFriendly)),
            (Some(20.0), Some(2.0), Some(15.0), Some(CacheFriendly)),
            (None, Some(2.0), Some(15.0), Some(CacheFriendly)),
            // Beyond it.
            (Some(20.0), Some(19.0), None, Some(Thrashing)),
            (Some(20.0), Some(10.1), None, Some(Thrashing)),
            // A small cache serves as much as a whole one: the rest is lost on this context.
            (Some(20.0), Some(4.0), Some(5.0), Some(Thrashing)),
            (Some(20.0), Some(0.5), Some(0.6), Some(CpuBound)),
            // Too little is known.
            (None, None, None, None),
            (None, Some(9.0), None, None),
            (Some(20.0), None, Some(19.0), None),
            (Some(f64::NAN), Some(f64::INFINITY), Some(-1.0), None),
            (Some(f64::NAN), Some(1.0), Some(4.0), Some(CacheFriendly)),
            // More misses than accesses: prefetches and speculation are counted so on real machines.
            (Some(20.0), Some(30.0), None, Some(Thrashing)),
            (Some(0.0), Some(0.0), Some(0.0), Some(CpuBound)),
        ] {
            let said = of(accesses, full, minimal).class(&CacheClassParams::default());
            assert_eq!(said, expected, "{accesses:?} {full:?} {minimal:?}");
        }
    }

    #[test]
    fn thresholds_are_parameters() {
        let twenty = of(Some(20.0), Some(10.0), None);
        let strict = CacheClassParams { saved_ratio_min: 0.6, ..CacheClassParams::default() };
        let lax = CacheClassParams { without_pki_min: 25.0, ..CacheClassParams::default() };
        assert_eq!((twenty.class(&strict), twenty.class(&lax)), (Some(Thrashing), Some(CpuBound)));
        assert_eq!((twenty.saved_pki(), twenty.saved_ratio()), (Some(10.0), Some(0.5)));
        assert_eq!(of(Some(0.0), Some(0.0), None).saved_ratio(), None);
    }
}
