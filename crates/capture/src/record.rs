//! The records of a capture: windows, decisions, events.

use gleaner_decide::guest::{GuestParams, GuestPolicy, GuestSetup};
use gleaner_model::{Burst, CpuSet, Decision, Nanos, Policy, Profile, Window};
use serde::{Deserialize, Serialize};

/// Where a segment was made, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Gleaner's version.
    pub gleaner: String,
    /// What set-ups, parameters and states of policies were recorded with: see [`policy_version`].
    pub policy_version: u32,
    pub kernel: String,
    /// The vCPUs that Gleaner could use.
    pub vcpus: CpuSet,
    /// When the recorder began, in seconds since 1970, as the machine's clock had it. Nothing is computed from it.
    pub began_unix_s: u64,
    /// The recorder's process: segments of one recorder have the same.
    pub session: String,
}

/// A group begins, or what is known of it at a segment's beginning.
#[derive(Clone, PartialEq)]
pub struct GroupRecord {
    /// Its number; with the session it is unique.
    pub group: u64,
    /// When, on the clock of decisions.
    pub at: Nanos,
    /// What people call it.
    pub name: String,
    /// How much it may do.
    pub policy: Policy,
    /// How long idle vCPUs are kept awake.
    pub profile: Profile,
    /// A [`GuestSetup`], encoded.
    pub setup: Vec<u8>,
    /// A [`GuestPolicy`], encoded, where the group is older than the segment.
    pub state: Option<Vec<u8>>,
    /// What was decided at its beginning.
    pub decisions: Vec<Decision>,
}

/// A window of a group, and what was decided by it.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowRecord {
    pub group: u64,
    /// Whether decide was told; not while another group tries something.
    pub decided: bool,
    pub window: Window,
    pub decisions: Vec<Decision>,
}

/// Threads of a group waited for a vCPU, and what was decided at once.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstRecord {
    pub group: u64,
    /// What decide was told.
    pub burst: Burst,
    pub decisions: Vec<Decision>,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// What was recorded ended, or somebody ended it.
    Stopped,
    /// The file is as long as it may be.
    Full,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A segment begins.
    Begins(Machine),
    /// A group begins, or is known.
    Group(GroupRecord),
    Window(Box<WindowRecord>),
    /// Between two windows.
    Burst(BurstRecord),
    /// A group is managed no more.
    Gone {
        group: u64,
    },
    /// What else was told, in words.
    Event {
        /// When the last window ended.
        at: Nanos,
        text: String,
    },
    /// There is no more.
    Ends(Ended),
}

impl GroupRecord {
    /// What its policy was made of; `None` where another version wrote it, or it is damaged.
    pub fn decode_setup(&self) -> Option<GuestSetup> {
        decode(&self.setup)
    }

    /// Its policy, as it was then; `None` where another version wrote it, or it is damaged.
    pub(crate) fn decode_state(&self) -> Option<GuestPolicy> {
        decode(self.state.as_ref()?)
    }
}

impl std::fmt::Debug for GroupRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupRecord").field("group", &self.group).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A number that is another one where policies are laid out in another way: then set-ups and states cannot be
/// understood. It is made of Gleaner's version, the names of all parameters and the length of a policy's state.
pub fn policy_version() -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    for parameter in GuestParams::parameters() {
        hasher.update(parameter.key.as_bytes());
        hasher.update(b"\n");
    }
    let (params, vcpus) = (GuestParams::default(), CpuSet::first(2));
    let policy = GuestPolicy::new(Policy::Full, Profile::Balanced, params, None, vcpus);
    hasher.update(&(encode(&policy).len() as u64).to_le_bytes());
    hasher.finalize()
}

/// To the last byte.
fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// As it is recorded; empty where it cannot be, which is no set-up and no state.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}
