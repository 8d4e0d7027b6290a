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
pub use weight::{VcpuLoad, entitlements};

use crate::ObserveError;
use gleaner_model::CpuSet;
use gleaner_sys::ProcRoot;
use qmp::Patience;
use side_by_side::side_by_side;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A virtual machine: a process with vCPU threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its name, of which there is one among the VMs found with it: [`Self::called`], or `NAME#PID` where several are
    /// called so.
    pub name: String,
    /// What its user calls it, fit to be shown; `VMM-PID` where nothing tells.
    pub called: String,
    /// The process.
    pub pid: i32,
    /// Ticks since boot when the process was started: with the pid it names the process for good.
    pub start_time_ticks: u64,
    /// The program that runs it.
    pub vmm: Vmm,
    /// Whether KVM runs its instructions, or QEMU emulates them; `None` where nothing tells.
    pub accelerator: Option<Accelerator>,
    /// The process's cgroup.
    pub cgroup: Option<CgroupPath>,
    /// Its vCPUs, ascending by index. Empty where their threads cannot be told from others: [`Self::notes`] says why.
    pub vcpus: Vec<VcpuThread>,
    /// What could not be told, and what would help.
    pub notes: Vec<String>,
}

impl Vm {
    /// A name that means this VM whatever others are called; it may be asked for by it.
    pub fn unique_name(&self) -> String {
        format!("{}#{}", self.called, self.pid)
    }
}

/// One vCPU's thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcpuThread {
    /// The vCPU as its VM numbers it.
    pub index: u32,
    /// The thread.
    pub tid: i32,
    /// The thread's name, fit to be shown.
    pub name: String,
    /// Ticks since boot when the thread was started: with the tid it names the thread for good.
    pub start_time_ticks: u64,
    /// The physical CPUs it may use; `None` where the kernel does not say.
    pub allowed: Option<CpuSet>,
    /// The thread's cgroup: libvirt gives each vCPU its own.
    pub cgroup: Option<CgroupPath>,
}

/// A program that runs VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vmm {
    /// QEMU, with KVM or without.
    Qemu,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// kvmtool (`lkvm`).
    Kvmtool,
    /// StratoVirt.
    StratoVirt,
    /// Dragonball, in Kata's shim.
    Dragonball,
    /// Some other user of KVM.
    Kvm,
}

impl Vmm {
    /// The word for it in results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Firecracker => "firecracker",
            Self::CloudHypervisor => "cloud-hypervisor",
            Self::Crosvm => "crosvm",
            Self::Kvmtool => "kvmtool",
            Self::StratoVirt => "stratovirt",
            Self::Dragonball => "dragonball",
            Self::Kvm => "kvm",
        }
    }
}

/// What runs a VM's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's emulator.
    Tcg,
}

impl Accelerator {
    /// The word for it in results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

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
        let known =
            Known { qmp: told.get(&pid), debugfs: in_kernel.get(&pid), options, patience, unasked: false.into() };
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

/// What was learnt of one process before looking at it.
struct Known<'a> {
    qmp: Option<&'a Vec<QmpCpu>>,
    /// vCPU index to thread, as the kernel's debugfs has it.
    debugfs: Option<&'a BTreeMap<u32, i32>>,
    options: &'a DiscoverOptions,
    /// How long its monitors are waited for; `None`: not yet.
    patience: Option<Patience<'a>>,
    /// Whether one of them would have to be.
    unasked: Cell<bool>,
}

impl Known<'_> {
    /// Whether a monitor or KVM said that it is a VM.
    fn is_named(&self) -> bool {
        self.qmp.is_some() || self.debugfs.is_some()
    }

    /// What the monitor says of which there are `all`, `left` of them unheard; `None` where it is not waited for yet.
    fn ask(
        &self,
        monitor: &MonitorAddress,
        process: Option<(i32, u64)>,
        (left, all): (usize, usize),
    ) -> Option<Result<MonitorAnswer, QmpError>> {
        let answers = &self.options.answers;
        let Some(patience) = self.patience else {
            let known = answers.known(monitor, process);
            self.unasked.set(known.is_none());
            return known;
        };
        Some(answers.ask(monitor, process, patience.share(left, all)))
    }
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
