//! Helpers for text: numbers with units, intervals, lists, plurals.

use gleaner_model::Nanos;
use serde_json::Value;

/// What is unknown is a dash, in words and on the page.
pub const UNKNOWN: &str = "-";

/// A value, or a dash where it is unknown.
pub fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

/// A duration in nanoseconds.
pub fn time(ns: impl Into<Option<u64>>) -> String {
    known(ns.into().map(Nanos))
}

/// The same of a mean.
pub fn mean_time(ns: impl Into<Option<f64>>) -> String {
    time(ns.into().map(|ns| Nanos::from_f64(ns).0))
}

/// A number with so many decimals.
pub fn fixed(value: impl Into<Option<f64>>, decimals: usize) -> String {
    known(value.into().map(|value| format!("{value:.decimals$}")))
}

/// `1.050 (0.990 to 1.120)`.
pub fn interval(value: f64, ends: Option<[f64; 2]>) -> String {
    let ends = ends.map(|[low, high]| format!(" ({low:.3} to {high:.3})"));
    format!("{value:.3}{}", ends.unwrap_or_default())
}

/// At most `most` characters, with an ellipsis in the middle: the end of a command tells as much as its beginning.
pub fn shortened(text: &str, most: usize) -> String {
    let all: Vec<char> = printable(text).replace('\n', " ").chars().collect();
    if all.len() <= most {
        return all.into_iter().collect();
    }
    let tail = most / 3;
    let head = most.saturating_sub(tail + 1);
    all[..head].iter().chain(&['…']).chain(&all[all.len() - tail..]).collect()
}

/// Characters that XML cannot carry, and those that turn the writing around, are shown as a mark.
pub fn printable(text: &str) -> String {
    let bad = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if bad(c) { '\u{fffd}' } else { c }).collect()
}

/// A command line as one would type it, cut when it is long.
pub fn command_line(command: &[String], most: usize) -> String {
    let quoted = |word: &String| {
        let plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,+@%^".contains(c));
        if plain { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    shortened(&command.iter().map(quoted).collect::<Vec<_>>().join(" "), most)
}

/// The program's name without its folder, and the word after it where that names what it does: `sysbench mutex`.
/// `gleaner workload relay` is `relay`, and of a shell it is the script.
pub fn program(command: &[String]) -> String {
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    match command {
        [own, workload, name, ..] if base(own) == "gleaner" && workload == "workload" => return shortened(name, 40),
        [shell, option, script, ..] if ["sh", "bash", "dash", "zsh"].contains(&&*base(shell)) && option == "-c" => {
            return shortened(script, 34);
        }
        _ => {}
    }
    let name = command.first().map_or_else(|| "?".to_owned(), |first| base(first));
    let is_verb =
        |word: &&String| word.starts_with(char::is_alphabetic) && word.chars().all(|c| c.is_alphanumeric() || c == '-');
    let verb = command.get(1).filter(is_verb).map(|verb| format!(" {verb}"));
    shortened(&format!("{name}{}", verb.unwrap_or_default()), 40)
}

/// Fields of a record, by their names in its JSON, as RFC 4180 has them; what is unknown is empty.
pub fn csv(record: &impl serde::Serialize, columns: &str) -> String {
    let json = serde_json::to_value(record).unwrap_or_default();
    let cell = |column: &str| match &json[column] {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or(0.0).to_string(),
        other => other.to_string(),
    };
    columns.split(',').map(cell).collect::<Vec<String>>().join(",")
}

/// What a spreadsheet would take for a formula is none.
fn quoted(text: &str) -> String {
    let harmless = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    if harmless.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", harmless.replace('"', "\"\""));
    }
    harmless
}

/// With a capital at its beginning and a full stop.
pub fn sentence(text: &str) -> String {
    let mut all = text.chars();
    let first = all.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let rest = all.as_str();
    format!("{first}{rest}{}", if rest.ends_with(['.', '!', '?']) { "" } else { "." })
}

/// Each once, in the order in which they come first.
pub fn distinct<T: PartialEq>(of: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    of.into_iter().for_each(|one| {
        if !all.contains(&one) {
            all.push(one);
        }
    });
    all
}

/// `part` of `whole` in per cent.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

/// A size: `512 B`, `2.0 MB` (binary units, as caches are sold).
pub fn bytes(bytes: u64) -> String {
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
pub fn count(n: u64, singular: &str) -> String {
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
        assert_eq!([time(None), time(5), fixed(0.25, 1), fixed(None, 1)], ["-", "5ns", "0.2", "-"]);
        assert_eq!([bytes(512), bytes(2 << 20), bytes(1_500_000)], ["512 B", "2 MB", "1.4 MB"]);
    }

    #[test]
    fn a_command_can_be_pasted() {
        let words = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<String>>();
        assert_eq!(command_line(&words(&["sh", "-c", "echo 'a b'; ls", ""]), 80), "sh -c 'echo '\\''a b'\\''; ls' ''");
        assert_eq!(program(&words(&["/usr/bin/make", "-j4"])), "make");
        assert_eq!(program(&words(&["/usr/bin/sysbench", "mutex", "run"])), "sysbench mutex");
        assert_eq!(program(&words(&["gzip", "big.tar"])), "gzip");
        assert_eq!(program(&words(&["target/gleaner", "workload", "relay", "--threads", "2"])), "relay");
        assert_eq!(program(&words(&["/bin/sh", "-c", "make -B | tail"])), "make -B | tail");
        assert_eq!(program(&[]), "?");
    }

    #[test]
    fn a_text_is_cut_in_the_middle_and_carries_no_control_characters() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("0123456789abcdef", 10), "012345…def");
        assert_eq!(shortened("a\0b\u{202e}c\n", 10), "a\u{fffd}b\u{fffd}c ");
        assert_eq!(shortened("äöüß", 3), "ä…ß");
    }

    #[test]
    fn cells_are_quoted_where_they_have_to_be() {
        for (text, cell) in [("a", "a"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("=1+1", "'=1+1")] {
            assert_eq!(quoted(text), cell);
        }
    }
}
