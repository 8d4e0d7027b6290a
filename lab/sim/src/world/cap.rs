//! A virtual machine's limit, as CFS bandwidth control has it: how much of its quota it has used. `host/cap` says what
//! follows from it.

use crate::engine::Time;

/// cpu.cfs_period_us, cpu.max: the default.
pub(crate) const CAP_PERIOD: Time = 100_000_000;

/// How much of its quota a virtual machine has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    quota: i64,
    /// Of this period, at `since`. An overrun of a few nanoseconds is the next period's.
    pub(crate) left: i64,
    since: Time,
    pub(crate) period_ends: Time,
    /// vCPUs that hold a pCPU.
    pub(crate) holding: u32,
    pub(crate) throttled: bool,
}

impl Cap {
    /// So many thousandths of a CPU; `None` for 0, which is no limit.
    pub(crate) fn new(permille: u32) -> Option<Self> {
        let quota = i64::try_from(CAP_PERIOD / 1_000 * u64::from(permille)).unwrap_or(i64::MAX);
        (permille > 0).then_some(Self {
            quota,
            left: quota,
            since: 0,
            period_ends: CAP_PERIOD,
            holding: 0,
            throttled: false,
        })
    }

    /// What it lets be held in so long a time.
    pub(crate) fn limit(&self, length: u64) -> u64 {
        let quota = u128::from(u64::try_from(self.quota).unwrap_or(0));
        u64::try_from(quota * u128::from(length) / u128::from(CAP_PERIOD)).unwrap_or(u64::MAX)
    }

    /// Charges what was held up to `now`; a new period brings a new quota.
    pub(crate) fn charge(&mut self, now: Time) {
        let held = i64::try_from(now - self.since).unwrap_or(i64::MAX);
        self.left -= held.saturating_mul(i64::from(self.holding));
        self.since = now;
        if now >= self.period_ends {
            self.period_ends = (now / CAP_PERIOD + 1) * CAP_PERIOD;
            self.left = self.quota + self.left.min(0);
        }
    }

    /// When it has to be looked at again, if nothing comes in between.
    pub(crate) fn due(&self, now: Time) -> Option<Time> {
        if self.throttled {
            return Some(self.period_ends);
        }
        let left = u64::try_from(self.left).unwrap_or(0);
        let lasts = left.checked_add(u64::from(self.holding) - 1)?.checked_div(u64::from(self.holding))?;
        Some(self.period_ends.min(now + lasts))
    }
}
