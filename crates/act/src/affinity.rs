//! Placement without privilege: the affinity mask of every thread of the group.
//!
//! The kernel keeps one mask per thread and does not say who set it. So this file remembers: a thread whose mask is
//! what we last gave it follows us; a thread whose mask is anything else has been pinned by the program, and keeps to
//! its own choice as far as the active vCPUs allow. A child inherits its creator's narrowed mask, which is why a mask
//! that equals `base` cut to a step is taken for `base`. (A program that pins a thread to exactly the vCPUs that happen
//! to be active cannot be told from one that did not.)
//!
//! A thread that waits for a child (a shell, `make`) is not narrowed. It computes nothing, and what it starts next
//! would inherit the mask: a JVM, a Go program or `nproc` would see one CPU.
//!
//! `sched_getaffinity` leaves out vCPUs that are offline, although the mask it reads from keeps them. So masks are
//! compared without the vCPUs of `base` that are offline: taking a vCPU away from the machine makes no thread look
//! pinned.

mod undo;

pub(crate) use undo::needed;
pub use undo::{AffinityStep, GroupAffinity, ThreadAffinity};

use gleaner_model::CpuSet;
use gleaner_sys::{own_affinity, schedstat};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Most threads whose own affinities are remembered one by one.
const MOST_REMEMBERED: usize = 65_536;
/// Most active sets that are remembered, the newest. A thread is confined anew at every step, so older ones are
/// nobody's mask.
pub(crate) const MOST_STEPS: usize = 256;

/// Threads whose CPU time is looked at, to put them apart.
const MOST_LOOKED_AT: usize = 256;

/// The vCPUs `tid` may use (0: the calling thread); `None` when it is gone.
pub(crate) fn affinity_of(tid: i32) -> Option<CpuSet> {
    gleaner_sys::affinity_of(tid).ok()
}

/// The CPUs that this process may use, by the mask of its first thread: others of its threads may keep to one (see
/// `housekeeping`).
pub fn allowed_cpus() -> CpuSet {
    own_affinity().unwrap_or_default()
}

/// Whether it sleeps until one of its children ends. Where the kernel does not say, it does not.
pub(crate) fn waits_for_child(tid: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{tid}/syscall")).unwrap_or_default();
    let number = text.split(' ').next().and_then(|word| word.parse().ok());
    number.is_some_and(|number: i64| number == libc::SYS_wait4 || number == libc::SYS_waitid)
}

/// Sets it. Refusals are not errors: the thread ended, or the program was given to another user.
pub(crate) fn set_affinity(tid: i32, set: &CpuSet) -> bool {
    tid != 0 && gleaner_sys::set_affinity(tid, set).is_ok()
}

/// The vCPUs of `base` that are offline now, by this process's own mask: it had all of `base` when it began, and the
/// kernel leaves the same vCPUs out of it as out of everybody's, at the same moment (the list in sysfs lags behind by
/// milliseconds).
pub(crate) fn offline_of(base: &CpuSet) -> CpuSet {
    base.difference(&allowed_cpus())
}

/// Whether `current`, as the kernel tells it, is what a thread that was given `wanted` may use while `offline` are
/// away.
pub(crate) fn is_what_is_left(current: &CpuSet, wanted: &CpuSet, offline: &CpuSet) -> bool {
    let wanted = wanted.difference(offline);
    !wanted.is_empty() && current.difference(offline) == wanted
}

/// What the kernel would let a thread pinned to `own` use when the group is confined to `active`: the common part, or
/// its own choice if there is none.
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
    /// The vCPUs of `base` that were offline at the last look.
    offline: CpuSet,
}

impl Affinities {
    pub fn new(base: CpuSet) -> Self {
        Self { base, steps: Vec::new(), pinned: HashMap::new(), offline: CpuSet::new() }
    }

    /// Whether `active` was applied before.
    pub fn knows_step(&self, active: &CpuSet) -> bool {
        self.steps.contains(active)
    }

    /// To be called before the first thread is confined to `active`.
    pub fn begin_step(&mut self, active: &CpuSet) {
        self.steps.retain(|step| step != active);
        if self.steps.len() >= MOST_STEPS {
            self.steps.remove(0);
        }
        self.steps.push(active.clone());
    }

    /// What the program itself wants for a thread that now may use `current`.
    pub fn own_choice(&self, tid: i32, current: &CpuSet) -> CpuSet {
        let is = |wanted: &CpuSet| is_what_is_left(current, wanted, &self.offline);
        let remembered = self.pinned.get(&tid).filter(|(_, given)| is(given));
        if let Some((own, _)) = remembered {
            return own.clone();
        }
        if is(&self.base) || self.steps.iter().any(|step| is(&confined(&self.base, step))) {
            return self.base.clone();
        }
        // Born of a pinned thread, it inherited what that one was given.
        let creator = self.pinned.values().find(|(own, given)| is(given) && own != given);
        creator.map_or_else(|| current.clone(), |(own, _)| own.clone())
    }

    /// The threads of `tids` that chose for themselves and are not remembered yet, and what each may use now: to be
    /// journalled, and then remembered.
    pub fn new_choices(&mut self, tids: &[i32]) -> Vec<(OwnChoice, CpuSet)> {
        self.offline = offline_of(&self.base);
        let mut found = Vec::new();
        for &tid in tids {
            let Some(current) = affinity_of(tid) else { continue };
            let own = self.own_choice(tid, &current);
            let known = self.pinned.get(&tid).is_some_and(|(known, _)| *known == own);
            if own != self.base && !known && self.pinned.len() + found.len() < MOST_REMEMBERED {
                found.push((OwnChoice { tid, own }, current));
            }
        }
        if offline_of(&self.base) != self.offline {
            // A vCPU came or went meanwhile: nobody can say who chose what. The next pass can.
            return Vec::new();
        }
        found
    }

    /// The journal knows of it.
    pub fn remember(&mut self, choice: OwnChoice, current: CpuSet) {
        self.pinned.insert(choice.tid, (choice.own, current));
    }

    /// Those of `tids` to be put on the `given` vCPUs of `active`: as large a part of them, spread over their order by
    /// the CPU time that they had.
    pub fn to_move(tids: &[i32], given: usize, active: usize) -> Vec<i32> {
        if given == 0 {
            return Vec::new();
        }
        let had = |tid: i32| {
            let text = std::fs::read(format!("/proc/{tid}/schedstat")).ok()?;
            schedstat(&text).map(|(ran, _, _)| (Reverse(ran), tid))
        };
        let mut threads: Vec<_> = tids.iter().take(MOST_LOOKED_AT).filter_map(|tid| had(*tid)).collect();
        threads.sort_unstable();
        let stay = active - given;
        threads.into_iter().enumerate().filter(|(rank, _)| rank % active >= stay).map(|(_, (_, tid))| tid).collect()
    }

    /// Confines `tids` to `active`; says how many could be.
    pub fn confine(&mut self, tids: &[i32], active: &CpuSet) -> usize {
        self.forget_dead(tids);
        let mut done = 0;
        for &tid in tids {
            let Some(current) = affinity_of(tid) else { continue };
            let own = self.own_choice(tid, &current);
            let wanted = confined(&own, active);
            if wanted.len() < current.len() && waits_for_child(tid) {
                continue;
            }
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

/// The same question after a kill, from the journal alone: what a thread should be given back, `None` when nothing of
/// ours is on it. `own` is its remembered own choice; `others` are those of the group's other threads.
pub(crate) fn give_back(
    current: &CpuSet,
    own: Option<&CpuSet>,
    base: &CpuSet,
    others: &[CpuSet],
    steps: &[CpuSet],
    offline: &CpuSet,
) -> Option<CpuSet> {
    let is_cut_from =
        |wanted: &&CpuSet| steps.iter().any(|step| is_what_is_left(current, &confined(wanted, step), offline));
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
            let given = give_back(&set(current), own.map(set).as_ref(), &base, &others, &steps, &CpuSet::new());
            assert_eq!(given, wanted.map(set), "{current} {own:?}");
        }
    }

    #[test]
    fn a_vcpu_that_went_offline_makes_nobody_look_pinned() {
        let mut affinities = Affinities::new(set("0-3"));
        affinities.begin_step(&set("0-1,3"));
        affinities.begin_step(&set("2-3"));
        affinities.pinned.insert(7, (set("2-3"), set("2-3")));
        affinities.offline = set("3");
        for (tid, current, own) in
            [(1, "0-2", "0-3"), (1, "0-1", "0-3"), (1, "2", "0-3"), (7, "2", "2-3"), (1, "1", "1"), (1, "1-2", "1-2")]
        {
            assert_eq!(affinities.own_choice(tid, &set(current)), set(own), "{tid} {current}");
        }
        // All that a step had is gone: the kernel gave its threads everything, and that is the base.
        affinities.begin_step(&set("3"));
        assert_eq!(affinities.own_choice(1, &set("0-2")), set("0-3"));
    }

    #[test]
    fn what_is_given_back_includes_the_vcpus_that_are_offline() {
        let (base, offline, others) = (set("0-3"), set("3"), [set("2-3")]);
        for (current, step, wanted) in [
            // Confined to 0-2 before 3 went away, or never confined: it cannot be told, and the base is right for both.
            ("0-2", "0-2", Some("0-3")),
            ("0", "0", Some("0-3")),
            ("0-1", "0-1,3", Some("0-3")),
            ("1", "0-2", None),
            ("2", "0-2", Some("2-3")),
        ] {
            let given = give_back(&set(current), None, &base, &others, &[set(step)], &offline);
            assert_eq!(given, wanted.map(set), "{current} after {step}");
        }
    }
}
