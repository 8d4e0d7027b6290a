//! What is set of the host agent.

use crate::settings;
use crate::table::{Value, read_text};
use crate::value::{AbsolutePath, Interval, VmNames, duration_within};
use gleaner_model::printable;
use serde::{Deserializer, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The time slice of VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostSlice {
    /// One for each set of VMs that share CPUs, which the agent finds.
    #[default]
    Adaptive,
    /// One for all.
    Fixed(Duration),
}

impl FromStr for HostSlice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "adaptive" {
            return Ok(Self::Adaptive);
        }
        let range = Duration::from_micros(100)..=Duration::from_millis(100);
        duration_within(text, range).map(Self::Fixed).map_err(|_| format!("write {}", Self::allowed()))
    }
}

impl fmt::Display for HostSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Fixed(slice) => f.write_str(&humantime::format_duration(*slice).to_string().replace(' ', "")),
        }
    }
}

impl Value for HostSlice {
    const EXAMPLE: &'static str = "\"adaptive\"";

    fn allowed() -> String {
        "adaptive, or 100us to 100ms".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_text(from, |text| text.parse().map_err(|told| format!("{}: {told}", printable(text.as_bytes()))))
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_str(self)
    }
}

settings! {
    /// How the agent of `gleaner host run` works.
    #[derive(clap::Args)]
    pub struct HostSettings in "host" {
        /// One slice for every VM, 100us to 100ms; or `adaptive`: Gleaner finds one for each set of VMs that share
        /// CPUs. The daemon runs the agent where its configuration has a table [host]
        slice: HostSlice, "adaptive", arg(long, value_name = "DURATION|adaptive");
        /// Only these VMs, by name or process id
        vm: VmNames, "all VMs, as they come and go", arg(skip);
        /// Length of an observation window, 100ms to 60s
        interval: Interval, "1s; 200ms with --in-turn", arg(long, value_name = "DURATION", help_heading = "Tuning");
        /// Whether slices are ended in time where the kernel's tick alone would not. Under systemd the unit has to
        /// allow it (RestrictRealtime=no)
        enforce: bool, "true",
            arg(long = "no-enforce", action = clap::ArgAction::SetFalse, help = "Set slices, but let the kernel's tick end them", help_heading = "Tuning");
        /// Count VM exits by PAUSE, which show that a VM spins; this takes some time at every exit
        pause_exits: bool, "false", arg(long, action = clap::ArgAction::SetTrue, help_heading = "Tuning");
        /// Parameters of adaptive: a TOML file with any of the keys that `gleaner params host` prints
        params_file: AbsolutePath, "", arg(skip);
    }
}

impl HostSettings {
    /// Of each vCPU.
    pub fn slice(&self) -> HostSlice {
        self.slice.unwrap_or_default()
    }

    /// The command line that says the same.
    pub fn options(&self) -> Vec<String> {
        let mut words = vec!["--slice".to_owned(), self.slice().to_string()];
        words.extend(self.interval.iter().flat_map(|interval| ["--interval".to_owned(), interval.to_string()]));
        words.extend(self.vm.iter().flat_map(|names| &names.0).map(|vm| format!("--vm={vm}")));
        words.extend((self.enforce == Some(false)).then(|| "--no-enforce".to_owned()));
        words.extend((self.pause_exits == Some(true)).then(|| "--pause-exits".to_owned()));
        words.extend(self.params_file.iter().map(|file| format!("--config={}", file.0.display())));
        words
    }
}
