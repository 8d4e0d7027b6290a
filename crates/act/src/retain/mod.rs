//! The ways to keep an idle vCPU awake, behind one trait.
//!
//! ```text
//!   IdlePoll         our BPF program polls at the head of the idle loop: exact time-outs, per vCPU, gone with the process
//!   Haltpoll         the haltpoll governor polls: exact time-outs, the whole machine
//!   PmQos            the cpuidle governor's POLL state: per vCPU, time-outs to the tick
//!   YieldingThreads  a thread of the lowest class: no privilege
//! ```
//!
//! Why the first three: a waker spares the interrupt if the target's idle task polls (`TIF_POLLING_NRFLAG`), and in a
//! VM the interrupt is what costs. On the live guest a thread on a halted vCPU is woken in 22 us, on one with a
//! yielding thread in 17, on one whose idle task polls in 3.

mod haltpoll;
mod idle_poll;
mod pm_qos;
mod value_file;

pub use haltpoll::Haltpoll;
pub(crate) use haltpoll::ResetHaltpoll;
pub use idle_poll::{IdlePoll, IdlePollParams, IdlePollRefusal};
pub use pm_qos::PmQos;
pub use value_file::FileValue;
pub(crate) use value_file::ValueFile;

use crate::{ActError, Fallback, Journal, YieldingThreads};
use gleaner_model::{Nanos, Order, RetainCounters, RetainMeans, VcpuId};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A way to keep vCPUs awake while they are idle. Dropping it ends that; what it changed in files the journal undoes.
pub trait Retainer: Send {
    fn means(&self) -> RetainMeans;

    /// From now on idle periods of `vcpu` are bridged up to `timeout`; `None`: it halts as the kernel likes. An unknown
    /// vCPU is ignored (it may have gone offline).
    ///
    /// # Errors
    /// When the change cannot be journalled or made. The vCPU then halts as before.
    fn set(&mut self, vcpu: VcpuId, timeout: Option<Nanos>, journal: &mut Journal) -> Result<(), ActError>;

    /// Cumulative counters, one entry per vCPU; empty where the means counts nothing itself (cpuidle does).
    fn counters(&self) -> Vec<RetainCounters> {
        Vec::new()
    }

    /// The owner is alive. To be called at least once a second: a hung Gleaner must not burn the machine.
    fn beat(&self) {}

    /// Somebody gave back what it had set in files, because the owner was silent: what is set next is written anew.
    fn was_taken_back(&mut self) {}

    /// More about it, for the summary: the means' name and what it rests on.
    fn detail(&self) -> String {
        self.means().name().to_owned()
    }

    /// What had to be replaced by something weaker.
    fn fallbacks(&self) -> &[Fallback] {
        &[]
    }

    /// What the kernel takes long to end, once the last copy is closed. Copies keep nothing awake.
    fn slow_to_close(&self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// Why it keeps nothing awake any more, for good: somebody else has set a file since it did, or a write is refused.
    fn lost(&self) -> Option<ActError> {
        None
    }

    /// What the files that it has set hold, if nobody else has written them.
    fn values(&self) -> Vec<SetValue> {
        Vec::new()
    }

    /// Ends it without waiting for its end.
    fn retire(self: Box<Self>);
}

/// A file of the kernel's that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetValue {
    pub path: PathBuf,
    /// What it holds: one of these.
    pub one_of: Vec<String>,
}

impl SetValue {
    /// What it holds now; `None` where it cannot be read.
    pub fn found(&self) -> Option<String> {
        fs::read_to_string(&self.path).ok().map(|text| text.trim().to_owned())
    }

    /// Whether it holds what was set.
    pub fn is_as_set(&self) -> bool {
        self.found().is_some_and(|found| self.one_of.contains(&found))
    }
}

impl Retainer for YieldingThreads {
    fn means(&self) -> RetainMeans {
        RetainMeans::Yielding
    }

    fn set(&mut self, vcpu: VcpuId, timeout: Option<Nanos>, _: &mut Journal) -> Result<(), ActError> {
        if timeout.is_some() {
            self.begin(vcpu)?;
        }
        self.order(vcpu, timeout.map_or(Order::Sleep, |timeout| Order::Retain { timeout }));
        Ok(())
    }

    fn counters(&self) -> Vec<RetainCounters> {
        self.counters()
    }

    fn beat(&self) {
        self.beat();
    }

    fn detail(&self) -> String {
        let class = if self.class() == crate::YieldClass::Idle { "sched-idle" } else { "nice-19" };
        let group = if self.idle_means() == crate::IdleMeans::ClassOnly { "" } else { "+cpu.idle" };
        format!("{class}{group}")
    }

    fn fallbacks(&self) -> &[Fallback] {
        self.fallbacks()
    }

    fn retire(self: Box<Self>) {
        (*self).retire();
    }
}
