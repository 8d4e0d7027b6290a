//! Who wakes whom among a few processes, for as long as somebody asks.
//!
//! `waking.bpf.c` says how. While this is loaded every wake-up of the machine costs some 50 ns more, and one between
//! threads that count some 150: so it is loaded for a few windows alone.

use crate::BpfRefusal;
use crate::bpf::load::loading;
use crate::bpf::processes::Processes;
use gleaner_bpf::refusal;
use gleaner_sys::ProcRoot;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramInput};
use skel::WakingSkelBuilder;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;

#[allow(warnings, clippy::all, clippy::pedantic)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/waking.skel.rs"));
}

/// Pairs at most, as in waking.bpf.c.
const PAIRS: usize = 1024;

/// The program in the kernel, from [`WakeCounter::open`] until this is retired.
#[derive(Debug)]
pub struct WakeCounter {
    pairs: MapHandle,
    processes: Processes,
    last: BTreeMap<(i32, i32), u64>,
    _link: Link,
}

impl WakeCounter {
    /// Loads and attaches it. Nobody's wake-ups count before [`Self::follow`].
    ///
    /// # Errors
    /// Why this kernel, user or place does not allow it.
    pub fn open(root: &ProcRoot) -> Result<Self, BpfRefusal> {
        loading(root, Self::load)
    }

    fn load() -> Result<Self, BpfRefusal> {
        let refuse = |step| move |error: libbpf_rs::Error| refusal(step, &error);
        let mut storage = MaybeUninit::uninit();
        let open = WakingSkelBuilder::default().open(&mut storage).map_err(refuse("opening the object"))?;
        let mut skel = open.load().map_err(refuse("loading"))?;
        skel.progs.learn.test_run(ProgramInput::default()).map_err(refuse("reading a task"))?;
        let unknown = || refusal("finding ids in a task", &libbpf_rs::Error::from_raw_os_error(libc::ENOENT));
        let seen = skel.maps.bss_data.as_deref_mut().ok_or_else(unknown)?;
        seen.ids_at = ids_in(&seen.task, seen.own.pid, seen.own.tgid).ok_or_else(unknown)?;
        let keep = |map| MapHandle::try_from(map).map_err(refuse("keeping a map"));
        let (pairs, processes) = (keep(&skel.maps.pairs)?, keep(&skel.maps.processes).map(Processes::new)?);
        let link = libbpf_rs::ProgramImpl::attach(&skel.progs.on_waking).map_err(refuse("attaching"))?;
        Ok(Self { pairs, processes, last: BTreeMap::new(), _link: link })
    }

    /// From now on wake-ups among these processes count, and no others.
    pub fn follow(&mut self, processes: &[i32]) {
        self.processes.set(processes);
    }

    /// How often the first thread woke the second, since this was asked last.
    pub fn since_last(&mut self) -> BTreeMap<(i32, i32), u64> {
        let id = |bytes: &[u8]| bytes.try_into().map(i32::from_ne_bytes).ok();
        let mut now = BTreeMap::new();
        for key in self.pairs.keys().take(PAIRS) {
            let Ok(Some(count)) = self.pairs.lookup(&key, MapFlags::ANY) else { continue };
            let Some((waker, woken)) = key.split_at_checked(4) else { continue };
            if let (Some(waker), Some(woken), Ok(count)) = (id(waker), id(woken), count.as_slice().try_into()) {
                now.insert((waker, woken), u64::from_ne_bytes(count));
            }
        }
        let last = std::mem::replace(&mut self.last, now);
        // An entry that was displaced meanwhile begins at 0 again.
        let since = |(pair, wakes): (&(i32, i32), &u64)| {
            let before = last.get(pair).filter(|before| *before <= wakes).unwrap_or(&0);
            (wakes > before).then_some((*pair, wakes - before))
        };
        self.last.iter().filter_map(since).collect()
    }

    /// Ends it without waiting for it: see [`crate::Observer::retire`].
    pub fn retire(self) {
        gleaner_sys::drop_aside(self);
    }
}

/// Where in a task its ids stand: the thread's, and right behind it the process's. `None` where that is not clear.
fn ids_in(task: &[u8], pid: u32, tgid: u32) -> Option<u32> {
    let ids = [pid.to_ne_bytes(), tgid.to_ne_bytes()].concat();
    let mut found = (0..task.len()).step_by(4).filter(|at| task[*at..].starts_with(&ids));
    let at = found.next().filter(|_| found.next().is_none());
    at.and_then(|at| u32::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn ids_are_found_where_they_stand_once() {
        let mut task = vec![0_u8; 64];
        assert_eq!(ids_in(&task, 7, 5), None);
        task[20..28].copy_from_slice(&[7_u32.to_ne_bytes(), 5_u32.to_ne_bytes()].concat());
        assert_eq!(ids_in(&task, 7, 5), Some(20));
        task[40..48].copy_from_slice(&[7_u32.to_ne_bytes(), 5_u32.to_ne_bytes()].concat());
        assert_eq!(ids_in(&task, 7, 5), None, "twice");
    }

    /// Two threads hand something to and fro; a third only sleeps.
    #[test]
    fn this_machine_tells_who_wakes_whom() {
        let mut counter = match WakeCounter::open(&ProcRoot::default()) {
            Ok(counter) => counter,
            Err(refusal) => gleaner_testing::skip!("no BPF here: {refusal}"),
        };
        counter.follow(&[i32::try_from(std::process::id()).unwrap()]);
        let tid = || rustix::thread::gettid().as_raw_nonzero().get();
        let (to, at_other) = channel::<u32>();
        let (back, at_first) = channel();
        let other = std::thread::spawn(move || {
            for item in &at_other {
                back.send(item).unwrap();
            }
            tid()
        });
        let first = std::thread::spawn(move || {
            for item in 0..500 {
                to.send(item).unwrap();
                at_first.recv().unwrap();
            }
            tid()
        });
        let (first, other) = (first.join().unwrap(), other.join().unwrap());
        let wakes = counter.since_last();
        let between = [(first, other), (other, first)].map(|pair| wakes.get(&pair).copied().unwrap_or(0));
        assert!(between.iter().all(|wakes| *wakes > 100), "{between:?} of {wakes:?}");
        assert_eq!(counter.since_last().get(&(first, other)), None, "told once");
    }
}
