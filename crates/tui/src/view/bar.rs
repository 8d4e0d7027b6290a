//! A bar: the time of one vCPU, or of several, in cells.

use crate::look::{Look, Part};
use gleaner_report::StatusVcpuTimes;
use ratatui::text::Span;

/// How time was spent, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub work: u64,
    pub awake: u64,
    pub halted: u64,
    /// `None` where the hypervisor tells of none.
    pub stolen: Option<u64>,
}

impl Spent {
    /// `None` where it is not known.
    pub(crate) fn of(times: &StatusVcpuTimes) -> Option<Self> {
        Some(Self { work: times.busy_ns?, awake: times.retained_ns?, halted: times.halted_ns?, stolen: times.steal_ns })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            work: self.work.saturating_add(other.work),
            awake: self.awake.saturating_add(other.awake),
            halted: self.halted.saturating_add(other.halted),
            stolen: match (self.stolen, other.stolen) {
                (Some(one), Some(two)) => Some(one.saturating_add(two)),
                (one, two) => one.or(two),
            },
        }
    }

    pub(crate) fn parts(self) -> [(Part, u64); 4] {
        [
            (Part::Work, self.work),
            (Part::Awake, self.awake),
            (Part::Halted, self.halted),
            (Part::Stolen, self.stolen.unwrap_or(0)),
        ]
    }

    /// Each part's share, 0 to 1.
    pub(crate) fn shares(self) -> [f64; 4] {
        let total = self.parts().iter().map(|(_, ns)| *ns as f64).sum::<f64>().max(1.0);
        self.parts().map(|(_, ns)| ns as f64 / total)
    }
}

/// So many cells for each part: all of them are given away, and each part has its share to within one.
pub(crate) fn cells(spent: Spent, width: usize) -> [usize; 4] {
    let parts = spent.parts().map(|(_, ns)| u128::from(ns));
    let total: u128 = parts.iter().sum();
    if total == 0 {
        return [0; 4];
    }
    let exact = parts.map(|ns| ns * width as u128);
    let mut cells = exact.map(|share| usize::try_from(share / total).unwrap_or(0));
    // What rounding left goes to those that lost most by it.
    let mut order = [0, 1, 2, 3];
    order.sort_by_key(|part| std::cmp::Reverse(exact[*part] % total));
    let left = width.saturating_sub(cells.iter().sum());
    order.into_iter().cycle().take(left).for_each(|part| cells[part] += 1);
    cells
}

pub(crate) fn spans(spent: Option<Spent>, width: usize, look: Look) -> Vec<Span<'static>> {
    let run = |part, n| Span::styled(String::from(look.glyph(part)).repeat(n), look.style(part));
    match spent {
        Some(spent) => {
            let parts = spent.parts().map(|(part, _)| part);
            parts.into_iter().zip(cells(spent, width)).map(|(part, n)| run(part, n)).collect()
        }
        None => vec![run(Part::Unknown, width)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cells_are_given_away_by_share() {
        let spent = |work, awake, halted, stolen| Spent { work, awake, halted, stolen: Some(stolen) };
        for (times, width, expected) in [
            (spent(50, 30, 20, 0), 10, [5, 3, 2, 0]),
            (spent(1, 1, 1, 0), 10, [4, 3, 3, 0]),
            (spent(0, 0, 1000, 1), 10, [0, 0, 10, 0]),
            (spent(94, 0, 0, 6), 10, [9, 0, 0, 1]),
            (spent(5, 0, 0, 0), 0, [0; 4]),
            (spent(0, 0, 0, 0), 10, [0; 4]),
            (spent(u64::MAX, u64::MAX, u64::MAX, u64::MAX), 8, [2; 4]),
        ] {
            assert_eq!(cells(times, width), expected, "{times:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_part_has_its_share_to_within_a_cell(
            parts in proptest::array::uniform4(0_u64..1_000_000),
            width in 0_usize..300,
        ) {
            let [work, awake, halted, stolen] = parts;
            let spent = Spent { work, awake, halted, stolen: Some(stolen) };
            let found = cells(spent, width);
            let total: u64 = parts.iter().sum();
            proptest::prop_assert_eq!(found.iter().sum::<usize>(), if total == 0 { 0 } else { width });
            for (n, share) in found.into_iter().zip(spent.shares()) {
                proptest::prop_assert!((n as f64 - share * width as f64).abs() <= 1.0, "{:?}", found);
            }
        }
    }
}
