//! The pictures of a page's figures: drawn at all, and from drawings that are XML whatever results say.

#[path = "../../../crates/report/tests/support/mod.rs"]
mod support;

use gleaner_pictures::{png, png_of_all};
use gleaner_report::html::{page, read};
use resvg::tiny_skia::Pixmap;
use serde_json::{Value, json};
use support::{NASTY, examples, made_of, replace_strings};

#[test]
fn whatever_results_say_the_drawings_are_xml() {
    for (_, text) in examples() {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        replace_strings(&mut value, NASTY);
        let page = page(Some(NASTY), &[read(NASTY, &value.to_string()).unwrap()]).unwrap();
        page.figures.first().into_iter().for_each(|figure| _ = png(figure).unwrap());
    }
}

#[test]
fn pictures_are_drawn_without_a_font_of_the_system() {
    let page = made_of(&examples());
    for figure in page.figures.iter().step_by(3) {
        let picture = Pixmap::decode_png(&png(figure).unwrap()).unwrap();
        assert_eq!(picture.width(), 1_760);
        let inked = |from: u32, to: u32| {
            let row = picture.width() as usize;
            let rows = &picture.pixels()[from as usize * row..to as usize * row];
            rows.iter().filter(|pixel| pixel.green() < 200).count()
        };
        assert!(inked(10, 64) > 300, "no title in the picture of {}", figure.title);
        assert!(inked(130, picture.height()) > 1_000, "nothing drawn in the picture of {}", figure.title);
    }
    let all = Pixmap::decode_png(&png_of_all(&page.figures[..3]).unwrap()).unwrap();
    let each = |at: usize| Pixmap::decode_png(&png(&page.figures[at]).unwrap()).unwrap().height();
    assert_eq!(all.height(), each(0) + each(1) + each(2));
    assert!(png_of_all(&[]).is_err());
}

#[test]
fn figures_that_are_too_high_are_told_apart() {
    let settings = |n: usize| {
        let one = |i: usize| {
            let setting = ["A", "B", "C"][i % 3];
            json!({
                "setting": setting, "n": 1, "mean_ns": 1, "p50_ns": 1, "p90_ns": 1, "p99_ns": 1, "max_ns": 1,
                "steal_ratio": null
            })
        };
        let probe = json!({
            "schema": "gleaner.probe/1", "gap_ns": 1, "waiter_vcpu": 0, "waker_vcpu": 1, "d_kind": null,
            "settings": (0..n).map(one).collect::<Vec<_>>(), "timeouts": null, "notes": []
        });
        page(None, &[read("probe", &probe.to_string()).unwrap()]).unwrap().figures
    };
    // One is too high wherever it is drawn: no folder helps.
    let told = png(&settings(450)[0]).unwrap_err().to_string();
    assert!(told.contains("report fewer results") && !told.contains("folder") && !told.contains("--png"), "{told}");
    // Each of several may have a picture of its own.
    let several: Vec<_> = (0..10).flat_map(|_| settings(50)).collect();
    let told = png_of_all(&several).unwrap_err().to_string();
    assert!(told.contains("10 figures are too many") && told.contains("name a folder"), "{told}");
}
