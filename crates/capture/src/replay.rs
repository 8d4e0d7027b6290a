//! The recorded windows, told to the very same policy: does it decide what it had decided, and what with other
//! parameters?
//!
//! With other parameters this says which decisions would have differed on the same windows. It does not say what the
//! program would have done then: its windows would have been others.

use crate::record::{GroupRecord, Record, encode, policy_version};
use gleaner_decide::ParamError;
use gleaner_decide::guest::{GuestParams, GuestPolicy};
use gleaner_model::{Decision, Nanos, Policy, Profile, Window};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Other parameters, made of those recorded.
pub type Change<'a> = dyn Fn(&GuestParams) -> Result<GuestParams, ParamError> + 'a;

/// Differences that are kept of a group.
const DIFFERENCES_MAX: usize = 20;

/// Groups at a time with a policy of their own; the daemon manages 1,000 at most.
const RUNNING_MAX: usize = 10_000;
/// Bytes that are kept to be told at the end: those of groups and of differences.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Why a file cannot be replayed, although it can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Another version's policy is another policy.
    #[error("gleaner {gleaner} recorded it, whose policy is another one; `gleaner dump` still reads it")]
    Policy {
        /// Who recorded it.
        gleaner: String,
    },
    /// A small file may tell of more groups than memory holds.
    #[error("it tells of more groups than any recording has, and is not replayed")]
    TooMuch,
    /// With what was recorded the changed parameters are not allowed.
    #[error("{0}")]
    Params(#[from] ParamError),
}

/// One window on which the decisions differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// When it ended.
    pub at: Nanos,
    /// Its number among the windows of the group that decide was told, from 1; 0: at its beginning.
    pub window: u64,
    /// What was decided.
    pub recorded: Vec<Decision>,
    /// What is decided now.
    pub replayed: Vec<Decision>,
}

/// What came of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupOutcome {
    pub name: String,
    /// What it was allowed.
    pub policy: Policy,
    /// How long idle vCPUs are kept awake.
    pub profile: Profile,
    pub windows: u64,
    /// Windows that could not be: the file does not tell how the policy stood.
    pub skipped: u64,
    /// Windows on which decisions differ.
    pub differing: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    /// By action: how often it was recorded, and how often it is decided now.
    pub actions: BTreeMap<&'static str, (u64, u64)>,
    /// Whether decide failed on what the file says, which no true recording makes it do.
    pub failed: bool,
}

/// A group on its way.
#[derive(Debug)]
struct Running {
    /// `None` where what was before is not known.
    policy: Option<GuestPolicy>,
    outcome: usize,
}

/// Replays a capture, record by record.
pub struct Replay<'a> {
    change: Option<&'a Change<'a>>,
    session: String,
    running: BTreeMap<u64, Running>,
    outcomes: Vec<GroupOutcome>,
    /// Bytes of these, about.
    kept: usize,
}

impl<'a> Replay<'a> {
    /// `change`: with other parameters than those recorded.
    pub fn new(change: Option<&'a Change<'a>>) -> Self {
        Self { change, session: String::new(), running: BTreeMap::new(), outcomes: Vec::new(), kept: 0 }
    }

    /// What came of each group, in the order in which they began.
    pub fn outcomes(self) -> Vec<GroupOutcome> {
        self.outcomes
    }

    /// The next record of the file.
    pub fn feed(&mut self, record: &Record) -> Result<(), ReplayError> {
        match record {
            Record::Begins(machine) => {
                if machine.policy_version != policy_version() {
                    return Err(ReplayError::Policy { gleaner: machine.gleaner.clone() });
                }
                if machine.session != self.session {
                    self.session.clone_from(&machine.session);
                    self.running.clear();
                }
            }
            Record::Group(group) => self.group(group)?,
            Record::Window(of) if of.decided => self.window(of.group, &of.window, &of.decisions),
            Record::Burst(of) => {
                self.decide(of.group, of.burst.at, &of.decisions, 0, |policy| policy.burst(&of.burst));
            }
            Record::Gone { group } => drop(self.running.remove(group)),
            Record::Window(_) | Record::Event { .. } | Record::Ends(_) => {}
        }
        let is_too_much = self.kept > KEPT_BYTES_MAX || self.running.len() > RUNNING_MAX;
        if is_too_much { Err(ReplayError::TooMuch) } else { Ok(()) }
    }

    fn changed(&self, params: &GuestParams) -> Result<GuestParams, ParamError> {
        self.change.map_or_else(|| Ok(params.clone()), |change| change(params))
    }

    fn group(&mut self, record: &GroupRecord) -> Result<(), ParamError> {
        let known = self.running.get(&record.group);
        if record.state.is_some() && known.is_some_and(|group| group.policy.is_some()) {
            // It goes on: with other parameters its state is another than the one recorded.
            return Ok(());
        }
        let outcome = known.map_or(self.outcomes.len(), |group| group.outcome);
        if outcome == self.outcomes.len() {
            self.kept += size_of::<GroupOutcome>() + record.name.len();
            self.outcomes.push(GroupOutcome {
                name: record.name.clone(),
                policy: record.policy,
                profile: record.profile,
                windows: 0,
                skipped: 0,
                differing: 0,
                differences: Vec::new(),
                actions: BTreeMap::new(),
                failed: false,
            });
        }
        let setup = record.decode_setup().filter(|setup| setup.params.validate().is_ok());
        let params = setup.as_ref().map(|setup| self.changed(&setup.params)).transpose()?;
        let (mut policy, mut begun) = (None, Vec::new());
        if let (Some(mut setup), Some(params)) = (setup, params) {
            if record.state.is_none() || self.change.is_some() {
                // With other parameters a group that is older than the file begins with it.
                setup.params = params;
                let mut new = GuestPolicy::of(setup);
                begun = new.begin();
                for decision in &mut begun {
                    decision.at = record.at;
                }
                policy = Some(new);
            } else {
                policy = record.decode_state();
            }
        }
        if policy.is_some() && record.state.is_none() {
            self.kept += self.outcomes[outcome].compare(record.at, &record.decisions, &begun);
        }
        self.running.insert(record.group, Running { policy, outcome });
        Ok(())
    }

    fn window(&mut self, group: u64, window: &Window, recorded: &[Decision]) {
        self.decide(group, window.at, recorded, 1, |policy| policy.step(window));
    }

    /// The same that was told then, in so many windows.
    fn decide(
        &mut self,
        group: u64,
        at: Nanos,
        recorded: &[Decision],
        windows: u64,
        tell: impl FnOnce(&mut GuestPolicy) -> Vec<Decision>,
    ) {
        let Some(group) = self.running.get_mut(&group) else { return };
        let outcome = &mut self.outcomes[group.outcome];
        let Some(policy) = &mut group.policy else {
            outcome.skipped += 1;
            return;
        };
        // A state that was made up may be one that no policy is ever in.
        if let Ok(replayed) = catch_unwind(AssertUnwindSafe(|| tell(policy))) {
            outcome.windows += windows;
            self.kept += outcome.compare(at, recorded, &replayed);
        } else {
            outcome.failed = true;
            group.policy = None;
        }
    }
}

impl GroupOutcome {
    /// Whether every window was replayed, and every decision the same, to the last byte.
    pub fn is_identical(&self) -> bool {
        self.differing == 0 && self.skipped == 0 && !self.failed
    }

    /// How many bytes are kept of it.
    fn compare(&mut self, at: Nanos, recorded: &[Decision], replayed: &[Decision]) -> usize {
        for decision in recorded {
            self.actions.entry(decision.action.name()).or_default().0 += 1;
        }
        for decision in replayed {
            self.actions.entry(decision.action.name()).or_default().1 += 1;
        }
        // Bytes: what is not a number is the same as itself.
        if encode(&recorded) == encode(&replayed) {
            return 0;
        }
        self.differing += 1;
        if self.differences.len() >= DIFFERENCES_MAX {
            return 0;
        }
        let (recorded, replayed) = (recorded.to_vec(), replayed.to_vec());
        let bytes = size_of::<Difference>() + (recorded.len() + replayed.len()) * size_of::<Decision>();
        self.differences.push(Difference { at, window: self.windows, recorded, replayed });
        bytes
    }
}
