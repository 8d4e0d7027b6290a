//! Giving a group its CPUs back, from the journal alone.
//!
//! [`GroupAffinity`] does it, once for each program. The steps and the threads' own choices, which are written later,
//! tell it what each thread had.

use super::{MOST_STEPS, OwnChoice, affinity_of, allowed_cpus, give_back, is_what_is_left, set_affinity};
use crate::ActError;
use crate::journal::{Change, Entry, Run};
use crate::procs::{thread_start_time, threads_of};
use gleaner_model::CpuSet;
use gleaner_sys::ProcRoot;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Most different choices of dead threads that are kept: their children inherited them.
const MOST_CHOICES: usize = 1024;

/// The group's threads may use `base` again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupAffinity {
    /// The managed program.
    pub root_pid: i32,
    /// Its start time, in clock ticks since boot.
    pub root_start_time: u64,
    /// What a thread that pinned nothing may use.
    pub base: String,
}

/// The group was, or is about to be, confined to `active`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AffinityStep {
    /// CPU list.
    pub active: String,
}

/// A thread that the program pinned itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadAffinity {
    pub tid: i32,
    /// Its start time, in clock ticks since boot.
    pub start_time: u64,
    /// The program's choice.
    pub own: String,
}

impl From<&OwnChoice> for ThreadAffinity {
    fn from(choice: &OwnChoice) -> Self {
        let start_time = thread_start_time(choice.tid).unwrap_or(0);
        Self { tid: choice.tid, start_time, own: choice.own.to_string() }
    }
}

impl Change for AffinityStep {
    const NAME: &'static str = "affinity-step";

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        Ok(())
    }
}

impl Change for ThreadAffinity {
    const NAME: &'static str = "thread-affinity";

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        Ok(())
    }
}

impl Change for GroupAffinity {
    const NAME: &'static str = "group-affinity";

    fn undo(&self, run: &Run<'_>) -> Result<(), ActError> {
        let had = Had::of(&self.base, run)?;
        run.for_its_processes((self.root_pid, self.root_start_time), |pids| {
            Ok(pids.into_iter().flat_map(threads_of).filter(|tid| had.widen(*tid)).count())
        })
    }
}

/// Tells which lines about affinities an undo still needs, the newest first: everything about threads that live (by id
/// and start time), and of the dead each different choice once, for their children may have inherited it; of the steps
/// the newest.
pub(crate) fn needed(lives: impl Fn(i32, u64) -> bool) -> impl FnMut(&Entry) -> bool {
    let (mut choices, mut steps, mut threads) = (HashSet::new(), HashSet::new(), HashSet::new());
    move |entry| {
        if let Some(AffinityStep { active }) = entry.get() {
            return steps.len() < MOST_STEPS && steps.insert(active);
        }
        let Some(ThreadAffinity { tid, start_time, own }) = entry.get() else { return true };
        let lives = lives(tid, start_time) && threads.insert((tid, start_time));
        let new = choices.len() < MOST_CHOICES && choices.insert(own);
        lives || new
    }
}

/// What the journal knows of a group's masks.
#[derive(Default)]
struct Had {
    base: CpuSet,
    /// Own choices of threads, known by id and start time.
    own: HashMap<(i32, u64), CpuSet>,
    /// The different ones among them.
    others: Vec<CpuSet>,
    steps: Vec<CpuSet>,
    offline: CpuSet,
}

impl Had {
    fn of(base: &str, run: &Run<'_>) -> Result<Self, ActError> {
        let parse = |list: &str| {
            list.parse::<CpuSet>().map_err(|error| ActError::Unavailable {
                what: format!("the CPU list {list:?} in {}", run.path.display()),
                why: format!("{error}; the threads were not given back their CPUs, and what else could be undone was"),
            })
        };
        let mut had = Self { base: parse(base)?, ..Self::default() };
        for entry in run.undos {
            if let Some(AffinityStep { active }) = entry.get() {
                had.steps.push(parse(&active)?);
            } else if let Some(ThreadAffinity { tid, start_time, own }) = entry.get() {
                let choice = parse(&own)?;
                had.others.push(choice.clone());
                // Another namespace's thread is nobody here.
                if !run.foreign {
                    had.own.insert((tid, start_time), choice);
                }
            }
        }
        had.others.sort();
        had.others.dedup();
        // A container's list (lxcfs) may have other numbers than the kernel: then it says nothing of these.
        let online = gleaner_sys::online_cpus(&ProcRoot::default()).ok();
        if let Some(online) = online.filter(|online| allowed_cpus().is_subset(online)) {
            had.offline = had.base.difference(&online);
        }
        Ok(had)
    }

    /// Gives one thread back what it had; whether that changed what it may use now.
    fn widen(&self, tid: i32) -> bool {
        let Some(current) = affinity_of(tid) else { return false };
        let choice = thread_start_time(tid).and_then(|start| self.own.get(&(tid, start)));
        let wanted = give_back(&current, choice, &self.base, &self.others, &self.steps, &self.offline);
        wanted.is_some_and(|wanted| set_affinity(tid, &wanted) && !is_what_is_left(&current, &wanted, &self.offline))
    }
}

#[cfg(test)]
mod tests;
