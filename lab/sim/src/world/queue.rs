//! A pCPU's queue of ready vCPUs: sorted by the scheduler's key, the first to come first among equals.
//!
//! Sorted with the next one last, so that taking it is a pop. Queues are short; where a thousand vCPUs wait for one
//! pCPU, a binary search and a move of a few kilobytes are still cheap.

use crate::ids::VcpuIx;
use smallvec::SmallVec;

#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    key: i64,
    vcpu: VcpuIx,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RunQueue {
    /// Descending; of equals, who came last is first.
    waiting: SmallVec<[Waiting; 4]>,
}

impl RunQueue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Behind those with the same key.
    pub(crate) fn push(&mut self, vcpu: VcpuIx, key: i64) {
        let at = self.waiting.partition_point(|old| old.key > key);
        self.waiting.insert(at, Waiting { key, vcpu });
    }

    /// The first that `fits`, or the first of all.
    pub(crate) fn pop(&mut self, fits: impl Fn(VcpuIx) -> bool) -> Option<VcpuIx> {
        let at = self.waiting.iter().rposition(|waiting| fits(waiting.vcpu)).or(self.len().checked_sub(1))?;
        Some(self.waiting.remove(at).vcpu)
    }

    pub(crate) fn first(&self) -> Option<VcpuIx> {
        self.waiting.last().map(|waiting| waiting.vcpu)
    }

    pub(crate) fn first_key(&self) -> Option<i64> {
        self.waiting.last().map(|waiting| waiting.key)
    }

    /// The first that `fits`.
    pub(crate) fn find(&self, fits: impl Fn(VcpuIx) -> bool) -> Option<VcpuIx> {
        self.waiting.iter().rev().map(|waiting| waiting.vcpu).find(|vcpu| fits(*vcpu))
    }

    /// Says whether it was there.
    pub(crate) fn remove(&mut self, vcpu: VcpuIx) -> bool {
        let at = self.waiting.iter().rposition(|waiting| waiting.vcpu == vcpu);
        at.map(|at| self.waiting.remove(at)).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = VcpuIx> + '_ {
        self.waiting.iter().rev().map(|waiting| waiting.vcpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_key_goes_first_and_equals_in_order() {
        let mut queue = RunQueue::default();
        for (vcpu, key) in [(0, 5), (1, 3), (2, 5), (3, 3), (4, 9)] {
            queue.push(VcpuIx(vcpu), key);
        }
        assert_eq!(queue.find(|vcpu| vcpu.0 % 2 == 0), Some(VcpuIx(0)));
        assert!(queue.remove(VcpuIx(3)) && !queue.remove(VcpuIx(3)));
        assert_eq!(queue.pop(|vcpu| vcpu.0 == 2), Some(VcpuIx(2)));
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop(|_| false).map(|vcpu| vcpu.0)).collect();
        // Where none fits, the first of all.
        assert_eq!(order, [1, 0, 4]);
    }
}
