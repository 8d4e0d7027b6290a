//! The page of results: what is on it, that nothing breaks out of it, and that no file can make it panic.
//!
//! What a browser makes of it is tried with the binary (crates/cli/tests/report.rs).

mod support;

use gleaner_report::html::{KNOWN, page, read};
use serde_json::Value;
use support::{NASTY, examples, made_of, replace_strings};

/// The elements of this name, from `<` to the next `>`.
fn tags<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("<{name}");
    let all = html.match_indices(&start).map(|(at, _)| html[at..].split('>').next().unwrap());
    all.filter(|tag| matches!(tag.as_bytes().get(start.len()), None | Some(b' '))).collect()
}

#[test]
fn every_schema_has_its_place_on_the_page() {
    let mut examples = examples(KNOWN);
    for schema in ["doctor", "probe", "run", "ab", "workload"] {
        let needle = format!("gleaner.{schema}/1");
        assert!(examples.iter().any(|(_, text)| text.contains(&needle)), "no example of {schema}");
    }
    examples.retain(|(name, _)| !name.starts_with("golden__ab"));
    let page = made_of(&examples, KNOWN);
    for words in [
        // Verdicts with their intervals, and what they cost.
        "full is 6.2\u{a0}% faster than off, 95\u{a0}% interval 6.0\u{a0}% faster to 38.0\u{a0}% faster: full helps.",
        "full hurts",
        "1.08 times the CPU time of off",
        "inconclusive, because one pair is too few for an interval",
        "Incomplete: 1 of 6 pairs, because the command ended with status 1.",
        // What was seen, as text in the figures.
        "3 compared: 1 helps, 1 hurts, 1 inconclusive",
        "pbzip2: run time of every run, pair by pair",
        "pbzip2: between 3 and 4 vCPUs were active, 3.25 on average",
        "How long requests took",
        // Raw numbers: an outlier's run time, a decision's reason, a percentile.
        "<td class=\"number\">3.12s</td>",
        "the workload changed: CPU time moved by 31 %",
        "<td class=\"number\">2.90ms</td>",
        // How to read it, and where it comes from.
        "<dt>contention guard</dt>",
        "Read from: <code>ab-few.json</code>, ",
    ] {
        assert!(page.html.contains(words), "the page lacks: {words}");
    }
}

/// What the page begins with, and nothing on it says otherwise.
#[test]
fn the_first_thing_on_the_page_is_whether_it_helped() {
    let results = ["ab.json", "ab-metric.json", "ab-few.json"];
    let mut chosen = examples(KNOWN);
    chosen.retain(|(name, _)| results.contains(&name.as_str()));
    let page = made_of(&chosen, KNOWN);
    let body = page.html.split_once("<main>").unwrap().1;
    let (answer, rest) = body.split_once("</section>").unwrap();
    assert!(answer.starts_with("<section id=\"answer\"><h2>Did it help?</h2>"), "{answer:.200}");
    let badges: Vec<(&str, &str)> = answer
        .split("<span class=\"badge ")
        .skip(1)
        .map(|badge| {
            let (class, rest) = badge.split_once('"').unwrap();
            let words = rest.split_once("</span> ").unwrap().1;
            (class, words.split_once('<').unwrap().0)
        })
        .collect();
    assert_eq!(badges, [("open", "inconclusive"), ("hurts", "hurts"), ("helps", "helps")], "in the files' order");
    assert_eq!(answer.matches("<figure ").count(), 1, "one drawing of all of them");
    let overview = &page.figures[0];
    assert_eq!(overview.title, "3 compared: 1 helps, 1 hurts, 1 inconclusive");
    assert!(overview.description.contains("pbzip2: 1.062 (1.060 to 1.380), helps"), "{overview:?}");
    assert!(!answer.contains("no difference.") && !answer.contains("no difference,"), "it is inconclusive");
    assert!(!rest.contains("class=\"badge"), "a verdict is given once");
}

/// A ratio of 1.02 must not fill the page, and no axis of times begins at its least value.
#[test]
fn axes_do_not_exaggerate() {
    let mut chosen = examples(KNOWN);
    chosen.retain(|(name, _)| name == "ab.json");
    let made = |json: &str| {
        let mut changed: Value = serde_json::from_str(&chosen[0].1).unwrap();
        changed["speedup"] = serde_json::from_str(json).unwrap();
        page(None, &[read("ab.json", &changed.to_string(), KNOWN).unwrap()]).unwrap()
    };
    let drawings = |page: &gleaner_report::html::Page| {
        let narrow = |drawing: &&str| drawing.contains("-narrow-title\"");
        let drawings: Vec<&str> = page.html.split("<svg ").skip(1).filter(|drawing| !narrow(drawing)).collect();
        drawings.iter().map(|drawing| drawing.split("</svg>").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let small = drawings(&made(r#"{"median": 1.02, "ci95": [1.01, 1.03], "pairs": 6}"#));
    for tick in ["0.8", "1", "1.25"] {
        assert!(small[0].contains(&format!("\n{tick}\n")), "the overview has {tick}: {}", small[0]);
    }
    let large = drawings(&made(r#"{"median": 40.0, "ci95": [20.0, 80.0], "pairs": 6}"#));
    for tick in ["1", "10"] {
        assert!(large[0].contains(&format!("\n{tick}\n")), "the overview has {tick}: {}", large[0]);
    }
    assert!(small[1].contains("\n0ns\n"), "run times begin at 0: {}", small[1]);
}

#[test]
fn every_figure_has_words_for_those_who_cannot_see_it() {
    let page = made_of(&examples(KNOWN), KNOWN);
    let all = tags(&page.html, "svg");
    let (narrow, drawings): (Vec<_>, Vec<_>) = all.into_iter().partition(|svg| svg.contains("-narrow-title "));
    assert_eq!(drawings.len(), page.figures.len());
    assert!(
        narrow.len() > 1 && narrow.iter().all(|svg| svg.contains("role=\"img\"") && svg.contains("-narrow-desc\""))
    );
    assert_eq!(page.html.matches("<figcaption>").count(), page.figures.len());
    for (number, svg) in (1..).zip(&drawings) {
        assert!(
            svg.contains(&format!("role=\"img\" aria-labelledby=\"figure-{number}-title figure-{number}-desc\"")),
            "{svg}"
        );
    }
    for figure in &page.figures {
        assert!(figure.title.len() > 10 && figure.description.len() > 10 && figure.caption.len() > 40, "{figure:?}");
        assert!(!figure.title.contains("None") && !figure.description.contains("NaN"), "{figure:?}");
    }
}

#[test]
fn the_page_needs_nothing_else() {
    let html = made_of(&examples(KNOWN), KNOWN).html;
    assert!(html.contains("default-src 'none'; style-src 'unsafe-inline'; img-src data:"));
    for forbidden in ["<script", "<link", "<img", "<iframe", "<object", " src=", " href=", "@import", "url(", "onload"]
    {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let addresses = html.matches("http").count();
    assert_eq!(
        addresses,
        html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count() + html.matches("http-equiv").count()
    );
}

#[test]
fn nothing_breaks_out_of_its_place() {
    for (name, text) in examples(KNOWN) {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        replace_strings(&mut value, NASTY);
        let page = page(Some(NASTY), &[read(NASTY, &value.to_string(), KNOWN).unwrap()]).unwrap();
        assert!(page.html.contains("&lt;script&gt;alert"), "{name}: shown as text");
        for broken in ["<script", "<img", "alert('x')<", "\u{0}", "\u{1b}", "\u{202e}"] {
            assert!(!page.html.contains(broken), "{name}: {broken:?} in the page");
        }
    }
}

/// Puts extremes in place of some numbers, and null in place of some values.
fn spoil(value: &mut Value, random: &mut fastrand::Rng) {
    let extremes =
        [0.into(), 1.into(), u64::MAX.into(), i64::MIN.into(), 1e308.into(), (-1.5).into(), 1e-300.into(), Value::Null];
    match value {
        Value::Number(_) | Value::Null if random.u8(..) < 60 => {
            *value = extremes[random.usize(..extremes.len())].clone();
        }
        Value::Array(all) => {
            if random.u8(..) < 12 {
                all.clear();
            }
            for value in all {
                spoil(value, random);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|value| spoil(value, random)),
        _ => {}
    }
}

#[test]
fn no_numbers_make_it_panic() {
    let mut random = fastrand::Rng::with_seed(17);
    let examples = examples(KNOWN);
    let mut shown = 0;
    for _ in 0..60 {
        for (name, text) in &examples {
            let mut value: Value = serde_json::from_str(text).unwrap();
            spoil(&mut value, &mut random);
            if let Ok(file) = read(name, &value.to_string(), KNOWN) {
                page(None, &[file]).unwrap();
                shown += 1;
            }
        }
    }
    assert!(shown > 50, "only {shown} of the spoilt results could be read: this test tries nothing");
}
