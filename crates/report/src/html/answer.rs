//! What the page begins with: did it help? A verdict for each program, and the interval of each in one drawing.

use super::part::prose;
use crate::show::{Answer, Axis, Bar, Body, Chart, Mark, Verdict};
use crate::text::interval;
use maud::{Markup, html};

/// Rows of the drawing; a longer one cannot be taken in.
const MOST_ROWS: usize = 30;

pub(super) fn list(answers: &[&Answer]) -> Markup {
    html! {
        ul.answers {
            @for answer in answers {
                @let (name, class, sign, _) = answer.verdict.shown();
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
        let (name, _, _, look) = answer.verdict.shown();
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
