//! Did the last step hurt, and what is learnt from it (paper, section 5: "it stops the consolidation and restores the
//! vCPU that was last deactivated").
//!
//! The paper takes falling utilization for a slow-down. But consolidation also makes wake-ups cheaper, which lowers CPU
//! time without slowing anything down, and single windows are noise. So both the group's CPU time and its hand-overs
//! per second must have fallen, by more than chance explains: `max(3 %, 2 MAD)` of the windows before, each of its own.
//!
//! A chain of steps that each lose a little must not add up, so speed is compared with that before this step and with
//! that before the first step of the chain (ours).

use super::conditions::{Factors, granularity_ratio, load_ratio};
use super::measure::{Measure, Speed, Spread};
use super::workload_change::Reference;
use super::{Consolidation, Outcome};
use crate::guest::GuestParams;
use crate::guest::params::FACTOR_MIN;
use gleaner_model::{CpuSet, Lengths, Nanos, Reason};
use serde::{Deserialize, Serialize};

/// A fall that is noise: up to so many median absolute deviations of the windows before.
const HURT_MADS: f64 = 2.0;
/// A rise of CPU time by more is the program's: half of `cpu_change_share`, as a full vCPU leaves no room to rise.
const CPU_GROWTH_SHARE: f64 = 0.10;

/// A step that is in force: vCPUs were deactivated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) vcpus: CpuSet,
    pub(super) taken_at: Nanos,
    /// Active vCPUs before it.
    pub(super) n: usize,
    /// What it was decided on.
    pub(super) measure: Measure,
    /// The windows before it.
    pub(super) before: Speed,
    /// The workload before it, [closed](Reference::close).
    pub(super) reference: Reference,
    /// Whether it filled a vCPU and was seen to pay.
    pub(super) paid: bool,
    /// CPU time per second after it, where the group was faster then: more than that is another workload.
    pub(super) faster: Option<Spread>,
}

impl Step {
    /// The share of CPU time per second lost, if the step hurt. `origin` is the speed before the first step in force.
    pub(super) fn loss(&self, origin: &Speed, after: &Speed, params: &GuestParams) -> Option<f64> {
        [&self.before, origin].into_iter().find_map(|before| {
            let cpu_loss = fall(before.cpu, after.cpu.median, params)?;
            fall(before.handovers, after.handovers.median, params).map(|_| cpu_loss)
        })
    }

    /// The share by which the group's hand-overs per second rose since before the step, unless they fell by more than
    /// chance explains. CPU time says nothing here: it is asked where the step filled a vCPU, which bounds it.
    pub(super) fn gain(&self, after: &Speed, params: &GuestParams) -> Option<f64> {
        let fell = fall(self.before.handovers, after.handovers.median, params);
        self.handovers_gained(after).filter(|_| fell.is_none())
    }

    /// The share by which hand-overs per second are fewer `with` the step's vCPUs than `without`, by more than chance
    /// explains.
    pub(super) fn slower(without: &Speed, with: &Speed, params: &GuestParams) -> Option<f64> {
        fall(without.handovers, with.handovers.median, params)
    }

    fn handovers_gained(&self, after: &Speed) -> Option<f64> {
        let before = self.before.handovers.median;
        (before > 0.0).then(|| after.handovers.median / before.max(1.0) - 1.0)
    }

    /// Takes how fast the group is when it is judged. A group that computes more *and* hands over more may be faster
    /// for the step: threads that no longer wait for a vCPU to wake up compute instead.
    pub(super) fn credit(&mut self, after: &Speed) {
        let gained = self.handovers_gained(after).is_some_and(|gain| gain > CPU_GROWTH_SHARE);
        let faster = after.cpu.median > self.before.cpu.median && gained;
        self.faster = faster.then_some(after.cpu);
    }

    /// CPU time per second that belongs to the step: before it, or after it where it made the group faster.
    pub(super) fn usual(&self) -> Spread {
        self.faster.unwrap_or(self.before.cpu)
    }

    /// Whether the group's CPU time per second rose, since before the step, by [`CPU_GROWTH_SHARE`] and more than
    /// chance explains: no step of ours does that.
    pub(super) fn grew(&self, after: &Speed, params: &GuestParams) -> bool {
        let rise = CPU_GROWTH_SHARE.max(noise(self.before.cpu, params));
        after.cpu.median > self.before.cpu.median * (1.0 + rise)
    }

    /// The factors after this step hurt: a full vCPU means that pieces were too large (eta), otherwise idle time was
    /// too short (rho).
    pub(super) fn learn(&self, factors: Factors, overloaded: bool) -> Factors {
        learn(&self.measure.lengths, (self.n, self.vcpus.len()), factors, overloaded)
    }
}

impl Consolidation {
    /// Takes the last step back; `None` if there is none. With the vCPUs of before comes the reference of before: a
    /// program that does less now, for reasons of its own, looks like one that the step hurt, until it still does less
    /// without the step.
    pub(super) fn undo(&mut self, now: Nanos, reason: Reason, overloaded: bool) -> Option<Outcome> {
        let step = self.steps.pop()?;
        if step.vcpus.len() == 1 {
            self.learned.factors = step.learn(self.learned.factors, overloaded);
        } else {
            // Too many at once says nothing of one.
            self.learned.several_at_once = false;
        }
        self.hold_off.trigger(now, self.hold_off.until(), step.taken_at);
        self.give_back(&step);
        self.forget();
        // One that is too short, and closed, would never say anything.
        if step.reference.ready(&self.params) {
            self.reference = step.reference;
        }
        Some(Outcome::Restore { vcpus: step.vcpus, reason })
    }

    pub(super) fn give_back(&mut self, step: &Step) {
        for vcpu in step.vcpus.iter() {
            self.active.insert(vcpu);
        }
    }
}

/// What rho or eta is multiplied with after a step that hurt, as the paper has it.
const ADAPTATION: f64 = 0.9;

/// eta = 0.9 * min(eta, g_comp/l_idle) if a vCPU was overloaded, otherwise rho = 0.9 * min(rho,
/// k*l_comp/((N-k)*l_idle)).
fn learn(lengths: &Lengths, (n, k): (usize, usize), factors: Factors, overloaded: bool) -> Factors {
    let lower = |factor: f64, ratio: f64| (ADAPTATION * factor.min(ratio)).max(FACTOR_MIN);
    if overloaded {
        Factors { granularity: lower(factors.granularity, granularity_ratio(lengths)), ..factors }
    } else {
        Factors { load: lower(factors.load, load_ratio(lengths, n, k)), ..factors }
    }
}

/// The share by which `after` is below `before`, if that is more than chance explains.
fn fall(before: Spread, after: f64, params: &GuestParams) -> Option<f64> {
    if before.median <= 0.0 {
        return None;
    }
    let loss = 1.0 - after / before.median;
    (loss > noise(before, params)).then_some(loss)
}

/// The share that chance explains.
fn noise(before: Spread, params: &GuestParams) -> f64 {
    params.tuning.hurt_loss_min.max(HURT_MADS * before.relative_mad())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::VcpuId;

    #[test]
    fn each_adaptation_rule() {
        // l_comp, g_comp, l_idle, N, rho, eta, overloaded; then rho and eta.
        for (l_comp, g_comp, l_idle, n, rho, eta, overloaded, new_rho, new_eta) in [
            (20.0, 5.0, 10.0, 5, 1.0, 1.0, true, 1.0, 0.45),
            (20.0, 5.0, 10.0, 5, 1.0, 1.0, false, 0.45, 1.0),
            (20.0, 5.0, 10.0, 5, 0.4, 0.4, true, 0.4, 0.36),
            (20.0, 5.0, 10.0, 5, 0.4, 0.4, false, 0.36, 0.4),
            (10.0, 9.0, 10.0, 2, 1.0, 0.5, false, 0.9, 0.5),
            (10.0, 0.0, 10.0, 2, 1.0, 1.0, true, 1.0, 0.001),
            (10.0, 5.0, 0.0, 2, 0.8, 0.8, false, 0.72, 0.8),
        ] {
            let factors = Factors { load: rho, granularity: eta };
            let found = learn(&Lengths { l_comp, g_comp, l_idle }, (n, 1), factors, overloaded);
            assert!(
                (found.load - new_rho).abs() < 1e-12 && (found.granularity - new_eta).abs() < 1e-12,
                "l_comp {l_comp}, g_comp {g_comp}, l_idle {l_idle}, N {n}, overloaded {overloaded}: {found:?}"
            );
        }
    }

    #[test]
    fn a_step_hurt_only_if_cpu_time_and_switches_both_fell_beyond_noise() {
        let spread = |median, mad| Spread { median, mad };
        let quiet = Speed { cpu: spread(2.0, 0.0), handovers: spread(1000.0, 0.0) };
        let noisy = Speed { cpu: spread(2.0, 0.1), handovers: spread(1000.0, 50.0) };
        // before, CPU seconds per second and switches per second after, hurt
        for (name, before, cpu, switches, hurt) in [
            ("nothing fell", quiet, 2.0, 1000.0, false),
            ("both fell 10 %", quiet, 1.8, 900.0, true),
            ("both fell 2 %", quiet, 1.96, 980.0, false),
            ("cheaper wake-ups", quiet, 1.8, 1000.0, false),
            ("cheaper wake-ups, faster", quiet, 1.8, 1200.0, false),
            ("switches alone", quiet, 2.0, 900.0, false),
            ("9 % in 5 % noise", noisy, 1.82, 910.0, false),
            ("11 % in 5 % noise", noisy, 1.78, 890.0, true),
            ("nothing before", Speed::default(), 0.0, 0.0, false),
        ] {
            let after = Speed { cpu: spread(cpu, 0.0), handovers: spread(switches, 0.0) };
            assert_eq!(step(before).loss(&before, &after, &GuestParams::default()).is_some(), hurt, "{name}");
        }
        let crept = step(Speed { cpu: spread(1.9, 0.0), handovers: spread(950.0, 0.0) });
        let after = Speed { cpu: spread(1.86, 0.0), handovers: spread(930.0, 0.0) };
        assert!(crept.loss(&quiet, &after, &GuestParams::default()).is_some(), "2 % now, 7 % since the first step");
    }

    #[test]
    fn more_cpu_time_is_the_steps_only_with_more_hand_overs() {
        let spread = |median| Spread { median, mad: 0.0 };
        let before = Speed { cpu: spread(2.0), handovers: spread(1000.0) };
        for (cpu, handovers, its_own) in
            [(3.0, 1500.0, true), (3.0, 1000.0, false), (1.5, 1500.0, false), (2.0, 1000.0, false)]
        {
            let mut step = step(before);
            step.credit(&Speed { cpu: spread(cpu), handovers: spread(handovers) });
            assert_eq!(step.usual().median > 2.0, its_own, "{cpu} {handovers}");
            assert_eq!(step.faster.is_some(), its_own, "{cpu} {handovers}");
        }
    }

    fn step(before: Speed) -> Step {
        let lengths = Lengths { l_comp: 1.0, g_comp: 1.0, l_idle: 1.0 };
        let measure = Measure { lengths, utilization: 0.5 };
        let reference = Reference::default();
        Step {
            vcpus: [VcpuId(1)].into_iter().collect(),
            taken_at: Nanos::ZERO,
            n: 2,
            measure,
            before,
            reference,
            paid: false,
            faster: None,
        }
    }
}
