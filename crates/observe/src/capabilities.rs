//! What each observer can do on this machine, and why not.

use crate::bpf::{BpfObserver, BpfRefusal};
use crate::config::ObserverConfig;
use crate::{ObserveError, ProcfsObserver};
use gleaner_model::Nanos;
use gleaner_sys::{ProcRoot, StatReader};

/// What can be observed here.
#[derive(Debug)]
pub struct Capabilities {
    /// Whether the BPF observer loads, and why not.
    pub bpf: Result<(), BpfRefusal>,
    /// Whether the `/proc` observer works, and why not.
    pub procfs: Result<(), ObserveError>,
    /// Whether `/proc/PID/task/TID/children` exists; without it all processes are searched for the group's.
    pub children_files: bool,
    /// Steal of all vCPUs since boot; `None` where `/proc/stat` cannot be read. Zero after hours of uptime usually
    /// means that the hypervisor does not tell.
    pub steal_since_boot: Option<Nanos>,
}

/// Tries everything, and leaves nothing behind: BPF programs are loaded, attached and taken out again.
pub fn capabilities(root: &ProcRoot) -> Capabilities {
    let config = ObserverConfig { root: root.clone(), ..ObserverConfig::default() };
    let stat = StatReader::open(root).and_then(|mut reader| reader.read());
    let owner = config.owner_pid;
    Capabilities {
        bpf: BpfObserver::new(&config).map(drop),
        children_files: root.proc.join(format!("{owner}/task/{owner}/children")).exists(),
        steal_since_boot: stat.as_ref().ok().map(gleaner_sys::SystemStat::steal),
        procfs: stat.map_err(ObserveError::from).and_then(|_| ProcfsObserver::new(&config)).map(drop),
    }
}
