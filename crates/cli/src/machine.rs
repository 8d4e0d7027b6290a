//! What this machine is, and which of its vCPUs may be used.

use gleaner_model::{CpuSet, Nanos};
use gleaner_observe::{ProcRoot, hypervisor, online_cpus};
use gleaner_report::MachineFacts;
use gleaner_sys::usable_cpus;
use std::fs;

/// The vCPUs that are online and that this process may use; never none.
pub fn allowed_vcpus() -> CpuSet {
    usable_cpus(&ProcRoot::default())
}

/// Of the haltpoll governor.
pub const DOES_NOT_POLL: &str = ", which does not poll (guest_halt_poll_ns is 0)";

pub fn machine(root: &ProcRoot, vcpus: &CpuSet) -> MachineFacts {
    // A container's list (lxcfs) may have fewer than the kernel lets us use.
    let online = online_cpus(root).ok().filter(|online| vcpus.is_subset(online));
    let read = |name: &str| fs::read_to_string(root.sys.join("devices/system/cpu/cpuidle").join(name));
    let trimmed = |name: &str| read(name).ok().map(|text| text.trim().to_owned());
    let driver = trimmed("current_driver").filter(|driver| driver != "none");
    let governor = trimmed("current_governor").or_else(|| trimmed("current_governor_ro")).unwrap_or_default();
    let polls = fs::read_to_string(root.sys.join("module/haltpoll/parameters/guest_halt_poll_ns")).ok();
    MachineFacts {
        hypervisor: hypervisor(root).map(|found| found.name),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        vcpus_online: online.as_ref().unwrap_or(vcpus).len() as u64,
        vcpus_allowed: vcpus.to_string(),
        idle_driver: driver.map(|driver| idle(&driver, &governor, polls.as_deref())),
    }
}

/// `polls`: haltpoll's limit, in nanoseconds. At 0 its driver halts like none.
pub fn idle(driver: &str, governor: &str, polls: Option<&str>) -> String {
    let polls = match polls.filter(|_| governor == "haltpoll").and_then(|ns| ns.trim().parse::<u64>().ok()) {
        None => String::new(),
        Some(0) => DOES_NOT_POLL.to_owned(),
        Some(ns) => format!(", which polls for up to {}", Nanos(ns)),
    };
    format!("{driver}, governor {governor}{polls}")
}
