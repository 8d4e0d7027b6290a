//! The VMs that `gleaner host llc` manages, and their vCPU threads.

use super::args::LlcArgs;
use crate::host::list::{chosen, looking};
use gleaner_command::failure::Failure;
use gleaner_decide::host::{CacheClass, LlcVm};
use gleaner_model::printable;
use gleaner_observe::{DiscoverOptions, ProcRoot, Vm, rediscover, thread_stat};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A VM, or a process that somebody named.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    /// Its name without what tells it from others of that name.
    called: String,
    pub pid: i32,
    start_time: u64,
    /// The vCPUs' threads; `None`: all threads of the process.
    vcpus: Option<Vec<i32>>,
    pub told: Option<CacheClass>,
}

impl Subject {
    /// Its threads, as of now. Empty when it is gone.
    pub fn threads(&self) -> Vec<i32> {
        if start_time(self.pid) != Some(self.start_time) {
            return Vec::new();
        }
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut tids: Vec<i32> =
            all.filter(|tid| self.vcpus.as_ref().is_none_or(|vcpus| vcpus.contains(tid))).collect();
        tids.sort_unstable();
        tids
    }

    fn of_vm(vm: &Vm) -> Self {
        let tids: Vec<i32> = vm.vcpus.iter().map(|vcpu| vcpu.tid).collect();
        // Where its vCPUs cannot be told from its other threads, all are taken.
        let vcpus = Some(tids).filter(|tids| !tids.is_empty());
        Self {
            name: vm.name.clone(),
            called: vm.called.clone(),
            pid: vm.pid,
            start_time: vm.start_time_ticks,
            vcpus,
            told: None,
        }
    }

    fn of_process(pid: i32) -> Result<Self, Failure> {
        let comm = fs::read(format!("/proc/{pid}/comm"));
        let (Ok(comm), Some(start_time)) = (comm, start_time(pid)) else {
            return Err(Failure::input(format!("--pid {pid}: there is no such process, or it has ended")));
        };
        let name = printable(comm.strip_suffix(b"\n").unwrap_or(&comm));
        Ok(Self { called: name.clone(), name, pid, start_time, vcpus: None, told: None })
    }
}

/// All of them, and how to find them again.
pub struct Subjects {
    pub all: BTreeMap<LlcVm, Subject>,
    /// Whether VMs that come later are taken as well.
    every: bool,
    told: Vec<(String, CacheClass)>,
    next: u32,
    /// Kept between looks, and with them what monitors said.
    options: DiscoverOptions,
}

impl Subjects {
    /// Those that the command line means.
    pub fn find(args: &LlcArgs, interrupted: &Arc<AtomicBool>) -> Result<Self, Failure> {
        let every = args.vm.is_empty() && args.pid.is_empty();
        let options = looking(&[], interrupted);
        let mut subjects = Self { all: BTreeMap::new(), every, told: args.classes.clone(), next: 0, options };
        if every || !args.vm.is_empty() {
            let vms = chosen(&ProcRoot::default(), &args.vm, &subjects.options)?;
            for vm in &vms {
                subjects.add(Subject::of_vm(vm));
            }
        }
        for pid in &args.pid {
            subjects.add(Subject::of_process(*pid)?);
        }
        for (name, _) in &args.classes {
            let named = subjects.all.values().filter(|subject| subject.called == *name).map(|subject| &*subject.name);
            let named: Vec<&str> = named.collect();
            if named.len() > 1 && subjects.all.values().all(|subject| subject.name != *name) {
                return Err(Failure::input(format!(
                    "--class {name}=...: several are called so: {}; write which one",
                    named.join(", ")
                )));
            }
            if !subjects.all.values().any(|subject| subject.is_called(name)) {
                return Err(Failure::input(format!(
                    "--class {name}=...: no VM that is looked at is called so; `gleaner host list` names them"
                )));
            }
        }
        Ok(subjects)
    }

    fn add(&mut self, mut subject: Subject) {
        let same = |known: &Subject| (known.pid, known.start_time) == (subject.pid, subject.start_time);
        if self.all.values().any(same) {
            return;
        }
        let told = self.told.iter().find(|(name, _)| subject.is_called(name));
        subject.told = told.map(|(_, class)| *class);
        self.all.insert(LlcVm(self.next), subject);
        self.next += 1;
    }

    /// VMs that have come since, with vCPUs that were plugged in; those that are gone stay known for the report.
    pub fn look_again(&mut self) {
        let Ok((vms, _)) = rediscover(&ProcRoot::default(), &self.options) else { return };
        for vm in &vms {
            let new = Subject::of_vm(vm);
            let known = self.all.values_mut().find(|known| (known.pid, known.start_time) == (new.pid, new.start_time));
            match known {
                // One asked for as a process keeps all its threads.
                Some(known) if known.vcpus.is_some() && new.vcpus.is_some() => known.vcpus = new.vcpus,
                None if self.every => self.add(new),
                _ => {}
            }
        }
    }

    /// Whether the class of each was told.
    pub fn all_told(&self) -> bool {
        self.all.values().all(|subject| subject.told.is_some())
    }
}

impl Subject {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.pid.to_string() == name || format!("{}#{}", self.called, self.pid) == name
    }
}

/// When a process began, as long as it has not ended.
fn start_time(pid: i32) -> Option<u64> {
    let stat = thread_stat(&ProcRoot::default(), pid, pid).ok()??;
    (!stat.is_dead()).then_some(stat.start_time_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_threads_until_it_is_gone() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut subject = Subject::of_process(own).unwrap();
        assert!(subject.threads().contains(&own));
        subject.vcpus = Some(vec![own]);
        assert_eq!(subject.threads(), [own]);
        subject.start_time += 1;
        assert!(subject.threads().is_empty());
        assert!(Subject::of_process(i32::MAX).unwrap_err().message.contains("no such process"));
    }
}
