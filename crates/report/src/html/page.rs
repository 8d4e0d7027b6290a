//! The page: sections in, HTML out.

use super::answer::Answer;
use super::figure::{Figure, printable};
use super::input::{Content, ResultFile};
use super::section::{Section, prose};
use super::{
    DrawError, ab, answer, classify, doctor, glossary, plain, probe, reproduction, run, scenario, sim, workload,
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The page and what is drawn on it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The whole file.
    pub html: String,
    /// Its figures, in their order.
    pub figures: Vec<Figure>,
}

/// Nothing is fetched, nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Makes the page of these results: whether it helped, then what explains it, in the order of the results' kinds.
///
/// # Errors
///
/// When a figure cannot be drawn.
pub fn page(title: Option<&str>, results: &[ResultFile]) -> Result<Page, DrawError> {
    let sections = sections(results)?;
    let answers: Vec<&Answer> = sections.iter().flat_map(|section| &section.answers).collect();
    let overview = answer::figure(&answers)?;
    let title = title.map_or_else(|| default_title(&sections), str::to_owned);
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
                    (answer(&sections, &answers, overview.as_ref()))
                    (summary(&sections, answers.is_empty()))
                    (figures(&sections, usize::from(overview.is_some())))
                    (tables(&sections))
                    (how_to_read(&sections))
                    (facts(&sections, results))
                }
                footer {
                    "Made by gleaner " (env!("CARGO_PKG_VERSION"))
                    " report. Complete in itself: no script, nothing is fetched."
                }
            }
        }
    };
    let figures = overview.into_iter().chain(sections.into_iter().flat_map(|section| section.figures)).collect();
    // Whatever a file says, no character steers the reader's screen or breaks the markup.
    Ok(Page { html: printable(&html.into_string()), figures })
}

fn sections(results: &[ResultFile]) -> Result<Vec<Section>, DrawError> {
    let (mut comparisons, mut runs, mut workloads) = (Vec::new(), Vec::new(), Vec::new());
    let (mut scenarios, mut probes, mut doctors) = (Vec::new(), Vec::new(), Vec::new());
    let (mut simulations, mut reproductions) = (Vec::new(), Vec::new());
    let (mut caches, mut plains) = (Vec::new(), Vec::new());
    for file in results {
        match &file.content {
            Content::Ab(report) => comparisons.push((file.name.as_str(), &**report)),
            Content::Run(report) => runs.push(&**report),
            Content::Workload(report) => workloads.push(&**report),
            Content::Scenario(report) => scenarios.push(scenario::section(report)?),
            Content::Probe(report) => probes.push(probe::section(report)?),
            Content::Doctor(report) => doctors.push(doctor::section(report)?),
            Content::CacheClass(report) => caches.push(classify::section(report)?),
            Content::Sim(report) => simulations.push(sim::section(report)?),
            Content::Reproduction(report) => reproductions.push(reproduction::section(report)?),
            Content::Plain(plain) => plains.push(plain::section(plain)),
        }
    }
    let mut sections = ab::sections(&comparisons)?;
    sections.append(&mut scenarios);
    let compared: Vec<&Vec<String>> = comparisons.iter().map(|(_, report)| &report.command).collect();
    sections.extend(run::sections(&runs, &compared)?);
    sections.extend(workload::section(&workloads)?);
    sections.append(&mut simulations);
    sections.append(&mut reproductions);
    sections.append(&mut caches);
    sections.append(&mut probes);
    sections.append(&mut doctors);
    sections.append(&mut plains);
    Ok(sections)
}

fn default_title(sections: &[Section]) -> String {
    match sections {
        [one] => format!("Gleaner: {}", one.heading),
        _ => format!("Gleaner: {} results", sections.len()),
    }
}

/// The first thing on the page. Results that compare nothing have none.
fn answer(sections: &[Section], answers: &[&Answer], overview: Option<&Figure>) -> Markup {
    if answers.is_empty() {
        return html! {};
    }
    html! {
        section #answer {
            h2 { "Did it help?" }
            (answer::list(answers))
            (lead(sections))
            @if let Some(figure) = overview { (drawing(figure, 1)) }
        }
    }
}

/// What the policies are, where there are any.
fn lead(sections: &[Section]) -> Markup {
    html! {
        @if sections.iter().any(|section| section.terms.contains(&"policy")) {
            p.lead {
                "Policy off is the program as it runs without Gleaner. "
                "Under every other policy Gleaner does something, under full all it can."
            }
        }
    }
}

/// A drawing with its caption, in a box of its own that scrolls where the window is narrow.
fn drawing(figure: &Figure, number: usize) -> Markup {
    let id = format!("figure-{number}");
    html! {
        figure id=(id) class=(if figure.narrow().is_some() { "both" } else { "wide" }) {
            div.scroll.for-wide { (PreEscaped(figure.svg(&id))) }
            @if let Some(narrow) = figure.narrow() {
                div.scroll.for-narrow { (PreEscaped(narrow.svg(&format!("{id}-narrow")))) }
            }
            figcaption { (prose(&figure.caption)) }
        }
    }
}

fn summary(sections: &[Section], first: bool) -> Markup {
    let told = || sections.iter().filter(|section| !section.summary.is_empty());
    if told().next().is_none() {
        return html! {};
    }
    html! {
        section #summary {
            h2 { "In short" }
            @if first { (lead(sections)) }
            @for section in told() {
                div.result {
                    h3 { (&section.heading) }
                    @for line in &section.summary { p { (line) } }
                }
            }
        }
    }
}

/// The other figures; so many have a number already.
fn figures(sections: &[Section], before: usize) -> Markup {
    let all: Vec<&Figure> = sections.iter().flat_map(|section| &section.figures).collect();
    html! {
        @if !all.is_empty() {
            section #figures {
                h2 { "What was seen" }
                @for (at, figure) in all.into_iter().enumerate() { (drawing(figure, before + 1 + at)) }
            }
        }
    }
}

fn tables(sections: &[Section]) -> Markup {
    html! {
        section #numbers {
            h2 { "The numbers" }
            @for section in sections.iter().filter(|section| !section.tables.is_empty() || !section.texts.is_empty()) {
                h3 { (&section.heading) }
                @for table in &section.tables { (table.markup()) }
                @for text in &section.texts { pre { (text) } }
            }
        }
    }
}

fn how_to_read(sections: &[Section]) -> Markup {
    let mut terms: Vec<_> = sections.iter().flat_map(|section| section.terms.iter().copied()).collect();
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

fn facts(sections: &[Section], results: &[ResultFile]) -> Markup {
    html! {
        section #facts {
            h2 { "Commands, machine, notes" }
            @for section in sections.iter().filter(|section| !section.facts.is_empty() || !section.notes.is_empty()) {
                h3 { (&section.heading) }
                dl {
                    @for (name, value) in &section.facts { dt { (name) } dd { (value) } }
                }
                @if !section.notes.is_empty() {
                    ul { @for note in &section.notes { li { (prose(note)) } } }
                }
            }
            p { "Read from: " @for (at, file) in results.iter().enumerate() {
                @if at > 0 { ", " } code { (&file.name) }
            } }
        }
    }
}
