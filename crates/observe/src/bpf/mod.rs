//! stub
mod refusal;
use crate::{ObserveError, observer::ObserverConfig};
use gleaner_model::{Nanos, VcpuId, Window, YieldCounters};
pub use refusal::BpfRefusal;
use std::time::Duration;
/// stub
#[derive(Debug)]
pub struct BpfObserver;
impl BpfObserver {
    /// stub
    pub fn new(_config: &ObserverConfig) -> Result<Self, BpfRefusal> {
        Err(BpfRefusal::NotInitialPidNamespace)
    }
    /// stub
    pub fn adopt_next_child(&mut self) {}
    /// stub
    pub fn adopted(&mut self) {}
    /// stub
    pub fn start(&mut self, _yields: &[YieldCounters]) {}
    /// stub
    pub fn window(&mut self, _yields: &[YieldCounters]) -> Result<Window, ObserveError> {
        Err(BpfRefusal::NotInitialPidNamespace.into())
    }
    /// stub
    pub fn threads(&mut self) -> Vec<i32> {
        Vec::new()
    }
    /// stub
    pub fn last_cost(&self) -> Nanos {
        Nanos::ZERO
    }
    /// stub
    pub fn untracked(&self) -> u64 {
        0
    }
    /// stub
    pub fn busy_signal(&self, _vcpu: VcpuId) -> Result<BusySignal, ObserveError> {
        Err(BpfRefusal::NotInitialPidNamespace.into())
    }
}
/// stub
#[derive(Debug)]
pub struct BusySignal;
impl BusySignal {
    /// stub
    pub fn wait(&mut self, _max: Duration) -> bool {
        false
    }
    /// stub
    pub fn waker(&self) -> BusyWaker {
        BusyWaker
    }
}
/// stub
#[derive(Clone, Debug)]
pub struct BusyWaker;
impl BusyWaker {
    /// stub
    pub fn wake(&self) {}
}
