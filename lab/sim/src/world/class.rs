//! vCPUs with the same set of allowed pCPUs: a class knows on which pCPUs members of it wait, so that an idle pCPU
//! finds somebody without looking at every queue.

use crate::engine::BitSet;
use crate::ids::PcpuIx;

/// A set of allowed pCPUs.
#[derive(Clone, Debug)]
pub(crate) enum Class {
    /// Pinned: nothing to choose.
    One,
    /// Several.
    Many {
        allowed: BitSet,
        /// pCPUs on which a member waits.
        waiting: BitSet,
        /// How many, on each pCPU.
        counts: Vec<u32>,
    },
}

impl Class {
    pub(crate) fn new(allowed: &[PcpuIx], pcpus: usize) -> Self {
        if allowed.len() == 1 {
            return Self::One;
        }
        let mut set = BitSet::new(pcpus);
        for p in allowed {
            set.insert(p.at());
        }
        Self::Many { allowed: set, waiting: BitSet::new(pcpus), counts: vec![0; pcpus] }
    }

    /// The allowed pCPUs, if there is something to choose.
    #[cfg(debug_assertions)]
    pub(crate) fn several(&self) -> Option<&BitSet> {
        if let Self::Many { allowed, .. } = self { Some(allowed) } else { None }
    }

    pub(crate) fn allows(&self, p: PcpuIx) -> bool {
        matches!(self, Self::Many { allowed, .. } if allowed.contains(p.at()))
    }

    pub(crate) fn joined(&mut self, p: PcpuIx) {
        if let Self::Many { waiting, counts, .. } = self {
            counts[p.at()] += 1;
            waiting.insert(p.at());
        }
    }

    pub(crate) fn left(&mut self, p: PcpuIx) {
        if let Self::Many { waiting, counts, .. } = self {
            counts[p.at()] -= 1;
            if counts[p.at()] == 0 {
                waiting.remove(p.at());
            }
        }
    }
}
