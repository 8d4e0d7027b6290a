//! Text to [`Scenario`]: everything that can be wrong with a file is found here, with its line.

use crate::baseline::{Places, check_baselines};
use crate::format::{CpuList, Other, Time, TimeoutWord, WordOr};
use crate::simulator::RawSimulator;
use crate::values::{Wrong, identifier, time, within, word, word_of};
use crate::workloads::{RawWorkload, check_workloads};
use crate::{HostSlice, Machine, PolicyChoice, Role, Scenario, TimeoutFrom, Vm, Workload};
use gleaner_model::{CpuSet, Policy, Profile};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// What is wrong with a scenario, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The file could not be read.
    #[error("cannot read {path}: {why}; name a scenario, a TOML file you may read")]
    Unreadable {
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// It is not a scenario.
    #[error("{path}:{line}: {what}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong there, and what is allowed.
        what: String,
    },
}

/// Longer than any file that a person or a program of ours writes; what does not end (/dev/zero) ends there.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If it cannot be read or is no scenario.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        Self::parse(&Self::read_text(path)?, path)
    }

    /// The text of a file, for [`Scenario::parse`].
    ///
    /// # Errors
    /// If it cannot be read, or is far longer than any scenario.
    pub fn read_text(path: &Path) -> Result<String, ScenarioError> {
        let unreadable = |why: std::io::Error| ScenarioError::Unreadable { path: path.into(), why: why.to_string() };
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let why = format!("it is longer than {} MiB, and no scenario is", FILE_BYTES_MAX >> 20);
            return Err(ScenarioError::Unreadable { path: path.into(), why });
        }
        Ok(text)
    }

    /// Checks a text; `path` is for messages only.
    ///
    /// # Errors
    /// At the first thing that is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        let invalid = |(span, what): Wrong| {
            let before = text.get(..span.start.min(text.len())).unwrap_or(text);
            ScenarioError::Invalid { path: path.into(), line: before.matches('\n').count() + 1, what }
        };
        let raw: RawScenario = toml::from_str(text).map_err(|error| {
            let what = format!("{}; docs/research/ describes scenarios", error.message().trim());
            invalid((error.span().unwrap_or(0..0), what))
        })?;
        raw.check().map_err(invalid)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: Spanned<String>,
    description: String,
    rounds: Spanned<u32>,
    #[serde(default)]
    warmup_rounds: u32,
    #[serde(default)]
    seed: u64,
    #[serde(default = "yes")]
    together: bool,
    settle: Option<Spanned<Time>>,
    solo: Option<Spanned<Time>>,
    run_timeout: Option<Spanned<Time>>,
    boot_timeout: Option<Spanned<Time>>,
    total_timeout: Option<Spanned<Time>>,
    #[serde(default)]
    machine: RawMachine,
    simulator: Option<RawSimulator>,
    vm: Spanned<Vec<Spanned<RawVm>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMachine {
    kernel: Option<Spanned<String>>,
    accelerator: Option<Spanned<String>>,
    cpus: Option<CpuList>,
    emulator_cpus: Option<CpuList>,
    emulator_sched: Option<Spanned<String>>,
    #[serde(default)]
    slices: Vec<Spanned<String>>,
    in_turn: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVm {
    name: Spanned<String>,
    role: Spanned<String>,
    vcpus: Spanned<u32>,
    memory_mib: Option<Spanned<u32>>,
    pin: Option<Spanned<WordOr<Vec<CpuList>>>>,
    cap: Option<Spanned<f64>>,
    #[serde(default)]
    append: String,
    image: Option<Spanned<String>>,
    #[serde(default)]
    modules: Vec<Spanned<String>>,
    #[serde(default)]
    prepare: Vec<Spanned<Vec<String>>>,
    baseline: Option<Spanned<String>>,
    policy: Option<Spanned<WordOr<RawPolicy>>>,
    policies: Option<Spanned<Vec<Spanned<WordOr<RawPolicy>>>>>,
    profile: Option<Profile>,
    timeout: Option<TimeoutWord>,
    overhead: Option<Spanned<f64>>,
    observer: Option<Spanned<String>>,
    retain: Option<Spanned<String>>,
    config: Option<String>,
    workloads: Spanned<Vec<Spanned<WordOr<RawWorkload>>>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    label: Option<String>,
    policy: Spanned<String>,
    profile: Option<Profile>,
    timeout: Option<TimeoutWord>,
    overhead: Option<Spanned<f64>>,
    observer: Option<Spanned<String>>,
    retain: Option<Spanned<String>>,
    config: Option<String>,
}

impl Other for RawPolicy {
    const EXPECTED: &'static str = "a policy, or { policy = \"full\", profile = \"latency\" }";
    fn from_map<'de, M: MapAccess<'de>>(map: M) -> Result<Self, M::Error> {
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Other for Vec<CpuList> {
    const EXPECTED: &'static str = "a list of CPUs for all vCPUs, as \"0-1\", or one for each, as [\"0\", \"1\"]";
    fn from_seq<'de, A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        Self::deserialize(SeqAccessDeserializer::new(seq))
    }
}

fn yes() -> bool {
    true
}

/// Kernels that testbed/fetch-kernel.sh finds.
const KERNELS: [&str; 4] = ["6.1", "6.12", "6.18", "new"];
/// Modules that it finds for them; the disk's come with an image.
const MODULES: [&str; 2] = ["net", "haltpoll"];
/// More VMs than any figure of the papers has.
const VMS_MAX: usize = 16;
/// More in one round would be several questions.
const COMBINATIONS_MAX: usize = 500;

impl RawScenario {
    fn check(self) -> Result<Scenario, Wrong> {
        let name = identifier(&self.name)?;
        let rounds = within("rounds", &self.rounds, 1..=1000)?;
        let seconds = Duration::from_secs;
        let vms_span = self.vm.span();
        let raw_vms = self.vm.into_inner();
        if !(1..=VMS_MAX).contains(&raw_vms.len()) {
            return Err((vms_span, format!("{} VMs; must be 1 to {VMS_MAX}", raw_vms.len())));
        }
        let places: Vec<Places> = raw_vms.iter().map(places).collect();
        let vms = raw_vms.into_iter().map(|vm| vm.into_inner().check()).collect::<Result<Vec<Vm>, Wrong>>()?;
        let in_turn = self.machine.in_turn.as_ref().map(Spanned::span);
        let machine = self.machine.check()?;
        if let Some(span) = in_turn {
            check_in_turn(self.together, &vms).map_err(|what| (span, what))?;
        }
        let scenario = Scenario {
            name,
            description: self.description,
            rounds,
            warmup_rounds: self.warmup_rounds.min(1000),
            seed: self.seed,
            together: self.together,
            settle: time("settle", self.settle, Duration::from_millis(300), Duration::ZERO..=seconds(60))?,
            solo: time("solo", self.solo, seconds(1), Duration::ZERO..=seconds(600))?,
            run_timeout: time("run_timeout", self.run_timeout, seconds(120), seconds(1)..=seconds(86_400))?,
            boot_timeout: time("boot_timeout", self.boot_timeout, seconds(120), seconds(1)..=seconds(3_600))?,
            total_timeout: time("total_timeout", self.total_timeout, seconds(7_200), seconds(1)..=seconds(604_800))?,
            machine,
            simulator: self.simulator.map(RawSimulator::check).transpose()?,
            vms,
        };
        check_together(&scenario, &places)?;
        check_baselines(&scenario, &places)?;
        Ok(scenario)
    }
}

/// Where messages about a VM point at.
fn places(raw: &Spanned<RawVm>) -> Places {
    let vm = raw.get_ref();
    let policies = vm.policies.as_ref().map(Spanned::span).or_else(|| vm.policy.as_ref().map(Spanned::span));
    Places {
        vm: raw.span(),
        policies: policies.unwrap_or_else(|| raw.span()),
        baseline: vm.baseline.as_ref().map_or_else(|| raw.span(), Spanned::span),
    }
}

/// Whether slices can take turns: all programs go on at the same time, and none is compared by policy.
fn check_in_turn(together: bool, vms: &[Vm]) -> Result<(), String> {
    if !together || vms.iter().any(|vm| vm.role != Role::Measured || vm.policies.len() != 1) {
        return Err("with in_turn all VMs are measured, together, each with one policy".to_owned());
    }
    if vms.iter().flat_map(|vm| &vm.workloads).any(|workload| matches!(workload, Workload::Nothing)) {
        return Err("with in_turn \"nothing\" is no workload: each has to report its progress".to_owned());
    }
    Ok(())
}

/// What concerns several VMs.
fn check_together(scenario: &Scenario, places: &[Places]) -> Result<(), Wrong> {
    let mut names = BTreeSet::new();
    for (vm, place) in scenario.vms.iter().zip(places) {
        if !names.insert(&vm.name) {
            return Err((place.vm.clone(), format!("two VMs are called {:?}; names must differ", vm.name)));
        }
    }
    let mut measured = scenario.of_role(Role::Measured);
    let Some((_, first)) = measured.next() else {
        return Err((places[0].vm.clone(), "no VM has role = \"measured\"; one at least must".to_owned()));
    };
    if scenario.together {
        for (at, vm) in measured {
            if (vm.policies.len(), vm.workloads.len()) != (first.policies.len(), first.workloads.len()) {
                return Err((
                    places[at].vm.clone(),
                    format!(
                        "{:?} and {:?} are measured at the same time, so they must have as many policies and workloads as \
                         each other (the first goes with the first, and so on); or set together = false",
                        first.name, vm.name
                    ),
                ));
            }
        }
    }
    let combinations = crate::Plan::count(scenario);
    if combinations > COMBINATIONS_MAX {
        return Err((0..0, format!("{combinations} combinations a round; must be {COMBINATIONS_MAX} at most")));
    }
    Ok(())
}

impl RawMachine {
    fn check(self) -> Result<Machine, Wrong> {
        let kernel = match self.kernel {
            None => "6.1".to_owned(),
            Some(kernel) => word("kernel", &kernel, &KERNELS.map(|kernel| (kernel, kernel.to_owned())))?,
        };
        let accelerator = self.accelerator.map(|found| word_of("accelerator", &found)).transpose()?;
        let mut slices = Vec::new();
        for word in &self.slices {
            let slice = HostSlice::parse(word.get_ref()).map_err(|what| (word.span(), what))?;
            if slices.contains(&slice) {
                return Err((word.span(), format!("slice {slice} is there twice")));
            }
            slices.push(slice);
        }
        let cpus = self.cpus.map(|cpus| cpus.0);
        let emulator_cpus = self.emulator_cpus.map(|cpus| cpus.0);
        let class = self.emulator_sched.map(|found| word_of("emulator_sched", &found)).transpose()?;
        let (accelerator, emulator_sched) = (accelerator.unwrap_or_default(), class.unwrap_or_default());
        let in_turn = self.in_turn.map(|turns| {
            if slices.len() < 2 || slices.contains(&HostSlice::Kernel) {
                return Err((turns.span(), "in_turn compares two slices or more, none of them \"kernel\"".to_owned()));
            }
            within("in_turn", &turns, 1..=1000)
        });
        let in_turn = in_turn.transpose()?;
        Ok(Machine { kernel, accelerator, cpus, emulator_cpus, emulator_sched, slices, in_turn })
    }
}

impl RawVm {
    fn check(self) -> Result<Vm, Wrong> {
        let vcpus = within("vcpus", &self.vcpus, 1..=64)?;
        let role = word_of("role", &self.role)?;
        let memory_mib = self.memory_mib.map_or(Ok(512), |memory| within("memory_mib", &memory, 128..=65_536))?;
        let cap = self.cap.map(|cap| within("cap", &cap, 0.05..=64.0)).transpose()?;
        let image = self.image.map(|image| word("image", &image, &[("debian", "debian".to_owned())])).transpose()?;
        let modules = MODULES.map(|module| (module, module.to_owned()));
        let modules = self.modules.iter().map(|module| word("module", module, &modules)).collect::<Result<_, _>>()?;
        for command in &self.prepare {
            if command.get_ref().is_empty() {
                return Err((command.span(), "an empty command; write it like [\"sh\", \"-c\", \"...\"]".to_owned()));
            }
        }
        let defaults = RawPolicy {
            label: None,
            policy: self.role.clone(),
            profile: self.profile,
            timeout: self.timeout,
            overhead: self.overhead,
            observer: self.observer,
            retain: self.retain,
            config: self.config,
        };
        Ok(Vm {
            name: identifier(&self.name)?,
            role,
            vcpus,
            memory_mib,
            pin: self.pin.map_or(Ok(Vec::new()), |pin| check_pin(pin, vcpus))?,
            cap,
            append: self.append,
            image,
            modules,
            prepare: self.prepare.into_iter().map(Spanned::into_inner).collect(),
            baseline: self.baseline.map(Spanned::into_inner),
            policies: check_policies(role, self.policy, self.policies, &self.name, &defaults)?,
            workloads: check_workloads(self.workloads)?,
        })
    }
}

fn check_pin(pin: Spanned<WordOr<Vec<CpuList>>>, vcpus: u32) -> Result<Vec<CpuSet>, Wrong> {
    let span = pin.span();
    match pin.into_inner() {
        WordOr::Word(list) => match list.parse::<CpuSet>() {
            Ok(cpus) if !cpus.is_empty() => Ok(vec![cpus; vcpus as usize]),
            _ => Err((span, format!("pin {list:?} is no list of CPUs; write it like \"0-1,3\""))),
        },
        WordOr::Other(lists) if lists.len() == vcpus as usize => Ok(lists.into_iter().map(|list| list.0).collect()),
        WordOr::Other(lists) => Err((
            span,
            format!("pin has {} lists for {vcpus} vCPUs; give one for each, or one for all, as \"0-1\"", lists.len()),
        )),
    }
}

fn check_policies(
    role: Role,
    one: Option<Spanned<WordOr<RawPolicy>>>,
    several: Option<Spanned<Vec<Spanned<WordOr<RawPolicy>>>>>,
    vm: &Spanned<String>,
    defaults: &RawPolicy,
) -> Result<Vec<PolicyChoice>, Wrong> {
    let span = several.as_ref().map_or_else(|| one.as_ref().map_or_else(|| vm.span(), Spanned::span), Spanned::span);
    let raw = match (one, several) {
        (Some(one), None) => vec![one],
        (None, Some(several)) => several.into_inner(),
        (Some(_), Some(_)) => return Err((span, "both policy and policies; give one of them".to_owned())),
        (None, None) if role == Role::Background => vec![Spanned::new(vm.span(), WordOr::Word("off".to_owned()))],
        (None, None) => {
            return Err((span, "a measured VM needs policies, as [\"off\", \"full\"]".to_owned()));
        }
    };
    if raw.is_empty() || (role == Role::Background && raw.len() > 1) {
        let allowed = if role == Role::Background { "exactly one" } else { "at least one" };
        return Err((span, format!("{} policies; must be {allowed}", raw.len())));
    }
    let mut choices: Vec<PolicyChoice> = Vec::new();
    for raw in raw {
        let span = raw.span();
        let choice = check_policy(raw, defaults)?;
        if choices.iter().any(|other| other.label == choice.label) {
            return Err((span, format!("two policies are called {:?}; give one of them a label", choice.label)));
        }
        choices.push(choice);
    }
    Ok(choices)
}

fn check_policy(raw: Spanned<WordOr<RawPolicy>>, defaults: &RawPolicy) -> Result<PolicyChoice, Wrong> {
    let span = raw.span();
    let raw = match raw.into_inner() {
        WordOr::Word(word) => RawPolicy { policy: Spanned::new(span.clone(), word), ..defaults.clone() },
        WordOr::Other(table) => table,
    };
    let policy = word_of("policy", &raw.policy)?;
    let label = raw.label.unwrap_or_else(|| raw.policy.get_ref().clone());
    if label.is_empty() {
        return Err((span, "an empty label; leave it out or give it a name".to_owned()));
    }
    if label == "off" && policy != Policy::Off {
        let what = "the label \"off\" is policy off's, with which results are compared; give this policy another";
        return Err((span, what.to_owned()));
    }
    let timeout = raw.timeout.or(defaults.timeout);
    let overhead = raw.overhead.as_ref().or(defaults.overhead.as_ref());
    let observer = raw.observer.as_ref().or(defaults.observer.as_ref());
    let retain = raw.retain.as_ref().or(defaults.retain.as_ref());
    Ok(PolicyChoice {
        label,
        policy,
        profile: raw.profile.or(defaults.profile).unwrap_or_default(),
        timeout: timeout.map_or(TimeoutFrom::Boot, |timeout| timeout.0),
        overhead: overhead.map(|percent| within("overhead", percent, 0.1..=20.0)).transpose()?,
        observer: observer.map(|observer| word_of("observer", observer)).transpose()?.unwrap_or_default(),
        retain: retain.map(|retain| word_of("retain", retain)).transpose()?,
        config: raw.config.or_else(|| defaults.config.clone()),
    })
}
