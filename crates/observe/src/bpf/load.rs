//! Gets the programs into the kernel, or says why not.

use super::reader::now_ns;
use super::skel::types::{cpu_state, group_cpu, group_state, shared_state};
use super::skel::{GleanerSkelBuilder, MAX_GROUPS, OpenGleanerSkel};
use crate::config::ObserverConfig;
use gleaner_bpf::{BpfRefusal, MappedArray, refusal};
use gleaner_model::{CpuSet, KernelVersion, VcpuId};
use gleaner_sys::ProcRoot;
use gleaner_sys::{Namespaces, affinity_of, online_cpus, possible_cpus, set_affinity};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapHandle, ProgramInput};
use rustix::thread::sched_yield;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What the counters of all groups may take. A group takes 2.6 kB a CPU.
const GROUPS_BYTES_MAX: usize = 64 << 20;

/// The programs in the kernel, and the memory shared with them.
#[derive(Debug)]
pub(super) struct Loaded {
    pub cpus: Arc<MappedArray<cpu_state>>,
    /// By group, then by the CPU's place.
    pub group_cpus: MappedArray<group_cpu>,
    /// How many CPUs get a place.
    pub places: usize,
    /// When the programs began.
    pub attached_ns: u64,
    pub groups: MappedArray<group_state>,
    /// How many of `groups` there is room for.
    pub capacity: usize,
    pub shared: MappedArray<shared_state>,
    pub threads: MapHandle,
    pub cgroups: MapHandle,
    pub rings: MapHandle,
    /// What tells of bursts, where the kernel has timers for programs.
    pub bursts: Option<OwnedFd>,
    /// For what the kernel counts of them.
    pub programs: Vec<OwnedFd>,
    _links: Vec<Link>,
    /// The kernel frees a map's timers when no user has it any more.
    _burst_timers: MapHandle,
}

/// Runs what loads programs, with libbpf's words kept. Refuses first where numbers here are not the kernel's.
pub(crate) fn loading<T>(root: &ProcRoot, load: impl FnOnce() -> Result<T, BpfRefusal>) -> Result<T, BpfRefusal> {
    gleaner_bpf::loading(&root.sys, || {
        check_place(root)?;
        load()
    })
}

/// Loads and attaches everything.
pub(super) fn load(config: &ObserverConfig) -> Result<Loaded, BpfRefusal> {
    let loaded = loading(&config.root, || {
        match load_programs(config, Some(timer_flags(kernel_version()))) {
            // Not every kernel has what timers need. All else must be there.
            Err(refusal) if !matches!(refusal, BpfRefusal::NotPermitted { .. }) => load_programs(config, None),
            loaded => loaded,
        }
    })?;
    let usable = config.allowed.clone().or_else(|| affinity_of(0).ok());
    visit(usable.iter().flat_map(CpuSet::iter).filter(|vcpu| (vcpu.0 as usize) < loaded.cpus.len()));
    Ok(loaded)
}

/// With which flags a timer is started that stays on its CPU, as far as the kernel has them.
fn timer_flags(kernel: Option<KernelVersion>) -> u64 {
    const PINNED: u64 = 2;
    if kernel.is_some_and(|kernel| kernel >= KernelVersion(6, 7)) { PINNED } else { 0 }
}

fn kernel_version() -> Option<KernelVersion> {
    KernelVersion::of_release(&rustix::system::uname().release().to_string_lossy())
}

/// Refuses where it is plain from files that it cannot work.
fn check_place(root: &ProcRoot) -> Result<(), BpfRefusal> {
    let namespaces = Namespaces::own(root);
    match namespaces {
        Namespaces { pid: None, .. } => Err(BpfRefusal::UnknownNamespace),
        _ if !namespaces.pid_is_initial() => Err(BpfRefusal::NotInitialPidNamespace),
        _ if !namespaces.time_is_initial() => Err(BpfRefusal::NotInitialTimeNamespace),
        _ => Ok(()),
    }
}

/// One more than the largest number that a CPU can have here: numbers may have gaps, and libbpf counts CPUs.
pub(crate) fn cpu_numbers(root: &ProcRoot) -> libbpf_rs::Result<usize> {
    let last = possible_cpus(root).and_then(|possible| possible.iter().next_back());
    last.map_or_else(libbpf_rs::num_possible_cpus, |last| Ok(last.0 as usize + 1))
}

/// For how many CPUs groups are counted: those that there are, and a few that may come.
fn places(root: &ProcRoot, possible: usize) -> usize {
    let there = online_cpus(root).map_or(possible, |online| online.len());
    (there + (there / 4).max(2)).min(possible)
}

/// `timers`: with these flags; without them nothing tells of bursts.
fn load_programs(config: &ObserverConfig, timers: Option<u64>) -> Result<Loaded, BpfRefusal> {
    let refuse = |step| move |error: libbpf_rs::Error| refusal(step, &error);
    let possible = cpu_numbers(&config.root).map_err(refuse("counting CPUs"))?;
    let places = places(&config.root, possible);
    let capacity = config.groups_max.min(GROUPS_BYTES_MAX / size_of::<group_cpu>() / places).clamp(1, MAX_GROUPS);
    let mut storage = MaybeUninit::uninit();
    let mut open = GleanerSkelBuilder::default().open(&mut storage).map_err(refuse("opening the object"))?;
    configure(&mut open, config, (possible, places, capacity), timers).map_err(refuse("sizing the maps"))?;
    let skel = open.load().map_err(refuse("loading"))?;
    let map = |what: io::Error| refusal("mapping the maps", &libbpf_rs::Error::from(what));
    let maps = &skel.maps;
    let cpus = MappedArray::<cpu_state>::new(&maps.cpus, maps.cpus.value_size(), possible).map_err(map)?;
    let group_cpus =
        MappedArray::new(&maps.group_cpus, maps.group_cpus.value_size(), capacity * places).map_err(map)?;
    let groups = MappedArray::new(&maps.groups, maps.groups.value_size(), MAX_GROUPS).map_err(map)?;
    let shared = MappedArray::new(&maps.shared, maps.shared.value_size(), 1).map_err(map)?;
    let keep = |map| MapHandle::try_from(map).map_err(refuse("keeping the maps"));
    let (threads, cgroups, rings) = (keep(&maps.threads)?, keep(&maps.cgroups)?, keep(&maps.rings)?);
    // What is running now has been running since now, as far as we know.
    let attached_ns = now_ns();
    for index in 0..possible {
        cpus.write_field(index, offset_of!(cpu_state, since_ns), attached_ns);
    }
    let progs = &skel.progs;
    // Forks first, so that no thread of a group is missed by the others.
    let mut wanted = vec![&progs.on_fork, &progs.on_exec, &progs.on_waking, &progs.on_waking_new];
    wanted.push(&progs.on_switch);
    if wants_cgroups(config) {
        wanted.push(&progs.on_attach);
    }
    let bursts = timers.and_then(|_| {
        // Timers are made before anything starts one.
        let made = progs.make_timers.test_run(ProgramInput::default()).is_ok_and(|output| output.return_value == 0);
        maps.bursts.as_fd().try_clone_to_owned().ok().filter(|_| made)
    });
    let programs = wanted.iter().filter_map(|program| program.as_fd().try_clone_to_owned().ok()).collect();
    // The links keep their programs, and those their maps, when the skeleton goes.
    let links = wanted.into_iter().map(libbpf_rs::ProgramImpl::attach).collect::<Result<Vec<_>, _>>();
    Ok(Loaded {
        cpus: Arc::new(cpus),
        group_cpus,
        places,
        attached_ns,
        groups,
        capacity,
        shared,
        threads,
        cgroups,
        rings,
        bursts,
        programs,
        _links: links.map_err(refuse("attaching"))?,
        _burst_timers: keep(&maps.burst_timers)?,
    })
}

fn configure(
    open: &mut OpenGleanerSkel<'_>,
    config: &ObserverConfig,
    (possible, places, capacity): (usize, usize, usize),
    timers: Option<u64>,
) -> libbpf_rs::Result<()> {
    open.maps.group_cpus.set_max_entries(u32::try_from(capacity * places).unwrap_or(u32::MAX))?;
    let possible = u32::try_from(possible).unwrap_or(u32::MAX);
    open.maps.cpus.set_max_entries(possible)?;
    open.maps.rings.set_max_entries(possible)?;
    open.maps.bursts.set_max_entries(u32::try_from(rustix::param::page_size()).unwrap_or(4096))?;
    if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
        constants.places = u32::try_from(places).unwrap_or(u32::MAX);
        constants.group_count = u32::try_from(capacity).unwrap_or(u32::MAX);
        constants.timer_flags = timers.unwrap_or(0);
        constants.has_timers = timers.is_some();
    }
    open.progs.make_timers.set_autoload(timers.is_some());
    open.progs.on_attach.set_autoload(wants_cgroups(config));
    open.progs.bucket_probe.set_autoload(false);
    Ok(())
}

/// Whether there will be groups beside the owner's children: only those may be cgroups.
fn wants_cgroups(config: &ObserverConfig) -> bool {
    config.groups_max > 1
}

/// Makes these vCPUs switch once, by going there, so that what they run is known from the first window on: an idle vCPU
/// may otherwise not switch for seconds. All others are left alone, because they may be isolated for somebody; a vCPU
/// that has not switched yet counts as halted until it does.
pub(super) fn visit(vcpus: impl Iterator<Item = VcpuId>) {
    let Ok(before) = affinity_of(0) else { return };
    for vcpu in vcpus {
        if set_affinity(0, &std::iter::once(vcpu).collect()).is_ok() {
            sched_yield();
        }
    }
    // Setting what was read a moment ago fails only if the cpuset changed since; then the kernel has set another
    // already.
    let _ = set_affinity(0, &before);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::bucket_index;
    use libbpf_rs::ProgramInput;

    #[test]
    fn the_kernel_and_rust_agree_on_every_bucket() {
        if !rustix::process::geteuid().is_root() {
            gleaner_testing::skip!("needs root");
        }
        let mut values: Vec<u64> = (0..20).collect();
        values.extend((4..40).map(|bit| (1 << bit) - 1));
        values.extend([1 << 5, (1 << 20) + (1 << 17), 123_456_789, (1 << 40) - 1, 1 << 40, u64::MAX, 9_999, 1_000_000]);
        assert_eq!(values.len(), 64);
        let mut storage = MaybeUninit::uninit();
        let mut open = GleanerSkelBuilder::default().open(&mut storage).unwrap();
        for mut program in open.open_object_mut().progs_mut() {
            let wanted = program.name() == "bucket_probe";
            program.set_autoload(wanted);
        }
        open.maps.bss_data.as_mut().unwrap().probe_values.copy_from_slice(&values);
        let skel = open.load().unwrap();
        skel.progs.bucket_probe.test_run(ProgramInput::default()).unwrap();
        let indexes = skel.maps.bss_data.as_ref().unwrap().probe_indexes;
        let expected: Vec<u32> = values.iter().map(|value| u32::try_from(bucket_index(*value)).unwrap()).collect();
        assert_eq!(indexes.to_vec(), expected);
    }
}
