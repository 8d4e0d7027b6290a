//! Names and texts from elsewhere, made fit for a terminal.
//!
//! Names of processes, threads, VMs and cgroups are bytes that anybody may choose: an escape sequence in one clears the
//! screen, a new line in one makes a line that looks like ours, and a mark that turns the writing direction shows
//! another name than there is.

use std::borrow::Cow;
use std::fmt::Write;

/// A name as one line that can be shown: what is no printable character stands as Rust writes it (`\u{1b}`, `\n`), a
/// byte that is no UTF-8 as `\xc3`. Everything else is as it was, a backslash too, so most names are themselves.
pub fn printable(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        chunk.valid().chars().for_each(|letter| push(&mut shown, letter));
        for byte in chunk.invalid() {
            // A String takes everything.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// A text of lines in which what is no printable character is replaced likewise: only new lines and tabs stay.
pub fn printable_text(text: &str) -> Cow<'_, str> {
    let stays = |letter: char| matches!(letter, '\n' | '\t') || is_harmless(letter);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if stays(letter) {
            shown.push(letter);
        } else {
            push(&mut shown, letter);
        }
    }
    Cow::Owned(shown)
}

/// Neither a control character nor one that changes how its neighbours are shown.
fn is_harmless(letter: char) -> bool {
    let turns =
        matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(letter.is_control() || turns || matches!(letter, '\u{2028}' | '\u{2029}'))
}

fn push(shown: &mut String, letter: char) {
    if matches!(letter, '\\' | '\'' | '"') {
        return shown.push(letter);
    }
    // Behind another letter, so that an accent is shown upon the one that it belongs to.
    let mut pair = [b'x'; 5];
    let length = 1 + letter.encode_utf8(&mut pair[1..]).len();
    let pair = std::str::from_utf8(&pair[..length]).unwrap_or_default();
    shown.extend(pair.escape_debug().skip(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_shown_is_itself_and_the_rest_is_written_out() {
        for (name, shown) in [
            (&b"web-1.example (old), 'a' \"b\" \\x2d"[..], "web-1.example (old), 'a' \"b\" \\x2d"),
            ("b\u{fc}ro \u{4f60}\u{597d} e\u{301}".as_bytes(), "b\u{fc}ro \u{4f60}\u{597d} e\u{301}"),
            (b"web\x1b[2J\nfake: qemu\r\t\x00\x7f", "web\\u{1b}[2J\\nfake: qemu\\r\\t\\0\\u{7f}"),
            (
                "a\u{9b}31m\u{202e}gpj\u{2066}\u{200b}\u{feff}\u{2028}\u{a0}".as_bytes(),
                "a\\u{9b}31m\\u{202e}gpj\\u{2066}\\u{200b}\\u{feff}\\u{2028}\\u{a0}",
            ),
            (b"qemu-bureau-fr\xc3", "qemu-bureau-fr\\xc3"),
            (b"\xff\xfea\xe2\x82", "\\xff\\xfea\\xe2\\x82"),
            (b"", ""),
        ] {
            assert_eq!(printable(name), shown, "{name:?}");
            assert_eq!(printable(shown.as_bytes()), shown, "twice is once");
        }
    }

    #[test]
    fn a_text_keeps_its_lines_and_nothing_that_steers_a_terminal() {
        let plain = "a\tb\n\u{2500} e\u{301} \u{1f468}\u{200d}\u{1f469}\n";
        assert!(matches!(printable_text(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(printable_text("a\x1b]0;x\x07\r\u{202e}b\n"), "a\\u{1b}]0;x\\u{7}\\r\\u{202e}b\n");
    }
}
