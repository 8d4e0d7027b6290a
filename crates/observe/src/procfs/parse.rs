//! The few numbers read from the files of one thread. Bytes in, numbers out; `None` for what is not the format.

/// `schedstat`: time on a CPU in ns, and how often it got one.
pub(super) fn schedstat(text: &[u8]) -> Option<(u64, u64)> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Some((number(words.next()?)?, number(words.nth(1)?)?))
}

/// `status`: voluntary and involuntary context switches. They stand at the end, and the file is long.
pub(super) fn switches(text: &[u8]) -> Option<(u64, u64)> {
    let (mut voluntary, mut involuntary) = (None, None);
    for line in text.rsplit(|byte| *byte == b'\n') {
        if let Some(value) = line.strip_prefix(b"nonvoluntary_ctxt_switches:") {
            involuntary = number(value.trim_ascii());
        } else if let Some(value) = line.strip_prefix(b"voluntary_ctxt_switches:") {
            voluntary = number(value.trim_ascii());
            break;
        }
    }
    voluntary.zip(involuntary)
}

/// `children`: process ids.
pub(super) fn children(text: &[u8]) -> impl Iterator<Item = i32> + '_ {
    text.split(u8::is_ascii_whitespace).filter_map(|word| i32::try_from(number(word)?).ok())
}

/// `stat`: parent process and start time in ticks since boot. The name may hold anything, so count from its last `)`.
pub(super) fn parent_and_start(text: &[u8]) -> Option<(i32, u64)> {
    let rest = &text[text.iter().rposition(|byte| *byte == b')')? + 1..];
    let mut words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let parent = i32::try_from(number(words.nth(1)?)?).ok()?;
    // state is field 3, ppid 4, starttime 22.
    Some((parent, number(words.nth(17)?)?))
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_gives_its_numbers() {
        assert_eq!(schedstat(b"123 45 6\n"), Some((123, 6)));
        assert_eq!(switches(b"Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t8\n"), Some((7, 8)));
        assert_eq!(children(b"12 13 ").collect::<Vec<_>>(), [12, 13]);
        let stat = b"9 (a) b) S 4 9 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1234 99 1";
        assert_eq!(parent_and_start(stat), Some((4, 1234)));
    }

    #[test]
    fn what_is_not_the_format_is_nothing() {
        for bad in [&b""[..], b"x y z", b"1 2", b"(", b"\xff\xff"] {
            assert_eq!((schedstat(bad), switches(bad), parent_and_start(bad)), (None, None, None));
        }
        assert_eq!(children(b"x 99999999999 5").collect::<Vec<_>>(), [5]);
    }
}
