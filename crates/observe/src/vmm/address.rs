//! Where a monitor listens: a socket in the file system, an abstract one, or a port.

use gleaner_model::printable;
use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of an abstract name that fills its address, as QEMU gives it with `tight=off`.
const WHOLE_NAME: usize = 107;

/// A monitor's address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MonitorAddress {
    /// A socket in the file system.
    Path(PathBuf),
    /// An abstract socket's name, without the zero before it.
    Abstract(Vec<u8>),
    /// A port of this machine.
    Port(SocketAddr),
}

impl MonitorAddress {
    /// From `--qmp`: a path, or what QEMU was given (`unix:PATH,server=on`, `tcp:HOST:PORT,server=on`), or `@NAME` of
    /// an abstract socket.
    pub fn from_option(text: &Path) -> Self {
        let bytes = text.as_os_str().as_bytes();
        let first = bytes.split(|byte| *byte == b',').next().unwrap_or_default();
        let given = match bytes.iter().position(|byte| *byte == b':').map(|at| bytes.split_at(at + 1)) {
            Some((b"unix:", path)) => {
                let properties = super::command_line::Properties::parse(path, "path");
                properties.get("path").map(|path| Self::of_socket(path, &properties))
            }
            Some((b"tcp:", _)) => Self::of_port(&first[4..]),
            _ => first.strip_prefix(b"@").map(|name| Self::Abstract(name.to_vec())),
        };
        // A file of that name is what is meant, whatever its name looks like.
        given.filter(|_| !text.exists()).unwrap_or_else(|| Self::Path(text.to_owned()))
    }

    /// A UNIX socket with its properties.
    pub(super) fn of_socket(path: &[u8], properties: &super::command_line::Properties) -> Self {
        if !properties.is_on("abstract") {
            return Self::Path(PathBuf::from(OsStr::from_bytes(path)));
        }
        let mut name = path.to_vec();
        if properties.get("tight").is_some() && !properties.is_on("tight") {
            name.resize(name.len().max(WHOLE_NAME), 0);
        }
        Self::Abstract(name)
    }

    /// `HOST:PORT`, as seen from this machine; `None` for a host that would have to be looked up.
    pub(super) fn of_port(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self::of_host(host.as_bytes(), port.as_bytes())
    }

    /// A host that listens on this machine, and its port.
    pub(super) fn of_host(host: &[u8], port: &[u8]) -> Option<Self> {
        let port = std::str::from_utf8(port).ok()?.parse().ok()?;
        let address: IpAddr = match std::str::from_utf8(host).ok()? {
            "" | "localhost" => Ipv4Addr::LOCALHOST.into(),
            literal => literal.parse().ok()?,
        };
        // Who listens everywhere listens here.
        let here = match address {
            IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            other => other,
        };
        Some(Self::Port(SocketAddr::new(here, port)))
    }
}

impl fmt::Display for MonitorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(&printable(path.as_os_str().as_bytes())),
            Self::Abstract(name) => {
                let end = name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                write!(f, "@{}", printable(&name[..end]))
            }
            Self::Port(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_to_qemu_can_be_given_here() {
        for (text, shown) in [
            ("/run/q.sock", "/run/q.sock"),
            ("q.sock", "q.sock"),
            ("unix:/run/q,,1.sock,server=on,wait=off", "/run/q,1.sock"),
            ("unix:path=/run/q.sock,server", "/run/q.sock"),
            ("unix:name,abstract=on", "@name"),
            ("@name", "@name"),
            ("tcp:127.0.0.1:4444,server=on", "tcp:127.0.0.1:4444"),
            ("tcp::4444", "tcp:127.0.0.1:4444"),
            ("tcp:0.0.0.0:4444", "tcp:127.0.0.1:4444"),
            ("tcp:[::]:4444,server", "tcp:[::1]:4444"),
            ("tcp:localhost:4444", "tcp:127.0.0.1:4444"),
            // Neither is a host that can be had without asking somebody.
            ("tcp:elsewhere.example:4444", "tcp:elsewhere.example:4444"),
            ("/run/\u{1b}[2J.sock", "/run/\\u{1b}[2J.sock"),
        ] {
            assert_eq!(MonitorAddress::from_option(Path::new(text)).to_string(), shown, "{text}");
        }
        let whole = MonitorAddress::from_option(Path::new("unix:x,abstract=on,tight=off"));
        assert!(matches!(&whole, MonitorAddress::Abstract(name) if name.len() == 107), "{whole:?}");
    }
}
