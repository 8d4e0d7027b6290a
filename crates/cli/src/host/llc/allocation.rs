//! The resctrl groups of one run, and which VM is in which.

use super::subjects::Subject;
use gleaner_act::{ActError, CacheGroup, CacheMonitor, CacheReading, Joined, Journal, Resctrl};
use gleaner_decide::host::{LlcShare, LlcSplit, LlcVm};
use gleaner_report::LlcGroup;
use std::collections::{BTreeMap, BTreeSet};

/// Where one VM is.
#[derive(Clone, Debug)]
pub struct Placed {
    pub share: LlcShare,
    /// Threads that are there already.
    joined: BTreeSet<i32>,
    /// Threads in somebody else's group.
    pub left_alone: u64,
    monitor: Option<CacheMonitor>,
    /// What the monitoring group said when it was made or last read.
    last: CacheReading,
    /// Occupancy now, traffic since the beginning.
    pub reading: CacheReading,
}

impl Default for Placed {
    /// Nothing was done to it.
    fn default() -> Self {
        Self {
            share: LlcShare::Untouched,
            joined: BTreeSet::new(),
            left_alone: 0,
            monitor: None,
            last: CacheReading::default(),
            reading: CacheReading::default(),
        }
    }
}

/// The groups.
pub struct Allocation {
    resctrl: Resctrl,
    split: LlcSplit,
    minimal: CacheGroup,
    /// `None`: the processor had no second class of service; friendly VMs stay where they are.
    rest: Option<CacheGroup>,
    /// Whether there are monitoring ids left.
    monitors: bool,
    vms: BTreeMap<LlcVm, Placed>,
    pub warnings: Vec<String>,
}

impl Allocation {
    /// Makes both groups, or the one that matters.
    pub fn make(mut resctrl: Resctrl, split: LlcSplit, journal: &mut Journal) -> Result<Self, ActError> {
        let mut warnings = Vec::new();
        let minimal = resctrl.group("thrash", split.minimal, journal)?;
        let rest = resctrl.group("friendly", split.rest, journal).inspect_err(|error| {
            warnings.push(format!(
                "cache-friendly VMs stay where they are, with every way, those of the thrashing included: {error}"
            ));
        });
        let monitors = resctrl.info().monitoring.is_some();
        Ok(Self { resctrl, split, minimal, rest: rest.ok(), monitors, vms: BTreeMap::new(), warnings })
    }

    /// For the report.
    pub fn groups(&self) -> Vec<LlcGroup> {
        let entry = |share, group: &CacheGroup, mask: u64| LlcGroup {
            share: word(share).to_owned(),
            name: Some(group.name(&self.resctrl)),
            ways_mask: format!("{mask:x}"),
        };
        let rest = self.rest.as_ref().map(|group| entry(LlcShare::Rest, group, self.split.rest));
        std::iter::once(entry(LlcShare::Minimal, &self.minimal, self.split.minimal)).chain(rest).collect()
    }

    /// Where a VM is.
    pub fn of(&self, vm: LlcVm) -> Placed {
        self.vms.get(&vm).cloned().unwrap_or_default()
    }

    fn group(&self, share: LlcShare) -> CacheGroup {
        let ours = match share {
            LlcShare::Untouched => None,
            LlcShare::Minimal => Some(&self.minimal),
            LlcShare::Rest => self.rest.as_ref(),
        };
        ours.cloned().unwrap_or_else(|| self.resctrl.root_group())
    }

    /// Gives a VM a share: its threads move, and its monitoring group is made anew where they are.
    pub fn place(
        &mut self,
        vm: LlcVm,
        subject: &Subject,
        share: LlcShare,
        journal: &mut Journal,
    ) -> Result<(), ActError> {
        self.read(vm);
        let placed = self.placed(vm);
        placed.share = share;
        placed.joined.clear();
        if let Some(monitor) = placed.monitor.take() {
            self.resctrl.remove_monitor(&monitor)?;
        }
        self.keep_up(vm, subject, journal)
    }

    fn placed(&mut self, vm: LlcVm) -> &mut Placed {
        self.vms.entry(vm).or_default()
    }

    /// Threads that have come join the others, unless they are in somebody else's group; and what is monitored is read.
    pub fn keep_up(&mut self, vm: LlcVm, subject: &Subject, journal: &mut Journal) -> Result<(), ActError> {
        let threads = subject.threads();
        let placed = self.placed(vm);
        placed.joined.retain(|tid| threads.contains(tid));
        let share = placed.share;
        let new: Vec<i32> = threads.into_iter().filter(|tid| !placed.joined.contains(tid)).collect();
        if !new.is_empty() {
            let foreign = self.resctrl.foreign(journal.run_id())?;
            let left_alone = new.iter().filter(|tid| foreign.contains(tid)).count();
            self.placed(vm).left_alone = left_alone as u64;
            let new: Vec<i32> = new.into_iter().filter(|tid| !foreign.contains(tid)).collect();
            self.join(vm, share, &new)?;
            self.watch(vm, subject, &new, journal);
        }
        self.read(vm);
        Ok(())
    }

    fn join(&mut self, vm: LlcVm, share: LlcShare, tids: &[i32]) -> Result<(), ActError> {
        let group = self.group(share);
        for tid in tids {
            if self.resctrl.join(&group, *tid)? == Joined::Yes {
                self.placed(vm).joined.insert(*tid);
            }
        }
        Ok(())
    }

    /// Monitoring is a help, not a need: when it is refused, that is said once.
    fn watch(&mut self, vm: LlcVm, subject: &Subject, tids: &[i32], journal: &mut Journal) {
        if !self.monitors || tids.is_empty() {
            return;
        }
        let group = self.group(self.of(vm).share);
        let result = if let Some(monitor) = self.of(vm).monitor {
            self.resctrl.watch(&monitor, tids)
        } else {
            let name = format!("{}-{}", subject.name, subject.pid);
            self.resctrl.monitor(&group, &name, tids, journal).map(|monitor| {
                let last = self.resctrl.reading(&monitor);
                let placed = self.placed(vm);
                (placed.monitor, placed.last) = (Some(monitor), last);
            })
        };
        if let Err(error) = result {
            self.monitors = false;
            self.warnings.push(format!("not every VM is monitored: {error}"));
        }
    }

    fn read(&mut self, vm: LlcVm) {
        let Some(monitor) = self.of(vm).monitor else { return };
        let now = self.resctrl.reading(&monitor);
        let placed = self.placed(vm);
        if let Some((before, after)) = placed.last.memory_bytes.zip(now.memory_bytes) {
            let moved = placed.reading.memory_bytes.unwrap_or(0).saturating_add(after.saturating_sub(before));
            placed.reading.memory_bytes = Some(moved);
        }
        placed.reading.occupancy_bytes = now.occupancy_bytes;
        placed.last = now;
    }
}

/// A share as the report names it.
pub fn word(share: LlcShare) -> &'static str {
    match share {
        LlcShare::Untouched => "untouched",
        LlcShare::Minimal => "minimal",
        LlcShare::Rest => "rest",
    }
}
