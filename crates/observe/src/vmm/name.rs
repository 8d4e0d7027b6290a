//! What runs a VM and what the VM is called, by program names and command lines.

use super::command_line::Arguments;
use super::vm::{Accelerator, Vmm};

/// Bytes of a process's name: the kernel cuts it there, also within a letter.
const COMM_BYTES: usize = 15;

/// The names that a process goes by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProgramNames<'a> {
    /// Its first argument.
    pub argv0: &'a [u8],
    /// Its program's file, as `/proc/PID/exe` has it; empty where this user may not see it.
    pub exe: &'a [u8],
    /// Its name, cut after 15 bytes.
    pub comm: &'a [u8],
}

impl ProgramNames<'_> {
    pub fn vmm(&self) -> Option<Vmm> {
        let by_file = [self.argv0, self.exe].into_iter().find_map(|path| vmm_of_file(base(path)));
        by_file.or_else(|| vmm_of_file(self.comm)).or_else(|| vmm_of_cut_name(self.comm))
    }

    /// Whether it only runs a script, which has the VMM's name and starts it.
    pub fn is_script(&self) -> bool {
        const SHELLS: [&[u8]; 10] =
            [b"sh", b"bash", b"dash", b"ash", b"zsh", b"ksh", b"mksh", b"busybox", b"perl", b"env"];
        let runs = |path| {
            let name = base(path);
            SHELLS.contains(&name) || name.starts_with(b"python") || name.starts_with(b"ruby")
        };
        vmm_of_file(base(self.argv0)).is_none() && (runs(self.argv0) || runs(self.exe))
    }
}

/// A path's last part. A program that was replaced while it runs is ` (deleted)`, and NixOS wraps `.NAME-wrapped`.
fn base(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// By a program's file. Distributions and container runtimes add to the names: `qemu-system-x86_64-headless`,
/// `qemu-lite-system-x86_64`, `firecracker-v1.7.0-x86_64`, `cloud-hypervisor-static`.
fn vmm_of_file(name: &[u8]) -> Option<Vmm> {
    let mut name = name;
    while let Some(inner) = name.strip_prefix(b".") {
        name = inner;
    }
    let starts = |prefix: &[u8]| name.starts_with(prefix);
    let holds = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    let is_qemu = (starts(b"qemu-") || starts(b"nemu-")) && holds(b"-system-");
    if is_qemu || starts(b"qemu-kvm") || matches!(name, b"qemu" | b"kvm" | b"kvm-spice" | b"kvm-wrapped") {
        return Some(Vmm::Qemu);
    }
    if starts(b"firecracker-c") {
        // firecracker-containerd, firecracker-ctr.
        return None;
    }
    let known: [(&[u8], Vmm); 5] = [
        (b"stratovirt", Vmm::StratoVirt),
        (b"firecracker", Vmm::Firecracker),
        // A process's name is cut.
        (b"cloud-hyperviso", Vmm::CloudHypervisor),
        (b"crosvm", Vmm::Crosvm),
        (b"lkvm", Vmm::Kvmtool),
    ];
    known.into_iter().find_map(|(prefix, vmm)| starts(prefix).then_some(vmm))
}

/// `qemu-lite-syste`, `qemu-virtiofs-s`.
fn vmm_of_cut_name(comm: &[u8]) -> Option<Vmm> {
    let is_cut = comm.len() == COMM_BYTES && comm.starts_with(b"qemu-");
    let begins = (2..b"-system-".len()).rev().any(|kept| kept > 2 && comm.ends_with(&b"-system-"[..kept]));
    (is_cut && (begins || comm == b"qemu-virtiofs-s")).then_some(Vmm::Qemu)
}

/// The name that the command line gives; bytes.
pub(super) fn given_name(vmm: Vmm, arguments: &Arguments) -> Option<Vec<u8>> {
    let value = |names: &[&str]| arguments.value(names).map(<[u8]>::to_vec);
    let name = match vmm {
        Vmm::Qemu | Vmm::StratoVirt => arguments.property("name", "guest", "guest"),
        // Dragonball runs in Kata's shim, which is told the sandbox.
        Vmm::Firecracker | Vmm::Dragonball => value(&["id"]),
        Vmm::Crosvm => value(&["name"]),
        Vmm::Kvmtool => value(&["name", "n"]),
        Vmm::CloudHypervisor | Vmm::Kvm => None,
    };
    name.filter(|name| !name.is_empty())
}

/// What QEMU's options ask to run the guest with, where they say so.
pub(super) fn qemu_accelerator(arguments: &Arguments) -> Option<Accelerator> {
    if arguments.has("enable-kvm") {
        return Some(Accelerator::Kvm);
    }
    let asked = [("accel", "accel"), ("machine", "type"), ("M", "type")];
    // More than one may be named (kvm:tcg): which it became is not to be seen here.
    match asked.into_iter().find_map(|(option, implied)| arguments.property(option, implied, "accel"))?.as_slice() {
        b"kvm" => Some(Accelerator::Kvm),
        b"tcg" => Some(Accelerator::Tcg),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Arguments {
        Arguments::from_cmdline(line.replace(' ', "\0").as_bytes())
    }

    #[test]
    fn names_in_command_lines() {
        for (vmm, line, name) in [
            (Vmm::Qemu, "qemu -name guest=web,debug-threads=on -m 1", Some("web")),
            (Vmm::Qemu, "qemu -name gleaner-guest,debug-threads=on", Some("gleaner-guest")),
            (Vmm::Qemu, "qemu -name debug-threads=on,guest=a,,b", Some("a,b")),
            (Vmm::Qemu, "qemu -name a,,b,process=c", Some("a,b")),
            (Vmm::Qemu, "qemu --name process=y,guest=x", Some("x")),
            (Vmm::Qemu, "qemu -name first -name debug-threads=on -name last", Some("last")),
            (Vmm::Qemu, "qemu -name guest=a=b", Some("a=b")),
            (Vmm::Qemu, "qemu -m 1", None),
            (Vmm::Qemu, "qemu -name", None),
            (Vmm::Qemu, "qemu -name debug-threads=on -uuid 1b4e28ba-2fa1", None),
            (Vmm::Qemu, "kvm -id 100 -name vm100,debug-threads=on -uuid x", Some("vm100")),
            (Vmm::StratoVirt, "stratovirt -name sandbox-1", Some("sandbox-1")),
            (Vmm::Firecracker, "firecracker --id vm-7 --api-sock x", Some("vm-7")),
            (Vmm::Firecracker, "firecracker --id=vm-8", Some("vm-8")),
            (Vmm::CloudHypervisor, "cloud-hypervisor --api-socket path=/run/db.sock", None),
            (Vmm::Crosvm, "crosvm run --name y -s /run/x.sock", Some("y")),
            (Vmm::Kvmtool, "lkvm run --name tiny", Some("tiny")),
            (Vmm::Dragonball, "/opt/kata/bin/containerd-shim-kata-v2 -namespace k8s.io -id 0a1b", Some("0a1b")),
        ] {
            let name = name.map(|name| name.as_bytes().to_vec());
            assert_eq!(given_name(vmm, &args(line)), name, "{line}");
        }
    }

    #[test]
    fn accelerators_in_command_lines() {
        for (line, accelerator) in [
            ("qemu -accel tcg,thread=multi -m 1", Some(Accelerator::Tcg)),
            ("qemu -enable-kvm", Some(Accelerator::Kvm)),
            ("qemu --accel kvm", Some(Accelerator::Kvm)),
            ("qemu -machine q35,accel=kvm", Some(Accelerator::Kvm)),
            ("qemu -M pc,accel=kvm:tcg", None),
            ("qemu -m 1", None),
        ] {
            assert_eq!(qemu_accelerator(&args(line)), accelerator, "{line}");
        }
    }

    #[test]
    fn programs() {
        for (argv0, comm, vmm) in [
            ("/usr/bin/qemu-system-x86_64", "qemu-system-x86", Some(Vmm::Qemu)),
            ("/usr/libexec/qemu-kvm", "qemu-kvm", Some(Vmm::Qemu)),
            ("./firecracker", "firecracker", Some(Vmm::Firecracker)),
            ("x", "cloud-hyperviso", Some(Vmm::CloudHypervisor)),
            ("/usr/bin/bash", "bash", None),
            ("/usr/bin/kvm", "kvm", Some(Vmm::Qemu)),
            ("qemu", "qemu", Some(Vmm::Qemu)),
            ("/usr/bin/kvm-spice", "kvm-spice", Some(Vmm::Qemu)),
            ("/usr/bin/qemu-system-x86_64-headless", "qemu-system-x86", Some(Vmm::Qemu)),
            ("/nix/store/x/bin/.qemu-system-x86_64-wrapped", ".qemu-system-x8", Some(Vmm::Qemu)),
            ("/nix/store/x/bin/..qemu-kvm-wrapped-wrapped", "x", Some(Vmm::Qemu)),
            ("/opt/kata/bin/qemu-lite-system-x86_64", "x", Some(Vmm::Qemu)),
            ("/opt/kata/bin/qemu-system-x86_64-snp-experimental", "x", Some(Vmm::Qemu)),
            ("x", ".qemu-system-x8", Some(Vmm::Qemu)),
            ("x", "qemu-lite-syste", Some(Vmm::Qemu)),
            ("x", "qemu-vanilla-sy", Some(Vmm::Qemu)),
            ("x", "qemu-virtiofs-s", Some(Vmm::Qemu)),
            ("/opt/kata/bin/cloud-hypervisor-static", "x", Some(Vmm::CloudHypervisor)),
            ("firecracker-v1.7.0-x86_64", "x", Some(Vmm::Firecracker)),
            ("/usr/bin/stratovirt", "x", Some(Vmm::StratoVirt)),
            // Not VMs.
            ("/usr/bin/qemu-img", "qemu-img", None),
            ("/usr/bin/qemu-nbd", "qemu-nbd", None),
            ("/usr/bin/qemu-ga", "qemu-ga", None),
            ("/usr/bin/qemu-storage-daemon", "qemu-storage-da", None),
            ("/usr/bin/qemu-mips64el-static", "qemu-mips64el-s", None),
            ("/usr/bin/qemu-x86_64-static", "qemu-x86_64-sta", None),
            ("/usr/bin/firecracker-containerd", "firecracker-con", None),
            ("kvm_stat", "kvm_stat", None),
            ("kvm-ok", "kvm-ok", None),
            ("", "kvm-nx-lpage-re", None),
        ] {
            let names = ProgramNames { argv0: argv0.as_bytes(), comm: comm.as_bytes(), exe: b"" };
            assert_eq!(names.vmm(), vmm, "{argv0} {comm}");
        }
        let of = |argv0: &'static str, exe: &'static str, comm: &'static str| ProgramNames {
            argv0: argv0.as_bytes(),
            exe: exe.as_bytes(),
            comm: comm.as_bytes(),
        };
        // By the kernel's word alone, also after an upgrade.
        let renamed = of("web", "/usr/bin/qemu-system-x86_64 (deleted)", "\u{1b}[2J");
        assert_eq!((renamed.vmm(), renamed.is_script()), (Some(Vmm::Qemu), false));
        let script = of("/bin/sh", "/usr/bin/dash", "qemu-kvm");
        assert_eq!((script.vmm(), script.is_script()), (Some(Vmm::Qemu), true));
        assert!(of("python3.11", "", "qemu-kvm").is_script());
    }
}
