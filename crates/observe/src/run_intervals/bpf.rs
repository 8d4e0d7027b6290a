//! The BPF side: loads `run_intervals.bpf.c`, gives threads their slots, reads slots into windows.

use super::competition::Competition;
use super::procfs::Threads;
use super::{IntervalDistribution, Intervals};
use crate::bpf::load::{cpu_numbers, loading};
use crate::{BpfRefusal, ProcRoot};
use gleaner_bpf::{MappedArray, ReadOnly, plain_old_data, refusal};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use skel::RunIntervalsSkelBuilder;
use skel::types::{competition_control, cpu_competition, histogram, watched_thread};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

#[allow(warnings, clippy::all, clippy::pedantic)]
pub(super) mod skel {
    include!(concat!(env!("OUT_DIR"), "/run_intervals.skel.rs"));
}

plain_old_data! {
    histogram { sum_ns, count, buckets, unused }
    watched_thread {
        seq, run_since_ns, off_ns, waking_ns, cpu, phase, burst_ns, unused,
        preempted, slept, bursts, wake_to_run, off_preempted, __pad_14224,
    }
    cpu_competition { competing_ns, last_pid, last_runnable, last_watched, unused }
    competition_control { armed, unused }
}

/// Copies that a busy writer may spoil before a torn one is taken; it is off by one interval.
const MAX_TRIES: u32 = 16;
/// Phases in which a thread is on a CPU or wants one, as in the BPF program.
pub(super) const WANTS_CPU: std::ops::RangeInclusive<u32> = 1..=3;

/// Memory shared with the programs.
#[derive(Debug)]
pub(super) struct Shared {
    pub watched: MappedArray<watched_thread>,
    pub cpus: MappedArray<cpu_competition, ReadOnly>,
    pub control: MappedArray<competition_control>,
    pub ring: MapHandle,
    /// Slot by thread.
    pub slots: Mutex<BTreeMap<i32, u32>>,
    /// Watched threads that found none.
    pub left_out: AtomicUsize,
}

/// The programs in the kernel.
#[derive(Debug)]
pub(super) struct Programs {
    shared: Arc<Shared>,
    slots: MapHandle,
    free: Vec<u32>,
    last: BTreeMap<i32, Box<watched_thread>>,
    _links: Vec<Link>,
}

impl Programs {
    pub fn load(root: &ProcRoot, capacity: usize) -> Result<Self, BpfRefusal> {
        loading(root, || Self::load_now(root, capacity))
    }

    fn load_now(root: &ProcRoot, capacity: usize) -> Result<Self, BpfRefusal> {
        let refuse = |step| move |error: libbpf_rs::Error| refusal(step, &error);
        let possible = cpu_numbers(root).map_err(refuse("counting CPUs"))?;
        let slots = u32::try_from(capacity.clamp(1, 65_536)).unwrap_or(65_536);
        let mut storage = MaybeUninit::uninit();
        let mut open = RunIntervalsSkelBuilder::default().open(&mut storage).map_err(refuse("opening the object"))?;
        let sized = [
            open.maps.slots.set_max_entries(slots),
            open.maps.watched.set_max_entries(slots),
            open.maps.competition.set_max_entries(u32::try_from(possible).unwrap_or(u32::MAX)),
            open.maps.ring.set_max_entries(u32::try_from(rustix::param::page_size()).unwrap_or(4096)),
        ];
        sized.into_iter().collect::<Result<Vec<_>, _>>().map_err(refuse("sizing the maps"))?;
        let skel = open.load().map_err(refuse("loading"))?;
        let maps = &skel.maps;
        let mapped = |what: io::Error| refusal("mapping the maps", &libbpf_rs::Error::from(what));
        let shared = Shared {
            watched: MappedArray::new(&maps.watched, maps.watched.value_size(), slots as usize).map_err(mapped)?,
            cpus: MappedArray::new(&maps.competition, maps.competition.value_size(), possible).map_err(mapped)?,
            control: MappedArray::new(&maps.control, maps.control.value_size(), 1).map_err(mapped)?,
            ring: MapHandle::try_from(&maps.ring).map_err(refuse("keeping the maps"))?,
            slots: Mutex::default(),
            left_out: AtomicUsize::new(0),
        };
        let handle = MapHandle::try_from(&maps.slots).map_err(refuse("keeping the maps"))?;
        let programs = [&skel.progs.on_interval_switch, &skel.progs.on_interval_waking];
        let links = programs.into_iter().map(libbpf_rs::ProgramImpl::attach).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            shared: Arc::new(shared),
            slots: handle,
            free: (0..slots).rev().collect(),
            last: BTreeMap::new(),
            _links: links.map_err(refuse("attaching"))?,
        })
    }

    /// Watches these threads and no others. One that finds no slot is left to `/proc`.
    pub fn watch(&mut self, tids: &[i32]) {
        let mut slots = super::procfs::lock(&self.shared.slots);
        let wanted: BTreeSet<i32> = tids.iter().copied().collect();
        let gone: Vec<i32> = slots.keys().copied().filter(|tid| !wanted.contains(tid)).collect();
        for tid in gone {
            // It is there: only this puts it in and out. A thread's end does not remove it.
            let _ = self.slots.delete(&tid.to_ne_bytes());
            self.free.extend(slots.remove(&tid));
            self.last.remove(&tid);
        }
        let all = wanted.len();
        for tid in wanted {
            if slots.contains_key(&tid) {
                continue;
            }
            let Some(slot) = self.free.pop() else { break };
            // What the thread before left there. The first interval's beginning is unknown, and it is not counted.
            self.shared.watched.write_field(slot as usize, 0, empty());
            if self.slots.update(&tid.to_ne_bytes(), &slot.to_ne_bytes(), MapFlags::ANY).is_err() {
                self.free.push(slot);
                continue;
            }
            slots.insert(tid, slot);
            self.last.insert(tid, Box::new(empty()));
        }
        self.shared.left_out.store(all - slots.len(), Ordering::Relaxed);
    }

    /// Watched threads that found no slot.
    pub fn left_out(&self) -> usize {
        self.shared.left_out.load(Ordering::Relaxed)
    }

    /// What one thread did since the last call; `None` when it is not watched here.
    pub fn intervals(&mut self, tid: i32) -> Option<Intervals> {
        let slot = *super::procfs::lock(&self.shared.slots).get(&tid)?;
        let last = self.last.get_mut(&tid)?;
        let now = read_whole(&self.shared.watched, slot as usize);
        let intervals = Intervals {
            preempted: difference(&now.preempted, &last.preempted),
            slept: difference(&now.slept, &last.slept),
            bursts: difference(&now.bursts, &last.bursts),
            wake_to_run: difference(&now.wake_to_run, &last.wake_to_run),
            off_preempted: difference(&now.off_preempted, &last.off_preempted),
        };
        **last = now;
        Some(intervals)
    }

    pub fn competition(&self, threads: Arc<Mutex<Threads>>) -> io::Result<Competition> {
        Competition::of_bpf(Arc::clone(&self.shared), self.shared.ring.as_fd().try_clone_to_owned()?, threads)
    }
}

fn empty() -> watched_thread {
    watched_thread::default()
}

fn read_whole(watched: &MappedArray<watched_thread>, slot: usize) -> watched_thread {
    let seq = || watched.read_field::<u64>(slot, offset_of!(watched_thread, seq));
    for _ in 0..MAX_TRIES {
        let before = seq();
        fence(Ordering::Acquire);
        let copy = watched.read(slot);
        fence(Ordering::Acquire);
        if before.is_multiple_of(2) && seq() == before {
            return copy;
        }
        std::hint::spin_loop();
    }
    watched.read(slot)
}

fn difference(now: &histogram, last: &histogram) -> IntervalDistribution {
    if now.count == last.count {
        return IntervalDistribution::default();
    }
    let counts = now.buckets.iter().zip(&last.buckets).map(|(now, last)| u64::from(now.wrapping_sub(*last)));
    IntervalDistribution::from_buckets(counts, now.sum_ns.wrapping_sub(last.sum_ns))
}
