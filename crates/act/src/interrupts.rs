//! Interrupts that can be moved leave vCPUs on which nothing is to run, and come back.
//!
//! Problem: an interrupt that lands on a deactivated vCPU wakes it, and what it wakes runs on another one: two wake-ups
//! for one. How: those that land there often enough go to vCPUs in use that they may use anyway. Each change is
//! journalled as a file's value. What the kernel refuses is left alone from then on: it manages the queues of many
//! devices itself. So is what somebody has bound to the deactivated vCPUs.

use crate::retain::ValueFile;
use crate::{ActError, Journal};
use gleaner_model::{CpuSet, Nanos};
use gleaner_sys::{ProcRoot, numbered};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

const LOOKED_AT_MAX: usize = 4096;
const MOVED_MAX: usize = 256;

/// The interrupts of this machine, and those of them that were moved.
#[derive(Debug)]
pub struct Interrupts {
    root: ProcRoot,
    moved: BTreeMap<u32, ValueFile>,
    /// What is left alone: the kernel refuses it.
    refused: BTreeSet<u32>,
    /// Those that land on `parked`, and how often each had by the last look.
    candidates: BTreeMap<u32, u64>,
    parked: CpuSet,
}

impl Interrupts {
    /// Nothing is moved yet.
    pub fn new(root: ProcRoot) -> Self {
        Self {
            root,
            moved: BTreeMap::new(),
            refused: BTreeSet::new(),
            candidates: BTreeMap::new(),
            parked: CpuSet::new(),
        }
    }

    /// Interrupts that landed on `parked` since the last call, and how often a second. `elapsed`: since then. The first
    /// call after `parked` has changed says nothing.
    pub fn landing_on(&mut self, parked: &CpuSet, elapsed: Nanos) -> Vec<(u32, f64)> {
        if self.parked != *parked {
            self.parked.clone_from(parked);
            self.candidates = self.find_candidates();
            return Vec::new();
        }
        let mut landing = Vec::new();
        for (irq, last) in &mut self.candidates {
            let Some(now) = landed(&self.root, *irq, parked) else { continue };
            let since = now.saturating_sub(std::mem::replace(last, now));
            landing.push((*irq, since as f64 / elapsed.as_secs_f64().max(1e-9)));
        }
        landing
    }

    fn find_candidates(&self) -> BTreeMap<u32, u64> {
        if self.parked.is_empty() {
            return BTreeMap::new();
        }
        let all = numbered(&self.root.proc.join("irq")).filter_map(|irq| u32::try_from(irq).ok());
        let lands_there =
            |irq: &u32| self.list(*irq, "effective_affinity_list").is_some_and(|on| on.is_subset(&self.parked));
        let left = |irq: &u32| !self.refused.contains(irq) && !self.moved.contains_key(irq);
        let found = all.take(LOOKED_AT_MAX).filter(left).filter(lands_there);
        found.map(|irq| (irq, landed(&self.root, irq, &self.parked).unwrap_or(0))).collect()
    }

    fn list(&self, irq: u32, name: &str) -> Option<CpuSet> {
        fs::read_to_string(self.folder(irq).join(name)).ok()?.parse().ok().filter(|set: &CpuSet| !set.is_empty())
    }

    fn folder(&self, irq: u32) -> PathBuf {
        self.root.proc.join(format!("irq/{irq}"))
    }

    /// Sends this one to those of `active` that it may use. False: it stays where it is, because it may use none of
    /// them, or cannot be moved.
    pub fn send_to(&mut self, irq: u32, active: &CpuSet, journal: &mut Journal) -> bool {
        self.candidates.remove(&irq);
        let sent = self.try_to_send(irq, active, journal);
        if !matches!(sent, Ok(true)) {
            self.refused.insert(irq);
        }
        sent.unwrap_or_else(|error| {
            tracing::info!("interrupt {irq} stays: {error}");
            false
        })
    }

    fn try_to_send(&mut self, irq: u32, active: &CpuSet, journal: &mut Journal) -> Result<bool, ActError> {
        if self.moved.len() >= MOVED_MAX {
            return Ok(false);
        }
        // One that another run has moved, or had, is not waited for in the middle of a window.
        let mut file = ValueFile::open_at_once(&self.folder(irq).join("smp_affinity_list"), journal)?;
        let Some(target) = target(file.had(), active) else { return Ok(false) };
        file.set(&target, journal)?;
        self.moved.insert(irq, file);
        Ok(true)
    }

    /// Other vCPUs are in use now: each that was moved goes to those of them that it may use, and where that is all
    /// that it had, it has come back. One that somebody else has moved since is left alone from then on.
    ///
    /// # Errors
    /// The last that could not be moved; the others are.
    pub fn follow(&mut self, active: &CpuSet, journal: &mut Journal) -> Result<(), ActError> {
        let mut result = Ok(());
        let Self { moved, refused, .. } = self;
        moved.retain(|irq, file| {
            let target = target(file.had(), active).unwrap_or_else(|| file.had().to_owned());
            let is_back = target == file.had();
            let Err(error) = file.set(&target, journal) else { return !is_back };
            let is_theirs = error.is_theirs();
            if is_theirs {
                refused.insert(*irq);
            }
            result = Err(error);
            !is_theirs
        });
        result
    }

    /// Somebody gave each its earlier affinity back: see [`Self::follow`].
    pub fn were_given_back(&mut self) {
        self.moved.values_mut().for_each(ValueFile::was_given_back);
    }

    /// How many are elsewhere.
    pub fn moved(&self) -> usize {
        self.moved.len()
    }
}

/// Those of `active` that an interrupt with this affinity may use; `None` where there is none.
fn target(had: &str, active: &CpuSet) -> Option<String> {
    let both = had.parse::<CpuSet>().ok()?.intersection(active);
    (!both.is_empty()).then(|| both.to_string())
}

/// How often it has landed on these, since boot.
fn landed(root: &ProcRoot, irq: u32, cpus: &CpuSet) -> Option<u64> {
    let counts = fs::read_to_string(root.sys.join(format!("kernel/irq/{irq}/per_cpu_count"))).ok()?;
    let counts: Vec<&str> = counts.trim().split(',').collect();
    cpus.iter().map(|cpu| counts.get(cpu.0 as usize)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::undo_own;
    use std::path::Path;

    struct Machine {
        dir: tempfile::TempDir,
        journal: Journal,
    }

    impl Machine {
        /// Interrupts: number, affinity, where it lands, counts by vCPU.
        fn new(interrupts: &[(u32, &str, &str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let journal = Journal::create(&dir.path().join("state"), "run-1").unwrap();
            let new = Self { dir, journal };
            for (irq, affinity, effective, counts) in interrupts {
                new.write(&format!("proc/irq/{irq}/smp_affinity_list"), affinity);
                new.write(&format!("proc/irq/{irq}/effective_affinity_list"), effective);
                new.write(&format!("sys/kernel/irq/{irq}/per_cpu_count"), counts);
            }
            new
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn interrupts(&self) -> Interrupts {
            Interrupts::new(ProcRoot::below(self.dir.path()))
        }

        fn affinity(&self, irq: u32) -> String {
            let path = self.dir.path().join(format!("proc/irq/{irq}/smp_affinity_list"));
            fs::read_to_string(path).unwrap().trim().to_owned()
        }
    }

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn only_what_lands_on_parked_vcpus_is_told() {
        let machine =
            Machine::new(&[(5, "0-3\n", "3\n", "1,2,3,4\n"), (6, "0-3", "1", "1,2,3,4"), (7, "0-3", "", "1,2,3,4")]);
        let mut interrupts = machine.interrupts();
        assert_eq!(interrupts.landing_on(&set("2-3"), SECOND), []);
        machine.write("sys/kernel/irq/5/per_cpu_count", "9,9,3,104\n");
        assert_eq!(interrupts.landing_on(&set("2-3"), Nanos::from_millis(500)), [(5, 200.0)]);
        // Others are parked: it begins anew.
        assert_eq!(interrupts.landing_on(&set("1"), SECOND), []);
        assert_eq!(interrupts.landing_on(&set("1"), SECOND), [(6, 0.0)]);
        assert_eq!(interrupts.landing_on(&set(""), SECOND), []);
    }

    #[test]
    fn they_leave_follow_and_come_back() {
        let mut machine = Machine::new(&[(5, "0-3\n", "3\n", "0,0,0,0\n")]);
        let mut interrupts = machine.interrupts();
        assert!(interrupts.send_to(5, &set("0-1"), &mut machine.journal));
        assert_eq!((machine.affinity(5).as_str(), interrupts.moved()), ("0-1", 1));
        interrupts.follow(&set("0"), &mut machine.journal).unwrap();
        assert_eq!(machine.affinity(5), "0");
        interrupts.follow(&set("0-3"), &mut machine.journal).unwrap();
        assert_eq!((machine.affinity(5).as_str(), interrupts.moved()), ("0-3", 0));
    }

    #[test]
    fn what_somebody_else_moves_meanwhile_stays_there() {
        let mut machine = Machine::new(&[(5, "0-3\n", "3\n", "0,0,0,0\n"), (6, "0-3\n", "3\n", "0,0,0,0\n")]);
        let mut interrupts = machine.interrupts();
        for irq in [5, 6] {
            assert!(interrupts.send_to(irq, &set("0-1"), &mut machine.journal));
        }
        machine.write("proc/irq/6/smp_affinity_list", "3");
        let said = interrupts.follow(&set("0"), &mut machine.journal).unwrap_err().to_string();
        assert!(said.contains("irq/6/smp_affinity_list to 3"), "{said}");
        assert_eq!((machine.affinity(5).as_str(), machine.affinity(6).as_str()), ("0", "3"));
        // It is told once, and not tried again.
        interrupts.follow(&set("0-1"), &mut machine.journal).unwrap();
        interrupts.landing_on(&set("2-3"), SECOND);
        assert_eq!(interrupts.landing_on(&set("2-3"), SECOND), []);
        interrupts.follow(&set("0-3"), &mut machine.journal).unwrap();
        undo_own(&machine.journal).unwrap();
        assert_eq!((machine.affinity(5).as_str(), machine.affinity(6).as_str()), ("0-3", "3"));
    }

    #[test]
    fn what_was_moved_is_undone_by_the_journal_alone() {
        let mut machine = Machine::new(&[(5, "0-3\n", "3\n", "0,0,0,0\n"), (6, "0-3\n", "3\n", "0,0,0,0\n")]);
        let mut interrupts = machine.interrupts();
        for irq in [5, 6] {
            assert!(interrupts.send_to(irq, &set("0-1"), &mut machine.journal));
        }
        interrupts.follow(&set("1"), &mut machine.journal).unwrap();
        // Somebody else's choice meanwhile stays.
        machine.write("proc/irq/6/smp_affinity_list", "2");
        undo_own(&machine.journal).unwrap();
        assert_eq!((machine.affinity(5).as_str(), machine.affinity(6).as_str()), ("0-3", "2"));
    }

    #[test]
    fn what_is_bound_there_or_refused_is_left_alone() {
        let mut machine = Machine::new(&[(5, "2-3", "3", "0,0,0,0"), (6, "0-3", "3", "0,0,0,0")]);
        // A folder in its place refuses every write, as the kernel does where it manages the interrupt.
        fs::remove_file(machine.dir.path().join("proc/irq/6/smp_affinity_list")).unwrap();
        fs::create_dir(machine.dir.path().join("proc/irq/6/smp_affinity_list")).unwrap();
        let mut interrupts = machine.interrupts();
        for irq in [5, 6, 99] {
            assert!(!interrupts.send_to(irq, &set("0-1"), &mut machine.journal), "{irq}");
        }
        assert_eq!((machine.affinity(5).as_str(), interrupts.moved()), ("2-3", 0));
        interrupts.landing_on(&set("2-3"), SECOND);
        assert_eq!(interrupts.landing_on(&set("2-3"), SECOND), [], "it is not tried again");
    }

    #[test]
    fn what_cannot_be_journalled_is_not_moved() {
        let mut machine = Machine::new(&[(5, "0-3", "3", "0,0,0,0")]);
        machine.journal.refuse_to_write();
        assert!(!machine.interrupts().send_to(5, &set("0"), &mut machine.journal));
        assert_eq!(machine.affinity(5), "0-3");
    }

    #[test]
    fn a_moved_interrupt_of_this_machine_comes_back_machine() {
        let root = ProcRoot::default();
        let online = gleaner_sys::online_cpus(&root).unwrap();
        let one: CpuSet = online.iter().take(1).collect();
        let rest = online.difference(&one);
        if !rustix::process::geteuid().is_root() || rest.is_empty() {
            gleaner_testing::skip!("needs root and two vCPUs");
        }
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(&dir.path().join("state"), "run-1").unwrap();
        let before = affinities(&root);
        let mut interrupts = Interrupts::new(root.clone());
        interrupts.landing_on(&rest, SECOND);
        let landing: Vec<u32> = interrupts.landing_on(&rest, SECOND).into_iter().map(|(irq, _)| irq).collect();
        let sent: Vec<u32> = landing.into_iter().filter(|irq| interrupts.send_to(*irq, &one, &mut journal)).collect();
        let during = affinities(&root);
        drop(interrupts);
        undo_own(&journal).unwrap();
        assert_eq!(affinities(&root), before);
        if sent.is_empty() {
            gleaner_testing::skip!("needs an interrupt that can be moved");
        }
        assert!(sent.iter().all(|irq| during[irq] == one), "{sent:?} {during:?}");
    }

    fn affinities(root: &ProcRoot) -> BTreeMap<u32, CpuSet> {
        let interrupts = Interrupts::new(root.clone());
        let all = numbered(Path::new(&root.proc.join("irq"))).filter_map(|irq| u32::try_from(irq).ok());
        all.filter_map(|irq| Some((irq, interrupts.list(irq, "smp_affinity_list")?))).collect()
    }
}
