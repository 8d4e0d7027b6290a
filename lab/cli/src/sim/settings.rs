//! Every setting of the keys that are to be varied: the scenario that it gives, checked before anything is simulated.

use super::set::{self, Axis};
use gleaner_command::failure::Failure;
use gleaner_decide::guest::GuestParams;
use gleaner_scenario::{Combination, Plan, Scenario, ScenarioError};
use gleaner_sim::config::Config;
use gleaner_sim::scenario::config;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Table;

/// More simulations would be months of work.
pub const SIMULATIONS_MAX: usize = 100_000;

/// One value of each key.
#[derive(Debug)]
pub struct Setting {
    /// Keys with their values; none where the scenario is simulated as it is.
    pub set: Map<String, Value>,
    pub scenario: Scenario,
    pub combinations: Vec<Combination>,
}

/// The scenario that the values are put into.
pub struct Base<'a> {
    pub path: &'a Path,
    text: &'a str,
    /// Costs instead of the scenario's, as a probe measured them; what a scenario names itself stays.
    costs: BTreeMap<String, u64>,
}

impl<'a> Base<'a> {
    pub fn new(path: &'a Path, text: &'a str, costs: BTreeMap<String, u64>) -> Self {
        Self { path, text, costs }
    }

    /// All settings of these keys, the last one fastest.
    pub fn settings(&self, axes: &[Axis], seeds: u32) -> Result<Vec<Setting>, Failure> {
        check(axes)?;
        let product = axes.iter().try_fold(1_usize, |product, axis| product.checked_mul(axis.values.len()));
        let too_many = || {
            Failure::input(format!(
                "more than {SIMULATIONS_MAX} simulations; give fewer values or seeds, or share them out over several calls"
            ))
        };
        let product = product.filter(|product| *product <= SIMULATIONS_MAX).ok_or_else(too_many)?;
        let (mut settings, mut simulations) = (Vec::with_capacity(product), 0_usize);
        for n in 0..product {
            let setting = self.setting(axes, &nth(axes, n))?;
            simulations = simulations.saturating_add(setting.combinations.len().saturating_mul(seeds as usize));
            if simulations > SIMULATIONS_MAX {
                return Err(too_many());
            }
            settings.push(setting);
        }
        Ok(settings)
    }

    /// An error names the key that is at fault where one alone is.
    fn setting(&self, axes: &[Axis], values: &[usize]) -> Result<Setting, Failure> {
        let all: Vec<(&Axis, usize)> = axes.iter().zip(values.iter().copied()).collect();
        let scenario = self.with(&all).map_err(|what| {
            let alone = all.iter().find_map(|one| Some((one, self.with(&[*one]).err()?)));
            let what = match alone {
                Some(((culprit, value), why)) => format!("--set {}: {why}", culprit.told(*value)),
                None => what,
            };
            Failure::input(format!("{}: {what}", self.path.display()))
        })?;
        let set = all.iter().map(|(axis, value)| (axis.key.clone(), json(&axis.values[*value])));
        Ok(Setting { set: set.collect(), combinations: Plan::of(&scenario).combinations().to_vec(), scenario })
    }

    fn with(&self, set: &[(&Axis, usize)]) -> Result<Scenario, String> {
        let parsed = if set.is_empty() {
            Scenario::parse(self.text, self.path)
        } else {
            let mut table: Table = toml::from_str(self.text).map_err(|error| error.to_string())?;
            for (axis, value) in set {
                set::set(&mut table, &axis.key, axis.values[*value].clone())?;
            }
            Scenario::parse(&toml::to_string(&table).map_err(|error| error.to_string())?, self.path)
        };
        let mut scenario = parsed.map_err(|error| match error {
            // Its line is one of a text that nobody has seen.
            ScenarioError::Invalid { what, .. } if !set.is_empty() => what,
            other => other.to_string(),
        })?;
        if !self.costs.is_empty() {
            let costs = &mut scenario.simulator.get_or_insert_default().cost_ns;
            for (name, ns) in &self.costs {
                costs.entry(name.clone()).or_insert(*ns);
            }
        }
        for combination in Plan::of(&scenario).combinations() {
            self.config(&scenario, combination, 0)?;
        }
        Ok(scenario)
    }

    /// What the simulator is given.
    pub fn config(&self, scenario: &Scenario, combination: &Combination, seed: u64) -> Result<Config, String> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let read_params = |file: &str| -> Result<GuestParams, String> {
            gleaner_command::params::read_params(&folder.join(file)).map_err(|failure| failure.message)
        };
        config(scenario, combination, seed, &read_params).map_err(|error| error.to_string())
    }
}

fn check(axes: &[Axis]) -> Result<(), Failure> {
    for (n, axis) in axes.iter().enumerate() {
        for other in &axes[..n] {
            let inside = |one: &str, other: &str| one.strip_prefix(other).is_some_and(|rest| rest.starts_with('.'));
            let (one, other) = (axis.key.as_str(), other.key.as_str());
            if one == other || inside(one, other) || inside(other, one) {
                return Err(Failure::input(format!("--set {one}: {other} is set, too; give each key once")));
            }
        }
    }
    Ok(())
}

/// Which value of each key the n-th setting has.
fn nth(axes: &[Axis], mut n: usize) -> Vec<usize> {
    let mut values = vec![0; axes.len()];
    for (value, axis) in values.iter_mut().zip(axes).rev() {
        (*value, n) = (n % axis.values.len(), n / axis.values.len());
    }
    values
}

fn json(value: &toml::Value) -> Value {
    serde_json::to_value(value).unwrap_or_else(|_| value.to_string().into())
}
