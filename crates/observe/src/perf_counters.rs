//! What a thread does with the last-level cache, by the processor's own counters (perf_event_open), guests' time
//! included.
//!
//! Three figures a thread: instructions, accesses that reach the last level, those that miss it. Which events these are
//! depends on the maker. The kernel's generic `cache-references` and `cache-misses` are about the last level on Intel's
//! processors, and about the
//! *second* on AMD's since Zen, whose L3 has counters of its own that know no threads. There the accesses are the
//! misses of the L2, and the misses are the lines that came from memory (`ls_any_fills_from_sys.dram_io_all`, since Zen
//! 3; before, nothing tells).
//!
//! Where the processor has fewer counters than are asked for, the kernel takes turns; figures are scaled by the share
//! of the time that was counted.

use gleaner_sys::ProcRoot;
use perf_event::events::{Hardware, Raw};
use perf_event::{Builder, Counter, ReadFormat};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Lines that came from memory, near or far: PMCx044, unit mask 0x48 (AMD family 19h and later).
const AMD_FILLS_FROM_MEMORY: u64 = 0x4844;

/// Why nothing can be counted.
#[derive(Debug, thiserror::Error)]
pub enum LlcCounterRefusal {
    /// The processor, or what this virtual machine is shown of it, has no counters.
    #[error("the processor has no counters here (in a VM: its hypervisor shows none)")]
    NoCounters,
    /// There are counters, and none for the last level's misses by thread.
    #[error(
        "this processor cannot count a thread's misses of the last level (AMD before Zen 3: its L3 counters know no threads)"
    )]
    NoLlcEvents,
    /// Privilege is missing.
    #[error(
        "counting other processes' threads is not allowed (kernel.perf_event_paranoid; it needs root or CAP_PERFMON)"
    )]
    NotAllowed,
    /// A counter that is a file is not there, or has something else in it.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Anything else.
    #[error("perf_event_open: {0}")]
    Other(io::Error),
}

/// A thread that is there and is not counted.
#[derive(Debug)]
pub struct NotCounted {
    /// Which.
    pub tid: i32,
    /// Why.
    pub why: LlcCounterRefusal,
}

/// Counts what threads do with the last level.
pub trait LlcCountSource: Debug {
    /// Counts exactly these threads from now on; those that are counted already go on. One that is refused does not
    /// keep the others from being counted, and is tried again at the next call; one that is gone is no refusal.
    fn follow(&mut self, tids: &[i32]) -> Vec<NotCounted>;

    /// What a thread did since its last reading; `None` if it is not followed, or was never counted in that time.
    fn read(&mut self, tid: i32) -> Option<LlcThreadCounts>;
}

/// One thread's figures since the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LlcThreadCounts {
    /// Instructions executed, in the guest and for it.
    pub instructions: u64,
    /// CPU cycles.
    pub cycles: u64,
    /// Accesses that reached the last level.
    pub accesses: u64,
    /// Those of them that missed.
    pub misses: u64,
}

impl std::ops::AddAssign for LlcThreadCounts {
    fn add_assign(&mut self, more: Self) {
        self.instructions = self.instructions.saturating_add(more.instructions);
        self.cycles = self.cycles.saturating_add(more.cycles);
        self.accesses = self.accesses.saturating_add(more.accesses);
        self.misses = self.misses.saturating_add(more.misses);
    }
}

/// Which events the last level's figures are on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LlcEvents {
    /// The kernel's generic ones.
    Generic,
    /// AMD's since Zen 3.
    AmdFills,
}

impl LlcEvents {
    /// By `/proc/cpuinfo`.
    fn of(cpuinfo: &str) -> Result<Self, LlcCounterRefusal> {
        let field = |name: &str| {
            let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
        };
        let family: u32 = field("cpu family").and_then(|family| family.parse().ok()).unwrap_or(0);
        match field("vendor_id") {
            Some("AuthenticAMD") if family >= 0x19 => Ok(Self::AmdFills),
            Some("AuthenticAMD" | "HygonGenuine") if family >= 0x17 => Err(LlcCounterRefusal::NoLlcEvents),
            _ => Ok(Self::Generic),
        }
    }
}

/// One thread's counters, read together.
#[derive(Debug)]
struct ThreadGroup {
    /// Instructions; leads the group.
    leader: Counter,
    cycles: Counter,
    accesses: Counter,
    misses: Counter,
    last: Reading,
}

/// Values since the counters were opened, and for how long they were wanted and counted.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    values: [u64; 4],
    enabled_ns: u64,
    running_ns: u64,
}

/// The counters of a set of threads.
#[derive(Debug)]
pub struct LlcCounters {
    events: LlcEvents,
    threads: BTreeMap<i32, ThreadGroup>,
}

impl LlcCounters {
    /// None yet; tries the events on the calling thread.
    ///
    /// # Errors
    /// Why nothing can be counted here.
    pub fn new(root: &ProcRoot) -> Result<Self, LlcCounterRefusal> {
        let cpuinfo = fs::read_to_string(root.proc.join("cpuinfo")).unwrap_or_default();
        let events = LlcEvents::of(&cpuinfo)?;
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        open(events, own).map_err(refusal)?;
        Ok(Self { events, threads: BTreeMap::new() })
    }
}

impl LlcCountSource for LlcCounters {
    fn follow(&mut self, tids: &[i32]) -> Vec<NotCounted> {
        self.threads.retain(|tid, _| tids.contains(tid));
        let mut refused = Vec::new();
        for tid in tids {
            if !self.threads.contains_key(tid) {
                match open(self.events, *tid) {
                    Ok(group) => drop(self.threads.insert(*tid, group)),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => refused.push(NotCounted { tid: *tid, why: refusal(error) }),
                }
            }
        }
        refused
    }

    fn read(&mut self, tid: i32) -> Option<LlcThreadCounts> {
        let group = self.threads.get_mut(&tid)?;
        let now = group.read().ok()?;
        let since = std::mem::replace(&mut group.last, now);
        let [instructions, cycles, accesses, misses] = difference(&since, &now)?;
        Some(LlcThreadCounts { instructions, cycles, accesses, misses })
    }
}

fn open(events: LlcEvents, tid: i32) -> io::Result<ThreadGroup> {
    let accesses_and_misses = match events {
        LlcEvents::Generic => [Builder::new(Hardware::CACHE_REFERENCES), Builder::new(Hardware::CACHE_MISSES)],
        LlcEvents::AmdFills => [Builder::new(Hardware::CACHE_MISSES), Builder::new(Raw::new(AMD_FILLS_FROM_MEMORY))],
    };
    let [accesses, misses] = accesses_and_misses;
    let all = [Builder::new(Hardware::INSTRUCTIONS), Builder::new(Hardware::CPU_CYCLES), accesses, misses];
    ThreadGroup::open(tid, all)
}

impl ThreadGroup {
    fn open(tid: i32, builders: [Builder<'static>; 4]) -> io::Result<Self> {
        let [mut instructions, cycles, accesses, misses] = builders;
        // A guest's kernel counts as kernel.
        let format = ReadFormat::GROUP | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        instructions.observe_pid(tid).any_cpu().include_kernel().include_hv().read_format(format);
        let mut leader = instructions.build()?;
        let mut member = |mut builder: Builder<'static>| {
            builder.observe_pid(tid).any_cpu().include_kernel().include_hv().enabled(true);
            builder.build_with_group(&mut leader)
        };
        let (cycles, accesses, misses) = (member(cycles)?, member(accesses)?, member(misses)?);
        leader.enable_group()?;
        Ok(Self { leader, cycles, accesses, misses, last: Reading::default() })
    }

    fn read(&mut self) -> io::Result<Reading> {
        let data = self.leader.read_group()?;
        let value = |counter: &Counter| data.get(counter).map_or(0, |entry| entry.value());
        let ns = |time: Option<std::time::Duration>| {
            time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        Ok(Reading {
            values: [value(&self.leader), value(&self.cycles), value(&self.accesses), value(&self.misses)],
            enabled_ns: ns(data.time_enabled()),
            running_ns: ns(data.time_running()),
        })
    }
}

/// What was counted between two readings, as if it had been counted all the time; `None` if it never was although the
/// thread ran.
fn difference(from: &Reading, to: &Reading) -> Option<[u64; 4]> {
    let (enabled, running) =
        (to.enabled_ns.saturating_sub(from.enabled_ns), to.running_ns.saturating_sub(from.running_ns));
    if running == 0 {
        // It did not run, or others had the counters all the while.
        return (enabled == 0).then_some([0; 4]);
    }
    let scale = |counted: u64| {
        let scaled = u128::from(counted) * u128::from(enabled.max(running)) / u128::from(running);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    };
    let mut counted = [0; 4];
    for (counted, (from, to)) in counted.iter_mut().zip(from.values.iter().zip(&to.values)) {
        *counted = scale(to.saturating_sub(*from));
    }
    Some(counted)
}

fn refusal(error: io::Error) -> LlcCounterRefusal {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENOSYS) => LlcCounterRefusal::NoCounters,
        Some(libc::EACCES | libc::EPERM) => LlcCounterRefusal::NotAllowed,
        _ => LlcCounterRefusal::Other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;

    #[test]
    fn the_makers_events() {
        let cpuinfo = |vendor: &str, family: u32| {
            format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 1\n")
        };
        for (text, expected) in [
            (cpuinfo("GenuineIntel", 6), Some(LlcEvents::Generic)),
            (cpuinfo("AuthenticAMD", 0x15), Some(LlcEvents::Generic)),
            (cpuinfo("AuthenticAMD", 0x17), None),
            (cpuinfo("HygonGenuine", 0x18), None),
            (cpuinfo("AuthenticAMD", 0x19), Some(LlcEvents::AmdFills)),
            (cpuinfo("AuthenticAMD", 0x1a), Some(LlcEvents::AmdFills)),
            // ARM's file names no vendor.
            ("processor\t: 0\nCPU implementer\t: 0x41\n".into(), Some(LlcEvents::Generic)),
            (String::new(), Some(LlcEvents::Generic)),
        ] {
            assert_eq!(LlcEvents::of(&text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn figures_are_scaled_by_the_time_that_was_counted() {
        let reading = |values, enabled_ns, running_ns| Reading { values, enabled_ns, running_ns };
        let from = reading([100, 10, 4, 0], 1000, 500);
        for (to, expected) in [
            (reading([200, 20, 8, 1], 2000, 1500), Some([100, 10, 4, 1])),
            (reading([200, 20, 8, 1], 2000, 750), Some([400, 40, 16, 4])),
            // It slept.
            (reading([100, 10, 4, 0], 1000, 500), Some([0; 4])),
            // It ran, and was never counted.
            (reading([100, 10, 4, 0], 3000, 500), None),
            (reading([u64::MAX; 4], u64::MAX, 501), Some([u64::MAX; 4])),
        ] {
            assert_eq!(difference(&from, &to), expected, "{to:?}");
        }
    }

    #[test]
    fn a_threads_group_is_read_together() {
        // The kernel's own events stand in for the processor's, which the machines that tests run on do not have.
        let software = [Software::TASK_CLOCK, Software::CPU_CLOCK, Software::PAGE_FAULTS, Software::CONTEXT_SWITCHES];
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let mut group = ThreadGroup::open(own, software.map(Builder::new)).unwrap();
        let before = group.read().unwrap();
        let mut work = vec![0_u8; 1 << 20];
        work.iter_mut().enumerate().for_each(|(at, byte)| *byte = u8::try_from(at % 251).unwrap());
        std::hint::black_box(&work);
        std::thread::sleep(std::time::Duration::from_millis(1));
        let after = group.read().unwrap();
        let [clock, _, faults, switches] = difference(&before, &after).unwrap();
        assert!(clock > 0 && faults > 10 && switches > 0, "{before:?} {after:?}");
    }

    #[test]
    fn here_it_counts_or_says_why_not() {
        match LlcCounters::new(&ProcRoot::default()) {
            Ok(mut counters) => {
                let own = rustix::thread::gettid().as_raw_nonzero().get();
                assert_eq!(counters.follow(&[own, i32::MAX]).len(), 0);
                std::hint::black_box((0..100_000_u64).fold(0, |sum, n| sum ^ (n * n)));
                let counts = counters.read(own).unwrap();
                assert!(counts.instructions > 100_000, "{counts:?}");
                assert_eq!(counters.read(i32::MAX), None);
                counters.follow(&[]);
                assert_eq!(counters.read(own), None);
            }
            Err(why) => assert!(!matches!(why, LlcCounterRefusal::Other(_)), "{why}"),
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        for (errno, word) in
            [(libc::ENOENT, "no counters"), (libc::EACCES, "not allowed"), (libc::EMFILE, "open files")]
        {
            let text = refusal(io::Error::from_raw_os_error(errno)).to_string();
            assert!(text.contains(word), "{text}");
        }
    }
}
