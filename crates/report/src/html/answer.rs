//! Did it help? A verdict for each program, and the interval of each in one drawing: what the page begins with.

use super::part::prose;
use crate::show::{Answer, Axis, Bar, Body, Chart, INK, Look, MUTED, Mark, SERIES, Shape};
use crate::text::interval;
use maud::{Markup, html};

/// Rows of the drawing; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;

/// What an interval means for the one who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
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
    pub fn of(ci95: Option<[f64; 2]>) -> Self {
        let small = gleaner_stats::SMALL;
        match ci95 {
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
        match self {
            Self::Helps => Look(SERIES[2], Shape::Circle),
            Self::Hurts => Look(SERIES[1], Shape::Triangle),
            Self::NoDifference => Look(MUTED, Shape::Square),
            Self::Inconclusive | Self::NotCompared => Look(INK, Shape::Ring),
        }
    }
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
                    span.told {
                        strong { (answer.of) } ": " (prose(&answer.told))
                        @if let Some(bad) = &answer.bad { " " span.hurts { (prose(bad)) } }
                    }
                }
            }
        }
    }
}

/// Every interval against 1; `None` where nothing was compared.
pub(super) fn chart(answers: &[&Answer]) -> Option<Chart> {
    type Compared<'a> = (&'a Answer, (f64, Option<[f64; 2]>));
    let compared: Vec<Compared<'_>> = answers.iter().filter_map(|answer| Some((*answer, answer.speedup?))).collect();
    let counted = Verdict::COMPARED.into_iter().filter_map(|verdict| {
        let n = compared.iter().filter(|(answer, _)| answer.verdict == verdict).count();
        (n > 0).then(|| format!("{n} {}", verdict.name()))
    });
    let title = match compared[..] {
        [] => return None,
        [(answer, (median, ci95))] => format!("Speedup {}: {}", interval(median, ci95), answer.verdict.name()),
        _ => format!("{} compared: {}", compared.len(), counted.collect::<Vec<String>>().join(", ")),
    };
    let left_out = match compared.len().saturating_sub(MOST_ROWS) {
        0 => String::new(),
        n => format!(" {n} more are in the tables."),
    };
    let bar = |(answer, (median, ci95)): &Compared<'_>| {
        let mark = Mark::new(*median, answer.verdict.name(), answer.verdict.look());
        Bar { note: interval(*median, *ci95), ..Bar::ratio(&answer.of, mark, *ci95) }
    };
    Some(Chart {
        title,
        caption: format!(
            "The mark is the median speedup, the bar its 95 % interval. Right of 1 is better. A bar wholly on one side \
             of 1 shows that it helps or hurts. The scale is one of ratios: twice as fast is as far from 1 as half as \
             fast.{left_out}"
        ),
        x: Axis::ratios("speedup (in equal ratios; above 1 is better)"),
        body: Body::Stacked(compared.iter().take(MOST_ROWS).map(bar).collect(), (1.0, "1: no difference".to_owned())),
    })
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
