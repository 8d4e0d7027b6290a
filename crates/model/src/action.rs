//! What can be decided, and why.

use crate::{Nanos, VcpuId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How much Gleaner may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nothing at all, not even watching.
    Off,
    /// Watch and print, change nothing.
    Observe,
    /// Resource retention only (paper, section 4.1).
    Retain,
    /// Imbalanced scheduling only (section 4.2).
    Consolidate,
    /// Both (section 5).
    #[default]
    Full,
}

impl Policy {
    /// All of them, the least first.
    pub const ALL: [Self; 5] = [Self::Off, Self::Observe, Self::Retain, Self::Consolidate, Self::Full];

    /// The word that stands for it on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Retain => "retain",
            Self::Consolidate => "consolidate",
            Self::Full => "full",
        }
    }

    /// Whether yielding threads may run.
    pub fn retains(self) -> bool {
        matches!(self, Self::Retain | Self::Full)
    }

    /// Whether vCPUs may be deactivated.
    pub fn consolidates(self) -> bool {
        matches!(self, Self::Consolidate | Self::Full)
    }
}

/// How long an idle vCPU is kept from halting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The mean extra cost of a halted wake-up: mean_C - mean_B. Costs at most twice the better choice.
    Frugal,
    /// The tail of that cost: p99_C - p99_B, within 50 us and 5 ms.
    #[default]
    Balanced,
    /// 5 ms.
    Latency,
}

impl Profile {
    /// The word that stands for it on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frugal => "frugal",
            Self::Balanced => "balanced",
            Self::Latency => "latency",
        }
    }
}

/// What a wake-up costs here, in the settings of the paper's Table 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeupCosts {
    /// Median of setting B: the waiter's vCPU is retained by a yielding thread.
    pub retained_p50: Nanos,
    /// Mean of setting B.
    pub retained_mean: Nanos,
    /// 99th percentile of setting B.
    pub retained_p99: Nanos,
    /// Median of setting C: the waiter's vCPU is halted.
    pub halted_p50: Nanos,
    /// Mean of setting C.
    pub halted_mean: Nanos,
    /// 99th percentile of setting C.
    pub halted_p99: Nanos,
}

/// One change to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Keep this vCPU from halting for idle periods up to `timeout`.
    Retain {
        vcpu: VcpuId,
        /// How long an idle period may last before the vCPU is let go.
        timeout: Nanos,
    },
    /// Let this vCPU halt as it likes: its yielding thread sleeps.
    Release { vcpu: VcpuId },
    /// Take the group off this vCPU.
    Deactivate { vcpu: VcpuId },
    /// Give this vCPU back to the group.
    Activate { vcpu: VcpuId },
    /// Give every vCPU back to the group.
    ActivateAll,
}

impl Action {
    /// The word that stands for it in `gleaner.run/1`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Retain { .. } => "retain",
            Self::Release { .. } => "release",
            Self::Deactivate { .. } => "deactivate",
            Self::Activate { .. } => "activate",
            Self::ActivateAll => "activate-all",
        }
    }

    /// The vCPU it is about, `None` for all of them.
    pub fn vcpu(&self) -> Option<VcpuId> {
        match *self {
            Self::Retain { vcpu, .. }
            | Self::Release { vcpu }
            | Self::Deactivate { vcpu }
            | Self::Activate { vcpu } => Some(vcpu),
            Self::ActivateAll => None,
        }
    }
}

/// A trial shows a gain in spite of one pair that says the opposite, where the median has so many times the rate.
pub const CLEARLY_FASTER: f64 = 1.25;

/// Why an action was decided. [`fmt::Display`] says it in plain words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// The policy retains from the start.
    RetentionBegins,
    /// The vCPU is deactivated: nothing will run there, so nothing is to be retained.
    Deactivated,
    /// The vCPU came back into use.
    Reactivated,
    /// Too much of this vCPU's time is stolen: spinning would take time from somebody who needs it.
    Contended {
        /// Stolen share, 0 to 1.
        steal_share: f64,
        /// How long spinning stops.
        hold_off: Nanos,
    },
    /// The hold-off is over and steal has gone down.
    ContentionOver,
    /// Conditions 1, 2 and 3 hold.
    IdleFits {
        /// How many vCPUs are deactivated at once, k.
        vcpus: usize,
        /// k * l_comp / ((N - k) * l_idle), at most rho.
        load_ratio: f64,
        /// g_comp / l_idle, at most eta.
        granularity_ratio: f64,
        /// Predicted utilization of the vCPUs that stay.
        utilization: f64,
    },
    /// The group got slower after the last step.
    StepHurt {
        /// Group CPU time per second fell by this share.
        cpu_loss: f64,
        /// Whether a vCPU had reached 100 %: then eta was lowered, otherwise rho.
        overloaded: bool,
    },
    /// The group's CPU time per second moved.
    UtilizationChanged {
        /// New over old.
        ratio: f64,
    },
    /// A vCPU is nearly full.
    Saturated {
        vcpu: VcpuId,
        /// Its utilization, 0 to 1.
        utilization: f64,
    },
    /// A step that filled a vCPU and pays is taken back for a moment.
    Recheck,
    /// A look showed that the program is slower with the vCPUs that the step had taken: the step is taken again.
    RecheckSlower {
        /// Hand-overs per second with them, below those without, as a share.
        loss: f64,
    },
    /// g_comp moved by a factor of two.
    GranularityChanged {
        /// New over old.
        ratio: f64,
    },
    /// Many new threads at once.
    ThreadBurst {
        /// How many.
        new_threads: u64,
    },
    /// The program called exec.
    Exec,
    /// A vCPU came or went, or the kernel's steal governor prefers others.
    TopologyChanged,
    /// The time-out follows the lengths of recent idle periods.
    IdleLengths {
        /// The part of them that ends within it, 0 to 1.
        within: f64,
    },
    /// Retention is being tried: with and without it in turn.
    RetentionTrial,
    /// Nobody would see whether retention pays: the observer sees no wake-ups.
    RetentionUnseen,
    /// A synchronization costs less with retention, or not clearly more.
    RetentionPays {
        /// Cost with retention, as a multiple of that without.
        cost_ratio: f64,
    },
    /// A synchronization costs more with retention.
    RetentionCosts {
        /// Cost with retention, as a multiple of that without.
        cost_ratio: f64,
    },
    /// The program synchronizes more often with retention. Told where costs cannot be seen.
    RetentionFaster {
        /// Synchronizations per second with retention, as a multiple of those without.
        rate_ratio: f64,
    },
    /// The program waits in another way with retention, so that its synchronizations cannot be compared; its CPU time
    /// can.
    RetentionAndCpuTime {
        /// Whether it pays.
        pays: bool,
        /// CPU time with retention, as a multiple of that without.
        cpu_ratio: f64,
    },
    /// The program synchronizes no less often, which is enough where it is latency that counts.
    RetentionNoSlower {
        /// Synchronizations per second with retention, as a multiple of those without.
        rate_ratio: f64,
    },
    /// It does not.
    RetentionNoFaster {
        /// Synchronizations per second with retention, as a multiple of those without.
        rate_ratio: f64,
    },
    /// More threads could run than there were active vCPUs: all vCPUs at once, before the next window.
    Burst {
        /// Threads that could run.
        runnable: u64,
        /// Active vCPUs.
        active: usize,
        /// For how long.
        lasted: Nanos,
    },
    /// The group's threads seem to take turns: one vCPU is tried.
    TurnsTrial {
        /// CPUs that the group used.
        cpus: f64,
    },
    /// What that said.
    Turns {
        /// Whether one vCPU is taken.
        pays: bool,
        /// The rate on one vCPU, as a multiple of that on all.
        rate_ratio: f64,
        /// The lowest of the pairs.
        low: f64,
        high: f64,
        /// How many pairs of blocks were compared.
        pairs: u32,
    },
    /// The program did too little to be compared.
    TurnsUnclear,
    /// The group is on one vCPU, where its threads take turns.
    OnOneVcpu,
    /// A thread that was woken waited for long while another task had its vCPU: all vCPUs at once.
    WakeupDelayed {
        /// How long.
        delay: Nanos,
        /// Active vCPUs.
        active: usize,
    },
    /// A trial of one vCPU ended: the group's threads do not take turns.
    SideBySide {
        /// How many ran or waited to run at once, on average.
        threads: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        match *self {
            Self::RetentionBegins => write!(f, "idle periods shorter than the time-out are bridged without halting"),
            Self::Deactivated => write!(f, "deactivated: nothing to retain there"),
            Self::Reactivated => write!(f, "in use again"),
            Self::Contended { steal_share, hold_off } => {
                write!(f, "the host took {:.0} % of this vCPU's time: no spinning for {hold_off}", percent(steal_share))
            }
            Self::ContentionOver => write!(f, "the host is no longer contended"),
            Self::IdleFits { vcpus, load_ratio, granularity_ratio, utilization } => {
                if vcpus == 1 {
                    write!(f, "its work fits into the others' idle time: l_comp/((N-1)*l_idle) = {load_ratio:.2}")?;
                } else {
                    write!(
                        f,
                        "the work of {vcpus} fits into the others' idle time: \
                         {vcpus}*l_comp/((N-{vcpus})*l_idle) = {load_ratio:.2}"
                    )?;
                }
                let percent = percent(utilization);
                write!(f, ", g_comp/l_idle = {granularity_ratio:.2}, predicted utilization {percent:.0} %")
            }
            Self::StepHurt { cpu_loss, overloaded } => write!(
                f,
                "the last step cost {:.0} % of the program's progress ({}): taken back",
                percent(cpu_loss),
                if overloaded { "a vCPU was full; eta lowered" } else { "rho lowered" }
            ),
            Self::UtilizationChanged { ratio } => {
                write!(f, "workload change: CPU use is {ratio:.2} times what it was")
            }
            Self::Saturated { vcpu, utilization } => {
                write!(f, "workload change: {vcpu} is {:.0} % busy", percent(utilization))
            }
            Self::Recheck => write!(f, "a look whether more vCPUs would be faster by now"),
            Self::RecheckSlower { loss } => {
                write!(f, "a look showed that more vCPUs make it {:.0} % slower (hand-overs)", percent(loss))
            }
            Self::GranularityChanged { ratio } => {
                write!(f, "workload change: g_comp is {ratio:.2} times what it was")
            }
            Self::ThreadBurst { new_threads } => write!(f, "workload change: {new_threads} new threads at once"),
            Self::Exec => write!(f, "workload change: a new program was started"),
            Self::TopologyChanged => write!(f, "a vCPU went offline or came online, or the kernel prefers others"),
            Self::IdleLengths { within } if within > 0.0 => {
                write!(f, "{:.0} % of recent idle periods end within this time-out: the cheapest", percent(within))
            }
            Self::IdleLengths { .. } => write!(f, "recent idle periods are too long to bridge: halting is cheaper"),
            Self::RetentionTrial => write!(f, "a trial whether bridging idle periods pays"),
            Self::RetentionUnseen => write!(f, "not bridged until a trial has shown that it pays"),
            Self::RetentionPays { cost_ratio } => {
                write!(
                    f,
                    "bridging idle periods pays: a synchronization costs {cost_ratio:.2} times what it costs without"
                )
            }
            Self::RetentionAndCpuTime { pays, cpu_ratio } => write!(
                f,
                "bridging idle periods {}: threads wait in another way, and compute for {cpu_ratio:.2} times as long",
                if pays { "pays" } else { "does not pay" }
            ),
            Self::RetentionFaster { rate_ratio } => {
                write!(f, "bridging idle periods pays: {rate_ratio:.2} times the rate without")
            }
            Self::RetentionNoSlower { rate_ratio } => write!(
                f,
                "bridging idle periods slows nothing down: {rate_ratio:.2} times the rate without, which is enough for \
                 profile latency"
            ),
            Self::RetentionNoFaster { rate_ratio } => {
                write!(f, "bridging idle periods does not pay: {rate_ratio:.2} times the rate without")
            }
            Self::Burst { runnable, active, lasted } => {
                write!(f, "expanded at once: {runnable} runnable on {active} {} for {lasted}", vcpus(active))
            }
            Self::SideBySide { threads } => write!(f, "its threads run side by side ({threads:.1} at once)"),
            Self::TurnsTrial { .. } | Self::Turns { .. } | Self::TurnsUnclear => self.of_turns(f),
            Self::OnOneVcpu => {
                write!(f, "its threads take turns on one vCPU, and a yielding thread would stand in their way")
            }
            Self::WakeupDelayed { delay, active } => {
                write!(f, "expanded at once: a wake-up waited {delay} for another task on {active} {}", vcpus(active))
            }
            Self::RetentionCosts { cost_ratio } => write!(
                f,
                "bridging idle periods does not pay: a synchronization costs {cost_ratio:.2} times what it costs without"
            ),
        }
    }
}

impl Reason {
    /// What is said of threads that take turns.
    fn of_turns(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TurnsTrial { cpus } => {
                write!(f, "its threads seem to take turns ({cpus:.2} CPUs used): a trial of one vCPU")
            }
            Self::Turns { pays, rate_ratio, low, high, pairs } => write!(
                f,
                "{}: on one vCPU {rate_ratio:.2} times the rate, {low:.2} to {high:.2} in {pairs} {}",
                if pays { "its threads take turns" } else { "one vCPU is not enough" },
                if pairs == 1 { "pair" } else { "pairs" }
            ),
            Self::TurnsUnclear => write!(f, "a trial of one vCPU ended: the program did too little"),
            _ => Ok(()),
        }
    }
}

fn vcpus(count: usize) -> &'static str {
    if count == 1 { "vCPU" } else { "vCPUs" }
}

/// One action, when and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When, on the clock of [`crate::Window::at`].
    pub at: Nanos,
    pub action: Action,
    /// Why.
    pub reason: Reason,
}
