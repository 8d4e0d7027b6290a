//! Groups that somebody hands over: `gleaner run` and `gleaner attach` beside a daemon join it, and lead it to manage
//! their program as one more group, for as long as they run.
//!
//! Whoever may ask may hand over processes of their own. Root and the daemon's own user may hand over any, and may ask
//! for what costs others something.

use crate::config::GroupEntry;
use crate::server::Peer;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Nanos, Policy};
use gleaner_observe::{ProcRoot, Selector, Target};
use gleaner_runtime::{Config, Snapshot};
use gleaner_settings::{GroupSettings, Profile};
use gleaner_sys::{children, numbered, status_field};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// Before the program's name: no group of the configuration is called so, unless by a wildcard.
pub(crate) const PREFIX: &str = "run";
/// Characters of a program's name that are kept.
const LONGEST_NAME: usize = 40;
/// Groups that one user without privilege may have at once.
const MOST_OF_A_USER: usize = 16;
/// What idle vCPUs may poll for such a group, as a share of one CPU: what the profile `balanced` allows.
const MOST_BUDGET: f64 = 1.0;

/// What is to be managed, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// The program's name.
    pub name: String,
    /// A process, with all that it starts. Without it and a cgroup: would such a program be taken?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "as_bytes")]
    pub cgroup: Option<PathBuf>,
    #[serde(flatten)]
    pub settings: GroupSettings,
}

/// A path as text, or as a list of bytes where it is none.
mod as_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::PathBuf;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(PathBuf),
        Bytes(Vec<u8>),
    }

    #[allow(clippy::ref_option, reason = "serde has it so")]
    pub(super) fn serialize<S: Serializer>(path: &Option<PathBuf>, into: S) -> Result<S::Ok, S::Error> {
        let text = path.as_ref().map(|path| path.to_str().ok_or(path.as_os_str().as_bytes()));
        match text {
            Some(Err(bytes)) => bytes.serialize(into),
            text => text.and_then(Result::ok).serialize(into),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::deserialize(from)?.map(|written| match written {
            Written::Text(path) => path,
            Written::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }))
    }
}

impl Join {
    /// What `config` says of its group; of which processes is still to be said.
    pub fn of(config: &Config) -> Self {
        Self { name: config.name.clone(), pid: None, cgroup: None, settings: config.group.clone() }
    }

    /// As an entry of the configuration would have it.
    pub(crate) fn entry(&self) -> Result<GroupEntry, String> {
        let mut settings = self.settings.clone();
        settings.params().validate().map_err(|error| format!("parameters: {error}"))?;
        let policy = settings.policy();
        match policy {
            Policy::Off => return Err("there is nothing to do with policy off".to_owned()),
            Policy::Consolidate => return Err("a daemon does not consolidate without retaining".to_owned()),
            _ => {}
        }
        let profile = if policy == Policy::Observe { Profile::ObserveOnly } else { settings.profile() };
        (settings.policy, settings.profile) = (Some(policy), Some(profile));
        let selector = Selector::Pid(self.pid.unwrap_or(0));
        Ok(GroupEntry { name: PREFIX.to_owned(), selector, settings })
    }

    /// What it is called in the daemon.
    pub(crate) fn group_name(&self) -> String {
        let fine = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+');
        let name: String = self.name.chars().filter(fine).take(LONGEST_NAME).collect();
        format!("{PREFIX}/{}", if name.is_empty() { "program" } else { &name })
    }

    /// What of it only root and the daemon's own user may have: others pay for it.
    fn asks_for_much(&self) -> Option<&'static str> {
        let changed = |params: &GuestParams| *params != GuestParams::default();
        let GroupSettings { budget, retain_for, trial, progress, params, .. } = &self.settings;
        let much = [
            (self.cgroup.is_some(), "a cgroup"),
            (self.settings.profile() == Profile::Latency, "profile latency"),
            (retain_for.is_some(), "a time-out of one's own"),
            (budget.as_ref().is_some_and(|budget| budget.ratio() > MOST_BUDGET), "a budget over 100 %"),
            (progress.is_some(), "a progress file"),
            (*trial == Some(false) || params.as_ref().is_some_and(changed), "other parameters"),
        ];
        much.into_iter().find_map(|(asks, what)| asks.then_some(what))
    }
}

/// Who handed it over, and how everything stood then.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub runner: Runner,
    /// Its configuration, as the daemon has it.
    pub config: Config,
    /// Whether the runner's children are all its program's.
    pub of_runner: bool,
    /// What concerns the whole machine, as it was then.
    pub before: Before,
}

/// The process that hands something over, and its user. The group is managed as long as it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runner {
    pub pid: i32,
    pub uid: u32,
    process: Target,
}

/// Sums over all groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    retained: Nanos,
    overhead: Nanos,
    guard_trips: u64,
}

impl Before {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self { retained: snapshot.retained, overhead: snapshot.overhead, guard_trips: snapshot.guard_trips }
    }
}

impl Joined {
    pub(crate) fn lives(&self, root: &ProcRoot) -> bool {
        !self.runner.process.roots(root).is_empty()
    }

    /// Its processes whose parents are not its: where somebody's children are all its, those that came to them, too.
    pub(crate) fn roots(&self, root: &ProcRoot, target: &Target) -> Vec<i32> {
        let mut roots = target.roots(root);
        if self.of_runner {
            roots.extend(children_of(root, self.runner.pid).filter(|pid| !roots.contains(pid)).collect::<Vec<i32>>());
        }
        roots
    }

    /// Of `snapshot` what happened since.
    pub(crate) fn since(&self, mut snapshot: Snapshot) -> Snapshot {
        snapshot.retained = snapshot.retained - self.before.retained;
        snapshot.overhead = snapshot.overhead - self.before.overhead;
        snapshot.guard_trips = snapshot.guard_trips.saturating_sub(self.before.guard_trips);
        for group in &mut snapshot.groups {
            for decision in &mut group.decisions {
                decision.at = decision.at - group.since;
            }
        }
        snapshot
    }
}

/// Whether who asks may have what they ask for: who it is, and what is to be managed where they say.
pub(crate) fn check(root: &ProcRoot, join: &Join, peer: &Peer) -> Result<(Runner, Option<Target>), String> {
    let (asker, uid) = peer.process.ok_or("who asks is not known")?;
    if !peer.is_trusted
        && let Some(what) = join.asks_for_much()
    {
        return Err(format!("only root and the daemon's own user may ask for {what}"));
    }
    // Its numbers would mean other processes here.
    if !is_of_this_namespace(root, asker) {
        return Err("who asks is in another PID namespace".to_owned());
    }
    let gone = |error: gleaner_observe::TargetError| error.to_string();
    let runner = Runner { pid: asker, uid, process: Target::process(root, asker).map_err(gone)? };
    let target = match (join.pid, &join.cgroup) {
        (None, None) => return Ok((runner, None)),
        (Some(pid), None) => Target::process(root, pid).map_err(gone)?,
        (None, Some(folder)) => Target::cgroup(root, folder).map_err(gone)?,
        (Some(_), Some(_)) => return Err("a process or a cgroup".to_owned()),
    };
    if let (Some(pid), false) = (join.pid, peer.is_trusted)
        && (!belongs_to(root, pid, uid) || target.roots(root).is_empty())
    {
        return Err(format!("process {pid} is not yours"));
    }
    Ok((runner, Some(target)))
}

/// Whether so many groups of this user, and of all, leave room for another one.
pub(crate) fn has_room(all: usize, of_user: usize, groups_max: usize, is_trusted: bool) -> Result<(), String> {
    if is_trusted || (of_user < MOST_OF_A_USER && all < groups_max / 2) {
        return Ok(());
    }
    Err(format!("{of_user} programs of yours and {all} of all users are managed, and there is no room for more"))
}

fn status(root: &ProcRoot, pid: i32) -> Vec<u8> {
    fs::read(root.proc.join(format!("{pid}/status"))).unwrap_or_default()
}

/// Real, effective, saved and file-system user: with another one it would be a program of somebody else's.
fn belongs_to(root: &ProcRoot, pid: i32, uid: u32) -> bool {
    let status = status(root, pid);
    let Some(users) = status_field(&status, b"Uid") else { return false };
    let mut users = users.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).peekable();
    users.peek().is_some() && users.all(|user| user == uid.to_string().as_bytes())
}

/// Whether a process has one number alone, the one that it has here.
fn is_of_this_namespace(root: &ProcRoot, pid: i32) -> bool {
    let status = status(root, pid);
    let numbers = status_field(&status, b"NSpid").unwrap_or_default();
    numbers.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count() == 1
}

fn children_of(root: &ProcRoot, pid: i32) -> impl Iterator<Item = i32> {
    let tasks = root.proc.join(format!("{pid}/task"));
    let of = move |tid: i32| fs::read(tasks.join(format!("{tid}/children"))).unwrap_or_default();
    numbered(&root.proc.join(format!("{pid}/task"))).flat_map(move |tid| children(&of(tid)).collect::<Vec<i32>>())
}

#[cfg(test)]
mod tests;
