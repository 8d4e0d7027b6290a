//! The reference, made of the definitions in the source and of nothing else:
//!
//! ```text
//!   decide's parameters          -> parameters.md
//!   the daemon's keys            -> configuration.md
//!   the daemon's metrics         -> metrics.md
//!   report's structs (schemars)  -> JSON schemas
//!   the command line (clap)      -> man pages, completions
//! ```
//!
//! [`pages`] are kept in docs/reference, and a test keeps them current. What [`for_installing`] makes is made at `make
//! reference`, because nobody reads it there. It ships with nothing: the product carries neither schemas nor
//! generators.

mod configuration;
mod file;
mod metrics;
mod parameters;
mod schemas;
mod share;

pub use file::File;

use std::io;

/// docs/reference.
///
/// # Errors
/// If a schema is no JSON.
pub fn pages() -> io::Result<Vec<File>> {
    let schemas = schemas::all()?;
    Ok(vec![
        File::text("parameters.md", parameters::page()),
        File::text("configuration.md", configuration::page()),
        File::text("metrics.md", metrics::page()),
        schemas::index(&schemas),
    ])
}

/// Man pages, completions and JSON schemas, laid out as below /usr/local/share.
///
/// # Errors
/// If a page cannot be rendered, or a schema is no JSON.
pub fn for_installing() -> io::Result<Vec<File>> {
    let mut files = share::all(&gleaner::command())?;
    files.extend(schemas::all()?.iter().map(schemas::Described::file));
    Ok(files)
}
