//! A VM of known behaviour: threads of this test itself, called as vCPUs are.

use gleaner_act::thread_attr;
use gleaner_model::Nanos;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// This process as a VM: two vCPUs that compute for ever on one CPU.
pub struct Vm {
    pub tids: Vec<i32>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Vm {
    pub fn start() -> Self {
        let mut vm = Self { tids: Vec::new(), end: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        vm.add_vcpu();
        vm.add_vcpu();
        vm
    }

    pub fn add_vcpu(&mut self) {
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| sched_getaffinity(None).unwrap().is_set(*cpu)).unwrap();
        let ((tell, told), end) = (channel(), Arc::clone(&self.end));
        let body = move || {
            let mut one = CpuSet::new();
            one.set(cpu);
            sched_setaffinity(None, &one).unwrap();
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            while !end.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let name = format!("fc_vcpu {}", self.tids.len());
        self.threads.push(std::thread::Builder::new().name(name).spawn(body).unwrap());
        self.tids.push(told.recv().unwrap());
    }

    pub fn slices(&self) -> Vec<Nanos> {
        self.tids.iter().map(|tid| thread_attr(*tid).unwrap().slice).collect()
    }

    /// Whether its slices can be set here; says so if not.
    pub fn has_slices(&self) -> bool {
        let has = self.slices().iter().all(|slice| *slice > Nanos::ZERO) && rustix::process::geteuid().is_root();
        if !has {
            gleaner_testing::skipped("needs root and slices of threads (Linux 6.12)");
        }
        has
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
