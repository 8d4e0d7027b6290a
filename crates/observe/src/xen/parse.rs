//! One row of each of xl's tables. Names may contain spaces, so columns are counted from the right.

use super::domain::{XenDomain, XenVcpu, XenVcpuState};
use gleaner_model::{XenPool, XenScheduler, XenSetting};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Why a Xen host could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XenReadError<Refusal> {
    /// `xl` failed.
    #[error("{0}")]
    Xl(Refusal),
    /// `xl` wrote something else than Xen 4.17's does.
    #[error("`{command}` wrote a line that Gleaner does not understand: {line:?}; it knows the output of Xen 4.17")]
    Line {
        /// Which `xl`.
        command: String,
        /// Its line.
        line: String,
    },
}

/// A line that is not understood.
#[derive(Debug)]
pub(super) struct Line(pub String);

impl Line {
    pub(super) fn of<Refusal>(self, command: &str) -> XenReadError<Refusal> {
        XenReadError::Line { command: command.to_owned(), line: self.0 }
    }
}

/// The last `N` columns of a row and what precedes them.
fn columns<const N: usize>(row: &str) -> Option<(&str, [&str; N])> {
    let mut rest = row.trim();
    let mut found = [""; N];
    for column in found.iter_mut().rev() {
        let start = rest.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        *column = &rest[start..];
        rest = rest[..start].trim_end();
    }
    (!found.contains(&"")).then_some((rest, found))
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// `Pool-0               2    credit       y          1`.
pub(super) fn cpupool_list(row: &str) -> Option<XenPool> {
    let (name, [pcpus, scheduler, _active, _domains]) = columns(row)?;
    let scheduler = XenScheduler::from(scheduler);
    (!name.is_empty()).then_some(())?;
    Some(XenPool { name: name.to_owned(), scheduler, pcpus: number(pcpus)?, settings: Vec::new() })
}

/// `Domain-0                                     0   512     2     r-----      20.0`.
pub(super) fn domain_list(row: &str) -> Option<XenDomain> {
    let (name, [id, memory, _vcpus, _state, _seconds]) = columns(row)?;
    Some(XenDomain {
        id: number(id)?,
        name: name.to_owned(),
        pool: None,
        memory_mib: number(memory)?,
        weight: None,
        cap_percent: None,
        vcpus: Vec::new(),
    })
}

/// `Domain-0                             0     1    1   -b-      25.4  all / all`, with the domain's number.
pub(super) fn vcpu_list(row: &str) -> Option<(u32, XenVcpu)> {
    let (_name, [domain, index, pcpu, state, seconds, hard, _slash, soft]) = columns(row)?;
    let state = match state {
        "--p" | "-bp" | "r-p" | "rbp" => XenVcpuState::Paused,
        "r--" | "rb-" => XenVcpuState::Running,
        "-b-" => XenVcpuState::Blocked,
        "---" => XenVcpuState::Runnable,
        _ => return None,
    };
    let vcpu = XenVcpu {
        index: number(index)?,
        pcpu: if pcpu == "-" { None } else { Some(number(pcpu)?) },
        state,
        cpu_time_s: number(seconds)?,
        hard_affinity: hard.to_owned(),
        soft_affinity: soft.to_owned(),
    };
    Some((number(domain)?, vcpu))
}

/// What the schedulers' tables say, of all cpupools.
#[derive(Debug, Default)]
pub(super) struct SchedTables {
    /// By cpupool.
    pub settings: BTreeMap<String, Vec<XenSetting>>,
    /// By domain.
    pub domains: BTreeMap<u32, DomainEntry>,
}

/// A domain's row.
#[derive(Debug)]
pub(super) struct DomainEntry {
    pub pool: String,
    pub weight: Option<u32>,
    pub cap_percent: Option<u32>,
}

/// For each cpupool a line `Cpupool NAME: ...`, a head and a row for each domain (RTDS: for each vCPU).
pub(super) fn sched_tables(text: &str, scheduler: &XenScheduler, into: &mut SchedTables) -> Result<(), Line> {
    let mut pool = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let not_understood = || Line(line.to_owned());
        if let Some(head) = line.strip_prefix("Cpupool ") {
            let (name, words) = head.rsplit_once(": ").ok_or_else(not_understood)?;
            into.settings.insert(name.to_owned(), pool_setting(name, words, scheduler).into_iter().collect());
            pool = Some(name.to_owned());
            continue;
        }
        let Some(name) = &pool else { return Err(not_understood()) };
        if line.starts_with("Name ") && line.contains(" ID ") {
            continue;
        }
        row(line, name, scheduler, into).ok_or_else(not_understood)?;
    }
    Ok(())
}

/// `tslice=30ms ratelimit=1000us migration-delay=0us`, `ratelimit=1000us`; nothing of `[sched params unavailable]`,
/// `sched=RTDS`.
fn pool_setting(name: &str, words: &str, scheduler: &XenScheduler) -> Option<XenSetting> {
    let value = |key: &str, unit: &str| {
        let found = words.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        number(found?.strip_suffix(unit)?)
    };
    let (pool, ratelimit_us) = (name.to_owned(), value("ratelimit", "us")?);
    match scheduler {
        XenScheduler::Credit => Some(XenSetting::Credit { pool, slice_ms: value("tslice", "ms")?, ratelimit_us }),
        XenScheduler::Credit2 => Some(XenSetting::Credit2 { pool, ratelimit_us }),
        _ => None,
    }
}

fn row(line: &str, pool: &str, scheduler: &XenScheduler, into: &mut SchedTables) -> Option<()> {
    let (id, weight, cap_percent) = if *scheduler == XenScheduler::Rtds {
        let (_name, [id, vcpu, period, budget, extratime]) = columns(line)?;
        let setting = XenSetting::Rtds {
            domain: number(id)?,
            vcpu: number(vcpu)?,
            period_us: number(period)?,
            budget_us: number(budget)?,
            extratime: match extratime {
                "yes" => true,
                "no" => false,
                _ => return None,
            },
        };
        into.settings.entry(pool.to_owned()).or_default().push(setting);
        (number(id)?, None, None)
    } else {
        let (_name, [id, weight, cap]) = columns(line)?;
        (number(id)?, Some(number(weight)?), Some(number(cap)?))
    };
    into.domains.insert(id, DomainEntry { pool: pool.to_owned(), weight, cap_percent });
    Some(())
}
