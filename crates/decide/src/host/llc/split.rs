//! Which ways of the last level the thrashing contexts get, and which the others.

use serde::{Deserialize, Serialize};

/// What a host's cache allocation allows: one bit a way (or share of ways), as the kernel's resctrl numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlcGeometry {
    /// All ways.
    pub ways_mask: u64,
    /// The fewest bits that a mask may have. 0: an empty mask is allowed, its owner fills nothing (AMD).
    pub bits_min: u32,
    /// Whether a mask may have gaps.
    pub sparse: bool,
    /// Ways that devices fill as well: what is put there is soon lost, so they are the first choice for those who lose
    /// nothing.
    pub shared_with_devices: u64,
    /// Ways that somebody else has for themselves.
    pub taken: u64,
}

/// Two masks without a common way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlcSplit {
    /// What thrashing contexts may fill; may be empty where the host allows that.
    pub minimal: u64,
    /// What cache-friendly ones may fill.
    pub rest: u64,
}

/// Divides the ways: `minimal_ways` (or the fewest allowed, if that is more) for thrashing contexts, the rest for the
/// others. `None` where too few ways are left for both.
pub fn split(geometry: &LlcGeometry, minimal_ways: u32) -> Option<LlcSplit> {
    let free = geometry.ways_mask & !geometry.taken;
    let ways = minimal_ways.max(geometry.bits_min);
    let candidates = if ways == 0 { vec![0] } else { runs(free, ways) };
    let with_rest = candidates.into_iter().map(|minimal| {
        let left = free & !minimal;
        LlcSplit { minimal, rest: if geometry.sparse { left } else { longest_run(left) } }
    });
    let enough = |split: &LlcSplit| split.rest.count_ones() >= geometry.bits_min.max(1);
    // The most for those who use it; then the ways that are worth least; then the highest, where devices' ways are.
    with_rest.filter(enough).max_by_key(|split| {
        (split.rest.count_ones(), (split.minimal & geometry.shared_with_devices).count_ones(), split.minimal)
    })
}

/// Every run of `ways` neighbouring ways within `free`, lowest first.
fn runs(free: u64, ways: u32) -> Vec<u64> {
    let Some(run) = 1_u64.checked_shl(ways).map(|bit| bit - 1).or((ways == 64).then_some(u64::MAX)) else {
        return Vec::new();
    };
    (0..=(64 - ways)).map(|shift| run << shift).filter(|run| run & free == *run).collect()
}

/// The longest run of neighbouring ways; of equal ones the lowest.
fn longest_run(free: u64) -> u64 {
    (1..=free.count_ones()).rev().find_map(|ways| runs(free, ways).first().copied()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INTEL: LlcGeometry =
        LlcGeometry { ways_mask: 0x7ff, bits_min: 1, sparse: false, shared_with_devices: 0x600, taken: 0 };

    #[test]
    fn hosts_by_table() {
        for (what, geometry, ways, expected) in [
            ("the way that devices fill", INTEL, 1, Some((0x400, 0x3ff))),
            ("both of them", INTEL, 2, Some((0x600, 0x1ff))),
            ("no fewer than allowed", LlcGeometry { bits_min: 2, ..INTEL }, 1, Some((0x600, 0x1ff))),
            (
                "nothing at all on AMD",
                LlcGeometry { ways_mask: 0xffff, bits_min: 0, sparse: true, shared_with_devices: 0, taken: 0 },
                0,
                Some((0, 0xffff)),
            ),
            (
                "one way on AMD if asked for",
                LlcGeometry { ways_mask: 0xffff, bits_min: 0, sparse: true, shared_with_devices: 0, taken: 0 },
                1,
                Some((0x8000, 0x7fff)),
            ),
            (
                "an end, so that the rest has no gap",
                LlcGeometry { shared_with_devices: 0x010, ..INTEL },
                1,
                Some((0x400, 0x3ff)),
            ),
            (
                "a gap does not matter where masks may have one",
                LlcGeometry { shared_with_devices: 0x010, sparse: true, ..INTEL },
                1,
                Some((0x010, 0x7ef)),
            ),
            ("beside somebody's ways", LlcGeometry { taken: 0x700, ..INTEL }, 1, Some((0x080, 0x07f))),
            (
                "on the short side of somebody's ways",
                LlcGeometry { taken: 0x020, shared_with_devices: 0, ..INTEL },
                1,
                Some((0x400, 0x01f)),
            ),
            (
                "two ways are enough",
                LlcGeometry { ways_mask: 0x3, shared_with_devices: 0, ..INTEL },
                1,
                Some((0x2, 0x1)),
            ),
            ("one is not", LlcGeometry { ways_mask: 0x1, ..INTEL }, 1, None),
            ("all taken", LlcGeometry { taken: 0x7ff, ..INTEL }, 1, None),
            ("more asked for than there is", INTEL, 11, None),
            ("absurdly more", INTEL, u32::MAX, None),
            (
                "64 ways",
                LlcGeometry { ways_mask: u64::MAX, bits_min: 1, sparse: false, shared_with_devices: 0, taken: 0 },
                64,
                None,
            ),
        ] {
            let found = split(&geometry, ways).map(|split| (split.minimal, split.rest));
            assert_eq!(found, expected, "{what}: {found:x?}");
        }
    }

    fn is_run(mask: u64) -> bool {
        let low = mask >> mask.trailing_zeros().min(63);
        low & low.wrapping_add(1) == 0
    }

    proptest! {
        #[test]
        fn masks_are_such_as_the_kernel_takes(
            ways in 1..=64_u32,
            bits_min in 0..4_u32,
            sparse: bool,
            shared_with_devices: u64,
            taken: u64,
            few_taken: bool,
            minimal_ways in 0..8_u32,
        ) {
            let ways_mask = u64::MAX >> (64 - ways);
            let taken = if few_taken { taken & taken.rotate_left(7) & taken.rotate_left(23) } else { taken };
            let geometry = LlcGeometry { ways_mask, bits_min, sparse, shared_with_devices, taken };
            let found = split(&geometry, minimal_ways);
            if let Some(LlcSplit { minimal, rest }) = found {
                prop_assert_eq!(minimal & rest, 0);
                prop_assert_eq!((minimal | rest) & !(ways_mask & !taken), 0);
                prop_assert_eq!(minimal.count_ones(), minimal_ways.max(bits_min));
                prop_assert!(minimal != 0 || (bits_min == 0 && minimal_ways == 0));
                prop_assert!(rest.count_ones() >= bits_min.max(1));
                prop_assert!(is_run(minimal) && (sparse || is_run(rest)));
                // Nothing is given away where it could be used.
                prop_assert!(!sparse || (minimal | rest) == ways_mask & !taken);
            } else {
                // Two neighbouring runs of that size would have done.
                let both = minimal_ways.max(bits_min) + bits_min.max(1);
                prop_assert!(runs(ways_mask & !taken, both).is_empty());
            }
        }

        #[test]
        fn without_others_only_the_minimum_is_kept_from_the_rest(ways in 2..=64_u32, devices: u64) {
            let ways_mask = u64::MAX >> (64 - ways);
            let shared_with_devices = devices;
            let geometry = LlcGeometry { ways_mask, bits_min: 1, sparse: false, shared_with_devices, taken: 0 };
            let found = split(&geometry, 1).unwrap();
            prop_assert_eq!(found.minimal | found.rest, ways_mask);
            prop_assert_eq!(found.minimal.count_ones(), 1);
        }
    }
}
