//! Parameter files: TOML that names only what differs from the defaults (docs/tuning.md).

use crate::failure::Failure;
use gleaner_decide::guest::{GuestParams, ParamError};
use gleaner_decide::host::HostParams;
use serde::de::DeserializeOwned;
use std::fs;
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

/// Reads a policy file.
///
/// # Errors
/// What is wrong, with file and line.
pub fn read_params<P: Params>(path: &Path) -> Result<P, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read --config {name}: {error}; name a TOML file you may read"))
    })?;
    let params: P = toml::from_str(&text)
        .map_err(|error| Failure::input(format!("{name}: {error}The keys and their ranges are in docs/tuning.md")))?;
    params.check().map_err(|error| {
        let line = text.lines().position(|line| line.trim_start().starts_with(error.key)).map_or(0, |line| line + 1);
        Failure::input(format!("{name}:{line}: {error}"))
    })?;
    Ok(params)
}
