//! Command lines as the kernel shows them, and QEMU's way to write properties.
//!
//! Arguments are bytes. QEMU takes each option with one dash or two, and lists of properties in which a comma is
//! doubled (`guest=a,,b`), the first one may be nameless (`-name web,...`), and one without a value is on (`server`) or
//! off (`nowait`).

/// A process's arguments, its program's name first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments(Vec<Vec<u8>>);

impl Arguments {
    /// From `/proc/PID/cmdline`: each ends with a zero.
    pub fn from_cmdline(bytes: &[u8]) -> Self {
        let whole = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        if whole.is_empty() {
            return Self::default();
        }
        Self(whole.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
    }

    /// What the process says it is.
    pub fn program(&self) -> &[u8] {
        self.0.first().map_or(&[], Vec::as_slice)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this option is there, with one dash or two.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().skip(1).any(|argument| dashless(argument) == Some(name.as_bytes()))
    }

    /// The values of an option, in order: `-name X`, `--name X` or `--name=X`.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().enumerate().skip(1).filter_map(move |(at, argument)| {
            match dashless(argument)?.strip_prefix(name.as_bytes())? {
                [] => self.0.get(at + 1).map(Vec::as_slice),
                [b'=', value @ ..] => Some(value),
                _ => None,
            }
        })
    }

    /// The last value of a property of an option of which all are one (`-name`, `-machine`); a first part without a
    /// name has that of `implied`.
    pub fn property(&self, option: &str, implied: &str, property: &str) -> Option<Vec<u8>> {
        let given: Vec<&[u8]> = self.values(option).collect();
        given.iter().rev().find_map(|value| Properties::parse(value, implied).get(property).map(<[u8]>::to_vec))
    }

    /// The first value of the first of these options that is there.
    pub fn value(&self, names: &[&str]) -> Option<&[u8]> {
        names.iter().find_map(|name| self.values(name).next())
    }
}

fn dashless(argument: &[u8]) -> Option<&[u8]> {
    argument.strip_prefix(b"--").or_else(|| argument.strip_prefix(b"-"))
}

/// Properties of one of QEMU's options.
struct Properties(Vec<(Vec<u8>, Vec<u8>)>);

impl Properties {
    /// From an option's value; a first part without a name has that of `implied`.
    fn parse(value: &[u8], implied: &str) -> Self {
        let mut found = Vec::new();
        let mut rest = value;
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| matches!(byte, b'=' | b',')).unwrap_or(rest.len());
            if rest.get(end) == Some(&b'=') {
                let key = rest[..end].to_vec();
                let value;
                (value, rest) = up_to_comma(&rest[end + 1..]);
                found.push((key, value));
            } else if found.is_empty() {
                let value;
                (value, rest) = up_to_comma(rest);
                found.push((implied.as_bytes().to_vec(), value));
            } else {
                let flag = &rest[..end];
                rest = rest.get(end + 1..).unwrap_or_default();
                found.push(match flag.strip_prefix(b"no") {
                    Some(name) if !name.is_empty() => (name.to_vec(), b"off".to_vec()),
                    _ => (flag.to_vec(), b"on".to_vec()),
                });
            }
        }
        Self(found)
    }

    /// The last value of this name, which is the one that counts.
    fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().rev().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value.as_slice())
    }
}

/// A value, with its doubled commas undone, and what follows its end.
fn up_to_comma(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        match rest {
            [b',', b',', more @ ..] => {
                value.push(b',');
                rest = more;
            }
            [b',', more @ ..] => return (value, more),
            [byte, more @ ..] => {
                value.push(*byte);
                rest = more;
            }
            [] => return (value, rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_one_dash_or_two_and_any_bytes() {
        let arguments =
            Arguments::from_cmdline(b"qemu\0-name\0\xff\0--name\0b\0--name=c\0-named\0d\0-snapshot\0-name\0");
        assert_eq!(arguments.values("name").collect::<Vec<_>>(), [&b"\xff"[..], b"b", b"c"]);
        assert!(arguments.has("snapshot") && !arguments.has("snap"));
        assert_eq!((arguments.program(), arguments.value(&["x", "named"])), (&b"qemu"[..], Some(&b"d"[..])));
        assert!(Arguments::from_cmdline(b"").is_empty() && Arguments::from_cmdline(b"\0").is_empty());
        assert_eq!(Arguments::from_cmdline(b"a\0\0b").0, [&b"a"[..], b"", b"b"]);
    }

    #[test]
    fn properties_as_qemu_reads_them() {
        for (value, property, expected) in [
            ("web,debug-threads=on", "guest", Some("web")),
            ("a,,b,,,process=x", "guest", Some("a,b,")),
            ("a,,b=c,x=y", "guest", Some("a,b=c")),
            ("guest=a=b,,c,guest=last", "guest", Some("last")),
            ("guest=,x=y", "guest", Some("")),
            ("first,server,nowait", "server", Some("on")),
            ("first,server,nowait", "wait", Some("off")),
            ("first,nowait", "nowait", None),
            ("", "guest", None),
            (",", "guest", Some("")),
        ] {
            let found = Properties::parse(value.as_bytes(), "guest");
            assert_eq!(found.get(property), expected.map(str::as_bytes), "{value} {property}");
        }
    }
}
