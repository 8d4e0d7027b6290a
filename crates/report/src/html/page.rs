//! The page: documents in, HTML out.

use super::figure::Figure;
use super::input::{self, ResultFile};
use super::part::{fact, paragraph, prose, table};
use super::{DrawError, answer, glossary};
use crate::show::{Answer, Document, Part};
use crate::text::printable;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The page and what is drawn on it.
#[derive(Clone, Debug)]
pub struct Page {
    pub html: String,
    /// Its figures, in their order.
    pub figures: Vec<Figure>,
}

/// Nothing is fetched, nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Makes the page of these results: whether it helped, then what explains it, in the order of the results' kinds.
pub fn page(title: Option<&str>, results: &[ResultFile]) -> Result<Page, DrawError> {
    let documents = input::documents(results);
    let answers: Vec<&Answer> = documents.iter().flat_map(|document| &document.answers).collect();
    let overview = answer::chart(&answers).map(|chart| Figure::of(&chart)).transpose()?;
    let figures = documents.iter().flat_map(Document::charts).map(Figure::of).collect::<Result<Vec<Figure>, _>>()?;
    let title = title.map_or_else(|| default_title(&documents), str::to_owned);
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("gleaner ", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header { h1 { (title) } }
                main {
                    (answer(&documents, &answers, overview.as_ref()))
                    (summary(&documents, answers.is_empty()))
                    (seen(&figures, usize::from(overview.is_some())))
                    (numbers(&documents))
                    (how_to_read(&documents))
                    (facts(&documents, results))
                }
                footer {
                    "Made by gleaner " (env!("CARGO_PKG_VERSION"))
                    " report. Complete in itself: no script, nothing is fetched."
                }
            }
        }
    };
    let figures = overview.into_iter().chain(figures).collect();
    // Whatever a file says, no character steers the reader's screen or breaks the markup.
    Ok(Page { html: printable(&html.into_string()), figures })
}

fn default_title(documents: &[Document]) -> String {
    match documents {
        [one] => format!("Gleaner: {}", one.heading),
        _ => format!("Gleaner: {} results", documents.len()),
    }
}

/// The first thing on the page. Results that compare nothing have none.
fn answer(documents: &[Document], answers: &[&Answer], overview: Option<&Figure>) -> Markup {
    if answers.is_empty() {
        return html! {};
    }
    html! {
        section #answer {
            h2 { "Did it help?" }
            (answer::list(answers))
            (lead(documents))
            @if let Some(figure) = overview { (figure.markup(1)) }
        }
    }
}

/// What the policies are, where there are any.
fn lead(documents: &[Document]) -> Markup {
    html! {
        @if documents.iter().any(|document| document.terms.contains(&"policy")) {
            p.lead {
                "Policy off is the program as it runs without Gleaner. "
                "Under every other policy Gleaner does something, under full all it can."
            }
        }
    }
}

fn summary(documents: &[Document], first: bool) -> Markup {
    let lines =
        |document: &Document| -> Vec<Markup> { document.lines().map(|(tone, text)| paragraph(tone, text)).collect() };
    let told: Vec<(&Document, Vec<Markup>)> = documents.iter().map(|document| (document, lines(document))).collect();
    html! {
        @if told.iter().any(|(_, lines)| !lines.is_empty()) {
            section #summary {
                h2 { "In short" }
                @if first { (lead(documents)) }
                @for (document, lines) in told.iter().filter(|(_, lines)| !lines.is_empty()) {
                    div.result {
                        h3 { (&document.heading) }
                        @for line in lines { (line) }
                    }
                }
            }
        }
    }
}

/// The other figures; so many have a number already.
fn seen(figures: &[Figure], before: usize) -> Markup {
    html! {
        @if !figures.is_empty() {
            section #figures {
                h2 { "What was seen" }
                @for (at, figure) in figures.iter().enumerate() { (figure.markup(before + 1 + at)) }
            }
        }
    }
}

fn numbers(documents: &[Document]) -> Markup {
    html! {
        section #numbers {
            h2 { "The numbers" }
            @for document in documents {
                @if document.tables().next().is_some() { h3 { (&document.heading) } }
                @for of in document.tables() { (table(of)) }
            }
        }
    }
}

fn how_to_read(documents: &[Document]) -> Markup {
    let mut terms: Vec<_> = documents.iter().flat_map(|document| document.terms).copied().collect();
    terms.sort_unstable();
    terms.dedup();
    html! {
        section #reading {
            h2 { "How to read this" }
            p {
                "A virtual CPU (vCPU) that idles is taken away by the hypervisor, and waking a thread on it then \
                 takes longer. "
                "Gleaner keeps vCPUs awake over short idle periods and packs threads onto fewer vCPUs. "
                "Times are wall-clock times unless something else is said; "
                "p50 (the median), p90 and p99 are the times that 50, 90 and 99 of 100 samples stayed below. "
                "A dash means that a figure is not known, which is not zero."
            }
            dl {
                @for term in terms {
                    @if let Some(meaning) = glossary::meaning(term) {
                        dt { (term) } dd { (prose(meaning)) }
                    }
                }
            }
        }
    }
}

fn facts(documents: &[Document], results: &[ResultFile]) -> Markup {
    let of = |document: &Document| -> (Vec<Markup>, Vec<Markup>) {
        let named = document.on_page().filter_map(|part| match part {
            Part::Fact(name, lines) => Some(fact(name, lines)),
            _ => None,
        });
        let notes = document.on_page().filter_map(|part| match part {
            Part::Note(note) => Some(html! { li { (prose(note)) } }),
            _ => None,
        });
        (named.collect(), notes.collect())
    };
    html! {
        section #facts {
            h2 { "Commands, machine, notes" }
            @for document in documents {
                @let (named, notes) = of(document);
                @if !(named.is_empty() && notes.is_empty()) { h3 { (&document.heading) } }
                @if !named.is_empty() { dl { @for of in &named { (of) } } }
                @if !notes.is_empty() { ul { @for note in &notes { (note) } } }
            }
            p { "Read from: " @for (at, file) in results.iter().enumerate() {
                @if at > 0 { ", " } code { (&file.name) }
            } }
        }
    }
}
