//! What the host has for dividing its last-level cache, and what is missing, in words.

use super::args::{LlcArgs, Mode};
use super::subjects::Subjects;
use gleaner_act::{CacheAllocation, Resctrl};
use gleaner_decide::host::{LlcGeometry, LlcSplit, split};
use gleaner_observe::{LlcCountFiles, LlcCountSource, LlcCounterRefusal, LlcCounters, ProcRoot};
use gleaner_report::LlcHost;
use std::path::{Path, PathBuf};

/// What was found. Nothing is changed by finding it.
pub struct Backend {
    /// Where resctrl is mounted; `None`: it has to be.
    pub mounted: Option<PathBuf>,
    pub counters: Option<Box<dyn LlcCountSource>>,
    pub missing: Vec<String>,
}

impl Backend {
    pub fn find(args: &LlcArgs, subjects: &Subjects) -> Self {
        let mut missing = Vec::new();
        if subjects.all.is_empty() {
            missing.push("a VM: none runs here, or none that this user may see (see `gleaner host list`)".to_owned());
        }
        let mounted = args.resctrl.clone().or_else(|| Resctrl::mount_point(Path::new("/proc/self/mountinfo")));
        let supported = mounted.is_some() || Resctrl::is_supported(Path::new("/proc/filesystems"));
        if !supported && args.mode() != Mode::MonitorOnly {
            missing.push(why_no_resctrl().to_owned());
        }
        let counters = match source(args) {
            Ok(counters) => Some(counters),
            Err(_) if subjects.all_told() && args.mode() != Mode::MonitorOnly => None,
            Err(why) => {
                let instead =
                    if args.mode() == Mode::MonitorOnly { "" } else { "; the classes can be told with --class" };
                missing.push(format!("counters of cache misses: {why}{instead}"));
                None
            }
        };
        Self { mounted, counters, missing }
    }
}

/// The processor's counters, unless a test has its own.
fn source(args: &LlcArgs) -> Result<Box<dyn LlcCountSource>, LlcCounterRefusal> {
    Ok(match &args.counters {
        Some(folder) => Box::new(LlcCountFiles::new(folder)),
        None => Box::new(LlcCounters::new(&ProcRoot::default())?),
    })
}

fn why_no_resctrl() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "cache allocation: this host has no CAT that the kernel can use (no `resctrl` in /proc/filesystems): the \
         processor has none (Intel RDT or AMD QoS is needed; hypervisors show it to no VM), or the kernel was built \
         without CONFIG_X86_CPU_RESCTRL"
    } else {
        "cache allocation: this kernel has no resctrl (no `resctrl` in /proc/filesystems)"
    }
}

/// What `gleaner doctor` says of it: what there is, or why there is nothing.
pub fn in_a_line() -> Result<String, String> {
    let Some(root) = Resctrl::mount_point(Path::new("/proc/self/mountinfo")) else {
        return if Resctrl::is_supported(Path::new("/proc/filesystems")) {
            Ok("resctrl, not mounted; `gleaner host llc` mounts it".to_owned())
        } else {
            Err("no resctrl: the processor has no cache allocation, or a hypervisor does not show it".to_owned())
        };
    };
    let resctrl = Resctrl::open(&root).map_err(|error| error.to_string())?;
    let found = resctrl.info().allocation.as_ref().ok_or("resctrl is mounted, and the L3 cannot be divided")?;
    let ways = found.ways_mask.count_ones();
    Ok(format!(
        "{} L3 with {ways} ways, {} classes free; see `gleaner host llc`",
        found.domains.len(),
        found.classes_free()
    ))
}

/// How the ways are divided, or why they cannot be.
pub fn divide(found: &CacheAllocation, minimal_ways: u32) -> Result<LlcSplit, String> {
    let geometry = LlcGeometry {
        ways_mask: found.ways_mask,
        bits_min: found.bits_min,
        sparse: found.sparse,
        shared_with_devices: found.shared_with_devices,
        taken: found.taken,
    };
    split(&geometry, minimal_ways).ok_or_else(|| {
        format!(
            "ways of the cache: of {:x} others have {:x} for themselves, and what is left cannot be divided into {} \
             and a rest",
            found.ways_mask,
            found.taken,
            minimal_ways.max(found.bits_min)
        )
    })
}

/// The host for the report.
pub fn describe(resctrl: Option<(&Path, &Resctrl)>, mounted_here: bool, counters: bool) -> LlcHost {
    let mut host = LlcHost { mounted_here, counters, ..LlcHost::default() };
    let Some((root, resctrl)) = resctrl else { return host };
    host.resctrl = Some(root.display().to_string());
    host.monitoring = resctrl.info().monitoring.as_ref().map(|found| found.features.clone()).unwrap_or_default();
    if let Some(found) = &resctrl.info().allocation {
        let hex = |mask: u64| Some(format!("{mask:x}"));
        host.caches = Some(found.domains.len() as u64);
        host.ways_mask = hex(found.ways_mask);
        host.mask_bits_min = Some(u64::from(found.bits_min));
        host.shared_with_devices_mask = hex(found.shared_with_devices);
        host.taken_mask = hex(found.taken);
        host.classes_free = Some(found.classes_free() as u64);
        host.cdp = Some(found.cdp());
    }
    host
}
