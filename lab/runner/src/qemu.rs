//! One QEMU process: started so that it dies with the runner, its serial lines on sockets, its console in a file.

use crate::error::{Patience, RunnerError, TICK};
use gleaner_model::CpuSet;
use gleaner_scenario::{Accelerator, EmulatorSched, Vm};
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a VM is booted from.
#[derive(Clone, Debug)]
pub struct Boot {
    /// A vmlinuz.
    pub kernel: PathBuf,
    /// With agent, binary and modules in it.
    pub initramfs: PathBuf,
    /// A disk, which stays as it is.
    pub image: Option<PathBuf>,
    /// `Kvm` or `Tcg`.
    pub accelerator: Accelerator,
    /// Class of QEMU's own threads.
    pub emulator_sched: EmulatorSched,
    /// Their CPUs, if not the vCPUs'.
    pub emulator_cpus: Option<CpuSet>,
}

/// A QEMU process. Dropped, it is killed.
pub struct Qemu {
    child: Child,
    folder: PathBuf,
    /// vCPU threads, in the order of their indexes.
    pub vcpu_tids: Vec<i32>,
    monitor: Monitor,
    emulated: bool,
}

/// Between QEMU's start and its sockets.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

impl Qemu {
    /// Starts a VM, its files in `folder`; with it the other end of its ttyS1.
    pub fn start(vm: &Vm, boot: &Boot, folder: &Path, patience: &Patience) -> Result<(Self, UnixStream), RunnerError> {
        fs::create_dir_all(folder)
            .map_err(|error| RunnerError::work(&format!("creating {}", folder.display()), error))?;
        let (control, monitor) = (listen(&folder.join("control"))?, listen(&folder.join("monitor"))?);
        let log = |error| RunnerError::work("QEMU's log", error);
        let errors = File::create(folder.join("qemu.log")).map_err(log)?;
        // setpriv becomes QEMU: if the runner is killed -9, QEMU goes with it.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(arguments(vm, boot, folder))
            .stdin(Stdio::null())
            .stdout(errors.try_clone().map_err(log)?)
            .stderr(errors)
            // A Ctrl-C is the runner's to handle.
            .process_group(0)
            .spawn()
            .map_err(|error| RunnerError::work("cannot start QEMU (run scripts/setup.sh test)", error))?;
        let emulated = boot.accelerator != Accelerator::Kvm;
        let mut qemu =
            Self { child, folder: folder.into(), vcpu_tids: Vec::new(), monitor: Monitor::default(), emulated };
        let control = qemu.accept(&control, patience)?;
        let stream = qemu.accept(&monitor, patience)?;
        qemu.monitor = Monitor::new(stream).map_err(|why| qemu.failed(&why))?;
        let cpus = qemu.monitor.ask("query-cpus-fast").map_err(|why| qemu.failed(&why))?;
        let mut tids: Vec<(u64, i32)> = Vec::new();
        for cpu in cpus.as_array().into_iter().flatten() {
            let tid = cpu["thread-id"].as_i64().and_then(|tid| i32::try_from(tid).ok());
            tids.extend(cpu["cpu-index"].as_u64().zip(tid));
        }
        tids.sort_unstable();
        qemu.vcpu_tids = tids.into_iter().map(|(_, tid)| tid).collect();
        if qemu.vcpu_tids.len() != vm.vcpus as usize {
            return Err(qemu.failed(&format!("{} vCPU threads instead of {}", qemu.vcpu_tids.len(), vm.vcpus)));
        }
        Ok((qemu, control))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops all vCPUs, and the guest's clock with them.
    pub fn pause(&mut self) -> Result<(), RunnerError> {
        self.monitor.ask("stop").map(|_| ()).map_err(|why| self.failed(&why))
    }

    /// Lets them go on.
    pub fn resume(&mut self) -> Result<(), RunnerError> {
        self.monitor.ask("cont").map(|_| ()).map_err(|why| self.failed(&why))
    }

    /// Waits for its end, and kills it if that takes too long.
    pub fn end(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(TICK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it is there no more. A guest that panics ends QEMU within a moment, so a moment is waited.
    pub fn is_gone(&mut self) -> bool {
        for _ in 0..20 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return true;
            }
            std::thread::sleep(TICK);
        }
        false
    }

    /// Something went wrong: in words, with QEMU's own and the end of the console.
    pub fn failed(&self, what: &str) -> RunnerError {
        let console = read(&self.folder.join("console.log"));
        let errors = read(&self.folder.join("qemu.log"));
        // A QEMU that complains does so about its arguments or this host, and would again.
        let emulator = self.emulated && errors.trim().is_empty() && emulator_broke(&console);
        let errors =
            if errors.trim().is_empty() { String::new() } else { format!("\nQEMU said:\n{}", errors.trim_end()) };
        let what = format!("{what}{errors}\nthe console's last lines:\n{}", last_lines(&console));
        RunnerError::Vm { what, emulator }
    }

    fn accept(&mut self, listener: &UnixListener, patience: &Patience) -> Result<UnixStream, RunnerError> {
        let end = Instant::now() + CONNECT_LIMIT;
        loop {
            patience.check()?;
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(|error| RunnerError::work("a socket", error))?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < end => {
                    if let Ok(Some(status)) = self.child.try_wait() {
                        return Err(self.failed(&format!("QEMU ended at once ({status})")));
                    }
                    std::thread::sleep(TICK / 5);
                }
                Err(error) => return Err(self.failed(&format!("QEMU did not connect: {error}"))),
            }
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The console's end as messages have it: at least [`CONSOLE_LINES`], and from where the kernel says why it panics,
/// which the trace below it may push further up. Among panics within panics the first is the cause.
fn last_lines(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let panic = lines.iter().position(|line| line.contains("Kernel panic"));
    let begin = lines.len().saturating_sub(CONSOLE_LINES);
    let begin = panic.map_or(begin, |panic| begin.min(panic));
    lines[begin..lines.len().min(begin + 4 * CONSOLE_LINES)].join("\n")
}

/// Lines of the console in messages.
const CONSOLE_LINES: usize = 40;

/// As testbed/guest.sh has it: QEMU 7.2's emulation now and then runs a vCPU over an instruction that the guest's
/// kernel is patching, which no program in the guest can cause.
fn emulator_broke(console: &str) -> bool {
    !console.lines().any(|line| line.starts_with("guest: init done"))
        || console.contains("Oops: int3")
        || console
            .lines()
            .any(|line| line.contains("RIP: ") && (line.contains("do_sync_core") || line.contains("text_poke")))
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).replace('\r', "")).unwrap_or_default()
}

fn listen(path: &Path) -> Result<UnixListener, RunnerError> {
    let _ = fs::remove_file(path);
    let listener =
        UnixListener::bind(path).map_err(|error| RunnerError::work(&format!("socket {}", path.display()), error))?;
    listener.set_nonblocking(true).map_err(|error| RunnerError::work("a socket", error))?;
    Ok(listener)
}

/// The machine: see testbed/guest.sh for the reasons of the CPU's flags and the kernel's words.
fn arguments(vm: &Vm, boot: &Boot, folder: &Path) -> Vec<String> {
    let kvm = boot.accelerator == Accelerator::Kvm;
    let path = |name: &str| folder.join(name).display().to_string();
    let clock = if kvm { "" } else { " tsc=reliable clocksource=tsc no_timer_check" };
    let words = format!("console=ttyS0 quiet panic=-1{clock} {}", vm.append);
    let mut arguments: Vec<String> = vec![
        "-name".into(),
        format!("{},debug-threads=on", vm.name),
        "-accel".into(),
        if kvm { "kvm".into() } else { "tcg,thread=multi".into() },
        "-cpu".into(),
        if kvm { "host".into() } else { "max,la57=off,cx16=off".into() },
        "-smp".into(),
        vm.vcpus.to_string(),
        "-m".into(),
        vm.memory_mib.to_string(),
    ];
    arguments.extend(["-nodefaults", "-display", "none", "-no-reboot"].map(str::to_owned));
    arguments.extend(["-chardev".into(), format!("socket,id=control,path={}", path("control"))]);
    arguments.extend(["-serial".into(), format!("file:{}", path("console.log"))]);
    arguments.extend(["-serial", "chardev:control"].map(str::to_owned));
    arguments.extend(["-serial".into(), format!("file:{}", path("status.log"))]);
    arguments.extend(["-qmp".into(), format!("unix:{}", path("monitor"))]);
    arguments.extend(["-kernel".into(), boot.kernel.display().to_string()]);
    arguments.extend(["-initrd".into(), boot.initramfs.display().to_string(), "-append".into(), words]);
    if let Some(image) = &boot.image {
        let image = image.display();
        arguments.extend(["-drive".into(), format!("file={image},format=raw,if=virtio,snapshot=on")]);
    }
    if vm.modules.iter().any(|module| module == "net") {
        // QEMU's own network: no device and no rule of the host's is touched. The host's 127.0.0.1 is 10.0.2.2 there.
        arguments
            .extend(["-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0,romfile="].map(str::to_owned));
    }
    arguments
}

/// QEMU's monitor, of which three commands are needed.
#[derive(Default)]
struct Monitor {
    stream: Option<BufReader<UnixStream>>,
}

/// Events that may come before an answer.
const EVENTS_MAX: usize = 1000;

impl Monitor {
    fn new(stream: UnixStream) -> Result<Self, String> {
        let broken = |error: std::io::Error| format!("QEMU's monitor: {error}");
        stream.set_read_timeout(Some(CONNECT_LIMIT)).map_err(broken)?;
        let mut monitor = Self { stream: Some(BufReader::new(stream)) };
        monitor.ask("qmp_capabilities")?;
        Ok(monitor)
    }

    fn ask(&mut self, command: &str) -> Result<serde_json::Value, String> {
        let stream = self.stream.as_mut().ok_or("QEMU's monitor is not there")?;
        let request = serde_json::json!({ "execute": command }).to_string() + "\n";
        stream.get_mut().write_all(request.as_bytes()).map_err(|error| format!("QEMU's monitor: {error}"))?;
        for _ in 0..EVENTS_MAX {
            let line =
                crate::agent::next_line(stream).ok_or_else(|| format!("QEMU's monitor did not answer {command}"))?;
            let answer: serde_json::Value = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
            if let Some(error) = answer.get("error") {
                return Err(format!("QEMU refused {command}: {error}"));
            }
            if let Some(found) = answer.get("return") {
                return Ok(found.clone());
            }
        }
        Err(format!("QEMU's monitor did not answer {command}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_scenario::Scenario;

    #[test]
    fn a_network_card_is_there_for_who_asks_for_its_module_alone() {
        let text = |more: &str| {
            format!(
                "name = \"n\"\ndescription = \"d\"\nrounds = 1\n[[vm]]\nname = \"a\"\nrole = \"measured\"\nvcpus = 1\n\
                 policies = [\"off\"]\nworkloads = [\"nothing\"]\n{more}"
            )
        };
        let cards = |more: &str| {
            let scenario = Scenario::parse(&text(more), Path::new("n.toml")).unwrap();
            let boot = Boot {
                kernel: "k".into(),
                initramfs: "i".into(),
                image: None,
                accelerator: Accelerator::Tcg,
                emulator_sched: EmulatorSched::Other,
                emulator_cpus: None,
            };
            let all = arguments(&scenario.vms[0], &boot, Path::new("/f"));
            all.iter().filter(|argument| argument.starts_with("virtio-net-pci")).count()
        };
        assert_eq!((cards("modules = [\"net\"]"), cards("")), (1, 0));
    }

    #[test]
    fn a_panic_is_told_from_its_reason_however_long_its_trace_and_without_end() {
        let boot = "[    0.1] Linux\n".repeat(200);
        let reason = "Kernel panic - not syncing: sysrq triggered crash\n";
        assert_eq!(last_lines(&boot).lines().count(), CONSOLE_LINES);
        for (trace, lines) in [(3, CONSOLE_LINES), (70, 71), (900, 4 * CONSOLE_LINES)] {
            let last = last_lines(&format!("{boot}{reason}{}", " ? sysrq_handle_crash\n".repeat(trace)));
            assert!(last.contains(reason.trim_end()), "{trace}: {last}");
            assert_eq!(last.lines().count(), lines, "{trace}");
        }
    }

    #[test]
    fn what_the_emulator_breaks_is_told_from_what_a_guest_does() {
        let up = "[    0.1] Linux\nguest: init done at 1.3 s\n";
        let panic = "Kernel panic - not syncing: sysrq triggered crash\nRIP: 0010:sysrq_handle_crash+0x1a\n";
        for (console, broken) in [
            ("", true),
            ("[    0.1] Linux\nKernel panic - not syncing: Fatal exception\n", true),
            (up, false),
            (&format!("{up}{panic}"), false),
            (&format!("{up}Oops: int3: 0000 [#1] SMP\n"), true),
            (&format!("{up}RIP: 0010:do_sync_core+0x2a/0x30\n"), true),
        ] {
            assert_eq!(emulator_broke(console), broken, "{console}");
        }
    }
}
