//! One line of a reproduction, and by what it agrees with the paper.

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
    /// What came out here.
    pub simulated: Option<f64>,
    /// Whether that is what the paper says; `None` where the paper says nothing.
    pub agrees: Option<bool>,
    /// Whether anything of it was fitted.
    pub basis: Basis,
    /// By what `agrees` was judged, why it does not agree, and what else should be known.
    pub note: Option<String>,
}

impl Row {
    /// A figure that the paper's text gives: agrees within 25 %; not where nothing was done, so that there is none
    /// here.
    pub fn number(case: impl Into<String>, metric: &str, paper: f64, simulated: f64, basis: Basis) -> Self {
        Self {
            paper: Some(paper),
            // No figure, for nothing was done, is within nothing.
            agrees: Some(within(simulated, paper)),
            ..Self::measured(case, metric, simulated, basis)
        }
    }

    /// A statement in words, judged by a criterion of ours that is stated with it.
    pub fn order(
        case: impl Into<String>,
        metric: &str,
        paper_order: &str,
        simulated: f64,
        agrees: bool,
        criterion: impl Into<String>,
        basis: Basis,
    ) -> Self {
        Self {
            paper_order: Some(paper_order.to_owned()),
            agrees: Some(agrees && simulated.is_finite()),
            ..Self::measured(case, metric, simulated, basis)
        }
        .with_note(Into::<String>::into(criterion))
    }

    /// What was simulated and the paper gives only as a picture.
    pub fn measured(case: impl Into<String>, metric: &str, simulated: f64, basis: Basis) -> Self {
        Self {
            case: case.into(),
            metric: metric.to_owned(),
            paper: None,
            paper_order: None,
            simulated: Some(simulated).filter(|value| value.is_finite()),
            agrees: None,
            basis,
            note: (!simulated.is_finite()).then(|| "nothing was done in the time that was simulated".to_owned()),
        }
    }

    /// More to know about it, after what is there.
    #[must_use]
    pub fn with_note(mut self, note: impl AsRef<str>) -> Self {
        self.note = Some(match self.note.take() {
            Some(before) => format!("{before}; {}", note.as_ref()),
            None => note.as_ref().to_owned(),
        });
        self
    }

    /// Why it does not agree; nothing is added where it does.
    #[must_use]
    pub fn because(self, reason: &str) -> Self {
        if self.agrees == Some(false) { self.with_note(reason) } else { self }
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

/// Whether a figure is within 25 % of the paper's.
pub fn within(simulated: f64, paper: f64) -> bool {
    (simulated - paper).abs() <= AGREES_WITHIN * paper.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_off_agrees_and_more_does_not() {
        let agrees = |simulated| Row::number("x", "time us", 8.0, simulated, Basis::Predicted).agrees;
        assert_eq!([6.0, 10.0].map(agrees), [Some(true); 2]);
        assert_eq!([5.99, 10.01].map(agrees), [Some(false); 2]);
        // Where nothing was done, what the paper says did not come out: the row counts.
        assert_eq!([f64::NAN, f64::INFINITY].map(agrees), [Some(false); 2]);
        let order = Row::order("x", "ratio", "more", f64::INFINITY, true, "above 1", Basis::Predicted);
        assert_eq!(order.agrees, Some(false));
        assert_eq!(Row::number("x", "time us", 8.0, 6.0, Basis::Predicted).error_ratio(), Some(-0.25));
        assert_eq!(Row::measured("x", "time us", f64::NAN, Basis::Predicted).simulated, None);
    }

    #[test]
    fn a_reason_is_given_only_where_it_is_needed() {
        let off = Row::number("x", "time us", 8.0, 1.0, Basis::Predicted).with_note("one").because("two");
        assert_eq!(off.note.as_deref(), Some("one; two"));
        assert_eq!(Row::number("x", "time us", 8.0, 8.0, Basis::Predicted).because("two").note, None);
    }
}
