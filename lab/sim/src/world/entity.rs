//! The arithmetic of the host's schedulers: pure functions of an [`Entity`] (a vCPU as the scheduler sees it) and a
//! queue's virtual time. `host/` moves vCPUs about.
//!
//! | scheduler | key | slice | a wake-up preempts |
//! | --- | --- | --- | --- |
//! | round robin, dedicated | none: in turn | fixed | never |
//! | window (CFS) | virtual runtime | latency / n, at least the granularity | who is ahead by the wake-up granularity |
//! | fair (EEVDF) | virtual deadline, among the eligible | the vCPU's own | who has a later deadline and has used its slice, or a longer one |
//! | credit (Xen) | boost, under, over | fixed | who has a lower class, after the ratelimit |

use crate::config::{CreditParams, FairParams, Scheduler, WindowParams};
use crate::engine::Time;

/// A vCPU as the scheduler sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "Xen's flags, each by itself")]
pub(crate) struct Entity {
    /// Time it has had, by weight.
    pub(crate) vruntime: i64,
    /// Virtual deadline (fair).
    pub(crate) deadline: i64,
    /// How far behind the queue it was when it went to sleep (fair).
    pub(crate) lag: i64,
    /// Time it has had since it was last given a slice.
    pub(crate) used: Time,
    /// Time it may have before others (credit).
    pub(crate) credit: i64,
    /// Woken while not over (credit).
    pub(crate) boosted: bool,
    /// Was in debt at the last accounting (credit).
    pub(crate) over: bool,
    /// Gets credit: a tick has found it running (credit).
    pub(crate) active: bool,
    /// Is to make room (credit).
    pub(crate) yields: bool,
    /// Owes more than its virtual machine's cap allows, and waits until it owes nothing (credit).
    pub(crate) parked: bool,
    /// Time it has had and not paid for (credit).
    pub(crate) unpaid: i64,
}

/// Most runnable by class (credit).
pub(crate) const BOOST: i64 = 0;
pub(crate) const UNDER: i64 = 1;
pub(crate) const OVER: i64 = 2;
/// Of a pCPU that has nobody.
pub(crate) const IDLE: i64 = 3;

pub(crate) fn signed(time: Time) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

impl Entity {
    /// It ran for so long; 1024 is one weight.
    pub(crate) fn ran(&mut self, time: Time, weight: u32) {
        self.used += time;
        let time = signed(time);
        self.unpaid += time;
        self.vruntime += if weight == 1024 { time } else { time.saturating_mul(1024) / i64::from(weight.max(1)) };
    }

    pub(crate) fn class(&self) -> i64 {
        match (self.boosted, self.over) {
            (true, _) => BOOST,
            (false, false) => UNDER,
            (false, true) => OVER,
        }
    }
}

impl Scheduler {
    /// What the queue is sorted by.
    pub(crate) fn key(&self, entity: &Entity) -> i64 {
        match self {
            Self::Dedicated | Self::RoundRobin { .. } => 0,
            Self::Window(_) => entity.vruntime,
            Self::Fair(_) => entity.deadline,
            Self::Credit(_) => entity.class(),
        }
    }

    /// Whether only those count that have not had more than their share.
    pub(crate) fn is_fair(&self) -> bool {
        matches!(self, Self::Fair(_))
    }

    /// Whether virtual time matters at all.
    pub(crate) fn has_virtual_time(&self) -> bool {
        matches!(self, Self::Fair(_) | Self::Window(_))
    }

    /// How long the next one may run while `runnable` vCPUs, itself included, want its pCPU.
    pub(crate) fn slice(&self, own: Option<Time>, runnable: usize) -> Time {
        if let Some(own) = own {
            return own;
        }
        match self {
            Self::Dedicated => Time::MAX,
            Self::Window(WindowParams { latency, min_granularity, .. }) => {
                (latency / runnable.max(1) as u64).max(*min_granularity)
            }
            Self::RoundRobin { slice }
            | Self::Fair(FairParams { slice, .. })
            | Self::Credit(CreditParams { slice, .. }) => *slice,
        }
    }

    /// Length of a tick at which slices end; 0: they are enforced.
    pub(crate) fn tick(&self) -> Time {
        match self {
            Self::Window(WindowParams { tick, .. }) | Self::Fair(FairParams { tick, .. }) => *tick,
            _ => 0,
        }
    }

    /// When a slice that is used up at `end` is ended: at a tick, where nothing enforces it. Ticks are `phase` after
    /// multiples.
    pub(crate) fn enforced(&self, end: Time) -> Time {
        match self.tick() {
            0 => end,
            tick => end.div_ceil(tick).saturating_mul(tick),
        }
    }

    /// It used up its slice: what comes next for it.
    pub(crate) fn slice_used(&self, entity: &mut Entity, own: Option<Time>) {
        entity.used = 0;
        if let Self::Fair(params) = self {
            entity.deadline = entity.vruntime + signed(own.unwrap_or(params.slice));
        }
    }

    /// It goes to sleep, on a queue whose virtual time is `base`.
    pub(crate) fn sleep(&self, entity: &mut Entity, base: i64) {
        if let Self::Fair(params) = self {
            let most = signed(params.slice);
            entity.lag = (base - entity.vruntime).clamp(-most, most);
        }
    }

    /// It wakes, on a queue whose virtual time is `base`.
    pub(crate) fn wake(&self, entity: &mut Entity, base: i64, own: Option<Time>) {
        entity.used = 0;
        match self {
            Self::Window(params) => entity.vruntime = entity.vruntime.max(base - signed(params.latency / 2)),
            Self::Fair(params) => {
                entity.vruntime = base - entity.lag;
                entity.deadline = entity.vruntime + signed(own.unwrap_or(params.slice));
            }
            Self::Credit(_) => entity.boosted |= !entity.over,
            Self::Dedicated | Self::RoundRobin { .. } => {}
        }
    }

    /// Whether one that wakes takes the pCPU from the one that runs there. `base` is the queue's virtual time.
    /// `weight` is the woken one's, in groups.
    pub(crate) fn preempts(
        &self,
        woken: &Entity,
        running: &Entity,
        slices: (Time, Time),
        base: i64,
        weight: u32,
    ) -> bool {
        match self {
            Self::Dedicated | Self::RoundRobin { .. } => false,
            Self::Window(params) => {
                // wakeup_gran: in the woken one's virtual time.
                let least = params.wakeup_granularity.saturating_mul(1_024) / u64::from(weight.max(1));
                running.vruntime - woken.vruntime > signed(least)
            }
            Self::Fair(_) => {
                let eligible = woken.vruntime <= base;
                let protected = running.used < slices.1;
                let shorter = slices.0 < slices.1;
                eligible && (shorter || !protected && woken.deadline < running.deadline)
            }
            Self::Credit(_) => woken.class() < running.class(),
        }
    }

    /// How long a ready vCPU may wait at most while `others` may want its pCPU: in turn one slice each, by virtual time
    /// half a window and a tick more. Xen's has no bound: ticks find nobody who waits, who then gets no credit, and
    /// others that wake all the time, and take what is credited to them alone, come before it.
    #[cfg(debug_assertions)]
    pub(crate) fn waits_at_most(&self, others: u64, slice: Option<Time>, weights: u64) -> Time {
        let slice = slice.unwrap_or(0);
        let each = match self {
            Self::Dedicated => 0,
            Self::RoundRobin { slice: own } => 2 * slice.max(*own),
            Self::Window(own) => 2 * (slice.max(own.latency) + own.tick + own.wakeup_granularity) * weights,
            Self::Fair(own) => 2 * (slice.max(own.slice) + own.tick) * weights,
            Self::Credit(_) => return Time::MAX,
        };
        each * others
    }

    /// How long the one that runs is left alone.
    pub(crate) fn ratelimit(&self) -> Time {
        if let Self::Credit(params) = self { params.ratelimit } else { 0 }
    }

    /// Whether it is Xen's.
    pub(crate) fn is_credit(&self) -> bool {
        matches!(self, Self::Credit(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1_000_000;

    #[test]
    fn a_window_is_divided_until_slices_get_too_short() {
        let cfs = Scheduler::Window(WindowParams::CFS);
        for (runnable, slice) in [(1, 24), (2, 12), (4, 6), (8, 3), (16, 3)] {
            assert_eq!(cfs.slice(None, runnable), slice * MS);
        }
        assert_eq!(cfs.slice(Some(MS), 4), MS);
        assert_eq!((cfs.enforced(9 * MS), cfs.enforced(8 * MS)), (12 * MS, 8 * MS));
    }

    #[test]
    fn cfs_places_a_sleeper_half_a_window_behind_at_most() {
        let cfs = Scheduler::Window(WindowParams::CFS);
        for (vruntime, placed) in [(0, 88 * MS), (95 * MS, 95 * MS)] {
            let mut entity = Entity { vruntime: signed(vruntime), ..Entity::default() };
            cfs.wake(&mut entity, signed(100 * MS), None);
            assert_eq!(entity.vruntime, signed(placed));
        }
    }

    #[test]
    fn who_is_over_is_not_boosted() {
        let xen = Scheduler::Credit(CreditParams::XEN);
        for (over, before, after) in [(false, UNDER, BOOST), (true, OVER, OVER)] {
            let mut entity = Entity { over, ..Entity::default() };
            assert_eq!(entity.class(), before);
            xen.wake(&mut entity, 0, None);
            assert_eq!(entity.class(), after);
        }
    }

    #[test]
    fn fair_keeps_lag_over_a_sleep() {
        let fair = Scheduler::Fair(FairParams::EEVDF);
        let mut entity = Entity { vruntime: signed(MS), ..Entity::default() };
        fair.sleep(&mut entity, signed(2 * MS));
        fair.wake(&mut entity, signed(50 * MS), None);
        assert_eq!(entity.vruntime, signed(49 * MS));
        assert_eq!(entity.deadline, signed(52 * MS));
    }
}
