//! The events of a runtime, typed: a line of text, a log and a live view are made of the same.

use crate::GroupId;
use gleaner_act::Fallback;
use gleaner_model::{Decision, Nanos, VcpuId};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Something that happened. [`fmt::Display`] says it in plain words.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// What a killed run left behind could not be undone; its journal was kept.
    JournalKept { journal: PathBuf, why: String },
    /// Not everything that this process changed could be undone.
    NotUndone { why: String },
    /// A decision that is carried out; in a dry run: that would be.
    Decided {
        group: GroupId,
        /// What, and why.
        decision: Decision,
    },
    /// Something is weaker than it might be.
    Warned(Warning),
}

/// Who is told of each event at once.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// Something that is weaker than it might be, and other things to know. [`fmt::Display`] says it in plain words.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// There is no journal, so nothing may be changed.
    OnlyObserved { why: String },
    /// There is no guardian process.
    Unguarded { why: String },
    /// The guardian process had to be replaced.
    GuardianReplaced,
    /// The guardian process died, and there is no other.
    GuardianLost,
    /// A weaker means took the place of a better one.
    Weaker(Fallback),
    /// Another means of retention is used than was asked for, or none.
    Retention(String),
    /// BPF was refused.
    NoDistributions { why: String },
    /// What a program counts cannot be read.
    NoProgress { why: String },
    /// A group could not be moved to other vCPUs.
    NotMoved { why: String },
    /// A vCPU is not retained.
    NotRetained { vcpu: VcpuId, why: String },
    /// No vCPU is retained any more, because somebody else has set what had been set.
    RetentionEnded { why: String },
    /// Interrupts could not be moved, or not back.
    InterruptsStay { why: String },
    /// A sched_ext scheduler decides where threads run.
    LeftToSchedExt {
        /// Its name.
        scheduler: String,
    },
    /// The kernel was told never to halt.
    NeverHalts,
    /// Windows and decisions are recorded no more.
    NotRecorded { why: String },
    /// The first window began after the program.
    ObservedLate { why: String },
    /// Nothing is known of a window.
    WindowLost { why: String },
    /// Groups switch so often that BPF would slow them down: `/proc` is read instead.
    LeftBpf {
        /// When, on the clock of [`gleaner_model::Window::at`].
        at: Nanos,
        /// Context switches a second.
        switches_per_s: f64,
    },
    /// The same, and `/proc` cannot be read.
    StaysWithBpf {
        /// Context switches a second.
        switches_per_s: f64,
        why: String,
    },
    /// More groups than BPF has room for: `/proc` is read instead.
    TooManyForBpf {
        /// When, on the clock of [`gleaner_model::Window::at`].
        at: Nanos,
    },
    /// The same, and `/proc` cannot be read.
    NoRoom { why: String },
    /// So many threads that reading their files costs more than BPF does, which sees the groups from now on.
    TookBpf {
        /// When, on the clock of [`gleaner_model::Window::at`].
        at: Nanos,
        /// How many.
        threads: u64,
    },
    /// The same, and BPF is refused.
    StaysWithProcfs {
        /// How many.
        threads: u64,
        why: String,
    },
    /// More threads than an observer follows.
    Untracked {
        /// How many too many.
        threads: u64,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JournalKept { journal, why } => write!(f, "{}: {why}", journal.display()),
            Self::NotUndone { why } => {
                write!(f, "not everything could be undone ({why}): run `gleaner restore`")
            }
            Self::Decided { decision, .. } => {
                let name = decision.action.name();
                let vcpu = decision.action.vcpu().map(|vcpu| format!(" {vcpu}")).unwrap_or_default();
                write!(f, "{name}{vcpu}: {}", decision.reason)
            }
            Self::Warned(warning) => warning.fmt(f),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyObserved { why } => write!(f, "nothing is changed, only observed: {why}"),
            Self::Unguarded { why } => {
                write!(f, "no guardian process ({why}): after a kill -9, `gleaner restore` has to be run by hand")
            }
            Self::GuardianReplaced => write!(f, "the guardian process died and was replaced"),
            Self::GuardianLost => {
                write!(f, "the guardian process died and cannot be replaced: after a kill -9, run `gleaner restore`")
            }
            Self::Weaker(fallback) => fallback.fmt(f),
            Self::Retention(text) => f.write_str(text),
            Self::NoDistributions { why } => {
                write!(f, "observing through /proc, which sees means but no distributions: {why}")
            }
            Self::NotMoved { why } => write!(f, "the program could not be moved: {why}"),
            Self::NotRetained { vcpu, why } => write!(f, "{vcpu} halts as without Gleaner: {why}"),
            Self::RetentionEnded { why } => write!(f, "no vCPU is kept awake any more: {why}"),
            Self::InterruptsStay { why } => write!(f, "interrupts stay where they are: {why}"),
            Self::LeftToSchedExt { scheduler } => write!(
                f,
                "the sched_ext scheduler {scheduler} decides where threads run: nothing is packed, and no yielding thread \
                 is used"
            ),
            Self::NeverHalts => write!(f, "idle vCPUs never halt here (idle=poll): none is kept awake"),
            Self::NotRecorded { why } => write!(f, "recording has stopped, and nothing else: {why}"),
            Self::ObservedLate { why } => write!(f, "observing began late: {why}"),
            Self::NoProgress { why } => {
                write!(f, "hand-overs say what pays, because there is no progress figure: {why}")
            }
            Self::WindowLost { why } => write!(f, "a window was lost: {why}"),
            Self::LeftBpf { at, switches_per_s } => write!(
                f,
                "after {at} observing went over to /proc: {switches_per_s:.0} switches a second, which BPF would slow down"
            ),
            Self::StaysWithBpf { switches_per_s, why } => {
                write!(f, "observing stays with BPF, which slows {switches_per_s:.0} switches a second: {why}")
            }
            Self::TooManyForBpf { at } => {
                write!(f, "after {at} observing went over to /proc: there are more groups than BPF has room for")
            }
            Self::NoRoom { why } => write!(f, "BPF has no room for another group, and stays: {why}"),
            Self::TookBpf { at, threads } => {
                write!(f, "after {at} observing went over to BPF: reading /proc for {threads} threads would cost more")
            }
            Self::StaysWithProcfs { threads, why } => {
                let why: String = why.chars().take(300).collect();
                write!(f, "observing {threads} threads stays with /proc, which is dear: BPF is refused: {why}")
            }
            Self::Untracked { threads } => {
                write!(f, "{threads} threads were too many to follow: they are missing in all figures")
            }
        }
    }
}
