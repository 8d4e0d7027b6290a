//! The address on which the daemon serves its metrics.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A socket, with the control socket's permissions.
    Unix(PathBuf),
    /// An address of this machine's own.
    Loopback(SocketAddr),
    /// One that others reach, because the configuration says `public:`.
    Public(SocketAddr),
}

impl MetricsAddress {
    /// `unix:/PATH`, or an address with a port; `public:` before one that is not loopback.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").map(PathBuf::from).filter(|path| path.is_absolute()) {
            return Ok(Self::Unix(path));
        }
        if let Some(address) = text.strip_prefix("public:").and_then(|address| address.parse::<SocketAddr>().ok()) {
            return Ok(Self::Public(address));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(address) => Err(format!(
                "metrics are served on loopback addresses only: write 127.0.0.1:9469, or public:{address} to let everybody \
                 read them who reaches it"
            )),
            Err(_) => Err("write unix:/run/gleaner/metrics.sock or 127.0.0.1:9469".to_owned()),
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Loopback(address) => address.fmt(f),
            Self::Public(address) => write!(f, "public:{address}"),
        }
    }
}
