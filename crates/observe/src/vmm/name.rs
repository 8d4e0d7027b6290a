//! What a VM is called, by its command line.

use super::{Accelerator, Vmm};
use std::path::{Path, PathBuf};

/// The VMM that a program is, by its file's name or its process's.
pub(super) fn vmm_of_program(argv0: &str, comm: &str) -> Option<Vmm> {
    let base = Path::new(argv0).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let is = |prefix: &str| base.starts_with(prefix) || comm.starts_with(prefix);
    if is("qemu-system-") || base == "qemu-kvm" || base == "kvm" || comm == "qemu-kvm" {
        return Some(Vmm::Qemu);
    }
    // A process's name is cut after 15 bytes.
    [
        ("firecracker", Vmm::Firecracker),
        ("cloud-hyperviso", Vmm::CloudHypervisor),
        ("crosvm", Vmm::Crosvm),
        ("lkvm", Vmm::Kvmtool),
    ]
    .into_iter()
    .find_map(|(prefix, vmm)| is(prefix).then_some(vmm))
}

/// The name that the command line gives.
pub(super) fn name_in_args(vmm: Vmm, args: &[String]) -> Option<String> {
    let name = match vmm {
        Vmm::Qemu => qemu_name(option(args, &["-name", "--name"])?),
        Vmm::Firecracker => option(args, &["--id"]).map(str::to_owned),
        Vmm::CloudHypervisor => {
            let socket = option(args, &["--api-socket"])?;
            stem(socket.strip_prefix("path=").unwrap_or(socket))
        }
        Vmm::Crosvm => {
            option(args, &["--name"]).map(str::to_owned).or_else(|| stem(option(args, &["-s", "--socket"])?))
        }
        Vmm::Kvmtool => option(args, &["--name", "-n"]).map(str::to_owned),
        Vmm::Kvm => None,
    };
    name.filter(|name| !name.is_empty())
}

/// `NAME,debug-threads=on` or `guest=NAME,...`; a comma in a name is doubled.
fn qemu_name(value: &str) -> Option<String> {
    let properties = split_properties(value);
    let named = properties.iter().find_map(|property| property.strip_prefix("guest="));
    let first = properties.first().filter(|first| !first.contains('=')).map(String::as_str);
    named.or(first).map(str::to_owned)
}

/// What QEMU's command line asks to run the guest with, where it says so.
pub(super) fn qemu_accelerator(args: &[String]) -> Option<Accelerator> {
    if args.iter().any(|arg| arg == "-enable-kvm" || arg == "--enable-kvm") {
        return Some(Accelerator::Kvm);
    }
    let accel = values(args, "-accel").flat_map(split_properties).next();
    let machine = option(args, &["-machine", "-M"]).map(split_properties).unwrap_or_default();
    let in_machine = machine.iter().find_map(|property| property.strip_prefix("accel="));
    // More than one may be named (kvm:tcg): which it became is not to be seen here.
    match accel.as_deref().or(in_machine)? {
        "kvm" => Some(Accelerator::Kvm),
        "tcg" => Some(Accelerator::Tcg),
        _ => None,
    }
}

/// A UNIX socket on which QEMU's command line promises QMP.
pub(super) fn qmp_socket(args: &[String]) -> Option<PathBuf> {
    if let Some(value) = option(args, &["-qmp", "--qmp", "-qmp-pretty"]) {
        let properties = split_properties(value.strip_prefix("unix:")?);
        let path = properties
            .iter()
            .find_map(|property| property.strip_prefix("path="))
            .or(properties.first().map(String::as_str));
        return path.map(PathBuf::from);
    }
    let monitors = values(args, "-mon").map(split_properties);
    let control =
        monitors.into_iter().find(|properties| properties.iter().any(|property| property == "mode=control"))?;
    let id = control.iter().find_map(|property| property.strip_prefix("chardev="))?.to_owned();
    let devices = values(args, "-chardev").map(split_properties);
    let device = devices.into_iter().find(|properties| properties.contains(&format!("id={id}")))?;
    // libvirt hands over a file descriptor, and keeps the monitor to itself.
    device.iter().find_map(|property| property.strip_prefix("path=")).map(PathBuf::from)
}

fn split_properties(value: &str) -> Vec<String> {
    let mut properties = vec![String::new()];
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != ',' {
            properties.last_mut().expect("never empty").push(letter);
        } else if letters.next_if_eq(&',').is_some() {
            properties.last_mut().expect("never empty").push(',');
        } else {
            properties.push(String::new());
        }
    }
    properties
}

/// The value of the first of these options: `--id X` or `--id=X`.
fn option<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| values(args, name).next())
}

fn values<'a>(args: &'a [String], name: &str) -> impl Iterator<Item = &'a str> {
    let with_equals = format!("{name}=");
    args.iter().enumerate().filter_map(move |(at, arg)| match arg.strip_prefix(&with_equals) {
        Some(value) => Some(value),
        None => (arg == name).then(|| args.get(at + 1).map(String::as_str)).flatten(),
    })
}

fn stem(path: &str) -> Option<String> {
    Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn names_in_command_lines() {
        for (vmm, line, name) in [
            (Vmm::Qemu, "qemu -name guest=web,debug-threads=on -m 1", Some("web")),
            (Vmm::Qemu, "qemu -name gleaner-guest,debug-threads=on", Some("gleaner-guest")),
            (Vmm::Qemu, "qemu -name debug-threads=on,guest=a,,b", Some("a,b")),
            (Vmm::Qemu, "qemu -m 1", None),
            (Vmm::Qemu, "qemu -name", None),
            (Vmm::Firecracker, "firecracker --id vm-7 --api-sock x", Some("vm-7")),
            (Vmm::Firecracker, "firecracker --id=vm-8", Some("vm-8")),
            (Vmm::CloudHypervisor, "cloud-hypervisor --api-socket path=/run/db.sock", Some("db")),
            (Vmm::Crosvm, "crosvm run --socket /run/x.sock", Some("x")),
            (Vmm::Kvmtool, "lkvm run --name tiny", Some("tiny")),
        ] {
            assert_eq!(name_in_args(vmm, &args(line)).as_deref(), name, "{line}");
        }
    }

    #[test]
    fn monitors_in_command_lines() {
        for (line, path) in [
            ("qemu -qmp unix:/run/q.sock,server=on,wait=off", Some("/run/q.sock")),
            ("qemu -qmp unix:path=/run/q.sock,server=on", Some("/run/q.sock")),
            ("qemu -qmp tcp:localhost:4444", None),
            ("qemu -chardev socket,id=m,path=/run/m.sock,server=on -mon chardev=m,mode=control", Some("/run/m.sock")),
            ("qemu -chardev socket,id=m,fd=22,server=on -mon chardev=m,mode=control", None),
            ("qemu -chardev socket,id=m,path=/run/m.sock -mon chardev=m,mode=readline", None),
        ] {
            assert_eq!(qmp_socket(&args(line)), path.map(PathBuf::from), "{line}");
        }
    }

    #[test]
    fn accelerators_in_command_lines() {
        for (line, accelerator) in [
            ("qemu -accel tcg,thread=multi -m 1", Some(Accelerator::Tcg)),
            ("qemu -enable-kvm", Some(Accelerator::Kvm)),
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
        ] {
            assert_eq!(vmm_of_program(argv0, comm), vmm, "{argv0}");
        }
    }
}
