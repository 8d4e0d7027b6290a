//! The shape of a cache, validated.

/// A shape no cache can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}; {remedy}")]
pub struct GeometryError {
    /// Which figure is wrong, with its value.
    what: String,
    /// What is wrong with it.
    problem: String,
    /// What would be right.
    remedy: String,
}

impl GeometryError {
    pub(crate) fn new(what: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), problem: problem.into(), remedy: remedy.into() }
    }
}

/// Most ways a set can have.
pub const WAYS_MAX: u32 = 64;
/// Largest cache, in bytes: at 64 bytes a line, its tags take 128 MiB of memory.
pub const SIZE_BYTES_MAX: u64 = 1 << 30;
/// Most lines of one cache, and of all of a machine together; their tags take 256 MiB of memory.
pub const LINES_MAX: u64 = 1 << 25;

/// Size, associativity and line length of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    size_bytes: u64,
    ways: u32,
    line_bytes: u32,
}

impl Geometry {
    /// `size_bytes` must be `ways` times `line_bytes` times a power of two; `line_bytes` a power of two from 8 to 4096;
    /// `ways` 1 to [`WAYS_MAX`]. Twelve or twenty ways are fine.
    pub fn new(size_bytes: u64, ways: u32, line_bytes: u32) -> Result<Self, GeometryError> {
        if !line_bytes.is_power_of_two() || !(8..=4096).contains(&line_bytes) {
            return Err(GeometryError::new(
                format!("a line of {line_bytes} bytes"),
                "a line is a power of two",
                "give 8 to 4096 bytes, 64 on x86-64",
            ));
        }
        if !(1..=WAYS_MAX).contains(&ways) {
            return Err(GeometryError::new(
                format!("{ways} ways"),
                "no set of this simulator has that many",
                format!("give 1 to {WAYS_MAX}"),
            ));
        }
        let set_bytes = u64::from(ways) * u64::from(line_bytes);
        if size_bytes == 0 || size_bytes > SIZE_BYTES_MAX {
            return Err(GeometryError::new(
                format!("a cache of {size_bytes} bytes"),
                "out of range",
                format!("give {set_bytes} to {SIZE_BYTES_MAX} bytes"),
            ));
        }
        if !size_bytes.is_multiple_of(set_bytes) {
            return Err(GeometryError::new(
                format!("{size_bytes} bytes in {ways} ways of {line_bytes}-byte lines"),
                "the ways do not divide the size into whole sets",
                format!("give {set_bytes} bytes times a power of two"),
            ));
        }
        if size_bytes / u64::from(line_bytes) > LINES_MAX {
            return Err(GeometryError::new(
                format!("{size_bytes} bytes in {line_bytes}-byte lines"),
                format!("more than {LINES_MAX} lines"),
                "give longer lines or fewer bytes",
            ));
        }
        let sets = size_bytes / set_bytes;
        if !sets.is_power_of_two() {
            return Err(GeometryError::new(
                format!("{size_bytes} bytes in {ways} ways of {line_bytes}-byte lines"),
                format!("that makes {sets} sets, which is no power of two"),
                format!("give {set_bytes} bytes times a power of two"),
            ));
        }
        Ok(Self { size_bytes, ways, line_bytes })
    }

    /// Capacity in bytes.
    pub fn size_bytes(self) -> u64 {
        self.size_bytes
    }

    /// Lines in a set.
    pub fn ways(self) -> usize {
        self.ways as usize
    }

    pub fn line_bytes(self) -> u32 {
        self.line_bytes
    }

    /// How many bits of an address lie within a line.
    pub fn line_bits(self) -> u32 {
        self.line_bytes.trailing_zeros()
    }

    /// Number of sets, a power of two.
    #[allow(clippy::cast_possible_truncation, reason = "at most 2^25 sets")]
    pub fn sets(self) -> usize {
        (self.size_bytes / (u64::from(self.ways) * u64::from(self.line_bytes))) as usize
    }

    /// Lines the whole cache holds.
    pub fn lines(self) -> usize {
        self.sets() * self.ways()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_v_is_fine_and_so_are_twelve_ways() {
        for (size_bytes, ways, sets) in [
            (32 << 10, 4, 128),
            (256 << 10, 8, 512),
            (2 << 20, 16, 2048),
            (48 << 10, 12, 64),
            (64, 1, 1),
            (1 << 30, 16, 1 << 20),
        ] {
            assert_eq!(Geometry::new(size_bytes, ways, 64).unwrap().sets(), sets);
        }
    }

    #[test]
    fn absurd_shapes_are_named() {
        for (size_bytes, ways, line_bytes, expected) in [
            (2 << 20, 16, 48, "a line of 48 bytes: a line is a power of two; give 8 to 4096"),
            (2 << 20, 16, 0, "a line of 0 bytes"),
            (2 << 20, 0, 64, "0 ways"),
            (2 << 20, 65, 64, "65 ways"),
            (0, 16, 64, "a cache of 0 bytes: out of range; give 1024"),
            (u64::MAX, 16, 64, "out of range"),
            (16 << 30, 16, 64, "a cache of 17179869184 bytes: out of range; give 1024 to 1073741824 bytes"),
            (1 << 30, 16, 8, "more than 33554432 lines; give longer lines"),
            (2 << 20, 12, 64, "the ways do not divide the size into whole sets; give 768 bytes times a power of two"),
            (3 << 20, 16, 64, "that makes 3072 sets, which is no power of two"),
        ] {
            let said = Geometry::new(size_bytes, ways, line_bytes).unwrap_err().to_string();
            assert!(said.contains(expected), "'{said}' lacks '{expected}'");
        }
    }
}
