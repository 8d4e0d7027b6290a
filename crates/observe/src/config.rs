//! What an observer has to know from the start.

use gleaner_model::{CpuSet, Nanos};
use gleaner_sys::ProcRoot;

/// Which observer to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObserverChoice {
    /// BPF where it loads, else `/proc`.
    #[default]
    Auto,
    /// BPF or nothing.
    Bpf,
    /// `/proc`, even where BPF would load.
    Procfs,
}

/// What an observer has to know from the start.
#[derive(Clone, Debug)]
pub struct ObserverConfig {
    /// Where `/proc` and `/sys` are.
    pub root: ProcRoot,
    /// The process that forks the managed program, is its subreaper, and owns the yielding threads.
    pub owner_pid: i32,
    /// Child processes of the owner that are not managed, such as the guardian.
    pub excluded_pids: Vec<i32>,
    /// Processes managed from the start (`/proc` only), usually none: see [`crate::Observer::adopted`].
    pub roots: Vec<i32>,
    /// The vCPUs the group may use; `None` for all that are online.
    pub allowed: Option<CpuSet>,
    /// Groups seen at once, as far as BPF is concerned: it takes 2.6 kB for each on each CPU, and has room for 256 at
    /// most.
    pub groups_max: usize,
    /// CPU time that a process has taken, as `/proc` asks for it first; `None`: it has gone. Of a fixture tree nobody
    /// is asked unless this is given.
    pub process_clock: Option<fn(i32) -> Option<Nanos>>,
    /// Count how often idle tasks execute the idle instruction (BPF only): one more program, at every idle entry, that
    /// no policy needs. For experiments, see [`crate::BpfObserver::idle_instructions`].
    pub count_idle_instructions: bool,
}

impl Default for ObserverConfig {
    /// The running machine, owned by the calling process, nothing excluded.
    fn default() -> Self {
        Self {
            root: ProcRoot::default(),
            owner_pid: i32::try_from(std::process::id()).unwrap_or(0),
            excluded_pids: Vec::new(),
            roots: Vec::new(),
            allowed: None,
            groups_max: 1,
            process_clock: None,
            count_idle_instructions: false,
        }
    }
}
