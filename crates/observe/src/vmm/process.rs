//! One process: is it a VM, and which of its threads are vCPUs?

use super::answers::Known;
use super::cgroup::{cgroup_of, jailer_name, libvirt_name};
use super::command_line::{Arguments, QemuOptions};
use super::kvm::{kvm_vcpu_files, waits_in_kvm_run};
use super::monitors::monitors;
use super::name::{ProgramNames, config_files, name_in_args, qemu_accelerator};
use super::place::Place;
use super::qmp::QmpCpu;
use super::threads::{ThreadStat, VcpuName, thread_stat, vcpu_name};
use super::vm::{Accelerator, VcpuThread, Vm, Vmm};
use crate::ObserveError;
use gleaner_model::printable;
use gleaner_sys::{ProcRoot, SysError, status_field};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
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

/// The process whose threads a monitor means: the one that listens, or the one that has them, if their numbers are this
/// namespace's.
pub(super) fn process_of_monitor(root: &ProcRoot, cpus: &[QmpCpu], peer: Option<i32>) -> Option<i32> {
    let first = cpus.first()?.thread_id;
    let listens = peer.filter(|pid| !own_threads(root, *pid, &task_ids(root, *pid), cpus).is_empty());
    listens.or_else(|| {
        let status = Status::read(&root.proc.join(format!("{first}/status")))?;
        (status.namespaces() <= 1).then(|| status.number("Tgid"))?
    })
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

/// The VM that a process is; `None` when it is none, or gone.
pub(super) fn vm_of(root: &ProcRoot, pid: i32, known: &Known<'_>) -> Option<Vm> {
    let mut process = Process::read(root, pid)?;
    let mut names: BTreeMap<i32, VcpuName> =
        process.threads.iter().filter_map(|(tid, comm)| Some((*tid, vcpu_name(comm)?))).collect();
    let files = kvm_vcpu_files(root, pid);
    let program = process.names().vmm();
    names.retain(|_, name| !name.ambiguous || !files.is_empty() || program == Some(name.vmm));
    // Who can neither see the namespace that the numbers are of nor the threads has them from elsewhere.
    let in_kernel = known.debugfs.filter(|vcpus| vcpus.values().any(|tid| process.threads.contains_key(tid)));
    // QEMU is a VM even where nothing tells its vCPUs; of the other programs' processes, only one has them.
    let by_name = program == Some(Vmm::Qemu) && !process.arguments.is_empty() && !process.names().is_script();
    let unnamed = names.is_empty() && process.all_in_one().is_none();
    if unnamed && files.is_empty() && known.qmp.is_none() && in_kernel.is_none() && !by_name {
        return None;
    }
    process.forget_the_dead()?;
    names.retain(|tid, _| process.threads.contains_key(tid));
    let first = names.values().next().copied();
    let all_in_one = process.all_in_one();
    let by_thread = first.map(|name| name.vmm).or(all_in_one.map(|_| Vmm::Qemu));
    let vmm = program.or(by_thread).unwrap_or(Vmm::Kvm);
    let options = process.options(vmm);
    let mut notes = Vec::new();
    let threads =
        process.vcpus(&VcpuEvidence { known, in_kernel, names: &names, files: &files }, vmm, &options, &mut notes);
    let cgroup = cgroup_of(root, pid, process.speaker());
    let path = cgroup.as_ref().map_or(OsStr::new(""), |cgroup| &cgroup.path);
    let called = name_in_args(vmm, &options)
        .or_else(|| libvirt_name(path))
        .or_else(|| (vmm == Vmm::Firecracker).then(|| jailer_name(path)).flatten())
        .map_or_else(|| format!("{}-{pid}", vmm.as_str()), |name| printable(&name));
    let accelerator = first
        .map(|name| name.accelerator)
        .or(all_in_one.map(|_| Accelerator::Tcg))
        .or((!files.is_empty()).then_some(Accelerator::Kvm))
        .or_else(|| (vmm == Vmm::Qemu).then(|| qemu_accelerator(&options)).flatten());
    Some(Vm {
        name: called.clone(),
        called,
        pid,
        start_time_ticks: process.stat(pid)?.start_time_ticks,
        vmm,
        accelerator,
        vcpus: process.threads_of(&threads),
        cgroup,
        notes,
    })
}

/// What says which threads are vCPUs.
struct VcpuEvidence<'a> {
    known: &'a Known<'a>,
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

    /// Its command line, and the files of options that it names.
    fn options(&self, vmm: Vmm) -> QemuOptions<'_> {
        let mut options = QemuOptions::new(&self.arguments);
        if vmm == Vmm::Qemu {
            let place = Place::of(self.root, self.pid);
            for file in config_files(&self.arguments) {
                if let Some(text) = place.read(Path::new(OsStr::from_bytes(file))) {
                    options.read_config(&text);
                }
            }
        }
        options
    }

    /// vCPU index to thread, by the best witness there is.
    fn vcpus(
        &self,
        evidence: &VcpuEvidence<'_>,
        vmm: Vmm,
        options: &QemuOptions<'_>,
        notes: &mut Vec<String>,
    ) -> BTreeMap<u32, i32> {
        let tids = || self.threads.keys().copied().collect::<Vec<i32>>();
        if let Some(tid) = self.all_in_one() {
            notes.push(
                "QEMU emulates all its vCPUs in one thread, which is shown as vCPU 0: it has one slice, and they cannot have one each; \
                 -accel tcg,thread=multi gives each a thread"
                    .to_owned(),
            );
            return BTreeMap::from([(0, tid)]);
        }
        if let Some(cpus) = evidence.known.qmp {
            return own_threads(self.root, self.pid, &tids(), cpus);
        }
        if !evidence.names.is_empty() {
            return evidence.names.iter().map(|(tid, name)| (name.index, *tid)).collect();
        }
        if let Some(threads) = evidence.in_kernel {
            return threads.clone();
        }
        if vmm == Vmm::Qemu {
            let process = self.stat(self.pid).map(|stat| (self.pid, stat.start_time_ticks));
            let place = Place::of(self.root, self.pid);
            let mut said = Vec::new();
            let monitors: Vec<_> = monitors(options).into_iter().filter_map(|monitor| place.address(monitor)).collect();
            for (at, monitor) in monitors.iter().enumerate() {
                let left = monitors.len() - at;
                let Some(answer) = evidence.known.ask(monitor, process, (left, monitors.len())) else {
                    return BTreeMap::new();
                };
                match answer {
                    Ok(answer) => {
                        let own = own_threads(self.root, self.pid, &tids(), &answer.cpus);
                        if !own.is_empty() {
                            return own;
                        }
                        said.push(format!("the QMP socket {monitor} names no thread of this process"));
                    }
                    Err(error) => said.push(error.to_string()),
                }
            }
            notes.extend(said);
        }
        let guessed = self.vcpus_by_files(evidence.files);
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

/// The vCPUs' threads that a monitor names, among those of its process. In a container they have other numbers there
/// than here.
fn own_threads(root: &ProcRoot, pid: i32, tids: &[i32], cpus: &[QmpCpu]) -> BTreeMap<u32, i32> {
    let status = |tid: i32| Status::read(&root.proc.join(format!("{pid}/task/{tid}/status")));
    let foreign = tids.first().and_then(|tid| status(*tid)).is_some_and(|status| status.namespaces() > 1);
    let by_number: BTreeMap<i32, i32> = if foreign {
        tids.iter().filter_map(|tid| Some((status(*tid)?.innermost()?, *tid))).collect()
    } else {
        tids.iter().map(|tid| (*tid, *tid)).collect()
    };
    cpus.iter().filter_map(|cpu| Some((cpu.index, *by_number.get(&cpu.thread_id)?))).collect()
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

    fn number(&self, key: &str) -> Option<i32> {
        self.value(key)?.parse().ok()
    }

    /// In how many PID namespaces, from this one inwards, the thread has a number.
    fn namespaces(&self) -> usize {
        self.value("NSpid").map_or(0, |numbers| numbers.split_ascii_whitespace().count())
    }

    /// Its number in its own.
    fn innermost(&self) -> Option<i32> {
        self.value("NSpid")?.split_ascii_whitespace().last()?.parse().ok()
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
