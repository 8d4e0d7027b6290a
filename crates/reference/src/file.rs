//! A generated file: its path and its text, before it is written.

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Below the folder asked for.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

impl File {
    pub(crate) fn text(path: impl Into<String>, text: String) -> Self {
        Self { path: path.into(), bytes: text.into_bytes() }
    }
}
