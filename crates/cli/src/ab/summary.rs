//! All runs to `gleaner.ab/1`: pairs, intervals, costs, verdict.

use super::plan::{Mode, Plan};
use super::series::Series;
use gleaner_report::{
    AbComparison, AbMachine, AbMedians, AbMetric, AbMode, AbReport, AbRun, AbSideCosts, AbSpeedup, AbSpread,
};
use gleaner_stats::{FEWEST, Speedup, Verdict, mean_and_deviation, median, outliers, speedup};

pub fn report(plan: &Plan, series: &Series) -> AbReport {
    let mut runs = series.runs.clone();
    plan.modes.iter().for_each(|mode| mark_outliers(&mut runs, mode, plan.metric.is_some()));
    let vcpus = crate::machine::allowed_vcpus().len() as u64;
    let mut notes = series.notes.clone();
    let others: Vec<(AbComparison, Vec<Pair<'_>>)> =
        plan.others().map(|mode| compared(plan, &runs, mode, vcpus)).collect();
    let pairs = others.iter().map(|(_, pairs)| pairs.len()).min().unwrap_or(0) as u64;
    for (of, pairs) in &others {
        notes.extend(without_ratio(of, pairs));
        notes.extend(opposite(plan, pairs));
    }
    let mut others = others.into_iter().map(|(of, _)| of);
    let second = others.next().unwrap_or_default();
    let further = others.collect();
    let trips: u64 = runs.iter().map(|run| run.guard_trips).sum();
    if trips > 0 {
        notes
            .push(format!("the host was short of CPUs: times the contention guard stopped a yielding thread: {trips}"));
    }
    AbReport {
        schema: AbReport::SCHEMA.to_owned(),
        command: plan.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        modes: plan.modes.iter().map(|mode| mode_of(&runs, mode)).collect(),
        profile: plan.profile.clone(),
        metric: plan.metric.as_ref().map(|metric| AbMetric {
            name: metric.name.clone(),
            regex: metric.regex.to_string(),
            better: if metric.higher_is_better { "higher" } else { "lower" }.to_owned(),
        }),
        pairs_planned: plan.pairs,
        pairs,
        warmups: plan.warmups,
        shuffle_seed: plan.seed,
        machine: AbMachine { kernel: rustix::system::uname().release().to_string_lossy().into_owned(), vcpus },
        speedup: second.speedup,
        told_verdict: second.told_verdict().to_owned(),
        verdict: second.verdict,
        verdict_withheld: second.verdict_withheld,
        pairs_to_tell: second.pairs_to_tell,
        side_costs: second.side_costs,
        further,
        incomplete: series.stop.as_ref().map(|stop| stop.reason.clone()),
        notes,
        runs,
    }
}

/// The speedup so far, for the progress bar.
pub fn so_far(plan: &Plan, runs: &[AbRun]) -> String {
    let found = plan.others().filter_map(|mode| speedup_of(plan, &complete_pairs(plan, runs, mode)));
    let medians: Vec<String> = found.map(|found| format!("{:.3}", found.median)).collect();
    if medians.is_empty() { String::new() } else { format!("speedup so far {}", medians.join(", ")) }
}

/// What a mode comes to against the first, and the pairs that this rests on.
fn compared<'a>(plan: &Plan, runs: &'a [AbRun], mode: &Mode, vcpus: u64) -> (AbComparison, Vec<Pair<'a>>) {
    let pairs = complete_pairs(plan, runs, mode);
    let found = speedup_of(plan, &pairs);
    let comparison = AbComparison {
        mode: mode.name.clone(),
        speedup: found.map(|found| AbSpeedup {
            median: found.median,
            ci95: found.ci95.map(|(low, high)| [low, high]),
            pairs: found.pairs as u64,
        }),
        verdict: found.map_or(Verdict::NoDifference, |found| found.verdict()).name().to_owned(),
        verdict_withheld: withheld(found),
        pairs_to_tell: found.and_then(|found| found.pairs_to_tell()),
        side_costs: side_costs(&pairs, vcpus),
    };
    (comparison, pairs)
}

fn without_ratio(of: &AbComparison, pairs: &[Pair<'_>]) -> Option<String> {
    let without = pairs.len() as u64 - of.speedup.map_or(0, |speedup| speedup.pairs);
    (without > 0)
        .then(|| format!("pairs without a ratio, because a value is not above 0: {without}; they are left out"))
}

type Pair<'a> = (&'a AbRun, &'a AbRun);

/// Pairs of which both runs are there: the first mode's, this mode's.
fn complete_pairs<'a>(plan: &Plan, runs: &'a [AbRun], second: &Mode) -> Vec<Pair<'a>> {
    let Some(first) = plan.modes.first() else { return Vec::new() };
    let partner = |run: &AbRun| runs.iter().find(|other| other.pair == run.pair && other.mode == second.name);
    runs.iter().filter(|run| run.mode == first.name).filter_map(|run| Some((run, partner(run)?))).collect()
}

fn speedup_of(plan: &Plan, pairs: &[Pair<'_>]) -> Option<Speedup> {
    let value = |run: &AbRun| if plan.metric.is_some() { run.metric.unwrap_or(0.0) } else { run.wall_ns as f64 };
    let more_is_better = plan.metric.as_ref().is_some_and(|metric| metric.higher_is_better);
    let turned = |(a, b): (f64, f64)| if more_is_better { (b, a) } else { (a, b) };
    speedup(&pairs.iter().map(|(a, b)| turned((value(a), value(b)))).collect::<Vec<_>>())
}

/// Better and worse by as much is no chance.
const OPPOSITE: f64 = 1.1;

/// Where the metric says that a mode is better, and wall time that it is worse.
fn opposite(plan: &Plan, pairs: &[Pair<'_>]) -> Option<String> {
    let metric = plan.metric.as_ref()?;
    let by_metric = speedup_of(plan, pairs)?.median;
    let times: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (a.wall_ns as f64, b.wall_ns as f64)).collect();
    let by_time = speedup(&times)?.median;
    let opposite = |a: f64, b: f64| a > OPPOSITE && b < 1.0 / OPPOSITE;
    (opposite(by_metric, by_time) || opposite(by_time, by_metric)).then(|| {
        format!(
            "the metric and wall time say opposite things: {} {by_metric:.2}, time {by_time:.2}, above 1 is better. See \
             whether --metric matches the right number, and whether {} is better",
            metric.name,
            if metric.higher_is_better { "higher" } else { "lower" }
        )
    })
}

fn withheld(found: Option<Speedup>) -> Option<String> {
    match found {
        None => Some("no pair of runs is complete and has a ratio".to_owned()),
        Some(found) if found.ci95.is_none() => {
            Some(format!("{FEWEST} pairs are the fewest that an interval can be given for (here: {})", found.pairs))
        }
        Some(_) => None,
    }
}

fn mark_outliers(runs: &mut [AbRun], mode: &Mode, of_metric: bool) {
    let mut of_mode: Vec<&mut AbRun> = runs.iter_mut().filter(|run| run.mode == mode.name).collect();
    let value = |run: &AbRun| if of_metric { run.metric.unwrap_or(0.0) } else { run.wall_ns as f64 };
    let far = outliers(&of_mode.iter().map(|run| value(run)).collect::<Vec<f64>>());
    of_mode.iter_mut().zip(far).for_each(|(run, far)| run.outlier = far);
}

fn mode_of(runs: &[AbRun], mode: &Mode) -> AbMode {
    let of_mode: Vec<&AbRun> = runs.iter().filter(|run| run.mode == mode.name).collect();
    AbMode {
        mode: mode.name.clone(),
        runs: of_mode.len() as u64,
        outliers: of_mode.iter().filter(|run| run.outlier).count() as u64,
        median: medians(&of_mode),
        spread: spread(&of_mode),
    }
}

fn spread(runs: &[&AbRun]) -> Option<AbSpread> {
    let (wall, wall_deviation) = mean_and_deviation(&runs.iter().map(|run| run.wall_ns as f64).collect::<Vec<_>>())?;
    let metric = mean_and_deviation(&runs.iter().filter_map(|run| run.metric).collect::<Vec<_>>());
    Some(AbSpread {
        wall_ns_mean: rounded(wall),
        wall_deviation_ns: wall_deviation.map(rounded),
        metric_mean: metric.map(|(mean, _)| mean),
        metric_deviation: metric.and_then(|(_, deviation)| deviation),
    })
}

fn medians(runs: &[&AbRun]) -> Option<AbMedians> {
    let of =
        |value: &dyn Fn(&AbRun) -> Option<f64>| median(&runs.iter().filter_map(|run| value(run)).collect::<Vec<_>>());
    let whole = |value: &dyn Fn(&AbRun) -> u64| of(&|run| Some(value(run) as f64)).map(rounded);
    Some(AbMedians {
        wall_ns: whole(&|run| run.wall_ns)?,
        metric: of(&|run| run.metric),
        cpu_time_ns: whole(&|run| run.cpu_time_ns)?,
        retained_ns: whole(&|run| run.retained_ns)?,
        steal_ns: of(&|run| run.steal_ns.map(|ns| ns as f64)).map(rounded),
        voluntary_switches: whole(&|run| run.voluntary_switches)?,
        involuntary_switches: whole(&|run| run.involuntary_switches)?,
        active_vcpus_mean: of(&|run| Some(run.active_vcpus_mean))?,
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times are not negative")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

fn side_costs(pairs: &[Pair<'_>], vcpus: u64) -> AbSideCosts {
    let ratio = |value: &dyn Fn(&AbRun) -> u64| {
        let of_pair = |(a, b): &Pair<'_>| (value(a) > 0).then(|| value(b) as f64 / value(a) as f64);
        median(&pairs.iter().filter_map(of_pair).collect::<Vec<f64>>())
    };
    let of_second =
        |value: &dyn Fn(&AbRun) -> f64| median(&pairs.iter().map(|(_, second)| value(second)).collect::<Vec<f64>>());
    let capacity = |run: &AbRun| (run.wall_ns * vcpus).max(1) as f64;
    AbSideCosts {
        cpu_time_ratio: ratio(&|run| run.cpu_time_ns),
        cpu_time_less_retained_ratio: ratio(&|run| run.cpu_time_ns.saturating_sub(run.retained_ns)),
        voluntary_switches_ratio: ratio(&|run| run.voluntary_switches),
        involuntary_switches_ratio: ratio(&|run| run.involuntary_switches),
        retained_ns: of_second(&|run| run.retained_ns as f64).map(rounded),
        retained_ratio: of_second(&|run| run.retained_ns as f64 / capacity(run)),
    }
}
