//! `gleaner.reproduction/1`: a figure or table of one of the papers, simulated; of `cache reproduce` and `sim
//! reproduce`.

mod chart;
mod shown;

use serde::{Deserialize, Serialize};

/// What a reproduction gave, beside what the paper says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReproductionReport {
    pub schema: String,
    /// Which figure or table, such as `micro:fig10`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Whether less was simulated than a result needs.
    pub smoke: bool,
    /// What was simulated on what, in order.
    pub parameters: Vec<ReproductionParameter>,
    /// What was simulated, and the paper's figures and statements.
    pub rows: Vec<ReproductionRow>,
    /// What the reader should know about it.
    pub notes: Vec<String>,
}

/// One of the simulation's parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReproductionParameter {
    /// Its name, with the unit.
    pub name: String,
    /// Its value, as text.
    pub value: String,
}

/// One figure, or one statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReproductionRow {
    /// Which mix, workload or group of them.
    pub case: String,
    /// What is counted, with its unit.
    pub metric: String,
    /// The figure that the paper gives; null where it gives none in its text.
    pub paper: Option<f64>,
    /// What the paper says of it in words: an order, a tendency; null where it says nothing.
    pub paper_order: Option<String>,
    /// What the simulation gave; null if it could not say.
    pub simulated: Option<f64>,
    /// The same with costs measured on a real machine; null where there are none.
    pub calibrated: Option<f64>,
    /// Whether it stands to the others as the paper says; null where the paper says nothing.
    pub agrees: Option<bool>,
    /// Less was simulated than a result needs.
    pub smoke: bool,
    /// By what it was judged, and what else should be known.
    pub note: Option<String>,
    /// `predicted`, or `calibrated`: the row was used for calibration, or depends on a parameter without a source; null
    /// for figures of `cache reproduce`, which is calibrated with nothing.
    pub basis: Option<String>,
    /// How far off the simulation is, relative to the paper's figure; null where the paper gives none.
    pub error_ratio: Option<f64>,
}

impl ReproductionReport {
    /// Rows about which the paper says something.
    pub fn compared(&self) -> impl Iterator<Item = &ReproductionRow> {
        self.rows.iter().filter(|row| row.is_compared())
    }

    /// Rows about which the paper says something and for which nothing was fitted.
    pub fn predicted(&self) -> impl Iterator<Item = &ReproductionRow> {
        self.compared().filter(|row| row.basis.as_deref() == Some("predicted"))
    }
}

impl ReproductionRow {
    /// Whether the paper gives a figure for it or says something of it.
    pub fn is_compared(&self) -> bool {
        self.paper.is_some() || self.paper_order.is_some()
    }

    /// The last word of the metric; what is before it tells techniques apart.
    fn unit(&self) -> &str {
        self.metric.rsplit_once(' ').map_or(&self.metric, |(_, unit)| unit)
    }

    fn technique(&self) -> &str {
        self.metric.rsplit_once(' ').map_or("", |(technique, _)| technique)
    }
}
