//! Every point of a sweep: one setting of the parameters, one combination of the scenario, one seed. Numbered, so that
//! any machine knows which are its own.

use super::axis::{self, Axis};
use gleaner_decide::guest::GuestParams;
use gleaner_scenario::{Combination, Plan, Scenario, ScenarioError};
use gleaner_sim::config::Config;
use gleaner_sim::scenario::config;
use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;
use toml::Table;

/// More would be months of work, and more files than a folder should have.
pub const POINTS_MAX: usize = 100_000;

/// What one setting of the parameters comes to.
#[derive(Debug)]
pub struct Setting {
    /// For each axis, which of its values.
    pub values: Vec<usize>,
    pub scenario: Scenario,
    pub combinations: Vec<Combination>,
    /// The number of its first point.
    first: usize,
}

/// One simulation.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// From 0, over the whole sweep.
    pub number: usize,
    pub setting: &'a Setting,
    pub combination: &'a Combination,
    pub seed: u64,
}

/// All of them.
#[derive(Debug)]
pub struct Grid {
    pub axes: Vec<Axis>,
    pub seed: u64,
    pub seeds: u32,
    settings: Vec<Setting>,
}

/// Reads a policy file that a scenario names.
pub type ReadParams<'a> = &'a (dyn Fn(&str) -> Result<GuestParams, String> + Sync);

impl Grid {
    /// All settings of these axes, the last one fastest. Every one is checked before anything is simulated.
    pub fn new(base: &Base<'_>, axes: Vec<Axis>, seed: u64, seeds: u32) -> Result<Self, String> {
        let product = axes.iter().try_fold(1_usize, |product, axis| product.checked_mul(axis.values.len()));
        // Counting ends with the first setting that is too much.
        let too_many = |points: Option<usize>| {
            let points =
                points.map_or_else(|| "more points than can be counted".to_owned(), |n| format!("{n} points or more"));
            format!(
                "{points}; must be {POINTS_MAX} at most: sweep over fewer values, or over parts, each with its own -o"
            )
        };
        let product = product.filter(|product| *product <= POINTS_MAX).ok_or_else(|| too_many(product))?;
        let (mut settings, mut first) = (Vec::with_capacity(product), 0_usize);
        for n in 0..product {
            let values = nth(&axes, n);
            let scenario = base.scenario(&axes, &values)?;
            let combinations = Plan::of(&scenario).combinations().to_vec();
            let next = first.checked_add(combinations.len().saturating_mul(seeds as usize));
            let next = next.filter(|next| *next <= POINTS_MAX).ok_or_else(|| too_many(next))?;
            settings.push(Setting { values, scenario, combinations, first });
            first = next;
        }
        Ok(Self { axes, seed, seeds, settings })
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.settings.last().map_or(0, |last| last.first + last.combinations.len() * self.seeds as usize)
    }

    /// The point of that number; below [`Grid::len`].
    pub fn point(&self, number: usize) -> Point<'_> {
        let setting = &self.settings[self.settings.partition_point(|setting| setting.first <= number) - 1];
        let (combination, seed) =
            ((number - setting.first) / self.seeds as usize, (number - setting.first) % self.seeds as usize);
        Point {
            number,
            setting,
            combination: &setting.combinations[combination],
            seed: self.seed.wrapping_add(seed as u64),
        }
    }

    /// The policy files that any of its scenarios names.
    pub fn policy_files(&self) -> BTreeSet<&str> {
        let vms = self.settings.iter().flat_map(|setting| &setting.scenario.vms);
        vms.flat_map(|vm| &vm.policies).filter_map(|policy| policy.config.as_deref()).collect()
    }

    /// The point in words, for errors.
    pub fn told(&self, point: Point<'_>) -> String {
        format!("point {} ({}, seed {})", point.number, told(&self.axes, &point.setting.values), point.seed)
    }
}

/// Which value of each axis the n-th setting has.
fn nth(axes: &[Axis], mut n: usize) -> Vec<usize> {
    let mut values = vec![0; axes.len()];
    for (value, axis) in values.iter_mut().zip(axes).rev() {
        (*value, n) = (n % axis.values.len(), n / axis.values.len());
    }
    values
}

fn told(axes: &[Axis], values: &[usize]) -> String {
    let told: Vec<String> = axes.iter().zip(values).map(|(axis, value)| axis.told(*value)).collect();
    if told.is_empty() { "the scenario as it is".to_owned() } else { told.join(", ") }
}

/// The scenario that the parameters are put into.
pub struct Base<'a> {
    /// For messages.
    pub path: &'a Path,
    pub table: Table,
    pub read_params: ReadParams<'a>,
}

impl Base<'_> {
    /// The scenario of a setting; an error names the parameter that is at fault where one alone is.
    fn scenario(&self, axes: &[Axis], values: &[usize]) -> Result<Scenario, String> {
        let all: Vec<(&Axis, usize)> = axes.iter().zip(values.iter().copied()).collect();
        self.with(&all).map_err(|what| {
            let alone = all.iter().find_map(|one| Some((one, self.with(&[*one]).err()?)));
            match alone {
                Some(((culprit, value), why)) => format!("--set {}: {why}", culprit.told(*value)),
                None => format!("{}: {what}", told(axes, values)),
            }
        })
    }

    fn with(&self, parameters: &[(&Axis, usize)]) -> Result<Scenario, String> {
        let mut table = self.table.clone();
        for (axis, value) in parameters {
            axis::set(&mut table, &axis.key, axis.values[*value].clone())?;
        }
        let text = toml::to_string(&table).map_err(|error| error.to_string())?;
        let scenario = Scenario::parse(&text, self.path).map_err(|error| match error {
            // Its line is one of a text that nobody has seen.
            ScenarioError::Invalid { what, .. } => what,
            unreadable @ ScenarioError::Unreadable { .. } => unreadable.to_string(),
        })?;
        for combination in Plan::of(&scenario).combinations() {
            self.config(&scenario, combination, 0)?;
        }
        Ok(scenario)
    }

    /// What the simulator is given.
    pub fn config(&self, scenario: &Scenario, combination: &Combination, seed: u64) -> Result<Config, String> {
        config(scenario, combination, seed, self.read_params).map_err(|error| error.to_string())
    }
}

/// Every n-th point: `2/4` has the second, the sixth, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub i: usize,
    pub of: usize,
}

impl Shard {
    pub const WHOLE: Self = Self { i: 1, of: 1 };

    /// Whether a point is this shard's.
    pub fn has(self, number: usize) -> bool {
        number % self.of == self.i - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(i, of)| Some((i.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((i, of)) if (1..=of).contains(&i) => Ok(Self { i, of }),
            _ => Err("write it like 1/4: the first of four parts; the parts are 1/4, 2/4, 3/4 and 4/4".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = "name = \"x\"\ndescription = \"\"\nrounds = 1\n[[vm]]\nname = \"a\"\nrole = \"measured\"\nvcpus = 2\n\
                            policies = [\"off\", \"full\"]\nworkloads = [{ program = \"relay\", items = 5 }]\n";

    fn grid(axes: &[&str], seeds: u32) -> Result<Grid, String> {
        let base = Base {
            path: Path::new("x.toml"),
            table: toml::from_str(SCENARIO).unwrap(),
            read_params: &|_| Ok(GuestParams::default()),
        };
        Grid::new(&base, axes.iter().map(|axis| Axis::parse(axis).unwrap()).collect(), 7, seeds)
    }

    #[test]
    fn points_are_every_setting_combination_and_seed_once() {
        // One policy with 2 vCPUs and two with 4 make settings of different sizes.
        let grid = grid(&["vm.a.vcpus=2,4", "vm.a.policies=[\"off\"],[\"off\",\"full\"]"], 3).unwrap();
        assert_eq!(grid.len(), 2 * (1 + 2) * 3);
        let mut seen: Vec<(u32, usize, usize, u64)> = (0..grid.len())
            .map(|number| {
                let point = grid.point(number);
                assert_eq!(point.number, number);
                let vm = &point.setting.scenario.vms[0];
                (vm.vcpus, vm.policies.len(), point.combination.measured[0].policy, point.seed)
            })
            .collect();
        assert_eq!((seen[0], seen[3]), ((2, 1, 0, 7), (2, 2, 0, 7)), "the last axis is fastest, seeds faster still");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 18);
        assert_eq!((seen[0].3, seen[2].3), (7, 9));
    }

    #[test]
    fn shards_share_all_points_out() {
        for of in [1, 2, 3, 7] {
            for number in 0..20 {
                assert_eq!((1..=of).filter(|i| Shard { i: *i, of }.has(number)).count(), 1);
            }
        }
        assert_eq!("2/4".parse(), Ok(Shard { i: 2, of: 4 }));
        for bad in ["0/4", "5/4", "4", "a/b", "1/0", "-1/4", "1/4/2", ""] {
            assert!(bad.parse::<Shard>().unwrap_err().contains("1/4"), "{bad}");
        }
    }

    #[test]
    fn who_is_at_fault_is_named() {
        for (axes, said) in [
            (&["simulator.slice=30ms,30zs"][..], "--set simulator.slice=30zs: \"30zs\" is no duration"),
            (&["simulator.slce=1ms"], "--set simulator.slce=1ms: unknown field `slce`, expected one of `pcpus`"),
            (&["vm.a.vcpus=2,65"], "--set vm.a.vcpus=65: vcpus = 65: must be within 1 and 64"),
            (&["vm.a.vcpus=two"], "--set vm.a.vcpus=two: invalid type: string \"two\", expected u32"),
            (&["simulator.scheduler=cfs,best"], "must be one of \"eevdf\""),
            (&["simulator.cost_ns.refill_ns=1"], "it may set guest_switch_ns"),
            (
                &["vm.a.pin=[\"0\"],[\"0\",\"1\"]", "vm.a.vcpus=1,2"],
                "--set vm.a.pin=[\"0\"]: pin has 1 lists for 2 vCPUs",
            ),
            (
                &["vm.a.vcpus=2,4", "vm.a.pin=[\"0\",\"1\"]"],
                "vm.a.vcpus=4, vm.a.pin=[\"0\", \"1\"]: pin has 2 lists for 4 vCPUs",
            ),
            (
                &["simulator.halt_poll=1us,2us,3us", "vm.a.workloads.relay.items=1,2,3,4,5,6"],
                "102000 points or more; must be",
            ),
        ] {
            let seeds = if said.contains("points") { 3_000 } else { 1 };
            let error = grid(axes, seeds).unwrap_err();
            assert!(error.contains(said), "{axes:?}: {error}");
        }
    }
}
