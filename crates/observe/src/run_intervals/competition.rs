//! Where watched threads compete for a CPU now.
//!
//! With BPF: on which CPUs one of them, or another beside one of them, was left able to run within the last moments. It
//! is read from shared memory, and while nobody competes the kernel tells when that changes. With `/proc`: CPUs on
//! which two or more of them are in state R, looked at now and then; so too, besides, with BPF and more threads than it
//! has room for.

use super::bpf::{Shared, WANTS_CPU, skel::types};
use super::procfs::{Threads, lock};
use crate::bpf::busy::Ring;
use crate::bpf::reader::now_ns;
use gleaner_model::Nanos;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Competition that was seen this long ago is still going on: longer than threads of two long slices take to show it
/// again would be too long, and shorter would miss them.
const RECENT: Nanos = Nanos::from_millis(10);
/// Between two looks at `/proc`, and as many times as long as one look takes.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_SHARE: u32 = 50;

/// A CPU that is competed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompetingThreads {
    pub cpu: u32,
    /// The watched threads that want it, one at least.
    pub tids: Vec<i32>,
}

/// A view of where watched threads compete. Belongs to the thread that asks.
#[derive(Debug)]
pub struct Competition(Kind);

#[derive(Debug)]
enum Kind {
    Bpf { shared: Arc<Shared>, ring: Ring, look: ProcfsLook },
    Procfs(ProcfsLook),
}

/// What `/proc` said at the last look.
#[derive(Debug)]
struct ProcfsLook {
    threads: Arc<Mutex<Threads>>,
    next: Instant,
    found: Vec<CompetingThreads>,
}

impl Competition {
    pub(super) fn of_bpf(shared: Arc<Shared>, ring: OwnedFd, threads: Arc<Mutex<Threads>>) -> io::Result<Self> {
        Ok(Self(Kind::Bpf { shared, ring: Ring::new(ring)?, look: ProcfsLook::new(threads) }))
    }

    pub(super) fn of_procfs(threads: Arc<Mutex<Threads>>) -> Self {
        Self(Kind::Procfs(ProcfsLook::new(threads)))
    }

    /// The CPUs competed for now. While there is none, waits for one, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Vec<CompetingThreads> {
        match &mut self.0 {
            Kind::Bpf { shared, ring, .. } if shared.left_out.load(Ordering::Relaxed) == 0 => {
                wait_bpf(shared, ring, limit)
            }
            Kind::Bpf { shared, look, .. } => {
                let seen = competing(shared);
                // Not for longer than between two looks: what BPF sees meanwhile is asked for next.
                let limit = if seen.is_empty() { limit.min(LOOK_EVERY) } else { Duration::ZERO };
                merged(seen, look.wait(limit))
            }
            Kind::Procfs(look) => look.wait(limit),
        }
    }
}

fn wait_bpf(shared: &Shared, ring: &Ring, limit: Duration) -> Vec<CompetingThreads> {
    if limit.is_zero() {
        return competing(shared);
    }
    ring.drain();
    let armed = |armed: u32| shared.control.write_field(0, offset_of!(types::competition_control, armed), armed);
    armed(1);
    // The program must see the flag before the CPUs are looked at, or competition that starts in between is missed.
    fence(Ordering::SeqCst);
    let found = competing(shared);
    if !found.is_empty() {
        armed(0);
        return found;
    }
    let mut fds = [PollFd::new(ring.fd(), PollFlags::IN)];
    // A signal ends the wait early, as a time-out would.
    let _ = poll(&mut fds, Timespec::try_from(limit).ok().as_ref());
    armed(0);
    competing(shared)
}

fn competing(shared: &Shared) -> Vec<CompetingThreads> {
    let since = now_ns().saturating_sub(RECENT.0);
    let is_competed_for = |cpu: u32| {
        let at: u64 = shared.cpus.read_field(cpu as usize, offset_of!(types::cpu_competition, competing_ns));
        at > since
    };
    let mut found: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
    for (tid, slot) in lock(&shared.slots).iter() {
        let cpu: u32 = shared.watched.read_field(*slot as usize, offset_of!(types::watched_thread, cpu));
        let phase: u32 = shared.watched.read_field(*slot as usize, offset_of!(types::watched_thread, phase));
        if WANTS_CPU.contains(&phase) && (cpu as usize) < shared.cpus.len() && is_competed_for(cpu) {
            found.entry(cpu).or_default().push(*tid);
        }
    }
    found.into_iter().map(|(cpu, tids)| CompetingThreads { cpu, tids }).collect()
}

impl ProcfsLook {
    fn new(threads: Arc<Mutex<Threads>>) -> Self {
        Self { threads, next: Instant::now(), found: Vec::new() }
    }

    fn wait(&mut self, limit: Duration) -> Vec<CompetingThreads> {
        let end = Instant::now() + limit;
        loop {
            let now = Instant::now();
            if now >= self.next {
                self.found = lock(&self.threads).competing();
                self.next = now + LOOK_EVERY.max(now.elapsed() * LOOK_SHARE);
            }
            if !self.found.is_empty() || now >= end {
                return self.found.clone();
            }
            std::thread::sleep(self.next.min(end).saturating_duration_since(Instant::now()));
        }
    }
}

/// Both together, each CPU and each thread once.
fn merged(some: Vec<CompetingThreads>, others: Vec<CompetingThreads>) -> Vec<CompetingThreads> {
    let mut by_cpu: BTreeMap<u32, BTreeSet<i32>> = BTreeMap::new();
    for CompetingThreads { cpu, tids } in some.into_iter().chain(others) {
        by_cpu.entry(cpu).or_default().extend(tids);
    }
    by_cpu.into_iter().map(|(cpu, tids)| CompetingThreads { cpu, tids: tids.into_iter().collect() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_saw_is_merged() {
        let at = |cpu, tids: &[i32]| CompetingThreads { cpu, tids: tids.to_vec() };
        let both = merged(vec![at(3, &[5, 7]), at(1, &[2])], vec![at(3, &[6, 5]), at(8, &[9])]);
        assert_eq!(both, [at(1, &[2]), at(3, &[5, 6, 7]), at(8, &[9])]);
    }
}
