//! What handing a CPU from one thread to another costs: the switch itself, and the caches that the other must fill
//! again.
//!
//! Method, that of lmbench's lat_ctx: two threads bound to one CPU hand a byte to and fro through two pipes, and each
//! reads a working set of its own at every turn. From the time of a turn is taken what one thread alone needs for the
//! same pipe calls and the same working set, all warm. What is left is the switch, and for larger working sets the
//! refill: the paper's indirect cost (section III, "the pollution of architectural structures").
//!
//! On a host at work others want the CPU too. So a batch is short, shorter than a slice, and the two things that are
//! subtracted are measured one right after the other; the median of their differences counts.

use gleaner_model::{Nanos, VcpuId};
use gleaner_sys::{affinity_of, set_affinity};
use rustix::io::{read, write};
use rustix::pipe::pipe;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Working sets: none, within the first cache, within the second, beyond it.
const SIZES: [usize; 4] = [0, 16 << 10, 256 << 10, 2 << 20];
/// Most turns in a batch, and how long it should take; the median of the batches counts.
const MOST_TURNS: u32 = 50;
const BATCH: Duration = Duration::from_micros(300);
const BATCHES: usize = 200;
/// Time for one size, however slow the machine is.
const LONGEST: Duration = Duration::from_millis(500);
/// Bytes that come into a cache together.
const LINE: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchCost {
    /// The CPU it was measured on.
    pub pcpu: u32,
    /// By working set of each of the two threads, ascending; the first is without. A size of which the cost could not
    /// be told from the noise is left out.
    pub by_working_set: Vec<RefillCost>,
}

/// For one size of working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillCost {
    /// Bytes that each thread reads at every turn.
    pub bytes: u64,
    /// Batches measured.
    pub n: u64,
    /// Of a switch and what it makes the thread fetch again, median.
    pub p50: Nanos,
    /// 95th percentile of the batches.
    pub p95: Nanos,
}

/// Measures it on the last CPU that this process may use; takes about two seconds. `None` when it was stopped, or
/// threads cannot be bound or started.
pub fn switch_and_refill(stop: &AtomicBool) -> Option<SwitchCost> {
    let cpu = affinity_of(0).ok()?.iter().next_back()?;
    let mut by_working_set = Vec::new();
    for bytes in SIZES {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        by_working_set.extend(measure(cpu, bytes));
    }
    // Without the bare switch the others say nothing.
    by_working_set.first().filter(|first| first.bytes == 0)?;
    Some(SwitchCost { pcpu: cpu.0, by_working_set })
}

fn measure(cpu: VcpuId, bytes: usize) -> Option<RefillCost> {
    // A thread of its own, so that the caller stays where it is allowed to be.
    let measured = thread::Builder::new().spawn(move || {
        bind(cpu)?;
        let mut costs = differences(&Alone::new(bytes)?, &PingPong::new(cpu, bytes)?)?;
        costs.sort_unstable();
        let at = |percent: usize| u64::try_from(*costs.get((costs.len() * percent / 100).min(costs.len() - 1))?).ok();
        let cost = |percent| at(percent).filter(|ns| *ns > 0).map(Nanos);
        Some(RefillCost { bytes: bytes as u64, n: costs.len() as u64, p50: cost(50)?, p95: cost(95)? })
    });
    measured.ok()?.join().ok().flatten()
}

/// Nanoseconds that a switch takes beyond what the same work takes one thread, a figure a batch.
fn differences(alone: &Alone, handing: &PingPong) -> Option<Vec<i64>> {
    // The first turns start the partner and fetch what will be warm.
    let first = batch(handing, 2)? / 2;
    let turns = u32::try_from(BATCH.as_nanos()).unwrap_or(u32::MAX) / u32::try_from(first.max(1)).unwrap_or(u32::MAX);
    let turns = turns.clamp(1, MOST_TURNS);
    let end = Instant::now() + LONGEST;
    let mut costs = Vec::new();
    while costs.len() < BATCHES && (costs.is_empty() || Instant::now() < end) {
        // A turn is there and back: two switches, two working sets, two pairs of pipe calls.
        let handed = batch(handing, turns)? / (2 * i64::from(turns));
        costs.push(handed - batch(alone, turns)? / i64::from(turns));
    }
    Some(costs)
}

/// Nanoseconds of so many turns, after one that does not count: whoever went before had the caches.
fn batch(turn: &impl Turn, turns: u32) -> Option<i64> {
    if !turn.take() {
        return None;
    }
    let began = Instant::now();
    for _ in 0..turns {
        if !turn.take() {
            return None;
        }
    }
    i64::try_from(began.elapsed().as_nanos()).ok()
}

trait Turn {
    /// Whether it could be taken.
    fn take(&self) -> bool;
}

/// One thread that hands the byte to itself.
struct Alone {
    set: WorkingSet,
    pipe: (OwnedFd, OwnedFd),
}

impl Alone {
    fn new(bytes: usize) -> Option<Self> {
        Some(Self { set: WorkingSet::new(bytes), pipe: pipe().ok()? })
    }
}

impl Turn for Alone {
    fn take(&self) -> bool {
        self.set.read();
        hand(&self.pipe.1) && wait(&self.pipe.0)
    }
}

/// Two threads on one CPU.
struct PingPong {
    set: WorkingSet,
    /// Taken at the end: the partner then reads the end of its pipe.
    to: Option<OwnedFd>,
    from: OwnedFd,
    partner: Option<thread::JoinHandle<()>>,
}

impl PingPong {
    fn new(cpu: VcpuId, bytes: usize) -> Option<Self> {
        let (partner_from, to) = pipe().ok()?;
        let (from, partner_to) = pipe().ok()?;
        let body = move || {
            let set = WorkingSet::new(bytes);
            if bind(cpu).is_none() {
                return;
            }
            while wait(&partner_from) {
                set.read();
                if !hand(&partner_to) {
                    break;
                }
            }
        };
        let partner = thread::Builder::new().spawn(body).ok()?;
        Some(Self { set: WorkingSet::new(bytes), to: Some(to), from, partner: Some(partner) })
    }
}

impl Turn for PingPong {
    fn take(&self) -> bool {
        self.set.read();
        self.to.as_ref().is_some_and(hand) && wait(&self.from)
    }
}

impl Drop for PingPong {
    fn drop(&mut self) {
        self.to = None;
        if let Some(partner) = self.partner.take() {
            let _ = partner.join();
        }
    }
}

fn hand(to: &OwnedFd) -> bool {
    write(to, b"x").is_ok()
}

fn wait(from: &OwnedFd) -> bool {
    let mut byte = [0];
    matches!(read(from, &mut byte), Ok(1))
}

fn bind(cpu: VcpuId) -> Option<()> {
    set_affinity(0, &std::iter::once(cpu).collect()).ok()
}

/// Memory read a line at a time, in an order that prefetchers follow: a refill at its cheapest.
struct WorkingSet(Vec<u8>);

impl WorkingSet {
    fn new(bytes: usize) -> Self {
        // Written, so that every page is there.
        Self(vec![1; bytes])
    }

    fn read(&self) {
        let sum = self.0.iter().step_by(LINE).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        std::hint::black_box(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_costs_something_on_this_machine() {
        let cost = switch_and_refill(&AtomicBool::new(false)).expect("two threads on one CPU");
        // A size may be missing where others take the CPU all the time, the bare switch never.
        assert_eq!(cost.by_working_set[0].bytes, 0, "{cost:?}");
        assert!(cost.by_working_set.is_sorted_by_key(|cost| cost.bytes), "{cost:?}");
        for cost in &cost.by_working_set {
            assert!(cost.n > 0 && cost.p50 <= cost.p95, "{cost:?}");
        }
    }

    #[test]
    fn stopped_is_not_measured() {
        assert_eq!(switch_and_refill(&AtomicBool::new(true)), None);
    }
}
