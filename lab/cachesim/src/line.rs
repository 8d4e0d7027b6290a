//! One cache line's tag and state in a single word, so that a set of eight ways is one line of the real machine's
//! cache.
//!
//! ```text
//! bit 63  62     61          60..54  53..46   45..0
//!     dirty used prefetched  unused  context  line number (address / line length)
//! ```

/// A hardware context (one vCPU) that lines are filled for. At most 256 share a hierarchy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u8);

/// Bits of a line number: with 64-byte lines, 52 bits of physical address.
pub const LINE_NUMBER_BITS: u32 = 46;
const NUMBER: u64 = (1 << LINE_NUMBER_BITS) - 1;
const CONTEXT_SHIFT: u32 = LINE_NUMBER_BITS;
const PREFETCHED: u64 = 1 << 61;
const USED: u64 = 1 << 62;
const DIRTY: u64 = 1 << 63;

/// A way of a set.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Line(u64);

impl Line {
    /// Nothing is in this way. No line has this number: it would lie at the very end of the address space.
    pub const INVALID: Self = Self(NUMBER);

    /// A clean line. Bits of `number` above [`LINE_NUMBER_BITS`] are dropped.
    pub(crate) fn new(number: u64, context: ContextId) -> Self {
        Self((number & NUMBER) | u64::from(context.0) << CONTEXT_SHIFT)
    }

    /// Whether this is the line with that number.
    pub(crate) fn is(self, number: u64) -> bool {
        (self.0 ^ number) & NUMBER == 0
    }

    /// Whether there is a line in this way.
    pub fn is_valid(self) -> bool {
        self.0 & NUMBER != NUMBER
    }

    /// Line number: address divided by the line length.
    pub fn number(self) -> u64 {
        self.0 & NUMBER
    }

    /// Whom it was filled for.
    #[allow(clippy::cast_possible_truncation, reason = "eight bits")]
    pub fn context(self) -> ContextId {
        ContextId((self.0 >> CONTEXT_SHIFT) as u8)
    }

    /// Whether the level below holds older data.
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether a demand access has hit it since it was filled (RECAP's reuse bit).
    pub fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    /// Whether a prefetch filled it and no demand access has hit it yet.
    pub fn is_prefetched(self) -> bool {
        self.0 & PREFETCHED != 0
    }

    pub(crate) fn set_dirty(&mut self) {
        self.0 |= DIRTY;
    }

    pub(crate) fn set_used(&mut self) {
        self.0 = (self.0 | USED) & !PREFETCHED;
    }

    pub(crate) fn set_prefetched(&mut self) {
        self.0 |= PREFETCHED;
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_valid() {
            write!(f, "{:x}@{}", self.number(), self.context().0)?;
            f.write_str(if self.is_dirty() { "d" } else { "" })
        } else {
            f.write_str("-")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_keeps_out_of_the_others() {
        let mut line = Line::new(0x3fff_ffff_fffe, ContextId(255));
        assert!(line.is(0x3fff_ffff_fffe) && !line.is(0x3fff_ffff_fffd) && line.is_valid());
        assert!(!line.is_dirty() && !line.is_used() && !line.is_prefetched());
        line.set_prefetched();
        line.set_dirty();
        assert_eq!((line.number(), line.context()), (0x3fff_ffff_fffe, ContextId(255)));
        assert!(line.is_dirty() && !line.is_used() && line.is_prefetched());
        line.set_used();
        assert!(line.is_dirty() && line.is_used() && !line.is_prefetched());
        assert!(!Line::INVALID.is_valid());
    }
}
