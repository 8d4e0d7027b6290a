//! One row of a reproduction: the paper's figure, the simulated one, whether they agree.

/// A figure of the paper's is met when the simulated one is within this of it, relative to it.
pub const AGREES_WITHIN: f64 = 0.25;

/// Whether anything of a row was fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Everything that it was simulated with has a source other than the row.
    Predicted,
    /// It was used for calibration, or its workload has a parameter without a source.
    Calibrated,
}

impl Basis {
    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Calibrated => "calibrated",
        }
    }
}

/// One figure of the paper, or one statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which workload, setting or group of them.
    pub case: String,
    /// What is counted; the last word is its unit.
    pub metric: String,
    /// The figure that the paper's text gives.
    pub paper: Option<f64>,
    /// What the paper says about it in words.
    pub paper_order: Option<String>,
    /// What came out here; `None` where nothing was done in the time that was simulated.
    pub simulated: Option<f64>,
    /// Whether that is what the paper says; `None` where the paper says nothing.
    pub agrees: Option<bool>,
    /// Whether anything of it was fitted.
    pub basis: Basis,
    /// By what `agrees` was judged, why it does not agree, and what else should be known.
    pub note: Option<String>,
}

impl Row {
    /// What was simulated and the paper gives only as a picture.
    pub fn measured(case: impl Into<String>, metric: impl Into<String>, simulated: f64) -> Self {
        Self {
            case: case.into(),
            metric: metric.into(),
            paper: None,
            paper_order: None,
            simulated: Some(simulated).filter(|value| value.is_finite()),
            agrees: None,
            basis: Basis::Predicted,
            note: (!simulated.is_finite()).then(|| "nothing was done in the time that was simulated".to_owned()),
        }
    }

    /// Whether the paper gives a figure or says something.
    pub fn is_compared(&self) -> bool {
        self.paper.is_some() || self.paper_order.is_some()
    }

    /// How far off it is, relative to the paper's figure.
    pub fn error_ratio(&self) -> Option<f64> {
        self.paper.zip(self.simulated).filter(|(paper, _)| *paper != 0.0).map(|(paper, here)| here / paper - 1.0)
    }
}

/// Whether a figure is within 25 % of the paper's. No figure is within nothing.
pub fn within(simulated: f64, paper: f64) -> bool {
    (simulated - paper).abs() <= AGREES_WITHIN * paper.abs()
}
