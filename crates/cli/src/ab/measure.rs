//! Runs the command once, and measures its time and its costs.

use super::capture::{Capture, Found, Scan, Show};
use super::interrupt::Interrupt;
use super::plan::{Mode, Plan};
use crate::run::signals::Inherited;
use gleaner_command::failure::Failure;
use gleaner_model::Nanos;
use gleaner_observe::{ProcRoot, StatReader};
use gleaner_report::RunReport;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// What a run came to.
pub struct Outcome {
    /// `None` when `gleaner run` failed before it had anything to report.
    pub report: Option<RunReport>,
    /// As a shell would say it.
    pub exit_status: i32,
    pub usage: Usage,
    /// Stolen time; `None` where the hypervisor has never reported any.
    pub steal_ns: Option<u64>,
    pub stdout: Scan,
    pub stderr: Scan,
    /// Whether somebody held its output open, or was still there, when it had ended.
    pub left_behind: bool,
}

impl Outcome {
    /// The metric: the last match on stdout, else on stderr.
    pub fn metric(&self) -> Option<&Found> {
        self.stdout.last().or(self.stderr.last())
    }

    /// The end of its output, to be shown with a failure.
    pub fn tail(&self) -> String {
        let tails = [self.stdout.tail(), self.stderr.tail()];
        tails.into_iter().filter(|tail| !tail.is_empty()).collect::<Vec<String>>().join("\n")
    }
}

/// What the kernel has charged to children that ended and were waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu_time_ns: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

impl Usage {
    fn of_children() -> Self {
        // SAFETY: rusage is plain data, filled by the call.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
            usage
        };
        let positive = |value: i64| u64::try_from(value).unwrap_or(0);
        let ns = |time: libc::timeval| positive(time.tv_sec) * 1_000_000_000 + positive(time.tv_usec) * 1_000;
        Self {
            cpu_time_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
            voluntary_switches: positive(usage.ru_nvcsw),
            involuntary_switches: positive(usage.ru_nivcsw),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            cpu_time_ns: self.cpu_time_ns - before.cpu_time_ns,
            voluntary_switches: self.voluntary_switches - before.voluntary_switches,
            involuntary_switches: self.involuntary_switches - before.involuntary_switches,
        }
    }
}

/// Where runs put their reports: a file without a name, of which nothing is left however this process ends.
pub struct ReportFile(File);

impl ReportFile {
    pub fn new() -> Result<Self, Failure> {
        let made = memfd_create("gleaner-ab", MemfdFlags::CLOEXEC);
        made.map(|file| Self(file.into())).map_err(|errno| Failure::run(format!("no memory for reports: {errno}")))
    }

    /// As a run finds it, which does not inherit it: nor does its program.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    fn read(&self) -> Option<RunReport> {
        let mut file = &self.0;
        let text = file.rewind().and_then(|()| io::read_to_string(file)).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// Runs the command once.
pub fn run(plan: &Plan, mode: &Mode, report: &ReportFile, interrupt: &Interrupt) -> Result<Outcome, Failure> {
    // What an earlier run left there must not be taken for this one's.
    report.0.set_len(0).map_err(Failure::run)?;
    let mut command = Command::new(gleaner_runtime::own_binary());
    command.arg("run").args(["--policy", &mode.word]).args(&plan.run_options).arg("--json").arg(report.path());
    command.arg("--").args(&plan.command);
    // A server that a script has started is not left behind by the run.
    let has_company = reap_orphans();
    let (before, stolen_before) = (Usage::of_children(), steal());
    let (status, captures) = ended(plan, &mut command, interrupt)?;
    let somebody_lives = reap_orphans() && !has_company;
    let usage = Usage::of_children().since(before);
    let steal_ns = steal().zip(stolen_before).map(|(after, before)| (after - before).0);
    let [(stdout, stdout_whole), (stderr, stderr_whole)] = captures.map(Capture::finish);
    Ok(Outcome {
        report: report.read(),
        exit_status: as_a_shell_says(status),
        usage,
        steal_ns,
        stdout,
        stderr,
        left_behind: somebody_lives || !stdout_whole || !stderr_whole,
    })
}

fn as_a_shell_says(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Runs a script, unmeasured: its status, and the end of what it said.
pub fn script(plan: &Plan, script: &str, interrupt: &Interrupt) -> Result<(i32, String), Failure> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    let (status, captures) = ended(plan, &mut command, interrupt)?;
    let tails = captures.map(|capture| capture.finish().0.tail());
    let said: Vec<String> = tails.into_iter().filter(|tail| !tail.is_empty()).collect();
    Ok((as_a_shell_says(status), said.join("\n")))
}

/// Starts a command and waits for its end; what reads its output goes on.
fn ended(plan: &Plan, command: &mut Command, interrupt: &Interrupt) -> Result<(ExitStatus, [Capture; 2]), Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let inherited = Inherited::now();
    let restore = move || {
        inherited.restore();
        Ok(())
    };
    // SAFETY: `restore` makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(restore) };
    let mut child = command
        .spawn()
        .map_err(|error| Failure::run(format!("cannot start a run: {}", gleaner_sys::why_refused(&error))))?;
    match captures(plan, &mut child) {
        Ok(captures) => Ok((wait(&mut child, interrupt)?, captures)),
        Err(error) => {
            // Nobody would read what it says.
            let _ = child.kill();
            let _ = child.wait();
            Err(Failure::run(format!("no thread to read the run's output: {}", gleaner_sys::why_refused(&error))))
        }
    }
}

fn captures(plan: &Plan, child: &mut Child) -> std::io::Result<[Capture; 2]> {
    let regex = plan.metric.as_ref().map(|metric| &metric.regex);
    let shown = |place| if plan.show_output { place } else { Show::Nowhere };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let missing = || std::io::Error::other("a run without pipes");
    let of_stdout = if plan.stdout_taken { Show::Stderr } else { Show::Stdout };
    Ok([
        Capture::start(stdout.ok_or_else(missing)?, regex, shown(of_stdout))?,
        Capture::start(stderr.ok_or_else(missing)?, regex, shown(Show::Stderr))?,
    ])
}

/// Waits for its end. The pid stays the child's until nobody can send it a signal any more.
fn wait(child: &mut Child, interrupt: &Interrupt) -> Result<ExitStatus, Failure> {
    interrupt.set_child(i32::try_from(child.id()).ok());
    loop {
        // SAFETY: siginfo is plain data, filled by the call; WNOWAIT leaves the child to be waited for.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child.id(), &raw mut info, libc::WEXITED | libc::WNOWAIT) == 0
        };
        if ended || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            break;
        }
    }
    interrupt.set_child(None);
    child.wait().map_err(Failure::run)
}

/// Waits for orphans that have ended, which came to us; says whether others live on.
fn reap_orphans() -> bool {
    loop {
        // SAFETY: the status is not wanted. No other child of this process is waited for by its pid.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            0 => return true,
            ..0 => return false,
            1.. => {}
        }
    }
}

/// Steal of all vCPUs since boot; `None` where none was ever reported.
fn steal() -> Option<Nanos> {
    let stat = StatReader::open(&ProcRoot::default()).and_then(|mut reader| reader.read()).ok()?;
    Some(stat.steal()).filter(|steal| *steal > Nanos::ZERO)
}
