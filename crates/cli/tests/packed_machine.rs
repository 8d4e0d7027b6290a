//! A program whose threads take turns, put on one vCPU by a trial on this very machine, loses Gleaner by kill -9. Each
//! of its threads gets its own mask back, and it goes on.
//!
//! Gleaner is stopped first, so that the masks seen are those that the kill meets.

mod common;

use common::machine::{allowed_of, children_of, command_line, guardian_of, journals_of_run, state_of, threads_of};
use common::{GLEANER, comes_true, comes_true_within, finish, gleaner, own_pid, pid_of, send};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LONGEST_TRIAL: Duration = Duration::from_secs(20);

/// `gleaner run` of a relay that ends when it is told to.
struct Run {
    gleaner: Child,
    program: i32,
    /// Lines of progress.
    told: Arc<AtomicU64>,
}

impl Run {
    fn start() -> Self {
        let mut run = gleaner(["run", "--quiet", "--no-daemon", "--", GLEANER, "workload", "relay", "--for", "0s"]);
        let mut gleaner = run.args(["--progress-every", "50ms"]).stdout(Stdio::piped()).spawn().unwrap();
        let told = Arc::new(AtomicU64::new(0));
        let (stdout, counts) = (gleaner.stdout.take().unwrap(), Arc::clone(&told));
        // Ends with the program.
        std::thread::spawn(move || {
            for _ in BufReader::new(stdout).lines().map_while(Result::ok) {
                counts.fetch_add(1, Ordering::Relaxed);
            }
        });
        let is_program = |pid: &i32| command_line(*pid).contains("workload");
        let mut program = None;
        assert!(comes_true(|| {
            program = children_of(pid_of(&gleaner)).into_iter().find(is_program);
            program.is_some()
        }));
        Self { gleaner, program: program.unwrap(), told }
    }

    fn pid(&self) -> i32 {
        pid_of(&self.gleaner)
    }

    fn masks(&self) -> Vec<String> {
        threads_of(self.program).into_iter().filter_map(|(tid, _)| allowed_of(tid)).collect()
    }

    /// Whether two of its threads may use one vCPU, the same.
    fn is_packed(&self, all: &str) -> bool {
        let masks = self.masks();
        let is_one = |mask: &&String| *mask != all && mask.parse::<u32>().is_ok();
        masks.iter().filter(is_one).any(|one| masks.iter().filter(|mask| *mask == one).count() > 1)
    }

    /// Waits until it is packed, and leaves Gleaner stopped then.
    fn stop_where_packed(&self, all: &str) -> bool {
        comes_true_within(LONGEST_TRIAL, || {
            if !self.is_packed(all) {
                return false;
            }
            send(self.pid(), libc::SIGSTOP);
            assert!(comes_true(|| state_of(self.pid()) == Some('T')));
            // Until it had stopped it may have put them apart.
            let packed = self.is_packed(all);
            if !packed {
                send(self.pid(), libc::SIGCONT);
            }
            packed
        })
    }

    fn goes_on(&self) -> bool {
        let before = self.told.load(Ordering::Relaxed);
        comes_true(|| self.told.load(Ordering::Relaxed) > before + 2)
    }

    /// As an orphan of this test, with its own status.
    fn program_ends_well(&self) -> bool {
        send(self.program, libc::SIGTERM);
        let mut status = 0;
        // SAFETY: the status is a local.
        comes_true(|| unsafe { libc::waitpid(self.program, &raw mut status, libc::WNOHANG) } == self.program)
            && libc::WIFEXITED(status)
            && libc::WEXITSTATUS(status) == 0
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Whoever has not been reaped is still ours.
        if let Ok(None) = self.gleaner.try_wait() {
            send(self.pid(), libc::SIGCONT);
            send(self.pid(), libc::SIGTERM);
            let _ = self.gleaner.wait();
        }
    }
}

#[test]
fn a_program_packed_by_a_trial_gets_its_vcpus_back_after_kill_9_machine() {
    if !common::is_root() || std::thread::available_parallelism().is_ok_and(|vcpus| vcpus.get() < 2) {
        gleaner_testing::skip!("needs root and two vCPUs");
    }
    // The orphaned program comes to this test.
    // SAFETY: a plain flag.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let all = allowed_of(own_pid()).unwrap();
    // The guardian gives them back; with the guardian killed too, `restore` does.
    for guardian_too in [false, true] {
        let mut run = Run::start();
        if !run.stop_where_packed(&all) {
            gleaner_testing::skip!("needs a trial that packs a program: none did within 20 s");
        }
        let (pid, masks) = (run.pid(), run.masks());
        let guardian = guardian_of(pid).expect("what is packed has a guardian");
        if guardian_too {
            send(guardian, libc::SIGKILL);
        }
        send(pid, libc::SIGKILL);
        run.gleaner.wait().unwrap();
        if guardian_too {
            assert!(run.is_packed(&all), "nobody else gives anything back");
            finish(&mut gleaner(["restore"])).with_status(0);
        }
        let back = comes_true(|| run.masks().iter().all(|mask| *mask == all));
        assert!(back, "guardian killed: {guardian_too}; masks were {masks:?}, are {:?}", run.masks());
        assert!(comes_true(|| journals_of_run(Path::new("/run/gleaner"), pid).is_empty()));
        assert!(run.goes_on() && run.program_ends_well());
    }
}
