//! Which VMs run on this host, and which threads are their vCPUs, whoever runs them.
//!
//! Problem: a slice is set on a thread, and every hypervisor names its vCPUs' threads in its own way, or not at all.
//! What tells them, in this order:
//!
//! ```text
//!   QMP (query-cpus-fast)       QEMU's own word, where a monitor's socket is given, or named by a QEMU whose threads have no names
//!   the threads' names          "CPU 0/KVM", "fc_vcpu 0", "vcpu0", "crosvm_vcpu0", "kvm-vcpu-0"     (threads)
//!   debugfs kvm/PID-FD/vcpuN    the kernel's own word; root only                                     (kvm)
//!   /proc/PID/fd                anon_inode:kvm-vcpu:N says how many; which threads by what they wait in, or their guest time
//! ```
//!
//! One pass over `/proc`; a process that goes away meanwhile is no error. [`watch`] then says what the vCPUs got and
//! waited for.

mod activity;
mod address;
mod answers;
mod cgroup;
mod command_line;
mod kvm;
mod limit;
mod monitors;
mod name;
mod passed_over;
mod pause_exits;
mod place;
mod process;
mod qmp;
mod select;
mod side_by_side;
mod threads;
mod vm;
mod weight;

pub use activity::{Activity, ThreadCounters, VcpuActivity, watch};
pub use address::MonitorAddress;
pub use answers::MonitorAnswers;
pub use cgroup::{CgroupPath, cgroup_of};
pub use limit::cpu_limit;
pub use passed_over::PassedOver;
pub use pause_exits::{PauseExitCounters, PauseExitRefusal};
pub use qmp::{MonitorAnswer, QmpCpu, QmpError, query_cpus};
pub use select::{SelectError, select};
pub use threads::{SchedPolicy, ThreadStat, thread_stat};
pub use vm::{Accelerator, VcpuThread, Vm, Vmm};
pub use weight::{VcpuLoad, entitlements};

use crate::ObserveError;
use answers::Known;
use gleaner_sys::ProcRoot;
use qmp::Patience;
use side_by_side::side_by_side;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What to ask besides `/proc` and `/sys`.
#[derive(Clone, Debug)]
pub struct DiscoverOptions {
    /// QMP sockets to ask, as [`MonitorAddress::from_option`] takes them; each must answer.
    pub qmp: Vec<PathBuf>,
    /// How long QMP sockets may take, all that are named together, and then all that VMs' command lines promise.
    pub qmp_timeout: Duration,
    /// Once it is set, no socket is waited for any more.
    pub interrupted: Option<Arc<AtomicBool>>,
    /// What monitors said already: whoever looks again with the same options does not ask again for a minute.
    pub answers: MonitorAnswers,
    /// Processes that were no VM: whoever looks again with the same options passes them over for a while, half a minute
    /// at most.
    pub passed_over: PassedOver,
}

impl Default for DiscoverOptions {
    fn default() -> Self {
        Self {
            qmp: Vec::new(),
            qmp_timeout: Duration::from_secs(2),
            interrupted: None,
            answers: MonitorAnswers::default(),
            passed_over: PassedOver::default(),
        }
    }
}

impl DiscoverOptions {
    fn patience(&self) -> Patience<'_> {
        Patience::new(self.qmp_timeout, self.interrupted.as_deref())
    }
}

/// Why VMs could not be looked for.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// A file that every Linux has could not be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// A QMP socket that was asked for did not answer, or not what QMP promises.
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

/// Every VM on this machine, ascending by pid.
///
/// # Errors
/// When `/proc` cannot be listed, or a QMP socket of `options` does not answer.
pub fn discover(root: &ProcRoot, options: &DiscoverOptions) -> Result<Vec<Vm>, DiscoverError> {
    let told = ask_monitors(root, options).into_iter().collect::<Result<_, _>>()?;
    Ok(vms_at(root, options, &told, Instant::now())?)
}

/// Likewise for whoever looks again and again: VMs end, and their monitors with them, so one that does not answer is no
/// error. The VMs are then found by the other witnesses; beside them stands what each such monitor said.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn rediscover(root: &ProcRoot, options: &DiscoverOptions) -> Result<(Vec<Vm>, Vec<QmpError>), ObserveError> {
    let (mut told, mut silent) = (BTreeMap::new(), Vec::new());
    for answer in ask_monitors(root, options) {
        match answer {
            Ok(answer) => told.extend([answer]),
            Err(error) => silent.push(error),
        }
    }
    Ok((vms_at(root, options, &told, Instant::now())?, silent))
}

/// What monitors said, by process.
type Told = BTreeMap<i32, Vec<QmpCpu>>;

fn vms_at(root: &ProcRoot, options: &DiscoverOptions, told: &Told, now: Instant) -> Result<Vec<Vm>, ObserveError> {
    let in_kernel = kvm::debugfs_vcpus(root);
    let pids = process::pids(root)?;
    options.passed_over.keep(&pids);
    let look = |pid: i32, patience| {
        let known = Known {
            qmp: told.get(&pid),
            debugfs: in_kernel.get(&pid),
            answers: &options.answers,
            patience,
            unasked: false.into(),
        };
        if !known.is_named() && options.passed_over.rests(pid, now) {
            return Looked::Rests;
        }
        let vm = process::vm_of(root, pid, &known);
        if known.unasked.get() { Looked::Unasked } else { Looked::Is(vm.map(Box::new)) }
    };
    let mut found: Vec<(i32, Looked)> = pids.into_iter().map(|pid| (pid, look(pid, None))).collect();
    let (asking, patience) =
        (found.iter_mut().filter(|(_, looked)| matches!(looked, Looked::Unasked)), options.patience());
    let asking: Vec<&mut (i32, Looked)> = asking.collect();
    let pids: Vec<i32> = asking.iter().map(|(pid, _)| *pid).collect();
    let asked = side_by_side(&pids, |pid| look(*pid, Some(patience)));
    asking.into_iter().zip(asked).for_each(|((_, looked), asked)| *looked = asked);
    let mut vms = Vec::new();
    for (pid, looked) in found {
        if let Looked::Is(vm) = looked {
            options.passed_over.note(pid, vm.is_some(), now);
            vms.extend(vm.map(|vm| *vm));
        }
    }
    select::tell_apart(&mut vms);
    Ok(vms)
}

/// What a look at a process came to.
enum Looked {
    /// It is passed over.
    Rests,
    /// It may be a VM or none.
    Is(Option<Box<Vm>>),
    /// Its monitors have to be asked first.
    Unasked,
}

/// Asks each monitor that was named: its vCPUs, and the process that the threads it answers with belong to.
fn ask_monitors(root: &ProcRoot, options: &DiscoverOptions) -> Vec<Result<(i32, Vec<QmpCpu>), QmpError>> {
    let patience = options.patience();
    side_by_side(&options.qmp, |socket| ask_monitor(root, &options.answers, patience, socket))
}

fn ask_monitor(
    root: &ProcRoot,
    answers: &MonitorAnswers,
    patience: Patience<'_>,
    socket: &Path,
) -> Result<(i32, Vec<QmpCpu>), QmpError> {
    let socket = MonitorAddress::from_option(socket);
    let ask = || {
        let MonitorAnswer { cpus, peer } = answers.ask(&socket, None, patience)?;
        let owner = process::process_of_monitor(root, &cpus, peer);
        Ok(owner.map(|pid| (pid, cpus)))
    };
    let remembered = answers.known(&socket, None).is_some();
    let mut found = ask()?;
    if found.is_none() && remembered {
        // That was said a while ago: another VM may listen there by now.
        answers.forget(&socket);
        found = ask()?;
    }
    found.ok_or(QmpError::Elsewhere { socket })
}

#[cfg(test)]
mod tests;
