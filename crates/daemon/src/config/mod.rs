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

mod keys;
mod layer;
mod show;

pub use keys::{KEYS, Key};

use crate::metrics::MetricsAddress;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Nanos, Policy, Profile};
use gleaner_observe::{Counter, ObserverChoice, Selector};
use gleaner_runtime::RetainChoice;
use layer::{At, GroupLayer, HostLayer, Layer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The package's file.
const SHIPPED: &str = "/usr/share/gleaner/gleaner.toml";
/// The administrator's, and the folder of drop-ins.
const OWN: &str = "/etc/gleaner/gleaner.toml";
const DROP_INS: &str = "/etc/gleaner/gleaner.d";
/// Drop-ins read at most.
const MOST_FILES: usize = 1000;

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// In which file.
    pub file: PathBuf,
    /// In which line, from 1.
    pub line: Option<usize>,
    /// What, and what would be right.
    pub what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// How a group is managed, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileName {
    /// Retains, for 5 % of one CPU at most.
    #[default]
    Conservative,
    /// Retains, whatever it polls.
    Latency,
    /// Retains, for one CPU at most.
    Throughput,
    /// Watches.
    ObserveOnly,
}

impl ProfileName {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Conservative, Self::Latency, Self::Throughput, Self::ObserveOnly];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conservative => "conservative",
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::ObserveOnly => "observe-only",
        }
    }

    /// What it means to the policy.
    pub fn means(self) -> (Policy, Profile) {
        match self {
            Self::Conservative => (Policy::Retain, Profile::Frugal),
            Self::Latency => (Policy::Retain, Profile::Latency),
            Self::Throughput => (Policy::Retain, Profile::Balanced),
            Self::ObserveOnly => (Policy::Observe, Profile::Balanced),
        }
    }
}

/// One entry of the configuration: which groups, and how they are managed.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSettings {
    /// Its name.
    pub name: String,
    /// Which.
    pub selector: Selector,
    /// In one word.
    pub profile: ProfileName,
    /// What may be done.
    pub policy: Policy,
    /// What idle vCPUs may poll for it, as a share of one CPU, instead of what the profile says.
    pub budget: Option<f64>,
    /// How long idle vCPUs are kept awake, instead of what is learnt.
    pub retain_for: Option<Nanos>,
    /// A counter of what it gets done.
    pub progress: Option<Counter>,
    /// The policy's numbers.
    pub params: GuestParams,
}

/// What the flight recorder keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureSettings {
    /// Bytes at most.
    pub size: u64,
    /// Where; `None`: in the state folder, until the daemon ends.
    pub folder: Option<PathBuf>,
}

/// The time slice of VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostSlice {
    /// One for each set of VMs that share CPUs, which the agent finds.
    #[default]
    Adaptive,
    /// One for all.
    Fixed(Duration),
}

/// What the host agent is to do, as `gleaner host run` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// Of each vCPU.
    pub slice: HostSlice,
    /// Only these; none: all.
    pub vms: Vec<String>,
    /// Length of its windows.
    pub interval: Duration,
    /// Whether slices are ended in time.
    pub enforce: bool,
    /// Whether exits by PAUSE are counted.
    pub pause_exits: bool,
    /// Its parameters.
    pub params_file: Option<PathBuf>,
}

/// What the daemon is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The files that it is from, in the order in which they were read.
    pub files: Vec<PathBuf>,
    /// What keeps vCPUs awake.
    pub retain: RetainChoice,
    /// Who sees what groups do.
    pub observer: ObserverChoice,
    /// What observing may take, as a share of one CPU.
    pub overhead_ratio: f64,
    /// Groups managed at most.
    pub groups_max: usize,
    /// Group of users that may ask.
    pub control_group: Option<u32>,
    /// Where metrics are served.
    pub metrics: Option<MetricsAddress>,
    /// What is recorded.
    pub capture: Option<CaptureSettings>,
    /// What is done for the VMs of this machine.
    pub host: Option<HostSettings>,
    /// In order of name; the first that a process belongs to has it.
    pub groups: Vec<GroupSettings>,
    /// Whether no file names a group, nor has anything for a host: then there is a group of everything, and nothing is
    /// changed.
    pub names_no_group: bool,
}

impl Configuration {
    /// Reads the file asked for, or those of the machine as far as there are any.
    ///
    /// # Errors
    /// What is wrong, where, and what would be right.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
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
    pub fn of_files(files: Vec<PathBuf>) -> Result<Self, ConfigError> {
        let mut whole = Layer::default();
        for file in &files {
            lay_over(&mut whole, layer::read(file)?);
        }
        Self::resolve(files, whole)
    }

    fn resolve(files: Vec<PathBuf>, whole: Layer) -> Result<Self, ConfigError> {
        let profile = whole.profile.unwrap_or_default();
        let groups = whole.groups.into_iter().map(|(name, group)| group_settings(name, group, profile));
        let mut groups: Vec<GroupSettings> = groups.collect::<Result<_, _>>()?;
        let host = whole.host.map(host_settings);
        let names_no_group = groups.is_empty() && host.is_none();
        if names_no_group {
            groups.push(everything());
        }
        Ok(Self {
            files,
            retain: whole.retain.unwrap_or_default(),
            observer: whole.observer.unwrap_or_default(),
            overhead_ratio: whole.overhead_ratio.unwrap_or(0.005),
            groups_max: whole.groups_max.unwrap_or(100),
            control_group: whole.control_group,
            metrics: whole.metrics,
            capture: match (whole.capture_size, whole.capture_folder) {
                (None, None) => None,
                (size, folder) => Some(CaptureSettings { size: size.unwrap_or(64 << 20), folder }),
            },
            host,
            groups,
            names_no_group,
        })
    }
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

fn lay_over(below: &mut Layer, above: Layer) {
    below.retain = above.retain.or(below.retain);
    below.observer = above.observer.or(below.observer);
    below.overhead_ratio = above.overhead_ratio.or(below.overhead_ratio);
    below.groups_max = above.groups_max.or(below.groups_max);
    below.control_group = above.control_group.or(below.control_group);
    below.metrics = above.metrics.or(below.metrics.take());
    below.capture_size = above.capture_size.or(below.capture_size);
    below.capture_folder = above.capture_folder.or(below.capture_folder.take());
    if let Some(above) = above.host {
        lay_host_over(below.host.get_or_insert_default(), above);
    }
    below.profile = above.profile.or(below.profile);
    for (name, group) in above.groups {
        match below.groups.get_mut(&name) {
            Some(found) => lay_group_over(&mut found.value, group.value),
            None => drop(below.groups.insert(name, group)),
        }
    }
}

fn lay_host_over(below: &mut HostLayer, above: HostLayer) {
    below.slice = above.slice.or(below.slice);
    below.vms = above.vms.or(below.vms.take());
    below.interval = above.interval.or(below.interval);
    below.enforce = above.enforce.or(below.enforce);
    below.pause_exits = above.pause_exits.or(below.pause_exits);
    below.params_file = above.params_file.or(below.params_file.take());
}

fn host_settings(host: HostLayer) -> HostSettings {
    HostSettings {
        slice: host.slice.unwrap_or_default(),
        vms: host.vms.unwrap_or_default(),
        interval: host.interval.unwrap_or(Duration::from_secs(1)),
        enforce: host.enforce.unwrap_or(true),
        pause_exits: host.pause_exits.unwrap_or(false),
        params_file: host.params_file,
    }
}

fn lay_group_over(below: &mut GroupLayer, above: GroupLayer) {
    below.selector = above.selector.or(below.selector.take());
    below.profile = above.profile.or(below.profile);
    below.policy = above.policy.or(below.policy);
    below.budget = above.budget.or(below.budget);
    below.retain_for = above.retain_for.or(below.retain_for);
    below.trial = above.trial.or(below.trial);
    below.progress = above.progress.or(below.progress.take());
    below.params.extend(above.params);
}

fn group_settings(name: String, group: At<GroupLayer>, default: ProfileName) -> Result<GroupSettings, ConfigError> {
    let At { value: group, file, line } = group;
    let Some(selector) = group.selector else {
        let what = format!("group {name}: which? write unit, cgroup, program or pid");
        return Err(ConfigError { file, line: Some(line), what });
    };
    let profile = group.profile.unwrap_or(default);
    let mut params = layer::params(&group.params)?;
    params.retention_trials &= group.trial.unwrap_or(true);
    let policy = group.policy.unwrap_or(profile.means().0);
    let (budget, retain_for, progress) = (group.budget, group.retain_for, group.progress);
    Ok(GroupSettings { name, selector, profile, policy, budget, retain_for, progress, params })
}

/// What there is where nobody names a group. It is not acted upon.
fn everything() -> GroupSettings {
    GroupSettings {
        name: "machine".to_owned(),
        selector: Selector::Pid(1),
        profile: ProfileName::default(),
        policy: Policy::Retain,
        budget: None,
        retain_for: None,
        progress: None,
        params: GuestParams::default(),
    }
}

#[cfg(test)]
mod tests;
