//! When a program is better left alone: what Gleaner itself would take of the limits that were meant for the program,
//! and what is done where not even a process can be had.

use super::child::{Launch, LaunchError};
use super::signals::Inherited;
use gleaner_act::{CgroupRoots, own_group};
use gleaner_model::CpuSet;
use gleaner_sys::{Limit, ProcRoot, filter, memory_limit, processes_left, tasks_of_user};
use std::ffi::OsString;

/// Descriptors with which Gleaner does its work; far more than it keeps, because observing takes three a thread.
const FEWEST_FILES: u64 = 64;
/// Bytes of address space in which its threads and tables have room.
const LEAST_MEMORY: u64 = 512 << 20;
/// Bytes of a cgroup's limit of which Gleaner takes a quarter: with less, it could be what the program is killed for.
const LEAST_GROUP_MEMORY: u64 = 64 << 20;
/// Processes and threads of Gleaner's own, beside a yielding thread for each vCPU: main, the loop, the guardian, one
/// that ends old ones, and two to spare.
const OWN_TASKS: u64 = 6;
/// What a limit on processes has to leave, in times what Gleaner takes: else the program would miss it.
const TIMES_OWN_TASKS: u64 = 4;

/// The limit because of which the program runs unmanaged: Gleaner would use it up, or be ended by it. `inherited` are
/// the caller's limits; Gleaner has lifted its own by now, where that is allowed.
pub fn limit_in_the_way(inherited: &Inherited, vcpus: &CpuSet) -> Option<String> {
    let (_, seconds) = Limit::CPU.now();
    if seconds != u64::MAX {
        return Some(format!(
            "the limit on CPU time (`ulimit -t {seconds}`) would end Gleaner before the program, because it counts \
             for each process by itself; a soft limit (`ulimit -S -t`) would not"
        ));
    }
    if let Some(call) = filter::deadly().managing {
        return Some(format!(
            "the system call filter (seccomp) would end Gleaner, because it kills whoever calls `{call}`"
        ));
    }
    let (_, files) = Limit::OPEN_FILES.now();
    if files < FEWEST_FILES {
        return Some(format!("the limit of {files} open files (`ulimit -n`) is too small for Gleaner"));
    }
    if let Some(why) = too_little_memory() {
        return Some(why);
    }
    if let Some(group) = own_group(&CgroupRoots::default(), "memory")
        && let Some((bytes, file)) = memory_limit(&group.mount, &group.own)
        && bytes < LEAST_GROUP_MEMORY
    {
        return Some(format!(
            "the limit of {} MiB of memory ({}) is too small for Gleaner",
            bytes >> 20,
            file.display()
        ));
    }
    let needed = (vcpus.len() as u64 + OWN_TASKS) * TIMES_OWN_TASKS;
    let few = |left: u64, by: &str| {
        format!(
            "{by} leaves room for {left} more processes and threads, and the program would miss those that Gleaner \
             takes"
        )
    };
    if let Some(group) = own_group(&CgroupRoots::default(), "pids")
        && let Some((left, file)) = processes_left(&group.mount, &group.own)
        && left < needed
    {
        return Some(few(left, &file.display().to_string()));
    }
    let most = inherited.limits.soft(Limit::PROCESSES);
    // Nobody with the privilege to exceed it is held to it (kernel/fork.c), and root has it as a rule.
    if most == u64::MAX || rustix::process::getuid().is_root() {
        return None;
    }
    let now = tasks_of_user(&ProcRoot::default(), rustix::process::getuid().as_raw());
    let left = most.saturating_sub(now);
    (left < needed).then(|| few(left, &format!("the limit of {most} processes (`ulimit -u`)")))
}

/// The system call without which no program can be started and waited for, or whose filter ends Gleaner.
pub fn filter_in_the_way() -> Option<String> {
    let call = filter::deadly().starting.or_else(filter::in_the_way_of_waiting)?;
    Some(format!("a system call filter (seccomp) forbids `{call}`"))
}

/// Where an allocation may fail at any moment, nothing can be promised but to make way.
pub fn too_little_memory() -> Option<String> {
    let (_, bytes) = Limit::ADDRESS_SPACE.now();
    (bytes < LEAST_MEMORY)
        .then(|| format!("the limit of {} MiB of address space (`ulimit -v`) is too small for Gleaner", bytes >> 20))
}

/// Makes way for the program: this process becomes it. Returns only if it cannot be executed.
pub fn make_way(command: &[OsString], inherited: Inherited, why: &str) -> LaunchError {
    gleaner_command::output::say(&format!(
        "gleaner: the program runs unmanaged and in Gleaner's place, without a summary: {why}"
    ));
    Launch::new(command, inherited).become_it()
}
