//! The pictures of a page's figures: drawn at all, and from drawings that are XML whatever results say.

#[path = "../../../crates/report/tests/support/mod.rs"]
mod support;

use gleaner_pictures::{png, png_of_all};
use gleaner_report::html::{page, read};
use resvg::tiny_skia::Pixmap;
use serde_json::Value;
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
