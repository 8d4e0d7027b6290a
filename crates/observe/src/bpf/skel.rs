//! What the build makes of `gleaner.bpf.c`: its structs and maps in Rust, and its constants beside them.

use gleaner_bpf::plain_old_data;

#[allow(warnings, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/gleaner.skel.rs"));
}

pub(super) use generated::*;

use types::{cpu_state, group_cpu, group_state, histogram, shared_state, thread_state};

plain_old_data! {
    histogram { sum_ns, count, buckets, unused }
    cpu_state {
        yield_pid, armed, seq, since_ns, exec_at_ns, class, pid, group, woken_pid, place, unused,
        idle_since_ns, comp_ns, halted_ns, yield_ns, idle_entries, halts, yield_switches, yield_nvcsw, interrupts,
        touched, histograms,
    }
    group_cpu {
        exec_ns, work_switches, cross_wakeups, voluntary, involuntary, histograms, __pad_2568,
    }
    shared_state { cgroups, unused, moved, untracked, __pad_24 }
    group_state {
        kind, watched, born, died, execs, epoch, reported, after_ns, delay_ns, runnable, since_ns, burst_at_ns,
        burst_runnable, burst_lasted_ns, burst_delay_ns, __pad_104,
    }
    thread_state {
        waking_ns, comp_ns, exec_ns, nvcsw, waker_cpu, group, by_interrupt, unused, counted,
    }
}

/// Groups at most, as in gleaner.bpf.c.
pub(super) const MAX_GROUPS: usize = 256;
/// What a CPU's bits of groups take.
pub(super) const GROUP_WORDS: usize = MAX_GROUPS / 64;

// Task classes, as in gleaner.bpf.c.
#[cfg(test)]
pub(super) const UNKNOWN: u32 = 0;
pub(super) const IDLE: u32 = 1;
pub(super) const YIELDING: u32 = 2;
pub(super) const GROUP: u32 = 3;
#[cfg(test)]
pub(super) const OTHER: u32 = 4;
// Kinds of groups there.
pub(super) const FREE: u32 = 0;
pub(super) const TREE: u32 = 1;
pub(super) const CGROUP: u32 = 2;

/// A process or thread id as the BPF side has it; 0, which no thread has, for what is none.
pub(super) fn kernel_pid(pid: i32) -> u32 {
    u32::try_from(pid).unwrap_or(0)
}
