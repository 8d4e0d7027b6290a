//! What a changed workload looks like in each window from then on, and how soon it has to be seen where nothing of ours
//! comes with it. What holds where a step, a look or a trial does is in `tests/changes.rs`.

use gleaner_decide::guest::GuestPolicy;
use gleaner_model::{CpuSet, Nanos, Window};

/// A change of the workload.
pub struct Change {
    pub name: &'static str,
    /// Within how many windows it must have given everything back: one where it is seen at once, three where the median
    /// of three has to move.
    pub windows: usize,
    /// Whether it may be taken for the doing of a step, or of a look or trial, that it comes with.
    pub may_be_missed: bool,
    pub apply: fn(&mut Window, &CpuSet),
}

/// A step that comes in a change's first window (1) has to settle (3) and be judged (3); a step back as well (6).
pub const WITH_A_STEP: usize = 13;
/// A trial: eight blocks of two windows. Then what is measured settles (3), and is seen (3).
pub const WITH_A_TRIAL: usize = 22;
/// If the group computes no more than before, it is our own steps that are taken back, one after the other, on three
/// vCPUs: each has to settle (3) and be seen (3), and may come in the window of another step (1).
pub const STEP_BY_STEP: usize = 3 * 7;

const fn change(name: &'static str, windows: usize, apply: fn(&mut Window, &CpuSet)) -> Change {
    Change { name, windows, may_be_missed: false, apply }
}

const fn change_that_may_be_missed(name: &'static str, windows: usize, apply: fn(&mut Window, &CpuSet)) -> Change {
    Change { name, windows, may_be_missed: true, apply }
}

pub const CHANGES: [Change; 5] = [
    change("exec", 1, |window, _| window.group.execs = Some(1)),
    change("thread burst", 1, |window, _| window.group.new_threads = 1_000_000),
    change_that_may_be_missed("CPU use up", 3, |window, _| scale(window, (3, 2), (3, 2))),
    change_that_may_be_missed("CPU use down", 3, |window, _| scale(window, (1, 2), (1, 2))),
    // It stays where the group is no slower than before the last step.
    change_that_may_be_missed("a full vCPU", STEP_BY_STEP, |window, active| {
        let lowest = active.iter().next();
        let length = window.length;
        for vcpu in window.vcpus.iter_mut().filter(|vcpu| Some(vcpu.id) == lowest) {
            (vcpu.busy, vcpu.halted) = (Nanos(length.0 / 100 * 97), Nanos(length.0 / 100 * 3));
        }
    }),
];

/// The group's CPU time and its switches, each times a fraction.
fn scale(window: &mut Window, cpu: (u64, u64), switches: (u64, u64)) {
    window.group.cpu_time = Nanos(window.group.cpu_time.0 * cpu.0 / cpu.1);
    window.group.voluntary_switches = window.group.voluntary_switches * switches.0 / switches.1;
}

/// Whether everything was given back and nothing that was learnt is left.
pub fn all_given_back(policy: &GuestPolicy) -> bool {
    let found = policy.explain();
    let forgotten = (found.load_factor, found.granularity_factor) == (1.0, 1.0);
    found.active.len() == found.vcpus && forgotten
}
