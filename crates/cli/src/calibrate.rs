//! What a wake-up costs on this machine: settings A to D of Table 2, for `probe` and `doctor`.

use clap::ValueEnum;
use gleaner_act::{Journal, Retainer, YieldingThreads};
use gleaner_decide::guest::halting_costs_by_the_tail_alone;
use gleaner_model::{CpuSet, Nanos, Order, VcpuId, WakeupCosts};
use gleaner_workloads::wakeup::{self, Hog, WakeupError, WakeupPlan};
use hdrhistogram::Histogram;
use std::cell::RefCell;
use std::time::Duration;

/// The gap where the idle task polls. Long enough that the host's own halt polling (200 us by default) does not hide
/// the halt.
pub const GAP_AT_START: Duration = Duration::from_millis(1);
/// The gap for yielding threads: periods as short as those that they bridge. Where the host polls, such a period ends
/// as soon for a halted vCPU, and a yielding thread only costs.
pub const GAP_BRIDGED: Duration = Duration::from_micros(50);
/// Alternations between B and C: noise that comes and goes should meet both.
const ROUNDS: usize = 4;

/// How many times as many samples there are at most, where only their tail says that halting costs.
const TIMES_FOR_A_TAIL: usize = 3;

/// A row of Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Setting {
    A,
    B,
    C,
    D,
}

/// Keeps a vCPU awake for so long, or lets it halt.
type Keep<'a> = Box<dyn Fn(VcpuId, Option<Nanos>) + 'a>;

/// Where wake-ups are measured.
pub struct Bench<'a> {
    keep: Keep<'a>,
    beat: Box<dyn Fn() + 'a>,
    pub waiter: VcpuId,
    /// `None` on a machine with one vCPU: then only setting A exists.
    pub waker: Option<VcpuId>,
    pub gap: Duration,
}

impl<'a> Bench<'a> {
    /// On two of `vcpus`: the waker on the first, the waiter on the second, kept awake by yielding threads.
    pub fn new(yields: &'a YieldingThreads, vcpus: &CpuSet, gap: Duration) -> Option<Self> {
        let order = |timeout: Option<Nanos>| timeout.map_or(Order::Sleep, |timeout| Order::Retain { timeout });
        let keep = move |vcpu, timeout| {
            yields.beat();
            yields.order(vcpu, order(timeout));
        };
        Self::keeping(Box::new(keep), Box::new(|| yields.beat()), vcpus, gap)
    }

    /// The same by any means. What is refused is logged: the vCPU halts then, which the figures show.
    pub fn by(
        retainer: &'a RefCell<Box<dyn Retainer>>,
        journal: &'a RefCell<&mut Journal>,
        vcpus: &CpuSet,
        gap: Duration,
    ) -> Option<Self> {
        let keep = move |vcpu, timeout| {
            let (mut retainer, mut journal) = (retainer.borrow_mut(), journal.borrow_mut());
            retainer.beat();
            if let Err(error) = retainer.set(vcpu, timeout, &mut journal) {
                tracing::warn!("{error}");
            }
        };
        Self::keeping(Box::new(keep), Box::new(|| retainer.borrow().beat()), vcpus, gap)
    }

    fn keeping(keep: Keep<'a>, beat: Box<dyn Fn() + 'a>, vcpus: &CpuSet, gap: Duration) -> Option<Self> {
        let mut ids = vcpus.iter();
        let first = ids.next()?;
        let second = ids.next();
        Some(Self { keep, beat, waiter: second.unwrap_or(first), waker: second.map(|_| first), gap })
    }

    /// Whether `setting` can be measured on this many vCPUs.
    pub fn can(&self, setting: Setting) -> bool {
        setting == Setting::A || self.waker.is_some()
    }

    /// Measures one setting; `progress` as for [`wakeup::measure`].
    pub fn measure(
        &self,
        setting: Setting,
        samples: usize,
        mut progress: impl FnMut(usize) -> bool,
    ) -> Result<Vec<Nanos>, WakeupError> {
        let waker = if setting == Setting::A { self.waiter } else { self.waker.unwrap_or(self.waiter) };
        let plan = WakeupPlan { waiter: self.waiter, waker, gap: self.gap, samples };
        let _hog = (setting == Setting::D).then(|| Hog::start(self.waiter)).transpose()?;
        if setting == Setting::B {
            // Longer than any gap is idle for: B is the vCPU that never halts.
            let timeout = Nanos::from(self.gap).times(100) + Nanos::from_secs(1);
            (self.keep)(waker, Some(timeout));
            (self.keep)(self.waiter, Some(timeout));
        }
        let measured = wakeup::measure(&plan, |n| {
            (self.beat)();
            progress(n)
        });
        (self.keep)(waker, None);
        (self.keep)(self.waiter, None);
        measured
    }

    /// B and C, alternating. Where halting costs by the tail alone, which rests on a sample or two, more are added
    /// before it is believed. `None` on one vCPU, or when `go_on` said no.
    pub fn costs(&self, samples: usize, mut go_on: impl FnMut() -> bool) -> Result<Option<WakeupCosts>, WakeupError> {
        if self.waker.is_none() {
            return Ok(None);
        }
        let (mut retained, mut halted) = (Vec::new(), Vec::new());
        let mut found = None;
        for _ in 0..TIMES_FOR_A_TAIL {
            for _ in 0..ROUNDS {
                retained.extend(self.measure(Setting::B, samples / ROUNDS, |_| go_on())?);
                halted.extend(self.measure(Setting::C, samples / ROUNDS, |_| go_on())?);
            }
            found = costs_of(&retained, &halted);
            if !found.is_some_and(|costs| halting_costs_by_the_tail_alone(&costs)) {
                break;
            }
        }
        Ok(found)
    }
}

/// `None` where there are no samples of one of them.
fn costs_of(retained: &[Nanos], halted: &[Nanos]) -> Option<WakeupCosts> {
    let (retained, halted) = (Summary::of(retained)?, Summary::of(halted)?);
    Some(WakeupCosts {
        retained_p50: retained.p50,
        retained_mean: retained.mean,
        retained_p99: retained.p99,
        halted_p50: halted.p50,
        halted_mean: halted.mean,
        halted_p99: halted.p99,
    })
}

/// The figures that are told of a list of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub n: u64,
    pub mean: Nanos,
    pub p50: Nanos,
    pub p90: Nanos,
    pub p99: Nanos,
    pub max: Nanos,
}

impl Summary {
    /// `None` when there is nothing to sum up.
    pub fn of(samples: &[Nanos]) -> Option<Self> {
        // Three digits up to an hour; larger ones are clamped to it.
        let mut histogram = Histogram::<u64>::new_with_max(3_600_000_000_000, 3).ok()?;
        for sample in samples {
            histogram.saturating_record(sample.0);
        }
        let quantile = |q| Nanos(histogram.value_at_quantile(q));
        (!samples.is_empty()).then(|| Self {
            n: histogram.len(),
            mean: Nanos::from_f64(histogram.mean()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: Nanos(histogram.max()),
        })
    }
}
