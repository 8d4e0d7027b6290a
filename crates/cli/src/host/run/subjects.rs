//! Whose slices: VMs, which come and go, or threads of no VM (`--tid`), each of them as a VM of one vCPU.

use crate::host::list::{Wanted, chosen, refuse_unknown_vcpus};
use gleaner_act::thread_attr;
use gleaner_command::failure::Failure;
use gleaner_model::printable;
use gleaner_observe::{PassedOver, ProcRoot, VcpuThread, Vm, Vmm, cgroup_of, discover, thread_stat};
use gleaner_sys::status_field;

pub enum Subjects {
    Vms { wanted: Wanted, passed_over: PassedOver },
    Threads(Vec<Vm>),
}

impl Subjects {
    /// With those that are there now. What was named has to be.
    pub fn find(root: &ProcRoot, vms: &[String], tids: &[i32]) -> Result<(Self, Vec<Vm>), Failure> {
        if !tids.is_empty() {
            let mut threads = tids.iter().map(|tid| named(root, *tid)).collect::<Result<Vec<Vm>, _>>()?;
            threads.sort_by_key(|thread| thread.pid);
            threads.dedup_by_key(|thread| thread.pid);
            return Ok((Self::Threads(threads.clone()), threads));
        }
        let passed_over = PassedOver::default();
        let found = chosen(root, vms, &passed_over)?;
        if !vms.is_empty() {
            found.iter().try_for_each(refuse_unknown_vcpus)?;
        }
        Ok((Self::Vms { wanted: Wanted::begin(root, vms, &found), passed_over }, found))
    }

    pub fn now(&mut self, root: &ProcRoot) -> Result<Vec<Vm>, Failure> {
        match self {
            Self::Vms { wanted, passed_over } => {
                Ok(wanted.among(root, discover(root, passed_over).map_err(Failure::work)?))
            }
            Self::Threads(threads) => {
                threads.retain(|thread| start_time(root, thread.pid) == Some(thread.start_time_ticks));
                Ok(threads.clone())
            }
        }
    }

    /// VMs may come; threads that were named by their ids may not.
    pub fn may_come(&self) -> bool {
        matches!(self, Self::Vms { .. })
    }
}

/// When it began, as long as it has not ended.
fn start_time(root: &ProcRoot, tid: i32) -> Option<u64> {
    let stat = thread_stat(root, tid, tid).ok()??;
    (!stat.is_dead()).then_some(stat.start_time_ticks)
}

fn named(root: &ProcRoot, tid: i32) -> Result<Vm, Failure> {
    let attr = thread_attr(tid).ok().zip(start_time(root, tid));
    let (attr, start_time_ticks) = attr.ok_or_else(|| {
        Failure::input(format!(
            "there is no thread {tid}, or it has ended; `ls /proc/PID/task` names a process's threads, `gleaner host \
             list` those of VMs"
        ))
    })?;
    let read = |name: &str| std::fs::read(root.proc.join(format!("{tid}/task/{tid}/{name}"))).unwrap_or_default();
    let name = printable(read("comm").trim_ascii_end());
    if !attr.is_fair() {
        return Err(Failure::input(format!(
            "thread {tid} ({name}) is a real-time or deadline thread, and those have no slices; leave it out"
        )));
    }
    let (status, cgroup) = (read("status"), cgroup_of(root, tid, tid));
    let allowed = status_field(&status, b"Cpus_allowed_list").and_then(|list| std::str::from_utf8(list).ok());
    let allowed = allowed.and_then(|list| list.trim().parse().ok());
    let vcpu = VcpuThread { index: 0, tid, name: name.clone(), start_time_ticks, allowed, cgroup: cgroup.clone() };
    Ok(Vm {
        called: name.clone(),
        name,
        pid: tid,
        start_time_ticks,
        // No report of slices tells it.
        vmm: Vmm::Kvm,
        accelerator: None,
        cgroup,
        vcpus: vec![vcpu],
        notes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_meant_until_it_ends() {
        let root = ProcRoot::default();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("napper".into()).spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = stopped.recv();
        });
        let tid = told.recv().unwrap();
        let (mut subjects, found) = Subjects::find(&root, &[], &[tid, tid]).unwrap();
        assert!(found.len() == 1 && found[0].name == "napper" && found[0].vcpus[0].allowed.is_some(), "{found:?}");
        assert!(subjects.now(&root).unwrap() == found && !subjects.may_come());
        drop(stop);
        thread.unwrap().join().unwrap();
        assert_eq!(subjects.now(&root).unwrap(), []);
        let refused = Subjects::find(&root, &[], &[i32::MAX]).err().unwrap();
        assert!(refused.status == 2 && refused.message.contains("no thread 2147483647"), "{}", refused.message);
    }
}
