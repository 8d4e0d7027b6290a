//! The slice of a Xen host's cpupool: what can be asked for, set by `xl`, read back, and undone.
//!
//! ```text
//!   XenRequest ── plan_xen ──▶ XenChange ── change_xen ──▶ journal ──▶ xl sched-credit -s -p Pool-0 -t 1 -r 1000
//!                                                                     read back: is it so?
//! ```
//!
//! What is put back is what was there, and only where what we set is still there: somebody else's later word counts.
//! Limits are those of Xen 4.17 (`xen/include/public/sysctl.h`), which newer ones have too.

mod host;

pub use host::{XenPool, Xl, is_xen_dom0, xen_pools};

use crate::ActError;
use crate::journal::{Change, Journal, Run, never_written, path_bytes};
use gleaner_model::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `XEN_SYSCTL_CSCHED_TSLICE_MIN` to `_MAX`.
const SLICE_MS: std::ops::RangeInclusive<u64> = 1..=1000;
/// `XEN_SYSCTL_SCHED_RATELIMIT_MIN` to `_MAX`; 0 is no limit.
const RATELIMIT_US: std::ops::RangeInclusive<u64> = 100..=500_000;

/// What a cpupool is set to, in the units that Xen takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XenTimes {
    /// How long a vCPU may run while others wait; `None` under credit2, which has no slice.
    pub slice_ms: Option<u32>,
    /// How long it runs at least before a waking one may take its place; 0: no limit.
    pub ratelimit_us: u32,
}

impl XenTimes {
    /// Of `Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us`; libxl's warnings may precede it.
    fn shown(text: &str) -> Option<Self> {
        let last = text.lines().rfind(|line| !line.trim().is_empty())?;
        let value = |key: &str, unit: &str| {
            let mut words = last.split_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.strip_suffix(unit)?.parse().ok())
        };
        Some(Self { slice_ms: value("tslice=", "ms"), ratelimit_us: value("ratelimit=", "us")? })
    }

    fn command(&self) -> &'static str {
        if self.slice_ms.is_some() { "sched-credit" } else { "sched-credit2" }
    }

    fn read(&self, xl: &Xl, pool: &str) -> Result<String, ActError> {
        xl.run(&[self.command(), "-s", "-p", pool])
    }

    /// Both at once: one after the other, a ratelimit above the new slice would be refused.
    fn write(&self, xl: &Xl, pool: &str) -> Result<(), ActError> {
        let (slice, limit) = (self.slice_ms.map(|ms| ms.to_string()), self.ratelimit_us.to_string());
        let mut words = vec![self.command(), "-s", "-p", pool];
        words.extend(slice.iter().flat_map(|slice| ["-t", slice]));
        words.extend(["-r", &limit]);
        xl.run(&words).map(drop)
    }
}

/// `slice 1 ms, ratelimit 500 us`.
impl fmt::Display for XenTimes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.slice_ms.map_or(Ok(()), |ms| write!(f, "slice {ms} ms, "))?;
        write!(f, "ratelimit {} us", self.ratelimit_us)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XenRequest {
    pub slice: Option<Nanos>,
    pub ratelimit: Option<Nanos>,
    /// `None`: the only one.
    pub pool: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenChange {
    pub pool: XenPool,
    pub was: XenTimes,
    pub set: XenTimes,
}

/// Why a request cannot be met, and what can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct XenRefusal(String);

/// What to change so that the request is met; nothing is to be changed where it is refused.
pub fn plan_xen(request: &XenRequest, pools: &[XenPool], xl: &Xl) -> Result<Result<XenChange, XenRefusal>, ActError> {
    let pool = match choose(request.pool.as_deref(), pools) {
        Ok(pool) => pool,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let XenPool { name, scheduler } = pool;
    if !["credit", "credit2"].contains(&scheduler.as_str()) {
        return Ok(Err(XenRefusal(format!(
            "cpupool {name} is scheduled by `{scheduler}`, of which Gleaner sets nothing: boot Xen with sched=credit, or \
             make a cpupool with sched=\"credit\""
        ))));
    }
    let Some(was) = XenTimes::shown(&xl.run(&[&format!("sched-{scheduler}"), "-s", "-p", name])?) else {
        return Ok(Err(XenRefusal(format!(
            "xl does not say what cpupool {name} is set to, so it could not be put back and was not touched"
        ))));
    };
    Ok(wanted(request, name, was).map(|set| XenChange { pool: pool.clone(), was, set }))
}

fn choose<'a>(wanted: Option<&str>, pools: &'a [XenPool]) -> Result<&'a XenPool, XenRefusal> {
    let names = || pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(", ");
    match (wanted, pools) {
        (Some(name), _) => pools
            .iter()
            .find(|pool| pool.name == *name)
            .ok_or_else(|| XenRefusal(format!("there is no cpupool {name}; there is: {}", names()))),
        (None, [only]) => Ok(only),
        (None, _) => {
            Err(XenRefusal(format!("this Xen has {} cpupools ({}): name one with --pool", pools.len(), names())))
        }
    }
}

fn wanted(request: &XenRequest, pool: &str, was: XenTimes) -> Result<XenTimes, XenRefusal> {
    if request.slice.is_none() && request.ratelimit.is_none() {
        return Err(XenRefusal("nothing to set: give --slice, or --ratelimit, or both".to_owned()));
    }
    let asked = request.ratelimit.map(ratelimit_us).transpose()?;
    let Some(had_ms) = was.slice_ms else {
        return match request.slice {
            None => Ok(XenTimes { slice_ms: None, ratelimit_us: asked.unwrap_or(was.ratelimit_us) }),
            Some(_) => Err(XenRefusal(format!(
                "cpupool {pool} is scheduled by credit2, which has no slice to set: a vCPU runs for 0.5 to 10 ms at a \
                 time, as its credit says. What can be set is --ratelimit (100us to 500ms), before which no waking vCPU \
                 takes its place. For slices, boot Xen with sched=credit, or make a cpupool with sched=\"credit\""
            ))),
        };
    };
    let slice_ms = request.slice.map_or(Ok(had_ms), slice_ms)?;
    let most_us = slice_ms.saturating_mul(1000);
    // A ratelimit that nobody asked to keep gives way: Xen would refuse the slice.
    let ratelimit_us = asked.unwrap_or_else(|| was.ratelimit_us.min(most_us));
    if ratelimit_us > most_us {
        return Err(XenRefusal(format!(
            "the ratelimit cannot be above the slice: {ratelimit_us} us, and the slice would be {slice_ms} ms"
        )));
    }
    Ok(XenTimes { slice_ms: Some(slice_ms), ratelimit_us })
}

fn slice_ms(Nanos(ns): Nanos) -> Result<u32, XenRefusal> {
    if ns < 1_000_000 {
        return Err(XenRefusal(format!(
            "credit's least slice is 1 ms, and {} us was asked for. `--slice 1ms --ratelimit 100us` is the nearest: a \
             waking vCPU with credit left then waits for 0.1 ms at most",
            ns / 1000
        )));
    }
    let ms = ns / 1_000_000;
    let whole = (ns % 1_000_000 == 0 && SLICE_MS.contains(&ms)).then(|| u32::try_from(ms).ok()).flatten();
    whole.ok_or_else(|| {
        let nearest = ((ns + 500_000) / 1_000_000).clamp(*SLICE_MS.start(), *SLICE_MS.end());
        XenRefusal(format!(
            "credit's slice is in whole milliseconds, 1 to 1000, and {} us was asked for: give for instance --slice \
             {nearest}ms",
            ns / 1000
        ))
    })
}

fn ratelimit_us(Nanos(ns): Nanos) -> Result<u32, XenRefusal> {
    let us = ns / 1000;
    let whole = ns == 0 || (ns % 1000 == 0 && RATELIMIT_US.contains(&us));
    whole
        .then(|| u32::try_from(us).ok())
        .flatten()
        .ok_or_else(|| XenRefusal(format!("a ratelimit is within 100us and 500ms, or 0, and {us} us was asked for")))
}

/// Makes one change, journalled first, and reads it back.
pub fn change_xen(xl: &Xl, change: &XenChange, journal: &mut Journal) -> Result<(), ActError> {
    let XenChange { pool: XenPool { name, .. }, was, set } = change;
    // Two that overlap would put back each other's values.
    if let Some(pid) = journal.made_by_another(|other: &XenSet| other.pool == *name) {
        let why = format!("process {pid}, another run of Gleaner, has set it; end that one first");
        return Err(ActError::Unavailable { what: format!("cpupool {name}"), why });
    }
    journal.before(&XenSet { xl: xl.program().to_owned(), pool: name.clone(), was: *was, set: *set })?;
    set.write(xl, name)?;
    let shown = set.read(xl, name)?;
    if XenTimes::shown(&shown) == Some(*set) {
        return Ok(());
    }
    let why = format!("xl says otherwise after it was set: {}", shown.trim());
    Err(ActError::Unavailable { what: format!("{set} for cpupool {name}"), why })
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct XenSet {
    #[serde(with = "path_bytes")]
    xl: PathBuf,
    pool: String,
    was: XenTimes,
    set: XenTimes,
}

impl Change for XenSet {
    const NAME: &'static str = "xen";

    fn check(&self) -> Result<(), ActError> {
        if is_nobody_elses(&self.xl) {
            Ok(())
        } else {
            never_written(&self.xl, "others could have written that program")
        }
    }

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        let (xl, pool) = (Xl::at(&self.xl), &self.pool);
        let shown = match self.set.read(&xl, pool) {
            Ok(shown) => XenTimes::shown(&shown),
            // The cpupool is gone, and with it what we set.
            Err(ActError::Xl { reason, .. }) if reason.contains("unknown cpupool") => return Ok(()),
            Err(error) => return Err(error),
        };
        if shown == Some(self.was) {
            return Ok(());
        }
        if shown != Some(self.set) {
            tracing::warn!("cpupool {pool}: somebody has changed it meanwhile, so it was left as it is");
            return Ok(());
        }
        self.was.write(&xl, pool)
    }
}

/// Whether nobody but root and this user could have put it there.
fn is_nobody_elses(program: &Path) -> bool {
    let trusted = |found: &Metadata| {
        let is_link = found.file_type().is_symlink();
        [0, rustix::process::geteuid().as_raw()].contains(&found.uid()) && (is_link || found.mode() & 0o022 == 0)
    };
    // The folder as it really is: a link on the way there may be somebody's.
    let real = program.parent().and_then(|folder| folder.canonicalize().ok()).zip(program.file_name());
    let Some((folder, name)) = real.filter(|(folder, _)| program.parent() == Some(folder)) else { return false };
    fs::metadata(&folder).is_ok_and(|found| trusted(&found))
        && fs::symlink_metadata(folder.join(name)).is_ok_and(|found| trusted(&found))
        && fs::metadata(program).is_ok_and(|found| trusted(&found))
}

#[cfg(test)]
mod tests;
