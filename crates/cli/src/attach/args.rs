//! `attach`'s arguments.

use crate::args::{JsonArg, ProfileArg, RetainArg, budget, duration};
use crate::failure::Failure;
use crate::joined::Asking;
use crate::params::read_params;
use crate::run::options::Options;
use clap::{Args, ValueEnum};
use gleaner_act::PlacementRequest;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{Nanos, Policy, Profile};
use gleaner_observe::{Counter, ObserverChoice};
use gleaner_runtime::Config;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner attach [OPTIONS] <--pid PID | --cgroup PATH | --unit NAME>",
    after_help = "Ends with what it is attached to, or on Ctrl-C; everything is undone then, after kill -9 as well. Threads are \
                  never moved: that is `gleaner run`'s.\n\n\
                  Examples:\n\
                  \x20 gleaner attach --unit redis-server\n\
                  \x20 gleaner attach --pid 4711 --for 60s --json /tmp/attach.json\n\
                  \x20 gleaner attach --cgroup /sys/fs/cgroup/kubepods.slice/... --policy observe"
)]
pub struct AttachArgs {
    #[command(flatten)]
    pub to: ToArgs,
    /// What Gleaner may do
    #[arg(long, value_enum, default_value_t = AttachPolicy::Retain)]
    pub policy: AttachPolicy,
    /// How long an idle vCPU is kept from halting
    #[arg(long, value_enum, default_value_t = ProfileArg::Balanced)]
    pub profile: ProfileArg,
    /// What keeps an idle vCPU awake
    #[arg(long, value_enum, default_value_t = RetainArg::Auto)]
    pub retain: RetainArg,
    /// How long an idle vCPU is kept from halting, instead of the profile's time-out: 1us to 1s
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "profile")]
    pub retain_for: Option<Duration>,
    /// CPU time that idle vCPUs may poll for, all together, as a part of one CPU: 20%
    #[arg(long, value_name = "PERCENT", value_parser = budget)]
    pub budget: Option<f64>,
    /// A file whose first number grows as the program gets on, or FILE|REGEX: the number where that matches. Whether
    /// retention pays is then judged by that, not by how often threads hand over
    #[arg(long, value_name = "FILE|REGEX")]
    pub progress: Option<Counter>,
    /// Retain without a trial whether it pays
    #[arg(long)]
    pub no_trial: bool,
    /// End after so long: 1s to 7d
    #[arg(long = "for", value_name = "DURATION", value_parser = length)]
    pub length: Option<Duration>,
    /// Policy parameters: a TOML file with any of the keys that `gleaner params` prints
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub daemon: crate::joined::DaemonArgs,
    #[command(flatten)]
    pub recording: crate::capture::RecordingArgs,
    #[command(flatten)]
    pub json: JsonArg,
}

/// To what; one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ToArgs {
    /// A process, with all that it has started and will start
    #[arg(long, value_name = "PID")]
    pub pid: Option<i32>,
    /// All processes of a cgroup, by its folder: a container, a slice
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// All processes of a systemd service
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AttachPolicy {
    /// Watch and print, change nothing
    Observe,
    /// Keep idle vCPUs awake where that pays
    Retain,
}

fn length(text: &str) -> Result<Duration, String> {
    crate::args::duration_within(text, Duration::from_secs(1)..=Duration::from_secs(7 * 86_400))
}

impl AttachArgs {
    /// As `run` would have them.
    pub fn into_options(self, command: Vec<OsString>) -> Result<Options, Failure> {
        let mut params = self.config.as_deref().map_or_else(|| Ok(GuestParams::default()), read_params)?;
        params.retention_trials &= !self.no_trial;
        let own = [(self.recording.capture.is_some(), "--capture"), (self.retain != RetainArg::Auto, "--retain")];
        let asking = Asking::new(self.daemon, &own);
        let config = Config {
            name: crate::capture::name_of(&command),
            policy: if self.policy == AttachPolicy::Observe { Policy::Observe } else { Policy::Retain },
            profile: if self.retain_for.is_some() { Profile::Balanced } else { self.profile.into() },
            retain: self.retain.into(),
            timeout: self.retain_for.map(Nanos::from),
            budget: self.budget,
            progress: self.progress.clone(),
            costs: None,
            refused: Vec::new(),
            params,
            // BPF learns who belongs to whom from forks, and those are over.
            observer: ObserverChoice::Procfs,
            placement: PlacementRequest::Auto,
            groups_max: 1,
            timer_slack: None,
            overhead_ratio: 0.005,
            strict: false,
            dry_run: false,
        };
        let records = self.recording.capture.is_some();
        Ok(Options { config, quiet: crate::output::quiet(), command, asking, records })
    }
}
