//! Every mix under every technique, in parallel.

use super::programs::{Mix, Program};
use super::result::{Extent, Progress, ReproduceError};
use super::simulate::{ContextResult, Setup, long, short, simulate};
use super::source::Source;
use crate::insertion::Insertion;
use crate::policy::PolicyKind;
use crate::prefetch::PrefetchParams;
use rayon::prelude::*;

/// The bars of Figures 10, 11 and 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technique {
    /// 30 ms, which the others are compared with.
    Long,
    /// 1 ms.
    Short,
    /// 1 ms with context prefetching as RECAP does it.
    Prefetch,
    /// 1 ms with context prefetching as Daly and Cain do it.
    PrefetchAll,
    /// 1 ms with insertion by time sampling.
    Dip,
    /// Both, with RECAP.
    DipPrefetch,
    /// 1 ms with the best fixed insertion of each context.
    SipBest,
}

impl Technique {
    /// Those beside the one that they are compared with.
    pub const COMPARED: [Self; 6] =
        [Self::Short, Self::Prefetch, Self::PrefetchAll, Self::Dip, Self::DipPrefetch, Self::SipBest];

    /// As Figure 10 calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Long => "30ms",
            Self::Short => "1ms",
            Self::Prefetch => "prefetch",
            Self::PrefetchAll => "Daly-Cain",
            Self::Dip => "DIP",
            Self::DipPrefetch => "DIP+prefetch",
            Self::SipBest => "SIP-best",
        }
    }

    fn setup(self, extent: &Extent) -> Setup {
        let short = short(extent);
        match self {
            Self::Long => long(extent),
            Self::Short | Self::SipBest => short,
            Self::Prefetch => Setup { prefetch: Some(PrefetchParams::recap()), ..short },
            Self::PrefetchAll => Setup { prefetch: Some(PrefetchParams::daly_cain()), ..short },
            Self::Dip => Setup { insertion: PolicyKind::DipTime, ..short },
            Self::DipPrefetch => {
                Setup { insertion: PolicyKind::DipTime, prefetch: Some(PrefetchParams::recap()), ..short }
            }
        }
    }
}

/// One mix, with results for each technique asked for.
#[derive(Clone, Debug)]
pub(super) struct MixResults {
    pub mix: Mix,
    techniques: Vec<(Technique, Vec<ContextResult>)>,
}

impl MixResults {
    /// Made-up results, for those who judge them.
    #[cfg(test)]
    pub fn made_up(mix: Mix, techniques: Vec<(Technique, Vec<ContextResult>)>) -> Self {
        Self { mix, techniques }
    }

    /// A technique's results, by context.
    pub fn of(&self, technique: Technique) -> &[ContextResult] {
        self.techniques.iter().find(|(found, _)| *found == technique).map_or(&[], |(_, results)| results)
    }

    /// CPI against 30 ms, by context.
    pub fn cpi_ratios(&self, technique: Technique) -> Vec<f64> {
        cpi_ratios(self.of(technique), self.of(Technique::Long))
    }

    /// Memory requests against 30 ms for the same work of each context: (all, of these prefetches and records).
    pub fn request_ratios(&self, technique: Technique) -> (f64, f64) {
        let long = self.of(Technique::Long);
        let sum = |results: &[ContextResult], of: fn(&ContextResult) -> f64| -> f64 {
            results.iter().zip(long).map(|(result, long)| of(result) * long.instructions as f64).sum()
        };
        let base = sum(long, |result| result.demand_per_instruction);
        let demand = sum(self.of(technique), |result| result.demand_per_instruction);
        let extra =
            sum(self.of(technique), |result| result.prefetches_per_instruction + result.records_per_instruction);
        ((demand + extra) / base, extra / base)
    }
}

fn cpi_ratios(results: &[ContextResult], long: &[ContextResult]) -> Vec<f64> {
    results.iter().zip(long).map(|(result, long)| result.cpi / long.cpi).collect()
}

/// One simulation to make.
struct Task {
    mix: usize,
    technique: Technique,
    insertions: Option<[Insertion; 2]>,
}

/// Runs `techniques`, and 30 ms, for each mix; `copies` of each of its two programs share the core.
pub(super) fn run(
    mixes: &[Mix],
    techniques: &[Technique],
    copies: usize,
    extent: &Extent,
    source: &Source,
    progress: &dyn Progress,
) -> Result<Vec<MixResults>, ReproduceError> {
    let tasks = plan(mixes, techniques);
    progress.planned(tasks.len() as u64);
    let results: Vec<Result<Vec<ContextResult>, ReproduceError>> = tasks
        .par_iter()
        .map(|task| {
            let mut setup = task.technique.setup(extent);
            if let Some(insertions) = &task.insertions {
                setup.insertion = PolicyKind::PerContext(insertions.repeat(copies));
            }
            let programs = mixes[task.mix].programs.map(|name| Program::by_name(name).expect("of Table VI"));
            let results = simulate(&programs.repeat(copies), &setup, source);
            progress.done();
            results
        })
        .collect();
    let mut all: Vec<MixResults> = mixes.iter().map(|mix| MixResults { mix: *mix, techniques: Vec::new() }).collect();
    let mut fixed: Vec<(usize, Vec<ContextResult>)> = Vec::new();
    for (task, results) in tasks.iter().zip(results) {
        let results = results?;
        if task.insertions.is_some() {
            fixed.push((task.mix, results));
        } else {
            all[task.mix].techniques.push((task.technique, results));
        }
    }
    if techniques.contains(&Technique::SipBest) {
        for (index, mix) in all.iter_mut().enumerate() {
            let tried = fixed.iter().filter(|(mix, _)| *mix == index).map(|(_, results)| results.clone());
            mix.choose_best(tried.collect());
        }
    }
    Ok(all)
}

/// SIP-best tries "all possible insertion policies" for each context (section V-B). All at MRU is plain 1 ms, which is
/// run anyway; copies of a program are treated alike.
const INSERTIONS: [[Insertion; 2]; 3] =
    [[Insertion::Lru, Insertion::Mru], [Insertion::Mru, Insertion::Lru], [Insertion::Lru, Insertion::Lru]];

/// The longest first would be best; all 30 ms runs first is near enough, and keeps the order of the plan.
fn plan(mixes: &[Mix], techniques: &[Technique]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for technique in [Technique::Long].iter().chain(techniques) {
        for mix in 0..mixes.len() {
            if *technique == Technique::SipBest {
                let tried =
                    INSERTIONS.map(|insertions| Task { mix, technique: *technique, insertions: Some(insertions) });
                tasks.extend(tried);
            } else {
                tasks.push(Task { mix, technique: *technique, insertions: None });
            }
        }
    }
    tasks
}

impl MixResults {
    /// The least sum of CPIs, each divided by its CPI at 30 ms; the first of equals. What is no number is dearer than
    /// all.
    fn choose_best(&mut self, tried: Vec<Vec<ContextResult>>) {
        let plain = self.of(Technique::Short).to_vec();
        let long = self.of(Technique::Long);
        let cost = |results: &Vec<ContextResult>| {
            let sum = cpi_ratios(results, long).iter().sum::<f64>();
            if sum.is_nan() { f64::INFINITY } else { sum }
        };
        let candidates = std::iter::once(plain).filter(|plain| !plain.is_empty()).chain(tried);
        let best = candidates.min_by(|one, other| cost(one).total_cmp(&cost(other))).unwrap_or_default();
        self.techniques.push((Technique::SipBest, best));
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::MIXES;
    use super::super::tests::context;
    use super::*;

    #[test]
    fn sip_best_is_the_least_sum_against_30_ms_and_plain_where_nothing_is_better() {
        let long = vec![context(1.0), context(10.0)];
        let plain = vec![context(2.0), context(11.0)];
        let results = |tried: &[[f64; 2]]| {
            let techniques = vec![(Technique::Long, long.clone()), (Technique::Short, plain.clone())];
            let mut mix = MixResults::made_up(MIXES[0], techniques);
            mix.choose_best(tried.iter().map(|cpi| cpi.map(context).to_vec()).collect());
            mix.cpi_ratios(Technique::SipBest)
        };
        // Ratios of 3.1 in all plain; 2.6, though the sum of CPIs is larger; 3.3.
        assert_eq!(results(&[[1.2, 14.0], [2.2, 11.0]]), [1.2, 1.4]);
        assert_eq!(results(&[[2.2, 11.0]]), [2.0, 1.1]);
        assert_eq!(results(&[]), [2.0, 1.1]);
    }

    #[test]
    fn every_mix_is_tried_with_every_insertion_of_its_two_programs() {
        let tasks = plan(&MIXES[..2], &[Technique::Short, Technique::SipBest]);
        // 30 ms, 1 ms, and three combinations beside it.
        assert_eq!(tasks.len(), 2 * (1 + 1 + 3));
        let tried: Vec<_> = tasks.iter().filter(|task| task.mix == 1).filter_map(|task| task.insertions).collect();
        let (lru, mru) = (Insertion::Lru, Insertion::Mru);
        assert_eq!(tried, [[lru, mru], [mru, lru], [lru, lru]]);
    }
}
