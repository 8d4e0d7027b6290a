//! Decisions as lines for a person: the same for several vCPUs is one line, and so is a trial.

use crate::DecisionRecord;
use crate::text::count;
use gleaner_model::{CpuSet, Nanos, VcpuId};
use std::fmt;

/// A trial's changes follow one another sooner than this. The next trial comes later.
const TRIAL_GAP_NS: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Told<'a>(&'a [DecisionRecord]);

/// These decisions, oldest first, as lines, oldest first.
pub fn told(decisions: &[DecisionRecord]) -> Vec<Told<'_>> {
    let mut lines = Vec::new();
    let mut rest = decisions;
    while !rest.is_empty() {
        let (line, others) = rest.split_at(length_of_line(rest));
        lines.push(Told(line));
        rest = others;
    }
    lines
}

/// How many of these decisions the first line tells.
fn length_of_line(decisions: &[DecisionRecord]) -> usize {
    let trial = decisions.first().and_then(|first| TRIALS.iter().find(|trial| trial.begins_with(first)));
    let goes_on = |last: &DecisionRecord, next: &DecisionRecord| {
        let alike = (last.at_ns, &last.action, &last.reason) == (next.at_ns, &next.action, &next.reason);
        let soon = next.at_ns.saturating_sub(last.at_ns) < TRIAL_GAP_NS;
        alike || soon && trial.is_some_and(|trial| !trial.is_verdict(last) && trial.is_of(next))
    };
    1 + decisions.windows(2).take_while(|pair| goes_on(&pair[0], &pair[1])).count()
}

/// How a trial is known by its words.
struct Trial {
    /// Its decisions begin so.
    begins: &'static str,
    /// ... or so, where they only follow from it.
    follows: &'static [&'static str],
    /// What it said.
    verdicts: &'static [&'static str],
}

const TRIALS: [Trial; 2] = [
    Trial { begins: "a trial whether bridging ", follows: &[], verdicts: &["bridging idle periods "] },
    Trial {
        begins: "its threads seem to take turns ",
        follows: &["its threads take turns on one vCPU", "deactivated: ", "in use again"],
        verdicts: &[
            "its threads take turns: on one vCPU",
            "one vCPU is not enough",
            "its threads run side by side",
            "a trial of one vCPU ended",
        ],
    },
];

impl Trial {
    fn begins_with(&self, decision: &DecisionRecord) -> bool {
        decision.reason.starts_with(self.begins)
    }

    fn is_verdict(&self, decision: &DecisionRecord) -> bool {
        self.verdicts.iter().any(|verdict| decision.reason.starts_with(verdict))
    }

    fn is_of(&self, decision: &DecisionRecord) -> bool {
        let follows = self.follows.iter().any(|words| decision.reason.starts_with(words));
        follows || self.begins_with(decision) || self.is_verdict(decision)
    }
}

impl Told<'_> {
    /// When it was decided; of a trial, when it ended.
    pub fn at_ns(&self) -> u64 {
        self.0.last().map_or(0, |last| last.at_ns)
    }

    pub fn decisions(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return Ok(()) };
        let of_last = self.0.iter().filter(|decision| decision.reason == last.reason);
        let vcpus: CpuSet = of_last.filter_map(|decision| decision.vcpu.map(VcpuId)).collect();
        let goes_on = TRIALS.iter().any(|trial| trial.begins_with(last));
        let action = if goes_on { "trial" } else { &last.action };
        f.write_str(action)?;
        match vcpus.len() {
            0 => {}
            1 => write!(f, " vCPU {vcpus}")?,
            _ => write!(f, " vCPUs {vcpus}")?,
        }
        write!(f, ": {}", last.reason)?;
        let lasted = last.at_ns.saturating_sub(first.at_ns);
        if lasted > 0 {
            let changes = count(self.0.len() as u64, "change");
            write!(f, " ({changes} in {})", Nanos(lasted))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::Reason;

    fn decision(at_ms: u64, action: &str, vcpu: u32, reason: &str) -> DecisionRecord {
        DecisionRecord { at_ns: at_ms * 1_000_000, action: action.into(), vcpu: Some(vcpu), reason: reason.into() }
    }

    fn lines(decisions: &[DecisionRecord]) -> Vec<String> {
        told(decisions).iter().map(|told| format!("{} {told}", told.at_ns() / 1_000_000)).collect()
    }

    #[test]
    fn a_trial_is_one_line_with_what_it_said() {
        let trial = Reason::RetentionTrial.to_string();
        let pays = Reason::RetentionFaster { rate_ratio: 1.31 }.to_string();
        let mut all: Vec<DecisionRecord> = [(1_000, "release"), (1_100, "retain"), (1_300, "release")]
            .into_iter()
            .flat_map(|(at, action)| [0, 1].map(|vcpu| decision(at, action, vcpu, &trial)))
            .collect();
        assert_eq!(lines(&all), [format!("1300 trial vCPUs 0-1: {trial} (6 changes in 300ms)")]);
        all.extend([0, 1].map(|vcpu| decision(1_400, "retain", vcpu, &pays)));
        all.push(decision(9_000, "release", 1, "the host took 17 %"));
        let verdict = format!("1400 retain vCPUs 0-1: {pays} (8 changes in 400ms)");
        assert_eq!(lines(&all), [verdict.clone(), "9000 release vCPU 1: the host took 17 %".into()]);
        // The next one is a line of its own.
        all.extend([decision(31_400, "release", 0, &trial), decision(61_400, "release", 0, &trial)]);
        assert_eq!(
            lines(&all)[2..],
            [31_400, 61_400].map(|at| format!("{at} release vCPU 0: {trial}").replace("release", "trial"))
        );
    }

    #[test]
    fn what_a_trial_says_is_known_by_its_words() {
        for said in [
            Reason::RetentionPays { cost_ratio: 0.8 },
            Reason::RetentionCosts { cost_ratio: 1.2 },
            Reason::RetentionFaster { rate_ratio: 1.2 },
            Reason::RetentionNoFaster { rate_ratio: 1.0 },
            Reason::RetentionNoSlower { rate_ratio: 1.0 },
            Reason::RetentionAndCpuTime { pays: true, cpu_ratio: 1.0 },
        ] {
            assert!(TRIALS[0].is_verdict(&decision(0, "retain", 0, &said.to_string())), "{said}");
        }
        assert!(!TRIALS[0].is_verdict(&decision(0, "retain", 0, &Reason::RetentionUnseen.to_string())));
        let turns = |pays| Reason::Turns { pays, rate_ratio: 1.0, low: 1.0, high: 1.0, pairs: 2 };
        for said in [turns(true), turns(false), Reason::SideBySide { threads: 2.0 }, Reason::TurnsUnclear] {
            assert!(TRIALS[1].is_verdict(&decision(0, "activate-all", 0, &said.to_string())), "{said}");
        }
        for follows in [Reason::TurnsTrial { cpus: 1.0 }, Reason::OnOneVcpu, Reason::Deactivated, Reason::Reactivated] {
            let follows = decision(0, "release", 0, &follows.to_string());
            assert!(TRIALS[1].is_of(&follows) && !TRIALS[1].is_verdict(&follows), "{}", follows.reason);
        }
    }

    #[test]
    fn a_trial_of_one_vcpu_is_one_line_with_what_follows_from_it() {
        let seem = Reason::TurnsTrial { cpus: 0.6 }.to_string();
        let [one, back] = [Reason::OnOneVcpu, Reason::Reactivated].map(|reason| reason.to_string());
        let pays = Reason::Turns { pays: true, rate_ratio: 1.6, low: 1.5, high: 1.7, pairs: 2 }.to_string();
        let all = [
            decision(0, "retain", 0, &back),
            decision(16, "deactivate", 1, &seem),
            decision(16, "release", 0, &one),
            decision(28, "activate-all", 0, &seem),
            decision(28, "retain", 0, &back),
            decision(40, "deactivate", 1, &pays),
            decision(90, "retain", 0, &back),
        ];
        let told = [
            format!("0 retain vCPU 0: {back}"),
            format!("40 deactivate vCPU 1: {pays} (5 changes in 24.0ms)"),
            format!("90 retain vCPU 0: {back}"),
        ];
        assert_eq!(lines(&all), told);
    }
}
