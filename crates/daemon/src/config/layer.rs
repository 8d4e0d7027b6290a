//! One file of the configuration, read and checked: each value with the place it is from.

use super::keys::{TABLES, keys_of, nearest};
use super::{ConfigError, HostSlice, ProfileName};
use crate::metrics::MetricsAddress;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Nanos, Policy, RetainMeans, printable};
use gleaner_observe::{Counter, ObserverChoice, Selector};
use gleaner_runtime::RetainChoice;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Some thousand times what a configuration takes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Words for observers.
pub(super) const OBSERVERS: [(&str, ObserverChoice); 3] =
    [("auto", ObserverChoice::Auto), ("bpf", ObserverChoice::Bpf), ("procfs", ObserverChoice::Procfs)];

/// A value, and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct At<T> {
    pub value: T,
    pub file: PathBuf,
    pub line: usize,
}

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layer {
    pub retain: Option<RetainChoice>,
    pub observer: Option<ObserverChoice>,
    pub overhead_ratio: Option<f64>,
    pub groups_max: Option<usize>,
    pub control_group: Option<u32>,
    pub metrics: Option<MetricsAddress>,
    pub capture_size: Option<u64>,
    pub capture_folder: Option<PathBuf>,
    pub host: Option<HostLayer>,
    pub profile: Option<ProfileName>,
    pub groups: BTreeMap<String, At<GroupLayer>>,
}

/// What one file says of the host agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostLayer {
    pub slice: Option<HostSlice>,
    pub vms: Option<Vec<String>>,
    pub interval: Option<Duration>,
    pub enforce: Option<bool>,
    pub pause_exits: Option<bool>,
    pub params_file: Option<PathBuf>,
}

/// What one file says of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GroupLayer {
    pub selector: Option<Selector>,
    pub profile: Option<ProfileName>,
    pub policy: Option<Policy>,
    pub budget: Option<f64>,
    pub retain_for: Option<Nanos>,
    pub trial: Option<bool>,
    pub progress: Option<Counter>,
    pub params: BTreeMap<String, At<toml::Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    daemon: RawDaemon,
    control: RawControl,
    metrics: RawMetrics,
    capture: RawCapture,
    host: Option<RawHost>,
    defaults: RawDefaults,
    group: BTreeMap<String, Spanned<RawGroup>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawDaemon {
    retain: Option<Spanned<String>>,
    observer: Option<Spanned<String>>,
    overhead: Option<Spanned<String>>,
    groups_max: Option<Spanned<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawControl {
    group: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawMetrics {
    listen: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCapture {
    size: Option<Spanned<String>>,
    folder: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawHost {
    slice: Option<Spanned<String>>,
    vm: Option<Spanned<Vec<String>>>,
    interval: Option<Spanned<String>>,
    enforce: Option<bool>,
    pause_exits: Option<bool>,
    params_file: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawDefaults {
    profile: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawGroup {
    unit: Option<Spanned<String>>,
    cgroup: Option<Spanned<String>>,
    program: Option<Spanned<String>>,
    pid: Option<Spanned<i64>>,
    profile: Option<Spanned<String>>,
    policy: Option<Spanned<String>>,
    budget: Option<Spanned<String>>,
    retain_for: Option<Spanned<String>>,
    trial: Option<bool>,
    progress: Option<Spanned<String>>,
    params: BTreeMap<String, Spanned<toml::Value>>,
}

/// A file's text and name, for messages.
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.get(..at).unwrap_or(self.text).matches('\n').count() + 1
    }

    fn wrong(&self, at: usize, what: impl Into<String>) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line: Some(self.line(at)), what: what.into() }
    }

    /// A value that `parse` understands, or what would be right.
    fn value<T, U>(
        &self,
        written: Option<&Spanned<T>>,
        parse: impl FnOnce(&T) -> Result<U, String>,
    ) -> Result<Option<U>, ConfigError> {
        let parsed = written.map(|value| parse(value.get_ref()).map_err(|what| self.wrong(value.span().start, what)));
        parsed.transpose()
    }
}

/// Reads and checks one file.
///
/// # Errors
/// What is wrong with it, where, and what would be right.
pub(super) fn read(file: &Path) -> Result<Layer, ConfigError> {
    let unreadable = |what: String| ConfigError { file: file.to_owned(), line: None, what };
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(format!("is longer than {} KiB, and no configuration is", FILE_BYTES_MAX >> 10)));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable("is not UTF-8 text".into()))?;
    parse(file, &text)
}

/// Checks the text of a file.
///
/// # Errors
/// As [`read`].
pub(super) fn parse(file: &Path, text: &str) -> Result<Layer, ConfigError> {
    let source = Source { file, text };
    refuse_unknown(&source)?;
    let raw: Raw = toml::from_str(text).map_err(|error| of_toml(&source, &error))?;
    let mut groups = BTreeMap::new();
    for (name, group) in &raw.group {
        let at = group.span().start;
        if let Some(what) = bad_name(name) {
            return Err(source.wrong(at, what));
        }
        let value = group_layer(&source, group.get_ref(), at)?;
        groups.insert(name.clone(), At { value, file: file.to_owned(), line: source.line(at) });
    }
    let daemon = &raw.daemon;
    Ok(Layer {
        retain: source.value(daemon.retain.as_ref(), |word| retain(word))?,
        observer: source.value(daemon.observer.as_ref(), |word| observer(word))?,
        overhead_ratio: source.value(daemon.overhead.as_ref(), |text| percent(text, 0.1, 20.0))?,
        groups_max: source.value(daemon.groups_max.as_ref(), |number| match usize::try_from(*number) {
            Ok(number @ 1..=1000) => Ok(number),
            _ => Err(format!("groups_max = {number}: write 1 to 1000")),
        })?,
        control_group: source.value(raw.control.group.as_ref(), |name| user_group(name))?,
        metrics: source.value(raw.metrics.listen.as_ref(), |text| MetricsAddress::parse(text))?,
        capture_size: source.value(raw.capture.size.as_ref(), |text| size(text))?,
        capture_folder: source.value(raw.capture.folder.as_ref(), |path| absolute(path))?,
        host: raw.host.as_ref().map(|host| host_layer(&source, host)).transpose()?,
        profile: source.value(raw.defaults.profile.as_ref(), |word| profile(word))?,
        groups,
    })
}

fn host_layer(source: &Source<'_>, raw: &RawHost) -> Result<HostLayer, ConfigError> {
    Ok(HostLayer {
        slice: source.value(raw.slice.as_ref(), |text| slice(text))?,
        vms: source.value(raw.vm.as_ref(), |names| match names.iter().find(|name| name.is_empty()) {
            Some(_) => Err("vm: write each VM's name or process id".to_owned()),
            None => Ok(names.clone()),
        })?,
        interval: source.value(raw.interval.as_ref(), |text| {
            within(text, Duration::from_millis(100)..=Duration::from_secs(60), "100ms to 60s, such as \"1s\"")
        })?,
        enforce: raw.enforce,
        pause_exits: raw.pause_exits,
        params_file: source.value(raw.params_file.as_ref(), |path| absolute(path))?,
    })
}

fn group_layer(source: &Source<'_>, raw: &RawGroup, at: usize) -> Result<GroupLayer, ConfigError> {
    let glob = |made: Result<Selector, glob::PatternError>| made.map_err(|error| format!("no such wildcards: {error}"));
    let selectors = [
        source.value(raw.unit.as_ref(), |name| glob(Selector::unit(name)))?,
        source.value(raw.cgroup.as_ref(), |path| glob(Selector::cgroup(path)))?,
        source.value(raw.program.as_ref(), |name| program(name))?,
        source.value(raw.pid.as_ref(), |pid| match i32::try_from(*pid) {
            Ok(pid) if pid > 0 => Ok(Selector::Pid(pid)),
            _ => Err(format!("pid = {pid}: write a process id")),
        })?,
    ];
    let mut selectors = selectors.into_iter().flatten();
    let (selector, second) = (selectors.next(), selectors.next());
    if second.is_some() {
        return Err(source.wrong(at, "one group has one of unit, cgroup, program and pid; write a second group"));
    }
    let params = raw.params.iter().map(|(key, value)| {
        let line = source.line(value.span().start);
        (key.clone(), At { value: value.get_ref().clone(), file: source.file.to_owned(), line })
    });
    Ok(GroupLayer {
        selector,
        profile: source.value(raw.profile.as_ref(), |word| profile(word))?,
        policy: source.value(raw.policy.as_ref(), |word| policy(word))?,
        budget: source.value(raw.budget.as_ref(), |text| percent(text, 0.0, 100_000.0))?,
        retain_for: source.value(raw.retain_for.as_ref(), |text| duration(text))?,
        trial: raw.trial,
        progress: source.value(raw.progress.as_ref(), |text| counter(text))?,
        params: params.collect(),
    })
}

/// The policy's numbers with what a group changes of them.
///
/// # Errors
/// Which key is wrong, where.
pub(super) fn params(changed: &BTreeMap<String, At<toml::Value>>) -> Result<GuestParams, ConfigError> {
    let known = GuestParams::parameters();
    let at = |key: &str, what: String| {
        let place = changed.get(key).or_else(|| changed.values().next());
        let (file, line) = place.map_or((PathBuf::new(), None), |at| (at.file.clone(), Some(at.line)));
        ConfigError { file, line, what }
    };
    let mut unknown = changed.keys().filter(|key| known.iter().all(|parameter| parameter.key != **key));
    if let Some(key) = unknown.next() {
        let advice = match nearest(key, known.iter().map(|parameter| parameter.key)) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "`gleaner params` lists them".to_owned(),
        };
        return Err(at(key, format!("unknown parameter {}: {advice}", printable(key.as_bytes()))));
    }
    let mut table = toml::Table::new();
    for (key, value) in changed {
        table.insert(key.clone(), value.value.clone());
        let one = toml::Table::from_iter([(key.clone(), value.value.clone())]);
        one.try_into::<GuestParams>().map_err(|error| at(key, format!("{key}: {}", error.message())))?;
    }
    let params: GuestParams = table.try_into().map_err(|error: toml::de::Error| at("", error.message().to_owned()))?;
    params.validate().map_err(|error| at(error.key, error.to_string()))?;
    Ok(params)
}

/// Names what is no table and no key, with the nearest one that is.
fn refuse_unknown(source: &Source<'_>) -> Result<(), ConfigError> {
    let tables = toml::de::DeTable::parse(source.text).map_err(|error| of_toml(source, &error))?;
    for (name, table) in tables.get_ref() {
        let known: Vec<&str> = match name.get_ref().as_ref() {
            "group" => keys_of("group.NAME").collect(),
            table if TABLES.contains(&table) => keys_of(table).collect(),
            other => return Err(source.wrong(name.span().start, unknown("table", other, &TABLES))),
        };
        let Some(below) = table.get_ref().as_table() else { continue };
        let check = |below: &toml::de::DeTable<'_>| {
            let wrong = below.keys().find(|key| !known.contains(&key.get_ref().as_ref()));
            wrong.map_or(Ok(()), |key| Err(source.wrong(key.span().start, unknown("key", key.get_ref(), &known))))
        };
        if name.get_ref() == "group" {
            below.values().filter_map(|group| group.get_ref().as_table()).try_for_each(check)?;
        } else {
            check(below)?;
        }
    }
    Ok(())
}

fn unknown(what: &str, written: &str, known: &[&str]) -> String {
    let shown = printable(written.as_bytes());
    match nearest(written, known.iter().copied()) {
        Some(nearest) => format!("unknown {what} {shown}: did you mean {nearest}?"),
        None => format!("unknown {what} {shown}: there are {}", known.join(", ")),
    }
}

fn of_toml(source: &Source<'_>, error: &toml::de::Error) -> ConfigError {
    source.wrong(error.span().map_or(0, |span| span.start), error.message().replace('\n', "; "))
}

/// A name is a label of metrics and a word of commands.
fn bad_name(name: &str) -> Option<String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    let right = (1..=64).contains(&name.len()) && name.bytes().all(fine);
    (!right).then(|| {
        format!("group {}: a name has up to 64 letters, digits, dashes, dots, @ and _", printable(name.as_bytes()))
    })
}

/// One of `words`.
fn one_of<T: Copy>(what: &str, written: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, found)) = words.iter().find(|(word, _)| *word == written) {
        return Ok(*found);
    }
    let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    Err(unknown(what, written, &names))
}

fn profile(word: &str) -> Result<ProfileName, String> {
    one_of("profile", word, &ProfileName::ALL.map(|profile| (profile.name(), profile)))
}

fn policy(word: &str) -> Result<Policy, String> {
    // A program that runs already is not moved.
    let words = [("off", Policy::Off), ("observe", Policy::Observe), ("retain", Policy::Retain)];
    one_of("policy", word, &words)
}

fn retain(word: &str) -> Result<RetainChoice, String> {
    let by = RetainMeans::ALL.map(|means| (means.name(), RetainChoice::By(means)));
    let words: Vec<_> = [("auto", RetainChoice::Auto), ("none", RetainChoice::None)].into_iter().chain(by).collect();
    one_of("means", word, &words)
}

fn observer(word: &str) -> Result<ObserverChoice, String> {
    one_of("observer", word, &OBSERVERS)
}

fn program(name: &str) -> Result<Selector, String> {
    match name.len() {
        1..=15 if !name.contains('/') => Ok(Selector::Program(name.to_owned())),
        _ => Err("program: write the name that `ps -o comm` shows, of up to 15 bytes".to_owned()),
    }
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    let found = Path::new(path);
    if found.is_absolute() {
        return Ok(found.to_owned());
    }
    Err(format!("{}: write a path from / on", printable(path.as_bytes())))
}

fn counter(text: &str) -> Result<Counter, String> {
    let found = text.parse::<Counter>().map_err(|why| printable(why.as_bytes()))?;
    absolute(&found.file().to_string_lossy()).map(|_| found)
}

/// A group of users, by number or as /etc/group has it: a static binary cannot ask the C library.
fn user_group(name: &str) -> Result<u32, String> {
    let known = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let gid = |line: &str| line.split(':').nth(2)?.parse().ok();
    let found = known.lines().find(|line| line.split(':').next() == Some(name)).and_then(gid);
    name.parse().ok().or(found).ok_or_else(|| format!("{}: no such group of users", printable(name.as_bytes())))
}

/// As a ratio.
fn percent(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(str::trim).and_then(|number| number.parse::<f64>().ok());
    match number {
        Some(number) if (least..=most).contains(&number) => Ok(number / 100.0),
        _ => Err(format!("{}: write {least}% to {most}%, such as \"20%\"", printable(text.as_bytes()))),
    }
}

/// Bytes.
fn size(text: &str) -> Result<u64, String> {
    let units = [('k', 10), ('M', 20), ('G', 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    let bytes = digits.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if (1 << 20..=16 << 30).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{}: write 1M to 16G, such as \"64M\"", printable(text.as_bytes()))),
    }
}

fn duration(text: &str) -> Result<Nanos, String> {
    let range = Duration::from_micros(1)..=Duration::from_secs(1);
    within(text, range, "1us to 1s, such as \"200us\"").map(Nanos::from)
}

fn within(text: &str, range: RangeInclusive<Duration>, right: &str) -> Result<Duration, String> {
    let found = humantime::parse_duration(text).ok().filter(|duration| range.contains(duration));
    found.ok_or_else(|| format!("{}: write {right}", printable(text.as_bytes())))
}

fn slice(text: &str) -> Result<HostSlice, String> {
    if text == "adaptive" {
        return Ok(HostSlice::Adaptive);
    }
    let range = Duration::from_micros(100)..=Duration::from_millis(100);
    within(text, range, "adaptive, or 100us to 100ms, such as \"1ms\"").map(HostSlice::Fixed)
}

/// What serde has to say, which knows the fields.
#[cfg(test)]
pub(super) fn said_by_serde(text: &str) -> String {
    toml::from_str::<Raw>(text).map_or_else(|error| error.message().to_owned(), |_| String::new())
}
