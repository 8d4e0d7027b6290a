//! Small helpers for plain words.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use gleaner_model::Nanos;

/// A table without a frame, numbers to the right (every column but the first).
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Says first of all that a result is a part of what was asked for.
pub(crate) fn partial(f: &mut std::fmt::Formatter<'_>, stopped_by: Option<&str>) -> std::fmt::Result {
    stopped_by.map_or(Ok(()), |by| writeln!(f, "{}", partial_words(by)))
}

/// The same as a sentence.
pub(crate) fn partial_words(stopped_by: &str) -> String {
    let by = if stopped_by == "interrupt" { "a signal".to_owned() } else { format!("--{stopped_by}") };
    format!("PARTIAL RESULT: {by} ended it; this is what was done until then.")
}

/// A duration in nanoseconds, or a dash where it is unknown.
pub(crate) fn duration(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| Nanos(ns).to_string())
}

/// `part` of `whole` in per cent.
pub(crate) fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

/// A size: `512 B`, `2.0 MB` (binary units, as caches are sold).
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 { format!("{value} {}", UNITS[unit]) } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `1 thing`, `2 things`.
pub(crate) fn count(n: u64, singular: &str) -> String {
    match n {
        1 => format!("1 {singular}"),
        n if singular.ends_with(['s', 'h']) => format!("{n} {singular}es"),
        n if singular.ends_with('y') => format!("{n} {}ies", &singular[..singular.len() - 1]),
        n => format!("{n} {singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(count(1, "idle entry"), "1 idle entry");
        assert_eq!(count(2, "idle entry"), "2 idle entries");
        assert_eq!(count(0, "step"), "0 steps");
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(percent(0.0012), "0.12 %");
        assert_eq!(duration(None), "-");
        assert_eq!([bytes(512), bytes(2 << 20), bytes(1_500_000)], ["512 B", "2 MB", "1.4 MB"]);
    }
}
