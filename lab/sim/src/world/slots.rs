//! Which timer is whose: a number for each that a vCPU, a pCPU, a thread or a virtual machine can have.

use crate::ids::{PcpuIx, ThreadIx, VcpuIx, VmIx};

/// Where each kind of timer begins, in the order of the numbers: vCPUs' first, at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pcpus: u32,
    threads: u32,
    windows: u32,
    balances: u32,
    caps: u32,
    credit: u32,
    pulls: u32,
    count: usize,
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
        let at_threads = PER_VCPU as usize * vcpus + pcpus;
        let at_vms = at_threads + threads;
        // Credit, slices and the tick are one each.
        let at_pulls = at_vms + 3 * vms + 3;
        Self {
            pcpus: of(at_threads - pcpus),
            threads: of(at_threads),
            windows: of(at_vms),
            balances: of(at_vms + vms),
            caps: of(at_vms + 2 * vms),
            credit: of(at_pulls - 3),
            pulls: of(at_pulls),
            count: at_pulls + pcpus,
        }
    }

    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// A vCPU's are beside each other.
    #[expect(clippy::unused_self, reason = "as the others")]
    pub(crate) fn run(self, v: VcpuIx) -> u32 {
        v.0 * PER_VCPU
    }

    pub(crate) fn irq(self, v: VcpuIx) -> u32 {
        self.run(v) + 1
    }

    pub(crate) fn nap(self, v: VcpuIx) -> u32 {
        self.run(v) + 2
    }

    pub(crate) fn pcpu(self, p: PcpuIx) -> u32 {
        self.pcpus + p.0
    }

    pub(crate) fn thread(self, t: ThreadIx) -> u32 {
        self.threads + t.0
    }

    pub(crate) fn window(self, vm: VmIx) -> u32 {
        self.windows + vm.0
    }

    pub(crate) fn balance(self, vm: VmIx) -> u32 {
        self.balances + vm.0
    }

    pub(crate) fn cap(self, vm: VmIx) -> u32 {
        self.caps + vm.0
    }

    pub(crate) fn credit(self) -> u32 {
        self.credit
    }

    pub(crate) fn slices(self) -> u32 {
        self.credit + 1
    }

    pub(crate) fn tick(self) -> u32 {
        self.credit + 2
    }

    pub(crate) fn pulls(self, p: PcpuIx) -> u32 {
        self.pulls + p.0
    }

    pub(crate) fn owner(self, slot: u32) -> Owner {
        match slot {
            n if n < self.pcpus => {
                let v = VcpuIx(n / PER_VCPU);
                [Owner::Run(v), Owner::Irq(v), Owner::Nap(v), Owner::Nap(v)][(n % PER_VCPU) as usize]
            }
            n if n < self.threads => Owner::Pcpu(PcpuIx(n - self.pcpus)),
            n if n < self.windows => Owner::Thread(ThreadIx(n - self.threads)),
            n if n < self.balances => Owner::Window(VmIx(n - self.windows)),
            n if n < self.caps => Owner::Balance(VmIx(n - self.balances)),
            n if n < self.credit => Owner::Cap(VmIx(n - self.caps)),
            n if n == self.credit => Owner::Credit,
            n if n == self.slices() => Owner::Slices,
            n if n == self.tick() => Owner::Tick,
            n => Owner::Pulls(PcpuIx(n - self.pulls)),
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
