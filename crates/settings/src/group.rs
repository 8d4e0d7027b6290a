//! What is set of a group: by options of `gleaner run`, `attach` and `ab`, by keys of the daemon's configuration, by
//! whoever joins a daemon.

use crate::settings;
use crate::table::{Value, read_plain};
use crate::{Budget, Counter, Profile, RetainFor};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Nanos, Policy};
use serde::{Deserializer, Serialize, Serializer};
use std::ffi::OsString;

settings! {
    /// How a group is managed. What nobody sets is `None`, and is what the methods say.
    #[derive(clap::Args)]
    pub struct GroupSettings in "group.NAME" {
        /// How idle vCPUs are kept awake, and what they may poll
        profile: Profile, "that of [defaults]; balanced under run, attach and ab", arg(long, value_enum);
        /// What may be done, instead of what the profile says: nothing at all, watching, or keeping idle vCPUs awake
        /// where it pays
        policy: Policy, "the profile's", arg(skip);
        /// CPU time that all idle vCPUs together may poll for, as a part of one CPU, instead of what the profile says:
        /// 0% to 100000%
        budget: Budget, "frugal 5%, balanced 100%, latency without limit", arg(long, value_name = "PERCENT");
        /// How long an idle vCPU is kept from halting, instead of a time-out that follows the lengths of its idle
        /// periods: 1us to 1s
        retain_for: RetainFor, "follows the lengths of idle periods",
            arg(long, value_name = "DURATION", conflicts_with = "profile");
        /// Whether it is tried first whether keeping vCPUs awake pays
        trial: bool, "true",
            arg(long = "no-trial", action = clap::ArgAction::SetFalse, help = "Retain without a trial whether it pays");
        /// A file whose first number grows as the program gets on, or FILE|REGEX: the number where that matches.
        /// Whether retention pays is then judged by that, not by how often threads hand over
        progress: Counter, "", arg(long, value_name = "FILE|REGEX");
        /// The policy's numbers: any of the keys that `gleaner params` prints
        params: GuestParams, "", arg(skip);
    }
}

impl GroupSettings {
    /// How it is managed, in one word.
    pub fn profile(&self) -> Profile {
        self.profile.unwrap_or_default()
    }

    /// What may be done.
    pub fn policy(&self) -> Policy {
        self.policy.unwrap_or_else(|| self.profile().policy())
    }

    /// How long idle vCPUs are kept awake, instead of what is learnt.
    pub fn timeout(&self) -> Option<Nanos> {
        self.retain_for.as_ref().map(|time| Nanos::from(time.0))
    }

    /// What idle vCPUs may poll for it, as a share of one CPU, instead of what the profile says.
    pub fn budget_ratio(&self) -> Option<f64> {
        self.budget.as_ref().map(Budget::ratio)
    }

    /// The policy's numbers, with what the other settings make of them.
    pub fn params(&self) -> GuestParams {
        let mut params = self.params.clone().unwrap_or_default();
        params.retention_trials &= self.trial.unwrap_or(true);
        params
    }

    /// The options of a command that say the same; `params` is a file's.
    pub fn options(&self) -> Vec<OsString> {
        let option = |key: &String, value: &toml::Value| match value {
            toml::Value::Boolean(false) => Some(vec![format!("--no-{key}")]),
            toml::Value::String(text) => Some(vec![format!("--{}", key.replace('_', "-")), text.clone()]),
            _ => None,
        };
        let written = toml::Table::try_from(self).unwrap_or_default();
        written.iter().filter_map(|(key, value)| option(key, value)).flatten().map(OsString::from).collect()
    }
}

impl Value for GuestParams {
    const EXAMPLE: &'static str = "{ steal_share_stop = 0.3 }";

    fn allowed() -> String {
        "a table".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_plain(from)
    }

    /// Those that are not what they are by default.
    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        let keys = |params: &Self| toml::Table::try_from(params).unwrap_or_default();
        let default = keys(&Self::default());
        let changed = keys(self).into_iter().filter(|(key, value)| default.get(key) != Some(value));
        changed.collect::<toml::Table>().serialize(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        group: GroupSettings,
    }

    #[test]
    fn what_is_written_as_options_is_written_as_toml_and_back() {
        let words = "x --profile frugal --budget 20% --no-trial --progress /p|(.*)";
        let line = Line::try_parse_from(words.split(' ')).unwrap().group;
        let text = toml::to_string(&line).unwrap();
        assert_eq!(text, "profile = \"frugal\"\nbudget = \"20%\"\ntrial = false\nprogress = \"/p|(.*)\"\n");
        assert_eq!(toml::from_str::<GroupSettings>(&text).unwrap(), line);
        let again = std::iter::once("x".into()).chain(line.options());
        assert_eq!(Line::try_parse_from(again).unwrap().group, line);
    }

    #[test]
    fn only_changed_numbers_are_written() {
        let params = Some(GuestParams { steal_share_stop: 0.5, ..GuestParams::default() });
        let group = GroupSettings { params, ..GroupSettings::default() };
        let text = toml::to_string(&group).unwrap();
        assert_eq!(text, "[params]\nsteal_share_stop = 0.5\n");
        assert_eq!(toml::from_str::<GroupSettings>(&text).unwrap(), group);
    }

    #[test]
    fn what_is_only_watched_is_so_unless_its_policy_says_otherwise() {
        let watched = GroupSettings { profile: Some(Profile::ObserveOnly), ..GroupSettings::default() };
        assert_eq!(watched.policy(), Policy::Observe);
        assert_eq!(GroupSettings { policy: Some(Policy::Retain), ..watched }.policy(), Policy::Retain);
    }
}
