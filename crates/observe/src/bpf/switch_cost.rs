//! What the programs take of each context switch here, by the kernel's own count.
//!
//! 120 to 150 ns on the machines this was made on; in an emulated guest it is microseconds, and so it may be where programs are not compiled, or
//! mitigations make their calls dear. Who watches a program that switches often has to know. The kernel counts only while somebody asks it
//! to (`BPF_ENABLE_STATS`), which costs every BPF program of the machine two clock readings a run; so it is asked for some hundreds of runs,
//! once, and only beside a program that does switch often. The two readings are in the answer: it errs upwards.

use gleaner_model::Nanos;
use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats, bpf_prog_get_info_by_fd, bpf_prog_info};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Below this, what a switch costs does not matter.
const SWITCHES_PER_S_MIN: f64 = 2_000.0;
/// So many runs are a sample.
const RUNS_MIN: u64 = 200;

/// Runs and the time they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Runs {
    count: u64,
    ns: u64,
}

#[derive(Debug)]
enum State {
    Unasked,
    /// The kernel counts for as long as this descriptor is open.
    Counting {
        _statistics: OwnedFd,
        from: [Runs; 2],
    },
    Known(Nanos),
    /// The kernel does not tell.
    Refused,
}

/// Asks the kernel, once, when it matters.
#[derive(Debug)]
pub(super) struct SwitchCost {
    /// The programs on switches and on wake-ups.
    programs: [OwnedFd; 2],
    state: State,
}

impl SwitchCost {
    pub(super) fn new(on_switch: &impl AsFd, on_waking: &impl AsFd) -> io::Result<Self> {
        let programs = [on_switch.as_fd().try_clone_to_owned()?, on_waking.as_fd().try_clone_to_owned()?];
        Ok(Self { programs, state: State::Unasked })
    }

    /// CPU time of the programs for each context switch, wake-ups included; `None` while unknown.
    pub(super) fn known(&self) -> Option<Nanos> {
        match self.state {
            State::Known(cost) => Some(cost),
            _ => None,
        }
    }

    /// To be called after each window, with how often the group switched in it.
    pub(super) fn look(&mut self, switches_per_s: f64) {
        let next = match &self.state {
            State::Unasked if switches_per_s >= SWITCHES_PER_S_MIN => self.begin(),
            State::Counting { from, .. } => self.runs().map(|to| of_a_switch(from, &to).map(State::Known)),
            _ => return,
        };
        match next {
            Ok(Some(state)) => self.state = state,
            Ok(None) => {}
            Err(error) => {
                tracing::info!("what BPF costs a switch cannot be told: {error}");
                self.state = State::Refused;
            }
        }
    }

    fn begin(&self) -> io::Result<Option<State>> {
        // SAFETY: the call takes no pointer; it returns a descriptor that is ours alone, or a negative error.
        let statistics = unsafe {
            let fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
            if fd < 0 {
                return Err(io::Error::from_raw_os_error(-fd));
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Some(State::Counting { _statistics: statistics, from: self.runs()? }))
    }

    fn runs(&self) -> io::Result<[Runs; 2]> {
        let mut all = [Runs::default(); 2];
        for (runs, program) in all.iter_mut().zip(&self.programs) {
            let mut info = bpf_prog_info::default();
            let mut size = u32::try_from(size_of::<bpf_prog_info>()).unwrap_or(u32::MAX);
            // SAFETY: both pointers are to locals that outlive the call, and `size` is the first one's.
            let error = unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
            if error < 0 {
                return Err(io::Error::from_raw_os_error(-error));
            }
            *runs = Runs { count: info.run_cnt, ns: info.run_time_ns };
        }
        Ok(all)
    }
}

/// Time of both programs over switches; `None` where there were too few.
fn of_a_switch(from: &[Runs; 2], to: &[Runs; 2]) -> Option<Nanos> {
    let switches = to[0].count.saturating_sub(from[0].count);
    let ns: u64 = from.iter().zip(to).map(|(from, to)| to.ns.saturating_sub(from.ns)).sum();
    (switches >= RUNS_MIN).then(|| Nanos(ns / switches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_are_part_of_a_switch_and_few_switches_say_nothing() {
        let runs = |count, ns| Runs { count, ns };
        let from = [runs(1_000, 5_000_000), runs(70, 3_000)];
        for (to, expected) in [
            ([runs(1_200, 5_024_000), runs(170, 11_000)], Some(Nanos(160))),
            ([runs(1_199, 6_000_000), runs(170, 11_000)], None),
            ([runs(1_000, 5_000_000), runs(70, 3_000)], None),
        ] {
            assert_eq!(of_a_switch(&from, &to), expected, "{to:?}");
        }
    }
}
