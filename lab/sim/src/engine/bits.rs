//! A set of small numbers that answers "the next one from here on, round and round" a word at a time.

/// Numbers below a fixed size.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitSet {
    words: Vec<u64>,
    size: usize,
}

impl BitSet {
    pub(crate) fn new(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)], size }
    }

    pub(crate) fn insert(&mut self, at: usize) {
        self.words[at / 64] |= 1 << (at % 64);
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.words[at / 64] &= !(1 << (at % 64));
    }

    pub(crate) fn contains(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// The first member of both sets from `from` on, then from 0.
    pub(crate) fn next_common(&self, other: &Self, from: usize) -> Option<usize> {
        self.common_in(other, from, self.size).or_else(|| self.common_in(other, 0, from))
    }

    /// The first member of both sets in `from..to`.
    pub(crate) fn common_in(&self, other: &Self, from: usize, to: usize) -> Option<usize> {
        if from >= to {
            return None;
        }
        let (first, last) = (from / 64, (to - 1) / 64);
        for word in first..=last {
            let mut both = self.words[word] & other.words[word];
            if word == first {
                both &= u64::MAX << (from % 64);
            }
            if both != 0 {
                let at = word * 64 + both.trailing_zeros() as usize;
                return (at < to).then_some(at);
            }
        }
        None
    }
}

/// The first member of `mask` from `from` on, then from 0; of one word.
pub(crate) fn next_in_word(mask: u64, from: u32) -> Option<u32> {
    let above = mask & u64::MAX.checked_shl(from).unwrap_or(0);
    let found = if above == 0 { mask } else { above };
    (found != 0).then(|| found.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_common_member_goes_round() {
        let (mut a, mut b) = (BitSet::new(200), BitSet::new(200));
        for at in [3, 64, 130, 199] {
            a.insert(at);
        }
        for at in [3, 130, 131] {
            b.insert(at);
        }
        for (from, next) in [(0, 3), (3, 3), (4, 130), (130, 130), (131, 3)] {
            assert_eq!(a.next_common(&b, from), Some(next), "from {from}");
        }
        assert_eq!(a.common_in(&b, 4, 130), None);
        b.remove(3);
        b.remove(130);
        assert_eq!(a.next_common(&b, 0), None);
        assert!(a.contains(64) && !b.contains(64));
    }

    #[test]
    fn the_next_of_a_word_goes_round() {
        for (mask, from, next) in
            [(0b1010, 0, Some(1)), (0b1010, 2, Some(3)), (0b1010, 4, Some(1)), (0, 0, None), (1 << 63, 64, Some(63))]
        {
            assert_eq!(next_in_word(mask, from), next);
        }
    }
}
