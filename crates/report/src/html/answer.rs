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

    /// Its name; its class in the style; a shape for those who cannot tell the colours apart; how it is drawn.
    fn told(self) -> (&'static str, &'static str, &'static str, Look) {
        match self {
            Self::Helps => ("helps", "helps", "▲", Look(SERIES[2], Shape::Circle)),
            Self::Hurts => ("hurts", "hurts", "▼", Look(SERIES[1], Shape::Triangle)),
            Self::NoDifference => ("no difference", "same", "=", Look(MUTED, Shape::Square)),
            Self::Inconclusive => ("inconclusive", "open", "?", Look(INK, Shape::Ring)),
            Self::NotCompared => ("not compared", "open", "–", Look(INK, Shape::Ring)),
        }
    }

    pub fn name(self) -> &'static str {
        self.told().0
    }
}

/// The list of verdicts.
pub(super) fn list(answers: &[&Answer]) -> Markup {
    html! {
        ul.answers {
            @for answer in answers {
                @let (name, class, sign, _) = answer.verdict.told();
                li {
                    span class={ "badge " (class) } { span aria-hidden="true" { (sign) } " " (name) }
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
        let (name, _, _, look) = answer.verdict.told();
        let mark = Mark::new(*median, name, look);
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
        body: Body::Rows(
            compared.iter().take(MOST_ROWS).map(bar).collect(),
            Some((1.0, "1: no difference".to_owned())),
        ),
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
