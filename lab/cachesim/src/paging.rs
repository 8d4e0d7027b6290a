//! From a context's virtual addresses to physical ones: first touch takes a page frame, and page colouring says which.
//!
//! A frame's *colour* is that part of its number that the last level's set index uses: frames of different colours
//! never meet in a set. Giving two contexts different colours isolates them in the cache, at the price of the capacity
//! that each does not get (MICRO'14, section IV-A and Figure 7: 1:1 and 2:1 shares).

use crate::geometry::{Geometry, GeometryError};
use crate::line::ContextId;
use rustc_hash::FxHashMap;

/// Page size, bits: 4 KiB.
pub const PAGE_BITS: u32 = 12;

/// How pages get frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagingConfig {
    /// For each context, the colours it may have; contexts beyond the list, and all if it is empty, may have any.
    pub colours: Vec<Vec<u32>>,
    /// Feeds the choice: a colour by chance, as from a long-used free list.
    pub seed: u64,
}

impl Default for PagingConfig {
    fn default() -> Self {
        Self { colours: Vec::new(), seed: 1 }
    }
}

/// Number of colours that a last level of this shape has with 4 KiB pages.
pub fn colours(l3: Geometry) -> u32 {
    let way_bytes = l3.size_bytes() / l3.ways() as u64;
    u32::try_from(way_bytes >> PAGE_BITS).unwrap_or(u32::MAX).max(1)
}

/// Deals all colours out to contexts in proportion to `shares` (Figure 7: `[1, 1]` or `[2, 1]`), in contiguous ranges.
pub fn deal_colours(l3: Geometry, shares: &[u32]) -> Result<Vec<Vec<u32>>, GeometryError> {
    let colours = colours(l3);
    let total: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    let mut dealt = Vec::new();
    let mut before = 0;
    for share in shares {
        let bound = |shares: u64| u32::try_from(u64::from(colours) * shares / total.max(1)).unwrap_or(colours);
        let (from, to) = (bound(before), bound(before + u64::from(*share)));
        before += u64::from(*share);
        if from == to {
            return Err(GeometryError::new(
                format!("shares {shares:?} of {colours} page colours"),
                "one of them is less than a colour",
                "give fewer or more equal shares, or a larger last-level cache",
            ));
        }
        dealt.push((from..to).collect());
    }
    Ok(dealt)
}

/// Translations remembered outside the page table, a power of two.
const REMEMBERED: usize = 4096;

/// Page tables of all contexts, and the free frames.
pub struct Paging {
    colours: u64,
    allowed: Vec<Vec<u32>>,
    any: Vec<u32>,
    frames: FxHashMap<(ContextId, u64), u64>,
    /// Frames taken of each colour.
    taken: Vec<u64>,
    chance: fastrand::Rng,
    /// The last translations: (page with context, frame).
    remembered: Vec<(u64, u64)>,
}

impl Paging {
    /// No page has a frame yet.
    pub fn new(config: &PagingConfig, l3: Geometry) -> Result<Self, GeometryError> {
        let colours = colours(l3);
        for (context, allowed) in config.colours.iter().enumerate() {
            let wrong = allowed.iter().find(|colour| **colour >= colours);
            if wrong.is_some() || allowed.is_empty() {
                return Err(GeometryError::new(
                    wrong.map_or_else(
                        || format!("no page colour at all for context {context}"),
                        |colour| format!("page colour {colour} for context {context}"),
                    ),
                    format!("this last-level cache has {colours}"),
                    format!("give colours from 0 to {}", colours - 1),
                ));
            }
        }
        Ok(Self {
            colours: u64::from(colours),
            allowed: config.colours.clone(),
            any: (0..colours).collect(),
            frames: FxHashMap::default(),
            taken: vec![0; colours as usize],
            chance: fastrand::Rng::with_seed(config.seed),
            remembered: vec![(u64::MAX, 0); REMEMBERED],
        })
    }

    /// The physical address of a context's virtual address. A page's first use takes a frame.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "masked")]
    pub fn translate(&mut self, context: ContextId, address: u64) -> u64 {
        let page = address >> PAGE_BITS;
        let key = page | u64::from(context.0) << (64 - PAGE_BITS);
        // Contexts of one program touch the same pages: they must not take one another's place here.
        let slot = (page ^ u64::from(context.0) << 9) as usize & (REMEMBERED - 1);
        let (remembered, frame) = self.remembered[slot];
        let frame = if remembered == key {
            frame
        } else {
            let frame = self.frame(context, page);
            self.remembered[slot] = (key, frame);
            frame
        };
        frame << PAGE_BITS | address & ((1 << PAGE_BITS) - 1)
    }

    fn frame(&mut self, context: ContextId, page: u64) -> u64 {
        if let Some(frame) = self.frames.get(&(context, page)) {
            return *frame;
        }
        let index = usize::from(context.0);
        let allowed = self.allowed.get(index).unwrap_or(&self.any);
        let colour = allowed[self.chance.usize(..allowed.len())];
        let frame = self.taken[colour as usize] * self.colours + u64::from(colour);
        self.taken[colour as usize] += 1;
        self.frames.insert((context, page), frame);
        frame
    }

    /// Pages that have a frame.
    pub fn pages(&self) -> usize {
        self.frames.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn table_v_l3() -> Geometry {
        Geometry::new(2 << 20, 16, 64).unwrap()
    }

    #[test]
    fn two_megabytes_of_sixteen_ways_have_thirty_two_colours() {
        assert_eq!(colours(table_v_l3()), 32);
        assert_eq!(colours(Geometry::new(32 << 10, 8, 64).unwrap()), 1);
    }

    #[test]
    fn colours_are_dealt_in_proportion_and_none_twice() {
        for (shares, expected) in [(&[1, 1][..], &[16, 16][..]), (&[2, 1], &[21, 11]), (&[1, 1, 1, 1], &[8; 4])] {
            let dealt = deal_colours(table_v_l3(), shares).unwrap();
            assert_eq!(dealt.iter().map(Vec::len).collect::<Vec<_>>(), expected);
            assert_eq!(dealt.concat(), (0..32).collect::<Vec<_>>());
        }
        for shares in [&[1, 100][..], &[0, 0], &[1, 0]] {
            let said = deal_colours(table_v_l3(), shares).unwrap_err().to_string();
            assert!(said.contains("less than a colour"), "{said}");
        }
    }

    #[test]
    fn every_page_has_a_frame_of_its_own_in_its_colours() {
        let colours = deal_colours(table_v_l3(), &[2, 1]).unwrap();
        let config = PagingConfig { colours: colours.clone(), seed: 7 };
        let mut paging = Paging::new(&config, table_v_l3()).unwrap();
        let mut seen = HashSet::new();
        for page in 0..5000_u64 {
            for (context, colours) in (0..).map(ContextId).zip(&colours) {
                let physical = paging.translate(context, page << PAGE_BITS | 0x123);
                assert_eq!(physical & 0xfff, 0x123);
                assert!(colours.contains(&u32::try_from(physical >> PAGE_BITS & 31).unwrap()));
                assert!(seen.insert(physical));
                assert_eq!(paging.translate(context, page << PAGE_BITS), physical & !0xfff);
            }
        }
        // The first pages have long been forgotten by the small table.
        assert!(seen.contains(&paging.translate(ContextId(0), 0x123)));
        assert_eq!(paging.pages(), 10_000);
    }

    #[test]
    fn impossible_colours_are_named() {
        for (colours, expected) in
            [(vec![vec![0], vec![32]], "page colour 32 for context 1"), (vec![vec![]], "no page colour")]
        {
            let config = PagingConfig { colours, ..PagingConfig::default() };
            let said = Paging::new(&config, table_v_l3()).err().unwrap().to_string();
            assert!(said.contains(expected) && said.contains("from 0 to 31"), "{said}");
        }
    }
}
