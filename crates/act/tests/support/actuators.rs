//! Each way in which this crate changes the machine: a world for it, how the world looks, and the change itself.
//!
//! A new actuator is a new constant here and its name in the list of `journal_first.rs`.

use gleaner_act::{
    CgroupRoots, Haltpoll, IdleGroup, Journal, Placement, PmQos, RUN_ID_VARIABLE, Retainer, SliceSupport, Slices,
    XenChange, XenPool, XenTimes, Xl, allowed_cpus, change_xen, cpu_controller, thread_attr,
};
use gleaner_model::{CpuSet, Nanos, VcpuId};
use rustix::process::Pid;
use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};

/// A way in which the machine is changed.
pub struct Actuator {
    pub name: &'static str,
    /// Makes what it acts upon, for a run of that id and in a folder of its own; `Err` says what this machine lacks.
    pub world: fn(&str, &Path) -> Result<World, &'static str>,
    /// Changes it, in a process of its own: `words` are the world's.
    pub act: fn(&[String], &mut Journal) -> Result<(), String>,
}

/// What is acted upon. It outlives who acts.
pub struct World {
    pub words: Vec<String>,
    /// Everything that may have been changed, in words.
    pub look: Box<dyn Fn() -> String>,
}

/// A process to be moved about; ended with the world.
struct Sleeper(Child);

impl Sleeper {
    /// One that carries the mark of a run, or none.
    fn start(run_id: Option<&str>) -> Self {
        let mut command = Command::new("sleep");
        command.arg("60").env_clear().envs(run_id.map(|run_id| (RUN_ID_VARIABLE, run_id)));
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cpus_of(pid: i32) -> Vec<usize> {
    let mask = sched_getaffinity(Pid::from_raw(pid)).unwrap();
    (0..Mask::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect()
}

fn pid_in(words: &[String], at: usize) -> i32 {
    words[at].parse().unwrap()
}

fn first_cpu(base: &CpuSet) -> CpuSet {
    base.iter().take(1).collect()
}

/// The folders directly below `parent` that a run made, and the controllers that it hands on.
fn cgroups(parent: &Path, run_id: &str) -> String {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    found.retain(|name| name.contains(run_id));
    let control = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    format!("{found:?} {control}")
}

/// The yielding threads' cgroup.
pub const IDLE_GROUP: Actuator = Actuator {
    name: "idle_group",
    world: |run_id, _| {
        let found = cpu_controller(&CgroupRoots::default()).filter(|found| found.v2);
        let mount = found.ok_or("cgroup v2's cpu controller")?.mount;
        let run_id = run_id.to_owned();
        Ok(World { words: Vec::new(), look: Box::new(move || cgroups(&mount, &run_id)) })
    },
    act: |_, journal| match IdleGroup::create(journal).fallback() {
        None => Ok(()),
        Some(fallback) => Err(fallback.to_string()),
    },
};

/// The masks of a program's threads, of which one has pinned itself.
pub const AFFINITY: Actuator = Actuator {
    name: "affinity",
    world: |run_id, _| {
        let base: Vec<usize> = allowed_cpus().iter().map(|cpu| cpu.0 as usize).collect();
        let [_, .., last] = base[..] else { return Err("two CPUs") };
        let (root, pinned) = (Sleeper::start(None), Sleeper::start(Some(run_id)));
        let mut mask = Mask::new();
        mask.set(last);
        // With three CPUs or more, one that keeps a part of its choice.
        if base.len() > 2 {
            mask.set(base[0]);
        }
        sched_setaffinity(Pid::from_raw(pinned.pid()), &mask).unwrap();
        let words = [&root, &pinned].map(|sleeper| sleeper.pid().to_string()).to_vec();
        let look = move || format!("{:?} {:?}", cpus_of(root.pid()), cpus_of(pinned.pid()));
        Ok(World { words, look: Box::new(look) })
    },
    act: |words, journal| {
        let (root, pinned, base) = (pid_in(words, 0), pid_in(words, 1), allowed_cpus());
        let mut placement = Placement::new(&base);
        placement.program_started(root);
        let confined = placement.confine(&first_cpu(&base), &[root, pinned], journal);
        confined.map_err(|error| error.to_string())
    },
};

/// Time slices of two threads.
pub const SLICES: Actuator = Actuator {
    name: "slices",
    world: |_, _| {
        SliceSupport::probe().base.ok_or("slices of threads (Linux 6.12)")?;
        let sleepers = [Sleeper::start(None), Sleeper::start(None)];
        let words = sleepers.iter().map(|sleeper| sleeper.pid().to_string()).collect();
        let slice = |sleeper: &Sleeper| thread_attr(sleeper.pid()).unwrap().slice.to_string();
        let look = move || sleepers.iter().map(slice).collect::<Vec<_>>().join(" ");
        Ok(World { words, look: Box::new(look) })
    },
    act: |words, journal| {
        let mut slices = Slices::new();
        for at in 0..words.len() {
            let set = slices.set(pid_in(words, at), Nanos::from_millis(1), journal);
            set.map_err(|error| error.to_string())?;
        }
        Ok(())
    },
};

/// Files of `/sys`, made up; what is in them afterwards.
fn sys_world(folder: &Path, files: &'static [(&'static str, &'static str)]) -> World {
    let sys = folder.join("sys");
    for (name, text) in files {
        fs::create_dir_all(sys.join(name).parent().unwrap()).unwrap();
        fs::write(sys.join(name), text).unwrap();
    }
    let words = vec![sys.display().to_string()];
    let text = move |(name, _): &(&str, &str)| fs::read_to_string(sys.join(name)).unwrap().trim().to_owned();
    World { words, look: Box::new(move || files.iter().map(&text).collect::<Vec<_>>().join(" ")) }
}

fn retain(mut retainer: impl Retainer, journal: &mut Journal) -> Result<(), String> {
    let set = [0, 1].into_iter().try_for_each(|cpu| {
        let timeout = Some(Nanos::from_micros(200 + 100 * u64::from(cpu)));
        retainer.set(VcpuId(cpu), timeout, journal)
    });
    // A thread of its own may have to be done first; nothing is given back before this process has ended.
    std::thread::sleep(std::time::Duration::from_millis(100));
    std::mem::forget(retainer);
    set.map_err(|error| error.to_string())
}

/// PM QoS of two vCPUs.
pub const PM_QOS: Actuator = Actuator {
    name: "pm_qos",
    world: |_, folder| {
        const FILES: &[(&str, &str)] = &[
            ("devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
            ("devices/system/cpu/cpu0/cpuidle/state0/time", "0\n"),
            ("devices/system/cpu/cpu0/cpuidle/state1/usage", "0\n"),
            ("devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "0\n"),
            ("devices/system/cpu/cpu1/cpuidle/state0/time", "0\n"),
            ("devices/system/cpu/cpu1/cpuidle/state1/usage", "0\n"),
            ("devices/system/cpu/cpu1/power/pm_qos_resume_latency_us", "100\n"),
        ];
        Ok(sys_world(folder, FILES))
    },
    act: |words, journal| {
        let retainer =
            PmQos::open(Path::new(&words[0]), &CpuSet::first(2), journal).map_err(|error| error.to_string())?;
        retain(retainer, journal)
    },
};

/// The parameters of the haltpoll governor.
pub const HALTPOLL: Actuator = Actuator {
    name: "haltpoll",
    world: |_, folder| {
        const FILES: &[(&str, &str)] = &[
            ("devices/system/cpu/cpuidle/current_driver", "haltpoll\n"),
            ("devices/system/cpu/cpuidle/current_governor", "haltpoll\n"),
            ("devices/system/cpu/online", "0-1\n"),
            ("devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
            ("devices/system/cpu/cpu1/cpuidle/state0/disable", "1\n"),
            ("module/haltpoll/parameters/guest_halt_poll_ns", "200000\n"),
            ("module/haltpoll/parameters/guest_halt_poll_grow", "2\n"),
            ("module/haltpoll/parameters/guest_halt_poll_grow_start", "50000\n"),
        ];
        Ok(sys_world(folder, FILES))
    },
    act: |words, journal| {
        let retainer = Haltpoll::open(Path::new(&words[0]), journal).map_err(|error| error.to_string())?;
        retain(retainer, journal)
    },
};

/// An `xl` that keeps what it is told in a file, and shows it as the real one does.
const XL: &str = r#"#!/bin/sh
state=$(dirname "$0")/state
case "$*" in
"sched-credit -s -p Pool-0" | "sched-credit2 -s -p Pool-0") echo "Cpupool Pool-0: $(cat "$state")" ;;
"sched-credit -s -p Pool-0 -t "*) echo "tslice=$6ms ratelimit=$8us" >"$state" ;;
"sched-credit2 -s -p Pool-0 -r "*) echo "ratelimit=$6us" >"$state" ;;
*) echo "no such command: $*" >&2; exit 1 ;;
esac
"#;

fn xen_world(folder: &Path, state: &str) -> World {
    let program = folder.join("xl");
    fs::write(&program, XL).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.join("state");
    fs::write(&file, format!("{state}\n")).unwrap();
    let words = vec![program.display().to_string()];
    World { words, look: Box::new(move || fs::read_to_string(&file).unwrap()) }
}

fn xen_act(words: &[String], scheduler: &str, [was, set]: [XenTimes; 2], journal: &mut Journal) -> Result<(), String> {
    let pool = XenPool { name: "Pool-0".into(), scheduler: scheduler.into() };
    let change = XenChange { pool, was, set };
    change_xen(&Xl::at(Path::new(&words[0])), &change, journal).map_err(|error| error.to_string())
}

/// A slice under Xen's credit.
pub const XEN_CREDIT: Actuator = Actuator {
    name: "xen_credit",
    world: |_, folder| Ok(xen_world(folder, "tslice=30ms ratelimit=1000us")),
    act: |words, journal| {
        let times = [30, 1].map(|slice_ms| XenTimes { slice_ms: Some(slice_ms), ratelimit_us: 1000 });
        xen_act(words, "credit", times, journal)
    },
};

/// A ratelimit under Xen's credit2.
pub const XEN_CREDIT2: Actuator = Actuator {
    name: "xen_credit2",
    world: |_, folder| Ok(xen_world(folder, "ratelimit=1000us")),
    act: |words, journal| {
        let times = [1000, 100].map(|ratelimit_us| XenTimes { slice_ms: None, ratelimit_us });
        xen_act(words, "credit2", times, journal)
    },
};

/// In words, for a failure.
pub fn list(words: &[String]) -> String {
    words.iter().fold(String::new(), |mut all, word| {
        let _ = write!(all, " {word}");
        all
    })
}
