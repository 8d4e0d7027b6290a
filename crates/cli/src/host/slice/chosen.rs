//! Finds the threads that `gleaner host slice` is to act on.

use super::args::SliceArgs;
use crate::host::list::{self, Wanted};
use gleaner_act::{ThreadAttr, thread_attr};
use gleaner_command::failure::Failure;
use gleaner_model::printable;
use gleaner_observe::{PassedOver, ProcRoot, Vm, discover, thread_stat};

/// A thread that is to get a slice.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub tid: i32,
    pub name: String,
    pub vm: Option<String>,
    pub vcpu: Option<u32>,
    /// What it is before anything is changed.
    pub attr: ThreadAttr,
}

/// The threads meant, each there a moment ago and of a class that has slices, and the VMs that were named. Nothing is
/// changed if one is not.
pub fn choose(args: &SliceArgs, passed_over: &PassedOver) -> Result<(Vec<Chosen>, Wanted), Failure> {
    let (mut found, wanted) =
        if args.tid.is_empty() { of_vms(args, passed_over)? } else { (of_tids(&args.tid)?, Wanted::default()) };
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|thread| seen.insert(thread.tid));
    for thread in &found {
        if !thread.attr.is_fair() {
            return Err(Failure::input(format!(
                "thread {} ({}) is a real-time or deadline thread, and those have no slices; leave it out",
                thread.tid, thread.name
            )));
        }
    }
    Ok((found, wanted))
}

/// The vCPU threads of the named VMs now; none where threads were named. What is gone or has no slice is left out.
pub fn look_again(args: &SliceArgs, passed_over: &PassedOver, wanted: &mut Wanted) -> Vec<Chosen> {
    if !args.tid.is_empty() {
        return Vec::new();
    }
    let root = ProcRoot::default();
    let Ok(found) = discover(&root, passed_over) else { return Vec::new() };
    let wanted = wanted.among(&root, found);
    let mut threads: Vec<Chosen> = wanted.iter().flat_map(vcpus_of).filter(|thread| thread.attr.is_fair()).collect();
    let mut seen = std::collections::BTreeSet::new();
    threads.retain(|thread| seen.insert(thread.tid));
    threads
}

fn of_tids(tids: &[i32]) -> Result<Vec<Chosen>, Failure> {
    let one = |tid: &i32| {
        let ended = thread_stat(&ProcRoot::default(), *tid, *tid).ok().flatten().is_some_and(|stat| stat.is_dead());
        let attr = thread_attr(*tid).ok().filter(|_| !ended).ok_or_else(|| {
            Failure::input(format!(
                "there is no thread {tid}, or it has ended; `ls /proc/PID/task` names a process's threads, `gleaner \
                 host list` those of VMs"
            ))
        })?;
        Ok(Chosen { tid: *tid, name: name_of(*tid), vm: None, vcpu: None, attr })
    };
    tids.iter().map(one).collect()
}

fn name_of(tid: i32) -> String {
    let name = std::fs::read(format!("/proc/{tid}/task/{tid}/comm")).unwrap_or_default();
    printable(name.strip_suffix(b"\n").unwrap_or(&name))
}

fn of_vms(args: &SliceArgs, passed_over: &PassedOver) -> Result<(Vec<Chosen>, Wanted), Failure> {
    let root = ProcRoot::default();
    let vms = list::chosen(&root, &args.vm, passed_over)?;
    if vms.is_empty() {
        return Err(Failure::work(
            "no VM runs here; `gleaner host list` says what is looked for, and --tid takes threads of any program",
        ));
    }
    let mut found = Vec::new();
    for vm in &vms {
        let vcpus = vcpus_of(vm);
        if vcpus.is_empty() && !args.all {
            return Err(Failure::input(format!("{}; or name its threads with --tid", list::no_vcpus(vm))));
        }
        found.extend(vcpus);
    }
    if found.is_empty() {
        return Err(Failure::work("no vCPU thread of any VM is to be found: `gleaner host list` says why"));
    }
    Ok((found, Wanted::begin(&root, &args.vm, &vms)))
}

/// Those that are still there.
fn vcpus_of(vm: &Vm) -> Vec<Chosen> {
    let one = |vcpu: &gleaner_observe::VcpuThread| {
        let attr = thread_attr(vcpu.tid).ok()?;
        let (name, index) = (vcpu.name.clone(), Some(vcpu.index));
        Some(Chosen { tid: vcpu.tid, name, vm: Some(vm.name.clone()), vcpu: index, attr })
    };
    vm.vcpus.iter().filter_map(one).collect()
}
