//! The files of one process or thread. Bytes in, numbers out; `None` for what is not the format.

use crate::numbered;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A line of `/proc/PID/stat` or `/proc/PID/task/TID/stat`.
#[derive(Clone, Copy, Debug)]
pub struct Stat<'a> {
    /// The name, which may hold anything.
    pub name: &'a [u8],
    /// From the third field on.
    fields: &'a [u8],
}

impl<'a> Stat<'a> {
    /// Takes it apart. The name may hold spaces and parentheses, so it ends at the last `)`.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
        Some(Self { name: &text[open + 1..close], fields: &text[close + 1..] })
    }

    /// A field by its number in proc(5), from 3 on.
    pub fn field(&self, number: usize) -> Option<&'a [u8]> {
        words(self.fields).nth(number.checked_sub(3)?)
    }

    /// The same as a number.
    pub fn number<T: std::str::FromStr>(&self, number: usize) -> Option<T> {
        std::str::from_utf8(self.field(number)?).ok()?.parse().ok()
    }

    /// `R`, `S`, `Z`, ...
    pub fn state(&self) -> Option<u8> {
        self.field(3)?.first().copied()
    }

    /// The parent's id.
    pub fn parent(&self) -> Option<i32> {
        self.number(4)
    }

    /// When it started, in clock ticks since boot: by the clock of the reader's time namespace.
    pub fn start_time(&self) -> Option<u64> {
        self.number(22)
    }
}

/// Every process below `proc` with its parent: 0 is the parent of whoever's is outside.
pub fn parents(proc: &Path) -> impl Iterator<Item = (i32, i32)> {
    numbered(proc).filter_map(|pid| {
        let stat = fs::read(proc.join(format!("{pid}/stat"))).ok()?;
        Some((pid, Stat::parse(&stat)?.parent()?))
    })
}

/// Every process that has children, with them: the way where the kernel has no `children` files, and slow.
pub fn children_of_all(proc: &Path) -> BTreeMap<i32, Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, parent) in parents(proc) {
        children.entry(parent).or_default().push(pid);
    }
    children
}

/// `schedstat`: time on a CPU in ns, time that it waited for one in ns, and how often it got one.
pub fn schedstat(text: &[u8]) -> Option<(u64, u64, u64)> {
    let mut words = words(text).map(number);
    Some((words.next()??, words.next()??, words.next()??))
}

/// `status`: voluntary and involuntary context switches. They stand at the end, and the file is long.
pub fn switches(status: &[u8]) -> Option<(u64, u64)> {
    let (mut voluntary, mut involuntary) = (None, None);
    for line in status.rsplit(|byte| *byte == b'\n') {
        if let Some(value) = line.strip_prefix(b"nonvoluntary_ctxt_switches:") {
            involuntary = number(value.trim_ascii());
        } else if let Some(value) = line.strip_prefix(b"voluntary_ctxt_switches:") {
            voluntary = number(value.trim_ascii());
            break;
        }
    }
    voluntary.zip(involuntary)
}

/// A line of `status` by its key, without the colon. The name of a process cannot forge one: the kernel escapes line
/// feeds there.
pub fn status_field<'a>(status: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut lines = status.split(|byte| *byte == b'\n');
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(b":")).map(<[u8]>::trim_ascii)
}

/// `children`: process ids.
pub fn children(text: &[u8]) -> impl Iterator<Item = i32> + '_ {
    words(text).filter_map(|word| i32::try_from(number(word)?).ok())
}

pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

pub(crate) fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_gives_its_numbers() {
        assert_eq!(schedstat(b"123 45 6\n"), Some((123, 45, 6)));
        assert_eq!(switches(b"Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t8\n"), Some((7, 8)));
        assert_eq!(children(b"12 13 ").collect::<Vec<_>>(), [12, 13]);
        let stat = b"9 (a) \xff b) S 4 9 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 -5 1 0 1234 99 1";
        let stat = Stat::parse(stat).unwrap();
        assert_eq!((stat.name, stat.state()), (&b"a) \xff b"[..], Some(b'S')));
        assert_eq!((stat.parent(), stat.number::<i32>(19), stat.start_time()), (Some(4), Some(-5), Some(1234)));
        let status = b"Name:\tTgid:\nTgid:\t12\nNSpid:\t12\t1\n";
        assert_eq!(status_field(status, b"Tgid"), Some(&b"12"[..]));
        assert_eq!(status_field(status, b"NSpid"), Some(&b"12\t1"[..]));
        assert_eq!(status_field(status, b"gid"), None);
    }

    #[test]
    fn what_is_not_the_format_is_nothing() {
        for bad in [&b""[..], b"x y z", b"1 2", b"(", b")(", b"\xff\xff"] {
            assert_eq!((schedstat(bad), switches(bad)), (None, None));
            assert!(Stat::parse(bad).is_none());
        }
        let short = Stat::parse(b"1 (x) S").unwrap();
        assert_eq!((short.parent(), short.start_time(), short.field(0)), (None, None, None));
        assert_eq!(children(b"x 99999999999 5").collect::<Vec<_>>(), [5]);
    }
}
