//! What each observer can do on this machine, and why not.

use crate::bpf::{BpfObserver, BpfRefusal};
use crate::config::ObserverConfig;
use crate::{ObserveError, ProcfsObserver};
use gleaner_sys::ProcRoot;

/// What can be observed here.
#[derive(Debug)]
pub struct Capabilities {
    /// Whether the BPF observer loads, and why not.
    pub bpf: Result<(), BpfRefusal>,
    /// Whether the `/proc` observer works, and why not.
    pub procfs: Result<(), ObserveError>,
    /// Whether `/proc/PID/task/TID/children` exists; without it all processes are searched for the group's.
    pub children_files: bool,
}

/// Tries everything, and leaves nothing behind: BPF programs are loaded, attached and taken out again.
pub fn capabilities(root: &ProcRoot) -> Capabilities {
    let config = ObserverConfig { root: root.clone(), ..ObserverConfig::default() };
    let owner = config.owner_pid;
    Capabilities {
        bpf: BpfObserver::new(&config).map(drop),
        children_files: root.proc.join(format!("{owner}/task/{owner}/children")).exists(),
        procfs: ProcfsObserver::new(&config).map(drop),
    }
}
