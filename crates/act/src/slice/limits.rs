//! What would starve the machine, and so is refused; and whether the kernel enforces slices by itself.

use super::fifo::enter_fifo;
use super::{RtThrottling, SLICE_RANGE, SliceSupport};
use gleaner_model::{Nanos, VcpuId};
use gleaner_sys::{affinity_of, monotonic as now, set_affinity};
use rustix::thread::sched_yield;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Yields in a batch of the measurement, and batches; the fastest batch counts.
const YIELDS: u64 = 50;
const BATCHES: u64 = 20;
/// Most time the measurement may take.
const LONGEST_MEASUREMENT: Nanos = Nanos::from_millis(100);

/// Why a slice is not set or not enforced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceRefusal {
    /// The kernel would not take it either.
    #[error("a slice of {0} is out of range: from {min} to {max}", min = SLICE_RANGE.start(), max = SLICE_RANGE.end())]
    OutOfRange(Nanos),
    /// Real-time threads could take a whole CPU for ever.
    #[error(
        "real-time throttling is off (kernel.sched_rt_runtime_us = {runtime}, sched_rt_period_us = {period}): the ticker that ends such a \
         slice, if it went wrong, could take its CPU for ever; set it, for example with `{advice}`, or do not enforce (--no-enforce)",
        runtime = .0.runtime_us, period = .0.period_us, advice = .0.turn_on()
    )]
    NoThrottling(RtThrottling),
    /// The CPU would do nothing but switch.
    #[error(
        "a slice of {slice} is shorter than the two switches that end it: one takes {switch} here; ask for a longer slice"
    )]
    UnderSwitchCost {
        slice: Nanos,
        /// One context switch, measured.
        switch: Nanos,
    },
}

/// Refuses what would starve the machine. `takes_ticker`: whether a ticker will end such slices, and not the kernel
/// ([`by_kernel`]) or nobody; `switch`: the measured cost of a context switch; `proc`: `/proc`.
pub fn refuse_slice(slice: Nanos, takes_ticker: bool, switch: Option<Nanos>, proc: &Path) -> Result<(), SliceRefusal> {
    if !SLICE_RANGE.contains(&slice) {
        return Err(SliceRefusal::OutOfRange(slice));
    }
    if let Some(switch) = switch.filter(|switch| slice < switch.times(2)) {
        return Err(SliceRefusal::UnderSwitchCost { slice, switch });
    }
    match RtThrottling::read(proc).filter(|throttling| takes_ticker && !throttling.is_on()) {
        Some(off) => Err(SliceRefusal::NoThrottling(off)),
        None => Ok(()),
    }
}

/// Whether the kernel ends slices by a timer of its own (the scheduler feature HRTICK); `None` where it does not tell.
/// `sys` is `/sys`; the file is in debugfs.
pub fn hrtick(sys: &Path) -> Option<bool> {
    let features = fs::read_to_string(sys.join("kernel/debug/sched/features")).ok()?;
    features.split_whitespace().find_map(|word| match word {
        "HRTICK" => Some(true),
        "NO_HRTICK" => Some(false),
        _ => None,
    })
}

/// By what the kernel itself ends such a slice in time, `hrtick` or `tick`; `None`: that takes a ticker. Where threads
/// have no slices of their own (before Linux 6.12), HRTICK ends the kernel's slices, and not the one that is asked for.
pub fn by_kernel(slice: Nanos, support: SliceSupport, hrtick: Option<bool>, tick: Nanos) -> Option<&'static str> {
    support.base?;
    match hrtick {
        Some(true) => Some("hrtick"),
        _ => tick_suffices(slice, tick).then_some("tick"),
    }
}

/// Whether the kernel's own tick ends such a slice soon enough: at the first tick after it, a tenth later at most. Not
/// where the tick is unknown (0).
fn tick_suffices(slice: Nanos, tick: Nanos) -> bool {
    let ends = tick.times(slice.0 / tick.0.max(1) + 1);
    tick > Nanos::ZERO && ends <= slice + Nanos(slice.0 / 10)
}

/// The kernel's tick: the resolution of its coarse clocks.
pub fn tick() -> Nanos {
    let resolution = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    Nanos(u64::try_from(resolution.tv_nsec).unwrap_or(0))
}

/// What one context switch costs here at least: two threads on one CPU that yield to each other, at real-time priority
/// where possible. `None` where it could not be measured.
pub fn switch_cost() -> Option<Nanos> {
    let done = Arc::new(AtomicBool::new(false));
    let cpu = affinity_of(0).ok()?.iter().next_back()?;
    let here = Arc::new(AtomicBool::new(false));
    let (partner_done, partner_here) = (Arc::clone(&done), Arc::clone(&here));
    let partner = std::thread::Builder::new().spawn(move || {
        let limit = now() + LONGEST_MEASUREMENT;
        let ready = join(cpu);
        partner_here.store(true, Relaxed);
        while ready && !partner_done.load(Relaxed) && now() < limit {
            sched_yield();
        }
    });
    let partner = partner.ok()?;
    let measured = std::thread::Builder::new().spawn(move || {
        let limit = now() + LONGEST_MEASUREMENT;
        if !join(cpu) {
            return None;
        }
        while !here.load(Relaxed) && now() < limit {
            std::thread::sleep(Duration::from_micros(100));
        }
        let batch = || {
            let began = now();
            let before = involuntary_switches();
            (0..YIELDS).for_each(|_| sched_yield());
            let switched = u64::try_from(involuntary_switches() - before).unwrap_or(0);
            // A switch away and one back each time; batches in which the partner was not there say nothing.
            (switched >= YIELDS).then(|| Nanos((now() - began).0 / (2 * YIELDS)))
        };
        (0..BATCHES).take_while(|_| now() < limit).filter_map(|_| batch()).min()
    });
    // Without a second thread the partner still has to be told.
    let cost = measured.ok().and_then(|measured| measured.join().ok().flatten());
    done.store(true, Relaxed);
    let _ = partner.join();
    cost
}

/// To one CPU, and above normal threads where that is allowed.
fn join(cpu: VcpuId) -> bool {
    // First: a normal thread may have to wait for its turn on that CPU. Normal threads measure it too, only later.
    let _ = enter_fifo();
    set_affinity(0, &std::iter::once(cpu).collect()).is_ok()
}

fn involuntary_switches() -> i64 {
    // SAFETY: rusage is plain data, and the kernel fills it whole for RUSAGE_THREAD.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}

impl SliceSupport {
    /// In words: whether the scheduler itself knows the slice, or the ticker alone makes it.
    pub fn describe(&self) -> String {
        match self.base {
            Some(base) => format!("slices are set with sched_setattr (a thread that asks for none has {base})"),
            None => "this kernel has no slices of threads (Linux 6.12 has); only a ticker shortens them".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_ends_long_slices_soon_enough() {
        let ms = Nanos::from_millis;
        for (slice, tick, suffices) in [
            (30, 4, true),
            (10, 4, false),
            (20, 4, false),
            (4, 4, false),
            (50, 4, true),
            (10, 1, true),
            (9, 1, false),
            (100, 10, true),
            (30, 10, false),
        ] {
            assert_eq!(tick_suffices(ms(slice), ms(tick)), suffices, "{slice} ms at ticks of {tick} ms");
        }
        assert!(!tick_suffices(ms(30), Nanos::ZERO));
        assert!((ms(1)..=ms(10)).contains(&tick()), "{}", tick());
    }

    #[test]
    fn a_kernel_without_slices_of_threads_enforces_none() {
        let ms = Nanos::from_millis;
        for (base, hrtick, slice, method) in [
            (None, Some(true), 1, None),
            (None, Some(true), 30, None),
            (None, None, 30, None),
            (Some(ms(3)), Some(true), 1, Some("hrtick")),
            (Some(ms(3)), Some(false), 30, Some("tick")),
            (Some(ms(3)), None, 1, None),
        ] {
            let support = SliceSupport { base };
            assert_eq!(by_kernel(ms(slice), support, hrtick, ms(4)), method, "{base:?} {hrtick:?} {slice} ms");
        }
    }

    #[test]
    fn what_would_starve_the_machine_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sys/kernel");
        fs::create_dir_all(&folder).unwrap();
        let refuse = |slice, enforce, switch| refuse_slice(slice, enforce, switch, dir.path());
        let ms = Nanos::from_millis(1);
        for (runtime, period, takes_ticker, refused) in [
            ("950000\n", "1000000\n", true, false),
            ("-1\n", "1000000\n", true, true),
            ("-1\n", "1000000\n", false, false),
            ("0\n", "1000000\n", true, false),
            ("1000000\n", "1000000\n", true, true),
            ("1000000\n", "1000000\n", false, false),
            ("100000\n", "100000\n", true, true),
            ("1000000\n", "2000000\n", true, false),
        ] {
            fs::write(folder.join("sched_rt_runtime_us"), runtime).unwrap();
            fs::write(folder.join("sched_rt_period_us"), period).unwrap();
            let refusal = refuse(ms, takes_ticker, None);
            assert_eq!(refusal.is_err(), refused, "{runtime:?} {period:?} {takes_ticker}");
            let Err(refusal) = refusal else { continue };
            for words in [runtime.trim(), "sysctl", "--no-enforce"] {
                assert!(refusal.to_string().contains(words), "{words}: {refusal}");
            }
        }
        fs::write(folder.join("sched_rt_runtime_us"), "950000").unwrap();
        for slice in [Nanos(99_999), Nanos(100_000_001)] {
            assert_eq!(refuse(slice, false, None), Err(SliceRefusal::OutOfRange(slice)));
        }
        let switch = Nanos::from_micros(60);
        let slice = Nanos::from_micros(100);
        assert_eq!(refuse(slice, true, Some(switch)), Err(SliceRefusal::UnderSwitchCost { slice, switch }));
        assert_eq!(refuse(slice, true, Some(Nanos::from_micros(2))), Ok(()));
    }

    #[test]
    fn hrtick_is_read_from_the_features() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(hrtick(dir.path()), None);
        fs::create_dir_all(dir.path().join("kernel/debug/sched")).unwrap();
        for (features, on) in
            [("PLACE_LAG NO_HRTICK HRTICK_DL", Some(false)), ("HRTICK WAKEUP\n", Some(true)), ("X\n", None)]
        {
            fs::write(dir.path().join("kernel/debug/sched/features"), features).unwrap();
            assert_eq!(hrtick(dir.path()), on, "{features}");
        }
    }

    #[test]
    fn a_switch_costs_something() {
        // On a machine whose CPUs are all taken, and without real-time priority, it may not be measured at all.
        if let Some(cost) = switch_cost() {
            assert!(cost > Nanos::ZERO && cost < Nanos::from_millis(50), "{cost}");
        }
    }
}
