//! Every key of the configuration: what it is, what it may be, and what it is without the file. The reference is made
//! of this.

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The table that it is in; `group.NAME` for those of a group.
    pub table: &'static str,
    /// Its name.
    pub key: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// What it may be.
    pub allowed: &'static str,
    /// What it is where nobody says.
    pub default: &'static str,
    /// A value, as TOML.
    pub example: &'static str,
}

/// All of them, in the order of the reference.
pub const KEYS: &[Key] = &[
    Key {
        table: "daemon",
        key: "retain",
        meaning: "What keeps idle vCPUs awake, for all groups.",
        allowed: "auto, idle-poll, haltpoll, pm-qos, yielding, none",
        default: "auto: the first that the machine has",
        example: "\"auto\"",
    },
    Key {
        table: "daemon",
        key: "observer",
        meaning: "What sees the groups. auto: BPF where something is retained and not by polling in the idle task, or \
                  where there are more threads than `procfs_threads_max`, and /proc where that is refused. bpf: the daemon does not start without.",
        allowed: "auto, bpf, procfs",
        default: "auto",
        example: "\"auto\"",
    },
    Key {
        table: "daemon",
        key: "overhead",
        meaning: "CPU time that observing all groups may take, as a part of one CPU. Windows get longer where it is \
                  dear.",
        allowed: "0.1% to 20%",
        default: "0.5%",
        example: "\"0.5%\"",
    },
    Key {
        table: "daemon",
        key: "groups_max",
        meaning: "Groups managed at once. Those beyond are left alone, and said to be.",
        allowed: "1 to 1000",
        default: "100",
        example: "100",
    },
    Key {
        table: "control",
        key: "group",
        meaning: "Who may ask the daemon how things stand, besides root: a group of users, by name or number. Only \
                  root and the daemon's own user may reload.",
        allowed: "a group of /etc/group",
        default: "nobody",
        example: "\"0\"",
    },
    Key {
        table: "metrics",
        key: "listen",
        meaning: "Where OpenMetrics are served: a unix socket with the control socket's permissions, or a loopback \
                  address. With public: before it any address, for everybody who reaches it; under systemd the unit \
                  has to allow it (IPAddressAllow=).",
        allowed: "unix:/PATH, 127.0.0.1:PORT, [::1]:PORT, public:ADDRESS:PORT",
        default: "nowhere",
        example: "\"127.0.0.1:9469\"",
    },
    Key {
        table: "capture",
        key: "size",
        meaning: "How much the flight recorder keeps: the newest windows, decisions and events, for `gleaner capture`. \
                  The oldest make way.",
        allowed: "1M to 16G",
        default: "nothing is recorded; 64M where there is a folder",
        example: "\"64M\"",
    },
    Key {
        table: "capture",
        key: "folder",
        meaning: "Where it keeps them. What is in a folder that is named here stays when the daemon ends; under systemd \
                  the unit has to allow it (ReadWritePaths=).",
        allowed: "a path",
        default: "below /run/gleaner, until the daemon ends",
        example: "\"/var/lib/gleaner/capture\"",
    },
    Key {
        table: "host",
        key: "slice",
        meaning: "On a hypervisor: the time slice of its VMs' vCPUs, one for all, or adaptive: the agent finds one for each \
                  set of VMs that share CPUs. The agent runs where there is a table [host]: see `gleaner host run`.",
        allowed: "adaptive, 100us to 100ms",
        default: "adaptive",
        example: "\"adaptive\"",
    },
    Key {
        table: "host",
        key: "vm",
        meaning: "Only these VMs, by name or process id.",
        allowed: "a list of names",
        default: "all VMs, as they come and go",
        example: "[\"web\", \"db\"]",
    },
    Key {
        table: "host",
        key: "interval",
        meaning: "Length of the agent's windows.",
        allowed: "100ms to 60s",
        default: "1s",
        example: "\"1s\"",
    },
    Key {
        table: "host",
        key: "enforce",
        meaning: "Whether slices are ended in time where the kernel's tick alone would not. Under systemd the unit has to \
                  allow it (RestrictRealtime=no).",
        allowed: "true, false",
        default: "true",
        example: "true",
    },
    Key {
        table: "host",
        key: "pause_exits",
        meaning: "Whether exits by PAUSE are counted, which show that a VM spins; this takes some time at every exit.",
        allowed: "true, false",
        default: "false",
        example: "false",
    },
    Key {
        table: "host",
        key: "params_file",
        meaning: "Parameters of adaptive: a TOML file with any of the keys that `gleaner params host` prints.",
        allowed: "a path",
        default: "",
        example: "\"/etc/gleaner/host-policy.toml\"",
    },
    Key {
        table: "defaults",
        key: "profile",
        meaning: "How groups are managed that do not say. conservative polls for 5 % of one CPU at most, throughput \
                  for one CPU, latency without a limit; observe-only watches.",
        allowed: "conservative, latency, throughput, observe-only",
        default: "conservative",
        example: "\"conservative\"",
    },
    Key {
        table: "group.NAME",
        key: "unit",
        meaning: "Which: a systemd service or slice by name; `*`, `?` and `[a-z]` may mean several, each a group of \
                  its own.",
        allowed: "a unit's name, `.service` may be left out",
        default: "one of unit, cgroup, program and pid has to be there",
        example: "\"redis-server\"",
    },
    Key {
        table: "group.NAME",
        key: "cgroup",
        meaning: "Which: a cgroup with all below it, by its path; `*` is one folder, `**` any number, and each match \
                  is a group of its own.",
        allowed: "a path, as /proc/PID/cgroup has it",
        default: "",
        example: "\"/kubepods.slice/*/*\"",
    },
    Key {
        table: "group.NAME",
        key: "program",
        meaning: "Which: all processes of a program, with all that they start, by the name that `ps` shows. Anybody can \
                  give a process that name.",
        allowed: "a name of up to 15 bytes",
        default: "",
        example: "\"redis-server\"",
    },
    Key {
        table: "group.NAME",
        key: "pid",
        meaning: "Which: a process, with all that it starts.",
        allowed: "a process id",
        default: "",
        example: "4711",
    },
    Key {
        table: "group.NAME",
        key: "profile",
        meaning: "How it is managed.",
        allowed: "conservative, latency, throughput, observe-only",
        default: "that of [defaults]",
        example: "\"latency\"",
    },
    Key {
        table: "group.NAME",
        key: "policy",
        meaning: "What may be done, instead of what the profile says: nothing at all, watching, or keeping idle vCPUs \
                  awake where it pays.",
        allowed: "off, observe, retain",
        default: "the profile's",
        example: "\"retain\"",
    },
    Key {
        table: "group.NAME",
        key: "budget",
        meaning: "What idle vCPUs may poll for it, all together, as a part of one CPU, instead of what the profile \
                  says.",
        allowed: "0% to 100000%",
        default: "the profile's",
        example: "\"20%\"",
    },
    Key {
        table: "group.NAME",
        key: "retain_for",
        meaning: "How long an idle vCPU is kept awake, instead of a time-out that follows the lengths of its idle \
                  periods.",
        allowed: "1us to 1s",
        default: "follows the lengths of idle periods",
        example: "\"200us\"",
    },
    Key {
        table: "group.NAME",
        key: "trial",
        meaning: "Whether it is tried first whether keeping vCPUs awake pays.",
        allowed: "true, false",
        default: "true",
        example: "true",
    },
    Key {
        table: "group.NAME",
        key: "progress",
        meaning: "A file with a counter of what it gets done, by which retention is judged instead of by hand-overs.",
        allowed: "a path, or PATH|REGEX: the number where that matches",
        default: "",
        example: "\"/run/redis/progress\"",
    },
    Key {
        table: "group.NAME",
        key: "params",
        meaning: "The policy's numbers: any of the keys that `gleaner params` prints.",
        allowed: "a table",
        default: "",
        example: "{ poll_trial_quiet_windows = 4 }",
    },
];

/// Names that are less alike are no typing errors of each other (Jaro-Winkler: 0 nothing, 1 all).
const ALIKE: f64 = 0.8;

/// The one of `known` that was meant by `written`, where one is near enough.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |name: &&str| strsim::jaro_winkler(name, written);
    known.into_iter().max_by(|a, b| alike(a).total_cmp(&alike(b))).filter(|name| alike(name) > ALIKE)
}

/// The keys of a table; of `defaults` as well.
pub(super) fn keys_of(table: &str) -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter(move |key| key.table == table).map(|key| key.key)
}

/// The tables that there may be.
pub(super) const TABLES: [&str; 7] = ["daemon", "control", "metrics", "capture", "host", "defaults", "group"];
