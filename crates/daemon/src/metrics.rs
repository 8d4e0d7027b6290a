//! OpenMetrics: each figure described where it is read; the page that is served and the reference are made of the same
//! table.

use crate::control::SocketName;
use crate::metrics_address::MetricsAddress;
use crate::protocol::{Answer, Request};
use crate::server::{Listener, Peer, Serving};
use gleaner_report::{StatusGroup, StatusReport, StatusVcpuTimes};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::AtomicU64;

/// Bytes of a request's head, at most.
const HEAD_BYTES_MAX: usize = 8192;

/// Whether a figure only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows while the daemon runs; its samples end in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

type Labels = Vec<(&'static str, String)>;

/// A figure.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Without `gleaner_`, its unit and `_total`.
    name: &'static str,
    /// `seconds`, `ratio` or nothing.
    unit: &'static str,
    /// Whether it only grows.
    pub kind: MetricKind,
    pub meaning: &'static str,
    read: Read,
}

#[derive(Clone, Copy)]
enum Read {
    Daemon(fn(&StatusReport) -> f64),
    /// `None` where it is not known.
    Machine(fn(&StatusReport) -> Option<f64>),
    /// As above, of each group.
    Group(fn(&StatusGroup) -> Option<f64>),
    /// As above, of each vCPU: its time in each state.
    Vcpu,
    /// What it is, as a label.
    Build,
}

const fn of_daemon(
    name: &'static str,
    unit: &'static str,
    kind: MetricKind,
    meaning: &'static str,
    read: fn(&StatusReport) -> f64,
) -> Metric {
    Metric { name, unit, kind, meaning, read: Read::Daemon(read) }
}

const fn of_machine(
    name: &'static str,
    unit: &'static str,
    kind: MetricKind,
    meaning: &'static str,
    read: fn(&StatusReport) -> Option<f64>,
) -> Metric {
    Metric { name, unit, kind, meaning, read: Read::Machine(read) }
}

const fn of_group(
    name: &'static str,
    unit: &'static str,
    kind: MetricKind,
    meaning: &'static str,
    read: fn(&StatusGroup) -> Option<f64>,
) -> Metric {
    Metric { name, unit, kind, meaning, read: Read::Group(read) }
}

use MetricKind::{Counter as Grows, Gauge as Moves};

/// Of each vCPU: for those who ask for `/metrics?vcpus=1`, because a large machine has many.
pub const OF_VCPUS: Metric = Metric {
    name: "vcpu",
    unit: "seconds",
    kind: Grows,
    meaning: "Time of each vCPU by state: busy, retained, halted, stolen; only with ?vcpus=1",
    read: Read::Vcpu,
};

/// All but [`OF_VCPUS`].
pub const METRICS: &[Metric] = &[
    Metric { name: "build_info", unit: "", kind: Moves, meaning: "1; its version is a label", read: Read::Build },
    of_daemon("process_start_time", "seconds", Moves, "When the daemon began, since 1970", |all| s(all.began_unix_ns)),
    of_daemon(
        "settings_differ",
        "",
        Moves,
        "Files that the daemon has set, and somebody else has changed since",
        |all| n(all.settings_differ.len() as u64),
    ),
    of_daemon("uptime", "seconds", Moves, "How long the daemon has run", |all| s(all.up_ns)),
    of_daemon("window", "seconds", Moves, "How long windows are now", |all| s(all.window_ns)),
    of_daemon("overhead_cpu", "seconds", Grows, "CPU time of observing and deciding", |all| s(all.overhead_cpu_ns)),
    of_daemon("retained", "seconds", Grows, "Idle time bridged, summed over vCPUs", |all| s(all.retained_ns)),
    of_daemon("guard_trips", "", Grows, "How often the contention guard stopped retention", |all| n(all.guard_trips)),
    of_daemon("retained_vcpus", "", Moves, "vCPUs that are kept awake now", |all| n(all.retaining.len() as u64)),
    of_daemon("groups", "", Moves, "Groups that are managed now", |all| n(all.groups.len() as u64)),
    of_daemon("acting", "", Moves, "0 in a dry run, and where no means keeps vCPUs awake for a group; else 1", |all| {
        flag(all.acts())
    }),
    of_daemon("observer_bpf", "", Moves, "1 where BPF observes, 0 where /proc does", |all| flag(all.observer == "bpf")),
    of_daemon("warnings", "", Moves, "What is, or was, weaker than it might be, as `gleaner status` lists it", |all| {
        n(all.warnings.len() as u64)
    }),
    of_daemon("reload_failed", "", Moves, "1 where the configuration that was to be reloaded last is wrong", |all| {
        flag(all.reload_error.is_some())
    }),
    of_daemon("vcpus", "", Moves, "vCPUs that groups may use", |all| n(all.machine.vcpus)),
    of_machine("busy", "seconds", Grows, "Time that they worked, for whomever, while there was a group", |all| {
        of_vcpus(all, |vcpu| vcpu.busy_ns)
    }),
    of_machine("halted", "seconds", Grows, "Time that they were idle and halted, as long", |all| {
        of_vcpus(all, |vcpu| vcpu.halted_ns)
    }),
    of_machine("stolen", "seconds", Grows, "Time that the host took from them; absent where it reports none", |all| {
        of_vcpus(all, |vcpu| vcpu.steal_ns)
    }),
    of_machine("idle_entries", "", Grows, "Idle periods that began on them; absent where they cannot be seen", |all| {
        all.times.idle_entries.map(n)
    }),
    of_machine("halts", "", Grows, "Times one of them halted, and so had to be woken; absent where unseen", |all| {
        all.times.halts.map(n)
    }),
    of_group("group_cpu", "seconds", Grows, "CPU time of the group since it was adopted", |g| Some(s(g.cpu_time_ns))),
    of_group("group_voluntary_switches", "", Grows, "Its voluntary context switches since then", |g| {
        Some(n(g.voluntary_switches))
    }),
    of_group("group_decisions", "", Grows, "Decisions taken for it", |g| Some(n(g.decisions_count))),
    of_group("group_retained_vcpus", "", Moves, "vCPUs that are kept awake for it now", |g| {
        Some(n(g.retaining.len() as u64))
    }),
    of_group(
        "group_granularity",
        "seconds",
        Moves,
        "g_comp: its threads' mean computation between two waits, of late",
        |g| g.recent.g_comp_ns.map(|ns| ns / 1e9),
    ),
    of_group("group_idle_length", "seconds", Moves, "l_idle: mean idle period of its vCPUs, of late", |g| {
        g.recent.l_idle_ns.map(|ns| ns / 1e9)
    }),
    of_group(
        "group_trial_rate",
        "ratio",
        Moves,
        "Synchronizations per second with retention over those without, in the last trial; absent before the first",
        |g| g.trial.as_ref()?.rate_ratio,
    ),
];

fn s(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Over all vCPUs of which it is known; `None` where it is of none.
fn of_vcpus(all: &StatusReport, read: fn(&StatusVcpuTimes) -> Option<u64>) -> Option<f64> {
    let known: Vec<u64> = all.times.vcpus.iter().filter_map(read).collect();
    (!known.is_empty()).then(|| s(known.iter().sum()))
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn n(count: u64) -> f64 {
    count as f64
}

impl Metric {
    pub fn sample_name(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!("_{}", self.unit) };
        let total = if self.kind == MetricKind::Counter { "_total" } else { "" };
        let prefix = if self.is_common() { "" } else { "gleaner_" };
        format!("{prefix}{}{unit}{total}", self.name)
    }

    /// Whether every program's is called the same.
    fn is_common(&self) -> bool {
        self.name.starts_with("process_")
    }

    pub fn labels(&self) -> &'static [&'static str] {
        match self.read {
            Read::Daemon(_) | Read::Machine(_) => &[],
            Read::Group(_) => &["group"],
            Read::Vcpu => &["vcpu", "state"],
            Read::Build => &["version"],
        }
    }

    fn values(&self, all: &StatusReport) -> Vec<(Labels, f64)> {
        match self.read {
            Read::Daemon(read) => vec![(Vec::new(), read(all))],
            Read::Machine(read) => read(all).map(|value| (Vec::new(), value)).into_iter().collect(),
            Read::Group(read) => {
                let of = |group: &StatusGroup| Some((vec![("group", group.name.clone())], read(group)?));
                all.groups.iter().filter_map(of).collect()
            }
            Read::Vcpu => all.times.vcpus.iter().flat_map(times_of).collect(),
            Read::Build => vec![(vec![("version", all.version.clone())], 1.0)],
        }
    }

    fn register(&self, all: &StatusReport, registry: &mut Registry) {
        let unit = match self.unit {
            "" => None,
            "seconds" => Some(Unit::Seconds),
            other => Some(Unit::Other(other.to_owned())),
        };
        match self.kind {
            MetricKind::Counter => {
                let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
                for (labels, value) in self.values(all) {
                    family.get_or_create(&labels).inc_by(value);
                }
                register(registry, self, unit, family);
            }
            MetricKind::Gauge => {
                let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
                for (labels, value) in self.values(all) {
                    family.get_or_create(&labels).set(value);
                }
                register(registry, self, unit, family);
            }
        }
    }
}

fn register(
    registry: &mut Registry,
    metric: &Metric,
    unit: Option<Unit>,
    family: impl prometheus_client::registry::Metric,
) {
    match unit {
        Some(unit) => registry.register_with_unit(metric.name, metric.meaning, unit, family),
        None => registry.register(metric.name, metric.meaning, family),
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sample_name())
    }
}

/// A vCPU's time in each state that is known.
fn times_of(vcpu: &StatusVcpuTimes) -> Vec<(Labels, f64)> {
    let states =
        [("busy", vcpu.busy_ns), ("retained", vcpu.retained_ns), ("halted", vcpu.halted_ns), ("stolen", vcpu.steal_ns)];
    let labels = |state: &str| vec![("vcpu", vcpu.vcpu.to_string()), ("state", state.to_owned())];
    states.into_iter().filter_map(|(state, ns)| Some((labels(state), s(ns?)))).collect()
}

/// A status as OpenMetrics text. `vcpus`: with each vCPU's time.
fn text(all: &StatusReport, vcpus: bool) -> String {
    let mut registry = Registry::default();
    let own = registry.sub_registry_with_prefix("gleaner");
    for metric in METRICS.iter().chain(Some(&OF_VCPUS).filter(|_| vcpus)).filter(|metric| !metric.is_common()) {
        metric.register(all, own);
    }
    for metric in METRICS.iter().filter(|metric| metric.is_common()) {
        metric.register(all, &mut registry);
    }
    let mut text = String::new();
    // A String takes everything.
    let _ = encode(&mut text, &registry);
    text
}

/// The same for node_exporter's textfile collector, which reads Prometheus' older text: a counter's name has its
/// `_total` everywhere, and there are no units.
pub fn textfile(all: &StatusReport) -> String {
    let openmetrics = text(all, false);
    let counters: BTreeSet<&str> =
        openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let of_textfile = |line: &str| {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|word| Some((word, line.strip_prefix(word)?)));
        match described.and_then(|(word, rest)| Some((word, rest.split_once(' ')?))) {
            Some((word, (name, rest))) if counters.contains(name) => format!("{word}{name}_total {rest}\n"),
            _ => format!("{line}\n"),
        }
    };
    openmetrics.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")).map(of_textfile).collect()
}

/// Serves them until it is dropped.
#[derive(Debug)]
pub(crate) struct Metrics {
    // Ended in this order.
    _serving: Serving,
    _name: Option<SocketName>,
}

impl Metrics {
    /// `ask` knows how things stand.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub(crate) fn start(
        address: &MetricsAddress,
        group: Option<u32>,
        mut ask: impl FnMut(Request, Peer) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        let (listener, name) = match address {
            MetricsAddress::Unix(path) => {
                let (listener, name) = crate::control::bind(path, group)?;
                (Listener::Unix(listener), Some(name))
            }
            MetricsAddress::Loopback(address) | MetricsAddress::Public(address) => {
                (Listener::Tcp(TcpListener::bind(address)?), None)
            }
        };
        let answer = move |request: &[u8], peer| respond(request, &mut |asked| ask(asked, peer));
        let serving = Serving::start("gleaner-metrics", listener, answer)?;
        Ok(Self { _serving: serving, _name: name })
    }
}

/// HTTP, as far as a scraper needs it. `None` until the head is whole.
pub(crate) fn respond(request: &[u8], ask: &mut impl FnMut(Request) -> Answer) -> Option<Vec<u8>> {
    let is_whole = request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n");
    if !is_whole && request.len() <= HEAD_BYTES_MAX {
        return None;
    }
    let mut words = request.split(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, vcpus) = (path_of(target), asks_for_vcpus(target));
    let mut page = match (method, path) {
        _ if !is_whole => page("431 Request Header Fields Too Large", "too long\n"),
        (b"GET" | b"HEAD", b"/metrics" | b"/") => match ask(Request::Status) {
            Answer::Status(all) => page("200 OK", &text(&all, vcpus)),
            _ => page("503 Service Unavailable", "the daemon is busy\n"),
        },
        (b"GET" | b"HEAD", _) => page("404 Not Found", "there is /metrics\n"),
        _ => page("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD\n"),
    };
    if method == b"HEAD" {
        let head = page.windows(4).position(|end| end == b"\r\n\r\n");
        page.truncate(head.map_or(page.len(), |head| head + 4));
    }
    Some(page)
}

/// Of what is asked for: without a query, and without the host that a proxy may put before it.
fn path_of(target: &[u8]) -> &[u8] {
    let target = target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    let Some(rest) = target.strip_prefix(b"http://") else { return target };
    rest.iter().position(|byte| *byte == b'/').map_or(b"/", |slash| &rest[slash..])
}

/// Whether its query has `vcpus=1`.
fn asks_for_vcpus(target: &[u8]) -> bool {
    let query = target.split(|byte| *byte == b'#').next().unwrap_or_default().splitn(2, |byte| *byte == b'?').nth(1);
    query.is_some_and(|query| query.split(|byte| *byte == b'&').any(|pair| pair == b"vcpus=1"))
}

fn page(status: &str, body: &str) -> Vec<u8> {
    let kind = if status.starts_with("200") {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain; charset=utf-8"
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

#[cfg(test)]
mod tests;
