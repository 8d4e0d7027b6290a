//! Numbers of things on the command line: `5000`, `20M`.

/// A number of things, with k, M or G for thousands, millions, thousand millions.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| "write a whole number, like 5000, 20M or 1G".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "more than can be counted; write a smaller number".to_owned())
}

/// As [`count`], and not nothing.
pub fn at_least_one(text: &str) -> Result<u64, String> {
    count(text).and_then(|count| if count > 0 { Ok(count) } else { Err("give at least 1".to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_take_units() {
        assert_eq!(["7", "20k", "50M", "2G", "0"].map(count), [7, 20_000, 50_000_000, 2_000_000_000, 0].map(Ok));
        for bad in ["", "M", "1.5M", "-1", "20 M", "99999999999G", "ten"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }
}
