//! One thread's line in `/proc/PID/task/TID/stat`, and what the names of vCPU threads look like.

use super::vm::{Accelerator, Vmm};
use crate::ObserveError;
use gleaner_sys::{ProcRoot, Stat, SysError, is_gone};
use std::fmt;
use std::fs;

/// A scheduling class as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedPolicy {
    /// `SCHED_OTHER`.
    Normal,
    Fifo,
    /// `SCHED_RR`.
    RoundRobin,
    Batch,
    Idle,
    Deadline,
    /// `SCHED_EXT`: a scheduler in BPF.
    Ext,
    /// One this program does not know.
    Unknown(u32),
}

impl SchedPolicy {
    /// From the kernel's number.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Normal,
            1 => Self::Fifo,
            2 => Self::RoundRobin,
            3 => Self::Batch,
            5 => Self::Idle,
            6 => Self::Deadline,
            7 => Self::Ext,
            other => Self::Unknown(other),
        }
    }

    /// Whether the fair scheduler runs it: only such threads have slices that can be set.
    pub fn is_fair(self) -> bool {
        matches!(self, Self::Normal | Self::Batch | Self::Idle)
    }
}

impl fmt::Display for SchedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Normal => "other",
            Self::Fifo => "fifo",
            Self::RoundRobin => "rr",
            Self::Batch => "batch",
            Self::Idle => "idle",
            Self::Deadline => "deadline",
            Self::Ext => "ext",
            Self::Unknown(number) => return write!(f, "policy-{number}"),
        };
        f.write_str(word)
    }
}

/// What `stat` says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStat {
    /// `R`: running or waiting for a CPU. The others as proc(5) has them.
    pub state: char,
    /// Nice value; -20 to 19.
    pub nice: i32,
    /// Ticks since boot when it was started.
    pub start_time_ticks: u64,
    pub last_cpu: u32,
    /// Real-time priority; 0 for others.
    pub rt_priority: u32,
    /// Scheduling class.
    pub policy: SchedPolicy,
    /// Ticks in which it ran a guest under KVM.
    pub guest_time_ticks: u64,
}

impl ThreadStat {
    /// Whether it has, or wants, a CPU.
    pub fn is_runnable(&self) -> bool {
        self.state == 'R'
    }

    /// Whether it has ended and only its entry is left, until somebody waits for it.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// From the file's bytes; `None` where it is not the format.
    pub fn parse(line: impl AsRef<[u8]>) -> Option<Self> {
        let stat = Stat::parse(line.as_ref())?;
        Some(Self {
            state: char::from(stat.state()?),
            nice: stat.number(19)?,
            start_time_ticks: stat.start_time()?,
            last_cpu: stat.number(39)?,
            rt_priority: stat.number(40)?,
            policy: SchedPolicy::from_number(stat.number(41)?),
            guest_time_ticks: stat.number(43)?,
        })
    }
}

/// What the kernel says of a thread now; `None` when it is gone.
///
/// # Errors
/// When the file cannot be read, or is not what proc(5) promises.
pub fn thread_stat(root: &ProcRoot, pid: i32, tid: i32) -> Result<Option<ThreadStat>, ObserveError> {
    let path = root.proc.join(format!("{pid}/task/{tid}/stat"));
    let line = match fs::read(&path) {
        Err(error) if is_gone(&error) => return Ok(None),
        read => read.map_err(|error| SysError::read(&path, error))?,
    };
    let parsed = ThreadStat::parse(&line).ok_or_else(|| SysError::parse(&path, 1, "not a line of proc(5)"))?;
    Ok(Some(parsed))
}

/// A thread's name that says it is a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VcpuName {
    pub vmm: Vmm,
    pub index: u32,
    pub accelerator: Accelerator,
    /// Other programs may call a thread so too: it must be seen to use KVM, or run in that VMM's program.
    pub ambiguous: bool,
}

/// What a thread's name says, if it is a vCPU's.
pub(super) fn vcpu_name(comm: &[u8]) -> Option<VcpuName> {
    let comm = std::str::from_utf8(comm).ok()?;
    let named = |vmm, index: &str, accelerator| {
        // Neither a sign nor a space.
        let index = index.bytes().all(|byte| byte.is_ascii_digit()).then(|| index.parse().ok())??;
        Some(VcpuName { vmm, index, accelerator, ambiguous: vmm == Vmm::CloudHypervisor })
    };
    if let Some((index, accelerator)) = comm.strip_prefix("CPU ").and_then(|rest| rest.split_once('/')) {
        return match accelerator {
            "KVM" => named(Vmm::Qemu, index, Accelerator::Kvm),
            "TCG" => named(Vmm::Qemu, index, Accelerator::Tcg),
            _ => None,
        };
    }
    [
        ("fc_vcpu ", Vmm::Firecracker),
        // Firecracker's before 0.22.
        ("fc_vcpu", Vmm::Firecracker),
        ("db_vcpu", Vmm::Dragonball),
        ("crosvm_vcpu", Vmm::Crosvm),
        ("kvm-vcpu-", Vmm::Kvmtool),
        ("vcpu", Vmm::CloudHypervisor),
    ]
    .into_iter()
    .find_map(|(prefix, vmm)| named(vmm, comm.strip_prefix(prefix)?, Accelerator::Kvm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_vmm() {
        use Accelerator::{Kvm, Tcg};
        for (comm, expected) in [
            ("CPU 0/KVM", Some((Vmm::Qemu, 0, Kvm))),
            ("CPU 12/TCG", Some((Vmm::Qemu, 12, Tcg))),
            ("fc_vcpu 3", Some((Vmm::Firecracker, 3, Kvm))),
            ("vcpu7", Some((Vmm::CloudHypervisor, 7, Kvm))),
            ("crosvm_vcpu1", Some((Vmm::Crosvm, 1, Kvm))),
            ("kvm-vcpu-2", Some((Vmm::Kvmtool, 2, Kvm))),
            ("ALL CPUs/TCG", None),
            ("CPU x/KVM", None),
            ("CPU 0/HVF", None),
            ("fc_vcpu4", Some((Vmm::Firecracker, 4, Kvm))),
            ("db_vcpu0", Some((Vmm::Dragonball, 0, Kvm))),
            ("crosvm_vcpu1234", Some((Vmm::Crosvm, 1234, Kvm))),
            ("CPU 100/KVM", Some((Vmm::Qemu, 100, Kvm))),
            ("CPU +1/KVM", None),
            ("CPU /KVM", None),
            ("CPU 99999999999/", None),
            ("vcpu-1", None),
            ("fc_vcpu  1", None),
            ("vcpu", None),
            ("vcpu1-io", None),
            ("kvm-nx-lpage-re", None),
            ("", None),
        ] {
            let found = vcpu_name(comm.as_bytes()).map(|name| (name.vmm, name.index, name.accelerator));
            assert_eq!(found, expected, "{comm}");
        }
    }

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let line = "77 (CPU 0/KVM) x) R 1 77 77 0 -1 4194368 1 2 3 4 5 6 7 8 20 -5 3 0 4242 99 1 18446744073709551615 \
                    0 0 0 0 0 0 0 0 0 0 0 0 -1 9 0 0 0 31 0 0 0";
        let stat = ThreadStat::parse(line).unwrap();
        assert_eq!((stat.state, stat.nice, stat.start_time_ticks), ('R', -5, 4242));
        assert_eq!((stat.last_cpu, stat.policy, stat.guest_time_ticks), (9, SchedPolicy::Normal, 31));
        let mut odd = b"77 (CPU\xc3 0)\n\x1b) Z".to_vec();
        odd.extend(&line.as_bytes()["77 (CPU 0/KVM) x) R".len()..]);
        let odd = ThreadStat::parse(odd).unwrap();
        assert_eq!((odd.start_time_ticks, odd.is_dead(), stat.is_dead()), (4242, true, false));
        assert_eq!(ThreadStat::parse("77 (x) R 1"), None);
        assert_eq!(ThreadStat::parse("no brackets"), None);
    }
}
