//! How many rows of each reproduction agree with the paper, in a smoke run: a change of the simulator that moves one is
//! seen here, and said.
//!
//! A smoke run is short, so these are not the figures of docs/results.md. They are the same in every run: where one
//! changes, that is somebody's doing.

use gleaner_sim::reproduce::{Basis, Extent, IDS, reproduce};

/// Identifier; predicted rows that were judged, and those of them that agree.
const AGREE: &[(&str, usize, usize)] = &[
    ("gleaner:table1", 20, 5),
    ("gleaner:table2", 1, 1),
    ("gleaner:fig1", 8, 1),
    ("gleaner:fig2", 2, 1),
    ("gleaner:fig5", 14, 7),
    ("gleaner:fig7", 20, 6),
    ("gleaner:fig8", 0, 0),
    ("gleaner:fig9", 3, 0),
    ("micro:table1", 30, 3),
    ("micro:fig2", 11, 9),
    ("micro:fig3", 4, 3),
    ("micro:fig5", 5, 4),
    ("micro:fig6", 49, 34),
    ("micro:fig9", 2, 2),
];

#[test]
fn as_many_rows_agree_as_before() {
    let found: Vec<(&str, usize, usize)> = IDS
        .iter()
        .map(|id| {
            let rows = reproduce(id, &Extent { smoke: true, seed: 1 }).unwrap().rows;
            let judged: Vec<bool> =
                rows.iter().filter(|row| row.basis != Basis::Calibrated).filter_map(|row| row.agrees).collect();
            (*id, judged.len(), judged.iter().filter(|agrees| **agrees).count())
        })
        .collect();
    assert_eq!(found, AGREE);
}
