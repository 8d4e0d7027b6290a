//! The loop of `gleaner host llc`: count an interval, judge, move threads; and the report.

use super::allocation::{Allocation, word};
use super::args::{LlcArgs, Mode};
use super::backend::{Backend, describe, divide};
use super::subjects::{Subject, Subjects};
use crate::host::shared::{Interrupted, interrupted_before};
use crate::session;
use gleaner_act::{ActError, Resctrl};
use gleaner_command::failure::Failure;
use gleaner_decide::host::{
    CacheClass, CacheUse, LlcCounts, LlcMove, LlcParams, LlcPolicy, LlcReason, LlcShare, LlcVm,
};
use gleaner_model::Nanos;
use gleaner_observe::{LlcCountSource, LlcThreadCounts, NotCounted};
use gleaner_report::{LlcChange, LlcGroup, LlcReport, LlcVmResult};
use gleaner_runtime::Session;
use gleaner_runtime::event_loop::{self, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Intervals after which VMs are looked for again.
const LOOK_AGAIN: u32 = 10;

/// What runs while the command does.
struct Agent<'a> {
    args: &'a LlcArgs,
    subjects: Subjects,
    counters: Option<Box<dyn LlcCountSource>>,
    policy: LlcPolicy,
    /// Everything counted so far, for modes that judge without changing.
    totals: BTreeMap<LlcVm, LlcThreadCounts>,
    /// VMs of which it was said that not all their threads are counted.
    told_uncounted: BTreeSet<LlcVm>,
    began: Instant,
    report: LlcReport,
}

pub fn run(
    args: &LlcArgs,
    subjects: Subjects,
    backend: Backend,
    interrupted: &AtomicBool,
) -> Result<LlcReport, Failure> {
    let params = LlcParams { period: args.period, ..LlcParams::default() };
    let mut agent = Agent {
        args,
        subjects,
        report: empty_report(args, &backend),
        counters: backend.counters,
        policy: LlcPolicy::new(params),
        totals: BTreeMap::new(),
        told_uncounted: BTreeSet::new(),
        began: Instant::now(),
    };
    if agent.report.missing.is_empty() {
        match args.mode() {
            Mode::Allocate => agent.allocate(backend.mounted.as_deref(), interrupted)?,
            Mode::MonitorOnly => agent.monitor(args.length, interrupted),
            Mode::DryRun => agent.dry_run(backend.mounted.as_deref(), interrupted)?,
        }
    }
    agent.report.wall_ns = Nanos::from(agent.began.elapsed()).0;
    Ok(agent.report)
}

fn empty_report(args: &LlcArgs, backend: &Backend) -> LlcReport {
    let mode = match args.mode() {
        Mode::Allocate => "allocate",
        Mode::MonitorOnly => "monitor-only",
        Mode::DryRun => "dry-run",
    };
    LlcReport {
        schema: LlcReport::SCHEMA.to_owned(),
        mode: mode.to_owned(),
        wall_ns: 0,
        interval_ns: Nanos::from(args.interval).0,
        host: describe(None, false, backend.counters.is_some()),
        missing: backend.missing.clone(),
        changed: false,
        groups: Vec::new(),
        vms: Vec::new(),
        changes: Vec::new(),
        changes_left_out: 0,
        warnings: args
            .counters
            .iter()
            .map(|folder| format!("counts are those of the files in {}, not the processor's", folder.display()))
            .collect(),
        restored: true,
    }
}

impl Agent<'_> {
    /// Changes the host, until it is time to stop, and undoes it all.
    fn allocate(&mut self, mounted: Option<&std::path::Path>, interrupted: &AtomicBool) -> Result<(), Failure> {
        let mut session = session::begin().map_err(Failure::work)?;
        self.report.warnings.extend(session.warning().map(|warning| warning.to_string()));
        let opened = match mounted {
            Some(root) => Resctrl::share_mount(root, &mut session.journal).map(|()| root.to_owned()),
            None => Resctrl::mount(&mut session.journal).inspect(|_| self.report.changed = true),
        };
        let opened = opened.and_then(|root| Ok((Resctrl::open(&root)?, root)));
        match opened {
            Err(error) => self.report.missing.push(format!("resctrl: {error}")),
            Ok((resctrl, root)) => {
                let counts = self.counters.is_some();
                self.report.host = describe(Some((&root, &resctrl)), mounted.is_none(), counts);
                self.with_groups(resctrl, &mut session, interrupted);
            }
        }
        self.report.restored = session.end().is_ok();
        Ok(())
    }

    fn with_groups(&mut self, resctrl: Resctrl, session: &mut Session, stop: &AtomicBool) {
        let Some(found) = &resctrl.info().allocation else {
            self.report
                .missing
                .push("cache allocation: this host has no CAT for its L3; nothing can be divided".into());
            return;
        };
        let split = match divide(found, self.args.minimal_ways) {
            Ok(split) => split,
            Err(why) => {
                self.report.missing.push(why);
                return;
            }
        };
        let mut allocation = match Allocation::make(resctrl, split, &mut session.journal) {
            Ok(allocation) => allocation,
            Err(error) => {
                self.report.missing.push(format!("a group for the thrashing VMs: {error}"));
                return;
            }
        };
        self.report.changed = true;
        self.report.groups = allocation.groups();
        let outcome = self.intervals(stop, |agent, moves| {
            agent.report.warnings.extend(session.look_after_guardian().map(|warning| warning.to_string()));
            let all = &agent.subjects.all;
            for change in moves {
                if let Some(subject) = all.get(&change.vm) {
                    allocation.place(change.vm, subject, change.to, &mut session.journal)?;
                }
            }
            for (vm, subject) in all {
                allocation.keep_up(*vm, subject, &mut session.journal)?;
            }
            Ok(())
        });
        if let Err(error) = outcome {
            self.report.warnings.push(format!("stopped before its time: {error}"));
        }
        self.report.warnings.append(&mut allocation.warnings);
        self.conclude(Some(&allocation));
    }

    /// Interval after interval; `apply` makes the policy's moves.
    fn intervals(
        &mut self,
        stop: &AtomicBool,
        apply: impl FnMut(&mut Self, &[LlcMove]) -> Result<(), ActError>,
    ) -> Result<(), ActError> {
        self.follow();
        let first = self.until_next();
        let mut allocating = Allocating { agent: self, apply, stop, intervals: 0 };
        // What was told needs no counting.
        allocating.step(&BTreeMap::new())?;
        event_loop::run(&mut allocating, first)
    }

    /// Judges without changing: by everything counted until the end.
    fn monitor(&mut self, length: Option<Duration>, stop: &AtomicBool) {
        self.follow();
        let until = length.map(|length| self.began + length);
        let interval = self.args.interval;
        event_loop::run(&mut Monitoring { agent: self, until, stop }, interval);
        self.conclude(None);
    }

    fn dry_run(&mut self, mounted: Option<&std::path::Path>, stop: &AtomicBool) -> Result<(), Failure> {
        if let Some(root) = mounted {
            let resctrl = Resctrl::open(root).map_err(Failure::work)?;
            self.report.host = describe(Some((root, &resctrl)), false, self.counters.is_some());
            match resctrl.info().allocation.as_ref().map(|found| divide(found, self.args.minimal_ways)) {
                None => self.report.missing.push("cache allocation: this host has no CAT for its L3".to_owned()),
                Some(Err(why)) => self.report.missing.push(why),
                Some(Ok(split)) => {
                    let group = |share: LlcShare, mask: u64| LlcGroup {
                        share: word(share).to_owned(),
                        name: None,
                        ways_mask: format!("{mask:x}"),
                    };
                    self.report.groups =
                        vec![group(LlcShare::Minimal, split.minimal), group(LlcShare::Rest, split.rest)];
                }
            }
        } else {
            self.report
                .warnings
                .push("resctrl is not mounted, so its ways are not known yet; it would be mounted".into());
        }
        if self.counters.is_some() && !self.subjects.all_told() {
            self.monitor(Some(2 * self.args.interval), stop);
        } else {
            self.follow();
            self.conclude(None);
        }
        Ok(())
    }

    /// When the time is over; `None`: when told.
    fn end(&self) -> Option<Instant> {
        self.args.length.map(|length| self.began + length)
    }

    fn until_next(&self) -> Duration {
        let left = self.end().map(|end| end.saturating_duration_since(Instant::now()));
        left.map_or(self.args.interval, |left| left.min(self.args.interval))
    }

    /// Counts the threads that there are now, and tells the policy of new VMs and of those that are gone.
    fn follow(&mut self) {
        let mut tids = Vec::new();
        for (vm, subject) in &self.subjects.all {
            let threads = subject.threads();
            if threads.is_empty() {
                self.policy.remove(*vm);
            } else {
                self.policy.add(*vm, subject.told);
            }
            tids.extend(threads);
        }
        if let Some(counters) = &mut self.counters {
            let refused = counters.follow(&tids);
            self.tell_uncounted(&refused);
        }
    }

    /// A VM is judged by those of its threads that are counted; which it is not, is said once.
    fn tell_uncounted(&mut self, refused: &[NotCounted]) {
        if refused.is_empty() {
            return;
        }
        for (vm, subject) in self.subjects.all.iter().filter(|(_, subject)| subject.told.is_none()) {
            let threads = subject.threads();
            let mut not_counted = refused.iter().filter(|refused| threads.contains(&refused.tid));
            let Some(first) = not_counted.next() else { continue };
            if !self.told_uncounted.insert(*vm) {
                continue;
            }
            let (of, missing) = (threads.len(), 1 + not_counted.count());
            let then =
                if missing < of { "it is judged by the others" } else { "it cannot be judged and stays where it is" };
            self.report.warnings.push(format!(
                "{} (pid {}): {missing} of its {of} threads cannot be counted, so {then}; thread {}: {}",
                subject.name, subject.pid, first.tid, first.why
            ));
        }
    }

    /// What each VM did since the last call.
    fn count(&mut self) -> BTreeMap<LlcVm, LlcCounts> {
        let Some(counters) = &mut self.counters else { return BTreeMap::new() };
        let mut all = BTreeMap::new();
        for (vm, subject) in &self.subjects.all {
            let read: Vec<LlcThreadCounts> =
                subject.threads().into_iter().filter_map(|tid| counters.read(tid)).collect();
            if read.is_empty() {
                continue;
            }
            let mut sum = LlcThreadCounts::default();
            for counts in read {
                sum += counts;
            }
            *self.totals.entry(*vm).or_default() += sum;
            let LlcThreadCounts { instructions, accesses, misses, .. } = sum;
            all.insert(*vm, LlcCounts { instructions, accesses, misses });
        }
        all
    }

    fn note(&mut self, moves: &[LlcMove]) {
        for change in moves {
            if self.report.changes.len() >= LlcReport::CHANGES_MAX {
                self.report.changes_left_out += 1;
                continue;
            }
            let subject = self.subjects.all.get(&change.vm);
            self.report.changes.push(LlcChange {
                at_ns: Nanos::from(self.began.elapsed()).0,
                vm: subject.map(|subject| subject.name.clone()).unwrap_or_default(),
                pid: subject.map_or(0, |subject| i64::from(subject.pid)),
                to: word(change.to).to_owned(),
                reason: why(change.reason),
            });
        }
    }

    /// Every VM, as it stands at the end.
    fn conclude(&mut self, allocation: Option<&Allocation>) {
        let results = self.subjects.all.iter().map(|(vm, subject)| self.result(*vm, subject, allocation)).collect();
        self.report.vms = results;
    }

    fn result(&self, vm: LlcVm, subject: &Subject, allocation: Option<&Allocation>) -> LlcVmResult {
        let (class, used) = match allocation {
            Some(_) => self.policy.class(vm),
            None => self.whole(vm, subject.told),
        };
        let placed = allocation.map(|allocation| allocation.of(vm));
        let would_be = class.map(|class| match class {
            CacheClass::CpuBound => LlcShare::Untouched,
            CacheClass::CacheFriendly => LlcShare::Rest,
            CacheClass::Thrashing => LlcShare::Minimal,
        });
        let reading = placed.as_ref().map(|placed| placed.reading).unwrap_or_default();
        LlcVmResult {
            name: subject.name.clone(),
            pid: i64::from(subject.pid),
            threads: subject.threads().len() as u64,
            threads_left_alone: placed.as_ref().map_or(0, |placed| placed.left_alone),
            class: class.map(|class| class.words().to_owned()),
            told: subject.told.is_some(),
            accesses_pki: used.accesses_pki,
            misses_full_pki: used.misses_full_pki,
            misses_minimal_pki: used.misses_minimal_pki,
            share: placed.as_ref().map_or(would_be, |placed| Some(placed.share)).map(|share| word(share).to_owned()),
            occupancy_bytes: reading.occupancy_bytes,
            memory_bytes: reading.memory_bytes,
        }
    }

    /// Class and figures over everything that was counted, for modes that leave every VM its whole cache.
    fn whole(&self, vm: LlcVm, told: Option<CacheClass>) -> (Option<CacheClass>, CacheUse) {
        let params = LlcParams::default();
        let counts = self.totals.get(&vm).filter(|counts| counts.instructions >= params.instructions_min);
        let used = counts.map_or_else(CacheUse::default, |counts| {
            let pki = |events: u64| Some(events as f64 * 1000.0 / counts.instructions as f64);
            CacheUse { accesses_pki: pki(counts.accesses), misses_full_pki: pki(counts.misses), ..CacheUse::default() }
        });
        (told.or_else(|| used.class(&params.class)), used)
    }
}

/// Counts, judges, moves threads.
struct Allocating<'a, 'b, F> {
    agent: &'a mut Agent<'b>,
    apply: F,
    stop: &'a AtomicBool,
    intervals: u32,
}

impl<'b, F: FnMut(&mut Agent<'b>, &[LlcMove]) -> Result<(), ActError>> Allocating<'_, 'b, F> {
    fn step(&mut self, counts: &BTreeMap<LlcVm, LlcCounts>) -> Result<(), ActError> {
        let moves = self.agent.policy.step(counts);
        self.agent.note(&moves);
        (self.apply)(self.agent, &moves)
    }
}

impl<'b, F: FnMut(&mut Agent<'b>, &[LlcMove]) -> Result<(), ActError>> Task for Allocating<'_, 'b, F> {
    type Event = Interrupted;
    type Outcome = Result<(), ActError>;

    fn wait_until(&mut self, due: Instant) -> Option<Interrupted> {
        interrupted_before(due, self.stop)
    }

    fn tick(&mut self, _: Nanos) -> ControlFlow<Self::Outcome, Duration> {
        if self.agent.end().is_some_and(|end| Instant::now() >= end) {
            return ControlFlow::Break(Ok(()));
        }
        self.intervals = self.intervals.wrapping_add(1);
        let counts = self.agent.count();
        if let Err(error) = self.step(&counts) {
            return ControlFlow::Break(Err(error));
        }
        if self.intervals.is_multiple_of(LOOK_AGAIN) {
            self.agent.subjects.look_again();
        }
        self.agent.follow();
        if self.agent.subjects.all.values().all(|subject| subject.threads().is_empty()) {
            self.agent.report.warnings.push("every VM that was looked at is gone".to_owned());
            return ControlFlow::Break(Ok(()));
        }
        ControlFlow::Continue(self.agent.until_next())
    }

    fn event(&mut self, _: Interrupted) -> ControlFlow<Self::Outcome, Option<Duration>> {
        ControlFlow::Break(Ok(()))
    }
}

/// Counts.
struct Monitoring<'a, 'b> {
    agent: &'a mut Agent<'b>,
    until: Option<Instant>,
    stop: &'a AtomicBool,
}

impl Task for Monitoring<'_, '_> {
    type Event = Interrupted;
    type Outcome = ();

    fn wait_until(&mut self, due: Instant) -> Option<Interrupted> {
        interrupted_before(due, self.stop)
    }

    fn tick(&mut self, _: Nanos) -> ControlFlow<(), Duration> {
        self.agent.count();
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return ControlFlow::Break(());
        }
        self.agent.follow();
        ControlFlow::Continue(self.agent.args.interval)
    }

    fn event(&mut self, _: Interrupted) -> ControlFlow<(), Option<Duration>> {
        self.agent.count();
        ControlFlow::Break(())
    }
}

fn why(reason: LlcReason) -> String {
    match reason {
        LlcReason::Class(class) => format!("it is {}", class.words()),
        LlcReason::Told(class) => format!("it is {}, as told", class.words()),
        LlcReason::Sample => "a sample: is it still thrashing?".to_owned(),
        LlcReason::StillThrashing => "the sample is over; it is still thrashing".to_owned(),
    }
}
