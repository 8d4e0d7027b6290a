//! Who shares pCPUs with whom.
//!
//! How long a vCPU waits is up to the slices of the *others* on its pCPU (equation 1), and a fair scheduler pays back
//! what a long slice took: after 30 ms of one vCPU the other is owed 30 ms, in however many pieces. So the longest
//! slice of a pCPU sets the waits there, and with RUN_TO_PARITY as it was before 2025 nothing but the running vCPU's
//! own slice ends its turn. VMs that may meet on a pCPU therefore get one slice, and so do VMs that are linked through
//! a third.

use gleaner_model::{CpuSet, HostWindow, VmId};

/// VMs that share pCPUs, directly or through others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingSet {
    /// Its VMs, ascending.
    pub vms: Vec<VmId>,
    /// The pCPUs that any of them may use.
    pub pcpus: CpuSet,
}

impl SharingSet {
    /// Whether some of its vCPUs have fewer pCPUs than they are: those that may use certain pCPUs and no others, or all
    /// together.
    pub fn competes(&self, window: &HostWindow) -> bool {
        let vms = || window.vms.iter().filter(|vm| self.vms.contains(&vm.vm));
        let masks: Vec<&CpuSet> = vms().flat_map(|vm| vm.vcpus.iter().map(|vcpu| &vcpu.pcpus)).collect();
        let mut different: Vec<&CpuSet> = Vec::new();
        for mask in masks.iter().copied().chain([&self.pcpus]) {
            if !different.contains(&mask) {
                different.push(mask);
            }
        }
        let within = |all: &CpuSet| masks.iter().filter(|mask| mask.is_subset(all)).count();
        different.into_iter().any(|mask| within(mask) > mask.len())
    }
}

/// The sets of `window`, ascending by their first VM. Every VM is in exactly one.
pub fn sharing_sets(window: &HostWindow) -> Vec<SharingSet> {
    let mut sets: Vec<SharingSet> = Vec::new();
    for vm in &window.vms {
        let mut merged =
            SharingSet { vms: vec![vm.vm], pcpus: vm.vcpus.iter().flat_map(|vcpu| vcpu.pcpus.iter()).collect() };
        let (linked, apart): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(|set| !set.pcpus.intersection(&merged.pcpus).is_empty());
        for set in linked {
            merged.vms.extend(set.vms);
            merged.pcpus = merged.pcpus.iter().chain(set.pcpus.iter()).collect();
        }
        merged.vms.sort_unstable();
        sets = apart;
        sets.push(merged);
    }
    sets.sort_by(|a, b| a.vms.cmp(&b.vms));
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{HostVcpuWindow, Nanos, VcpuId, VmWindow};

    fn window(masks: &[&[&str]]) -> HostWindow {
        let vm = |(id, vcpus): (usize, &&[&str])| VmWindow {
            vm: VmId(u32::try_from(id).unwrap()),
            slice: None,
            weight: 1024,
            limit: None,
            refill: None,
            vcpus: vcpus
                .iter()
                .enumerate()
                .map(|(n, mask)| HostVcpuWindow::new(VcpuId(u32::try_from(n).unwrap()), mask.parse().unwrap()))
                .collect(),
        };
        let vms = masks.iter().enumerate().map(vm).collect();
        HostWindow { at: Nanos(1), length: Nanos(1), vms, tick: None }
    }

    fn check(masks: &[&[&str]], expected: &[&[u32]]) {
        let found: Vec<Vec<u32>> =
            sharing_sets(&window(masks)).iter().map(|set| set.vms.iter().map(|vm| vm.0).collect()).collect();
        assert_eq!(found, expected, "{masks:?}");
    }

    #[test]
    fn vms_that_may_meet_are_together() {
        check(&[&["0"], &["0"], &["1"]], &[&[0, 1], &[2]]);
        check(&[&["0", "1"], &["2"], &["1-2"]], &[&[0, 1, 2]]);
        check(&[&["0"], &["1"], &["0"], &["1"]], &[&[0, 2], &[1, 3]]);
        check(&[&[], &["0"]], &[&[0], &[1]]);
        check(&[], &[]);
    }

    #[test]
    fn vcpus_compete_where_they_have_fewer_pcpus_than_they_are() {
        for (masks, expected) in [
            (&[&["0", "1"][..]][..], false),
            (&[&["0", "1"], &["0", "1"]], true),
            (&[&["0-3", "0-3"], &["0-3", "0-3"]], false),
            (&[&["0-3", "0-3", "0-3"], &["0-3", "0-3"]], true),
            // Room enough all together, and none on pCPU 0.
            (&[&["0"], &["0", "1-3"]], true),
            (&[&["0", "0", "1-3"]], true),
            (&[&["0", "0-1"]], false),
        ] {
            let window = window(masks);
            let sets = sharing_sets(&window);
            assert_eq!(sets.iter().any(|set| set.competes(&window)), expected, "{masks:?}");
        }
    }
}
