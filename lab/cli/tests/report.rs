//! `gleaner-lab report`: pictures that have something on them; nothing is lost by a failure.

mod common;

use common::{finish, lab};
use resvg::tiny_skia::Pixmap;
use std::fs;
use std::path::{Path, PathBuf};

/// An example of the product's report.
fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/report/tests/results/ab.json").canonicalize().unwrap()
}

/// Whether a picture decodes, and more than a thousandth of it is neither white nor nearly so.
fn has_ink(path: &Path) -> bool {
    let picture = Pixmap::load_png(path).unwrap();
    let inked = picture.pixels().iter().filter(|pixel| pixel.green() < 200).count();
    inked * 1_000 > picture.pixels().len()
}

#[test]
fn pictures_are_drawn_into_a_folder_or_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("pictures");
    let mut command = lab(["report"]);
    command.arg(example()).arg("--png").arg(&pictures);
    finish(&mut command).with_status(0).saying("").naming(&["1 result: 2 pictures"]);
    for name in ["figure-01.png", "figure-02.png"] {
        assert!(has_ink(&pictures.join(name)), "{name} is blank");
    }
    let single = folder.path().join("all.png");
    fs::write(&single, "an earlier picture").unwrap();
    let mut command = lab(["report"]);
    command.arg(example()).arg("--png").arg(&single);
    finish(&mut command).with_status(0);
    assert!(has_ink(&single));
}

#[test]
fn a_picture_does_not_replace_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result.json");
    fs::copy(example(), &result).unwrap();
    let before = fs::read(&result).unwrap();
    let mut command = lab(["report"]);
    command.args([&result, Path::new("--png"), &result]);
    finish(&mut command).with_status(2).naming(&["result.json", "another file"]);
    assert_eq!(fs::read(&result).unwrap(), before);
}
