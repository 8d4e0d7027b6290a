//! One process: is it a VM, and which of its threads are vCPUs?

use super::cgroup::cgroup_of;
use super::command_line::Arguments;
use super::kvm::{kvm_vcpu_files, waits_in_kvm_run};
use super::name::{ProgramNames, given_name, qemu_accelerator};
use super::threads::{ThreadStat, VcpuName, thread_stat, vcpu_name};
use super::vm::{Accelerator, VcpuThread, Vm, Vmm};
use crate::ObserveError;
use gleaner_model::printable;
use gleaner_sys::{ProcRoot, SysError, status_field};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// QEMU's name for a thread that emulates all vCPUs.
const ALL_IN_ONE: &[u8] = b"ALL CPUs/TCG";

/// Processes, ascending.
pub(super) fn pids(root: &ProcRoot) -> Result<Vec<i32>, ObserveError> {
    let entries = fs::read_dir(&root.proc).map_err(|error| SysError::read(&root.proc, error))?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let mut pids: Vec<i32> = entries.flatten().filter_map(number).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// A process that has threads, but whose first one may have ended: its files are then those of a thread that has not.
struct Process<'a> {
    root: &'a ProcRoot,
    pid: i32,
    arguments: Arguments,
    exe: Vec<u8>,
    comm: Vec<u8>,
    /// Name by thread.
    threads: BTreeMap<i32, Vec<u8>>,
}

/// The VM that a process is; `None` when it is none, or gone. `debugfs`: vCPU index to thread, as the kernel's debugfs
/// has it.
pub(super) fn vm_of(root: &ProcRoot, pid: i32, debugfs: Option<&BTreeMap<u32, i32>>) -> Option<Vm> {
    let mut process = Process::read(root, pid)?;
    let mut names: BTreeMap<i32, VcpuName> =
        process.threads.iter().filter_map(|(tid, comm)| Some((*tid, vcpu_name(comm)?))).collect();
    let files = kvm_vcpu_files(root, pid);
    let program = process.names().vmm();
    names.retain(|_, name| !name.ambiguous || !files.is_empty() || program == Some(name.vmm));
    // In another PID namespace debugfs' numbers are not those of the threads here.
    let in_kernel = debugfs.filter(|vcpus| vcpus.values().any(|tid| process.threads.contains_key(tid)));
    // QEMU is a VM even where nothing tells its vCPUs; of the other programs' processes, only one has them.
    let by_name = program == Some(Vmm::Qemu) && !process.arguments.is_empty() && !process.names().is_script();
    let unnamed = names.is_empty() && process.all_in_one().is_none();
    if unnamed && files.is_empty() && in_kernel.is_none() && !by_name {
        return None;
    }
    process.forget_the_dead()?;
    names.retain(|tid, _| process.threads.contains_key(tid));
    let first = names.values().next().copied();
    let all_in_one = process.all_in_one();
    let by_thread = first.map(|name| name.vmm).or(all_in_one.map(|_| Vmm::Qemu));
    let vmm = program.or(by_thread).unwrap_or(Vmm::Kvm);
    let mut notes = Vec::new();
    let threads = process.vcpus(&VcpuEvidence { in_kernel, names: &names, files: &files }, vmm, &mut notes);
    let called =
        given_name(vmm, &process.arguments).map_or_else(|| format!("{}-{pid}", vmm.as_str()), |name| printable(&name));
    let accelerator = first
        .map(|name| name.accelerator)
        .or(all_in_one.map(|_| Accelerator::Tcg))
        .or((!files.is_empty()).then_some(Accelerator::Kvm))
        .or_else(|| (vmm == Vmm::Qemu).then(|| qemu_accelerator(&process.arguments)).flatten());
    Some(Vm {
        name: called.clone(),
        called,
        pid,
        start_time_ticks: process.stat(pid)?.start_time_ticks,
        vmm,
        accelerator,
        vcpus: process.threads_of(&threads),
        cgroup: cgroup_of(root, pid, process.speaker()),
        notes,
    })
}

/// What says which threads are vCPUs.
struct VcpuEvidence<'a> {
    in_kernel: Option<&'a BTreeMap<u32, i32>>,
    names: &'a BTreeMap<i32, VcpuName>,
    files: &'a BTreeMap<i32, u32>,
}

impl<'a> Process<'a> {
    fn read(root: &'a ProcRoot, pid: i32) -> Option<Self> {
        let folder = root.proc.join(pid.to_string());
        let mut threads = BTreeMap::new();
        for tid in task_ids(root, pid) {
            if let Some(comm) = name_in(&folder.join(format!("task/{tid}/comm"))) {
                threads.insert(tid, comm);
            }
        }
        let exe = fs::read_link(folder.join("exe")).map(|exe| exe.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        let comm = name_in(&folder.join("comm")).unwrap_or_default();
        let mut process = Self { root, pid, arguments: Arguments::default(), exe, comm, threads };
        process.arguments = Arguments::from_cmdline(&fs::read(folder.join("cmdline")).ok()?);
        Some(process)
    }

    fn names(&self) -> ProgramNames<'_> {
        ProgramNames { argv0: self.arguments.program(), exe: &self.exe, comm: &self.comm }
    }

    /// Leaves only threads that have not ended; `None` where none is left: a process that was not waited for yet is no
    /// VM. Where its first thread has ended and others go on, what that one's files do not say any more is read anew.
    fn forget_the_dead(&mut self) -> Option<()> {
        let (root, pid) = (self.root, self.pid);
        let lives = |tid: i32| thread_stat(root, pid, tid).ok().flatten().is_some_and(|stat| !stat.is_dead());
        self.threads.retain(|tid, _| lives(*tid));
        let speaker = *self.threads.keys().next()?;
        if !self.threads.contains_key(&pid) {
            let cmdline = fs::read(root.proc.join(format!("{pid}/task/{speaker}/cmdline")));
            self.arguments = Arguments::from_cmdline(&cmdline.unwrap_or_default());
        }
        Some(())
    }

    /// The thread in which QEMU emulates all vCPUs in turn (`-accel tcg,thread=single`, `-icount`).
    fn all_in_one(&self) -> Option<i32> {
        self.threads.iter().find(|(_, comm)| ***comm == *ALL_IN_ONE).map(|(tid, _)| *tid)
    }

    /// A thread that has not ended; the first one, if it can be.
    fn speaker(&self) -> i32 {
        let first = self.threads.keys().next().copied().unwrap_or(self.pid);
        if self.threads.contains_key(&self.pid) { self.pid } else { first }
    }

    /// vCPU index to thread, by the best witness there is.
    fn vcpus(&self, evidence: &VcpuEvidence<'_>, vmm: Vmm, notes: &mut Vec<String>) -> BTreeMap<u32, i32> {
        if let Some(tid) = self.all_in_one() {
            notes.push(
                "QEMU emulates all its vCPUs in one thread, which is shown as vCPU 0: it has one slice, and they cannot have one each; \
                 -accel tcg,thread=multi gives each a thread"
                    .to_owned(),
            );
            return BTreeMap::from([(0, tid)]);
        }
        if !evidence.names.is_empty() {
            return evidence.names.iter().map(|(tid, name)| (name.index, *tid)).collect();
        }
        if let Some(threads) = evidence.in_kernel {
            return threads.clone();
        }
        let guessed = self.vcpus_by_files(evidence.files);
        if guessed.is_empty() {
            notes.push(match vmm {
                Vmm::Qemu => "its threads have no names, so its vCPUs cannot be told: start it with -name NAME,debug-threads=on, \
                              or let root look (debugfs)"
                    .to_owned(),
                _ => "its vCPU threads cannot be told from others: none has run a guest yet, or root must look (debugfs)".to_owned(),
            });
        }
        guessed
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
            let status = Status::read(&self.root.proc.join(format!("{}/task/{tid}/status", self.pid)));
            Some(VcpuThread {
                index: *index,
                tid: *tid,
                name: self.threads.get(tid).map(|name| printable(name)).unwrap_or_default(),
                start_time_ticks: self.stat(*tid)?.start_time_ticks,
                allowed: status.and_then(|status| status.value("Cpus_allowed_list")?.parse().ok()),
                cgroup: cgroup_of(self.root, self.pid, *tid),
            })
        };
        vcpus.iter().filter_map(thread).collect()
    }
}

/// A process's threads; none when it is gone.
fn task_ids(root: &ProcRoot, pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(root.proc.join(format!("{pid}/task"))).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A thread's `status`. The name in it may hold any bytes but a new line.
struct Status(Vec<u8>);

impl Status {
    fn read(path: &Path) -> Option<Self> {
        fs::read(path).ok().map(Self)
    }

    fn value(&self, key: &str) -> Option<&str> {
        std::str::from_utf8(status_field(&self.0, key.as_bytes())?).ok()
    }
}

/// A name's bytes, without the end of the line.
fn name_in(path: &Path) -> Option<Vec<u8>> {
    let mut name = fs::read(path).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(name)
}
