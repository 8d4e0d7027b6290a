//! Every event of one program's threads: created, on a vCPU, off it, woken by whom. For `gleaner record`.
//!
//! `thread_events.bpf.c` says what is seen and what is not. Here: loading it, and taking what lies in its ring. Needs
//! BPF; `/proc` cannot tell who woke whom, so there is nothing to fall back to.

use crate::bpf::load::loading;
use crate::{BpfRefusal, ProcRoot};
use gleaner_bpf::{MappedArray, plain_old_data, refusal};
use gleaner_model::{Left, Nanos, ThreadEvent, ThreadHappening};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, RingBuffer, RingBufferBuilder};
use skel::ThreadEventsSkelBuilder;
use skel::types::{raw_event, recorder_state};
use std::cell::RefCell;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::rc::Rc;

#[allow(warnings, clippy::all, clippy::pedantic)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/thread_events.skel.rs"));
}

plain_old_data! {
    recorder_state { adopt, unused, born, died, lost, untracked, __pad_40 }
}

/// Of the ring between kernel and user space, bytes: some 400,000 events.
const RING_BYTES: u32 = 16 << 20;

/// What was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadEventLosses {
    /// Events that found the ring full: whoever empties it came too late.
    pub events: u64,
    /// Threads too many to know.
    pub threads: u64,
}

/// The programs in the kernel, from [`ThreadRecorder::new`] until it is dropped.
#[derive(Debug)]
pub struct ThreadRecorder {
    state: MappedArray<recorder_state>,
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<ThreadEvent>>>,
    _links: Vec<Link>,
}

impl ThreadRecorder {
    /// Loads and attaches everything; nothing is recorded until a child of this process is adopted: then it is, with
    /// all its threads and descendants.
    ///
    /// # Errors
    /// Why this kernel, user or place does not allow it.
    pub fn new() -> Result<Self, BpfRefusal> {
        loading(&ProcRoot::default(), Self::load)
    }

    fn load() -> Result<Self, BpfRefusal> {
        let refuse = |step| move |error: libbpf_rs::Error| refusal(step, &error);
        let mut storage = MaybeUninit::uninit();
        let mut open = ThreadEventsSkelBuilder::default().open(&mut storage).map_err(refuse("opening the object"))?;
        open.maps.ring.set_max_entries(RING_BYTES).map_err(refuse("sizing the maps"))?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.owner_tgid = std::process::id();
        }
        let skel = open.load().map_err(refuse("loading"))?;
        let maps = &skel.maps;
        let mapped = |what: io::Error| refusal("mapping the maps", &libbpf_rs::Error::from(what));
        let state = MappedArray::new(&maps.recorder, maps.recorder.value_size(), 1).map_err(mapped)?;
        let taken = Rc::new(RefCell::new(Vec::new()));
        let keep = Rc::clone(&taken);
        let mut builder = RingBufferBuilder::new();
        let one = move |bytes: &[u8]| {
            keep.borrow_mut().extend(read(bytes));
            0
        };
        builder.add(&maps.ring, one).map_err(refuse("mapping the ring"))?;
        let ring = builder.build().map_err(refuse("mapping the ring"))?;
        let progs = &skel.progs;
        // Interrupts first, then forks, so that nothing is missed by the others.
        let wanted = [
            &progs.on_timer_enter,
            &progs.on_timer_end,
            &progs.on_device_enter,
            &progs.on_device_end,
            &progs.on_soft_enter,
            &progs.on_soft_end,
            &progs.on_record_fork,
            &progs.on_record_exec,
            &progs.on_record_waking,
            &progs.on_record_switch,
        ];
        let links = wanted.into_iter().map(libbpf_rs::ProgramImpl::attach).collect::<Result<Vec<_>, _>>();
        Ok(Self { state, ring, taken, _links: links.map_err(refuse("attaching"))? })
    }

    /// The next child process that the owner forks is the program.
    pub fn adopt_next_child(&mut self) {
        self.state.write_field(0, offset_of!(recorder_state, adopt), 1_u32);
    }

    /// It has been forked: no other child is taken.
    pub fn adopted(&mut self) {
        self.state.write_field(0, offset_of!(recorder_state, adopt), 0_u32);
    }

    /// Takes what has happened since the last call, in the order in which it was written down.
    ///
    /// # Errors
    /// What libbpf says; not to be expected.
    pub fn take(&mut self) -> io::Result<Vec<ThreadEvent>> {
        self.ring.consume().map_err(io::Error::other)?;
        Ok(std::mem::take(&mut *self.taken.borrow_mut()))
    }

    /// What was lost so far.
    pub fn losses(&self) -> ThreadEventLosses {
        let state = self.state.read(0);
        ThreadEventLosses { events: state.lost, threads: state.untracked }
    }

    /// Recorded threads that have not ended.
    pub fn alive(&self) -> u64 {
        let state = self.state.read(0);
        state.born.saturating_sub(state.died)
    }
}

/// An event as the kernel wrote it; `None` if it is none of ours.
fn read(bytes: &[u8]) -> Option<ThreadEvent> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let other = Some(word(offset_of!(raw_event, other))?).filter(|tid| *tid != 0);
    let ran = Nanos(long(offset_of!(raw_event, ran_ns))?);
    // Numbers as in the BPF program.
    let what = match word(offset_of!(raw_event, kind))? {
        1 => ThreadHappening::Born { parent: other },
        2 => ThreadHappening::In { from_idle: false },
        3 => ThreadHappening::In { from_idle: true },
        4 => ThreadHappening::Out { ran, why: Left::Displaced },
        5 => ThreadHappening::Out { ran, why: Left::Blocked },
        6 => ThreadHappening::Out { ran, why: Left::Ended },
        7 => ThreadHappening::Woken { waker: other },
        _ => return None,
    };
    let (tid, cpu) = (word(offset_of!(raw_event, tid))?, word(offset_of!(raw_event, cpu))?);
    Some(ThreadEvent { at: Nanos(long(offset_of!(raw_event, at_ns))?), cpu, tid, what })
}
