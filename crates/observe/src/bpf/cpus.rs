//! The CPUs that there are: read while they are, and where a group's counts are of each.
//!
//! More CPUs are possible than there ever are (240 on a guest of two). What is kept of a CPU, and of a group on it,
//! begins when the CPU is first there.

use super::load::Loaded;
use super::reader::{Change, Totals};
use super::skel::types::cpu_state;
use super::skel::{GROUP, GROUP_WORDS};
use gleaner_model::CpuSet;
use std::mem::offset_of;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Cpus {
    /// By number; `None`: it has not been there yet.
    read: Vec<Option<Box<Cpu>>>,
    /// Those that were there when they were last read.
    there: CpuSet,
    places_taken: u32,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Cpu {
    pub totals: Totals,
    /// What it did between the last two readings.
    pub change: Change,
    /// Its part of a group's counts; `None`: there was no room, and nothing is counted.
    pub place: Option<usize>,
}

/// Of which slot something was counted on which CPU.
pub(super) type Touched = Vec<(u32, usize)>;

impl Cpus {
    /// Reads those that are `there`, and those that were. `last_ns`: when they were read before.
    pub fn read(
        &mut self,
        programs: &Loaded,
        there: &CpuSet,
        last_ns: u64,
        cpu_time_of: &impl Fn(u32) -> Option<u64>,
    ) -> Touched {
        let mut touched = Touched::new();
        self.read.resize_with(programs.cpus.len(), || None);
        let before = std::mem::replace(&mut self.there, there.clone());
        for index in there.iter().chain(before.difference(there).iter()).map(|vcpu| vcpu.0 as usize) {
            let Some(slot) = self.read.get_mut(index) else { continue };
            let cpu = slot.get_or_insert_with(|| {
                let place = place(programs, index, &mut self.places_taken);
                let totals = Totals::not_there(programs.attached_ns, last_ns);
                Box::new(Cpu { totals, change: Change::default(), place })
            });
            cpu.change = cpu.totals.advance(&programs.cpus, index, cpu_time_of);
            take_touched(programs, index, &cpu.totals, &mut touched);
        }
        touched
    }

    /// Those that were there at one of the last two readings.
    pub fn get(&self, index: usize) -> Option<&Cpu> {
        self.read.get(index)?.as_deref()
    }

    /// How often idle tasks executed the idle instruction since the last reading.
    pub fn hlts(&self) -> u64 {
        self.there.iter().filter_map(|vcpu| self.get(vcpu.0 as usize)).map(|cpu| cpu.totals.hlts(&cpu.change)).sum()
    }

    /// Places that CPUs have got so far.
    pub fn places_taken(&self) -> usize {
        self.places_taken as usize
    }
}

/// A place of its own.
fn place(programs: &Loaded, cpu: usize, taken: &mut u32) -> Option<usize> {
    let next = *taken as usize;
    if next >= programs.places {
        return None;
    }
    *taken += 1;
    programs.cpus.write_field(cpu, offset_of!(cpu_state, place), *taken);
    Some(next)
}

/// Takes what the kernel's side says has changed; what goes on there changes too.
fn take_touched(programs: &Loaded, cpu: usize, totals: &Totals, touched: &mut Touched) {
    let goes_on = totals.group();
    let mut is_told = false;
    for word in 0..GROUP_WORDS {
        let mut bits = programs.cpus.take_bits(cpu, offset_of!(cpu_state, touched) + word * size_of::<u64>());
        while bits != 0 {
            let slot = u32::try_from(word * 64).unwrap_or(0) + bits.trailing_zeros();
            bits &= bits - 1;
            is_told |= goes_on == Some(slot);
            touched.push((slot, cpu));
        }
    }
    touched.extend(goes_on.filter(|_| !is_told).map(|slot| (slot, cpu)));
    debug_assert!(goes_on.is_none() || totals.class() == GROUP);
}
