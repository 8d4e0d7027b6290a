//! `gleaner host` without privilege, on threads of root's: what can be seen is seen, what cannot be changed is said,
//! with the privilege that it takes, and is not changed.

mod common;

use common::unprivileged::{Unprivileged, json};
use common::{Said, finish, is_root, own_pid};
use gleaner_act::{ThreadAttr, thread_attr};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// This process as a VM of root's: two threads with the names of vCPUs, asleep.
struct RootsVm {
    tids: Vec<i32>,
    stay: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl RootsVm {
    /// `None`, and said, where the tests themselves have no privilege: then the threads are the user's own.
    fn start() -> Option<Self> {
        if !is_root() {
            gleaner_testing::skipped("needs root");
            return None;
        }
        let mut vm = Self { tids: Vec::new(), stay: Vec::new(), threads: Vec::new() };
        for index in 0..2 {
            let ((tell, told), (stay, leave)) = (channel(), channel::<()>());
            let body = move || {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                // Until the other end is dropped.
                let _ = leave.recv();
            };
            vm.threads.push(std::thread::Builder::new().name(format!("fc_vcpu {index}")).spawn(body).unwrap());
            vm.tids.push(told.recv().unwrap());
            vm.stay.push(stay);
        }
        Some(vm)
    }

    fn attributes(&self) -> Vec<ThreadAttr> {
        self.tids.iter().map(|tid| thread_attr(*tid).unwrap()).collect()
    }
}

impl Drop for RootsVm {
    fn drop(&mut self) {
        self.stay.clear();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// What it said when it was refused, with the threads and the journals as before.
#[track_caller]
fn refused(vm: &RootsVm, user: &Unprivileged, arguments: &[&str]) -> Said {
    let before = vm.attributes();
    let said = finish(&mut user.gleaner(arguments)).with_status(1).saying("");
    assert_eq!(vm.attributes(), before, "{said:#?}");
    assert!(!user.state().exists(), "its journal is left");
    said
}

#[test]
fn without_privilege_vms_are_listed_by_the_names_of_their_threads() {
    let Some(vm) = RootsVm::start() else { return };
    let user = Unprivileged::new();
    let pid = own_pid().to_string();
    let said = finish(&mut user.gleaner(&["host", "list", "--vm", &pid, "--for", "100ms", "--json"])).with_status(0);
    let report = json(&said);
    let found: Vec<_> = report["vms"][0]["vcpus"].as_array().unwrap().iter().map(|vcpu| vcpu["tid"].clone()).collect();
    assert_eq!(found, vm.tids, "{report:#}");
}

#[test]
fn without_privilege_a_slice_of_roots_thread_is_refused() {
    let Some(vm) = RootsVm::start() else { return };
    let user = Unprivileged::new();
    let tid = vm.tids[0].to_string();
    if gleaner_act::SliceSupport::probe().base.is_none() {
        gleaner_testing::skip!("needs slices of threads (Linux 6.12)");
    }
    let run = ["host", "run", "--slice", "1ms", "--interval", "100ms", "--for", "1s", "--tid", &tid];
    for more in [&[][..], &["--no-enforce"]] {
        refused(&vm, &user, &[&run[..], more].concat()).naming(&[
            &tid,
            "no slice could be set",
            "run as root, or with CAP_SYS_NICE",
        ]);
    }
}

#[test]
fn without_privilege_the_agent_sets_nothing() {
    let Some(vm) = RootsVm::start() else { return };
    if gleaner_act::SliceSupport::probe().base.is_none() {
        gleaner_testing::skip!("needs slices of threads (Linux 6.12)");
    }
    let user = Unprivileged::new();
    let pid = own_pid().to_string();
    let run = ["host", "run", "--vm", &pid, "--interval", "100ms", "--for", "1s"];
    for more in [&["--slice", "1ms"][..], &[], &["--no-enforce"]] {
        refused(&vm, &user, &[&run[..], more].concat())
            .naming(&["no slice could be set", "run as root, or with CAP_SYS_NICE"]);
    }
}
