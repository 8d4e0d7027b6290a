//! Did it help? A verdict for each program, and the interval of each in one drawing: what the page begins with.

use super::DrawError;
use super::chart::{Axis, INK, Look, MUTED, Row, SERIES, Scale, Shape, plain_number, stacked_height, stacked_rows};
use super::figure::Figure;
use crate::{AbSpeedup, RatioSpread};
use maud::{Markup, html};

/// Rows of the drawing; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;

/// What an interval means for the one who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Helps,
    Hurts,
    NoDifference,
    Inconclusive,
    /// There was nothing to compare with.
    NotCompared,
}

impl Verdict {
    const COMPARED: [Self; 4] = [Self::Helps, Self::Hurts, Self::NoDifference, Self::Inconclusive];

    /// That of `gleaner ab`, in its own word.
    pub fn named(word: &str) -> Self {
        Self::COMPARED.into_iter().find(|verdict| verdict.name() == word).unwrap_or(Self::Inconclusive)
    }

    /// Of a ratio: above 1 is better. The same limits as `gleaner ab` has.
    pub fn of(spread: Ratio) -> Self {
        let small = gleaner_stats::SMALL;
        match spread.ci95 {
            Some([low, _]) if low > 1.0 => Self::Helps,
            Some([_, high]) if high < 1.0 => Self::Hurts,
            Some([low, high]) if low * small >= 1.0 && high <= small => Self::NoDifference,
            _ => Self::Inconclusive,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Helps => "helps",
            Self::Hurts => "hurts",
            Self::NoDifference => "no difference",
            Self::Inconclusive => "inconclusive",
            Self::NotCompared => "not compared",
        }
    }

    /// The style's, of words and badges.
    pub fn class(self) -> &'static str {
        match self {
            Self::Helps => "helps",
            Self::Hurts => "hurts",
            Self::NoDifference => "same",
            Self::Inconclusive | Self::NotCompared => "open",
        }
    }

    /// A shape for those who cannot tell the colours apart.
    fn sign(self) -> &'static str {
        match self {
            Self::Helps => "▲",
            Self::Hurts => "▼",
            Self::NoDifference => "=",
            Self::Inconclusive => "?",
            Self::NotCompared => "–",
        }
    }

    fn look(self) -> Look {
        let (colour, shape) = match self {
            Self::Helps => (SERIES[2], Shape::Circle),
            Self::Hurts => (SERIES[1], Shape::Triangle),
            Self::NoDifference => (MUTED, Shape::Square),
            Self::Inconclusive | Self::NotCompared => (INK, Shape::Ring),
        };
        Look { colour, shape }
    }
}

/// How many times as good something is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub median: f64,
    /// 95 % interval; `None` where there are too few values for one.
    pub ci95: Option<[f64; 2]>,
}

impl From<RatioSpread> for Ratio {
    fn from(RatioSpread { median, ci95, .. }: RatioSpread) -> Self {
        Self { median, ci95 }
    }
}

impl From<AbSpeedup> for Ratio {
    fn from(AbSpeedup { median, ci95, .. }: AbSpeedup) -> Self {
        Self { median, ci95 }
    }
}

/// One program's.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The program.
    pub of: String,
    pub verdict: Verdict,
    /// A sentence, with the interval in words.
    pub told: Markup,
    /// What the verdict rests on; `None` where nothing could be compared.
    pub speedup: Option<Ratio>,
}

/// The list of verdicts.
pub(super) fn list(answers: &[&Answer]) -> Markup {
    html! {
        ul.answers {
            @for answer in answers {
                li {
                    span class={ "badge " (answer.verdict.class()) } {
                        span aria-hidden="true" { (answer.verdict.sign()) } " " (answer.verdict.name())
                    }
                    span.told { strong { (answer.of) } ": " (answer.told) }
                }
            }
        }
    }
}

/// Every interval against 1.
pub(super) fn figure(answers: &[&Answer]) -> Result<Option<Figure>, DrawError> {
    let compared: Vec<(&Answer, Ratio)> =
        answers.iter().filter_map(|answer| Some((*answer, answer.speedup?))).collect();
    if compared.is_empty() {
        return Ok(None);
    }
    let of = |verdict: Verdict| compared.iter().filter(|(answer, _)| answer.verdict == verdict).count();
    let counted: Vec<(Verdict, usize)> =
        Verdict::COMPARED.into_iter().map(|verdict| (verdict, of(verdict))).filter(|(_, n)| *n > 0).collect();
    let title = if let [(answer, one)] = compared[..] {
        format!("Speedup {}: {}", told(one), answer.verdict.name())
    } else {
        let counted: Vec<String> = counted.iter().map(|(verdict, n)| format!("{n} {}", verdict.name())).collect();
        format!("{} compared: {}", compared.len(), counted.join(", "))
    };
    let drawn = &compared[..compared.len().min(MOST_ROWS)];
    let left_out = match compared.len() - drawn.len() {
        0 => String::new(),
        n => format!(" {n} more are in the tables."),
    };
    let lines: Vec<Row> = drawn
        .iter()
        .map(|(answer, spread)| Row {
            label: answer.of.clone(),
            range: spread.ci95.map(|[low, high]| (low, high, answer.verdict.look().colour)),
            marks: vec![(spread.median, answer.verdict.look())],
            note: told(*spread),
        })
        .collect();
    let values = drawn.iter().flat_map(|(_, spread)| spread.ci95.into_iter().flatten().chain([spread.median]));
    let scale = Scale::ratio(values);
    let words: Vec<String> = drawn
        .iter()
        .map(|(answer, spread)| format!("{}: {}, {}", answer.of, told(*spread), answer.verdict.name()))
        .collect();
    let caption = format!(
        "The mark is the median speedup, the bar its 95 % interval. Right of 1 is better. A bar wholly on one side of \
         1 shows that it helps or hurts. The scale is one of ratios: twice as fast is as far from 1 as half as \
         fast.{left_out}"
    );
    let legend: Vec<(Look, &str)> = counted.iter().map(|(verdict, _)| (verdict.look(), verdict.name())).collect();
    Figure::draw_both(title, words.join("; "), caption, stacked_height(lines.len()), |canvas| {
        canvas.legend(&legend)?;
        let axis =
            Axis { scale: scale.clone(), name: "speedup (in equal ratios; above 1 is better)", label: &plain_number };
        stacked_rows(canvas, axis, &lines, (1.0, "1: no difference"))
    })
    .map(Some)
}

/// A ratio with its interval: `1.050 (0.990 to 1.120)`.
pub(super) fn told(spread: Ratio) -> String {
    super::forest::told(spread.median, spread.ci95)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_follows_from_the_interval() {
        let of = |ci95| Verdict::of(Ratio { median: 1.0, ci95 });
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
