//! One file of the configuration, read and checked by itself: what is wrong is told with its line.

use super::error::ConfigError;
use super::tables::{TABLES, Tables, Which, names_in};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Policy, printable};
use gleaner_settings::{GroupSettings, nearest, unknown};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeSet;
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

/// What a file says as far as it is right, and what is wrong with the rest.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub tables: Tables,
    /// In order of lines.
    pub errors: Vec<ConfigError>,
    /// Groups that have a mistake.
    pub wrong_groups: BTreeSet<String>,
}

impl File {
    /// Reads one.
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

    /// What it says, and all that is wrong with it.
    pub(super) fn check(&self) -> Checked {
        let (parsed, errors) = DeTable::parse_recoverable(&self.text);
        let mut checked = Checked::default();
        parsed.into_inner().into_iter().for_each(|(name, table)| self.check_table(&name, table, &mut checked));
        // Of what is no TOML nothing else can be said for sure.
        if !errors.is_empty() {
            checked =
                Checked { errors: errors.iter().map(|error| self.of_toml(error)).collect(), ..Checked::default() };
        }
        checked.errors.sort_by_key(|error| error.line);
        checked
    }

    fn check_table(&self, name: &Spanned<Cow<'_, str>>, table: Spanned<DeValue<'_>>, into: &mut Checked) {
        let name = (name.span().start, &**name.get_ref());
        let Some(keys) = names_in(name.1) else {
            return into.errors.push(self.wrong(name.0, unknown("table", name.1, &TABLES)));
        };
        let (tables, errors) = (&mut into.tables, &mut into.errors);
        match name.1 {
            "daemon" => tables.daemon = self.own_keys(table, &keys, errors),
            "control" => tables.control = self.own_keys(table, &keys, errors),
            "metrics" => tables.metrics = self.own_keys(table, &keys, errors),
            "capture" => tables.capture = self.own_keys(table, &keys, errors),
            "host" => tables.host = Some(self.own_keys(table, &keys, errors)),
            "defaults" => tables.defaults = self.own_keys(table, &keys, errors),
            _ => self.check_groups(name.0, table, into),
        }
    }

    fn check_groups(&self, at: usize, groups: Spanned<DeValue<'_>>, into: &mut Checked) {
        let DeValue::Table(groups) = groups.into_inner() else {
            return into.errors.push(self.wrong(at, "group: write each as [group.NAME]"));
        };
        for (name, group) in groups {
            let before = into.errors.len();
            let at = name.span().start;
            let name = name.into_inner().into_owned();
            let settings = self.group(&name, at, group, &mut into.errors);
            if into.errors.len() > before {
                into.wrong_groups.insert(name.clone());
            }
            into.tables.groups.insert(name, settings);
        }
    }

    fn group(
        &self,
        name: &str,
        at: usize,
        group: Spanned<DeValue<'_>>,
        errors: &mut Vec<ConfigError>,
    ) -> (Which, GroupSettings) {
        errors.extend(bad_name(name).map(|what| self.wrong(at, what)));
        let span = group.span();
        let DeValue::Table(group) = group.into_inner() else {
            errors.push(self.wrong(at, format!("group {name}: write each as [group.NAME]")));
            return Default::default();
        };
        let (which, mut others): (DeTable<'_>, DeTable<'_>) =
            group.into_iter().partition(|(key, _)| Which::NAMES.contains(&&**key.get_ref()));
        let which: Which = self.own_keys(Spanned::new(span.clone(), DeValue::Table(which)), Which::NAMES, errors);
        errors.extend(which.selector().err().map(|what| self.wrong(at, what)));
        self.check_params(&mut others, errors);
        let policy_at = others.get("policy").map_or(at, |policy: &Spanned<DeValue<'_>>| policy.span().start);
        let known = names_in("group").unwrap_or_default();
        let settings: GroupSettings = self.own_keys(Spanned::new(span, DeValue::Table(others)), &known, errors);
        // A program that runs already is not moved.
        if let Some(policy @ (Policy::Consolidate | Policy::Full)) = settings.policy {
            errors.push(self.wrong(policy_at, unknown("policy", policy.name(), &["off", "observe", "retain"])));
        }
        (which, settings)
    }

    /// Takes those of the policy's numbers away that are wrong, each by itself. Whether they fit each other is known
    /// when all files are.
    fn check_params(&self, group: &mut DeTable<'_>, errors: &mut Vec<ConfigError>) {
        let Some(DeValue::Table(params)) = group.get_mut("params").map(Spanned::get_mut) else { return };
        let known: Vec<&str> = {
            let parameters = GuestParams::parameters();
            parameters.iter().map(|parameter| parameter.key).chain([GuestParams::TUNING]).collect()
        };
        for (key, value) in std::mem::take(params) {
            match self.wrong_param(&key, &value, &known) {
                Some(wrong) => errors.push(wrong),
                None => drop(params.insert(key, value)),
            }
        }
    }

    fn wrong_param(
        &self,
        key: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        known: &[&str],
    ) -> Option<ConfigError> {
        let shown = printable(key.get_ref().as_bytes());
        if !known.contains(&&**key.get_ref()) {
            let advice = match nearest(key.get_ref(), known.iter().copied()) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => "`gleaner params` lists them".to_owned(),
            };
            return Some(self.wrong(key.span().start, format!("unknown parameter {shown}: {advice}")));
        }
        let error = read_one::<GuestParams>(key, value).err()?;
        Some(self.wrong(value.span().start, format!("{shown}: {}", error.message())))
    }

    /// A table whose keys a struct knows, as far as they are right.
    fn own_keys<T: DeserializeOwned + Default>(
        &self,
        table: Spanned<DeValue<'_>>,
        known: &[&str],
        errors: &mut Vec<ConfigError>,
    ) -> T {
        let read = |table| T::deserialize(ValueDeserializer::from(table)).map_err(|error| self.of_toml(&error));
        let span = table.span();
        let keys = match table.into_inner() {
            DeValue::Table(keys) => keys,
            other => {
                errors.extend(read(Spanned::new(span, other)).err());
                return T::default();
            }
        };
        let mut right = DeTable::new();
        for (key, value) in keys {
            if !known.contains(&&**key.get_ref()) {
                errors.push(self.wrong(key.span().start, unknown("key", key.get_ref(), known)));
                continue;
            }
            match read_one::<T>(&key, &value) {
                Ok(_) => drop(right.insert(key, value)),
                Err(error) => errors.push(self.of_toml(&error)),
            }
        }
        // Each by itself is right.
        read(Spanned::new(span, DeValue::Table(right))).unwrap_or_else(|error| {
            errors.push(error);
            T::default()
        })
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

/// A struct of which this key alone is said.
fn read_one<T: DeserializeOwned>(
    key: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<T, toml::de::Error> {
    let span = key.span().start..value.span().end;
    let one = DeTable::from_iter([(key.clone(), value.clone())]);
    T::deserialize(ValueDeserializer::from(Spanned::new(span, DeValue::Table(one))))
}

/// A name is a label of metrics and a word of commands.
fn bad_name(name: &str) -> Option<String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    let right = (1..=64).contains(&name.len()) && name.bytes().all(fine);
    (!right).then(|| {
        format!("group {}: a name has up to 64 letters, digits, dashes, dots, @ and _", printable(name.as_bytes()))
    })
}
