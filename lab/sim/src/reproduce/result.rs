//! What a reproduction is asked for, and what comes out.

use crate::config::SimError;
use gleaner_papers::{Found, Row, table};

/// Everything that can be reproduced, in order.
pub const IDS: &[&str] = &[
    "gleaner:table1",
    "gleaner:table2",
    "gleaner:fig1",
    "gleaner:fig2",
    "gleaner:fig5",
    "gleaner:fig7",
    "gleaner:fig8",
    "gleaner:fig9",
    "micro:table1",
    "micro:fig2",
    "micro:fig3",
    "micro:fig5",
    "micro:fig6",
    "micro:fig9",
];

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Shortened: to see that it runs, not for a result.
    pub smoke: bool,
    /// Of everything that is drawn.
    pub seed: u64,
}

impl Extent {
    /// The same with so many seeds, which the given one determines: results that hang on how virtual machines begin are
    /// means over them.
    pub(super) fn beginnings(&self, many: u64) -> Vec<Self> {
        seeds(self.seed, many).map(|seed| Self { seed, ..*self }).collect()
    }
}

/// So many seeds, the given one first.
pub(super) fn seeds(first: u64, many: u64) -> impl Iterator<Item = u64> {
    (0..many).map(move |n| first.wrapping_add(n.wrapping_mul(0x9E37_79B9)))
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproduced {
    /// What it shows.
    pub title: String,
    /// What was simulated on what: name (with unit) and value.
    pub parameters: Vec<(String, String)>,
    pub rows: Vec<Row>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// The rows that a table or figure makes of what was found.
pub(super) fn reproduced(id: &str, parameters: Vec<(String, String)>, found: &Found) -> Reproduced {
    let table = table(id);
    Reproduced { rows: table.rows(found), title: table.title, parameters, notes: table.notes }
}

/// A reproduction that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReproduceError {
    /// No such identifier.
    #[error("there is no {0}; there are {list}", list = IDS.join(", "))]
    Unknown(String),
    /// A simulation that cannot be built or does not end.
    #[error("{case}: {error}")]
    Simulation {
        case: String,
        /// Why.
        error: SimError,
    },
    /// A file that is part of the program is wrong.
    #[error("{0}: {1}")]
    Data(&'static str, String),
}
