//! What idle vCPUs did: halted, or polled in the kernel's idle loop.
//!
//! `/proc/stat` and the scheduler's tracepoints call both idle. cpuidle tells them apart, for everybody to read:
//! `cpuN/cpuidle/state0/{name,time}` (POLL) and `stateM/usage` (kernel: drivers/cpuidle/sysfs.c). A poll counts when it
//! ends. Where a BPF program of ours polls ahead of cpuidle, or without it, that program's counters tell
//! ([`RetainCounters::polled`]).

use gleaner_model::{Nanos, RetainCounters, VcpuId, VcpuWindow};
use gleaner_sys::{ProcRoot, reread};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

/// The name that the polling state has under every driver.
const POLL: &str = "POLL";

/// One vCPU's counts since boot.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    polled: Nanos,
    polls: u64,
    halts: u64,
}

/// The open files of one vCPU: the POLL state's time and usage, every other state's usage.
#[derive(Debug)]
struct Files {
    polled: File,
    polls: File,
    halts: Vec<File>,
}

impl Files {
    /// `None` where there is no cpuidle driver, or none that polls.
    fn open(cpuidle: &Path) -> Option<Self> {
        if fs::read_to_string(cpuidle.join("state0/name")).ok()?.trim() != POLL {
            return None;
        }
        let polled = File::open(cpuidle.join("state0/time")).ok()?;
        let usage = |state: u32| File::open(cpuidle.join(format!("state{state}/usage"))).ok();
        Some(Self { polled, polls: usage(0)?, halts: (1..).map_while(usage).collect() })
    }

    fn read(&self, buffer: &mut Vec<u8>) -> Option<Counts> {
        let mut number =
            |file: &File| -> Option<u64> { std::str::from_utf8(reread(file, buffer).ok()?).ok()?.trim().parse().ok() };
        let polled = Nanos::from_micros(number(&self.polled)?);
        Some(Counts {
            polled,
            polls: number(&self.polls)?,
            halts: self.halts.iter().map(&mut number).sum::<Option<u64>>()?,
        })
    }
}

/// Divides the idle time of windows into polled and halted.
#[derive(Debug, Default)]
pub(crate) struct IdleSplitter {
    files: BTreeMap<VcpuId, Option<Files>>,
    last: BTreeMap<VcpuId, Counts>,
    last_own: BTreeMap<VcpuId, (Nanos, u64)>,
    buffer: Vec<u8>,
}

impl IdleSplitter {
    /// Moves what was polled since the last call from each vCPU's halted time to its retained time, and takes polls
    /// that held from its halts. Returns the halts that cpuidle counted on all of them, where it counts.
    pub fn split(&mut self, root: &ProcRoot, counters: &[RetainCounters], vcpus: &mut [VcpuWindow]) -> Option<u64> {
        let mut total = Some(0);
        for vcpu in vcpus {
            let (polled, polls, halts) = self.cpuidle_since(root, vcpu.id);
            let (own, held) = self.own_since(counters, vcpu.id);
            // A poll that timed out is followed by a halt.
            vcpu.polls_held = halts.map(|halts| polls.saturating_sub(halts)).into_iter().chain(held).max();
            let held = held.unwrap_or(0);
            let polled = (polled + own).min(vcpu.halted);
            vcpu.retained += polled;
            vcpu.halted = vcpu.halted - polled;
            let entered = vcpu.halts.map(|halts| halts.saturating_sub(held));
            // An interrupt ends a halt without leaving the idle task, so cpuidle may count more than were entered.
            vcpu.halts = entered.map(|entered| halts.map_or(entered, |halts| entered.min(halts)));
            total = total.zip(halts).map(|(total, halts)| total + halts);
        }
        total
    }

    /// Time polled, polls, halts.
    fn cpuidle_since(&mut self, root: &ProcRoot, id: VcpuId) -> (Nanos, u64, Option<u64>) {
        let cpuidle = || root.sys.join(format!("devices/system/cpu/cpu{}/cpuidle", id.0));
        let files = self.files.entry(id).or_insert_with(|| Files::open(&cpuidle()));
        let Some(now) = files.as_ref().and_then(|files| files.read(&mut self.buffer)) else {
            return (Nanos::ZERO, 0, None);
        };
        // What was before the first look nobody knows.
        let Some(last) = self.last.insert(id, now) else { return (Nanos::ZERO, 0, None) };
        (now.polled - last.polled, now.polls.saturating_sub(last.polls), Some(now.halts.saturating_sub(last.halts)))
    }

    /// Time polled and polls that held, where our own program counts.
    fn own_since(&mut self, counters: &[RetainCounters], id: VcpuId) -> (Nanos, Option<u64>) {
        let Some(now) = counters.iter().find(|counters| counters.vcpu == Some(id)) else { return (Nanos::ZERO, None) };
        let last = self.last_own.insert(id, (now.polled, now.polls_held)).unwrap_or((now.polled, now.polls_held));
        (now.polled - last.0, Some(now.polls_held.saturating_sub(last.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(root: &Path, id: u32, polled_us: u64, halts: u64) {
        let cpuidle = root.join(format!("devices/system/cpu/cpu{id}/cpuidle"));
        for (file, text) in [
            ("state0/name", "POLL\n".to_owned()),
            ("state0/time", format!("{polled_us}\n")),
            ("state0/usage", format!("{}\n", 3 * halts)),
            ("state1/usage", format!("{halts}\n")),
        ] {
            let path = cpuidle.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn window(id: u32) -> VcpuWindow {
        VcpuWindow { halted: Nanos::from_micros(1000), halts: Some(50), ..VcpuWindow::new(VcpuId(id)) }
    }

    #[test]
    fn what_was_polled_is_retained_and_not_halted() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot { sys: dir.path().to_owned(), ..ProcRoot::default() };
        let mut splitter = IdleSplitter::default();
        set(dir.path(), 0, 7_000, 100);
        splitter.split(&root, &[], &mut [window(0)]);
        let mut last = 100;
        for (polled, halts, retained, halted, counted) in
            [(7_600, 110, 600, 400, 10), (7_600, 110, 0, 1000, 0), (99_000, 300, 1000, 0, 50)]
        {
            set(dir.path(), 0, polled, halts);
            let mut vcpus = [window(0)];
            splitter.split(&root, &[], &mut vcpus);
            assert_eq!(vcpus[0].retained, Nanos::from_micros(retained), "{polled}");
            assert_eq!(vcpus[0].halted, Nanos::from_micros(halted), "{polled}");
            assert_eq!(vcpus[0].halts, Some(counted), "{polled}");
            // Three polls for each halt: two of them held. More halts than were entered are interrupts.
            assert_eq!(vcpus[0].polls_held.unwrap(), 2 * (halts - last), "{polled}");
            last = halts;
        }
    }

    #[test]
    fn without_cpuidle_our_own_polling_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot { sys: dir.path().to_owned(), ..ProcRoot::default() };
        let counters = |polled, polls_held| {
            let polled = Nanos::from_micros(polled);
            [RetainCounters { vcpu: Some(VcpuId(0)), polled, polls_held, ..RetainCounters::default() }]
        };
        let mut splitter = IdleSplitter::default();
        let mut vcpus = [window(0)];
        assert_eq!(splitter.split(&root, &counters(500, 5), &mut vcpus), None);
        assert_eq!((vcpus[0].retained, vcpus[0].halts), (Nanos::ZERO, Some(50)), "what was before is not in it");
        splitter.split(&root, &counters(800, 45), &mut vcpus);
        assert_eq!((vcpus[0].retained, vcpus[0].halts), (Nanos::from_micros(300), Some(10)));
    }
}
