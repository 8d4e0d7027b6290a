//! Parameter files: TOML that names only what differs from the defaults (`gleaner params` has them all).

use crate::failure::Failure;
use gleaner_decide::guest::GuestParams;
use gleaner_decide::host::HostParams;
use gleaner_decide::{ParamError, Parameter};
use gleaner_model::printable;
use gleaner_settings::nearest;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// `--config FILE`.
#[derive(Debug, clap::Args)]
pub struct ParamsArg {
    /// Policy parameters: a TOML file with any of the keys that `gleaner params` prints
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ParamsArg {
    /// What the file says, where one is named.
    pub fn read<P: Params>(&self) -> Result<Option<P>, Failure> {
        self.config.as_deref().map(read_params).transpose()
    }
}

/// The parameters of a policy.
pub trait Params: DeserializeOwned {
    /// The command that prints them all.
    const LISTED_BY: &str;

    /// What they are.
    fn parameters() -> Vec<Parameter>;

    /// Checks every value.
    fn check(&self) -> Result<(), ParamError>;
}

impl Params for GuestParams {
    const LISTED_BY: &str = "gleaner params";

    fn parameters() -> Vec<Parameter> {
        Self::parameters()
    }

    fn check(&self) -> Result<(), ParamError> {
        self.validate()
    }
}

impl Params for HostParams {
    const LISTED_BY: &str = "gleaner params host";

    fn parameters() -> Vec<Parameter> {
        Self::parameters()
    }

    fn check(&self) -> Result<(), ParamError> {
        self.validate()
    }
}

/// Some thousand times what all keys take.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a policy file.
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
    let place = |key: &str| text.lines().position(|line| line.trim_start().starts_with(key)).map(|line| line + 1);
    if let Some((key, told)) = unknown_key::<P>(&text) {
        return Err(Failure::input(format!("{name}:{}: {told}", place(&key).unwrap_or(1))));
    }
    let params: P = toml::from_str(&text).map_err(|error| {
        Failure::input(format!("{name}: {error}`{}` lists the keys and what they may be", P::LISTED_BY))
    })?;
    params.check().map_err(|error| {
        Failure::input(match place(error.key) {
            Some(line) => format!("{name}:{line}: {error}"),
            None => format!("{name}: {error}"),
        })
    })?;
    Ok(params)
}

/// The first key that is no parameter, and what to say of it; `None` too where the text is no TOML.
fn unknown_key<P: Params>(text: &str) -> Option<(String, String)> {
    let table: toml::Table = toml::from_str(text).ok()?;
    let known = P::parameters();
    let unknown =
        table.keys().find(|key| *key != GuestParams::TUNING && known.iter().all(|parameter| parameter.key != **key))?;
    let advice = match nearest(unknown, known.iter().map(|parameter| parameter.key)) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("`{}` lists them", P::LISTED_BY),
    };
    Some((unknown.clone(), format!("unknown key {}: {advice}", printable(unknown.as_bytes()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_at_fault_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        std::fs::write(&file, "# a comment\nload_factor = 9\n").unwrap();
        let said = read_params::<GuestParams>(&file).unwrap_err().message;
        assert!(said.contains("p.toml:2: load_factor = 9"), "{said}");
    }

    #[test]
    fn a_misspelt_key_is_told_with_the_nearest_one() {
        fn said<P: Params>(text: &str) -> String {
            unknown_key::<P>(text).map_or_else(String::new, |(_, told)| told)
        }
        assert_eq!(said::<GuestParams>("lod_factor = 1"), "unknown key lod_factor: did you mean load_factor?");
        assert_eq!(
            said::<GuestParams>("load_factor = 1\nmin_time_slice = 4000"),
            "unknown key min_time_slice: did you mean min_time_slice_us?"
        );
        assert_eq!(said::<GuestParams>("colour = 1"), "unknown key colour: `gleaner params` lists them");
        assert_eq!(said::<HostParams>("ladder = [1]"), "unknown key ladder: did you mean ladder_us?");
        assert_eq!(said::<HostParams>("load_factor = 1"), "unknown key load_factor: `gleaner params host` lists them");
        assert_eq!(said::<GuestParams>("load_factor = 1"), "");
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let said = read_params::<GuestParams>(Path::new("/dev/zero")).unwrap_err().message;
        assert!(said.contains("longer than"), "{said}");
    }
}
