//! One file of the configuration, read and checked by itself: what is wrong is told with its line.

use super::error::ConfigError;
use super::tables::{TABLES, Tables, Which, names_in};
use gleaner_decide::RETIRED;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Policy, printable};
use gleaner_settings::{GroupSettings, nearest, unknown};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Some thousand times what a configuration takes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file's name and text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct File {
    pub path: PathBuf,
    pub text: String,
}

impl File {
    /// Reads one.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |what: String| ConfigError { file: path.to_owned(), line: None, what };
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(path).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
        let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| unreadable(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(unreadable(format!("is longer than {} KiB, and no configuration is", FILE_BYTES_MAX >> 10)));
        }
        let text = String::from_utf8(bytes).map_err(|_| unreadable("is not UTF-8 text".into()))?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// What it says, key by key.
    ///
    /// # Errors
    /// It is no TOML.
    pub(super) fn table(&self) -> Result<toml::Table, ConfigError> {
        toml::from_str(&self.text).map_err(|error| self.of_toml(&error))
    }

    /// What it says.
    ///
    /// # Errors
    /// What is wrong with it, where, and what would be right.
    pub(super) fn tables(&self) -> Result<Tables, ConfigError> {
        let mut tables = Tables::default();
        for (name, table) in self.parsed()? {
            let at = name.span().start;
            let name = name.into_inner();
            let Some(keys) = names_in(&name) else {
                return Err(self.wrong(at, unknown("table", &name, &TABLES)));
            };
            if name == "group" {
                let groups = self.own_keys::<BTreeMap<String, toml::Table>>(table.clone());
                groups?;
                let DeValue::Table(groups) = table.into_inner() else { continue };
                for (name, group) in groups {
                    self.refuse_unknown(&group, &keys)?;
                    let at = name.span().start;
                    let name = name.into_inner().into_owned();
                    let settings = self.group(&name, at, group)?;
                    tables.groups.insert(name, settings);
                }
                continue;
            }
            self.refuse_unknown(&table, &keys)?;
            match &*name {
                "daemon" => tables.daemon = self.own_keys(table)?,
                "control" => tables.control = self.own_keys(table)?,
                "metrics" => tables.metrics = self.own_keys(table)?,
                "capture" => tables.capture = self.own_keys(table)?,
                "host" => tables.host = Some(self.own_keys(table)?),
                _ => tables.defaults = self.own_keys(table)?,
            }
        }
        Ok(tables)
    }

    fn group(&self, name: &str, at: usize, group: Spanned<DeValue<'_>>) -> Result<(Which, GroupSettings), ConfigError> {
        if let Some(what) = bad_name(name) {
            return Err(self.wrong(at, what));
        }
        let span = group.span();
        let DeValue::Table(group) = group.into_inner() else { return Ok(Default::default()) };
        let (which, mut others): (DeTable<'_>, DeTable<'_>) =
            group.into_iter().partition(|(key, _)| Which::NAMES.contains(&&**key.get_ref()));
        let params: Option<DeTable<'_>> = params_of(&mut others).cloned();
        let which: Which = self.own_keys(Spanned::new(span.clone(), DeValue::Table(which)))?;
        which.selector().map_err(|what| self.wrong(at, what))?;
        if let Some(params) = params {
            self.params(params)?;
        }
        let policy_at = others.get("policy").map(|policy: &Spanned<DeValue<'_>>| policy.span().start);
        let settings: GroupSettings = self.own_keys(Spanned::new(span, DeValue::Table(others)))?;
        match settings.policy {
            // A program that runs already is not moved.
            Some(policy @ (Policy::Consolidate | Policy::Full)) => {
                let what = unknown("policy", policy.name(), &["off", "observe", "retain"]);
                Err(self.wrong(policy_at.unwrap_or(at), what))
            }
            _ => Ok((which, settings)),
        }
    }

    /// Each of the policy's numbers by itself. Whether it fits the others is known when all files are.
    fn params(&self, params: DeTable<'_>) -> Result<(), ConfigError> {
        let known: Vec<&str> = GuestParams::parameters().iter().map(|parameter| parameter.key).collect();
        for (key, value) in params {
            let (at, value_at) = (key.span().start, value.span().start);
            let shown = printable(key.get_ref().as_bytes());
            if !known.contains(&&**key.get_ref()) {
                let advice = match nearest(key.get_ref(), known) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => "`gleaner params` lists them".to_owned(),
                };
                return Err(self.wrong(at, format!("unknown parameter {shown}: {advice}")));
            }
            let one = DeTable::from_iter([(key, value)]);
            let read = GuestParams::deserialize(ValueDeserializer::from(Spanned::new(0..0, DeValue::Table(one))));
            read.map_err(|error| self.wrong(value_at, format!("{shown}: {}", error.message())))?;
        }
        Ok(())
    }

    /// A table whose keys a struct knows.
    fn own_keys<T: DeserializeOwned>(&self, table: Spanned<DeValue<'_>>) -> Result<T, ConfigError> {
        T::deserialize(ValueDeserializer::from(table)).map_err(|error| self.of_toml(&error))
    }

    /// Names what is no key, with the nearest one that is.
    fn refuse_unknown(&self, table: &Spanned<DeValue<'_>>, known: &[&str]) -> Result<(), ConfigError> {
        let mut keys = table.get_ref().as_table().into_iter().flat_map(DeTable::keys);
        let wrong = keys.find(|key| !known.contains(&&**key.get_ref()));
        wrong.map_or(Ok(()), |key| Err(self.wrong(key.span().start, unknown("key", key.get_ref(), known))))
    }

    /// In which line `path`, a table in tables, is written, if it is.
    pub(super) fn line_of(&self, path: &[&str]) -> Option<usize> {
        let mut table = self.parsed().ok()?;
        let mut line = None;
        for name in path {
            let (key, value) = table.into_iter().find(|(key, _)| key.get_ref() == name)?;
            line = Some(self.line(key.span().start));
            table = match value.into_inner() {
                DeValue::Table(table) => table,
                _ => DeTable::new(),
            };
        }
        line
    }

    fn parsed(&self) -> Result<DeTable<'_>, ConfigError> {
        DeTable::parse(&self.text).map(Spanned::into_inner).map_err(|error| self.of_toml(&error))
    }

    fn line(&self, at: usize) -> usize {
        self.text.get(..at).unwrap_or(&self.text).matches('\n').count() + 1
    }

    fn wrong(&self, at: usize, what: impl Into<String>) -> ConfigError {
        ConfigError { file: self.path.clone(), line: Some(self.line(at)), what: what.into() }
    }

    fn of_toml(&self, error: &toml::de::Error) -> ConfigError {
        self.wrong(error.span().map_or(0, |span| span.start), error.message().replace('\n', "; "))
    }
}

/// Without those that are parameters no more.
fn params_of<'a, 'i>(group: &'a mut DeTable<'i>) -> Option<&'a DeTable<'i>> {
    let DeValue::Table(params) = group.get_mut("params")?.get_mut() else { return None };
    RETIRED.split_whitespace().for_each(|key| drop(params.remove(key)));
    Some(params)
}

/// A name is a label of metrics and a word of commands.
fn bad_name(name: &str) -> Option<String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    let right = (1..=64).contains(&name.len()) && name.bytes().all(fine);
    (!right).then(|| {
        format!("group {}: a name has up to 64 letters, digits, dashes, dots, @ and _", printable(name.as_bytes()))
    })
}
