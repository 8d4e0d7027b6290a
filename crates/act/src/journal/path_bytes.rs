//! Paths in a journal: text, or a list of bytes where a path is none. The kernel's names are bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for Written {
    fn from(path: &Path) -> Self {
        path.to_str().map_or_else(|| Self::Bytes(path.as_os_str().as_bytes().to_vec()), |text| Self::Text(text.into()))
    }
}

impl From<Written> for PathBuf {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => text.into(),
            Written::Bytes(bytes) => std::ffi::OsString::from_vec(bytes).into(),
        }
    }
}

pub(crate) fn serialize<S: Serializer>(path: impl AsRef<OsStr>, to: S) -> Result<S::Ok, S::Error> {
    Written::from(Path::new(&path)).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    Written::deserialize(from).map(PathBuf::from)
}
