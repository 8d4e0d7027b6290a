//! The vCPUs that a group runs on.

use gleaner_model::{Action, CpuSet, Window};

/// Those that are there, without those that decisions have taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActiveSet {
    there: CpuSet,
    taken: CpuSet,
    active: CpuSet,
}

impl ActiveSet {
    /// All of them.
    pub(crate) fn new(vcpus: CpuSet) -> Self {
        Self { taken: CpuSet::new(), active: vcpus.clone(), there: vcpus }
    }

    /// Never empty, unless it was made of none.
    pub(crate) fn vcpus(&self) -> &CpuSet {
        &self.active
    }

    /// vCPUs came or went.
    pub(crate) fn follow(&mut self, window: &Window) {
        let online = &window.vcpus;
        if online.is_empty()
            || online.len() == self.there.len() && online.iter().all(|vcpu| self.there.contains(vcpu.id))
        {
            return;
        }
        self.there = online.iter().map(|vcpu| vcpu.id).collect();
        self.settle();
    }

    /// Takes vCPUs away or gives them back, as the action says. False where it is about something else.
    pub(crate) fn carry_out(&mut self, action: Action) -> bool {
        match action {
            Action::Retain { .. } | Action::Release { .. } => return false,
            Action::Deactivate { vcpu } => {
                self.taken.insert(vcpu);
            }
            Action::Activate { vcpu } => {
                self.taken.remove(vcpu);
            }
            Action::ActivateAll => self.taken = CpuSet::new(),
        }
        self.settle();
        true
    }

    fn settle(&mut self) {
        let left = self.there.difference(&self.taken);
        // Where all that are left went offline, the group runs on what there is.
        self.active = if left.is_empty() { self.there.clone() } else { left };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_decide::guest::{GuestParams, GuestPolicy};
    use gleaner_model::{GroupWindow, Nanos, Policy, Profile, Reason, Source, VcpuId, VcpuWindow};

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// The `n`th window of a program that hardly computes and often waits; `slow`: it hands over less, and computes
    /// less.
    fn window(n: u64, there: &CpuSet, active: &CpuSet, slow: bool) -> Window {
        let length = Nanos::from_millis(100);
        let (work, switches) = if slow { (Nanos::from_millis(8), 400) } else { (Nanos::from_millis(20), 2_000) };
        let vcpu = |id: VcpuId| {
            let share = if active.contains(id) { active.len() as u64 } else { return idle(id, length) };
            let busy = Nanos(work.0 / share);
            VcpuWindow { busy, work: Some(busy), halted: length - busy, idle_entries: Some(100), ..VcpuWindow::new(id) }
        };
        Window {
            at: length.times(n + 1),
            length,
            source: Source::Bpf,
            vcpus: there.iter().map(vcpu).collect(),
            idle_entries: None,
            halts: None,
            group: GroupWindow {
                threads: 4,
                new_threads: if n == 0 { 4 } else { 0 },
                execs: Some(u64::from(n == 0)),
                cpu_time: work,
                voluntary_switches: switches,
                ..GroupWindow::default()
            },
        }
    }

    fn idle(id: VcpuId, length: Nanos) -> VcpuWindow {
        VcpuWindow { halted: length, idle_entries: Some(0), ..VcpuWindow::new(id) }
    }

    #[test]
    fn carried_out_word_by_word_decisions_are_what_the_policy_means() {
        let all = set("0-3");
        for policy in [Policy::Consolidate, Policy::Full, Policy::Retain] {
            let mut guest = GuestPolicy::new(policy, Profile::Balanced, GuestParams::default(), None, all.clone());
            let mut active = ActiveSet::new(all.clone());
            let mut seen = Vec::new();
            let mut decisions = guest.begin();
            for n in 0..400 {
                for decision in &decisions {
                    active.carry_out(decision.action);
                }
                assert_eq!(active.vcpus(), guest.active(), "window {n}, {policy:?}: {decisions:?}");
                seen.extend(decisions.iter().map(|decision| (decision.action.name(), decision.reason)));
                // One vCPU goes, and comes back.
                let there = if (100..150).contains(&n) { set("0-1,3") } else { all.clone() };
                // A step that hurts, and later a program that does less.
                let slow = active.vcpus().len() < 3 && n < 80 || n > 300;
                let window = window(n, &there, active.vcpus(), slow);
                decisions = guest.step(&window);
                active.follow(&window);
            }
            if policy.consolidates() {
                for action in ["deactivate", "activate", "activate-all"] {
                    assert!(seen.iter().any(|(name, _)| *name == action), "no {action}, {policy:?}: {seen:?}");
                }
                assert!(seen.iter().any(|(_, reason)| *reason == Reason::TopologyChanged));
            }
        }
    }

    #[test]
    fn a_vcpu_that_is_away_is_not_active_and_one_that_comes_is() {
        let mut active = ActiveSet::new(set("0-3"));
        assert!(active.carry_out(Action::Deactivate { vcpu: VcpuId(3) }));
        assert!(active.carry_out(Action::Deactivate { vcpu: VcpuId(2) }));
        assert!(!active.carry_out(Action::Release { vcpu: VcpuId(1) }));
        assert_eq!(*active.vcpus(), set("0-1"));
        let there = |list| window(1, &set(list), &set("0"), false);
        active.follow(&there("0,2-4"));
        assert_eq!(*active.vcpus(), set("0,4"));
        active.follow(&there("2-3"));
        assert_eq!(*active.vcpus(), set("2-3"), "better those than none");
        active.follow(&there("0-3"));
        assert!(active.carry_out(Action::Activate { vcpu: VcpuId(2) }));
        assert_eq!(*active.vcpus(), set("0-2"));
        assert!(active.carry_out(Action::ActivateAll));
        assert_eq!(*active.vcpus(), set("0-3"));
    }
}
