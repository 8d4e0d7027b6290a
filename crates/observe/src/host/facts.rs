//! What files tell of a host.

use gleaner_model::Nanos;
use gleaner_sys::ProcRoot;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Something known of this host, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// `None`: unknown.
    pub value: Option<T>,
    /// Where it is known from; why not, where it is unknown.
    pub from: String,
}

impl<T> Fact<T> {
    fn known(value: T, from: impl Into<String>) -> Self {
        Self { value: Some(value), from: from.into() }
    }

    fn unknown(why: impl Into<String>) -> Self {
        Self { value: None, from: why.into() }
    }

    /// The first that is known; else the first reason.
    fn or_else(self, next: impl FnOnce() -> Self) -> Self {
        if self.value.is_some() {
            return self;
        }
        let next = next();
        if next.value.is_some() { next } else { self }
    }
}

/// How much real-time threads may take of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtBudget {
    /// In each period; `None`: without limit. As long as the period is none either (act's `RtThrottling` judges).
    pub runtime: Option<Nanos>,
    pub period: Nanos,
}

/// Exits of guests that spin on PAUSE (pause-loop exiting).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseExits {
    /// Whether they are on.
    pub on: bool,
    /// The module's parameters as it names them.
    pub parameters: Vec<(String, u64)>,
}

/// How long KVM polls when a vCPU halts, before it gives the CPU away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaltPolling {
    /// Longest poll; zero: off.
    pub longest: Nanos,
    /// By what the poll grows when it was too short; 0: not.
    pub grow: u64,
    pub grow_start: Option<Nanos>,
    /// By what it shrinks when it was too long; 0: to nothing at once.
    pub shrink: u64,
}

/// Everything that files tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Kernel release, as `uname -r` has it.
    pub kernel: String,
    /// Timer ticks per second.
    pub hz: Fact<u32>,
    /// Whether the scheduler ends slices by a timer of its own.
    pub hrtick: Fact<bool>,
    /// `none`, `voluntary`, `full`, `lazy`, `rt`.
    pub preemption: Fact<String>,
    /// The slice of threads that asked for none.
    pub base_slice: Fact<Nanos>,
    /// What real-time threads may take of a CPU, altogether.
    pub rt_budget: Fact<RtBudget>,
    /// What they may take in the cgroup of this process, where groups have budgets of their own.
    pub rt_group_runtime: Fact<Nanos>,
    pub pause_exits: Fact<PauseExits>,
    pub halt_polling: Fact<HaltPolling>,
}

/// Reads them all; nothing here takes time or changes anything.
pub fn host_facts(root: &ProcRoot) -> HostFacts {
    let kernel = text(&root.proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let config = Config::read(root, &kernel);
    HostFacts {
        hz: hz(root, &config),
        hrtick: hrtick(root, &config),
        preemption: preemption(root, &config),
        base_slice: base_slice(root),
        rt_budget: rt_budget(root),
        rt_group_runtime: rt_group_runtime(root, &config),
        pause_exits: pause_exits(root),
        halt_polling: halt_polling(root),
        kernel,
    }
}

/// Longer than any kernel's configuration.
const LIMIT: u64 = 8 << 20;

/// The kernel's build configuration, where the system has it.
struct Config {
    lines: Option<String>,
    from: String,
}

impl Config {
    fn read(root: &ProcRoot, kernel: &str) -> Self {
        let packed = root.proc.join("config.gz");
        if let Ok(file) = fs::File::open(&packed) {
            let mut lines = String::new();
            if flate2::read::GzDecoder::new(file).take(LIMIT).read_to_string(&mut lines).is_ok() {
                return Self { lines: Some(lines), from: packed.display().to_string() };
            }
        }
        // /boot stands beside /proc.
        let boot = root.proc.with_file_name("boot").join(format!("config-{kernel}"));
        Self { lines: fs::read_to_string(&boot).ok(), from: boot.display().to_string() }
    }

    /// The value of an option: `y`, a number; `Some("n")` where it is said not to be set or not named at all.
    fn get(&self, option: &str) -> Option<&str> {
        let lines = self.lines.as_ref()?.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(option)?.strip_prefix('='));
        Some(values.next().unwrap_or("n").trim())
    }

    fn is_set(&self, option: &str) -> Option<bool> {
        self.get(option).map(|value| value == "y")
    }
}

fn hz(root: &ProcRoot, config: &Config) -> Fact<u32> {
    let by_clock = || {
        // The coarse clocks advance once a tick, and their resolution says so.
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        let ns = u32::try_from(tick.tv_nsec).ok().filter(|ns| *ns > 0 && tick.tv_sec == 0)?;
        Some((1_000_000_000 + ns / 2) / ns)
    };
    if let Some(hz) = root.is_live().then(by_clock).flatten() {
        return Fact::known(hz, "resolution of CLOCK_MONOTONIC_COARSE");
    }
    match config.get("CONFIG_HZ").and_then(|value| value.parse().ok()) {
        Some(hz) => Fact::known(hz, &config.from),
        None => Fact::unknown("neither a clock nor the kernel's configuration tells"),
    }
}

fn hrtick(root: &ProcRoot, config: &Config) -> Fact<bool> {
    let path = root.sys.join("kernel/debug/sched/features");
    let by_file = match fs::read_to_string(&path) {
        Ok(features) => {
            let state = features.split_whitespace().find_map(|word| match word {
                "HRTICK" => Some(true),
                "NO_HRTICK" => Some(false),
                _ => None,
            });
            // A kernel that does not name it was built without.
            Fact::known(state.unwrap_or(false), path.display().to_string())
        }
        Err(error) => Fact::unknown(not_readable(&path, &error)),
    };
    by_file.or_else(|| match config.is_set("CONFIG_SCHED_HRTICK") {
        Some(false) => Fact::known(false, format!("CONFIG_SCHED_HRTICK is not set in {}", config.from)),
        _ => Fact::unknown(""),
    })
}

fn preemption(root: &ProcRoot, config: &Config) -> Fact<String> {
    if text(&root.sys.join("kernel/realtime")).as_deref() == Some("1") {
        return Fact::known("rt".to_owned(), "/sys/kernel/realtime");
    }
    let path = root.sys.join("kernel/debug/sched/preempt");
    let by_file = match fs::read_to_string(&path) {
        // The one in force stands in brackets.
        Ok(models) => match models.split_whitespace().find_map(|word| word.strip_prefix('(')?.strip_suffix(')')) {
            Some(model) => Fact::known(model.to_owned(), path.display().to_string()),
            None => Fact::unknown(format!("{} names none", path.display())),
        },
        Err(error) => Fact::unknown(not_readable(&path, &error)),
    };
    by_file.or_else(|| preemption_by_build(root, config))
}

/// From what the kernel was built with and started with.
fn preemption_by_build(root: &ProcRoot, config: &Config) -> Fact<String> {
    let version = text(&root.proc.join("version")).unwrap_or_default();
    let dynamic = version.contains("PREEMPT_DYNAMIC");
    if version.contains("PREEMPT_RT") {
        return Fact::known("rt".to_owned(), "/proc/version");
    }
    if version.contains("PREEMPT ") && !dynamic {
        return Fact::known("full".to_owned(), "/proc/version");
    }
    let command_line = text(&root.proc.join("cmdline")).unwrap_or_default();
    let asked = command_line.split_whitespace().filter_map(|word| word.strip_prefix("preempt=")).next_back();
    if let Some(model) = asked.filter(|_| dynamic) {
        return Fact::known(model.to_owned(), "the kernel's command line");
    }
    let models = [
        ("CONFIG_PREEMPT_NONE", "none"),
        ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
        ("CONFIG_PREEMPT_LAZY", "lazy"),
        ("CONFIG_PREEMPT", "full"),
    ];
    match models.into_iter().find(|(option, _)| config.is_set(option) == Some(true)) {
        Some((option, model)) => Fact::known(model.to_owned(), format!("{option} in {}", config.from)),
        None => Fact::unknown("neither debugfs nor the kernel's configuration can be read"),
    }
}

fn base_slice(root: &ProcRoot) -> Fact<Nanos> {
    let path = root.sys.join("kernel/debug/sched/base_slice_ns");
    match fs::read_to_string(&path) {
        Ok(value) => match value.trim().parse() {
            Ok(ns) => Fact::known(Nanos(ns), path.display().to_string()),
            Err(_) => Fact::unknown(format!("{} holds no number", path.display())),
        },
        Err(error) => Fact::unknown(not_readable(&path, &error)),
    }
}

fn rt_budget(root: &ProcRoot) -> Fact<RtBudget> {
    let read = |name: &str| number::<i64>(&root.proc.join("sys/kernel").join(name));
    match (read("sched_rt_runtime_us"), read("sched_rt_period_us")) {
        (Some(runtime), Some(period)) => {
            let time = |us: i64| u64::try_from(us).ok().map(Nanos::from_micros);
            let budget = RtBudget { runtime: time(runtime), period: time(period).unwrap_or(Nanos::ZERO) };
            Fact::known(budget, "/proc/sys/kernel/sched_rt_runtime_us")
        }
        _ => Fact::unknown("/proc/sys/kernel/sched_rt_runtime_us cannot be read"),
    }
}

/// What this process's group may give to real-time threads, as the v1 cpu controller shows it. On v2 a group has
/// nothing where the kernel has such budgets (`alloc_rt_sched_group`).
fn rt_group_runtime(root: &ProcRoot, config: &Config) -> Fact<Nanos> {
    let built = config.is_set("CONFIG_RT_GROUP_SCHED");
    if built == Some(false) {
        return Fact::unknown("groups have no real-time budgets: this kernel is built without RT_GROUP_SCHED");
    }
    let lines = text(&root.proc.join("self/cgroup")).unwrap_or_default();
    let own = |of: &dyn Fn(&str) -> bool| {
        lines.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            of(controllers).then_some(path.trim_start_matches('/'))
        })
    };
    let v1 = own(&|controllers| controllers.split(',').any(|name| name == "cpu"));
    let unified = root.sys.join("fs/cgroup");
    if let (None, Some(own), true) = (v1, own(&str::is_empty), unified.join("cgroup.controllers").exists()) {
        return if built == Some(true) && rt_groups_wanted(root, config) {
            rt_runtime_v2(&unified, own)
        } else {
            Fact::unknown(format!(
                "cgroup v2 shows no real-time budgets, and by {} and the command line's rt_group_sched= this kernel is not known to have any",
                config.from
            ))
        };
    }
    let Some(own) = v1 else { return Fact::unknown("the cpu controller is not mounted here") };
    let mounts = ["fs/cgroup/cpu", "fs/cgroup/cpu,cpuacct"].map(|mount| root.sys.join(mount));
    let files = mounts.map(|mount| mount.join(own).join("cpu.rt_runtime_us"));
    let found = files.iter().find_map(|path| number::<i64>(path).map(|us| (us, path)));
    match found {
        Some((us, path)) => {
            let runtime = u64::try_from(us).map_or(Nanos(u64::MAX), Nanos::from_micros);
            Fact::known(runtime, path.display().to_string())
        }
        None => Fact::unknown("cpu.rt_runtime_us of this process's cgroup cannot be read"),
    }
}

/// Since 6.16 a kernel that is built with budgets may be told to do without (`rt_group_sched=`), and may be so by
/// default.
fn rt_groups_wanted(root: &ProcRoot, config: &Config) -> bool {
    let line = text(&root.proc.join("cmdline")).unwrap_or_default();
    let asked = line.split_whitespace().filter_map(|word| word.strip_prefix("rt_group_sched=")).next_back();
    match asked {
        Some(word) => !["0", "n", "N", "off"].contains(&word),
        None => config.is_set("CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED") != Some(true),
    }
}

/// The scheduler's group is the nearest cgroup that the cpu controller is enabled for; without one, the root's.
fn rt_runtime_v2(unified: &Path, own: &str) -> Fact<Nanos> {
    let own = unified.join(own);
    let groups = own.ancestors().take_while(|group| *group != unified);
    match groups.map(|group| group.join("cpu.weight")).find(|weight| weight.exists()) {
        Some(weight) => Fact::known(
            Nanos::ZERO,
            format!("{} and RT_GROUP_SCHED: only cgroup v2's root has a budget", weight.display()),
        ),
        None => {
            Fact::unknown("this process is in the scheduler's root group, which has the machine's real-time budget")
        }
    }
}

fn pause_exits(root: &ProcRoot) -> Fact<PauseExits> {
    let modules: [(&str, &str, &[&str]); 2] = [
        ("kvm_intel", "ple_gap", &["ple_gap", "ple_window", "ple_window_grow", "ple_window_max", "ple_window_shrink"]),
        (
            "kvm_amd",
            "pause_filter_count",
            &["pause_filter_count", "pause_filter_thresh", "pause_filter_count_max", "pause_filter_count_grow"],
        ),
    ];
    for (module, switch, names) in modules {
        let folder = root.sys.join("module").join(module).join("parameters");
        let value = |name: &str| number::<u64>(&folder.join(name));
        let Some(on) = value(switch) else { continue };
        let parameters = names.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect();
        return Fact::known(PauseExits { on: on > 0, parameters }, folder.display().to_string());
    }
    Fact::unknown("neither kvm_intel nor kvm_amd is loaded here, or they do not show their parameters")
}

fn halt_polling(root: &ProcRoot) -> Fact<HaltPolling> {
    let folder = root.sys.join("module/kvm/parameters");
    let value = |name: &str| number::<u64>(&folder.join(name));
    match value("halt_poll_ns") {
        Some(longest) => {
            let polling = HaltPolling {
                longest: Nanos(longest),
                grow: value("halt_poll_ns_grow").unwrap_or(0),
                grow_start: value("halt_poll_ns_grow_start").map(Nanos),
                shrink: value("halt_poll_ns_shrink").unwrap_or(0),
            };
            Fact::known(polling, folder.display().to_string())
        }
        None => Fact::unknown("the module kvm is not loaded here"),
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

fn not_readable(path: &Path, error: &io::Error) -> String {
    let next = match error.kind() {
        io::ErrorKind::NotFound => "mount debugfs (mount -t debugfs none /sys/kernel/debug)",
        io::ErrorKind::PermissionDenied => "it needs root, and a kernel that is not locked down",
        _ => "the kernel refuses it",
    };
    format!("{} cannot be read: {next}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(files: &[(&str, &str)]) -> HostFacts {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        host_facts(&ProcRoot::below(folder.path()))
    }

    const CONFIG: (&str, &str) = (
        "boot/config-6.12.9-amd64",
        "CONFIG_HZ_250=y\nCONFIG_HZ=250\nCONFIG_SCHED_HRTICK=y\n# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n",
    );
    const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "6.12.9-amd64\n");

    #[test]
    fn nothing_is_known_of_an_empty_tree_and_every_reason_is_given() {
        let facts = facts(&[]);
        let reasons = [
            (facts.hz.value.is_none(), &facts.hz.from),
            (facts.hrtick.value.is_none(), &facts.hrtick.from),
            (facts.preemption.value.is_none(), &facts.preemption.from),
            (facts.base_slice.value.is_none(), &facts.base_slice.from),
            (facts.rt_budget.value.is_none(), &facts.rt_budget.from),
            (facts.rt_group_runtime.value.is_none(), &facts.rt_group_runtime.from),
            (facts.pause_exits.value.is_none(), &facts.pause_exits.from),
            (facts.halt_polling.value.is_none(), &facts.halt_polling.from),
        ];
        assert!(reasons.iter().all(|(unknown, why)| *unknown && !why.is_empty()), "{reasons:?}");
    }

    #[test]
    fn the_tick_and_what_ends_slices() {
        let built = facts(&[RELEASE, CONFIG]);
        assert_eq!((built.hz.value, built.hrtick.value), (Some(250), None), "built in is not turned on");
        assert!(built.hrtick.from.contains("debugfs"), "{}", built.hrtick.from);
        for (features, on) in [("GENTLE NO_HRTICK X", false), ("A HRTICK HRTICK_DL\n", true), ("A B", false)] {
            let found = facts(&[("sys/kernel/debug/sched/features", features)]);
            assert_eq!(found.hrtick.value, Some(on), "{features}");
        }
        let without = facts(&[RELEASE, (CONFIG.0, "CONFIG_HZ=1000\n")]);
        assert_eq!((without.hz.value, without.hrtick.value), (Some(1000), Some(false)));
        assert_eq!(
            facts(&[("sys/kernel/debug/sched/base_slice_ns", "2800000\n")]).base_slice.value,
            Some(Nanos(2_800_000))
        );
    }

    #[test]
    fn the_preemption_model_by_the_best_witness() {
        let debugfs = ("sys/kernel/debug/sched/preempt", "none voluntary (full) lazy\n");
        let dynamic = ("proc/version", "Linux version 6.12 #1 SMP PREEMPT_DYNAMIC\n");
        let asked = ("proc/cmdline", "quiet preempt=none preempt=lazy x\n");
        for (files, model) in [
            (&[debugfs, dynamic][..], "full"),
            (&[dynamic, asked, RELEASE, CONFIG], "lazy"),
            (&[dynamic, RELEASE, CONFIG], "voluntary"),
            (&[("proc/version", "Linux version 6.1 #1 SMP PREEMPT_RT x")], "rt"),
            (&[("proc/version", "Linux version 6.1 #1 SMP PREEMPT Debian")], "full"),
            (&[("sys/kernel/realtime", "1\n"), debugfs], "rt"),
        ] {
            assert_eq!(facts(files).preemption.value.as_deref(), Some(model), "{files:?}");
        }
    }

    #[test]
    fn what_real_time_threads_may_take() {
        let files = [
            ("proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
            ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
            ("proc/self/cgroup", "3:cpu,cpuacct:/a/b\n0::/\n"),
            ("sys/fs/cgroup/cpu/a/b/cpu.rt_runtime_us", "0\n"),
        ];
        let found = facts(&files);
        assert_eq!(found.rt_budget.value, Some(RtBudget { runtime: None, period: Nanos::from_secs(1) }));
        assert_eq!(found.rt_group_runtime.value, Some(Nanos::ZERO));
    }

    #[test]
    fn on_cgroup_v2_only_the_root_has_a_real_time_budget_where_the_kernel_has_them() {
        let (with, without) = ("CONFIG_RT_GROUP_SCHED=y\n", "# CONFIG_RT_GROUP_SCHED is not set\n");
        let off = "CONFIG_RT_GROUP_SCHED=y\nCONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED=y\n";
        let controlled = "sys/fs/cgroup/vms/cpu.weight";
        for (config, cmdline, weight, runtime, words) in [
            (with, "quiet", controlled, Some(Nanos::ZERO), "vms/cpu.weight and RT_GROUP_SCHED"),
            (with, "quiet", "sys/fs/cgroup/other/cpu.weight", None, "root group"),
            (with, "rt_group_sched=0", controlled, None, "is not known to have any"),
            (off, "quiet", controlled, None, "is not known to have any"),
            (off, "rt_group_sched=1", controlled, Some(Nanos::ZERO), "only cgroup v2's root has a budget"),
            (without, "quiet", controlled, None, "without RT_GROUP_SCHED"),
        ] {
            let files = [
                RELEASE,
                (CONFIG.0, config),
                ("proc/cmdline", cmdline),
                ("proc/self/cgroup", "0::/vms/a\n"),
                ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
                (weight, "100\n"),
            ];
            let found = facts(&files).rt_group_runtime;
            assert_eq!(found.value, runtime, "{config} {cmdline} {weight}");
            assert!(found.from.contains(words), "{words}: {}", found.from);
        }
    }

    #[test]
    fn what_the_modules_say() {
        let found = facts(&[
            ("sys/module/kvm_intel/parameters/ple_gap", "128\n"),
            ("sys/module/kvm_intel/parameters/ple_window", "4096\n"),
            ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
            ("sys/module/kvm/parameters/halt_poll_ns_grow", "2\n"),
        ]);
        let pauses = found.pause_exits.value.unwrap();
        assert_eq!((pauses.on, pauses.parameters.len()), (true, 2));
        let polling = found.halt_polling.value.unwrap();
        assert_eq!((polling.longest, polling.grow, polling.shrink), (Nanos(200_000), 2, 0));
        let off = facts(&[("sys/module/kvm_amd/parameters/pause_filter_count", "0\n")]);
        assert!(!off.pause_exits.value.unwrap().on);
    }
}
