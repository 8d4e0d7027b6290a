//! The configuration in force, as a file: `gleaner config show`.

use super::layer::OBSERVERS;
use super::{CaptureSettings, Configuration, HostSettings, HostSlice};
use gleaner_model::{Policy, Profile};
use gleaner_observe::Selector;
use gleaner_runtime::RetainChoice;
use std::fmt;
use std::time::Duration;

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files.is_empty() {
            writeln!(f, "# No file: everything is watched, and nothing is changed.")?;
        }
        for file in &self.files {
            writeln!(f, "# from {}", file.display())?;
        }
        let retain = match self.retain {
            RetainChoice::Auto => "auto",
            RetainChoice::None => "none",
            RetainChoice::By(means) => means.name(),
        };
        writeln!(f, "[daemon]\nretain = {}", quoted(retain))?;
        let observer = OBSERVERS.iter().find(|(_, choice)| *choice == self.observer).map_or("auto", |(word, _)| word);
        writeln!(f, "observer = {}", quoted(observer))?;
        writeln!(f, "overhead = \"{}%\"\ngroups_max = {}", self.overhead_ratio * 100.0, self.groups_max)?;
        if let Some(group) = self.control_group {
            writeln!(f, "\n[control]\ngroup = \"{group}\"")?;
        }
        if let Some(address) = &self.metrics {
            writeln!(f, "\n[metrics]\nlisten = {}", quoted(&address.to_string()))?;
        }
        if let Some(CaptureSettings { size, folder }) = &self.capture {
            writeln!(f, "\n[capture]\nsize = \"{size}\"")?;
            if let Some(folder) = folder {
                writeln!(f, "folder = {}", quoted(&folder.display().to_string()))?;
            }
        }
        if let Some(host) = &self.host {
            write_host(f, host)?;
        }
        for group in &self.groups {
            let (kind, value) = match &group.selector {
                Selector::Pid(pid) => ("pid", pid.to_string()),
                Selector::Program(name) => ("program", quoted(name)),
                Selector::Cgroup(path) => ("cgroup", quoted(path.as_str())),
                Selector::Unit(name) => ("unit", quoted(name.as_str())),
            };
            writeln!(f, "\n[group.{}]\n{kind} = {value}", quoted(&group.name))?;
            writeln!(f, "profile = {}", quoted(group.profile.name()))?;
            let policy = match group.policy {
                Policy::Off => "off",
                Policy::Observe => "observe",
                _ => "retain",
            };
            writeln!(f, "policy = {}", quoted(policy))?;
            match (group.budget, group.profile.means().1) {
                (Some(budget), _) => writeln!(f, "budget = \"{}%\"", budget * 100.0)?,
                (None, Profile::Latency) => writeln!(f, "# budget: no limit")?,
                (None, Profile::Frugal) => {
                    writeln!(f, "# budget: {}%", group.params.poll_budget_frugal_ratio * 100.0)?;
                }
                (None, Profile::Balanced) => {
                    writeln!(f, "# budget: {}%", group.params.poll_budget_balanced_ratio * 100.0)?;
                }
            }
            if let Some(retain_for) = group.retain_for {
                writeln!(f, "retain_for = \"{}ns\"", retain_for.0)?;
            }
            if let Some(progress) = &group.progress {
                writeln!(f, "progress = {}", quoted(&progress.to_string()))?;
            }
            writeln!(f, "trial = {}", group.params.retention_trials)?;
        }
        Ok(())
    }
}

fn write_host(f: &mut fmt::Formatter<'_>, host: &HostSettings) -> fmt::Result {
    let time = |time: Duration| quoted(&humantime::format_duration(time).to_string().replace(' ', ""));
    let slice = match host.slice {
        HostSlice::Adaptive => quoted("adaptive"),
        HostSlice::Fixed(slice) => time(slice),
    };
    writeln!(f, "\n[host]\nslice = {slice}\ninterval = {}", time(host.interval))?;
    writeln!(f, "enforce = {}\npause_exits = {}", host.enforce, host.pause_exits)?;
    if !host.vms.is_empty() {
        writeln!(f, "vm = {}", toml::Value::from(host.vms.clone()))?;
    }
    match &host.params_file {
        Some(file) => writeln!(f, "params_file = {}", quoted(&file.display().to_string())),
        None => Ok(()),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
