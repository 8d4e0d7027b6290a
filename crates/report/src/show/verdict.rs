//! Whether a comparison shows that something helped.

use super::{INK, Look, MUTED, SERIES, Shape};

/// What an interval means for the one who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Helps,
    Hurts,
    NoDifference,
    Inconclusive,
    /// There was nothing to compare with.
    NotCompared,
}

impl Verdict {
    pub const COMPARED: [Self; 4] = [Self::Helps, Self::Hurts, Self::NoDifference, Self::Inconclusive];

    /// That of `gleaner ab`, in its own word.
    pub fn named(word: &str) -> Self {
        Self::COMPARED.into_iter().find(|verdict| verdict.name() == word).unwrap_or(Self::Inconclusive)
    }

    /// Of a ratio: above 1 is better. The same limits as `gleaner ab` has.
    pub fn of(ci95: Option<[f64; 2]>) -> Self {
        let small = gleaner_stats::SMALL;
        match ci95 {
            Some([low, _]) if low > 1.0 => Self::Helps,
            Some([_, high]) if high < 1.0 => Self::Hurts,
            Some([low, high]) if low * small >= 1.0 && high <= small => Self::NoDifference,
            _ => Self::Inconclusive,
        }
    }

    /// Its name; its class in the style; a shape for those who cannot tell the colours apart; how it is drawn.
    pub fn shown(self) -> (&'static str, &'static str, &'static str, Look) {
        match self {
            Self::Helps => ("helps", "helps", "▲", Look(SERIES[2], Shape::Circle)),
            Self::Hurts => ("hurts", "hurts", "▼", Look(SERIES[1], Shape::Triangle)),
            Self::NoDifference => ("no difference", "same", "=", Look(MUTED, Shape::Square)),
            Self::Inconclusive => ("inconclusive", "open", "?", Look(INK, Shape::Ring)),
            Self::NotCompared => ("not compared", "open", "–", Look(INK, Shape::Ring)),
        }
    }

    pub fn name(self) -> &'static str {
        self.shown().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_follows_from_the_interval() {
        let of = Verdict::of;
        assert_eq!(of(Some([1.01, 1.3])), Verdict::Helps);
        assert_eq!(of(Some([0.7, 0.99])), Verdict::Hurts);
        assert_eq!(of(Some([0.95, 1.04])), Verdict::NoDifference);
        assert_eq!(of(Some([0.47, 1.57])), Verdict::Inconclusive);
        assert_eq!(of(Some([0.95, 1.2])), Verdict::Inconclusive);
        assert_eq!(of(None), Verdict::Inconclusive);
        assert_eq!(Verdict::named("no difference"), Verdict::NoDifference);
        assert_eq!(Verdict::named("a later gleaner's word"), Verdict::Inconclusive);
    }
}
