//! The page of the laboratory's results: what is on it, and that nothing breaks out of it.

#[path = "../../../crates/report/tests/support/mod.rs"]
mod support;

use gleaner_lab_report::KNOWN;
use gleaner_report::html::{page, read};
use serde_json::Value;
use support::{NASTY, examples, made_of, replace_strings};

#[test]
fn every_schema_with_figures_has_its_place_on_the_page() {
    let examples = examples(KNOWN);
    for (schema, ..) in KNOWN {
        assert!(examples.iter().any(|(_, text)| text.contains(schema)), "no example of {schema}");
    }
    let page = made_of(&examples, KNOWN);
    for words in [
        "<strong>pipeline (b: matmul), full</strong>: policy full helps, speedup 1.840 (1.710 to 1.990).",
        "a, b: matmul: speedup by policy against off",
        "app, near: matmul: system throughput, against off",
        "small: throughput by policy against the first",
        "app pipeline beside matmul: under full 1.400 (1.300 to 1.500) times the throughput of off.",
        "small: what the neighbours got done, against the first policy",
        "Of 4 statements of the paper, 2 agree, 1 disagree and 1 cannot be told.",
        "Disagrees: type-5 gains less, and here 1ms cpi_ratio is 1.250.",
        "Of the 2 rows for which nothing was fitted, 1 agree;",
        "micro:fig10: cpi_ratio by case",
        "micro:fig10: simulated figures over the paper's",
        "<td class=\"number\">1.400 (1.300 to 1.500)</td>",
        "<td class=\"number\">0.940 (0.920 to 0.960)</td>",
        "<td class=\"number\">1.592</td>",
    ] {
        assert!(page.html.contains(words), "the page lacks: {words}");
    }
}

#[test]
fn nothing_breaks_out_of_its_place() {
    for (name, text) in examples(KNOWN) {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        replace_strings(&mut value, NASTY);
        let page = page(Some(NASTY), &[read(NASTY, &value.to_string(), KNOWN).unwrap()]).unwrap();
        assert!(page.html.contains("&lt;script&gt;alert"), "{name}: shown as text");
        assert!(!page.html.contains("<script") && !page.html.contains("<img"), "{name}");
    }
}
