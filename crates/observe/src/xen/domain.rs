//! A virtual machine of Xen's, and its vCPUs.

/// A virtual machine of Xen's.
#[derive(Clone, Debug, PartialEq)]
pub struct XenDomain {
    /// Its number; a domain that is started again gets another.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its cpupool; `None` where its scheduler is one that we do not know.
    pub pool: Option<String>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Weight under credit and credit2.
    pub weight: Option<u32>,
    /// Cap in per cent of a physical CPU under credit and credit2; 0: none.
    pub cap_percent: Option<u32>,
    /// Its vCPUs, ascending by number.
    pub vcpus: Vec<XenVcpu>,
}

/// A virtual CPU of Xen's.
#[derive(Clone, Debug, PartialEq)]
pub struct XenVcpu {
    /// As its domain numbers it.
    pub index: u32,
    /// The physical CPU on which it runs, or was last; `None` for one that never ran or is offline.
    pub pcpu: Option<u32>,
    /// What it does.
    pub state: XenVcpuState,
    /// CPU time since its domain was made, in seconds, to a tenth.
    pub cpu_time_s: f64,
    /// The physical CPUs it may use, as Xen writes it: `all`, `0-3`.
    pub hard_affinity: String,
    /// Those it prefers.
    pub soft_affinity: String,
}

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XenVcpuState {
    /// On a physical CPU.
    Running,
    /// Waits for an event.
    Blocked,
    /// Stopped by dom0.
    Paused,
    /// None of these: wants a physical CPU.
    Runnable,
}

impl XenVcpuState {
    /// Its name in results.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
            Self::Runnable => "runnable",
        }
    }
}
