//! What each observer can do on this machine, and why not.

use crate::bpf::{BpfObserver, BpfRefusal};
use crate::observer::ObserverConfig;
use crate::root::ProcRoot;
use crate::{ObserveError, StatReader};
use gleaner_model::Nanos;

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
    let mut stat = StatReader::open(root).and_then(|mut reader| reader.read());
    let owner = config.owner_pid;
    Capabilities {
        bpf: BpfObserver::new(&config).map(drop),
        children_files: root.proc.join(format!("{owner}/task/{owner}/children")).exists(),
        steal_since_boot: stat.as_mut().ok().map(|stat| stat.steal()),
        procfs: stat.map(drop),
    }
}
