//! Placement without privilege: the affinity mask of every thread of the group.
//!
//! The kernel keeps one mask per thread and does not say who set it. So this file remembers: a thread whose mask is what we last gave
//! it follows us; a thread whose mask is anything else has been pinned by the program, and keeps to its own choice as far as the
//! active vCPUs allow. A child inherits its creator's narrowed mask, which is why a mask that equals `base` cut to a step is taken for `base`.
//! (A program that pins a thread to exactly the vCPUs that happen to be active cannot be told from one that did not; the cpuset
//! back end has no such blind spot, because the kernel keeps both masks apart since 6.2.)

use gleaner_model::{CpuSet, VcpuId};
use rustix::process::Pid;
use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};
use std::collections::HashMap;

/// Most threads whose own affinities are remembered one by one.
const MOST_REMEMBERED: usize = 65_536;

pub(crate) fn mask_of(set: &CpuSet) -> Mask {
    let mut mask = Mask::new();
    for vcpu in set.iter().filter(|vcpu| (vcpu.0 as usize) < Mask::MAX_CPU) {
        mask.set(vcpu.0 as usize);
    }
    mask
}

fn set_of(mask: &Mask) -> CpuSet {
    let numbers = (0..u32::try_from(Mask::MAX_CPU).unwrap_or(0)).filter(|cpu| mask.is_set(*cpu as usize));
    numbers.map(VcpuId).collect()
}

/// The vCPUs `tid` may use (0: the calling thread); `None` when it is gone.
pub(crate) fn affinity_of(tid: i32) -> Option<CpuSet> {
    // A negative id is nobody's, and Pid takes none.
    if tid < 0 {
        return None;
    }
    sched_getaffinity(Pid::from_raw(tid)).ok().map(|mask| set_of(&mask))
}

/// The CPUs that the calling thread may use.
pub fn allowed_cpus() -> CpuSet {
    affinity_of(0).unwrap_or_default()
}

/// Sets it. Refusals are not errors: the thread ended, or the program was given to another user.
pub(crate) fn set_affinity(tid: i32, set: &CpuSet) -> bool {
    Pid::from_raw(tid).is_some_and(|pid| sched_setaffinity(Some(pid), &mask_of(set)).is_ok())
}

/// What the kernel would let a thread pinned to `own` use when the group is confined to `active`: the common part, or its own
/// choice if there is none.
pub(crate) fn confined(own: &CpuSet, active: &CpuSet) -> CpuSet {
    let common = own.intersection(active);
    if common.is_empty() { own.clone() } else { common }
}

/// A thread that the program pinned, which the journal has to know of before it is touched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnChoice {
    pub tid: i32,
    pub own: CpuSet,
}

/// The affinities of a group.
#[derive(Debug)]
pub(crate) struct Affinities {
    /// What a thread that pinned nothing may use.
    base: CpuSet,
    /// Every active set so far, newest last; a thread may have been born under any of them.
    steps: Vec<CpuSet>,
    /// Threads that chose for themselves, and what we made of it.
    pinned: HashMap<i32, (CpuSet, CpuSet)>,
}

impl Affinities {
    pub fn new(base: CpuSet) -> Self {
        Self { base, steps: Vec::new(), pinned: HashMap::new() }
    }

    /// Whether `active` was applied before.
    pub fn knows_step(&self, active: &CpuSet) -> bool {
        self.steps.contains(active)
    }

    /// To be called before the first thread is confined to `active`.
    pub fn begin_step(&mut self, active: &CpuSet) {
        self.steps.retain(|step| step != active);
        self.steps.push(active.clone());
    }

    /// What the program itself wants for a thread that now may use `current`.
    pub fn own_choice(&self, tid: i32, current: &CpuSet) -> CpuSet {
        let remembered = self.pinned.get(&tid).filter(|(_, given)| given == current);
        if let Some((own, _)) = remembered {
            return own.clone();
        }
        if *current == self.base || self.steps.iter().any(|step| confined(&self.base, step) == *current) {
            return self.base.clone();
        }
        // Born of a pinned thread, it inherited what that one was given.
        let creator = self.pinned.values().find(|(own, given)| given == current && own != given);
        creator.map_or_else(|| current.clone(), |(own, _)| own.clone())
    }

    /// The threads of `tids` that chose for themselves and are not remembered yet.
    pub fn new_choices(&mut self, tids: &[i32]) -> Vec<OwnChoice> {
        let mut found = Vec::new();
        for &tid in tids {
            let Some(current) = affinity_of(tid) else { continue };
            let own = self.own_choice(tid, &current);
            let known = self.pinned.get(&tid).is_some_and(|(known, _)| *known == own);
            if own != self.base && !known && self.pinned.len() < MOST_REMEMBERED {
                self.pinned.insert(tid, (own.clone(), current));
                found.push(OwnChoice { tid, own });
            }
        }
        found
    }

    /// Confines `tids` to `active`; says how many could be.
    pub fn confine(&mut self, tids: &[i32], active: &CpuSet) -> usize {
        self.forget_dead(tids);
        let mut done = 0;
        for &tid in tids {
            let Some(current) = affinity_of(tid) else { continue };
            let own = self.own_choice(tid, &current);
            let wanted = confined(&own, active);
            if wanted == current || set_affinity(tid, &wanted) {
                done += 1;
                if let Some((_, given)) = self.pinned.get_mut(&tid) {
                    *given = wanted;
                }
            }
        }
        done
    }

    fn forget_dead(&mut self, alive: &[i32]) {
        if self.pinned.len() > 2 * alive.len() + 64 {
            let alive: std::collections::HashSet<i32> = alive.iter().copied().collect();
            self.pinned.retain(|tid, _| alive.contains(tid));
        }
    }
}

/// The same question after a kill, from the journal alone: what a thread should be given back, `None` when nothing of ours
/// is on it. `own` is its remembered own choice; `others` are those of the group's other threads.
pub(crate) fn give_back(
    current: &CpuSet,
    own: Option<&CpuSet>,
    base: &CpuSet,
    others: &[CpuSet],
    steps: &[CpuSet],
) -> Option<CpuSet> {
    let is_cut_from = |wanted: &&CpuSet| steps.iter().any(|step| confined(wanted, step) == *current);
    let wanted = match own {
        Some(own) => Some(own).filter(is_cut_from),
        None if current == base => None,
        None => std::iter::once(base).chain(others).find(is_cut_from),
    };
    wanted.filter(|wanted| *wanted != current).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn a_mask_of_ours_means_the_base_and_any_other_is_the_programs_choice() {
        let mut affinities = Affinities::new(set("0-3"));
        affinities.begin_step(&set("0-2"));
        affinities.begin_step(&set("0-1"));
        affinities.pinned.insert(7, (set("2-3"), set("2")));
        for (current, own) in [("0-3", "0-3"), ("0-2", "0-3"), ("0-1", "0-3"), ("3", "3"), ("1-2", "1-2"), ("2", "2-3")]
        {
            assert_eq!(affinities.own_choice(1, &set(current)), set(own), "{current}");
        }
    }

    #[test]
    fn a_pinned_thread_keeps_to_its_choice_as_far_as_it_goes() {
        assert_eq!(confined(&set("2-3"), &set("0-2")), set("2"));
        assert_eq!(confined(&set("3"), &set("0-2")), set("3"));
    }

    #[test]
    fn after_a_kill_only_masks_of_ours_are_given_back() {
        let (base, steps) = (set("0-3"), [set("0-2"), set("0")]);
        let others = [set("2-3")];
        for (current, own, wanted) in [
            ("0", None, Some("0-3")),
            ("0-3", None, None),
            ("1", None, None),
            ("2", Some("2-3"), Some("2-3")),
            ("3", Some("2-3"), None),
            // Inherited from the pinned thread.
            ("2", None, Some("2-3")),
            ("2-3", None, None),
        ] {
            let given = give_back(&set(current), own.map(set).as_ref(), &base, &others, &steps);
            assert_eq!(given, wanted.map(set), "{current} {own:?}");
        }
    }
}
