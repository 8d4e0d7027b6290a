//! Others that steer this machine's vCPUs: sched_ext schedulers, tuned, irqbalance, the kernel's own preferences.
//!
//! They are only read about here. What is done about each is for `decide` and `runtime`.

use gleaner_model::CpuSet;
use gleaner_sys::{ProcRoot, numbered, read_optional, reread};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Profiles of tuned that include one another, at most.
const PROFILES_MAX: usize = 16;
/// What a profile of tuned may hold about idle vCPUs.
const IDLE_SETTINGS: [&str; 4] = ["haltpoll", "force_latency", "pm_qos_resume_latency_us", "cpu_dma_latency"];

/// What else steers this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The sched_ext scheduler that runs, by its name.
    pub sched_ext: Option<String>,
    /// tuned, where a profile of it is active.
    pub tuned: Option<Tuned>,
    /// irqbalance's process.
    pub irqbalance: Option<i32>,
    /// The CPUs that the kernel's steal governor prefers now; `None`: this kernel has none.
    pub preferred: Option<CpuSet>,
    /// Booted with `idle=poll`: no CPU ever halts.
    pub never_halts: bool,
}

/// The active profile of tuned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Its name.
    pub profile: String,
    /// What it, or a profile that it includes, sets of how CPUs idle; such as `haltpoll`.
    pub idle_settings: Vec<String>,
}

/// Looks. `host`: the folder that has `etc` and `usr`.
pub fn neighbours(root: &ProcRoot, host: &Path) -> Neighbours {
    Neighbours {
        sched_ext: sched_ext(root),
        tuned: tuned(host),
        irqbalance: irqbalance(root),
        preferred: PreferredReader::open(root).and_then(|mut reader| reader.read()),
        never_halts: never_halts(root),
    }
}

fn text(path: &Path) -> Option<String> {
    read_optional(path).ok().flatten().map(|text| text.trim().to_owned())
}

/// The sched_ext scheduler that runs, by its name; `?` where it has none to tell.
pub fn sched_ext(root: &ProcRoot) -> Option<String> {
    let folder = root.sys.join("kernel/sched_ext");
    // While it comes or goes threads are under it already, or still.
    text(&folder.join("state")).filter(|state| state != "disabled")?;
    Some(text(&folder.join("root/ops")).unwrap_or_else(|| "?".to_owned()))
}

fn tuned(host: &Path) -> Option<Tuned> {
    let profile = text(&host.join("etc/tuned/active_profile")).filter(|name| !name.is_empty())?;
    let mut found = BTreeSet::new();
    let mut left: Vec<String> = profile.split_whitespace().map(str::to_owned).collect();
    let mut seen = 0;
    while let Some(name) = left.pop()
        && seen < PROFILES_MAX
    {
        seen += 1;
        let Some(conf) = profile_text(host, &name) else { continue };
        for line in conf.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            found.extend(IDLE_SETTINGS.into_iter().filter(|setting| line.contains(setting)).map(str::to_owned));
            if let Some((key, names)) = line.split_once('=')
                && key.trim() == "include"
            {
                left.extend(names.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
            }
        }
    }
    Some(Tuned { profile, idle_settings: found.into_iter().collect() })
}

/// The administrator's own profiles come before those of the distribution.
fn profile_text(host: &Path, name: &str) -> Option<String> {
    // A name, not a way out of the folder.
    if name.contains(['/', '\0']) {
        return None;
    }
    let folders = ["etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"];
    folders.iter().find_map(|folder| text(&host.join(folder).join(name).join("tuned.conf")))
}

/// The process of irqbalance, which moves interrupts by itself.
pub fn irqbalance(root: &ProcRoot) -> Option<i32> {
    let is_it = |pid: &i32| text(&root.proc.join(format!("{pid}/comm"))).is_some_and(|comm| comm == "irqbalance");
    numbered(&root.proc).find(is_it)
}

/// Whether the kernel was told never to halt: `idle=poll`.
pub fn never_halts(root: &ProcRoot) -> bool {
    text(&root.proc.join("cmdline")).is_some_and(|line| line.split_whitespace().any(|word| word == "idle=poll"))
}

/// Reads `/sys/devices/system/cpu/preferred` (Linux 7.4) again and again: the CPUs on which the kernel would run
/// threads, fewer than are online while the host is short of CPUs.
#[derive(Debug)]
pub struct PreferredReader {
    file: File,
    buffer: Vec<u8>,
}

impl PreferredReader {
    /// `None` where the kernel has no such file.
    pub fn open(root: &ProcRoot) -> Option<Self> {
        let file = fs::File::open(path(root)).ok()?;
        Some(Self { file, buffer: Vec::new() })
    }

    /// What it says now; `None` where it is no list, or one of none.
    pub fn read(&mut self) -> Option<CpuSet> {
        let list = reread(&self.file, &mut self.buffer).ok()?;
        std::str::from_utf8(list).ok()?.parse().ok().filter(|set: &CpuSet| !set.is_empty())
    }
}

fn path(root: &ProcRoot) -> PathBuf {
    root.sys.join("devices/system/cpu/preferred")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Neighbours {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        neighbours(&ProcRoot::below(dir.path()), dir.path())
    }

    #[test]
    fn nobody_is_found_where_nobody_is() {
        assert_eq!(found(&[]), Neighbours::default());
        let nobodys = [
            ("sys/kernel/sched_ext/state", "disabled\n"),
            ("etc/tuned/active_profile", "\n"),
            ("proc/7/comm", "irqbalance-ui\n"),
            ("proc/cmdline", "root=/dev/vda idle=polls xidle=poll\n"),
            ("sys/devices/system/cpu/preferred", "\n"),
        ];
        assert_eq!(found(&nobodys), Neighbours::default());
    }

    #[test]
    fn each_is_found_by_what_it_leaves() {
        let all = [
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "lavd_1.0.8\n"),
            ("etc/tuned/active_profile", "ours\n"),
            ("etc/tuned/ours/tuned.conf", "[main]\ninclude=sap-hana-kvm-guest, virtual-guest\n"),
            (
                "usr/lib/tuned/sap-hana-kvm-guest/tuned.conf",
                "[modules]\ncpuidle-haltpoll=+r force\n[sysfs]\n/sys/module/haltpoll/parameters/guest_halt_poll_ns=1\n",
            ),
            ("usr/lib/tuned/virtual-guest/tuned.conf", "[cpu]\n# cpu_dma_latency\nforce_latency=1\n"),
            ("proc/7/comm", "irqbalance\n"),
            ("proc/cmdline", "root=/dev/vda idle=poll quiet\n"),
            ("sys/devices/system/cpu/preferred", "0-2\n"),
        ];
        let expected = Neighbours {
            sched_ext: Some("lavd_1.0.8".into()),
            tuned: Some(Tuned {
                profile: "ours".into(),
                idle_settings: vec!["force_latency".into(), "haltpoll".into()],
            }),
            irqbalance: Some(7),
            preferred: Some("0-2".parse().unwrap()),
            never_halts: true,
        };
        assert_eq!(found(&all), expected);
    }

    #[test]
    fn profiles_that_include_one_another_or_lead_elsewhere_end() {
        let files = [
            ("etc/tuned/active_profile", "a ../../secret\n"),
            ("etc/tuned/a/tuned.conf", "include=b\n"),
            ("usr/lib/tuned/b/tuned.conf", "include = a\n"),
            ("secret/tuned.conf", "force_latency=1\n"),
        ];
        let tuned = found(&files).tuned.unwrap();
        assert_eq!(tuned, Tuned { profile: "a ../../secret".into(), idle_settings: Vec::new() });
    }

    #[test]
    fn a_scheduler_on_its_way_counts_and_may_have_no_name() {
        assert_eq!(found(&[("sys/kernel/sched_ext/state", "enabling\n")]).sched_ext.as_deref(), Some("?"));
    }

    #[test]
    fn what_the_kernel_prefers_is_read_anew_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(dir.path());
        assert!(PreferredReader::open(&root).is_none());
        fs::create_dir_all(path(&root).parent().unwrap()).unwrap();
        fs::write(path(&root), "0-3\n").unwrap();
        let mut reader = PreferredReader::open(&root).unwrap();
        assert_eq!(reader.read().unwrap().to_string(), "0-3");
        fs::write(path(&root), "0\n").unwrap();
        assert_eq!(reader.read().unwrap().to_string(), "0");
        fs::write(path(&root), "none").unwrap();
        assert_eq!(reader.read(), None);
    }
}
