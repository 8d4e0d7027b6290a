//! How many system calls a few processes make, for as long as somebody compares places where they may run.
//!
//! `system_calls.bpf.c` says why. While this is loaded every system call of the machine costs some 50 ns more, so it is
//! loaded for a trial alone.

use crate::BpfRefusal;
use crate::bpf::load::loading;
use crate::bpf::processes::Processes;
use gleaner_bpf::{MappedArray, plain_old_data, refusal};
use gleaner_model::{Nanos, SystemCalls};
use gleaner_sys::{ProcRoot, possible_cpus};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapHandle};
use skel::SystemCallsSkelBuilder;
use skel::types::call_counts;
use std::mem::MaybeUninit;
use std::time::Instant;

#[allow(warnings, clippy::all, clippy::pedantic)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/system_calls.skel.rs"));
}

plain_old_data! {
    call_counts { steady, lock_waits, wakes, waits_at, __pad_536 }
}

/// Calls that are timed at once, and how often: the shortest time was not interrupted.
const TIMED: u32 = 50;
const TIMES: u32 = 5;

/// How long a system call takes that does nothing.
fn a_call() -> Nanos {
    let timed = || {
        let begun = Instant::now();
        for _ in 0..TIMED {
            std::hint::black_box(rustix::process::getppid());
        }
        Nanos::from(begun.elapsed() / TIMED)
    };
    (0..TIMES).map(|_| timed()).min().unwrap_or(Nanos::ZERO)
}

/// The program in the kernel, from [`SystemCallCounter::open`] until this is retired.
#[derive(Debug)]
pub struct SystemCallCounter {
    counts: MappedArray<call_counts>,
    processes: Processes,
    last: SystemCalls,
    /// What a call takes longer for being counted.
    counting: Nanos,
    _link: Link,
}

impl SystemCallCounter {
    /// Loads and attaches it. Nobody's calls count before [`Self::follow`].
    pub fn open(root: &ProcRoot) -> Result<Self, BpfRefusal> {
        loading(root, || Self::load(root))
    }

    fn load(root: &ProcRoot) -> Result<Self, BpfRefusal> {
        let refuse = |step| move |error: libbpf_rs::Error| refusal(step, &error);
        let cpus = possible_cpus(root).and_then(|cpus| cpus.iter().next_back()).map_or(1, |last| last.0 + 1);
        let mut storage = MaybeUninit::uninit();
        let mut open = SystemCallsSkelBuilder::default().open(&mut storage).map_err(refuse("opening the object"))?;
        open.maps.call_counts.set_max_entries(cpus).map_err(refuse("sizing the maps"))?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
            constants.nr_futex = number(libc::SYS_futex);
            constants.nr_sched_yield = number(libc::SYS_sched_yield);
            constants.nr_nanosleep = number(libc::SYS_nanosleep);
            constants.nr_clock_nanosleep = number(libc::SYS_clock_nanosleep);
        }
        let skel = open.load().map_err(refuse("loading"))?;
        let maps = &skel.maps;
        let mapped = |what: std::io::Error| refusal("mapping the maps", &libbpf_rs::Error::from(what));
        let counts = MappedArray::new(&maps.call_counts, maps.call_counts.value_size(), cpus as usize);
        let processes = MapHandle::try_from(&maps.processes).map_err(refuse("keeping a map"))?;
        let uncounted = a_call();
        let link = libbpf_rs::ProgramImpl::attach(&skel.progs.on_system_call).map_err(refuse("attaching"))?;
        let mut new = Self {
            counts: counts.map_err(mapped)?,
            processes: Processes::new(processes),
            last: SystemCalls::default(),
            counting: Nanos::ZERO,
            _link: link,
        };
        new.follow(&[rustix::process::getpid().as_raw_nonzero().get()]);
        new.counting = Nanos(a_call().0.saturating_sub(uncounted.0));
        new.follow(&[]);
        new.since_last();
        Ok(new)
    }

    /// From now on the calls of these processes count, and of no others.
    pub fn follow(&mut self, processes: &[i32]) {
        self.processes.set(processes);
    }

    /// Calls since this was asked last.
    pub fn since_last(&mut self) -> SystemCalls {
        let mut now = SystemCalls::default();
        for cpu in 0..self.counts.len() {
            let counts = self.counts.read(cpu);
            let waits_at = (0..).zip(counts.waits_at).filter(|(_, waits)| *waits > 0).collect();
            let call_counts { steady, lock_waits, wakes, .. } = counts;
            now += SystemCalls { steady, lock_waits, wakes, waits_at, counting: self.counting };
        }
        let last = std::mem::replace(&mut self.last, now.clone());
        now.since(&last)
    }

    /// Ends it without waiting for it: see [`crate::Observer::retire`].
    pub fn retire(self) {
        gleaner_sys::drop_aside(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_yields_or_sleeps_does_no_work() {
        let Ok(mut counter) = SystemCallCounter::open(&ProcRoot::default()) else {
            gleaner_testing::skip!("needs BPF");
        };
        counter.follow(&[rustix::process::getpid().as_raw_nonzero().get()]);
        counter.since_last();
        for _ in 0..1_000 {
            std::hint::black_box(rustix::process::getppid());
            (0..5).for_each(|_| std::thread::yield_now());
        }
        (0..1_000).for_each(|_| std::thread::sleep(std::time::Duration::from_nanos(1)));
        let steady = counter.since_last().steady;
        assert!((1_000..2_000).contains(&steady), "{steady} of 7,000 calls");
    }
}
