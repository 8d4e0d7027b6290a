//! A run of Gleaner with the tests' program, which may be killed at any moment.

use super::STATE_DIR;
use super::common::machine::{
    allowed_of, cgroups_of_run, children_of, comm, guardian_of, journals_of_run, state_of, threads_of,
};
use super::common::{self, comes_true, gleaner, own_pid, program, send, text_of};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Whether a child of ours, not reaped yet, or somebody else's child, died of SIGKILL.
pub fn was_killed(pid: i32) -> bool {
    // SAFETY: siginfo is plain data, filled by the call; the child is left to be waited for.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let id = libc::id_t::try_from(pid).unwrap();
        if libc::waitid(libc::P_PID, id, &raw mut info, libc::WEXITED | libc::WNOWAIT) == 0 {
            return info.si_code == libc::CLD_KILLED && info.si_status() == libc::SIGKILL;
        }
    }
    // Not our child: Gleaner's, which reaps it.
    comes_true(|| matches!(state_of(pid), None | Some('Z')))
}

/// Reaps whatever came to this test, but not the main process: its status is wanted.
pub fn reap_orphans(main: i32) {
    for pid in children_of(own_pid()) {
        if pid != main {
            // SAFETY: the status is not wanted.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }
}

/// A run of Gleaner with the program; whatever the test leaves of it is killed and undone when this goes.
pub struct Run {
    pub pid: i32,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The program and its copy, as far as they have said that they started.
    programs: Vec<i32>,
    done: BTreeSet<i32>,
    pub folder: PathBuf,
    _holder: tempfile::TempDir,
    status: Option<ExitStatus>,
}

impl Run {
    pub fn start(options: &[&str], config: &Path) -> Self {
        let holder = tempfile::tempdir().unwrap();
        let folder = holder.path().to_owned();
        let mut command = common::run(options);
        command.args(["--quiet", "--json", "run.json", "--config"]).arg(config).arg("--").args(program::words());
        let vcpus = rustix::thread::sched_getaffinity(None).unwrap().count();
        command.current_dir(&folder).env(program::MODE, "family").env(program::UNCONFINED, vcpus.to_string());
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the last process that holds the pipe, or with the test.
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let (pid, status) = (common::pid_of(&child), None);
        Self { pid, child, stdin, lines, programs: Vec::new(), done: BTreeSet::new(), folder, _holder: holder, status }
    }

    /// Takes in what the programs have said.
    pub fn listen(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            let mut words = line.split(' ');
            match (words.next(), words.next().and_then(|pid| pid.parse().ok())) {
                (Some("started"), Some(pid)) => self.programs.push(pid),
                (Some("done"), Some(pid)) => {
                    self.done.insert(pid);
                }
                _ => {}
            }
        }
    }

    pub fn wait_for_start(&mut self) {
        assert!(comes_true(|| {
            self.listen();
            self.programs.len() == 2
        }));
    }

    pub fn tell_to_end(&mut self) {
        self.stdin = None;
    }

    /// Whether the program may use fewer vCPUs than this test.
    pub fn is_confined(&mut self) -> bool {
        self.listen();
        let all = &allowed_of(own_pid()).unwrap();
        let threads = self.programs.iter().flat_map(|pid| threads_of(*pid));
        threads.into_iter().any(|(tid, _)| comm(tid) == "any" && allowed_of(tid).is_some_and(|allowed| allowed != *all))
    }

    /// Threads of living programs that may not use what they would use without Gleaner, and cgroups that they would not
    /// be in.
    pub fn wrong_threads(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let all = allowed_of(own_pid()).unwrap();
        let ends = |list: &str| {
            let numbers: Vec<String> = list.split(['-', ',']).map(str::to_owned).collect();
            (numbers[0].clone(), numbers[numbers.len() - 1].clone())
        };
        let (first, last) = ends(&all);
        for pid in self.programs.iter().filter(|pid| !matches!(state_of(**pid), None | Some('Z'))) {
            for (tid, _) in threads_of(*pid) {
                let Some(allowed) = allowed_of(tid) else { continue };
                let name = comm(tid);
                let right = match name.as_str() {
                    "first" => allowed == first,
                    "either" => allowed == first || allowed == all,
                    "late" => allowed == last || allowed == all,
                    _ => allowed == all,
                };
                if !right {
                    wrong.push(format!("thread {tid} ({name}) of the program may use {allowed}"));
                }
            }
            let cgroup = text_of(format!("/proc/{pid}/cgroup"));
            if !cgroup.is_empty() && cgroup != text_of("/proc/self/cgroup") {
                wrong.push(format!("program {pid} is in other cgroups: {cgroup}"));
            }
        }
        wrong
    }

    /// Tells the programs to end; each that had started and was not killed must say that it is done.
    pub fn finishes_its_work(&mut self) -> Result<(), Vec<String>> {
        self.listen();
        self.tell_to_end();
        let mut silent = Vec::new();
        let finished = comes_true(|| {
            self.listen();
            // The process group may have been killed, the copy outside it not.
            silent = self.programs.iter().copied().filter(|pid| !self.done.contains(pid)).collect();
            silent.iter().all(|pid| was_killed_with_its_group(*pid))
        });
        let describe = |pid: &i32| format!("program {pid} did not finish its work: {:?}", state_of(*pid));
        if finished { Ok(()) } else { Err(silent.iter().map(describe).collect()) }
    }

    /// Waits for the main process, within bounds.
    pub fn reap(&mut self) -> ExitStatus {
        if self.status.is_none() {
            assert!(comes_true(|| {
                self.status = self.child.try_wait().unwrap();
                self.status.is_some()
            }));
        }
        self.status.unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&text_of(self.folder.join("run.json"))).unwrap_or(serde_json::Value::Null)
    }
}

/// Whether a program that is our orphan by now was killed.
pub fn was_killed_with_its_group(pid: i32) -> bool {
    // SAFETY: as in `was_killed`; this does not wait.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let id = libc::id_t::try_from(pid).unwrap();
        let flags = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        libc::waitid(libc::P_PID, id, &raw mut info, flags) == 0
            && info.si_pid() == pid
            && info.si_code == libc::CLD_KILLED
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stdin = None;
        self.listen();
        let children = children_of(own_pid());
        let guardian = guardian_of(self.pid);
        let programs = self.programs.iter().copied().filter(|pid| !self.done.contains(pid));
        let orphans = children.into_iter().filter(|pid| *pid != self.pid);
        let unreaped = (self.status.is_none()).then_some(-self.pid);
        for pid in guardian.into_iter().chain(programs).chain(orphans).chain(unreaped).collect::<Vec<_>>() {
            send(pid, libc::SIGKILL);
        }
        let _ = self.child.wait();
        comes_true(|| {
            reap_orphans(self.pid);
            children_of(own_pid()).is_empty()
        });
        if !cgroups_of_run(self.pid).is_empty() || !journals_of_run(Path::new(STATE_DIR), self.pid).is_empty() {
            let _ = gleaner(["restore"]).stderr(Stdio::null()).status();
        }
    }
}
