//! The configuration: files over each other, checked, to what the daemon is to do.
//!
//! ```text
//!   /usr/share/gleaner/gleaner.toml   the package's       \
//!   /etc/gleaner/gleaner.toml         the administrator's  > layers: each read and checked by itself (layer)
//!   /etc/gleaner/gleaner.d/*.toml     drop-ins, by name   /
//! ```
//!
//! What a later file says of a key counts. Where no file names a group, everything on the machine is one, which is
//! only watched.

mod error;

mod file;
mod show;
mod tables;

pub use error::{ConfigError, ConfigErrors};
pub use tables::keys;

use crate::metrics_address::MetricsAddress;
use file::{Checked, File};
use gleaner_model::Policy;
use gleaner_observe::Selector;
use gleaner_settings::{GroupSettings, HostSettings, MachineSettings, Profile};
use std::path::{Path, PathBuf};
use tables::{Tables, Which};

/// The package's file.
const SHIPPED: &str = "/usr/share/gleaner/gleaner.toml";
/// The administrator's, and the folder of drop-ins.
const OWN: &str = "/etc/gleaner/gleaner.toml";
const DROP_INS: &str = "/etc/gleaner/gleaner.d";
/// Drop-ins read at most.
const MOST_FILES: usize = 1000;

/// One entry of the configuration: which groups, and how they are managed.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupEntry {
    pub name: String,
    pub selector: Selector,
    /// How. Profile and policy are set.
    pub settings: GroupSettings,
}

/// What the flight recorder keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureSettings {
    /// Bytes at most.
    pub size: u64,
    /// Where; `None`: in the state folder, until the daemon ends.
    pub folder: Option<PathBuf>,
}

/// What the daemon is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The files that it is from, in the order in which they were read.
    pub files: Vec<PathBuf>,
    /// What counts for all of it.
    pub machine: MachineSettings,
    /// Group of users that may ask.
    pub control_group: Option<u32>,
    /// Where metrics are served.
    pub metrics: Option<MetricsAddress>,
    /// What is recorded.
    pub capture: Option<CaptureSettings>,
    /// What is done for the VMs of this machine.
    pub host: Option<HostSettings>,
    /// In order of name; the first that a process belongs to has it.
    pub groups: Vec<GroupEntry>,
    /// Whether no file names a group, nor has anything for a host: then there is a group of everything, and nothing is
    /// changed.
    pub names_no_group: bool,
}

impl Configuration {
    /// Reads the file asked for, or those of the machine as far as there are any.
    ///
    /// # Errors
    /// All that is wrong, where, and what would be right.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigErrors> {
        let files = match file {
            Some(file) => vec![file.to_owned()],
            None => machine_files(Path::new("/")),
        };
        Self::of_files(files)
    }

    /// Reads these files, later ones over earlier ones.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn of_files(paths: Vec<PathBuf>) -> Result<Self, ConfigErrors> {
        let files: Vec<File> = all(paths.iter().map(|path| File::read(path)))?;
        Ok(Self { files: paths, ..Self::resolve(&files)? })
    }

    fn resolve(files: &[File]) -> Result<Self, ConfigErrors> {
        let checked: Vec<Checked> = files.iter().map(File::check).collect();
        let mut errors: Vec<ConfigError> = checked.iter().flat_map(|checked| checked.errors.clone()).collect();
        let mut whole = toml::Table::new();
        for file in files {
            // Without what such a file says, others would seem wrong.
            let Ok(table) = file.table() else { return Err(ConfigErrors(errors)) };
            lay_over(&mut whole, table);
        }
        let path = files.last().map(|file| file.path.clone()).unwrap_or_default();
        // What is wrong with all together was wrong with one of them, and told.
        let Tables { daemon, control, metrics, capture, host, defaults, groups: raw } =
            File { path, text: whole.to_string() }.check().tables;
        let profile = defaults.profile.unwrap_or(Profile::Frugal);
        let is_wrong = |name: &String| checked.iter().any(|checked| checked.wrong_groups.contains(name));
        let mut groups = Vec::new();
        for (name, group) in raw {
            errors.extend(misfit(&name, &group.1, files));
            if is_wrong(&name) {
                continue;
            }
            match entry(name, group, profile, files) {
                Ok(entry) => groups.push(entry),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            let place = |error: &ConfigError| files.iter().position(|file| file.path == error.file);
            errors.sort_by_key(|error| (place(error), error.line));
            return Err(ConfigErrors(errors));
        }
        let names_no_group = groups.is_empty() && host.is_none();
        if names_no_group {
            groups.push(everything());
        }
        Ok(Self {
            files: Vec::new(),
            machine: daemon,
            control_group: control.group.map(|group| group.0),
            metrics: metrics.listen,
            capture: match (capture.size, capture.folder) {
                (None, None) => None,
                (size, folder) => Some(CaptureSettings {
                    size: size.map_or(64 << 20, |size| size.0),
                    folder: folder.map(|folder| folder.0),
                }),
            },
            host,
            groups,
            names_no_group,
        })
    }
}

/// All of them, or what is wrong with those that are wrong.
fn all<T>(results: impl Iterator<Item = Result<T, ConfigError>>) -> Result<Vec<T>, ConfigErrors> {
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(found) => right.push(found),
            Err(error) => wrong.push(error),
        }
    }
    if wrong.is_empty() { Ok(right) } else { Err(ConfigErrors(wrong)) }
}

/// The files there are below `root`.
fn machine_files(root: &Path) -> Vec<PathBuf> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let entries = std::fs::read_dir(below(DROP_INS)).into_iter().flatten().flatten().map(|entry| entry.path());
    let hidden = |path: &PathBuf| path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let mut drop_ins: Vec<PathBuf> = entries.filter(|path| is_toml(path) && !hidden(path)).take(MOST_FILES).collect();
    drop_ins.sort();
    [SHIPPED, OWN].into_iter().map(below).filter(|path| path.exists()).chain(drop_ins).collect()
}

/// What `above` says counts, key by key. A group is selected in one way.
fn lay_over(below: &mut toml::Table, above: toml::Table) {
    let selects = |key: &str| Which::NAMES.contains(&key);
    if above.keys().any(|key| selects(key)) {
        below.retain(|key, _| !selects(key));
    }
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => lay_over(below, above),
            (_, value) => drop(below.insert(key, value)),
        }
    }
}

fn entry(
    name: String,
    (which, mut settings): (Which, GroupSettings),
    default: Profile,
    files: &[File],
) -> Result<GroupEntry, ConfigError> {
    let selector = which.selector().map_err(|what| wrong(files, &["group", &name], what))?;
    let Some(selector) = selector else {
        let what = format!("group {name}: which? write unit, cgroup, program or pid");
        return Err(wrong(files, &["group", &name], what));
    };
    let profile = *settings.profile.get_or_insert(default);
    settings.policy.get_or_insert(profile.policy());
    Ok(GroupEntry { name, selector, settings })
}

/// The first of a group's numbers that does not go with the others.
fn misfit(name: &str, settings: &GroupSettings, files: &[File]) -> Option<ConfigError> {
    let error = settings.params().validate().err()?;
    Some(wrong(files, &["group", name, "params", error.key], error.to_string()))
}

/// What is wrong is told of the last line that says it, or that says most of it.
fn wrong(files: &[File], path: &[&str], what: String) -> ConfigError {
    let paths = (0..path.len()).rev().map(|last| &path[..=last]);
    let line = |path| files.iter().rev().find_map(|file| Some((file.path.clone(), file.line_of(path)?)));
    let (file, line) = paths.into_iter().find_map(line).unzip();
    ConfigError { file: file.unwrap_or_default(), line, what }
}

/// What there is where nobody names a group. It is not acted upon.
fn everything() -> GroupEntry {
    let settings =
        GroupSettings { profile: Some(Profile::Frugal), policy: Some(Policy::Retain), ..GroupSettings::default() };
    GroupEntry { name: "machine".to_owned(), selector: Selector::Pid(1), settings }
}

#[cfg(test)]
mod tests;
