//! Which vCPUs share what: a core, a last-level cache, a memory node.

use crate::VcpuId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where one vCPU is. A core and a cache have the number of their lowest vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VcpuPlace {
    /// Its memory (NUMA) node.
    pub node: u32,
    /// Its last-level cache.
    pub llc: u32,
    /// Its core: SMT siblings share it.
    pub core: u32,
}

/// Where each vCPU is, as the hypervisor tells the guest; empty where nobody asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology(BTreeMap<VcpuId, VcpuPlace>);

impl Topology {
    /// Where this vCPU is. One that is not known has a core to itself, and shares cache and node with all like it.
    pub fn place(&self, vcpu: VcpuId) -> VcpuPlace {
        self.0.get(&vcpu).copied().unwrap_or(VcpuPlace { node: 0, llc: 0, core: vcpu.0 })
    }
}

impl FromIterator<(VcpuId, VcpuPlace)> for Topology {
    fn from_iter<I: IntoIterator<Item = (VcpuId, VcpuPlace)>>(places: I) -> Self {
        Self(places.into_iter().collect())
    }
}
