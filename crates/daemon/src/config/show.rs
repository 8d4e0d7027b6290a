//! The configuration in force, as a file: `gleaner config show`.

use super::tables::{CaptureTable, Control, MetricsTable, UserGroup, Which};
use super::{CaptureSettings, Configuration, GroupEntry};
use gleaner_decide::guest::GuestParams;
use gleaner_settings::{AbsolutePath, CaptureSize, GroupsMax, MachineSettings, Overhead, Profile};
use serde::Serialize;
use std::fmt;
use toml::Table;

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files.is_empty() {
            writeln!(f, "# No file")?;
        }
        if self.names_no_group {
            writeln!(f, "# No group is named: what is decided of the whole machine is told, and not done")?;
        }
        for file in &self.files {
            writeln!(f, "# from {}", file.display())?;
        }
        let machine = MachineSettings {
            retain: Some(self.machine.retain()),
            observer: Some(self.machine.observer()),
            overhead: Some(Overhead(self.machine.overhead_ratio() * 100.0)),
            groups_max: Some(GroupsMax(self.machine.groups_max())),
        };
        let control = Control { group: self.control_group.map(UserGroup) };
        let capture = self.capture.clone().map(|CaptureSettings { size, folder }| CaptureTable {
            size: Some(CaptureSize(size)),
            folder: folder.map(AbsolutePath),
        });
        let tables = [
            ("daemon", table(&machine)),
            ("control", table(&control)),
            ("metrics", table(&MetricsTable { listen: self.metrics.clone() })),
            ("capture", capture.as_ref().map(table).unwrap_or_default()),
        ];
        for (name, table) in tables.into_iter().filter(|(_, table)| !table.is_empty()) {
            writeln!(f, "{}", within(name, table))?;
        }
        if let Some(host) = &self.host {
            writeln!(f, "{}", within("host", table(host)))?;
        }
        for GroupEntry { name, selector, settings } in &self.groups {
            if settings.budget.is_none() {
                writeln!(f, "# {name}: {}", budget_of(settings.profile(), &settings.params()))?;
            }
            let keys = table(&Which::from(selector)).into_iter().chain(table(settings));
            writeln!(f, "{}", within("group", within(name, keys.collect())))?;
        }
        Ok(())
    }
}

fn table(settings: &impl Serialize) -> Table {
    Table::try_from(settings).unwrap_or_default()
}

fn within(name: &str, table: Table) -> Table {
    Table::from_iter([(name.to_owned(), toml::Value::Table(table))])
}

/// What the profile lets idle vCPUs poll.
fn budget_of(profile: Profile, params: &GuestParams) -> String {
    let ratio = match profile {
        Profile::Latency => return "budget without limit".to_owned(),
        Profile::Frugal => params.poll_budget_frugal_ratio,
        Profile::Balanced | Profile::ObserveOnly => params.poll_budget_balanced_ratio,
    };
    format!("budget {}%", ratio * 100.0)
}
