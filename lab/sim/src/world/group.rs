//! A virtual machine's group of the host's scheduler: its load averages, and from them its weight on a pCPU.
//! `host/groups` says when it is worked out, and what follows.

use crate::engine::Time;
use crate::ids::{PcpuIx, VcpuIx};

/// `MIN_SHARES`.
const LEAST: f64 = 2.0;
/// A period of the load average, in bits of nanoseconds; 32 of them halve it (`LOAD_AVG_PERIOD`).
const PERIOD_BITS: u32 = 20;
const HALF_LIFE: usize = 32;
/// A virtual machine's.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    weight: f64,
    first: VcpuIx,
    pub(crate) members: Vec<Member>,
}

/// One of its vCPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) pcpu: PcpuIx,
    pub(crate) runnable: bool,
    /// Runnable part of the time, lately, at `since`.
    load: f64,
    since: Time,
}

/// What is left of a load average after so long a time. Built from square roots, which are exact everywhere.
#[derive(Clone, Debug)]
struct Decay([f64; HALF_LIFE + 1]);

impl Decay {
    fn new() -> Self {
        let period = (0..HALF_LIFE.ilog2()).fold(0.5_f64, |root, _| root.sqrt());
        let mut left = [1.0; HALF_LIFE + 1];
        (1..=HALF_LIFE).for_each(|n| left[n] = left[n - 1] * period);
        Self(left)
    }
}

impl Member {
    fn load_at(&self, now: Time) -> f64 {
        let left = decayed(now - self.since);
        if self.runnable { 1.0 - left * (1.0 - self.load) } else { left * self.load }
    }

    pub(crate) fn update(&mut self, now: Time) {
        self.load = self.load_at(now);
        self.since = now;
    }
}

/// What is left of a load average after so long a time.
fn decayed(time: Time) -> f64 {
    static TABLE: std::sync::LazyLock<Decay> = std::sync::LazyLock::new(Decay::new);
    let periods = usize::try_from(time >> PERIOD_BITS).unwrap_or(usize::MAX);
    let Some(halvings) = i32::try_from(periods / HALF_LIFE).ok().filter(|n| *n < 64) else { return 0.0 };
    let within = (time & ((1 << PERIOD_BITS) - 1)) as f64 / f64::from(1 << PERIOD_BITS);
    let (from, to) = (TABLE.0[periods % HALF_LIFE], TABLE.0[periods % HALF_LIFE + 1]);
    (from + (to - from) * within) * 0.5_f64.powi(halvings)
}

impl Group {
    pub(crate) fn new(weight: u32, first: VcpuIx, pcpus: impl Iterator<Item = PcpuIx>) -> Self {
        let member = |pcpu| Member { pcpu, runnable: false, load: 0.0, since: 0 };
        Self { weight: f64::from(weight), first, members: pcpus.map(member).collect() }
    }

    pub(crate) fn member(&mut self, v: VcpuIx) -> &mut Member {
        &mut self.members[v.at() - self.first.at()]
    }

    pub(crate) fn runnable_on(&self, p: PcpuIx) -> usize {
        self.members.iter().filter(|member| member.runnable && member.pcpu == p).count()
    }

    /// `calc_cfs_shares`: its weight on `p`, and how many vCPUs divide it.
    pub(crate) fn shares(&self, p: PcpuIx, now: Time) -> (f64, usize) {
        let (mut elsewhere, mut here) = (0.0, 0);
        for member in &self.members {
            if member.pcpu != p {
                elsewhere += member.load_at(now);
            } else if member.runnable {
                here += 1;
            }
        }
        let load = here as f64;
        let shares = self.weight * load / (elsewhere + load).max(f64::EPSILON);
        (shares.clamp(LEAST, self.weight.max(LEAST)), here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1_000_000;

    fn group(vcpus: u32) -> Group {
        Group::new(1_024, VcpuIx(0), (0..vcpus).map(PcpuIx))
    }

    #[test]
    fn a_load_average_halves_in_32_periods() {
        for (periods, left) in [(0, 1.0), (16, 0.5_f64.sqrt()), (32, 0.5), (64, 0.25), (32 * 64, 0.0)] {
            assert!((decayed(periods << PERIOD_BITS) - left).abs() < 1e-12, "{periods}");
        }
        // Runnable for 32 periods: half; then asleep for 32: a quarter.
        let mut member = Member { pcpu: PcpuIx(0), runnable: true, load: 0.0, since: 0 };
        member.update(32 << PERIOD_BITS);
        member.runnable = false;
        assert!((member.load_at(64 << PERIOD_BITS) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn a_group_weight_is_divided_by_load() {
        // The first to wake has it all; after a second all 16 that are busy have a sixteenth.
        let mut busy = group(16);
        busy.member(VcpuIx(0)).runnable = true;
        assert_eq!(busy.shares(PcpuIx(0), 0), (1_024.0, 1));
        busy.members.iter_mut().for_each(|member| member.runnable = true);
        // All woke at once: nobody has any load yet.
        assert_eq!(busy.shares(PcpuIx(7), 0), (1_024.0, 1));
        assert!((busy.shares(PcpuIx(7), 3_000 * MS).0 - 64.0).abs() < 1e-6);
        // Two of them on one pCPU: 2 / (14 + 2).
        busy.member(VcpuIx(8)).pcpu = PcpuIx(7);
        let (shares, here) = busy.shares(PcpuIx(7), 3_000 * MS);
        assert!((shares - 128.0).abs() < 1e-6 && here == 2, "{shares}");
        // A virtual machine with one busy vCPU of 16.
        let mut lone = group(16);
        lone.member(VcpuIx(3)).runnable = true;
        assert_eq!(lone.shares(PcpuIx(3), 3_000 * MS), (1_024.0, 1));
    }
}
