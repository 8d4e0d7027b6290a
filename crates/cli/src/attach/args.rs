//! `attach`'s arguments.

use crate::joined::Asking;
use crate::run::options::Options;
use clap::{Args, ValueEnum};
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::params::ParamsArg;
use gleaner_model::Policy;
use gleaner_runtime::Config;
use gleaner_settings::{GroupSettings, ObserverChoice, RetainChoice};
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
    /// What Gleaner may do [default: retain; observe under --profile observe-only]
    #[arg(long, value_enum)]
    pub policy: Option<AttachPolicy>,
    #[command(flatten)]
    pub group: GroupSettings,
    #[command(flatten)]
    pub params: ParamsArg,
    /// What keeps an idle vCPU awake
    #[arg(long, value_enum, default_value_t = RetainChoice::Auto)]
    pub retain: RetainChoice,
    /// End after so long: 1s to 7d
    #[arg(long = "for", value_name = "DURATION", value_parser = length)]
    pub length: Option<Duration>,
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
    gleaner_command::args::duration_within(text, Duration::from_secs(1)..=Duration::from_secs(7 * 86_400))
}

impl AttachArgs {
    /// As `run` would have them.
    pub fn into_options(self, command: Vec<OsString>) -> Result<Options, Failure> {
        let own = [(self.recording.capture.is_some(), "--capture"), (self.retain != RetainChoice::Auto, "--retain")];
        let policy = |policy| if policy == AttachPolicy::Observe { Policy::Observe } else { Policy::Retain };
        let group = GroupSettings { policy: self.policy.map(policy), params: self.params.read()?, ..self.group };
        let config = Config {
            retain: self.retain,
            // BPF learns who belongs to whom from forks, and those are over.
            observer: ObserverChoice::Procfs,
            ..Config::of(crate::capture::name_of(&command), group)
        };
        let asking = Asking::new(self.daemon, &own);
        let records = self.recording.capture.is_some();
        Ok(Options { config, quiet: gleaner_command::output::quiet(), command, asking, records })
    }
}
