//! What the runner does to the host, and reads from it: pins, CPU caps, CPU time, facts. Everything is undone when it
//! ends, after a kill -9 too: a small process of its own waits for the runner's end and removes what is left.

use crate::error::RunnerError;
use gleaner_model::CpuSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Confines a thread.
pub fn pin(tid: i32, cpus: &CpuSet) -> Result<(), RunnerError> {
    gleaner_sys::set_affinity(tid, cpus)
        .map_err(|error| RunnerError::Input(format!("cannot pin a thread to host CPUs {cpus}: {error}")))
}

/// Makes it a batch thread, which displaces nobody when it wakes. Threads that it starts are of its class.
pub fn make_batch(tid: i32) -> Result<(), RunnerError> {
    script(Command::new("chrt").args(["--batch", "--pid", "0", &tid.to_string()])).map(drop)
}

/// Threads of a process.
pub fn threads(pid: u32) -> Vec<i32> {
    gleaner_sys::numbered(Path::new(&format!("/proc/{pid}/task"))).collect()
}

/// CPU time of a process's living threads; `None` where it cannot be read.
pub fn cpu_time_ns(pid: u32) -> Option<u64> {
    let of = |tid: i32| {
        let text = fs::read(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        gleaner_sys::schedstat(&text).map(|(ran, ..)| ran)
    };
    let times: Vec<u64> = threads(pid).into_iter().filter_map(of).collect();
    (!times.is_empty()).then(|| times.iter().sum())
}

/// Where a CPU cap can be set: the root of a hierarchy with the cpu controller.
enum CpuController {
    V1(PathBuf),
    V2(PathBuf),
}

fn cpu_controller() -> Option<CpuController> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut v2 = None;
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, path, kind, options, ..] = fields.as_slice() else { continue };
        if *kind == "cgroup" && options.split(',').any(|option| option == "cpu") {
            return Some(CpuController::V1(path.into()));
        }
        if *kind == "cgroup2" {
            let controllers = fs::read_to_string(Path::new(path).join("cgroup.controllers")).unwrap_or_default();
            if controllers.split_whitespace().any(|name| name == "cpu") {
                v2 = Some(CpuController::V2(path.into()));
            }
        }
    }
    v2
}

/// Longer periods would let a VM run at full speed for a long time and then stand still as long.
const PERIOD_US: u32 = 20_000;

/// A cgroup that lets a process have so much CPU time and no more. Dropped after the process's end, it is gone;
/// [`CleanupProcess`] sees to it where there is nobody to drop it.
pub struct Cap {
    folder: PathBuf,
}

fn cgroup_name(vm: &str) -> String {
    format!("gleaner-testbed-{}-{vm}", std::process::id())
}

impl Cap {
    /// Caps a process and its threads at `cpus` CPUs' worth.
    pub fn new(pid: u32, vm: &str, cpus: f64) -> Result<Self, RunnerError> {
        let what = format!("cap of VM {vm}");
        let refused = |error: std::io::Error| {
            RunnerError::work(&what, format!("{error}; it takes root and a cgroup hierarchy with the cpu controller"))
        };
        let Some(controller) = cpu_controller() else {
            return Err(RunnerError::Work(format!("{what}: no cgroup hierarchy here has the cpu controller")));
        };
        let (CpuController::V1(root) | CpuController::V2(root)) = &controller;
        if let CpuController::V2(root) = &controller {
            // Somebody else's to decide, and on wherever there is systemd.
            let file = root.join("cgroup.subtree_control");
            if !fs::read_to_string(&file).map_err(refused)?.split_whitespace().any(|name| name == "cpu") {
                let what =
                    format!("{what}: the cpu controller is off for child cgroups; echo +cpu >{}", file.display());
                return Err(RunnerError::Work(what));
            }
        }
        let folder = root.join(cgroup_name(vm));
        fs::create_dir(&folder).map_err(refused)?;
        let cap = Self { folder: folder.clone() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let quota = (f64::from(PERIOD_US) * cpus).round() as u64;
        match controller {
            CpuController::V1(_) => {
                fs::write(folder.join("cpu.cfs_period_us"), PERIOD_US.to_string()).map_err(refused)?;
                fs::write(folder.join("cpu.cfs_quota_us"), quota.to_string()).map_err(refused)?;
            }
            CpuController::V2(_) => {
                fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD_US}")).map_err(refused)?;
            }
        }
        fs::write(folder.join("cgroup.procs"), pid.to_string()).map_err(refused)?;
        Ok(cap)
    }
}

impl Drop for Cap {
    fn drop(&mut self) {
        for _ in 0..100 {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                _ => break,
            }
        }
    }
}

/// A process that removes this one's cgroups and folder once this one is gone, however that happens. It needs no list:
/// all cgroups carry this process's id in their names.
pub struct CleanupProcess {
    child: Child,
    /// Its end of the pipe closes with this process.
    _alive: ChildStdin,
}

/// $1 the prefix of cgroups (which end with their VMs' own death), $2 the folder.
const UNDERTAKER: &str = "read -r nothing
for n in 1 2 3 4 5 6 7 8 9 10; do
    rmdir \"$1\"* 2>/dev/null
    set -- \"$1\" \"$2\" $(echo \"$1\"*)
    [ -d \"$3\" ] || break
    sleep 0.3
done
rm -rf \"$2\"";

impl CleanupProcess {
    pub fn start(folder: &Path) -> Result<Self, RunnerError> {
        let (CpuController::V1(root) | CpuController::V2(root)) =
            cpu_controller().unwrap_or_else(|| CpuController::V2("/sys/fs/cgroup".into()));
        let failed = |error: std::io::Error| RunnerError::work("cannot start sh", error);
        let mut child = Command::new("sh")
            .args(["-c", UNDERTAKER, "gleaner-testbed-cleanup"])
            .args([root.join(cgroup_name("")).as_path(), folder])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let alive = child.stdin.take().ok_or_else(|| failed(std::io::Error::other("no pipe")))?;
        Ok(Self { child, _alive: alive })
    }
}

impl Drop for CleanupProcess {
    /// An orderly end leaves it nothing to do.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a script of testbed/ and returns its first lines of stdout; its stderr is the user's.
pub fn script(command: &mut Command) -> Result<String, RunnerError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| RunnerError::work(&format!("cannot run {name}"), error))?;
    if !output.status.success() {
        return Err(RunnerError::Work(format!("{name} failed ({}), see above", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::make_batch;
    use std::process::Command;

    #[test]
    fn a_thread_is_made_a_batch_thread() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let made = make_batch(i32::try_from(child.id()).unwrap());
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        made.unwrap();
        // Field 41 of proc(5), the 38th after the name and the state; SCHED_BATCH is 3.
        assert_eq!(stat.rsplit(") ").next().unwrap().split(' ').nth(38), Some("3"), "{stat}");
    }
}
