//! Decisions as a person reads them: the same for several vCPUs is one line, and so is a trial.

use crate::DecisionRecord;
use crate::text::count;
use gleaner_model::{CpuSet, Nanos, Reason, VcpuId};
use std::fmt;

/// A trial's changes follow one another sooner than this. The next trial comes later.
const TRIAL_GAP_NS: u64 = 10_000_000_000;

/// One line.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a>(&'a [DecisionRecord]);

/// These decisions, oldest first, as lines, oldest first.
pub fn told(decisions: &[DecisionRecord]) -> Vec<Told<'_>> {
    decisions.chunk_by(is_one_line).map(Told).collect()
}

fn is_one_line(a: &DecisionRecord, b: &DecisionRecord) -> bool {
    let alike = (a.at_ns, &a.action, &a.reason) == (b.at_ns, &b.action, &b.reason);
    let goes_on = is_trial(a) && (is_trial(b) || is_verdict(b)) && b.at_ns.saturating_sub(a.at_ns) < TRIAL_GAP_NS;
    alike || goes_on
}

fn is_trial(decision: &DecisionRecord) -> bool {
    decision.reason == Reason::RetentionTrial.to_string()
}

/// What a trial said begins so, whatever it compared.
fn is_verdict(decision: &DecisionRecord) -> bool {
    decision.reason.starts_with("bridging idle periods ")
}

impl Told<'_> {
    /// When it was decided; of a trial, when it ended.
    pub fn at_ns(&self) -> u64 {
        self.0.last().map_or(0, |last| last.at_ns)
    }

    /// Decisions in it.
    pub fn decisions(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return Ok(()) };
        let of_last = self.0.iter().filter(|decision| decision.reason == last.reason);
        let vcpus: CpuSet = of_last.filter_map(|decision| decision.vcpu.map(VcpuId)).collect();
        let action = if is_trial(last) { "trial" } else { &last.action };
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
            assert!(is_verdict(&decision(0, "retain", 0, &said.to_string())), "{said}");
        }
        assert!(!is_verdict(&decision(0, "retain", 0, &Reason::RetentionUnseen.to_string())));
    }
}
