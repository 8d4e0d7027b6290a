//! The processes that a program counts for: the map of processes.bpf.h, written as far as it changes.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Processes {
    map: MapHandle,
    known: BTreeSet<i32>,
}

impl Processes {
    pub(crate) fn new(map: MapHandle) -> Self {
        Self { map, known: BTreeSet::new() }
    }

    /// From now on these count, and no others. Those for which there is no room do not, wherever they run.
    pub(crate) fn set(&mut self, processes: &[i32]) {
        let wanted: BTreeSet<i32> = processes.iter().copied().collect();
        for pid in self.known.difference(&wanted) {
            let _ = self.map.delete(&pid.to_ne_bytes());
        }
        for pid in wanted.difference(&self.known) {
            let _ = self.map.update(&pid.to_ne_bytes(), &1_u32.to_ne_bytes(), MapFlags::ANY);
        }
        self.known = wanted;
    }
}
