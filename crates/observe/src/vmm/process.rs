//! One process: is it a VM, and which of its threads are vCPUs?

use super::cgroup::{cgroup_of, jailer_name, libvirt_name};
use super::kvm::{kvm_vcpu_files, waits_in_kvm_run};
use super::name::{name_in_args, qemu_accelerator, qmp_socket, vmm_of_program};
use super::threads::{ThreadStat, VcpuName, thread_stat, vcpu_name};
use super::{Accelerator, Known, VcpuThread, Vm, Vmm};
use crate::ObserveError;
use crate::root::ProcRoot;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Processes, ascending.
pub(super) fn pids(root: &ProcRoot) -> Result<Vec<i32>, ObserveError> {
    let entries = fs::read_dir(&root.proc).map_err(|error| ObserveError::read(&root.proc, error))?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let mut pids: Vec<i32> = entries.flatten().filter_map(number).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// The process that a thread belongs to.
pub(super) fn process_of_thread(root: &ProcRoot, tid: i32) -> Option<i32> {
    let status = text(&root.proc.join(format!("{tid}/status")))?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|pid| pid.trim().parse().ok())
}

/// What is read of a process once.
struct Process<'a> {
    root: &'a ProcRoot,
    pid: i32,
    program: Option<Vmm>,
    args: Vec<String>,
    /// Name by thread.
    threads: BTreeMap<i32, String>,
}

/// The VM that a process is; `None` when it is none, or gone.
pub(super) fn vm_of(root: &ProcRoot, pid: i32, known: &Known<'_>) -> Option<Vm> {
    let process = Process::read(root, pid)?;
    let mut names: BTreeMap<i32, VcpuName> =
        process.threads.iter().filter_map(|(tid, comm)| Some((*tid, vcpu_name(comm)?))).collect();
    let files = kvm_vcpu_files(root, pid);
    names.retain(|_, name| !name.ambiguous || !files.is_empty() || process.program == Some(name.vmm));
    // QEMU is a VM even where nothing tells its vCPUs; of the other programs' processes, only one has them.
    let is_vm = !names.is_empty()
        || !files.is_empty()
        || known.qmp.is_some()
        || known.debugfs.is_some_and(|vcpus| !vcpus.is_empty())
        || process.program == Some(Vmm::Qemu);
    if !is_vm {
        return None;
    }
    let first = names.values().next().copied();
    let vmm = process.program.or(first.map(|name| name.vmm)).unwrap_or(Vmm::Kvm);
    let mut notes = Vec::new();
    let threads = process.vcpus(known, &names, &files, vmm, &mut notes);
    let cgroup = cgroup_of(root, pid, pid);
    let path = cgroup.as_ref().map_or("", |cgroup| cgroup.path.as_str());
    let name = name_in_args(vmm, &process.args)
        .or_else(|| libvirt_name(path))
        .or_else(|| (vmm == Vmm::Firecracker).then(|| jailer_name(path)).flatten());
    let accelerator = first
        .map(|name| name.accelerator)
        .or((!files.is_empty()).then_some(Accelerator::Kvm))
        .or_else(|| (vmm == Vmm::Qemu).then(|| qemu_accelerator(&process.args)).flatten());
    Some(Vm {
        name: name.unwrap_or_else(|| format!("{}-{pid}", vmm.as_str())),
        pid,
        start_time_ticks: thread_stat(root, pid, pid).ok()??.start_time_ticks,
        vmm,
        accelerator,
        vcpus: process.threads_of(&threads),
        cgroup,
        notes,
    })
}

impl<'a> Process<'a> {
    fn read(root: &'a ProcRoot, pid: i32) -> Option<Self> {
        let folder = root.proc.join(pid.to_string());
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(folder.join("task")).ok()?.flatten() {
            let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(comm) = text(&entry.path().join("comm")) {
                threads.insert(tid, comm.trim_end_matches('\n').to_owned());
            }
        }
        let args: Vec<String> = text(&folder.join("cmdline"))?.split_terminator('\0').map(str::to_owned).collect();
        let comm = text(&folder.join("comm")).unwrap_or_default();
        let program = vmm_of_program(args.first().map_or("", String::as_str), comm.trim_end());
        Some(Self { root, pid, program, args, threads })
    }

    /// vCPU index to thread, by the best witness there is.
    fn vcpus(
        &self,
        known: &Known<'_>,
        names: &BTreeMap<i32, VcpuName>,
        files: &BTreeMap<i32, u32>,
        vmm: Vmm,
        notes: &mut Vec<String>,
    ) -> BTreeMap<u32, i32> {
        if let Some(cpus) = known.qmp {
            return cpus.iter().map(|cpu| (cpu.index, cpu.thread_id)).collect();
        }
        if !names.is_empty() {
            return names.iter().map(|(tid, name)| (name.index, *tid)).collect();
        }
        if let Some(threads) = known.debugfs.filter(|threads| !threads.is_empty()) {
            return threads.clone();
        }
        if vmm == Vmm::Qemu
            && let Some(socket) = self.monitor()
        {
            let process = self.stat(self.pid).map(|stat| (self.pid, stat.start_time_ticks));
            match known.options.answers.ask(&socket, process, known.options.qmp_timeout) {
                Ok(cpus) => return cpus.iter().map(|cpu| (cpu.index, cpu.thread_id)).collect(),
                Err(error) => notes.push(error.to_string()),
            }
        }
        let guessed = self.vcpus_by_files(files);
        if guessed.is_empty() {
            notes.push(match vmm {
                Vmm::Qemu => "its threads have no names, so its vCPUs cannot be told: start it with -name NAME,debug-threads=on, \
                              or give its monitor with --qmp"
                    .to_owned(),
                _ => "its vCPU threads cannot be told from others: none has run a guest yet, or root must look (debugfs)".to_owned(),
            });
        }
        guessed
    }

    /// The monitor that its command line names, as seen from outside its directory.
    fn monitor(&self) -> Option<PathBuf> {
        let socket = qmp_socket(&self.args)?;
        if socket.is_absolute() {
            return Some(socket);
        }
        Some(fs::read_link(self.root.proc.join(format!("{}/cwd", self.pid))).ok()?.join(socket))
    }

    /// Those that wait in KVM_RUN say which they are; the others that have run a guest get the indices left, in order.
    fn vcpus_by_files(&self, files: &BTreeMap<i32, u32>) -> BTreeMap<u32, i32> {
        let mut found = BTreeMap::new();
        let mut others = Vec::new();
        for tid in self.threads.keys() {
            match waits_in_kvm_run(self.root, self.pid, *tid).and_then(|fd| files.get(&fd)) {
                Some(index) => {
                    found.insert(*index, *tid);
                }
                None if self.stat(*tid).is_some_and(|stat| stat.guest_time_ticks > 0) => others.push(*tid),
                None => {}
            }
        }
        let left: BTreeSet<u32> = files.values().copied().filter(|index| !found.contains_key(index)).collect();
        found.extend(left.into_iter().zip(others));
        found
    }

    fn stat(&self, tid: i32) -> Option<ThreadStat> {
        thread_stat(self.root, self.pid, tid).ok().flatten()
    }

    fn threads_of(&self, vcpus: &BTreeMap<u32, i32>) -> Vec<VcpuThread> {
        let thread = |(index, tid): (&u32, &i32)| {
            let status = text(&self.root.proc.join(format!("{}/task/{tid}/status", self.pid)));
            let allowed = status.as_deref().and_then(|status| {
                let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
                list.trim().parse().ok()
            });
            Some(VcpuThread {
                index: *index,
                tid: *tid,
                name: self.threads.get(tid).cloned().unwrap_or_default(),
                start_time_ticks: self.stat(*tid)?.start_time_ticks,
                allowed,
                cgroup: cgroup_of(self.root, self.pid, *tid),
            })
        };
        vcpus.iter().filter_map(thread).collect()
    }
}

/// A file as text, whatever bytes are in it: names and command lines may hold any.
fn text(path: &Path) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
