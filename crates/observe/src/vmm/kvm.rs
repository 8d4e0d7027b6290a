//! KVM's own traces of its users: debugfs, files, and what a thread waits in.

use gleaner_sys::ProcRoot;
use std::collections::BTreeMap;
use std::fs;

/// `ioctl(fd, KVM_RUN)`.
const KVM_RUN: u64 = 0xae80;
/// On x86-64.
const SYS_IOCTL: i64 = 16;

/// By process: vCPU index to thread, as `debugfs/kvm/PID-FD/vcpuN/pid` has it (root only).
pub(super) fn debugfs_vcpus(root: &ProcRoot) -> BTreeMap<i32, BTreeMap<u32, i32>> {
    let mut found: BTreeMap<i32, BTreeMap<u32, i32>> = BTreeMap::new();
    for vm in names_in(&root.sys.join("kernel/debug/kvm")) {
        let Some(pid) = vm.split_once('-').and_then(|(pid, _)| pid.parse().ok()) else { continue };
        let vcpus = found.entry(pid).or_default();
        for entry in names_in(&root.sys.join("kernel/debug/kvm").join(&vm)) {
            let Some(index) = entry.strip_prefix("vcpu").and_then(|index| index.parse().ok()) else { continue };
            let path = root.sys.join("kernel/debug/kvm").join(&vm).join(&entry).join("pid");
            let tid = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
            // 0: it never ran.
            if let Some(tid) = tid.filter(|tid| *tid > 0) {
                vcpus.insert(index, tid);
            }
        }
    }
    found
}

fn names_in(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The vCPUs that a process has open: index by file descriptor. Empty, too, where this user may not look.
pub(super) fn kvm_vcpu_files(root: &ProcRoot, pid: i32) -> BTreeMap<i32, u32> {
    let files = fs::read_dir(root.proc.join(format!("{pid}/fd"))).into_iter().flatten().flatten();
    let vcpu = |file: fs::DirEntry| {
        let target = fs::read_link(file.path()).ok()?;
        let index = target.to_str()?.strip_prefix("anon_inode:kvm-vcpu:")?.parse().ok()?;
        Some((file.file_name().to_str()?.parse().ok()?, index))
    };
    files.filter_map(vcpu).collect()
}

/// The vCPU file that a thread waits in, by `/proc/PID/task/TID/syscall`; `None` while it runs.
pub(super) fn waits_in_kvm_run(root: &ProcRoot, pid: i32, tid: i32) -> Option<i32> {
    let text = fs::read_to_string(root.proc.join(format!("{pid}/task/{tid}/syscall"))).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut argument = || words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (fd, request) = (argument()?, argument()?);
    (number == SYS_IOCTL && request == KVM_RUN).then(|| i32::try_from(fd).ok()).flatten()
}
