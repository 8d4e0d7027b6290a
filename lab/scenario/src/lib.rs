//! The scenario format: which virtual machines, what runs in them, under which policies, how often.
//!
//! One TOML file is one question. The test bed boots the machines it describes and the simulator will read the same
//! files, so nothing here knows of QEMU: a [`Scenario`] is a machine with CPUs, VMs with vCPUs, workloads and policies.
//! [`Scenario::parse`] checks all of it before anything is done, and says file, line, and what would be right. [`Plan`]
//! is the order in which everything is measured: every round holds each combination once, shuffled by the seed, so that
//! whatever drifts while the machines run meets all combinations alike. docs/research/testbed.md is the format's
//! manual.

mod baseline;
mod format;
mod parse;
mod plan;
mod simulator;
mod slices;
mod values;
mod workloads;

pub use parse::ScenarioError;
pub use plan::{Choice, Combination, Plan, Step};
pub use simulator::{SimCosts, SimIdleStates, SimScheduler, Simulator};
pub use slices::HostSlice;

use format::{as_duration, as_lists, as_option, is_default};
use gleaner_model::{CpuSet, Policy, Profile, RetainMeans};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One question to real or simulated machines. Serializes to the format it was read from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Names the results: lower-case letters, digits, `-`.
    pub name: String,
    /// The question, in words.
    pub description: String,
    /// Rounds that count, 1 to 1000.
    pub rounds: u32,
    /// Rounds before them, measured and marked, but in no summary.
    pub warmup_rounds: u32,
    /// Of the order of combinations.
    pub seed: u64,
    /// Whether measured VMs run at the same time; otherwise one after the other, the rest of them paused.
    pub together: bool,
    /// From the start of the background workloads to the measured ones'.
    #[serde(serialize_with = "as_duration")]
    pub settle: Duration,
    /// How long each background workload is measured alone, in every round; 0 for not at all.
    #[serde(serialize_with = "as_duration")]
    pub solo: Duration,
    /// A run that takes longer has failed; its VM is booted again.
    #[serde(serialize_with = "as_duration")]
    pub run_timeout: Duration,
    /// A VM that is not ready by then has failed.
    #[serde(serialize_with = "as_duration")]
    pub boot_timeout: Duration,
    /// The whole scenario ends then, with what there is.
    #[serde(serialize_with = "as_duration")]
    pub total_timeout: Duration,
    /// What the VMs run on.
    pub machine: Machine,
    /// What the simulator needs to know besides; the test bed does not look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulator: Option<Simulator>,
    /// The VMs, at least one of them measured.
    #[serde(rename = "vm")]
    pub vms: Vec<Vm>,
}

/// The host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Kernel of the VMs: a series of testbed/fetch-kernel.sh.
    pub kernel: String,
    /// How vCPUs are run.
    pub accelerator: Accelerator,
    /// CPUs that all VMs together may use; `None` for all of the host's.
    #[serde(serialize_with = "as_option", skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// CPUs of the emulator's own threads (libvirt's `emulatorpin`); `None` for those of the VM's vCPUs.
    #[serde(serialize_with = "as_option", skip_serializing_if = "Option::is_none")]
    pub emulator_cpus: Option<CpuSet>,
    /// Class of the emulator's own threads (libvirt's `emulatorsched`).
    #[serde(skip_serializing_if = "EmulatorSched::is_other")]
    pub emulator_sched: EmulatorSched,
    /// Slices of vCPUs that are compared, every combination with each; empty: nobody touches the kernel's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<HostSlice>,
    /// Turns of each slice within one run of the programs; `None`: each slice has runs of its own. The test bed's
    /// alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_turn: Option<u32>,
}

/// Scheduling class of the threads of QEMU that run no vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmulatorSched {
    /// `SCHED_OTHER`. Such a thread wakes for every timer of an emulated guest, and ends the slice of the vCPU that
    /// runs there.
    #[default]
    Other,
    /// `SCHED_BATCH`: it waits for its turn.
    Batch,
}

impl EmulatorSched {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_other(&self) -> bool {
        *self == Self::Other
    }
}

/// How vCPUs are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// KVM if it can boot the scenario's kernel here, else emulation.
    #[default]
    Auto,
    /// KVM or nothing.
    Kvm,
    /// Multi-threaded emulation.
    Tcg,
}

/// One virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Vm {
    /// Unique: lower-case letters, digits, `-`.
    pub name: String,
    pub role: Role,
    /// 1 to 64.
    pub vcpus: u32,
    /// 128 to 65536.
    pub memory_mib: u32,
    /// Host CPUs of each vCPU; empty for any.
    #[serde(serialize_with = "as_lists", skip_serializing_if = "Vec::is_empty")]
    pub pin: Vec<CpuSet>,
    /// At most this many CPUs' worth of time for the whole VM; `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<f64>,
    /// More words for the kernel's command line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub append: String,
    /// A disk image with real programs, by name; `None` for busybox and Gleaner alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Kernel modules it loads at boot: `net`, `haltpoll`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Commands run once after boot, in order, each of which must end with 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Vec<String>>,
    /// The measured VM whose runs with policy `off` all of this VM's runs are compared with; `None`: its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Compared, in a measured VM; exactly one in a background VM.
    pub policies: Vec<PolicyChoice>,
    /// Alternatives, each of which is combined with every other VM's.
    pub workloads: Vec<Workload>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Its runs are results.
    #[default]
    Measured,
    /// A neighbour: its throughput meanwhile is recorded.
    Background,
}

/// A policy with what goes with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicyChoice {
    /// Unique within its VM; the policy's own name unless given. `off` is policy `off` and no other.
    pub label: String,
    /// What Gleaner may do.
    pub policy: Policy,
    /// How long an idle vCPU is kept from halting.
    #[serde(skip_serializing_if = "is_default")]
    pub profile: Profile,
    /// Where the retention time-out comes from.
    #[serde(skip_serializing_if = "is_default")]
    pub timeout: TimeoutFrom,
    /// What observing may take of one CPU, in per cent, 0.1 to 20; `None` for Gleaner's own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<f64>,
    /// What it observes with. An emulated guest pays BPF dearly: every instruction of it takes many.
    #[serde(skip_serializing_if = "is_default")]
    pub observer: Observer,
    /// By what idle vCPUs are kept awake; `None`: what Gleaner finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain: Option<RetainMeans>,
    /// A policy file (docs/guide.md), relative to the scenario's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// Which observer Gleaner uses: its option `--observer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Observer {
    /// BPF where it loads, else `/proc`.
    #[default]
    Auto,
    /// BPF or nothing.
    Bpf,
    /// `/proc` files only.
    Procfs,
}

impl Observer {
    /// As Gleaner's option has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bpf => "bpf",
            Self::Procfs => "procfs",
        }
    }
}

/// Where a retention time-out comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeoutFrom {
    /// Measured once, after boot, with no neighbour at work.
    #[default]
    Boot,
    /// The profile's own, as users have it: nothing is measured before the program starts.
    Run,
    /// Given.
    Fixed(Duration),
}

/// What a VM does.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// It idles.
    Nothing,
    /// One of `gleaner workload`.
    Program(Program),
    /// Any command that the VM has.
    Command(CommandLine),
}

/// A built-in program; what is `None` is the program's own default.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Program {
    /// Unique within its VM; the program's name unless given.
    pub label: String,
    /// Its name in `gleaner workload list`.
    pub program: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// How much it does. A neighbour goes on for as long as it is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// Computation between two synchronization points.
    #[serde(serialize_with = "format::as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Duration>,
    /// Of its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Further options, word by word.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CommandLine {
    /// Unique within its VM; the command's first word unless given.
    pub label: String,
    /// The words.
    pub command: Vec<String>,
    /// A regular expression whose first group is a figure in the command's output, above 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Which figures are better.
    #[serde(skip_serializing_if = "is_default")]
    pub better: Better,
}

/// Which values of a figure are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Transactions per second.
    #[default]
    Higher,
    /// Latency.
    Lower,
}

impl Workload {
    /// Its name in results.
    pub fn label(&self) -> &str {
        match self {
            Self::Nothing => "nothing",
            Self::Program(program) => &program.label,
            Self::Command(command) => &command.label,
        }
    }
}

impl Scenario {
    /// The VMs of a role, with their places in `vms`.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = (usize, &Vm)> {
        self.vms.iter().enumerate().filter(move |(_, vm)| vm.role == role)
    }

    /// As TOML, which [`Scenario::parse`] reads back.
    ///
    /// # Errors
    /// None in practice: every scenario can be written.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}
