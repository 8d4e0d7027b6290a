//! `gleaner.xen-slice/1`: what a cpupool was set to on a Xen host.

use crate::show::{Document, Part, Shown, bad, line};
use crate::text::time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a cpupool is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct XenPoolTimes {
    /// How long a vCPU may run while others wait; null under credit2.
    pub slice_ns: Option<u64>,
    /// How long it runs at least before a waking one may take its place; 0: no limit.
    pub ratelimit_ns: u64,
}

/// `slice 1.00ms, ratelimit 500us`.
impl fmt::Display for XenPoolTimes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.slice_ns.map_or(Ok(()), |slice| write!(f, "slice {}, ", time(slice)))?;
        let limit = if self.ratelimit_ns == 0 { "none".to_owned() } else { time(self.ratelimit_ns) };
        write!(f, "ratelimit {limit}")
    }
}

/// What `gleaner host run` set on a Xen host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct XenSliceReport {
    pub schema: String,
    pub pool: String,
    /// Xen's name for who schedules there, and so enforces it: `credit`, `credit2`.
    pub scheduler: String,
    pub was: XenPoolTimes,
    /// What was set and read back; nothing was changed where it is the same.
    pub set: XenPoolTimes,
    /// How long it stayed so.
    pub held_ns: u64,
    /// Whether all was put back, or somebody else's later word left in force.
    pub restored: bool,
}

impl Shown for XenSliceReport {
    fn document(&self) -> Document {
        let mut document = Document::new("The Xen host's slice");
        let Self { pool, scheduler, was, set, .. } = self;
        document.both(line(format!("cpupool {pool} ({scheduler}): {set}; it was {was}")));
        let held = time(self.held_ns);
        document.both(match (was == set, self.restored) {
            (true, _) => line("Nothing was changed: it was set so already."),
            (_, true) => line(format!("Set, read back, kept for {held} and put back.")),
            (_, false) => bad(format!("Set, read back, kept for {held} and NOT put back: run `gleaner restore`.")),
        });
        let unmeasured =
            "Xen enforces this itself and does not tell dom0 how long vCPUs ran at a time, so nothing was measured.";
        document.both(Part::Note(unmeasured.to_owned()));
        document
    }
}
