//! Numbers as programs print them: `59628.2`, `12,345.6`, `0,31`, `59.1K`.

/// What a program means by a letter right behind a number.
const SCALES: [(char, f64); 5] = [('k', 1e3), ('K', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12)];

/// The number, if the text is one and nothing else.
pub fn read(text: &str) -> Option<f64> {
    let text = text.trim();
    let scale = SCALES.into_iter().find(|(letter, _)| text.ends_with(*letter));
    let digits = scale.map_or(text, |(letter, _)| text.trim_end_matches(letter));
    let value: f64 = without_commas(digits)?.parse().ok()?;
    let value = value * scale.map_or(1.0, |(_, times)| times);
    value.is_finite().then_some(value)
}

/// A comma before each three digits is between thousands; a single other one is a decimal comma.
fn without_commas(digits: &str) -> Option<String> {
    let Some((first, rest)) = digits.split_once(',') else { return Some(digits.to_owned()) };
    let (whole, fraction) = digits
        .split_once('.')
        .map_or((rest, None), |(whole, fraction)| (whole.split_once(',').map_or("", |(_, rest)| rest), Some(fraction)));
    let lead = first.trim_start_matches(['-', '+']);
    let between_thousands = (1..=3).contains(&lead.len())
        && !lead.starts_with('0')
        && whole.split(',').all(|part| part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit()));
    match (between_thousands, fraction) {
        (true, _) => Some(digits.replace(',', "")),
        (false, None) if !rest.contains(',') => Some(digits.replace(',', ".")),
        (false, _) => None,
    }
}

/// The longer number that `line[start..end]` is a part of, if it is one.
pub fn whole(line: &str, start: usize, end: usize) -> Option<&str> {
    let (before, found, after) = (&line[..start], &line[start..end], &line[end..]);
    if !found.ends_with(|last: char| last.is_ascii_digit() || last == '.' || last == ',') {
        return None;
    }
    let inner = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let mut tail = after.len() - after.trim_start_matches(inner).len();
    // What ends a sentence or a list is no part of it.
    tail = after[..tail].trim_end_matches(['.', ',']).len();
    let mut letters = after[tail..].chars();
    let scaled = letters.next().is_some_and(|c| SCALES.iter().any(|(letter, _)| *letter == c))
        && !letters.next().is_some_and(char::is_alphanumeric);
    let exponent = after[tail..].strip_prefix(['e', 'E']).map(|rest| rest.trim_start_matches(['+', '-']));
    let exponent = exponent.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let length = match exponent {
        Some(rest) => after.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len(),
        None => tail + usize::from(scaled),
    };
    let head = before.trim_end_matches(inner).len();
    // `1.` of a numbered list, or a name's digits, stand apart or begin with a digit.
    let lead = before[head..].trim_start_matches(['.', ',']);
    let begins = start - lead.len();
    (length > 0 || !lead.is_empty()).then(|| &line[begins..end + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_programs_print_them() {
        for (text, value) in [
            ("12", Some(12.0)),
            (" 59628.23 ", Some(59_628.23)),
            ("12,345.6", Some(12_345.6)),
            ("1,234,567", Some(1_234_567.0)),
            ("-12,345", Some(-12_345.0)),
            ("0,31", Some(0.31)),
            ("0,312", Some(0.312)),
            ("7,5", Some(7.5)),
            ("59.1K", Some(59_100.0)),
            ("1.20k", Some(1_200.0)),
            ("2,5M", Some(2_500_000.0)),
            ("1e3", Some(1_000.0)),
            ("1,23,4", None),
            ("1,2.3", None),
            ("12,34,567.8", None),
            ("12ms", None),
            ("KK", None),
            ("fast", None),
            ("nan", None),
            ("inf", None),
            ("", None),
        ] {
            let found = read(text);
            assert!(found.zip(value).map_or(found == value, |(a, b)| (a - b).abs() < 1e-6), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_part_of_a_number_is_seen_as_that() {
        for (line, found, expected) in [
            ("rate: 12,345.6 ops", "12", Some("12,345.6")),
            ("rate: 59.1K", "59.1", Some("59.1K")),
            ("rate: 59.1K ops", "59.1K", None),
            ("rate: 59.1Kbit", "59.1", None),
            ("rate: 1.5e+06", "1.5", Some("1.5e+06")),
            ("rate: 12 ops", "12", None),
            ("rate: 12ms", "12", None),
            ("rate: 12.", "12", None),
            ("rate: 12, 13", "12", None),
            ("rate: 12 13", "13", None),
            ("rate: 2025", "5", Some("2025")),
            ("rate: 12.5%", "12.5", None),
            ("rate: fast9", "fast", None),
        ] {
            let start = line.find(found).unwrap();
            assert_eq!(whole(line, start, start + found.len()), expected, "{found} of {line}");
        }
    }
}
