//! `gleaner report`: what is wrong is named and nothing is lost; a real browser shows the page as it is meant.

mod common;

use common::{Said, finish, gleaner};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The report room's examples.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/results").join(name).canonicalize().unwrap()
}

/// A golden file of a schema, without the lines that insta puts in front.
fn golden(folder: &TempDir, name: &str) -> PathBuf {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../report/tests/snapshots/golden__{name}.json.snap"));
    let text = fs::read_to_string(file).unwrap();
    let path = folder.path().join(format!("{name}.json"));
    fs::write(&path, text.splitn(3, "---\n").nth(2).unwrap()).unwrap();
    path
}

/// A result of every schema.
fn one_of_each(folder: &TempDir) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = ["ab.json", "ab-metric.json", "workload.json"].map(example).into();
    all.extend(["run_whole", "run_unknown", "probe_whole", "doctor_whole"].map(|name| golden(folder, name)));
    all
}

fn report<S: AsRef<std::ffi::OsStr>>(results: &[S], page: &Path) -> Said {
    finish(gleaner(["report"]).args(results).arg("-o").arg(page))
}

#[test]
fn bad_results_are_named_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    fs::write(&page, "an earlier page").unwrap();
    let good = example("ab.json");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let large = file("large.json", b"");
    fs::File::options().write(true).open(&large).unwrap().set_len(65 << 20).unwrap();
    for (bad, words) in [
        (file("empty.json", b""), &["empty"][..]),
        (file("broken.json", b"{\n \"schema\": \"gleaner.run/1\",\n \"wall_ns\": 1,,\n}"), &["line 3, column 15"]),
        (file("array.json", b"[{\"schema\": \"gleaner.run/1\"}]"), &["one JSON object"]),
        (file("other.json", b"{\"schema\": \"nobody/7\"}"), &["nobody/7", "gleaner.ab/1"]),
        (file("newer.json", b"{\"schema\": \"gleaner.run/2\"}"), &["gleaner.run/2", "\"gleaner.run/1\""]),
        (file("part.json", b"{\"schema\": \"gleaner.probe/1\"}"), &["missing field", "gleaner probe --json FILE"]),
        (file("binary.json", b"{\"schema\": \"\xff\"}"), &["byte 13", "UTF-8"]),
        (large, &["64 MiB"]),
        (folder.path().to_owned(), &["folder"]),
        (folder.path().join("no-such.json"), &["No such file"]),
    ] {
        let said = report(&[&good, &bad], &page).with_status(2).saying("");
        let said = said.naming(words).naming(&[bad.file_name().unwrap().to_str().unwrap()]);
        assert_eq!(said.stderr.lines().count(), 1, "one line is enough: {said:?}");
        assert_eq!(fs::read_to_string(&page).unwrap(), "an earlier page");
    }
}

#[test]
fn bad_places_are_named_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result.json");
    fs::copy(example("ab.json"), &result).unwrap();
    let before = fs::read(&result).unwrap();
    report(&[&result], &result).with_status(2).naming(&["result.json", "another file"]);
    report(&[&result], folder.path()).with_status(2).naming(&["folder", "file in it"]);
    report(&[&result], &folder.path().join("no/such/page.html")).with_status(2).naming(&["page.html", "may write"]);
    assert_eq!(fs::read(&result).unwrap(), before);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["result.json"], "nothing else is left behind");
    for arguments in [&["report"][..], &["report", "x.json"], &["report", "-o", "page.html"]] {
        finish(&mut gleaner(arguments)).with_status(2).naming(&["required"]);
    }
}

#[test]
fn pages_replace_older_ones() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    fs::write(&page, "x".repeat(1 << 20)).unwrap();
    let mut command = gleaner(["report", "--title", "A <title>"]);
    command.arg(example("ab.json")).arg("-o").arg(&page);
    finish(&mut command).with_status(0).saying("").naming(&["1 result: 2 figures"]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>") && html.len() < 100_000);
    assert!(html.contains("<title>A &lt;title&gt;</title>"));
    let mut command = gleaner(["report"]);
    command.arg(example("ab.json")).arg("-o").arg("/dev/stdout");
    let said = finish(&mut command).with_status(0);
    assert!(said.stdout.starts_with("<!DOCTYPE html>"), "a pipe is written to, not replaced");
}

/// Whether a picture decodes, and more than a thousandth of it is neither white nor nearly so.
fn has_ink(path: &Path) -> bool {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path).unwrap())).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut bytes).unwrap();
    // RGB or RGBA, a byte each.
    let pixels = bytes[..frame.buffer_size()].chunks(frame.color_type.samples());
    let all = pixels.len();
    pixels.filter(|pixel| pixel[1] < 200).count() * 1_000 > all
}

/// Debian's browser with a profile of its own and no network of its own accord.
fn chromium(profile: &Path, arguments: &[&str], page: &Path) -> String {
    let flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
    ];
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120", "chromium"])
        .args(flags)
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .expect("timeout(1) is part of coreutils");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "chromium failed ({}); `scripts/setup.sh test` installs it: {stderr}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap()
}

/// What a script of the test's own finds in the page: the page itself has none.
#[derive(Debug, Deserialize)]
struct Measured {
    /// The window's width and the document's.
    window: f64,
    document: f64,
    /// Width and height of every drawing.
    drawings: Vec<[f64; 2]>,
    /// Of those that are drawn for telephones too: the part of the page's width that they take.
    fits: Vec<f64>,
    /// Words in drawings that reach out of them.
    cut: Vec<String>,
    /// Words in one drawing that stand on one another.
    overlapping: Vec<String>,
    /// Headings, tables, captions and parts of the page without any extent or text.
    empty: Vec<String>,
    /// Columns of tables in which no row says anything.
    blank: Vec<String>,
    /// Tables and drawings that reach out of a box which cannot be scrolled.
    clipped: Vec<String>,
    /// Words that hardly stand out from what is behind them.
    faint: Vec<String>,
    /// Words in drawings too small to read.
    small: Vec<String>,
    /// Where the first verdict ends, and the first part's name.
    verdict_bottom: f64,
    first: String,
}

const MEASURE: &str = r#"<script>
const box = element => element.getBoundingClientRect();
const seen = element => element.getClientRects().length > 0;
const svgs = [...document.querySelectorAll("figure svg")].filter(seen);
const cut = [], overlapping = [], empty = [], blank = [], clipped = [], faint = [], small = [];
const luminance = colour => {
  const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!colour.startsWith("rgba(")) return colour;
  }
  return "rgb(255, 255, 255)";
};
const contrast = (element, colour) => {
  const [a, b] = [luminance(colour), luminance(behind(element))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
for (const element of document.querySelectorAll("p, li, td, th, dt, dd, figcaption, h1, h2, h3, .badge, .hurts, svg text")) {
  const style = getComputedStyle(element), drawn = element.tagName == "text";
  if (contrast(element, drawn ? style.fill : style.color) < 4.5) faint.push(element.textContent.trim().slice(0, 60));
  const svg = drawn && element.ownerSVGElement;
  if (drawn && seen(svg) && parseFloat(style.fontSize) * box(svg).width / svg.viewBox.baseVal.width < 9.5)
    small.push(element.textContent.trim());
}
for (const table of document.querySelectorAll("table")) {
  const rows = [...table.tBodies[0].rows];
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    if (at > 0 && rows.every(row => ["", "-"].includes(row.cells[at].textContent))) blank.push(head.textContent);
  });
}
for (const wide of document.querySelectorAll("table, figure svg, pre")) {
  const scroll = wide.tagName == "PRE" ? wide : wide.closest(".scroll"), room = scroll && getComputedStyle(scroll).overflowX;
  if (room != "auto" || box(scroll).right > innerWidth + 1) clipped.push(wide.outerHTML.slice(0, 80));
}
for (const svg of svgs) {
  const outer = box(svg), texts = [...svg.querySelectorAll("text")];
  texts.forEach((text, at) => {
    const inner = box(text);
    if (inner.left < outer.left - 1 || inner.right > outer.right + 1
        || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1)
      cut.push(text.textContent.trim());
    for (const other of texts.slice(at + 1)) {
      const second = box(other);
      const across = Math.min(inner.right, second.right) - Math.max(inner.left, second.left);
      const down = Math.min(inner.bottom, second.bottom) - Math.max(inner.top, second.top);
      if (across > 2 && down > Math.min(inner.height, second.height) * 0.4)
        overlapping.push(text.textContent.trim() + " | " + other.textContent.trim());
    }
  });
}
for (const element of document.querySelectorAll("section, h1, h2, h3, table, figcaption, .result, dd"))
  if (!element.closest("details") && (box(element).height < 8 || !element.textContent.trim())) empty.push(element.outerHTML.slice(0, 80));
const root = document.documentElement;
parent.postMessage(JSON.stringify({ window: innerWidth, document: root.scrollWidth,
  drawings: svgs.map(svg => [box(svg).width, box(svg).height]),
  fits: svgs.filter(svg => svg.closest(".both")).map(svg => box(svg).width / box(svg.closest("figure")).width), cut, overlapping, empty,
  blank, clipped, faint, small, verdict_bottom: box(document.querySelector(".badge")).bottom,
  first: document.querySelector("main > section").id }), "*");
</script>"#;

/// Chromium's own window is never narrower than 500 pixels; a frame is.
fn framed(page: &Path, width: u32) -> String {
    format!(
        "<!DOCTYPE html><pre id=\"measured\"></pre><script>\
         onmessage = said => {{ document.querySelector(\"pre\").textContent = said.data; }};</script>\
         <iframe src=\"file://{}\" style=\"border: 0; width: {width}px; height: 1200px\"></iframe>",
        page.display()
    )
}

/// Lays the page out in a window of this width, on a light or a dark screen.
fn measure(folder: &TempDir, html: &str, width: u32, dark: bool) -> Measured {
    let policy = "<meta http-equiv=\"Content-Security-Policy\"";
    let (head, rest) = html.split_once(policy).expect("the page forbids scripts");
    let rest = rest.split_once('>').unwrap().1;
    let page = folder.path().join(format!("measured-{width}-{dark}.html"));
    fs::write(&page, format!("{head}{rest}{MEASURE}")).unwrap();
    let profile = folder.path().join(format!("profile-{width}-{dark}"));
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let frame = folder.path().join(format!("frame-{width}-{dark}.html"));
    fs::write(&frame, framed(&page, width)).unwrap();
    let dump = chromium(&profile, &["--virtual-time-budget=5000", "--dump-dom", &scheme], &frame);
    let json = dump.split_once("<pre id=\"measured\">").expect("the script ran").1.split_once("</pre>").unwrap().0;
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_browser_lays_the_page_out_without_anything_cut_or_empty() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    report(&one_of_each(&folder), &page).with_status(0);
    let html = fs::read_to_string(&page).unwrap();
    let figures = html.matches("<figure ").count();
    for (width, dark) in [(1_280, true), (1_100, false), (520, false), (420, false)] {
        let found = measure(&folder, &html, width, dark);
        assert!((found.window - f64::from(width)).abs() < 1.0, "{found:?}");
        assert!(found.document <= found.window, "wider than the window: {found:?}");
        assert_eq!(found.drawings.len(), figures);
        assert!(found.fits.len() > 1 && found.fits.iter().all(|part| (0.95..=1.01).contains(part)), "{found:?}");
        let least = if width > 420 { 400.0 } else { 370.0 };
        assert!(found.drawings.iter().all(|[width, height]| *width > least && *height > 60.0), "{found:?}");
        assert!(found.cut.is_empty() && found.overlapping.is_empty() && found.empty.is_empty(), "{found:#?}");
        assert!(found.blank.is_empty() && found.clipped.is_empty() && found.faint.is_empty(), "{found:#?}");
        assert!(found.small.is_empty(), "{found:#?}");
        assert!(found.first == "answer" && found.verdict_bottom < 250.0, "whether it helped comes first: {found:#?}");
    }
}

#[test]
fn a_browser_shows_verdict_figures_and_numbers_without_running_anything() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let mut results = one_of_each(&folder);
    let attack = folder.path().join("attack.json");
    let text = fs::read_to_string(example("ab-few.json")).unwrap();
    fs::write(&attack, text.replace("\"true\"", "\"<script>document.title=7</script><img src=//x.invalid/a.png>\""))
        .unwrap();
    results.push(attack);
    report(&results, &page).with_status(0);
    let picture = folder.path().join("screen.png");
    let screenshot = format!("--screenshot={}", picture.display());
    chromium(&folder.path().join("profile-a"), &["--window-size=1000,2400", &screenshot], &page);
    assert!(has_ink(&picture), "the page is blank");
    let dump = chromium(&folder.path().join("profile-b"), &["--dump-dom"], &page);
    for words in [
        "full is 6.2&nbsp;% faster than off",
        ": full helps.",
        "&lt;script&gt;document.title=7&lt;/script&gt;",
        ">3.12s</td>",
        "3 compared: 1 helps, 1 hurts, 1 inconclusive",
        "vCPU deactivated",
        "<dt>contention guard</dt>",
    ] {
        assert!(dump.contains(words), "the browser does not show: {words}");
    }
    let made = fs::read_to_string(&page).unwrap();
    for element in ["<svg ", "<table", "<tr", "<text", "<circle", "</figure>"] {
        let wanted = made.matches(element).count();
        assert!(wanted > 0);
        assert_eq!(dump.matches(element).count(), wanted, "the browser's tree differs in {element}");
    }
    assert!(!dump.contains("<title>7") && !dump.contains("<script") && !dump.contains("<img"));
}
