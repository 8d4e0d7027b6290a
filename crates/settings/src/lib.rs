//! What can be set, and its one definition. A setting is a line of [`settings!`]: its name, its type, what it is, what
//! it is where nobody says, and its option.
//!
//! ```text
//!   settings!  ->  a struct of options: clap flattens it, serde reads and writes it (TOML, the control socket)
//!              ->  KEYS: the reference, and "did you mean"
//!   group      what is set of a group        machine, host   what is set of a machine, of the host agent
//!   value      types that parse themselves: times, shares, sizes, words; the one place for ranges and their words
//! ```
//!
//! A new setting is one line here, and its use.

// The macro names this crate, for others.
extern crate self as gleaner_settings;

mod counter;
mod group;
mod host;
mod machine;
mod table;
mod value;
mod words;

pub use counter::Counter;
pub use group::GroupSettings;
pub use host::{HostSettings, HostSlice};
pub use machine::MachineSettings;
pub use table::{Key, Value, optional, read_text};
pub use value::{
    AbsolutePath, Budget, CaptureSize, GroupsMax, Interval, Overhead, RetainFor, VmNames, duration_within,
    percent_within, size_within,
};
pub use words::{ObserverChoice, Profile, RetainChoice, from_word, nearest, unknown, word};
