//! `gleaner host list`: find the VMs, watch them for a while, say what was seen.

use super::xen::refuse_on_xen;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use gleaner_act::thread_attr;
use gleaner_command::args::{JsonArg, duration_within};
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::Output;
use gleaner_model::printable;
use gleaner_observe::{
    Activity, PassedOver, ProcRoot, SchedPolicy, SelectError, ThreadCounters, VcpuActivity, VcpuThread, Vm,
    WatchedVcpus, discover, host_facts, select,
};
use gleaner_report::{HostListReport, HostVcpu, HostVm};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(after_help = "Gleaner finds VMs by their threads' names (QEMU with debug-threads=on, Firecracker, Cloud \
                  Hypervisor, crosvm, kvmtool), by KVM's debugfs, and by the KVM files that processes have open. \
                  libvirt's \
                        are QEMU's. Root sees all of them.\n\n\
                        Examples:\n\
                        \x20 gleaner host list\n\
                        \x20 gleaner host list --vm web --for 10s\n\
                        \x20 gleaner host list --json list.json")]
pub struct ListArgs {
    /// Only this VM, by its name or pid (may be repeated)
    #[arg(long, value_name = "NAME|PID", value_parser = vm_word())]
    pub vm: Vec<String>,
    /// How long to watch
    #[arg(long = "for", value_name = "DURATION", default_value = "1s", value_parser = watched_for)]
    pub length: Duration,
    #[command(flatten)]
    pub json: JsonArg,
}

fn watched_for(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_millis(10)..=Duration::from_secs(24 * 3600))
}

pub fn main(args: &ListArgs) -> Result<u8, Failure> {
    refuse_on_xen()?;
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let root = ProcRoot::default();
    let vms = chosen(&root, &args.vm, &PassedOver::default())?;
    let watched = WatchedVcpus::begin(&root, &vms);
    if !watched.is_empty() {
        interrupt::sleep_until(Instant::now() + args.length, &interrupted);
    }
    let activity = watched.end();
    let report = report(&root, &vms, &activity, &args.vm);
    if vms.is_empty() && interrupted.load(Ordering::Relaxed) {
        return Ok(interrupt::status());
    }
    // What was seen until an interruption is a result too, of a shorter interval.
    output.json(&report)?;
    output.text(&report);
    Ok(0)
}

/// What names a VM, in the form in which names are shown: they may hold any bytes.
pub fn vm_word() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|word| printable(word.as_bytes()))
}

/// The VMs that a command line means, by word, kept while VMs come and go.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Each with the VM that it meant last, by process and start time.
    words: Vec<(String, Option<(i32, u64)>)>,
}

impl Wanted {
    /// Of words that meant `vms` a moment ago.
    pub fn begin(root: &ProcRoot, words: &[String], vms: &[Vm]) -> Self {
        let mut wanted = Self { words: words.iter().map(|word| (word.clone(), None)).collect() };
        wanted.among(root, vms.to_vec());
        wanted
    }

    /// Those of `found` that were named, ascending by pid; all where none was. A name stays with the VM that had it
    /// first, for as long as that is there. A missing VM is no error.
    pub fn among(&mut self, root: &ProcRoot, found: Vec<Vm>) -> Vec<Vm> {
        if self.words.is_empty() {
            return found;
        }
        let id = |vm: &Vm| (vm.pid, vm.start_time_ticks);
        let mut meant: Vec<Vm> = Vec::new();
        for (word, last) in &mut self.words {
            let vm = match select(root, &found, word) {
                Ok(vm) => vm,
                Err(SelectError::Ambiguous { vms, .. }) => {
                    let Some(same) = vms.into_iter().find(|vm| Some(id(vm)) == *last) else { continue };
                    same
                }
                Err(_) => continue,
            };
            *last = Some(id(&vm));
            meant.push(vm);
        }
        meant.sort_by_key(|vm| vm.pid);
        meant.dedup_by_key(|vm| vm.pid);
        meant
    }
}

/// The VMs that a command line means; all of them where it names none.
pub fn chosen(root: &ProcRoot, wanted: &[String], passed_over: &PassedOver) -> Result<Vec<Vm>, Failure> {
    let all = discover(root, passed_over).map_err(Failure::work)?;
    let mut vms: Vec<Vm> = Vec::new();
    for word in wanted {
        let vm = select(root, &all, word).map_err(Failure::input)?;
        if vms.iter().all(|known| known.pid != vm.pid) {
            vms.push(vm);
        }
    }
    Ok(if wanted.is_empty() { all } else { vms })
}

/// Refuses a VM whose vCPUs' threads are not to be found: whoever named it wants something done to it.
pub fn refuse_unknown_vcpus(vm: &Vm) -> Result<(), Failure> {
    if !vm.vcpus.is_empty() {
        return Ok(());
    }
    Err(Failure::input(format!("{}; or name its threads to `gleaner host run --tid`", no_vcpus(vm))))
}

/// That, and why, the threads of a VM's vCPUs are not to be found.
pub fn no_vcpus(vm: &Vm) -> String {
    let why = if vm.notes.is_empty() { "they have ended".to_owned() } else { vm.notes.join("; ") };
    format!("no vCPU threads of VM '{}' (process {}) are to be found: {why}", vm.name, vm.pid)
}

fn report(root: &ProcRoot, vms: &[Vm], activity: &Activity, wanted: &[String]) -> HostListReport {
    let base = base_slice(root);
    let listed: Vec<HostVm> = vms.iter().map(|vm| host_vm(vm, activity, base)).collect();
    let mut notes = Vec::new();
    if !rustix::process::geteuid().is_root() && wanted.is_empty() {
        notes.push("not root: other users' VMs are found only by their threads' names".to_owned());
    }
    HostListReport { schema: HostListReport::SCHEMA.to_owned(), interval_ns: activity.interval.0, vms: listed, notes }
}

fn host_vm(vm: &Vm, activity: &Activity, base: Option<u64>) -> HostVm {
    let nobody = VcpuActivity { gone: true, ..VcpuActivity::default() };
    let vcpu = |vcpu: &VcpuThread| host_vcpu(vm, vcpu, activity.vcpus.get(&vcpu.tid).unwrap_or(&nobody), base);
    HostVm {
        name: vm.name.clone(),
        pid: vm.pid,
        vmm: vm.vmm.as_str().to_owned(),
        accelerator: vm.accelerator.map(|accelerator| accelerator.as_str().to_owned()),
        cgroup: vm.cgroup.as_ref().map(ToString::to_string),
        cgroup_version: vm.cgroup.as_ref().map(|cgroup| cgroup.version),
        cgroup_depth: vm.cgroup.as_ref().map(|cgroup| cgroup.depth() as u64),
        vcpus: vm.vcpus.iter().map(vcpu).collect(),
        notes: vm.notes.clone(),
    }
}

fn host_vcpu(vm: &Vm, vcpu: &VcpuThread, seen: &VcpuActivity, base: Option<u64>) -> HostVcpu {
    let (slice_ns, slice_from) =
        if seen.gone { (None, "it ended".to_owned()) } else { slice_in_force(vcpu, seen, base) };
    let stat = seen.stat;
    let real_time = |policy| matches!(policy, SchedPolicy::Fifo | SchedPolicy::RoundRobin);
    HostVcpu {
        index: vcpu.index,
        tid: vcpu.tid,
        thread: vcpu.name.clone(),
        pcpus_allowed: vcpu.allowed.as_ref().map(ToString::to_string),
        pcpu: seen.pcpu(),
        cgroup: vcpu.cgroup.as_ref().filter(|cgroup| vm.cgroup.as_ref() != Some(cgroup)).map(ToString::to_string),
        policy: stat.map(|stat| stat.policy.to_string()),
        nice: stat.map(|stat| stat.nice),
        rt_priority: stat.filter(|stat| real_time(stat.policy)).map(|stat| stat.rt_priority),
        slice_ns,
        slice_from,
        run_ns: seen.used.map(|used| used.run.0),
        wait_ns: seen.used.map(|used| used.wait.0),
        runs: seen.used.map(|used| used.runs),
        wait_per_run_ns: seen.used.and_then(ThreadCounters::wait_per_run).map(|wait| wait.0),
        exited: seen.gone,
    }
}

/// A thread's slice, and who says so.
fn slice_in_force(vcpu: &VcpuThread, seen: &VcpuActivity, base: Option<u64>) -> (Option<u64>, String) {
    match seen.policy() {
        Some(policy) if !policy.is_fair() => {
            return (None, format!("threads of the class '{policy}' have no slice of this kind"));
        }
        _ => {}
    }
    match thread_attr(vcpu.tid) {
        Ok(attr) if attr.slice.0 > 0 => (Some(attr.slice.0), "thread".to_owned()),
        Err(error) => (None, error.to_string()),
        Ok(_) => match base {
            Some(base) => (Some(base), "kernel".to_owned()),
            None => (
                None,
                "this kernel does not say what a thread's slice is (Linux 6.12 does), nor its base slice here"
                    .to_owned(),
            ),
        },
    }
}

/// The base slice of all, where debugfs says it.
fn base_slice(root: &ProcRoot) -> Option<u64> {
    host_facts(root).base_slice.value.map(|base| base.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units_and_bounds() {
        assert_eq!(watched_for("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["5", "0s", "1ms", "2days", "soon", "-1s"] {
            assert!(watched_for(bad).is_err(), "{bad}");
        }
    }
}
