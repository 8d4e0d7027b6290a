//! The tables of the configuration that are the daemon's alone. Those of a machine, a group and the host agent are
//! `gleaner_settings`'.

use crate::metrics_address::MetricsAddress;
use gleaner_model::printable;
use gleaner_observe::Selector;
use gleaner_settings::{
    AbsolutePath, CaptureSize, GroupSettings, HostSettings, Key, MachineSettings, Profile, Value, read_text, settings,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

settings! {
    /// Who may ask.
    pub(super) struct Control in "control" {
        /// Who may ask the daemon how things stand, besides root: a group of users, by name or number. Only root and
        /// the daemon's own user may reload.
        group: UserGroup, "nobody";
    }
}

settings! {
    /// Where figures are served.
    pub(super) struct MetricsTable in "metrics" {
        /// Where OpenMetrics are served: a unix socket with the control socket's permissions, or a loopback address.
        /// With public: before it any address, for everybody who reaches it; under systemd the unit has to allow it
        /// (IPAddressAllow=).
        listen: MetricsAddress, "nowhere";
    }
}

settings! {
    /// What is recorded.
    pub(super) struct CaptureTable in "capture" {
        /// How much the flight recorder keeps: the newest windows, decisions and events, for `gleaner capture`. The
        /// oldest make way.
        size: CaptureSize, "nothing is recorded; 64M where there is a folder";
        /// Where it keeps them. What is in a folder that is named here stays when the daemon ends; under systemd the
        /// unit has to allow it (ReadWritePaths=).
        folder: AbsolutePath, "below /run/gleaner, until the daemon ends";
    }
}

settings! {
    /// What counts for groups that do not say.
    pub(super) struct Defaults in "defaults" {
        /// How groups are managed that do not say. frugal polls for 5 % of one CPU at most, balanced for one CPU,
        /// latency without a limit; observe-only watches.
        profile: Profile, "frugal";
    }
}

settings! {
    /// Which group: one of them.
    pub(super) struct Which in "group.NAME" {
        /// Which: a systemd service or slice by name; `*`, `?` and `[a-z]` may mean several, each a group of its own.
        unit: Unit, "one of unit, cgroup, program and pid has to be there";
        /// Which: a cgroup with all below it, by its path; `*` is one folder, `**` any number, and each match is a
        /// group of its own.
        cgroup: Cgroup, "";
        /// Which: all processes of a program, with all that they start, by the name that `ps` shows. Anybody can give a
        /// process that name.
        program: Program, "";
        /// Which: a process, with all that it starts.
        pid: ProcessId, "";
    }
}

/// One file, or all over each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tables {
    pub daemon: MachineSettings,
    pub control: Control,
    pub metrics: MetricsTable,
    pub capture: CaptureTable,
    pub host: Option<HostSettings>,
    pub defaults: Defaults,
    pub groups: BTreeMap<String, (Which, GroupSettings)>,
}

/// The tables that there may be, and their keys.
pub(super) fn names_in(table: &str) -> Option<Vec<&'static str>> {
    let names = match table {
        "daemon" => MachineSettings::NAMES,
        "control" => Control::NAMES,
        "metrics" => MetricsTable::NAMES,
        "capture" => CaptureTable::NAMES,
        "host" => HostSettings::NAMES,
        "defaults" => Defaults::NAMES,
        "group" => return Some([Which::NAMES, GroupSettings::NAMES].concat()),
        _ => return None,
    };
    Some(names.to_vec())
}

pub(super) const TABLES: [&str; 7] = ["daemon", "control", "metrics", "capture", "host", "defaults", "group"];

/// Every key of the configuration, in the order of the reference.
pub fn keys() -> Vec<Key> {
    let tables = [
        MachineSettings::keys(),
        Control::keys(),
        MetricsTable::keys(),
        CaptureTable::keys(),
        HostSettings::keys(),
        Defaults::keys(),
        Which::keys(),
        GroupSettings::keys(),
    ];
    tables.concat()
}

impl Which {
    /// The group's processes; `None`: nothing is named.
    pub(super) fn selector(&self) -> Result<Option<Selector>, String> {
        let mut named = [
            self.unit.clone().map(|unit| unit.0),
            self.cgroup.clone().map(|cgroup| cgroup.0),
            self.program.clone().map(|program| Selector::Program(program.0)),
            self.pid.map(|pid| Selector::Pid(pid.0)),
        ]
        .into_iter()
        .flatten();
        match (named.next(), named.next()) {
            (_, Some(_)) => Err("one group has one of unit, cgroup, program and pid; write a second group".to_owned()),
            (first, None) => Ok(first),
        }
    }
}

impl From<&Selector> for Which {
    fn from(selector: &Selector) -> Self {
        let none = Self::default();
        match selector {
            Selector::Unit(_) => Self { unit: Some(Unit(selector.clone())), ..none },
            Selector::Cgroup(_) => Self { cgroup: Some(Cgroup(selector.clone())), ..none },
            Selector::Program(name) => Self { program: Some(Program(name.clone())), ..none },
            Selector::Pid(pid) => Self { pid: Some(ProcessId(*pid)), ..none },
        }
    }
}

/// What may have wildcards.
macro_rules! patterns {
    ($($name:ident, $make:path, $allowed:literal, $example:literal;)+) => {$(
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(super) struct $name(Selector);

        impl Value for $name {
            const EXAMPLE: &'static str = $example;

            fn allowed() -> String {
                $allowed.to_owned()
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let made = |text: &str| $make(text).map(Self).map_err(|error| format!("no such wildcards: {error}"));
                read_text(from, made)
            }

            fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
                match &self.0 {
                    Selector::Unit(pattern) | Selector::Cgroup(pattern) => into.serialize_str(pattern.as_str()),
                    other => into.collect_str(other),
                }
            }
        }
    )+};
}

patterns! {
    Unit, Selector::unit, "a unit's name, `.service` may be left out", "\"redis-server\"";
    Cgroup, Selector::cgroup, "a path, as /proc/PID/cgroup has it", "\"/kubepods.slice/*/*\"";
}

/// A program's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program(String);

impl Value for Program {
    const EXAMPLE: &'static str = "\"redis-server\"";

    fn allowed() -> String {
        "a name of up to 15 bytes".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_text(from, |name| match name.len() {
            1..=15 if !name.contains('/') => Ok(Self(name.to_owned())),
            _ => Err("program: write the name that `ps -o comm` shows, of up to 15 bytes".to_owned()),
        })
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(&self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessId(i32);

impl Value for ProcessId {
    const EXAMPLE: &'static str = "4711";

    fn allowed() -> String {
        "a process id".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        let pid = i32::try_from(number).ok().filter(|pid| *pid > 0);
        pid.map(Self).ok_or_else(|| D::Error::custom(format!("pid = {number}: write a process id")))
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(into)
    }
}

/// A group of users, by number or as /etc/group has it: a static binary cannot ask the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserGroup(pub u32);

impl Value for UserGroup {
    const EXAMPLE: &'static str = "\"0\"";

    fn allowed() -> String {
        "a group of /etc/group".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_text(from, |name| {
            let known = std::fs::read_to_string("/etc/group").unwrap_or_default();
            let gid = |line: &str| line.split(':').nth(2)?.parse().ok();
            let found = known.lines().find(|line| line.split(':').next() == Some(name)).and_then(gid);
            let found = name.parse().ok().or(found);
            found.map(Self).ok_or_else(|| format!("{}: no such group of users", printable(name.as_bytes())))
        })
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_str(&self.0)
    }
}

impl Value for MetricsAddress {
    const EXAMPLE: &'static str = "\"127.0.0.1:9469\"";

    fn allowed() -> String {
        "unix:/PATH, 127.0.0.1:PORT, [::1]:PORT, public:ADDRESS:PORT".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_text(from, Self::parse)
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_str(self)
    }
}
