//! Parameter files: TOML that names only what differs from the defaults (docs/tuning.md).

use crate::failure::Failure;
use gleaner_decide::guest::{GuestParams, ParamError};
use gleaner_decide::host::HostParams;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The parameters of a policy.
pub trait Params: DeserializeOwned {
    /// Checks every value.
    ///
    /// # Errors
    /// Which key is out of its range.
    fn check(&self) -> Result<(), ParamError>;
}

impl Params for GuestParams {
    fn check(&self) -> Result<(), ParamError> {
        self.validate()
    }
}

impl Params for HostParams {
    fn check(&self) -> Result<(), ParamError> {
        self.validate()
    }
}

/// Some thousand times what all keys take.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a policy file.
///
/// # Errors
/// What is wrong, with file and line.
pub fn read_params<P: Params>(path: &Path) -> Result<P, Failure> {
    let name = path.display();
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::input(format!("cannot read --config {name}: {error}; name a TOML file you may read"))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(&format_args!("it is longer than {} KiB, and no policy file is", FILE_BYTES_MAX >> 10)));
    }
    let params: P = toml::from_str(&text)
        .map_err(|error| Failure::input(format!("{name}: {error}The keys and their ranges are in docs/tuning.md")))?;
    params.check().map_err(|error| {
        let place = |key: &str| text.lines().position(|line| line.trim_start().starts_with(key)).map(|line| line + 1);
        Failure::input(match (place(error.key), culprit::<P>(&text)) {
            (Some(line), _) => format!("{name}:{line}: {error}"),
            (None, Some(key)) => {
                let line = place(&key).unwrap_or(1);
                format!("{name}:{line}: with this {key}, {error}; change {key}, or set {} too", error.key)
            }
            (None, None) => format!("{name}: {error}"),
        })
    })?;
    Ok(params)
}

/// The key without which the file would be right: it moves another one's bounds.
fn culprit<P: Params>(text: &str) -> Option<String> {
    let table: toml::Table = toml::from_str(text).ok()?;
    let right_without = |key: &&String| {
        let mut without = table.clone();
        without.remove(*key);
        without.try_into().is_ok_and(|params: P| params.check().is_ok())
    };
    table.keys().find(right_without).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_at_fault_is_named_also_where_another_ones_bounds_are_broken() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        let said = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read_params::<GuestParams>(&file).unwrap_err().message
        };
        let bounds = said("# a comment\njudge_windows = 100\n");
        for words in ["p.toml:2: with this judge_windows", "baseline_windows_min", "exactly 100"] {
            assert!(bounds.contains(words), "{bounds}");
        }
        assert!(said("judge_windows = 0").contains("p.toml:1: "), "{}", said("judge_windows = 0"));
        let both = said("judge_windows = 100\nbaseline_windows_min = 5\n");
        assert!(both.contains("p.toml:2: "), "{both}");
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let said = read_params::<GuestParams>(Path::new("/dev/zero")).unwrap_err().message;
        assert!(said.contains("longer than"), "{said}");
    }
}
