//! Which settings give a slice, by scheduler, and why some do not. Pure: what is there comes in, what to set goes out.
//!
//! Limits are those of Xen 4.17 (`xen/include/public/sysctl.h`, `common/sched/rt.c`), which newer ones have too.

use gleaner_model::{Nanos, XenPool, XenScheduler, XenSetting};
use std::ops::RangeInclusive;

/// `XEN_SYSCTL_CSCHED_TSLICE_MIN` to `_MAX`.
const SLICE_MS: RangeInclusive<u64> = 1..=1000;
/// `XEN_SYSCTL_SCHED_RATELIMIT_MIN` to `_MAX`; 0 is no limit.
const RATELIMIT_US: RangeInclusive<u64> = 100..=500_000;
/// `RTDS_MIN_BUDGET` and `RTDS_MIN_PERIOD`.
const RTDS_LEAST_US: u64 = 10;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XenRequest {
    /// The slice.
    pub slice: Option<Nanos>,
    /// How long a vCPU runs at least before a waking one may take its place (credit and credit2); 0: no limit.
    pub ratelimit: Option<Nanos>,
    /// The cpupool; `None`: the only one.
    pub pool: Option<String>,
    /// The domains (RTDS); empty: all of the cpupool.
    pub domains: Vec<u32>,
}

/// One thing that is to be set, and what it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenChange {
    /// What it is.
    pub was: XenSetting,
    /// What it shall be.
    pub set: XenSetting,
}

/// Why a request cannot be met, and what can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XenRefusal {
    /// Nothing is asked for.
    #[error("nothing to set: give --slice, or --ratelimit, or both")]
    Nothing,
    /// Several cpupools, and none is named.
    #[error("this Xen has {} cpupools ({}): name one with --pool", pools.len(), pools.join(", "))]
    WhichPool {
        /// Their names.
        pools: Vec<String>,
    },
    /// None of that name.
    #[error("there is no cpupool {name}; there is: {}", pools.join(", "))]
    NoPool {
        /// What was asked for.
        name: String,
        /// Their names.
        pools: Vec<String>,
    },
    /// Less than a millisecond under credit.
    #[error(
        "credit's least slice is 1 ms, and {asked_us} us was asked for. Of Xen's schedulers only RTDS goes below: boot Xen with \
         sched=rtds, or make a cpupool with sched=\"rtds\", if this Xen was built with it (Debian's is not). Under credit, \
         `--slice 1ms --ratelimit 100us` is the nearest: a waking vCPU with credit left then waits for 0.1 ms at most"
    )]
    BelowCredit {
        /// What was asked for.
        asked_us: u64,
    },
    /// More than credit takes, or no whole milliseconds.
    #[error(
        "credit's slice is in whole milliseconds, 1 to 1000, and {asked_us} us was asked for: give for instance --slice {nearest_ms}ms"
    )]
    NoCreditSlice {
        /// What was asked for.
        asked_us: u64,
        /// The nearest that it takes.
        nearest_ms: u64,
    },
    /// Out of range.
    #[error("a ratelimit is within 100us and 500ms, or 0, and {asked_us} us was asked for")]
    Ratelimit {
        /// What was asked for.
        asked_us: u64,
    },
    /// A ratelimit above the slice.
    #[error("the ratelimit cannot be above the slice: {ratelimit_us} us, and the slice would be {slice_ms} ms")]
    RatelimitAboveSlice {
        /// What it would be.
        ratelimit_us: u32,
        /// What the slice would be.
        slice_ms: u32,
    },
    /// A slice under credit2.
    #[error(
        "cpupool {pool} is scheduled by credit2, which has no slice to set: a vCPU runs for 0.5 to 10 ms at a time, as its credit says. \
         What can be set is --ratelimit (100us to 500ms), before which no waking vCPU takes its place. For slices, boot Xen with \
         sched=credit, or make a cpupool with sched=\"credit\""
    )]
    NoSliceUnderCredit2 {
        /// Which cpupool.
        pool: String,
    },
    /// Single domains under a scheduler that has one setting for all.
    #[error(
        "{scheduler} has one setting for the whole cpupool {pool}, not for single domains: leave out the domains, or give them a cpupool \
         of their own (`xl cpupool-create`, `xl cpupool-migrate`)"
    )]
    OneForAll {
        /// Who schedules there.
        scheduler: XenScheduler,
        /// Which cpupool.
        pool: String,
    },
    /// A ratelimit under RTDS.
    #[error("RTDS has no ratelimit: a vCPU runs until its budget is used up or one with an earlier deadline wakes")]
    NoRatelimitUnderRtds,
    /// Below what RTDS takes, or no whole microseconds.
    #[error(
        "RTDS takes budgets of whole microseconds, 10 us at least and 1 s at most, and {asked_ns} ns was asked for"
    )]
    NoRtdsBudget {
        /// What was asked for.
        asked_ns: u64,
    },
    /// No vCPU to set.
    #[error("none of the domains is in cpupool {pool}: `gleaner host list` says which are")]
    NoVcpu {
        /// Which cpupool.
        pool: String,
    },
    /// A scheduler without anything to set.
    #[error(
        "cpupool {pool} is scheduled by `{scheduler}`, of which Gleaner knows no slice: credit (1 ms and more) and rtds (10 us and more) \
         have one. Boot Xen with sched=credit, or make a cpupool with it"
    )]
    UnknownScheduler {
        /// Who schedules there.
        scheduler: XenScheduler,
        /// Which cpupool.
        pool: String,
    },
    /// Xen did not say what it is set to, so it could not be put back.
    #[error("xl does not say what cpupool {pool} is set to, so it could not be put back and was not touched")]
    Unreadable {
        /// Which cpupool.
        pool: String,
    },
}

/// What to change so that the request is met; empty when all is as asked for.
///
/// # Errors
/// A [`XenRefusal`]: nothing is to be changed then.
pub fn plan_xen(request: &XenRequest, pools: &[XenPool]) -> Result<Vec<XenChange>, XenRefusal> {
    if request.slice.is_none() && request.ratelimit.is_none() {
        return Err(XenRefusal::Nothing);
    }
    let pool = choose_pool(request, pools)?;
    let name = || pool.name.clone();
    if !request.domains.is_empty() && matches!(pool.scheduler, XenScheduler::Credit | XenScheduler::Credit2) {
        return Err(XenRefusal::OneForAll { scheduler: pool.scheduler.clone(), pool: name() });
    }
    let wanted = match pool.scheduler {
        XenScheduler::Credit => credit(request, pool)?,
        XenScheduler::Credit2 => credit2(request, pool)?,
        XenScheduler::Rtds => rtds(request, pool)?,
        XenScheduler::Other(_) => {
            return Err(XenRefusal::UnknownScheduler { scheduler: pool.scheduler.clone(), pool: name() });
        }
    };
    Ok(wanted.into_iter().filter(|change| change.was != change.set).collect())
}

fn choose_pool<'a>(request: &XenRequest, pools: &'a [XenPool]) -> Result<&'a XenPool, XenRefusal> {
    let names = || pools.iter().map(|pool| pool.name.clone()).collect();
    match (&request.pool, pools) {
        (Some(name), _) => {
            let found = pools.iter().find(|pool| pool.name == *name);
            found.ok_or_else(|| XenRefusal::NoPool { name: name.clone(), pools: names() })
        }
        (None, [only]) => Ok(only),
        (None, _) => Err(XenRefusal::WhichPool { pools: names() }),
    }
}

fn credit(request: &XenRequest, pool: &XenPool) -> Result<Vec<XenChange>, XenRefusal> {
    let Some(was @ XenSetting::Credit { slice_ms, ratelimit_us, .. }) = pool.settings.first() else {
        return Err(XenRefusal::Unreadable { pool: pool.name.clone() });
    };
    let slice_ms = request.slice.map_or(Ok(*slice_ms), credit_slice_ms)?;
    let limit_us = match request.ratelimit {
        Some(asked) => whole_ratelimit_us(asked)?,
        // One that nobody asked to keep gives way: Xen would refuse the slice.
        None => (*ratelimit_us).min(slice_ms.saturating_mul(1000)),
    };
    if limit_us > slice_ms.saturating_mul(1000) {
        return Err(XenRefusal::RatelimitAboveSlice { ratelimit_us: limit_us, slice_ms });
    }
    let set = XenSetting::Credit { pool: pool.name.clone(), slice_ms, ratelimit_us: limit_us };
    Ok(vec![XenChange { was: was.clone(), set }])
}

fn credit_slice_ms(asked: Nanos) -> Result<u32, XenRefusal> {
    let Nanos(ns) = asked;
    if ns < 1_000_000 {
        return Err(XenRefusal::BelowCredit { asked_us: ns / 1000 });
    }
    let ms = ns / 1_000_000;
    if ns % 1_000_000 != 0 || !SLICE_MS.contains(&ms) {
        let nearest_ms = ((ns + 500_000) / 1_000_000).clamp(*SLICE_MS.start(), *SLICE_MS.end());
        return Err(XenRefusal::NoCreditSlice { asked_us: ns / 1000, nearest_ms });
    }
    u32::try_from(ms).map_err(|_| XenRefusal::NoCreditSlice { asked_us: ns / 1000, nearest_ms: *SLICE_MS.end() })
}

fn whole_ratelimit_us(asked: Nanos) -> Result<u32, XenRefusal> {
    let Nanos(ns) = asked;
    let us = ns / 1000;
    let refusal = XenRefusal::Ratelimit { asked_us: us };
    if ns == 0 || (ns % 1000 == 0 && RATELIMIT_US.contains(&us)) {
        u32::try_from(us).map_err(|_| refusal)
    } else {
        Err(refusal)
    }
}

fn credit2(request: &XenRequest, pool: &XenPool) -> Result<Vec<XenChange>, XenRefusal> {
    if request.slice.is_some() {
        return Err(XenRefusal::NoSliceUnderCredit2 { pool: pool.name.clone() });
    }
    let Some(was @ XenSetting::Credit2 { ratelimit_us, .. }) = pool.settings.first() else {
        return Err(XenRefusal::Unreadable { pool: pool.name.clone() });
    };
    let ratelimit_us = request.ratelimit.map_or(Ok(*ratelimit_us), whole_ratelimit_us)?;
    let set = XenSetting::Credit2 { pool: pool.name.clone(), ratelimit_us };
    Ok(vec![XenChange { was: was.clone(), set }])
}

/// The slice becomes the budget, and the period shrinks or grows with it: each vCPU's share stays what it was.
fn rtds(request: &XenRequest, pool: &XenPool) -> Result<Vec<XenChange>, XenRefusal> {
    if request.ratelimit.is_some() {
        return Err(XenRefusal::NoRatelimitUnderRtds);
    }
    let Nanos(asked_ns) = request.slice.ok_or(XenRefusal::Nothing)?;
    let us = asked_ns / 1000;
    if asked_ns % 1000 != 0 || !(RTDS_LEAST_US..=1_000_000).contains(&us) {
        return Err(XenRefusal::NoRtdsBudget { asked_ns });
    }
    let changes: Vec<XenChange> =
        pool.settings.iter().filter_map(|was| rtds_change(was, us, &request.domains)).collect();
    if changes.is_empty() { Err(XenRefusal::NoVcpu { pool: pool.name.clone() }) } else { Ok(changes) }
}

fn rtds_change(was: &XenSetting, slice_us: u64, domains: &[u32]) -> Option<XenChange> {
    let XenSetting::Rtds { domain, vcpu, period_us, budget_us, extratime } = *was else { return None };
    if !domains.is_empty() && !domains.contains(&domain) {
        return None;
    }
    let budget = u64::from(budget_us.max(1));
    // To the nearest: rounded down, short budgets would gain a share.
    let period = ((slice_us * u64::from(period_us) + budget / 2) / budget).max(slice_us);
    let saturated = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
    let set =
        XenSetting::Rtds { domain, vcpu, period_us: saturated(period), budget_us: saturated(slice_us), extratime };
    Some(XenChange { was: was.clone(), set })
}
