//! What a person should do: Gleaner's verdict, and what an administrator could change.

use crate::busy;
use crate::machine::DOES_NOT_POLL;
use gleaner_decide::guest::{GuestParams, halting_costs_by_the_tail_alone};
use gleaner_model::{CpuSet, Nanos, RetainMeans, WakeupCosts};
use gleaner_report::{Capability, HaltCost, MachineFacts, StealFacts, Verdict};
use std::fs;
use std::path::Path;

/// A wake-up that takes so long is worth polling for: in the idle loop it takes 3 us.
const DEAR: Nanos = Nanos::from_micros(10);

/// Whether a means that polls in the idle loop is to be had.
fn polls_here(actuators: &[Capability]) -> bool {
    let polling = |name: &str| RetainMeans::ALL.iter().any(|means| means.polls_in_idle_task() && means.name() == name);
    actuators.iter().any(|found| found.available && polling(&found.name))
}

/// Whether only the latest wake-ups of a halted vCPU took longer.
fn by_the_tail_alone(halt: &HaltCost) -> bool {
    let costs = WakeupCosts {
        retained_p50: Nanos(halt.retained_p50_ns),
        retained_p99: Nanos(halt.retained_p99_ns),
        halted_p50: Nanos(halt.halted_p50_ns),
        halted_p99: Nanos(halt.halted_p99_ns),
        ..WakeupCosts::default()
    };
    halting_costs_by_the_tail_alone(&costs)
}

/// What a person should do. `busy`: what others used before anything was measured, where that is much.
pub fn verdict(
    machine: &MachineFacts,
    vcpus: &CpuSet,
    halt: Option<&HaltCost>,
    (steal, busy): (StealFacts, Option<f64>),
    actuators: &[Capability],
) -> Verdict {
    let says = |would_benefit, text: String| Verdict { would_benefit, text };
    let has = |name: &str| actuators.iter().any(|found| found.name == name && found.available);
    if vcpus.len() < 2 {
        return says(
            Some(false),
            "this machine would not benefit, because a program here has one vCPU: no thread on another is ever woken"
                .into(),
        );
    }
    if !has("yielding") {
        return says(None, "nothing can be done here; the lines above say why".into());
    }
    let contended = steal.reported_ratio.is_some_and(|ratio| ratio > GuestParams::default().steal_share_stop);
    // Beside others a vCPU is seldom halted, and what a halt costs is not seen.
    let doubtful = busy.filter(|_| halt.is_some_and(|halt| !halt.halting_costs || by_the_tail_alone(halt)));
    match halt {
        None => says(None, "wake-ups could not be measured; try `gleaner probe`".into()),
        Some(_) if contended => says(
            None,
            "the host is contended right now: Gleaner would not spin (its guard), only pack work onto fewer vCPUs. \
             Try `gleaner run --policy consolidate -- YOUR-PROGRAM`, and `gleaner doctor` again later"
                .into(),
        ),
        Some(halt) if doubtful.is_some() => says(
            None,
            format!(
                "{}. {}: ask again when it is quiet",
                doubtful.map(busy::warning).unwrap_or_default(),
                if halt.halting_costs {
                    "Only the latest wake-ups of a halted vCPU took longer"
                } else {
                    "Halting seems free, but vCPUs that others keep busy are seldom halted"
                }
            ),
        ),
        Some(halt) if halt.halting_costs => says(
            Some(true),
            format!(
                "{} costs more than waking one kept awake: programs whose threads wait for each other, thousands of \
                 times a second, would benefit. Try `gleaner run -- YOUR-PROGRAM`",
                if machine.hypervisor.is_some() {
                    "waking a halted vCPU"
                } else {
                    "no hypervisor was found, but waking a CPU from its sleep states"
                }
            ),
        ),
        Some(halt) if !polls_here(actuators) && halt.halted_p50_ns >= DEAR.0 => says(
            Some(false),
            format!(
                "a yielding thread, all that is to be had here, is woken no sooner than a halted vCPU ({}), so Gleaner \
                 would win nothing now. Polling in the kernel's idle loop would",
                Nanos(halt.halted_p50_ns)
            ),
        ),
        Some(_) => {
            let polls = |driver: &str| driver.contains("haltpoll") && !driver.ends_with(DOES_NOT_POLL);
            let why = if machine.idle_driver.as_deref().is_some_and(polls) {
                "the haltpoll driver already polls in the guest"
            } else if machine.hypervisor.is_none() {
                "no hypervisor was found, and an idle CPU here leaves its sleep states as fast as one kept awake"
            } else {
                "an idle vCPU here comes back as fast as one kept awake: the host polls for it, or lends it the CPU \
                 for good"
            };
            says(
                Some(false),
                format!(
                    "keeping vCPUs awake would win nothing here now, because {why}. Waits of a millisecond may differ: \
                     `gleaner probe --means` tells, and `gleaner run --profile latency` is for servers that have them"
                ),
            )
        }
    }
}

/// What an administrator could do for the kernel to poll where Gleaner cannot make it: KVM guests whose idle loop has
/// no driver (Linux, Documentation/virt/guest-halt-polling.rst). `sys` is `/sys`.
pub fn advice(sys: &Path, machine: &MachineFacts, actuators: &[Capability]) -> Option<String> {
    let kvm = machine.hypervisor.as_deref().is_some_and(|name| name.contains("KVM"));
    if !kvm || machine.idle_driver.is_some() || polls_here(actuators) {
        return None;
    }
    // Its parameter counts when it begins: built in, that is at boot.
    let built_in = sys.join("module/cpuidle_haltpoll").exists();
    let how = if built_in { "boot with cpuidle_haltpoll.force=1" } else { "`modprobe cpuidle-haltpoll force=1`" };
    let governors = fs::read_to_string(sys.join("devices/system/cpu/cpuidle/available_governors"));
    let haltpoll = governors.is_ok_and(|names| names.split_whitespace().any(|name| name == "haltpoll"));
    let then = if haltpoll {
        "idle vCPUs poll for 200 us then, and Gleaner can say when"
    } else {
        "this kernel has no haltpoll governor, so by itself it polls no more than now; Gleaner can make it, by PM QoS"
    };
    Some(format!("an administrator could {how}: {then}. The host no longer polls for this VM then"))
}
