//! The simulated world: data, and what it takes to keep it true (time is charged, a timeline is kept). Nothing here
//! knows what is done with it: `host/`, `guest/` and Gleaner's parts do that, and `run` calls them.

mod cap;
mod class;
mod entity;
mod gleaner;
mod group;
mod guest;
mod host;
mod idle_periods;
mod queue;
mod slices;
mod slots;
mod vcpu;
mod yielder;

#[cfg(debug_assertions)]
pub(crate) use cap::CAP_PERIOD;
pub(crate) use cap::Cap;
pub(crate) use class::Class;
pub(crate) use entity::{Entity, IDLE, OVER, signed};
pub use gleaner::wakeup_costs;
pub(crate) use gleaner::{Gleaner, WindowZero};
pub(crate) use group::{Group, Member};
pub(crate) use guest::Guest;
pub(crate) use host::{Cause, Host, Pcpu, Pulls};
pub(crate) use slices::Slices;
pub(crate) use slots::{Owner, Slots};
pub(crate) use vcpu::{Activity, HostSeen, Irq, Place, Vcpu};
pub(crate) use yielder::{Intent, Yielder};

use crate::config::{Config, IdleLoop, Scheduler};
use crate::costs::Costs;
use crate::engine::{Time, Timers};
use crate::ids::{ThreadIx, VcpuIx, VmIx};
use crate::program::{Code, Objects, Thread};
use crate::timeline::{Timeline, TimelineSpan};
use crate::totals::VmTotals;
use vcpu::pay;

/// A virtual machine.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) name: String,
    /// What things cost in it (`World::costs`).
    pub(crate) costs: u32,
    pub(crate) weight: u32,
    pub(crate) idle_loop: IdleLoop,
    pub(crate) measured: bool,
    pub(crate) first_vcpu: VcpuIx,
    pub(crate) vcpus: u32,
    pub(crate) first_thread: ThreadIx,
    pub(crate) threads: u32,
    pub(crate) objects: Objects,
    pub(crate) guest: Guest,
    pub(crate) gleaner: Option<Box<Gleaner>>,
    /// Its limit, if it has one, as CFS has it.
    pub(crate) cap: Option<Cap>,
    /// And as Xen's credit scheduler has it, thousandths of a pCPU.
    pub(crate) credit_cap_permille: Option<u32>,
    /// vCPUs that wait for a pCPU, as bits.
    pub(crate) ready: u64,
    /// Whom a pause-loop exit preferred last.
    pub(crate) yielded_to: u32,
    pub(crate) totals: VmTotals,
}

/// The simulation's state.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) timers: Timers,
    pub(crate) slots: Slots,
    pub(crate) host: Host,
    pub(crate) vms: Vec<Vm>,
    pub(crate) vcpus: Vec<Vcpu>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) code: Code,
    /// Each once, however many virtual machines have them.
    pub(crate) costs: Vec<Costs>,
    pub(crate) events: u64,
    /// Measured threads that have not ended.
    pub(crate) measured_left: usize,
    pub(crate) endless: Option<ThreadIx>,
    /// Events come and time does not go on.
    pub(crate) stands_still: bool,
    pub(crate) timeline: Option<Timeline>,
    /// Gleaner on the host.
    pub(crate) slices: Option<Slices>,
    pub(crate) config: Config,
}

impl World {
    pub(crate) fn scheduler(&self) -> Scheduler {
        self.host.config.scheduler
    }

    pub(crate) fn vcpu_of(&self, vm: VmIx, index: u32) -> VcpuIx {
        VcpuIx(self.vms[vm.at()].first_vcpu.0 + index)
    }

    /// What things cost in a vCPU's virtual machine.
    pub(crate) fn costs(&self, v: VcpuIx) -> &Costs {
        &self.costs[self.vcpus[v.at()].costs as usize]
    }

    /// Charges the time since the last charge to what the vCPU did.
    pub(crate) fn charge(&mut self, v: VcpuIx) {
        let vcpu = &mut self.vcpus[v.at()];
        let mut left = self.now - vcpu.since;
        if left == 0 {
            return;
        }
        vcpu.since = self.now;
        match vcpu.place {
            Place::Running => {}
            Place::Ready => {
                vcpu.totals.ready += left;
                return self.stolen(v, left);
            }
            Place::Halted => return vcpu.totals.halted += left,
            Place::Polling => {
                vcpu.totals.halted += left;
                return vcpu.totals.host_polled += left;
            }
        }
        vcpu.entity.ran(left, vcpu.weight);
        if vcpu.host_debt > 0 {
            let (takes, does) = (vcpu.takes(vcpu.host_debt), vcpu.does(left));
            let paid = pay(&mut vcpu.host_debt, &mut left, takes, does);
            vcpu.totals.overhead += paid;
            vcpu.totals.resuming += if vcpu.resuming { paid } else { 0 };
            self.stolen(v, paid);
        }
        let vcpu = &mut self.vcpus[v.at()];
        if vcpu.debt > 0 {
            let (takes, does) = (vcpu.takes(vcpu.debt), vcpu.does(left));
            vcpu.totals.kernel += pay(&mut vcpu.debt, &mut left, takes, does);
        }
        if left == 0 {
            return;
        }
        match vcpu.activity {
            Activity::Idle => vcpu.totals.kernel += left,
            Activity::Poll if vcpu.retained_for > 0 => vcpu.totals.retained += left,
            Activity::Poll => vcpu.totals.polled += left,
            Activity::Yield => {
                vcpu.totals.retained += left;
                if let Some(yielder) = &mut vcpu.yielder {
                    yielder.spun(left);
                }
            }
            Activity::Thread(t) => {
                vcpu.totals.work += left;
                vcpu.thread_ran += left;
                let work = vcpu.does(left);
                let spins = self.threads[t.at()].ran(left, work);
                if spins && vcpu.pause_left != Time::MAX {
                    vcpu.pause_left = vcpu.pause_left.saturating_sub(left);
                }
            }
        }
    }

    /// The vCPU had no pCPU, or not yet, for so long. A guest that is not told of steal charges it to whoever is
    /// current (`update_rq_clock_task` without `CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    fn stolen(&mut self, v: VcpuIx, time: Time) {
        let vcpu = &mut self.vcpus[v.at()];
        match vcpu.activity {
            Activity::Thread(t) => {
                vcpu.totals.stolen_work += time;
                self.threads[t.at()].stolen += time;
            }
            Activity::Yield => vcpu.totals.stolen_retained += time,
            Activity::Idle | Activity::Poll => {}
        }
    }

    /// Notes what a vCPU does from now on, if anybody wants to know.
    pub(crate) fn trace(&mut self, v: VcpuIx) {
        let Some(timeline) = &mut self.timeline else { return };
        let vcpu = &self.vcpus[v.at()];
        let (what, thread) = match (vcpu.place, vcpu.activity) {
            (Place::Ready, _) => ("stolen", None),
            (Place::Halted, _) => ("halted", None),
            (Place::Polling, _) => ("host polls", None),
            (Place::Running, Activity::Thread(t)) => ("runs", Some(t.0 - self.vms[vcpu.vm.at()].first_thread.0)),
            (Place::Running, Activity::Yield) => ("retained", None),
            (Place::Running, Activity::Poll) => ("polls", None),
            (Place::Running, Activity::Idle) => ("kernel", None),
        };
        let pcpu = matches!(vcpu.place, Place::Running | Place::Polling).then_some(vcpu.pcpu.0);
        let (vm, index) = (vcpu.vm.0, vcpu.index);
        let span = TimelineSpan { vm, vcpu: index, from_ns: self.now, length_ns: 0, what, thread, pcpu };
        timeline.change(v, self.now, (what != "halted").then_some(span));
    }
}
