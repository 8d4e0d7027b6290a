//! The yielding thread on a simulated vCPU: it takes the vCPU that nobody has, makes room, naps, and is told.

use crate::ids::VcpuIx;
use crate::world::{Activity, Intent, Irq, World, Yielder};
use gleaner_model::Order;

impl World {
    fn yielder(&mut self, v: VcpuIx) -> Option<&mut Yielder> {
        self.vcpus[v.at()].yielder.as_deref_mut()
    }

    /// Carries out what the thread intends; says whether it wants the vCPU.
    fn yielder_does(&mut self, v: VcpuIx, intent: Intent) -> bool {
        let nap = self.slots.nap(v);
        match intent {
            Intent::Yields | Intent::Sleeps => self.timers.cancel(nap),
            Intent::Naps { until } => self.timers.set(nap, until),
        }
        intent == Intent::Yields
    }

    /// The vCPU has nobody else: whether the yielding thread takes it.
    pub(super) fn yielder_resumes(&mut self, v: VcpuIx) -> bool {
        let now = self.now;
        let intent = self.yielder(v).and_then(|yielder| yielder.resumes(now));
        intent.is_some_and(|intent| self.yielder_does(v, intent))
    }

    /// It has yielded for as long as that changed nothing.
    pub(super) fn yielder_fires(&mut self, v: VcpuIx) {
        let now = self.now;
        let Some(intent) = self.yielder(v).and_then(|yielder| yielder.fires(now)) else { return };
        if self.yielder_stays(v, intent) || self.vcpus[v.at()].owes() {
            return;
        }
        self.pick_thread(v);
    }

    /// Whether it keeps the vCPU, which it had.
    fn yielder_stays(&mut self, v: VcpuIx, intent: Intent) -> bool {
        let stays = self.yielder_does(v, intent);
        if !stays {
            self.vcpus[v.at()].totals.yield_sleeps += 1;
            self.vcpus[v.at()].activity = Activity::Idle;
        }
        stays
    }

    /// A thread takes the vCPU from it.
    pub(super) fn yielder_displaced(&mut self, v: VcpuIx) {
        let now = self.now;
        self.vcpus[v.at()].totals.yield_switches += 1;
        let Some(intent) = self.yielder(v).map(|yielder| yielder.displaced(now)) else { return };
        self.yielder_does(v, intent);
    }

    /// The vCPU is back on a pCPU. A yielding thread that had it feels the gap.
    pub(crate) fn returned_to_guest(&mut self, v: VcpuIx) {
        if self.vcpus[v.at()].activity != Activity::Yield {
            return;
        }
        let (now, gap) = (self.now, self.now - self.vcpus[v.at()].placed_at);
        let Some(intent) = self.yielder(v).map(|yielder| yielder.returned(now, gap)) else { return };
        self.yielder_stays(v, intent);
    }

    /// Its nap is over: it waits for the vCPU.
    pub(super) fn nap_over(&mut self, v: VcpuIx) {
        let busy = matches!(self.vcpus[v.at()].activity, Activity::Thread(_));
        let slept = self.yielder(v).is_some_and(|yielder| yielder.nap_over(busy));
        if slept && self.vcpus[v.at()].activity == Activity::Poll {
            self.vcpus[v.at()].activity = Activity::Idle;
        }
    }

    /// A thread runs: whoever sleeps until then is told.
    pub(super) fn signal_yielder(&mut self, v: VcpuIx) {
        if self.yielder(v).is_some_and(Yielder::signal) {
            self.timers.cancel(self.slots.nap(v));
        }
    }

    /// The policy's word.
    pub(crate) fn order_yielder(&mut self, v: VcpuIx, order: Order) {
        self.charge(v);
        let now = self.now;
        let Some(intent) = self.yielder(v).map(|yielder| yielder.order(now, order)) else { return };
        let wants = self.yielder_does(v, intent);
        match (wants, self.vcpus[v.at()].activity) {
            // It is the manager that rouses it, from wherever that runs: an interrupt.
            (true, Activity::Idle) => self.send(v, v, Irq::Resched),
            (false, Activity::Yield) | (true, Activity::Poll) => self.vcpus[v.at()].activity = Activity::Idle,
            _ => {}
        }
        self.arm(v);
    }
}
