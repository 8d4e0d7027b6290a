//! `host llc`'s arguments.

use crate::host::shared::YEAR;
use clap::Args;
use gleaner_command::args::{JsonArg, duration_within};
use gleaner_decide::host::{CacheClass, LlcParams};
use gleaner_model::printable;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Gleaner judges a VM's class by the cache misses of its vCPUs' threads, unless --class tells it. \
                  It needs root, a processor with cache allocation (Intel RDT, AMD QoS; `gleaner doctor` says \
                  whether), and counters unless you tell all classes. It goes on until a signal or --for. Then, and \
                  after \
                  kill -9, everything is undone.\n\n\
                  Examples:\n\
                  \x20 gleaner host llc --dry-run                  # what it would do\n\
                  \x20 gleaner host llc --monitor-only --for 1m    # what the VMs are\n\
                  \x20 gleaner host llc\n\
                  \x20 gleaner host llc --vm web --vm batch --class batch=thrashing"
)]
pub struct LlcArgs {
    /// Only this VM, by its name or pid (may be repeated); default: all
    #[arg(long, value_name = "NAME|PID", value_parser = crate::host::list::vm_word())]
    pub vm: Vec<String>,
    /// Also this process, which need not be a VM, with all its threads (may be repeated)
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Vec<i32>,
    /// A VM's class, told instead of judged: cpu-bound, cache-friendly or thrashing (may be repeated)
    #[arg(long = "class", value_name = "NAME|PID=CLASS", value_parser = told)]
    pub classes: Vec<(String, CacheClass)>,
    /// End after so long [default: when told to]
    #[arg(long = "for", value_name = "DURATION", value_parser = span)]
    pub length: Option<Duration>,
    /// From one judgement to the next
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Every N intervals, give a thrashing VM the cache back for two, to see whether it still thrashes
    #[arg(long, value_name = "N", default_value_t = LlcParams::default().period)]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=100_000))]
    pub period: u32,
    /// Ways for the thrashing VMs, if more than the fewest that the processor allows
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub minimal_ways: u32,
    /// Say what would be done, from two intervals, and change nothing (not with --for or --monitor-only)
    #[arg(long, conflicts_with_all = ["monitor_only", "length"])]
    pub dry_run: bool,
    /// Judge the VMs, and change nothing
    #[arg(long)]
    pub monitor_only: bool,
    /// Where resctrl is mounted, instead of where the kernel says (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub resctrl: Option<PathBuf>,
    /// A folder of counters, a file for each thread, instead of the processor's (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub counters: Option<PathBuf>,
    #[command(flatten)]
    pub json: JsonArg,
}

/// What the command line asks to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Allocate,
    MonitorOnly,
    DryRun,
}

impl LlcArgs {
    pub fn mode(&self) -> Mode {
        match (self.dry_run, self.monitor_only) {
            (true, _) => Mode::DryRun,
            (_, true) => Mode::MonitorOnly,
            _ => Mode::Allocate,
        }
    }
}

/// A class is told of a VM by its name as it is shown.
fn told(text: &str) -> Result<(String, CacheClass), String> {
    let (vm, class) = text.rsplit_once('=').ok_or("write it like web=thrashing")?;
    let class = match class {
        "cpu-bound" => CacheClass::CpuBound,
        "cache-friendly" => CacheClass::CacheFriendly,
        "thrashing" => CacheClass::Thrashing,
        _ => return Err(format!("{class:?} is no class: cpu-bound, cache-friendly or thrashing")),
    };
    Ok((printable(vm.as_bytes()), class))
}

/// A judgement takes some of it.
const SHORTEST: Duration = Duration::from_millis(10);

fn interval(text: &str) -> Result<Duration, String> {
    duration_within(text, SHORTEST..=Duration::from_secs(3600))
}

fn span(text: &str) -> Result<Duration, String> {
    duration_within(text, SHORTEST..=10 * YEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_told_by_name_or_pid() {
        assert_eq!(told("web=thrashing"), Ok(("web".into(), CacheClass::Thrashing)));
        assert_eq!(told("a=b=cpu-bound"), Ok(("a=b".into(), CacheClass::CpuBound)));
        for bad in ["web", "web=", "web=fast", "=x"] {
            assert!(told(bad).is_err(), "{bad}");
        }
        assert!(interval("1ms").is_err() && interval("1x").is_err() && span("1m").is_ok());
    }
}
