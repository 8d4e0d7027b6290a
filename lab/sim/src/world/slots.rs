//! Which timer is whose: a number for each that a vCPU, a pCPU, a thread or a virtual machine can have.

use crate::ids::{PcpuIx, ThreadIx, VcpuIx, VmIx};

/// Which timer is whose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    vcpus: u32,
    pcpus: u32,
    threads: u32,
    vms: u32,
}

/// Timers of a vCPU, and one place that is never used: a power of two.
const PER_VCPU: u32 = 4;

/// A timer's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// What a vCPU is doing comes to an end.
    Run(VcpuIx),
    /// An interrupt arrives.
    Irq(VcpuIx),
    /// A yielding thread's sleep ends.
    Nap(VcpuIx),
    /// A slice ends.
    Pcpu(PcpuIx),
    /// A sleep or a request ends.
    Thread(ThreadIx),
    /// A window of observation ends.
    Window(VmIx),
    /// The guest's scheduler looks whether somebody waits in vain.
    Balance(VmIx),
    /// A virtual machine may use CPUs again, or has used its share.
    Cap(VmIx),
    /// Credit is given out.
    Credit,
    /// A pCPU's tick (credit).
    Tick,
    /// A window of the host's observation ends.
    Slices,
    /// A pCPU looks whether another one has more to do.
    Pulls(PcpuIx),
}

impl Slots {
    pub(crate) fn new(vcpus: usize, pcpus: usize, threads: usize, vms: usize) -> Self {
        let of = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { vcpus: of(vcpus), pcpus: of(pcpus), threads: of(threads), vms: of(vms) }
    }

    pub(crate) fn count(self) -> usize {
        [(PER_VCPU * self.vcpus) as usize, 2 * self.pcpus as usize, self.threads as usize, 3 * self.vms as usize, 3]
            .iter()
            .sum()
    }

    pub(crate) fn run(self, v: VcpuIx) -> u32 {
        self.vcpu(0, v)
    }

    pub(crate) fn irq(self, v: VcpuIx) -> u32 {
        self.vcpu(1, v)
    }

    pub(crate) fn nap(self, v: VcpuIx) -> u32 {
        self.vcpu(2, v)
    }

    /// A vCPU's are beside each other.
    #[expect(clippy::unused_self, reason = "as the others")]
    fn vcpu(self, kind: u32, v: VcpuIx) -> u32 {
        v.0 * PER_VCPU + kind
    }

    pub(crate) fn pcpu(self, p: PcpuIx) -> u32 {
        PER_VCPU * self.vcpus + p.0
    }

    pub(crate) fn thread(self, t: ThreadIx) -> u32 {
        PER_VCPU * self.vcpus + self.pcpus + t.0
    }

    fn vm(self, kind: u32, vm: VmIx) -> u32 {
        PER_VCPU * self.vcpus + self.pcpus + self.threads + kind * self.vms + vm.0
    }

    pub(crate) fn window(self, vm: VmIx) -> u32 {
        self.vm(0, vm)
    }

    pub(crate) fn balance(self, vm: VmIx) -> u32 {
        self.vm(1, vm)
    }

    pub(crate) fn cap(self, vm: VmIx) -> u32 {
        self.vm(2, vm)
    }

    pub(crate) fn credit(self) -> u32 {
        self.vm(3, VmIx(0))
    }

    pub(crate) fn slices(self) -> u32 {
        self.credit() + 1
    }

    pub(crate) fn tick(self) -> u32 {
        self.slices() + 1
    }

    pub(crate) fn pulls(self, p: PcpuIx) -> u32 {
        self.tick() + 1 + p.0
    }

    #[expect(clippy::same_functions_in_if_condition, reason = "`below` takes its part of the numbers each time")]
    pub(crate) fn owner(self, mut slot: u32) -> Owner {
        let mut below = |n: u32| {
            let found = (slot < n).then_some(slot);
            slot = slot.wrapping_sub(n);
            found
        };
        let vms = self.vms;
        if let Some(n) = below(PER_VCPU * self.vcpus) {
            let v = VcpuIx(n / PER_VCPU);
            [Owner::Run(v), Owner::Irq(v), Owner::Nap(v), Owner::Nap(v)][(n % PER_VCPU) as usize]
        } else if let Some(n) = below(self.pcpus) {
            Owner::Pcpu(PcpuIx(n))
        } else if let Some(n) = below(self.threads) {
            Owner::Thread(ThreadIx(n))
        } else if let Some(n) = below(vms) {
            Owner::Window(VmIx(n))
        } else if let Some(n) = below(vms) {
            Owner::Balance(VmIx(n))
        } else if let Some(n) = below(vms) {
            Owner::Cap(VmIx(n))
        } else if below(1).is_some() {
            Owner::Credit
        } else if below(1).is_some() {
            Owner::Slices
        } else if below(1).is_some() {
            Owner::Tick
        } else {
            Owner::Pulls(PcpuIx(slot))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_owner() {
        let slots = Slots::new(3, 2, 4, 2);
        let mut owners = vec![
            (slots.run(VcpuIx(2)), Owner::Run(VcpuIx(2))),
            (slots.irq(VcpuIx(0)), Owner::Irq(VcpuIx(0))),
            (slots.nap(VcpuIx(1)), Owner::Nap(VcpuIx(1))),
            (slots.pcpu(PcpuIx(1)), Owner::Pcpu(PcpuIx(1))),
            (slots.thread(ThreadIx(3)), Owner::Thread(ThreadIx(3))),
            (slots.window(VmIx(1)), Owner::Window(VmIx(1))),
            (slots.balance(VmIx(0)), Owner::Balance(VmIx(0))),
            (slots.cap(VmIx(1)), Owner::Cap(VmIx(1))),
            (slots.credit(), Owner::Credit),
            (slots.slices(), Owner::Slices),
            (slots.tick(), Owner::Tick),
            (slots.pulls(PcpuIx(1)), Owner::Pulls(PcpuIx(1))),
        ];
        for (slot, owner) in &owners {
            assert_eq!(slots.owner(*slot), *owner);
        }
        owners.sort_by_key(|(slot, _)| *slot);
        owners.dedup_by_key(|(slot, _)| *slot);
        assert_eq!((owners.len(), slots.count()), (12, 12 + 4 + 4 + 6 + 3));
    }
}
