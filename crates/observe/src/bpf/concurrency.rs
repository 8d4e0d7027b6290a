//! How many threads of a group run or wait to run at once: sums of crossings (`runnable.bpf.h`) -> times.
//!
//! A thread is counted when it is woken and until it sleeps, by a mark of its own, so the count does not drift. Where
//! threads are taken out behind the kernel's back, or a group rests while some seem to run, counting begins anew.

use super::load::{self, Loaded};
use super::skel::types::{cpu_state, group_state};
use super::skel::{GROUP, LEVEL_BITS, LEVELS};
use gleaner_model::{Concurrency, Nanos, VcpuId};
use std::mem::offset_of;

/// A group that rests for so long has nobody who waits for a vCPU.
const RESTS_NS: u64 = 1_000_000_000;

/// What one group's slot counts.
#[derive(Debug)]
pub(super) struct Counting {
    slot: u32,
    epoch: u32,
    /// What programs may still be busy with the last epoch: the next window begins.
    paused: bool,
    /// Crossings since it began: as `Share`s tell, and what the slot's own were then.
    sums: [u64; LEVELS],
    own_before: [u64; LEVELS],
    /// Time at each level and above when it was last asked, and when that was.
    reached: [u64; LEVELS],
    at_ns: u64,
    /// Since when the group rests; 0: it does not.
    rests_since_ns: u64,
}

impl Counting {
    /// Begins in a slot that has no thread.
    pub fn begin(programs: &Loaded, slot: u32, now_ns: u64) -> Self {
        let mut counting = Self {
            slot,
            epoch: 0,
            paused: true,
            sums: [0; LEVELS],
            own_before: [0; LEVELS],
            reached: [0; LEVELS],
            at_ns: now_ns,
            rests_since_ns: 0,
        };
        counting.go_on(programs, now_ns);
        counting
    }

    /// Counts nobody from now on; the window after the next is whole again.
    pub fn pause(&mut self, programs: &Loaded) {
        programs.groups.write_field(self.slot as usize, offset_of!(group_state, epoch), 0_u32);
        self.paused = true;
    }

    /// Nobody is counted yet.
    fn go_on(&mut self, programs: &Loaded, now_ns: u64) {
        let slot = self.slot as usize;
        self.paused = false;
        self.sums = [0; LEVELS];
        self.own_before = own_crossings(programs, slot);
        self.reached = [0; LEVELS];
        self.at_ns = now_ns;
        self.rests_since_ns = 0;
        programs.groups.write_field(slot, offset_of!(group_state, runnable), 0_u64);
        // 0 is that of nobody.
        self.epoch = self.epoch.wrapping_add(1).max(1);
        programs.groups.write_field(slot, offset_of!(group_state, epoch), self.epoch);
        // Whoever runs is counted when it comes the next time.
        let word = |cpu: usize, offset: usize| programs.cpus.read_field::<u32>(cpu, offset);
        let is_its = |cpu: &usize| {
            word(*cpu, offset_of!(cpu_state, class)) == GROUP
                && word(*cpu, offset_of!(cpu_state, group)) == self.slot
                && word(*cpu, offset_of!(cpu_state, pid)) != 0
        };
        let vcpus = (0..programs.cpus.len()).filter(is_its).filter_map(|cpu| u32::try_from(cpu).ok().map(VcpuId));
        let vcpus: Vec<VcpuId> = vcpus.collect();
        if !vcpus.is_empty() {
            load::visit(vcpus.into_iter());
        }
    }

    /// The times since the last call, up to `now_ns`. `crossings`: of this window, on all vCPUs. `rests`: nothing was
    /// seen of the group. `None`: it began anew meanwhile.
    pub fn window(
        &mut self,
        programs: &Loaded,
        crossings: impl Iterator<Item = [u64; LEVELS]>,
        rests: bool,
        now_ns: u64,
    ) -> Option<Concurrency> {
        if self.paused {
            self.go_on(programs, now_ns);
            return None;
        }
        for new in crossings {
            add(&mut self.sums, &new);
        }
        let mut all = own_crossings(programs, self.slot as usize);
        all.iter_mut().zip(self.own_before).for_each(|(now, before)| *now = now.wrapping_sub(before));
        add(&mut all, &self.sums);
        let reached = all.map(|sum| time_reached(sum, now_ns));
        let since = std::mem::replace(&mut self.reached, reached);
        let length = now_ns.saturating_sub(std::mem::replace(&mut self.at_ns, now_ns));
        if self.is_wrong(programs, rests, now_ns) {
            self.pause(programs);
            return None;
        }
        Some(times(std::array::from_fn(|level| elapsed(since[level], reached[level])), length))
    }

    /// Whether somebody is counted who cannot run, or nobody who can.
    fn is_wrong(&mut self, programs: &Loaded, rests: bool, now_ns: u64) -> bool {
        let runnable: u64 = programs.groups.read_field(self.slot as usize, offset_of!(group_state, runnable));
        if !rests || runnable == 0 {
            self.rests_since_ns = 0;
        } else if self.rests_since_ns == 0 {
            self.rests_since_ns = now_ns;
        }
        let seems_to_wait = self.rests_since_ns > 0 && now_ns.saturating_sub(self.rests_since_ns) > RESTS_NS;
        runnable.cast_signed() < 0 || seems_to_wait
    }
}

fn add(sums: &mut [u64; LEVELS], more: &[u64; LEVELS]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
}

/// Those that are in no CPU's part.
fn own_crossings(programs: &Loaded, slot: usize) -> [u64; LEVELS] {
    let at = |level: usize| offset_of!(group_state, crossings) + level * size_of::<u64>();
    std::array::from_fn(|level| programs.groups.read_field(slot, at(level)))
}

/// Time for which a level had been reached until `now_ns`, above the bits of the count. It wraps: only differences say
/// anything.
fn time_reached(sum: u64, now_ns: u64) -> u64 {
    // One where the level is reached now. A vCPU that was read too early to have both ends makes it another.
    let open = sum.to_le_bytes()[0].cast_signed();
    let times = sum.wrapping_sub(i64::from(open).cast_unsigned());
    (now_ns << LEVEL_BITS).wrapping_mul(i64::from(open).cast_unsigned()).wrapping_sub(times)
}

/// Between two of them; what was seen late, and so counts for less than nothing, is nothing.
fn elapsed(since: u64, reached: u64) -> u64 {
    (reached.wrapping_sub(since).cast_signed() >> LEVEL_BITS).max(0).cast_unsigned()
}

/// Of times at each level and above.
fn times(reached: [u64; LEVELS], length: u64) -> Concurrency {
    let mut times = [Nanos::ZERO; Concurrency::COUNTS];
    let mut below = length;
    for (time, reached) in times.iter_mut().zip(reached) {
        let reached = reached.min(below);
        *time = Nanos(below - reached);
        below = reached;
    }
    times[LEVELS] = Nanos(below);
    Concurrency { times }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of crossings: when a level was reached (+) and left (-).
    fn sum(crossings: &[(i64, u64)]) -> u64 {
        crossings.iter().fold(0_u64, |sum, (sign, at)| {
            sum.wrapping_add(((at << LEVEL_BITS) + 1).wrapping_mul(sign.cast_unsigned()))
        })
    }

    fn between(then: (&[(i64, u64)], u64), now: (&[(i64, u64)], u64)) -> u64 {
        elapsed(time_reached(sum(then.0), then.1), time_reached(sum(now.0), now.1))
    }

    #[test]
    fn a_level_counts_while_it_is_reached() {
        let late = 1_u64 << 62;
        for start in [1_000, late] {
            let at = |offset: u64| start + offset;
            let first: &[(i64, u64)] = &[(1, at(10)), (-1, at(40)), (1, at(60))];
            assert_eq!(between((&[], at(0)), (first, at(100))), 30 + 40, "it is reached at the end");
            let then = [first, &[(-1, at(130))]].concat();
            assert_eq!(between((first, at(100)), (&then, at(200))), 30);
            assert_eq!(between((&then, at(200)), (&then, at(300))), 0);
        }
    }

    #[test]
    fn a_crossing_that_is_read_late_is_made_up_for() {
        // The vCPU on which it was reached had been read before that.
        let early: &[(i64, u64)] = &[(-1, 90)];
        let whole: &[(i64, u64)] = &[(1, 80), (-1, 90)];
        assert_eq!(between((&[], 0), (early, 100)), 0);
        assert_eq!(between((early, 100), (whole, 200)), 20, "ten too many, which were missing");
    }

    #[test]
    fn times_add_up_to_the_window() {
        let all = times([90, 40, 40, 0, 0], 100);
        assert_eq!(all.times.map(|time| time.0), [10, 50, 0, 40, 0, 0]);
        // What was read at different moments may contradict itself by a little.
        let all = times([120, 130, 3, 2, 1], 100);
        assert_eq!(all.times.map(|time| time.0), [0, 0, 97, 1, 1, 1]);
    }
}
