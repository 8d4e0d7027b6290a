//! Where watched threads compete for a CPU now.
//!
//! With BPF: on which CPUs one of them, or another beside one of them, was left able to run within the last moments. It is
//! read from shared memory, and while nobody competes the kernel tells when that changes. With `/proc`: CPUs on which two or
//! more of them are in state R, looked at now and then.

use super::bpf::{Shared, WANTS_CPU, skel::types};
use super::procfs::{Threads, lock};
use crate::bpf::busy::Ring;
use crate::bpf::reader::now_ns;
use gleaner_model::Nanos;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Competition that was seen this long ago is still going on: longer than threads of two long slices take to show it again
/// would be too long, and shorter would miss them.
const RECENT: Nanos = Nanos::from_millis(10);
/// Between two looks at `/proc`, and as many times as long as one look takes.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_SHARE: u32 = 50;

/// A CPU that is competed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompetingThreads {
    /// Its number.
    pub cpu: u32,
    /// The watched threads that want it, one at least.
    pub tids: Vec<i32>,
}

/// A view of where watched threads compete. Belongs to the thread that asks.
#[derive(Debug)]
pub struct Competition(Kind);

#[derive(Debug)]
enum Kind {
    Bpf { shared: Arc<Shared>, ring: Ring },
    Procfs { threads: Arc<Mutex<Threads>>, next: Instant, found: Vec<CompetingThreads> },
}

impl Competition {
    pub(super) fn of_bpf(shared: Arc<Shared>, ring: OwnedFd) -> io::Result<Self> {
        Ok(Self(Kind::Bpf { shared, ring: Ring::new(ring)? }))
    }

    pub(super) fn of_procfs(threads: Arc<Mutex<Threads>>) -> Self {
        Self(Kind::Procfs { threads, next: Instant::now(), found: Vec::new() })
    }

    /// The CPUs competed for now. While there is none, waits for one, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Vec<CompetingThreads> {
        match &mut self.0 {
            Kind::Bpf { shared, ring } => wait_bpf(shared, ring, limit),
            Kind::Procfs { threads, next, found } => wait_procfs(threads, next, found, limit),
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

fn wait_procfs(
    threads: &Mutex<Threads>,
    next: &mut Instant,
    found: &mut Vec<CompetingThreads>,
    limit: Duration,
) -> Vec<CompetingThreads> {
    let end = Instant::now() + limit;
    loop {
        let now = Instant::now();
        if now >= *next {
            *found = lock(threads).competing();
            *next = now + LOOK_EVERY.max(now.elapsed() * LOOK_SHARE);
        }
        if !found.is_empty() || now >= end {
            return found.clone();
        }
        std::thread::sleep((*next).min(end).saturating_duration_since(Instant::now()));
    }
}
