//! Which of the VMs a person means.

use super::Vm;
use crate::root::{ProcRoot, read_optional};

/// A word that means no VM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No VM has this name.
    #[error("no VM is called '{wanted}'; {found}")]
    NoSuchVm {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// No process has this pid.
    #[error("there is no process {pid}; {found}")]
    NoSuchProcess {
        /// What was asked for.
        pid: i32,
        /// What there is.
        found: String,
    },
    /// The process is no VM.
    #[error("process {pid} ({comm}) is no VM: it has no vCPU threads and no KVM file; {found}")]
    NoVm {
        /// What was asked for.
        pid: i32,
        /// The process's name.
        comm: String,
        /// What there is.
        found: String,
    },
}

/// The VMs that `wanted`, a name or a pid, means: more than one where they share a name. A vCPU thread's id means its VM.
///
/// # Errors
/// When it means none; the message says which VMs there are.
pub fn select(root: &ProcRoot, vms: &[Vm], wanted: &str) -> Result<Vec<Vm>, SelectError> {
    let named: Vec<Vm> = vms.iter().filter(|vm| vm.name == wanted).cloned().collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let found = there_is(vms);
    let Ok(pid) = wanted.parse::<i32>() else { return Err(SelectError::NoSuchVm { wanted: wanted.to_owned(), found }) };
    let is_it = |vm: &&Vm| vm.pid == pid || vm.vcpus.iter().any(|vcpu| vcpu.tid == pid);
    if let Some(vm) = vms.iter().find(is_it) {
        return Ok(vec![vm.clone()]);
    }
    match read_optional(&root.proc.join(format!("{pid}/comm"))) {
        Ok(Some(comm)) => Err(SelectError::NoVm { pid, comm: comm.trim_end().to_owned(), found }),
        _ => Err(SelectError::NoSuchProcess { pid, found }),
    }
}

fn there_is(vms: &[Vm]) -> String {
    const NAMED_AT_MOST: usize = 8;
    if vms.is_empty() {
        return "no VM runs here, or none that this user may see".to_owned();
    }
    let mut names: Vec<String> =
        vms.iter().take(NAMED_AT_MOST).map(|vm| format!("{} (pid {})", vm.name, vm.pid)).collect();
    if vms.len() > NAMED_AT_MOST {
        names.push(format!("and {} more", vms.len() - NAMED_AT_MOST));
    }
    format!("there is: {}", names.join(", "))
}
