//! `/proc/stat`: what the kernel says about the machine as a whole.
//!
//! `/proc/stat` counts in ticks of `USER_HZ` (10 ms), so a 100 ms window knows a vCPU's idle time and steal to within
//! 10 ms; nothing is lost from window to window, because the counters are cumulative.

use crate::{ProcRoot, SysError, reread};
use gleaner_model::{CpuSet, Nanos, VcpuId};
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

    /// The first of `cpus` that it does not know. Those that this process may use are online, so it knows them all,
    /// unless it is a container's (lxcfs) that numbers CPUs anew: then nothing in it is about the CPUs that it names.
    pub fn unknown_of(&self, cpus: &CpuSet) -> Option<VcpuId> {
        cpus.iter().find(|id| self.cpu(*id).is_none())
    }

    /// Steal of all vCPUs together, since boot.
    pub fn steal(&self) -> Nanos {
        self.cpus.iter().map(|(_, times)| times.steal).sum()
    }
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
    pub fn open(root: &ProcRoot) -> Result<Self, SysError> {
        let path = root.proc.join("stat");
        let file = File::open(&path).map_err(|error| SysError::read(&path, error))?;
        let tick = Nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1));
        Ok(Self { path, file, tick, buffer: Vec::new() })
    }

    /// What it says now.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not what proc(5) promises.
    pub fn read(&mut self) -> Result<SystemStat, SysError> {
        let text = reread(&self.file, &mut self.buffer).map_err(|error| SysError::read(&self.path, error))?;
        let text = String::from_utf8_lossy(text);
        parse_stat(&text, self.tick).map_err(|(line, what)| SysError::parse(&self.path, line, what))
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
                let times = CpuTimes { idle: tick.times(idle.saturating_add(iowait)), steal: tick.times(steal) };
                stat.cpus.push((VcpuId(id), times));
            }
        }
    }
    stat.cpus.sort_by_key(|(id, _)| *id);
    Ok(stat)
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
    fn names_the_line_that_is_wrong() {
        assert_eq!(parse_stat("cpu  1\ncpu0 1 2\n", Nanos(1)).unwrap_err().0, 2);
        assert_eq!(parse_stat("ctxt many\n", Nanos(1)).unwrap_err().0, 1);
    }
}
