//! What a group did on one CPU: what was counted, and what goes on.

use super::cpus::{Cpu, Cpus, Touched};
use super::load::Loaded;
use super::reader::{MAX_TRIES, Totals, difference, now_ns, open_exec};
use super::skel::GROUP;
use super::skel::types::{cpu_state, group_cpu, histogram};
use crate::seen::Work;
use gleaner_model::{Distribution, Nanos, VcpuId};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

/// In group_cpu.
const G_COMP: usize = 0;
const WAKE_TO_RUN: usize = 1;

/// What it had done on one CPU when that was last read.
#[derive(Clone, Debug, Default)]
struct Counted {
    closed: group_cpu,
    /// With the stint in progress.
    exec_ns: u64,
}

/// What it did on one CPU between two readings.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    pub work: Nanos,
    pub work_switches: u64,
    pub cross_wakeups: u64,
    pub voluntary: u64,
    pub involuntary: u64,
    pub g_comp: Distribution,
    pub wake_to_run: Distribution,
}

/// What was read of each group on each CPU where it has been, by the index of its counts. A slot that is let go leaves
/// it to the next group that gets it.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<usize, Box<Counted>>);

/// By slot, where each group worked.
pub(super) type Shares = BTreeMap<u32, Vec<(VcpuId, Share)>>;

impl Rows {
    /// A group gets this slot: what others counted in it before is nothing of its.
    pub fn begin(&mut self, programs: &Loaded, cpus: &Cpus, slot: u32) {
        for place in 0..cpus.places_taken() {
            let index = index(programs, slot, place);
            let known = self.0.get(&index).map_or_else(group_cpu::default, |counted| counted.closed);
            if (Counted { closed: known, exec_ns: 0 }).has_changed(programs, index) || self.0.contains_key(&index) {
                let closed: group_cpu = programs.group_cpus.read(index);
                self.0.insert(index, Box::new(Counted { closed, exec_ns: closed.exec_ns }));
            }
        }
    }

    /// What groups did where something was touched since the last call.
    pub fn advance(
        &mut self,
        programs: &Loaded,
        cpus: &Cpus,
        touched: &Touched,
        cpu_time_of: &impl Fn(u32) -> Option<u64>,
    ) -> Shares {
        let mut shares = Shares::new();
        for (slot, number) in touched.iter().filter(|(slot, _)| (*slot as usize) < programs.capacity) {
            let Some((place, cpu)) = cpus.get(*number).and_then(|cpu: &Cpu| Some((cpu.place?, cpu))) else { continue };
            let counted = self.0.entry(index(programs, *slot, place)).or_default();
            let share = counted.advance(programs, (*slot, place, *number), &cpu.totals, cpu_time_of);
            if let Ok(number) = u32::try_from(*number) {
                shares.entry(*slot).or_default().push((VcpuId(number), share));
            }
        }
        shares
    }
}

impl Counted {
    /// Reads anew; `machine` is what this CPU was last found doing.
    fn advance(
        &mut self,
        programs: &Loaded,
        (slot, place, cpu): (u32, usize, usize),
        machine: &Totals,
        cpu_time_of: &impl Fn(u32) -> Option<u64>,
    ) -> Share {
        let seq = || programs.cpus.read_field::<u64>(cpu, offset_of!(cpu_state, seq));
        let index = index(programs, slot, place);
        let mut closed = None;
        let mut open_ns = 0;
        for _ in 0..MAX_TRIES {
            let before = seq();
            if before.is_multiple_of(2) {
                fence(Ordering::Acquire);
                open_ns = if before == machine.seq() {
                    machine.open_exec_of(slot)
                } else {
                    open_exec_now(programs, slot, cpu, cpu_time_of)
                };
                closed = self.has_changed(programs, index).then(|| programs.group_cpus.read(index));
                fence(Ordering::Acquire);
                if seq() == before {
                    break;
                }
            }
            std::hint::spin_loop();
        }
        let share = closed.as_ref().map_or_else(Share::default, |closed| Share::between(&self.closed, closed));
        self.closed = closed.unwrap_or(self.closed);
        let exec_ns = self.closed.exec_ns + open_ns;
        let work = Nanos(exec_ns.saturating_sub(std::mem::replace(&mut self.exec_ns, exec_ns)));
        Share { work, ..share }
    }

    /// Whether the memory holds something else: each change is one of these.
    fn has_changed(&self, programs: &Loaded, index: usize) -> bool {
        let field = |offset: usize| programs.group_cpus.read_field::<u64>(index, offset);
        let woken = offset_of!(group_cpu, histograms) + size_of_val(&self.closed.histograms[0]);
        let woken = woken + offset_of!(histogram, sum_ns);
        field(offset_of!(group_cpu, work_switches)) != self.closed.work_switches
            || field(offset_of!(group_cpu, cross_wakeups)) != self.closed.cross_wakeups
            || field(woken) != self.closed.histograms[WAKE_TO_RUN].sum_ns
    }
}

impl Share {
    /// For a window's vCPU.
    pub fn as_work(&self) -> Work {
        Work { time: self.work, switches: self.work_switches, cross_wakeups: self.cross_wakeups }
    }

    /// All but the work, of which a part may be in progress.
    fn between(last: &group_cpu, now: &group_cpu) -> Self {
        let since = |count: fn(&group_cpu) -> u64| count(now).wrapping_sub(count(last));
        Self {
            work: Nanos::ZERO,
            work_switches: since(|of| of.work_switches),
            cross_wakeups: since(|of| of.cross_wakeups),
            voluntary: since(|of| of.voluntary),
            involuntary: since(|of| of.involuntary),
            g_comp: difference(&now.histograms[G_COMP], &last.histograms[G_COMP]),
            wake_to_run: difference(&now.histograms[WAKE_TO_RUN], &last.histograms[WAKE_TO_RUN]),
        }
    }
}

/// CPU time so far of the stint in progress, if it is the group's.
fn open_exec_now(programs: &Loaded, slot: u32, cpu: usize, cpu_time_of: &impl Fn(u32) -> Option<u64>) -> u64 {
    let word = |offset: usize| programs.cpus.read_field::<u32>(cpu, offset);
    let long = |offset: usize| programs.cpus.read_field::<u64>(cpu, offset);
    let class = word(offset_of!(cpu_state, class));
    if class != GROUP || word(offset_of!(cpu_state, group)) != slot {
        return 0;
    }
    let open = now_ns().saturating_sub(long(offset_of!(cpu_state, since_ns)));
    let (pid, exec_at_ns) = (word(offset_of!(cpu_state, pid)), long(offset_of!(cpu_state, exec_at_ns)));
    open_exec(class, open, || Some(cpu_time_of(pid)?.saturating_sub(exec_at_ns)))
}

fn index(programs: &Loaded, slot: u32, place: usize) -> usize {
    slot as usize * programs.places + place
}
