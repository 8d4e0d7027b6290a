//! Fixture trees of every VMM.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// A `/proc` and a `/sys` to be filled.
struct Tree {
    folder: tempfile::TempDir,
    root: ProcRoot,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        fs::create_dir_all(&root.proc).unwrap();
        Self { folder, root }
    }

    fn file(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn process(&self, pid: i32, args: &[&str], cgroup: &str, threads: &[(i32, &str)]) {
        self.file(&format!("proc/{pid}/cmdline"), args.join("\0") + "\0");
        let comm: String = Path::new(args[0]).file_name().unwrap().to_str().unwrap().chars().take(15).collect();
        self.file(&format!("proc/{pid}/comm"), format!("{comm}\n"));
        self.thread(pid, pid, &comm, cgroup, 0);
        for (tid, name) in threads {
            self.thread(pid, *tid, name, cgroup, 0);
        }
    }

    fn thread(&self, pid: i32, tid: i32, name: impl AsRef<[u8]>, cgroup: &str, guest_ticks: u64) {
        self.thread_in(pid, tid, name, cgroup, guest_ticks, 'S');
    }

    fn thread_in(&self, pid: i32, tid: i32, name: impl AsRef<[u8]>, cgroup: &str, guest_ticks: u64, state: char) {
        let name = name.as_ref();
        let zeros = ["0"; 22].join(" ");
        let stat = format!(
            ") {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 {start} {zeros} {guest_ticks} 0\n",
            start = 1000 + tid,
            zeros = &zeros[..zeros.len() - 4],
        );
        let task = format!("proc/{pid}/task/{tid}");
        self.file(&format!("{task}/comm"), [name, b"\n"].concat());
        self.file(&format!("{task}/stat"), [format!("{tid} (").as_bytes(), name, stat.as_bytes()].concat());
        self.file(&format!("{task}/status"), "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1,3\n");
        self.file(&format!("{task}/cgroup"), format!("0::{cgroup}\n"));
        self.file(&format!("proc/{tid}/status"), format!("Name:\tx\nTgid:\t{pid}\n"));
    }

    fn kvm_file(&self, pid: i32, fd: i32, target: &str) {
        let folder = self.folder.path().join(format!("proc/{pid}/fd"));
        fs::create_dir_all(&folder).unwrap();
        symlink(target, folder.join(fd.to_string())).unwrap();
    }

    fn discover(&self) -> Vec<Vm> {
        discover(&self.root, &PassedOver::default()).unwrap()
    }

    /// The one VM, which must be there.
    #[track_caller]
    fn only(&self) -> Vm {
        let vms = self.discover();
        assert_eq!(vms.len(), 1, "{vms:#?}");
        vms.into_iter().next().unwrap()
    }
}

fn threads(vm: &Vm) -> Vec<(u32, i32)> {
    vm.vcpus.iter().map(|vcpu| (vcpu.index, vcpu.tid)).collect()
}

#[test]
fn every_vmm_by_its_threads_names() {
    use Accelerator::{Kvm, Tcg};
    type Case<'a> = (&'a [&'a str], &'a str, [&'a str; 2], Vmm, &'a str, Accelerator);
    let cases: [Case<'_>; 8] = [
        (
            &["/usr/bin/qemu-system-x86_64", "-name", "guest=web"],
            "/",
            ["CPU 0/KVM", "CPU 1/KVM"],
            Vmm::Qemu,
            "web",
            Kvm,
        ),
        (&["qemu-system-x86_64", "-name", "a,debug-threads=on"], "/", ["CPU 0/TCG", "CPU 1/TCG"], Vmm::Qemu, "a", Tcg),
        (&["/usr/bin/qemu-system-x86_64"], "/", ["CPU 0/KVM", "CPU 1/KVM"], Vmm::Qemu, "qemu-50", Kvm),
        (&["./firecracker", "--id", "vm-7"], "/", ["fc_vcpu 0", "fc_vcpu 1"], Vmm::Firecracker, "vm-7", Kvm),
        (&["/firecracker"], "/firecracker/x", ["fc_vcpu 0", "fc_vcpu 1"], Vmm::Firecracker, "firecracker-50", Kvm),
        (
            &["cloud-hypervisor", "--api-socket", "/run/db.sock"],
            "/",
            ["vcpu0", "vcpu1"],
            Vmm::CloudHypervisor,
            "cloud-hypervisor-50",
            Kvm,
        ),
        (&["crosvm", "run"], "/", ["crosvm_vcpu0", "crosvm_vcpu1"], Vmm::Crosvm, "crosvm-50", Kvm),
        (&["lkvm", "run", "--name", "tiny"], "/", ["kvm-vcpu-0", "kvm-vcpu-1"], Vmm::Kvmtool, "tiny", Kvm),
    ];
    for (args, cgroup, names, vmm, name, accelerator) in cases {
        let tree = Tree::new();
        // Not in order, and other threads among them.
        tree.process(50, args, cgroup, &[(53, names[0]), (52, names[1]), (54, "worker")]);
        tree.process(60, &["/bin/bash"], "/", &[(61, "vcpu0"), (62, "CPU 0/HVF")]);
        let vm = tree.only();
        assert_eq!((vm.vmm, vm.name.as_str(), vm.pid, vm.accelerator), (vmm, name, 50, Some(accelerator)), "{args:?}");
        assert_eq!(threads(&vm), [(0, 53), (1, 52)], "{args:?}");
        let vcpu = &vm.vcpus[0];
        assert_eq!((vcpu.name.as_str(), vcpu.start_time_ticks), (names[0], 1053));
        assert_eq!(vcpu.allowed.as_ref().unwrap().to_string(), "0-1,3");
        assert_eq!(vcpu.cgroup.as_ref().unwrap().path, cgroup);
        assert!(vm.notes.is_empty(), "{:?}", vm.notes);
    }
}

#[test]
fn a_thread_called_vcpu_is_one_where_its_process_uses_kvm() {
    let tree = Tree::new();
    tree.process(50, &["my-hypervisor"], "/", &[(51, "vcpu0")]);
    assert_eq!(tree.discover(), []);
    tree.kvm_file(50, 9, "anon_inode:kvm-vcpu:0");
    assert_eq!(threads(&tree.only()), [(0, 51)]);
}

#[test]
fn an_unnamed_user_of_kvm_by_its_files() {
    let tree = Tree::new();
    tree.process(70, &["./tiny-vmm"], "/", &[(71, "tiny-vmm"), (72, "tiny-vmm"), (73, "tiny-vmm")]);
    for (fd, target) in
        [(4, "anon_inode:kvm-vm"), (5, "anon_inode:kvm-vcpu:0"), (6, "anon_inode:kvm-vcpu:1"), (7, "/dev/kvm")]
    {
        tree.kvm_file(70, fd, target);
    }
    // No thread is known to have run a guest.
    let vm = tree.only();
    assert_eq!((vm.vmm, vm.name.as_str(), vm.vcpus.len()), (Vmm::Kvm, "kvm-70", 0));
    assert_eq!(vm.notes.len(), 1, "{:?}", vm.notes);
    // One waits in KVM_RUN of vCPU 1, another runs and has guest time.
    tree.file("proc/70/task/71/syscall", "16 0x6 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n");
    tree.file("proc/70/task/72/syscall", "running\n");
    tree.thread(70, 72, "tiny-vmm", "/", 17);
    assert_eq!(threads(&tree.only()), [(0, 72), (1, 71)]);
    // The kernel's own word wins.
    tree.file("sys/kernel/debug/kvm/70-4/vcpu0/pid", "73\n");
    tree.file("sys/kernel/debug/kvm/70-4/vcpu1/pid", "72\n");
    tree.file("sys/kernel/debug/kvm/exits", "1\n");
    assert_eq!(threads(&tree.only()), [(0, 73), (1, 72)]);
}

#[test]
fn a_qemu_without_thread_names_says_what_would_help() {
    let tree = Tree::new();
    tree.process(80, &["qemu-system-x86_64", "-name", "old"], "/", &[(81, "qemu-system-x86")]);
    let vm = tree.only();
    assert_eq!((vm.vmm, vm.name.as_str(), vm.vcpus.len()), (Vmm::Qemu, "old", 0));
    assert!(vm.notes[0].contains("-name NAME,debug-threads=on") && vm.notes[0].contains("debugfs"), "{:?}", vm.notes);
}

#[test]
fn vcpus_that_qemu_emulates_in_one_thread_are_called_that() {
    let tree = Tree::new();
    let all = (82, "ALL CPUs/TCG");
    tree.process(80, &["qemu-system-aarch64", "-accel", "tcg,thread=single"], "/", &[(81, "call_rcu"), all]);
    let vm = tree.only();
    assert_eq!((threads(&vm), vm.vmm, vm.accelerator), (vec![(0, 82)], Vmm::Qemu, Some(Accelerator::Tcg)));
    assert!(vm.notes.len() == 1 && vm.notes[0].contains("in one thread"), "{vm:?}");
    // Under a name that nobody knows.
    fs::remove_dir_all(tree.folder.path().join("proc/80")).unwrap();
    tree.process(80, &["emulator"], "/", &[all]);
    assert_eq!((threads(&tree.only()), tree.only().vmm), (vec![(0, 82)], Vmm::Qemu));
}

#[test]
fn damaged_trees_are_no_error() {
    let tree = Tree::new();
    tree.process(50, &["qemu-system-x86_64"], "/", &[(51, "CPU 0/KVM"), (52, "CPU 1/KVM")]);
    tree.file("proc/50/task/52/stat", "garbage");
    tree.file("proc/50/task/51/status", "\u{0}\u{1}");
    tree.file("proc/91/cmdline", "");
    tree.file("proc/not-a-pid/cmdline", "x");
    let vm = tree.only();
    assert_eq!(threads(&vm), [(0, 51)]);
    assert_eq!(vm.vcpus[0].allowed, None);
}

#[test]
fn who_is_meant() {
    let tree = Tree::new();
    tree.process(50, &["qemu-system-x86_64", "-name", "web"], "/", &[(51, "CPU 0/KVM")]);
    tree.process(55, &["qemu-system-x86_64", "-name", "web"], "/", &[(56, "CPU 0/KVM")]);
    tree.process(60, &["/bin/bash"], "/", &[]);
    let vms = tree.discover();
    assert_eq!(vms.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["web#50", "web#55"]);
    let pids = |wanted: &str| select(&tree.root, &vms, wanted).map(|vm| vm.pid);
    for (wanted, pid) in [("web#50", 50), ("web#55", 55), ("55", 55), ("51", 50), ("56", 55)] {
        assert_eq!(pids(wanted), Ok(pid), "{wanted}");
    }
    tree.thread_in(61, 61, "qemu-system-x86", "/", 0, 'Z');
    tree.file("proc/61/comm", "qemu-system-x86\n");
    for (wanted, words) in [
        ("web", ["'web' means 2 VMs", "web#50, web#55"]),
        ("db", ["no VM is called 'db'", "web#50 (pid 50)"]),
        ("60", ["(bash)", "no VM"]),
        ("61", ["(qemu-system-x86)", "has ended"]),
        ("62", ["no process 62", "web"]),
    ] {
        let said = pids(wanted).unwrap_err().to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}

#[test]
fn the_running_machine_can_be_looked_at() {
    let vms = discover(&ProcRoot::default(), &PassedOver::default()).unwrap();
    assert!(vms.iter().all(|vm| vm.pid > 0 && vm.start_time_ticks > 0), "{vms:?}");
}

#[test]
fn a_process_that_was_no_vm_is_passed_over_for_a_while_unless_kvm_names_it() {
    let tree = Tree::new();
    tree.process(7, &["/opt/runner"], "/", &[]);
    tree.process(8, &["/opt/runner"], "/", &[]);
    let passed_over = PassedOver::default();
    let begun = Instant::now();
    let found = |after_ms: u64| -> Vec<i32> {
        let now = begun + Duration::from_millis(after_ms);
        let vms = vms_at(&tree.root, &passed_over, now).unwrap();
        vms.iter().map(|vm| vm.pid).collect()
    };
    assert!(found(0).is_empty());
    // Both make vCPUs.
    tree.thread(7, 71, "fc_vcpu 0", "/", 0);
    tree.thread(8, 81, "fc_vcpu 0", "/", 0);
    tree.file("sys/kernel/debug/kvm/8-10/vcpu0/pid", "81\n");
    assert_eq!(found(900), [8]);
    assert_eq!(found(1_000), [7, 8]);
    assert_eq!(found(1_001), [7, 8]);
    // Another observer knows nothing of it.
    assert_eq!(tree.discover().len(), 2);
}

#[test]
fn names_tell_vms_apart_whatever_they_are_called() {
    let tree = Tree::new();
    let qemu = |pid: i32, name: &str| {
        tree.process(pid, &["qemu-system-x86_64", "-name", name], "/", &[(pid + 1, "CPU 0/KVM")]);
    };
    // Two of one name; one that is called as one of those is shown; one that is called as another's process id.
    qemu(50, "web");
    qemu(60, "web");
    qemu(70, "web#60");
    qemu(80, "50");
    let vms = tree.discover();
    let names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["web#50", "web#60#60", "web#60#70", "50#80"]);
    let meant = |wanted: &str| match select(&tree.root, &vms, wanted) {
        Ok(vm) => vec![vm.pid],
        Err(SelectError::Ambiguous { vms, .. }) => vms.iter().map(|vm| vm.pid).collect(),
        Err(other) => panic!("{other}"),
    };
    for (wanted, pids) in [
        ("web", &[50, 60][..]),
        ("50", &[50, 80]),
        ("50#80", &[80]),
        ("web#50", &[50]),
        ("web#60", &[60, 70]),
        ("web#60#70", &[70]),
        ("60", &[60]),
    ] {
        assert_eq!(meant(wanted), pids, "{wanted}");
    }
    assert!(vms.iter().all(|vm| meant(&vm.name) == [vm.pid]), "each name that is shown means one");
    let said = select(&tree.root, &vms, "50").unwrap_err().to_string();
    assert!(said.contains("web#50") && said.contains("50#80"), "{said}");
}

#[test]
fn names_are_bytes_and_are_shown_without_control_characters() {
    let tree = Tree::new();
    // Cut within a letter: nobody's name is UTF-8, and the VM is there with both its vCPUs.
    tree.process(50, &["fakevm", "-name", "guest=bureau,process=x"], "/", &[(51, "CPU 0/KVM")]);
    tree.file("proc/50/comm", b"qemu-bureau-fr\xc3\n");
    tree.thread(50, 50, b"qemu-bureau-fr\xc3", "/", 0);
    tree.thread(50, 52, b"CPU 1/KVM", "/", 0);
    tree.thread(50, 53, b"\xff\xfe) R\n(", "/", 0);
    let vm = tree.only();
    assert_eq!((vm.name.as_str(), threads(&vm)), ("bureau", vec![(0, 51), (1, 52)]));
    // The VM's name itself, and what stands beside it.
    tree.file("proc/50/cmdline", b"qemu-system-x86_64\0-name\0web\x1b[2J\nfake: qemu\xe2\x80\xae\xff\0");
    tree.file("proc/50/task/50/cgroup", b"0::/a/\xff\x1b\n");
    let vm = tree.only();
    assert_eq!(vm.name, r"web\u{1b}[2J\nfake: qemu\u{202e}\xff");
    assert_eq!(vm.cgroup.unwrap().to_string(), r"/a/\xff\u{1b}");
    let vms = tree.discover();
    for wanted in ["web\u{1b}[2J\nfake: qemu\u{202e}\\xff", r"web\u{1b}[2J\nfake: qemu\u{202e}\xff", "51"] {
        assert_eq!(select(&tree.root, &vms, wanted).map(|vm| vm.pid), Ok(50), "{wanted:?}");
    }
    let said = select(&tree.root, &vms, "\u{1b}c").unwrap_err().to_string();
    assert!(!said.contains(char::is_control), "{said:?}");
    // A thread's name, where KVM says that it is a vCPU.
    tree.thread(50, 51, b"a\x07b\xff", "/", 0);
    tree.thread(50, 52, b"c", "/", 0);
    tree.file("sys/kernel/debug/kvm/50-4/vcpu0/pid", "51\n");
    assert_eq!(tree.only().vcpus[0].name, r"a\u{7}b\xff");
    // Process 60 is no VM, and its name is not to be shown as it is either.
    tree.process(60, &["x"], "/", &[]);
    tree.file("proc/60/comm", b"\x1b]0;x\x07\n");
    let said = select(&tree.root, &vms, "60").unwrap_err().to_string();
    assert!(said.contains(r"(\u{1b}]0;x\u{7})"), "{said:?}");
}

#[test]
fn a_process_that_has_ended_is_no_vm_and_one_whose_first_thread_has_is() {
    let tree = Tree::new();
    for (pid, state) in [(50, 'Z'), (60, 'X')] {
        tree.process(pid, &["qemu-system-x86_64", "-name", "gone"], "/", &[]);
        tree.thread_in(pid, pid, "qemu-system-x86", "/", 0, state);
        tree.file(&format!("proc/{pid}/cmdline"), "");
    }
    // Being killed: nothing of it is alive, but its threads are still listed, and its command line, too.
    tree.process(70, &["qemu-system-x86_64", "-name", "going"], "/", &[]);
    tree.thread_in(70, 70, "qemu-system-x86", "/", 0, 'Z');
    tree.thread_in(70, 71, "CPU 0/KVM", "/", 0, 'X');
    // Gone between two looks.
    tree.file("proc/80/cmdline", "qemu-system-x86_64\0");
    assert_eq!(tree.discover(), []);
    // Stopped, traced, or without the thread that began it, it is one.
    for (pid, state) in [(90, 'T'), (100, 't'), (110, 'Z'), (120, 'D')] {
        tree.process(pid, &["qemu-system-x86_64", "-name", &format!("vm{pid}")], "/", &[(pid + 1, "CPU 0/KVM")]);
        tree.thread_in(pid, pid, "qemu-system-x86", "/", 0, state);
    }
    tree.file("proc/110/cmdline", "");
    tree.file("proc/110/task/111/cmdline", "qemu-system-x86_64\0-name\0vm110\0");
    // A vCPU that was unplugged.
    tree.thread_in(90, 92, "CPU 1/KVM", "/", 0, 'X');
    let found: Vec<_> = tree.discover().iter().map(|vm| (vm.name.clone(), threads(vm))).collect();
    let expected = [90, 100, 110, 120].map(|pid| (format!("vm{pid}"), vec![(0, pid + 1)]));
    assert_eq!(found, expected);
}

#[test]
fn a_script_that_has_the_name_of_a_vmm_is_none() {
    let tree = Tree::new();
    tree.process(50, &["/bin/sh", "/usr/local/bin/qemu-kvm", "-m", "1"], "/", &[]);
    tree.file("proc/50/comm", "qemu-kvm\n");
    // A thread of the kernel.
    tree.process(60, &["kvm"], "/", &[]);
    tree.file("proc/60/cmdline", "");
    assert_eq!(tree.discover(), []);
    // After an upgrade only the kernel knows what runs.
    tree.process(70, &["web-server-vm"], "/", &[]);
    symlink("/usr/libexec/qemu-kvm (deleted)", tree.folder.path().join("proc/70/exe")).unwrap();
    assert_eq!(tree.only().name, "qemu-70");
}
