//! Which of the VMs a person means.

use super::threads::thread_stat;
use super::vm::Vm;
use gleaner_model::printable;
use gleaner_sys::{ProcRoot, read_optional};
use std::collections::BTreeMap;

/// A word that means no VM, or more than one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No VM has this name.
    #[error("no VM is called '{wanted}'; {found}")]
    NoSuchVm {
        /// What was asked for.
        wanted: String,
        found: String,
    },
    /// Several VMs may be meant.
    #[error("'{wanted}' means {} VMs: {}; write which one", vms.len(), unique_names(vms))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Those that it means.
        vms: Vec<Vm>,
    },
    /// No process has this pid.
    #[error("there is no process {pid}; {found}")]
    NoSuchProcess {
        /// What was asked for.
        pid: i32,
        found: String,
    },
    /// The process has ended.
    #[error("process {pid} ({comm}) has ended, and its parent has not waited for it; {found}")]
    Ended {
        /// What was asked for.
        pid: i32,
        /// The process's name.
        comm: String,
        found: String,
    },
    /// The process is no VM.
    #[error("process {pid} ({comm}) is no VM: it has no vCPU threads and no KVM file; {found}")]
    NoVm {
        /// What was asked for.
        pid: i32,
        /// The process's name.
        comm: String,
        found: String,
    },
}

/// The VM that `wanted` means: its name as it is shown or as it is, `NAME#PID`, a pid, or a vCPU thread's id.
///
/// # Errors
/// When it means none, and the message says which VMs there are, or several, and it says what would mean one.
pub fn select(root: &ProcRoot, vms: &[Vm], wanted: &str) -> Result<Vm, SelectError> {
    // Whoever gives a name as it is means the one that is shown for it.
    let wanted = printable(wanted.as_bytes());
    let number = wanted.parse::<i32>().ok();
    let is_called = |vm: &Vm| [&vm.name, &vm.called].contains(&&wanted) || vm.unique_name() == wanted;
    let meant: Vec<&Vm> =
        vms.iter().filter(|vm| is_called(vm) || number.is_some_and(|number| vm.ids().any(|id| id == number))).collect();
    match *meant {
        [vm] => return Ok(vm.clone()),
        [] => {}
        _ => return Err(SelectError::Ambiguous { wanted, vms: meant.into_iter().cloned().collect() }),
    }
    let found = there_is(vms);
    let Some(pid) = number else { return Err(SelectError::NoSuchVm { wanted, found }) };
    match read_optional(&root.proc.join(format!("{pid}/comm"))) {
        Ok(Some(comm)) => {
            let comm = printable(comm.trim_end_matches('\n').as_bytes());
            let ended = thread_stat(root, pid, pid).ok().flatten().is_some_and(|stat| stat.is_dead());
            Err(if ended { SelectError::Ended { pid, comm, found } } else { SelectError::NoVm { pid, comm, found } })
        }
        _ => Err(SelectError::NoSuchProcess { pid, found }),
    }
}

/// Gives those that would share a name names that tell them apart.
pub(super) fn tell_apart(vms: &mut [Vm]) {
    // A number may mean a process or a thread, too.
    let numbers: Vec<(i32, i32)> = vms.iter().flat_map(|vm| vm.ids().map(|id| (id, vm.pid))).collect();
    let is_another =
        |vm: &Vm| vm.name.parse().is_ok_and(|name: i32| numbers.iter().any(|id| id.0 == name && id.1 != vm.pid));
    // Again where one is called what another one becomes: after that all end in different process ids.
    for _ in 0..2 {
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for vm in &*vms {
            *names.entry(vm.name.clone()).or_default() += 1;
        }
        for vm in vms.iter_mut().filter(|vm| names.get(&vm.name) > Some(&1) || is_another(vm)) {
            vm.name = format!("{}#{}", vm.name, vm.pid);
        }
    }
}

impl Vm {
    /// Numbers that mean it.
    fn ids(&self) -> impl Iterator<Item = i32> {
        std::iter::once(self.pid).chain(self.vcpus.iter().map(|vcpu| vcpu.tid))
    }
}

fn unique_names(vms: &[Vm]) -> String {
    vms.iter().map(Vm::unique_name).collect::<Vec<_>>().join(", ")
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
