//! What the kernel says about the machine as a whole: `/proc/stat` and the list of online CPUs.
//!
//! `/proc/stat` counts in ticks of `USER_HZ` (10 ms), so a 100 ms window knows a vCPU's idle time and steal to within
//! 10 ms; nothing is lost from window to window, because the counters are cumulative.

use crate::root::{ProcRoot, reread};
use crate::{ObserveError, error::is_gone};
use gleaner_model::{CpuSet, Nanos, VcpuId, VcpuWindow};
use std::fs::File;
use std::path::PathBuf;

/// One vCPU's cumulative times since boot, from its `cpuN` line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// The idle task ran (`idle` and `iowait`).
    pub idle: Nanos,
    /// The hypervisor ran something else while the vCPU wanted to run. 0 for ever where the hypervisor does not tell.
    pub steal: Nanos,
}

/// `/proc/stat`, as much as is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemStat {
    /// Online vCPUs, ascending by id.
    pub cpus: Vec<(VcpuId, CpuTimes)>,
    /// `ctxt`: context switches since boot, on all vCPUs, those of the idle tasks included.
    pub context_switches: u64,
    /// `processes`: processes *and threads* created since boot.
    pub forks: u64,
}

impl SystemStat {
    /// The times of one vCPU, `None` when it is offline.
    pub fn cpu(&self, id: VcpuId) -> Option<CpuTimes> {
        let index = self.cpus.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.cpus.get(index).map(|(_, times)| *times)
    }

    /// Steal of all vCPUs together, since boot.
    pub fn steal(&self) -> Nanos {
        self.cpus.iter().map(|(_, times)| times.steal).sum()
    }
}

/// Splits a window of `length` of one vCPU; both observers do it alike. Steal is what the hypervisor reported, the retained time
/// what the yielding thread was charged, `halted` what the idle task had; *busy* is what is left: what tasks were charged, and
/// interrupts that were charged to none.
///
/// Steal is reported in ticks, and some of it may have gone by while the idle task was current: what is too much for the window
/// is taken from busy time first, then from halted. Over several windows the ticks even out.
pub(crate) fn split(id: VcpuId, length: Nanos, steal: Nanos, retained: Nanos, halted: Nanos) -> VcpuWindow {
    let steal = steal.min(length);
    let retained = retained.min(length - steal);
    let halted = halted.min(length - steal - retained);
    VcpuWindow { busy: length - steal - retained - halted, retained, halted, steal, ..VcpuWindow::new(id) }
}

/// Reads `/proc/stat` again and again through one open file.
#[derive(Debug)]
pub struct StatReader {
    path: PathBuf,
    file: File,
    tick: Nanos,
    buffer: Vec<u8>,
}

impl StatReader {
    /// Opens it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(root: &ProcRoot) -> Result<Self, ObserveError> {
        let path = root.proc.join("stat");
        let file = File::open(&path).map_err(|error| ObserveError::read(&path, error))?;
        let tick = Nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1));
        Ok(Self { path, file, tick, buffer: Vec::new() })
    }

    /// What it says now.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not what proc(5) promises.
    pub fn read(&mut self) -> Result<SystemStat, ObserveError> {
        let text = reread(&self.file, &mut self.buffer).map_err(|error| ObserveError::read(&self.path, error))?;
        let text = String::from_utf8_lossy(text);
        parse_stat(&text, self.tick).map_err(|(line, what)| ObserveError::parse(&self.path, line, what))
    }
}

fn parse_stat(text: &str, tick: Nanos) -> Result<SystemStat, (usize, String)> {
    let mut stat = SystemStat::default();
    for (line, content) in (1..).zip(text.lines()) {
        let mut words = content.split_ascii_whitespace();
        let key = words.next().unwrap_or_default();
        let bad = |what: &str| (line, format!("{what} in '{}'", content.chars().take(60).collect::<String>()));
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        match key {
            "ctxt" => stat.context_switches = number().ok_or_else(|| bad("no count"))?,
            "processes" => stat.forks = number().ok_or_else(|| bad("no count"))?,
            "cpu" => {}
            _ => {
                let Some(id) = key.strip_prefix("cpu").and_then(|id| id.parse().ok()) else { continue };
                // user nice system idle iowait irq softirq steal; steal is missing before 2.6.11.
                let ticks: Vec<u64> = (0..8).map_while(|_| number()).collect();
                let [_, _, _, idle, iowait, ..] = ticks[..] else { return Err(bad("fewer than five times")) };
                let steal = ticks.get(7).copied().unwrap_or(0);
                let times = CpuTimes { idle: tick.times(idle + iowait), steal: tick.times(steal) };
                stat.cpus.push((VcpuId(id), times));
            }
        }
    }
    stat.cpus.sort_by_key(|(id, _)| *id);
    Ok(stat)
}

/// The online CPUs, from `/sys/devices/system/cpu/online`, or from `/proc/stat` where that file is missing.
///
/// # Errors
/// When neither can be read, or the list is none.
pub fn online_cpus(root: &ProcRoot) -> Result<CpuSet, ObserveError> {
    OnlineReader::open(root)?.read()
}

/// Reads the list of online CPUs again and again through one open file.
#[derive(Debug)]
pub(crate) struct OnlineReader {
    path: PathBuf,
    source: OnlineSource,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum OnlineSource {
    List(File),
    Stat(StatReader),
}

impl OnlineReader {
    pub fn open(root: &ProcRoot) -> Result<Self, ObserveError> {
        let path = root.sys.join("devices/system/cpu/online");
        let source = match File::open(&path) {
            Ok(file) => OnlineSource::List(file),
            Err(error) if is_gone(&error) => OnlineSource::Stat(StatReader::open(root)?),
            Err(error) => return Err(ObserveError::read(&path, error)),
        };
        Ok(Self { path, source, buffer: Vec::new() })
    }

    pub fn read(&mut self) -> Result<CpuSet, ObserveError> {
        match &mut self.source {
            OnlineSource::Stat(stat) => Ok(stat.read()?.cpus.into_iter().map(|(id, _)| id).collect()),
            OnlineSource::List(file) => {
                let list = reread(file, &mut self.buffer).map_err(|error| ObserveError::read(&self.path, error))?;
                let list = String::from_utf8_lossy(list);
                list.parse().map_err(|error| ObserveError::parse(&self.path, 1, format!("{error}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "cpu  6 0 1 8 3 0 0 5 0 0\ncpu0 3 0 1 70 5 0 0 2 0 0\ncpu2 3 0 0 10 0\nintr 9 9\nctxt 77\nprocesses 12\n";

    #[test]
    fn reads_what_is_used_and_leaves_the_rest() {
        let stat = parse_stat(TEXT, Nanos::from_millis(10)).unwrap();
        let times = |idle, steal| CpuTimes { idle: Nanos::from_millis(idle), steal: Nanos::from_millis(steal) };
        assert_eq!(stat.cpus, [(VcpuId(0), times(750, 20)), (VcpuId(2), times(100, 0))]);
        assert_eq!((stat.context_switches, stat.forks), (77, 12));
        assert_eq!((stat.cpu(VcpuId(1)), stat.steal()), (None, Nanos::from_millis(20)));
    }

    #[test]
    fn the_four_parts_add_up_and_reported_steal_is_never_lost() {
        // steal, retained, halted; then busy, retained, halted, of 100.
        for (steal, retained, halted, parts) in [
            (0, 20, 30, (50, 20, 30)),
            (10, 20, 30, (40, 20, 30)),
            (10, 0, 100, (0, 0, 90)),
            (10, 95, 0, (0, 90, 0)),
            (10, 50, 60, (0, 50, 40)),
            (300, 50, 60, (0, 0, 0)),
        ] {
            let found = split(VcpuId(0), Nanos(100), Nanos(steal), Nanos(retained), Nanos(halted));
            assert_eq!((found.busy.0, found.retained.0, found.halted.0), parts, "{steal} {retained} {halted}");
            assert_eq!(found.steal, Nanos(steal.min(100)));
        }
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        assert_eq!(parse_stat("cpu  1\ncpu0 1 2\n", Nanos(1)).unwrap_err().0, 2);
        assert_eq!(parse_stat("ctxt many\n", Nanos(1)).unwrap_err().0, 1);
    }
}
