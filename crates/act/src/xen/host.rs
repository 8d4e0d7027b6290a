//! Finds a Xen host by its own tool `xl`: whether this is its dom0, and its cpupools. vCPUs are no threads of dom0's.

use crate::ActError;
use gleaner_sys::{ProcRoot, why_refused};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// How long one `xl` may take: it hangs for good where xenstored does not run. It takes a few milliseconds; under an
/// emulator, a second.
const LIMIT: Duration = Duration::from_secs(30);
/// Where it lives if it is not in the PATH: a `gleaner restore` of somebody whose PATH has no sbin.
const USUAL: [&str; 3] = ["/usr/sbin/xl", "/sbin/xl", "/usr/local/sbin/xl"];

/// Whether this Linux is the domain of a Xen host that may ask about the others.
pub fn is_xen_dom0(root: &ProcRoot) -> bool {
    fs::read_to_string(root.proc.join("xen/capabilities")).is_ok_and(|text| text.contains("control_d"))
}

/// A cpupool: physical CPUs with a scheduler of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenPool {
    /// A Xen without pools of its user's has one, `Pool-0`.
    pub name: String,
    /// Xen's name for who schedules there: `credit`, `credit2`, `rtds`, `null`.
    pub scheduler: String,
}

/// The cpupools, in Xen's order.
pub fn xen_pools(xl: &Xl) -> Result<Vec<XenPool>, ActError> {
    let shown = xl.run(&["cpupool-list"])?;
    let rows = shown.lines().filter(|line| !line.trim().is_empty()).skip(1);
    rows.map(|row| {
        pool(row).ok_or_else(|| ActError::Xl {
            command: "xl cpupool-list".into(),
            reason: format!("wrote a line that Gleaner does not understand: {row:?}; it knows the output of Xen 4.17"),
        })
    })
    .collect()
}

/// `my fast pool         2    credit       y          1`: names may contain spaces.
fn pool(row: &str) -> Option<XenPool> {
    let mut columns = row.split_whitespace().rev();
    let (_domains, _active, scheduler) = (columns.next()?, columns.next()?, columns.next()?);
    columns.next()?.parse::<u32>().ok()?;
    let mut name: Vec<&str> = columns.collect();
    name.reverse();
    (!name.is_empty()).then(|| XenPool { name: name.join(" "), scheduler: scheduler.to_owned() })
}

/// Xen's own tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xl {
    program: PathBuf,
}

impl Xl {
    /// The one of this machine; `None` where there is none.
    pub fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path).map(|folder| folder.join("xl"));
        in_path.chain(USUAL.map(PathBuf::from)).find(|file| file.is_file()).map(|program| Self { program })
    }

    pub fn at(program: &Path) -> Self {
        Self { program: program.to_owned() }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it; what it wrote to stdout. It fails with Xen's own words.
    pub fn run(&self, words: &[&str]) -> Result<String, ActError> {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(ActError::file("run", &self.program))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let failed = |reason| ActError::Xl { command: format!("xl {}", words.join(" ")), reason };
        let (tell, told) = channel();
        let waiting = thread::Builder::new().spawn(move || tell.send(child.wait_with_output()));
        waiting.map_err(|error| failed(format!("no thread to wait for it: {}", why_refused(&error))))?;
        match told.recv_timeout(LIMIT) {
            Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(Ok(output)) => Err(failed(reason(output.status, &String::from_utf8_lossy(&output.stderr)))),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => {
                // Nobody has waited for it yet, so the pid is its own.
                let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
                Err(failed(format!("did not end within {} s; does xenstored run?", LIMIT.as_secs())))
            }
        }
    }
}

/// Why it failed: its last error, for the later ones only repeat the first ("libxl_sched_credit_params_set failed").
fn reason(status: ExitStatus, stderr: &str) -> String {
    let said = stderr.lines().find_map(|line| {
        let (_, words) = line.split_once("libxl: error: ")?;
        // `libxl_sched.c:311:libxl_sched_credit_params_set: Time slice out of range, ...`
        Some(words.split_once(": ").map_or(words, |(_, words)| words))
    });
    let said = said.or_else(|| stderr.lines().rfind(|line| !line.trim().is_empty()));
    said.map_or_else(|| status.to_string(), |words| words.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn fake(script: &str) -> (tempfile::TempDir, Xl) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("xl");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let xl = Xl::at(&program);
        (folder, xl)
    }

    #[test]
    fn output_of_any_length_is_read() {
        let (_folder, xl) = fake("seq 100000; seq 100000 >&2; echo \"$@\"");
        let output = xl.run(&["vcpu-list", "two words"]).unwrap();
        assert_eq!(output.lines().count(), 100_001);
        assert_eq!(output.lines().last(), Some("vcpu-list two words"));
    }

    #[test]
    fn a_failure_is_told_in_xens_own_words() {
        let captured = "libxl: error: libxl_sched.c:311:libxl_sched_credit_params_set: Time slice out of range, valid \
                        range is from 1 to 1000\nlibxl_sched_credit_params_set failed.";
        let (_folder, xl) = fake(&format!("echo '{captured}' >&2; exit 1"));
        let error = xl.run(&["sched-credit", "-s", "-t", "0"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`xl sched-credit -s -t 0`: Time slice out of range, valid range is from 1 to 1000"
        );
        for (script, reason) in [
            ("echo 'nobody is an invalid domain identifier (rc=-6)' >&2; exit 1", "nobody is an invalid domain"),
            ("exit 3", "exit status: 3"),
        ] {
            let (_folder, xl) = fake(script);
            let error = xl.run(&["list"]).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let error = Xl::at(Path::new("/nowhere/xl")).run(&["list"]).unwrap_err().to_string();
        assert!(error.contains("cannot run /nowhere/xl"), "{error}");
    }

    #[test]
    fn cpupools_are_read_and_what_is_not_understood_is_named() {
        const HEAD: &str = "Name               CPUs   Sched     Active   Domain count";
        let pools = |rows: &str| xen_pools(&fake(&format!("echo '{HEAD}\n{rows}'")).1);
        let found = |rows: &str| -> Vec<(String, String)> {
            pools(rows).unwrap().into_iter().map(|pool| (pool.name, pool.scheduler)).collect()
        };
        let pair = |name: &str, scheduler: &str| (name.to_owned(), scheduler.to_owned());
        // As Xen 4.17.7 printed it.
        assert_eq!(found("Pool-0               2    credit       y          3\n"), [pair("Pool-0", "credit")]);
        assert_eq!(
            found(
                "my fast pool         1   credit2       y          0\npinned               4      null       y          2"
            ),
            [pair("my fast pool", "credit2"), pair("pinned", "null")]
        );
        for row in ["Pool-0 many credit y 1", "3 credit y 1"] {
            let said = pools(row).unwrap_err().to_string();
            assert!(said.contains(row) && said.contains("does not understand"), "{said}");
        }
    }

    #[test]
    fn only_dom0_may_ask() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        assert!(!is_xen_dom0(&root));
        fs::create_dir_all(root.proc.join("xen")).unwrap();
        // As in a guest of Xen's with xenfs mounted.
        fs::write(root.proc.join("xen/capabilities"), "").unwrap();
        assert!(!is_xen_dom0(&root));
        fs::write(root.proc.join("xen/capabilities"), "control_d\n").unwrap();
        assert!(is_xen_dom0(&root));
    }
}
