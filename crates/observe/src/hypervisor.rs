//! Which hypervisor, if any, this machine runs on.
//!
//! CPUID tells where the architecture has it (leaf 0x4000_0000, one list of names for all). Else `/sys/hypervisor/type`
//! (Xen), else what the firmware's DMI strings say of the maker.

use gleaner_sys::{ProcRoot, read_optional};
use std::fmt;

/// Where it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The CPUID signature.
    Cpuid,
    /// `/sys/hypervisor/type`.
    SysHypervisor,
    /// The firmware's strings below `/sys/class/dmi/id`.
    Dmi,
}

/// A hypervisor and how it was recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hypervisor {
    /// `KVM`, `Xen`, `VMware`, `Hyper-V`, ... or its own signature where it has no common name.
    pub name: String,
    /// Where it was seen.
    pub evidence: Evidence,
}

impl fmt::Display for Hypervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Signatures in CPUID, and names in DMI strings, by common name.
const KNOWN: [(&str, &str); 16] = [
    ("KVMKVMKVM", "KVM"),
    ("XenVMMXenVMM", "Xen"),
    ("VMwareVMware", "VMware"),
    ("Microsoft Hv", "Hyper-V"),
    ("TCGTCGTCGTCG", "QEMU without KVM"),
    ("bhyve bhyve ", "bhyve"),
    ("ACRNACRNACRN", "ACRN"),
    ("Linux KVM Hv", "KVM"),
    ("KVM", "KVM"),
    ("QEMU", "QEMU"),
    ("VMware", "VMware"),
    ("VirtualBox", "VirtualBox"),
    ("Xen", "Xen"),
    ("Amazon EC2", "EC2"),
    ("Google Compute Engine", "Google Compute Engine"),
    ("Microsoft Corporation Virtual Machine", "Hyper-V"),
];

/// The hypervisor below this machine; `None` on bare metal, and where nothing tells.
///
/// CPUID is asked only on the running machine, not for a fixture tree.
pub fn hypervisor(root: &ProcRoot) -> Option<Hypervisor> {
    let found = |name: String, evidence| Some(Hypervisor { name, evidence });
    if let Some(signature) = root.is_live().then(cpuid_signature).flatten() {
        let trimmed = signature.trim_end_matches('\0');
        return found(common_name(trimmed).unwrap_or(trimmed).to_owned(), Evidence::Cpuid);
    }
    if let Ok(Some(kind)) = read_optional(&root.sys.join("hypervisor/type"))
        && !matches!(kind.trim(), "" | "none")
    {
        let kind = kind.trim();
        return found(if kind == "xen" { "Xen".into() } else { kind.to_owned() }, Evidence::SysHypervisor);
    }
    let dmi = |name: &str| read_optional(&root.sys.join("class/dmi/id").join(name)).ok().flatten().unwrap_or_default();
    let firmware = format!("{} {} {}", dmi("sys_vendor").trim(), dmi("product_name").trim(), dmi("bios_vendor").trim());
    // EC2's bare-metal machines carry the same maker.
    if firmware.contains(".metal") {
        return None;
    }
    found(common_name(&firmware)?.to_owned(), Evidence::Dmi)
}

fn common_name(text: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(signature, _)| text.contains(signature)).map(|(_, name)| *name)
}

fn cpuid_signature() -> Option<String> {
    let cpuid = raw_cpuid::CpuId::new();
    if !cpuid.get_feature_info()?.has_hypervisor() {
        return None;
    }
    // The crate names some signatures; the raw leaf names all.
    let leaf = raw_cpuid::cpuid!(0x4000_0000);
    let bytes: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx].iter().flat_map(|word| word.to_le_bytes()).collect();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, ProcRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = ProcRoot::below(dir.path());
        (dir, root)
    }

    #[test]
    fn sys_and_firmware_tell_where_cpuid_cannot() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<(&'a str, Evidence)>);
        let cases: [Case<'_>; 6] = [
            (&[("sys/hypervisor/type", "xen\n")], Some(("Xen", Evidence::SysHypervisor))),
            (&[("sys/class/dmi/id/sys_vendor", "QEMU\n")], Some(("QEMU", Evidence::Dmi))),
            (&[("sys/class/dmi/id/sys_vendor", "Amazon EC2\n")], Some(("EC2", Evidence::Dmi))),
            (&[("sys/class/dmi/id/sys_vendor", "Amazon EC2\n"), ("sys/class/dmi/id/product_name", "m5.metal\n")], None),
            (&[("sys/class/dmi/id/sys_vendor", "Dell Inc.\n")], None),
            (&[], None),
        ];
        for (files, expected) in cases {
            let (_dir, root) = tree(files);
            let expected = expected.map(|(name, evidence)| Hypervisor { name: name.into(), evidence });
            assert_eq!(hypervisor(&root), expected, "{files:?}");
        }
    }

    #[test]
    fn every_common_signature_has_its_name() {
        for (signature, name) in [("KVMKVMKVM", "KVM"), ("Microsoft Hv", "Hyper-V"), ("XenVMMXenVMM", "Xen")] {
            assert_eq!(common_name(signature), Some(name));
        }
    }
}
