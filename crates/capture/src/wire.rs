//! Records as they are written: what several windows have in common is written once.
//!
//! Groups of one machine see the same vCPUs. A window whose vCPUs are those of the window before, in the same frame,
//! has none.

use crate::frame::{MAGIC, VERSION};
use crate::record::{BurstRecord, Ended, GroupRecord, Machine, Record, WindowRecord};
use gleaner_model::{Burst, Decision, GroupWindow, Nanos, Policy, Profile, Source, VcpuWindow, Window};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// vCPUs that the windows of one frame have together: each window has its own copy. Far more than a recorder writes,
/// which ends a frame after 128 KiB.
const VCPUS_MAX: usize = 1 << 22;

/// A record. The order of kinds and fields is the format.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "one at a time, and most are windows")]
pub(crate) enum Wire<'a> {
    Begins(Cow<'a, Machine>),
    Group {
        group: u64,
        at: Nanos,
        name: Cow<'a, str>,
        policy: Policy,
        profile: Profile,
        setup: Vec<u8>,
        state: Option<Vec<u8>>,
        decisions: Cow<'a, [Decision]>,
    },
    Window {
        group: u64,
        decided: bool,
        at: Nanos,
        length: Nanos,
        source: Source,
        idle_entries: Option<u64>,
        halts: Option<u64>,
        of_group: Cow<'a, GroupWindow>,
        vcpus: Option<Cow<'a, [VcpuWindow]>>,
        decisions: Cow<'a, [Decision]>,
    },
    Gone {
        group: u64,
    },
    Event {
        at: Nanos,
        text: Cow<'a, str>,
    },
    Ends(Ended),
    Burst {
        group: u64,
        burst: Burst,
        decisions: Cow<'a, [Decision]>,
    },
}

/// Records that are to be one frame.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    vcpus: Vec<VcpuWindow>,
}

/// A record cannot be written.
#[derive(Debug)]
pub(crate) struct CannotEncode;

impl Block {
    pub(crate) fn begin_segment(&mut self) {
        self.bytes.extend(MAGIC);
        self.bytes.push(VERSION);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is in it; it is empty then.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.vcpus.clear();
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn add(&mut self, record: &Wire<'_>) -> Result<(), CannotEncode> {
        let begin = self.bytes.len();
        self.bytes.extend([0; 4]);
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(record, bytes).map_err(|_| CannotEncode)?;
        let length = u32::try_from(self.bytes.len() - begin - 4).map_err(|_| CannotEncode)?;
        self.bytes[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    pub(crate) fn window(
        &mut self,
        group: u64,
        decided: bool,
        window: &Window,
        decisions: &[Decision],
    ) -> Result<(), CannotEncode> {
        let as_before = !self.vcpus.is_empty() && self.vcpus == window.vcpus;
        if !as_before {
            self.vcpus.clone_from(&window.vcpus);
        }
        self.add(&Wire::Window {
            group,
            decided,
            at: window.at,
            length: window.length,
            source: window.source,
            idle_entries: window.idle_entries,
            halts: window.halts,
            of_group: Cow::Borrowed(&window.group),
            vcpus: (!as_before).then_some(Cow::Borrowed(&window.vcpus)),
            decisions: Cow::Borrowed(decisions),
        })
    }
}

/// The records of a frame, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Records {
    bytes: Vec<u8>,
    at: usize,
    vcpus: Option<Vec<VcpuWindow>>,
    copied: usize,
}

impl Records {
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0, vcpus: None, copied: 0 }
    }

    /// The next one; `None` after the last.
    pub(crate) fn next(&mut self) -> Option<Result<Record, &'static str>> {
        let wire = self.next_wire()?;
        Some(wire.and_then(|wire| self.record(wire).ok_or("its vCPUs are not there, or too many")))
    }

    fn next_wire(&mut self) -> Option<Result<Wire<'static>, &'static str>> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Some(Err("its frame ends within a length"));
        };
        let length = u32::from_le_bytes(*length) as usize;
        let Some(record) = rest.get(..length) else { return Some(Err("its frame ends within it")) };
        self.at += 4 + length;
        let Ok((wire, [])) = postcard::take_from_bytes::<Wire<'static>>(record) else {
            return Some(Err("it cannot be understood"));
        };
        Some(Ok(wire))
    }

    fn record(&mut self, wire: Wire<'static>) -> Option<Record> {
        Some(match wire {
            Wire::Begins(machine) => Record::Begins(machine.into_owned()),
            Wire::Group { group, at, name, policy, profile, setup, state, decisions } => Record::Group(GroupRecord {
                group,
                at,
                name: name.into_owned(),
                policy,
                profile,
                setup,
                state,
                decisions: decisions.into_owned(),
            }),
            Wire::Window {
                group,
                decided,
                at,
                length,
                source,
                idle_entries,
                halts,
                of_group,
                vcpus: own,
                decisions,
            } => {
                if let Some(own) = own {
                    self.vcpus = Some(own.into_owned());
                }
                self.copied += self.vcpus.as_ref().map_or(0, Vec::len);
                let vcpus = self.vcpus.as_ref().filter(|_| self.copied <= VCPUS_MAX)?.clone();
                let window = Window { at, length, source, vcpus, idle_entries, halts, group: of_group.into_owned() };
                Record::Window(Box::new(WindowRecord { group, decided, window, decisions: decisions.into_owned() }))
            }
            Wire::Gone { group } => Record::Gone { group },
            Wire::Event { at, text } => Record::Event { at, text: text.into_owned() },
            Wire::Ends(ended) => Record::Ends(ended),
            Wire::Burst { group, burst, decisions } => {
                Record::Burst(BurstRecord { group, burst, decisions: decisions.into_owned() })
            }
        })
    }
}
