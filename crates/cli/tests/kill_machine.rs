//! A hundred kills with SIGKILL at random moments, and a machine that looks afterwards as it did before.
//!
//! Three kinds in turn: the main process (its guardian undoes), the guardian (the run goes on and ends well), both at
//! once, often with the whole process group (`gleaner restore` undoes). The program self-pins threads, has children and
//! a copy that left its process group, so that there is somebody to be given back what was taken. Moments are chosen
//! early (setting up), in the middle (consolidated), and at the end (undoing). `GLEANER_TEST_SEED=n` repeats a
//! sequence.

mod common;

use common::machine::{
    Machine, allowed_of, busy_share, cgroups_of_run, children_of, comm, guardian_of, idle_values, journals_of_run,
    state_of, threads_of,
};
use common::{Random, comes_true, comes_true_within, gleaner, own_pid, program, send, text_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const KILLS: usize = 100;
/// Rounds in which the run ended before it could be killed do not count; nor may they be many.
const MOST_ROUNDS: usize = 2 * KILLS;
/// Kills that must have met a program confined to fewer vCPUs: otherwise the test would show little.
const LEAST_CONFINED: usize = 10;
/// Kills that must have met idle vCPUs that the kernel was told to keep awake, where it can be told.
const LEAST_POLLED: usize = 10;
/// Others that use this share of the machine may keep every step from being taken.
const BUSY: f64 = 0.2;
const STATE_DIR: &str = "/run/gleaner";

/// Conditions that nearly always hold: the program is consolidated after a few windows.
const LENIENT: &str = "
idle_periods_per_s_min = 1
settle_windows = 0
judge_windows = 1
baseline_windows_min = 1
baseline_windows_max = 1
predicted_utilization_max = 1.0
hold_off_min_ms = 1
hold_off_max_ms = 1
thread_burst_min = 1000000
cpu_change_share = 10
saturated_utilization = 1.0
granularity_change_factor = 100
min_time_slice_us = 100000
hurt_loss_min = 1
";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Main,
    Guardian,
    Both,
    GroupAndGuardian,
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after the start.
    Running(Duration),
    /// So long after the program was told to end, which was so long after the start.
    Ending(Duration, Duration),
}

/// What one round came to.
struct Outcome {
    /// Whether the run was still there to be killed.
    killed: bool,
    confined: bool,
    /// Whether haltpoll's parameters or PM QoS limits were ours at that moment.
    polled: bool,
}

#[test]
fn a_hundred_kills_leave_the_machine_unchanged() {
    if !common::is_root() {
        gleaner_testing::skip!("needs root");
    }
    // Orphans come to this test, so that it sees whether any is left.
    // SAFETY: a plain flag.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let began = Instant::now();
    let seed = std::env::var("GLEANER_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}");
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("lenient.toml");
    std::fs::write(&config, LENIENT).unwrap();

    check_was_killed();
    // Nothing can be consolidated where others leave no idle time: on such a machine only the undoing is tested.
    let busy = busy_share();
    let steps = if busy < BUSY { steps_without_a_kill(&config) } else { Vec::new() };
    let (mut kills, mut confined, mut polled, mut wrong) = (BTreeMap::new(), 0, 0, Vec::new());
    let mut rounds = 0;
    while kills.values().sum::<usize>() < KILLS && rounds < MOST_ROUNDS {
        let kind = [Kind::Main, Kind::Guardian, *random.pick(&[Kind::Both, Kind::GroupAndGuardian])][rounds % 3];
        rounds += 1;
        let round = Round::choose(kind, &mut random, &config);
        let about = format!("round {rounds} of seed {seed}: {kind:?}, {}, {:?}", round.options.join(" "), round.moment);
        match round.play() {
            Ok(outcome) => {
                *kills.entry(kind).or_insert(0) += usize::from(outcome.killed);
                confined += usize::from(outcome.killed && outcome.confined);
                polled += usize::from(outcome.killed && outcome.polled);
            }
            Err(differences) => {
                println!("{about}: {differences:#?}");
                wrong.push(about);
            }
        }
    }
    let busy = busy.max(busy_share());
    println!(
        "{} kills in {rounds} rounds and {:.0} s: {kills:?}; {confined} met a confined program, {polled} vCPUs kept awake; steps without a kill: {steps:?}",
        kills.values().sum::<usize>(),
        began.elapsed().as_secs_f64(),
    );
    assert!(wrong.is_empty(), "{} machines left changed: {wrong:#?}", wrong.len());
    if Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists() {
        assert!(polled >= LEAST_POLLED, "only {polled} kills met vCPUs kept awake");
    } else {
        gleaner_testing::skipped(format_args!("no cpuidle driver: kills under haltpoll and PM QoS"));
    }
    assert_eq!(kills.values().sum::<usize>(), KILLS);
    if busy >= BUSY {
        gleaner_testing::skip!(
            "needs a quiet machine for kills of confined programs: others used {:.0} %",
            100.0 * busy
        );
    }
    assert!(confined >= LEAST_CONFINED, "only {confined} kills met a confined program");
}

/// The lenient policy does take steps, with either placement: the number of decisions of each.
fn steps_without_a_kill(config: &Path) -> Vec<usize> {
    let count = |placement: &str| {
        // Where idle vCPUs poll, there is nothing to win by fewer of them.
        let options = [["--placement", placement], ["--policy", "full"], ["--retain", "yielding"]].concat();
        let (before, mut run) = (Machine::look(&BTreeSet::new()), Run::start(&options, config));
        run.wait_for_start();
        // Busy neighbours may hide the idle periods for a while.
        let confined = comes_true_within(Duration::from_secs(60), || run.is_confined());
        run.tell_to_end();
        let status = run.reap();
        let said = run.json();
        assert_eq!(status.code(), Some(program::STATUS), "{said}");
        assert!(confined, "{placement}: no step within the longest wait: {said}");
        assert_eq!(said["restored"], true, "{said}");
        assert_eq!(before.difference(&Machine::look(&BTreeSet::from([run.pid]))), Vec::<String>::new());
        let decisions = said["decisions"].as_array().unwrap().clone();
        decisions.iter().filter(|decision| decision["action"] == "deactivate").count()
    };
    ["affinity", "cpuset"].into_iter().map(count).collect()
}

fn same_idle_values(before: &BTreeMap<PathBuf, String>) -> Result<(), Vec<String>> {
    let after = idle_values();
    let now = before.iter().filter_map(|(path, was)| Some((path, was, after.get(path)?)));
    let changed = now.filter(|(_, was, is)| is != was);
    let changed: Vec<String> =
        changed.map(|(path, was, is)| format!("{}: was {was}, is {is}", path.display())).collect();
    if changed.is_empty() { Ok(()) } else { Err(changed) }
}

/// A kill to be tried.
struct Round<'a> {
    kind: Kind,
    options: Vec<&'static str>,
    moment: Moment,
    /// Whether the dead main process stays a zombie while the others undo.
    reaped_late: bool,
    config: &'a Path,
}

impl<'a> Round<'a> {
    fn choose(kind: Kind, random: &mut Random, config: &'a Path) -> Self {
        let millis = |random: &mut Random, from: u64, to: u64| {
            Duration::from_micros(from * 1_000 + random.below((to - from) * 1_000))
        };
        let moment = match random.below(10) {
            0 | 1 => Moment::Running(millis(random, 0, 80)),
            2 | 3 => Moment::Ending(millis(random, 50, 500), millis(random, 0, 30)),
            _ => Moment::Running(millis(random, 80, 900)),
        };
        let mut options = vec!["--placement", *random.pick(&["affinity", "cpuset"])];
        options.extend(["--policy", *random.pick(&["full", "full", "consolidate", "retain"])]);
        options.extend(["--observer", *random.pick(&["auto", "procfs"])]);
        options.extend(["--retain", *random.pick(&["yielding", "yielding", "haltpoll", "pm-qos"])]);
        Self { kind, options, moment, reaped_late: random.below(2) == 0, config }
    }

    /// Starts a run, kills, and looks whether all is as it was. `Err` says what is not.
    fn play(&self) -> Result<Outcome, Vec<String>> {
        let idle_before = idle_values();
        let before = Machine::look(&BTreeSet::new());
        let mut run = Run::start(&self.options, self.config);
        let guardian = self.wait(&mut run);
        let (confined, polled) = (run.is_confined(), idle_values() != idle_before);
        self.kill(&run, guardian);
        let killed = match self.kind {
            Kind::Guardian => guardian.is_some_and(was_killed),
            _ => was_killed(run.pid),
        };
        if self.kind == Kind::Guardian {
            if let Some(first) = guardian.filter(|_| killed && matches!(self.moment, Moment::Running(_))) {
                // On a busy machine the program might be over before the main process comes to look.
                comes_true(|| guardian_of(run.pid).is_some_and(|now| now != first));
            }
            self.after_the_guardian(&before, run, killed)?;
            return same_idle_values(&idle_before).map(|()| Outcome { killed, confined, polled });
        }
        if !self.reaped_late {
            run.reap();
        }
        if matches!(self.kind, Kind::Both | Kind::GroupAndGuardian) {
            let said = common::finish(&mut gleaner(["restore"]));
            if said.status != Some(0) {
                return Err(vec![format!("restore: {said:?}")]);
            }
        }
        Self::undone(&before, &run)?;
        // The program was never ours to end: it does its work to the end.
        run.finishes_its_work()?;
        run.reap();
        Self::nothing_left(&before, &mut run)?;
        same_idle_values(&idle_before)?;
        Ok(Outcome { killed, confined, polled })
    }

    /// Waits for the moment; says who the guardian is by then.
    fn wait(&self, run: &mut Run) -> Option<i32> {
        // A guardian can only be killed once it is there.
        if self.kind == Kind::Guardian {
            comes_true(|| guardian_of(run.pid).is_some());
        }
        match self.moment {
            Moment::Running(after) => std::thread::sleep(after),
            Moment::Ending(after, more) => {
                std::thread::sleep(after);
                run.tell_to_end();
                std::thread::sleep(more);
            }
        }
        guardian_of(run.pid)
    }

    fn kill(&self, run: &Run, guardian: Option<i32>) {
        let kill = |pid| send(pid, libc::SIGKILL);
        match self.kind {
            Kind::Main => kill(run.pid),
            Kind::Guardian => guardian.into_iter().for_each(kill),
            Kind::Both => [Some(run.pid), guardian].into_iter().flatten().for_each(kill),
            Kind::GroupAndGuardian => [Some(-run.pid), guardian].into_iter().flatten().for_each(kill),
        }
    }

    /// The run goes on without its first guardian, and ends as it always does.
    fn after_the_guardian(&self, before: &Machine, mut run: Run, killed: bool) -> Result<(), Vec<String>> {
        run.finishes_its_work()?;
        let status = run.reap();
        let said = run.json();
        let ending = matches!(self.moment, Moment::Ending(..));
        if status.code() != Some(program::STATUS) || said["restored"] != true {
            return Err(vec![format!("the run ended with {status:?} and said {said}")]);
        }
        // At the very end nobody may have noticed.
        let noticed = said["warnings"].to_string().contains("guardian process died");
        if killed && !ending && !noticed {
            return Err(vec![format!("nobody noticed the guardian's death: {}", said["warnings"])]);
        }
        Self::nothing_left(before, &mut run)
    }

    /// While the program goes on: everything is as it would be without Gleaner, within the longest wait.
    fn undone(before: &Machine, run: &Run) -> Result<(), Vec<String>> {
        let left = || {
            let mut left = before.difference(&Machine::look(&BTreeSet::from([run.pid])));
            left.extend(
                journals_of_run(Path::new(STATE_DIR), run.pid).iter().map(|path| format!("{}", path.display())),
            );
            left.extend(run.wrong_threads());
            left
        };
        // After a restore all is done at once; after a guardian's work, soon. A thread may just be about to take its
        // name.
        if comes_true(|| left().is_empty()) { Ok(()) } else { Err(left()) }
    }

    /// After the program's end: no process of this run either, no file, and everybody else as before.
    fn nothing_left(before: &Machine, run: &mut Run) -> Result<(), Vec<String>> {
        let processes = || children_of(own_pid());
        let gone = comes_true(|| {
            reap_orphans(run.pid);
            processes().is_empty()
        });
        let mut left = before.difference(&Machine::look(&BTreeSet::from([run.pid])));
        left.extend(journals_of_run(Path::new(STATE_DIR), run.pid).iter().map(|path| format!("{}", path.display())));
        if !gone {
            let describe = |pid| format!("process {pid}: {}", common::machine::command_line(pid));
            left.extend(processes().into_iter().map(describe));
        }
        // Another run may be about to begin its journal.
        if !comes_true(|| std::fs::read_dir(STATE_DIR).map_or(true, |mut entries| entries.next().is_some())) {
            left.push(format!("{STATE_DIR} is left, empty"));
        }
        let files = std::fs::read_dir(&run.folder).unwrap().flatten().map(|entry| entry.file_name());
        left.extend(files.filter(|name| name != "run.json").map(|name| format!("file {}", name.display())));
        if left.is_empty() { Ok(()) } else { Err(left) }
    }
}

/// Whether a child of ours, not reaped yet, or somebody else's child, died of SIGKILL.
fn was_killed(pid: i32) -> bool {
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
fn reap_orphans(main: i32) {
    for pid in children_of(own_pid()) {
        if pid != main {
            // SAFETY: the status is not wanted.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }
}

/// A run of Gleaner with the program; whatever the test leaves of it is killed and undone when this goes.
struct Run {
    pid: i32,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The program and its copy, as far as they have said that they started.
    programs: Vec<i32>,
    done: BTreeSet<i32>,
    folder: PathBuf,
    _holder: tempfile::TempDir,
    status: Option<ExitStatus>,
}

impl Run {
    fn start(options: &[&str], config: &Path) -> Self {
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
    fn listen(&mut self) {
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

    fn wait_for_start(&mut self) {
        assert!(comes_true(|| {
            self.listen();
            self.programs.len() == 2
        }));
    }

    fn tell_to_end(&mut self) {
        self.stdin = None;
    }

    /// Whether the program may use fewer vCPUs than this test.
    fn is_confined(&mut self) -> bool {
        self.listen();
        let all = &allowed_of(own_pid()).unwrap();
        let cpusets = cgroups_of_run(self.pid).into_iter().map(|path| text_of(path.join("cpuset.cpus")));
        let by_cpuset = cpusets.filter(|cpus| !cpus.trim().is_empty()).any(|cpus| cpus.trim() != all);
        let threads = self.programs.iter().flat_map(|pid| threads_of(*pid));
        by_cpuset
            || threads
                .into_iter()
                .any(|(tid, _)| comm(tid) == "any" && allowed_of(tid).is_some_and(|allowed| allowed != *all))
    }

    /// Threads of living programs that may not use what they would use without Gleaner, and cgroups that they would not
    /// be in.
    fn wrong_threads(&self) -> Vec<String> {
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
    fn finishes_its_work(&mut self) -> Result<(), Vec<String>> {
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
    fn reap(&mut self) -> ExitStatus {
        if self.status.is_none() {
            assert!(comes_true(|| {
                self.status = self.child.try_wait().unwrap();
                self.status.is_some()
            }));
        }
        self.status.unwrap()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&text_of(self.folder.join("run.json"))).unwrap_or(serde_json::Value::Null)
    }
}

/// Whether a program that is our orphan by now was killed.
fn was_killed_with_its_group(pid: i32) -> bool {
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

/// What `was_killed` rests on.
fn check_was_killed() {
    let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
    let pid = common::pid_of(&child);
    assert!(!was_killed_with_its_group(pid));
    send(pid, libc::SIGKILL);
    assert!(was_killed(pid) && was_killed_with_its_group(pid));
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}
