//! Decisions to the machine: slices set on every vCPU thread, tickers that enforce them, and the way back.

use super::options::Options;
use super::watch::{Watch, id};
use crate::session;
use gleaner_act::{Competing, Enforcer, SLICE_RANGE, SliceOutcome, SliceSupport, Slices, by_kernel, hrtick, tick};
use gleaner_command::failure::Failure;
use gleaner_decide::host::HostParams;
use gleaner_model::{Nanos, VmId};
use gleaner_observe::{Competition, Vm};
use gleaner_report::HostEnforcement;
use gleaner_runtime::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The slice that each thread was given; shared with the enforcer.
type ByThread = Arc<Mutex<BTreeMap<i32, Nanos>>>;

/// A limit on different failures that are said: an agent runs for weeks.
const MOST_TOLD: usize = 1000;

/// Tickers' CPU time is read a few times a second, so over fewer wake-ups than these it says little.
const ENOUGH_TICKS: u64 = 2000;

/// Everything that acts.
pub struct Backend {
    session: Session,
    slices: Slices,
    by_thread: ByThread,
    enforcer: Option<Enforcer>,
    method: &'static str,
    began: Instant,
    /// Whether a slice could be set, ever.
    set: bool,
    told: BTreeSet<String>,
    /// VMs of which was said that somebody else changes their slices.
    changed: BTreeSet<VmId>,
}

impl Backend {
    /// Begins to act, with nothing set yet.
    pub fn begin(watch: &Watch, options: &Options, warnings: &mut Vec<String>) -> Result<Self, Failure> {
        let session = session::begin().map_err(Failure::work)?;
        warnings.extend(session.warning().map(|warning| warning.to_string()));
        let by_thread = ByThread::default();
        let slices = Slices::new();
        let (enforcer, method) = enforcer(watch, options, &by_thread, slices.support(), warnings);
        if slices.support().base.is_none() {
            warnings.push(slices.support().describe());
        }
        Ok(Self {
            session,
            slices,
            by_thread,
            enforcer,
            method,
            began: Instant::now(),
            set: false,
            told: BTreeSet::new(),
            changed: BTreeSet::new(),
        })
    }

    /// What ends slices beside the kernel's tick, in a word.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// What ending a slice is taken to take: a ticker's wake-up, nothing where the kernel does it.
    pub fn tick(&self, params: &HostParams) -> Nanos {
        if self.enforcer.is_some() { Nanos::from_micros(params.tick_us) } else { Nanos::ZERO }
    }

    /// The same as it was so far, on average; `None` before it can be told.
    pub fn measured_tick(&self) -> Option<Nanos> {
        let costs = self.enforcer.as_ref()?.costs();
        let ticks: u64 = costs.iter().map(|cost| cost.ticks).sum();
        let cpu_time: Nanos = costs.iter().map(|cost| cost.cpu_time).sum();
        (ticks >= ENOUGH_TICKS).then(|| Nanos(cpu_time.0 / ticks))
    }

    /// Gives every vCPU thread of `vms` its VM's slice, every time: somebody may have changed it (a `sched_setattr`
    /// without a slice does), or the id is another thread's by now. Only if none could be set does the command fail.
    pub fn apply(
        &mut self,
        vms: &[Vm],
        slices: &BTreeMap<VmId, Nanos>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        warnings.extend(self.session.look_after_guardian().map(|warning| warning.to_string()));
        let notes = self.enforcer.as_ref().map(Enforcer::notes).unwrap_or_default();
        warnings.extend(notes.into_iter().filter(|note| self.told.insert(note.clone())));
        let mut first = None;
        let mut now = BTreeMap::new();
        self.changed.retain(|vm| vms.iter().any(|there| id(there) == *vm));
        for vm in vms {
            let Some(slice) = slices.get(&id(vm)) else { continue };
            for vcpu in &vm.vcpus {
                match self.slices.set(vcpu.tid, *slice, &mut self.session.journal) {
                    Ok(SliceOutcome::Gone) => continue,
                    Ok(SliceOutcome::Set(_) | SliceOutcome::NoSlices) => {}
                    Ok(SliceOutcome::SetBack { slice, found }) => {
                        if self.changed.insert(id(vm)) {
                            warnings.push(set_back(vm, vcpu.tid, slice, found));
                        }
                    }
                    Err(error) => {
                        first.get_or_insert_with(|| error.to_string());
                        continue;
                    }
                }
                now.insert(vcpu.tid, *slice);
            }
        }
        self.set |= !now.is_empty();
        // The enforcer reads it: it stays whole until the new one is.
        let before = std::mem::replace(&mut *lock(&self.by_thread), now.clone());
        if before != now
            && let Some(enforcer) = &self.enforcer
        {
            enforcer.slices_changed();
        }
        let Some(error) = first else { return Ok(()) };
        if !self.set {
            let advice = if rustix::process::geteuid().is_root() { "" } else { "; run as root, or with CAP_SYS_NICE" };
            return Err(Failure::work(format!("no slice could be set: {error}{advice}")));
        }
        if self.told.len() < MOST_TOLD && self.told.insert(error.clone()) {
            warnings.push(error);
        }
        Ok(())
    }

    /// Undoes everything; says what enforcing cost.
    pub fn end(mut self, warnings: &mut Vec<String>) -> (HostEnforcement, bool) {
        let cost = self.cost();
        if let Some(enforcer) = self.enforcer.take() {
            warnings.extend(enforcer.notes().into_iter().filter(|note| !self.told.contains(note)));
        }
        let restored = match self.session.end() {
            Ok(_) => true,
            Err(error) => {
                warnings.push(error.to_string());
                false
            }
        };
        (cost, restored)
    }

    fn cost(&self) -> HostEnforcement {
        let costs = self.enforcer.as_ref().map(Enforcer::costs).unwrap_or_default();
        let asking = self.enforcer.as_ref().map(Enforcer::asking_cpu_time).unwrap_or_default();
        let cpu_time = costs.iter().map(|cost| cost.cpu_time).sum::<Nanos>() + asking;
        HostEnforcement {
            method: self.method.to_owned(),
            cpu_ratio: cpu_time.share_of(Nanos::from(self.began.elapsed())),
            ticks: costs.iter().map(|cost| cost.ticks).sum(),
            stretched: costs.iter().map(|cost| cost.stretched).sum(),
            pcpus: costs.len() as u64,
        }
    }
}

/// Once a VM: whoever does it may do it again and again.
fn set_back(vm: &Vm, tid: i32, slice: Nanos, found: Nanos) -> String {
    format!(
        "somebody else gave thread {tid} of VM {} (process {}) a slice of {found}; it is set back to {slice}, and so \
         will others be, without a word: end whatever sets them, or leave this VM out",
        vm.name, vm.pid
    )
}

fn lock(by_thread: &Mutex<BTreeMap<i32, Nanos>>) -> std::sync::MutexGuard<'_, BTreeMap<i32, Nanos>> {
    by_thread.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ends slices that the tick would not; where nothing does, that is a warning.
fn enforcer(
    watch: &Watch,
    options: &Options,
    by_thread: &ByThread,
    support: SliceSupport,
    warnings: &mut Vec<String>,
) -> (Option<Enforcer>, &'static str) {
    if !options.enforce {
        return (None, "none");
    }
    let tick = tick();
    // At any slice: the shortest is the least likely to be ended by the tick.
    let hrtick = hrtick(Path::new("/sys"));
    if by_kernel(*SLICE_RANGE.start(), support, hrtick, tick) == Some("hrtick") {
        return (None, "hrtick");
    }
    let started = watch.competition().map_err(|error| error.to_string()).and_then(|competition| {
        let ask = competing(competition, Arc::clone(by_thread), move |slice| {
            by_kernel(slice, support, hrtick, tick).is_none()
        });
        Enforcer::start(ask).map_err(|error| error.to_string())
    });
    match started {
        Ok(enforcer) => (Some(enforcer), "ticker"),
        Err(error) => {
            warnings.push(format!("slices end only at the kernel's tick: {error}"));
            (None, "none")
        }
    }
}

/// Where threads compete, and the shortest of their slices; not where that takes no ticker.
fn competing(
    mut competition: Competition,
    by_thread: ByThread,
    takes_ticker: impl Fn(Nanos) -> bool + Send,
) -> impl FnMut(Duration) -> Vec<Competing> + Send {
    move |limit| {
        let found = competition.wait(limit);
        let slices = lock(&by_thread);
        let shortest = |tids: &[i32]| tids.iter().filter_map(|tid| slices.get(tid)).min().copied();
        let competing = found.iter().filter_map(|at| Some(Competing { cpu: at.cpu, slice: shortest(&at.tids)? }));
        let competing: Vec<Competing> = competing.filter(|at| takes_ticker(at.slice)).collect();
        drop(slices);
        if competing.is_empty() && !found.is_empty() {
            // Competition there is, so the question was answered at once; none of it is to be asked about at once
            // again.
            std::thread::sleep(limit);
        }
        competing
    }
}
