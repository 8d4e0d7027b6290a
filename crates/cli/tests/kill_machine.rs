//! A hundred kills with SIGKILL at random moments, and a machine that looks afterwards as it did before.
//!
//! Three kinds in turn: the main process (its guardian undoes), the guardian (the run goes on and ends well), both at
//! once, often with the whole process group (`gleaner restore` undoes). The program self-pins threads, has children and
//! a copy that left its process group, so that there is somebody to be given back what was taken. Moments are chosen
//! early (setting up), in the middle (consolidated), and at the end (undoing). `GLEANER_TEST_SEED=n` repeats a
//! sequence. Idle-poll, which this machine may refuse, is killed in guests (`testbed/idle-kills.sh`).

mod common;
#[path = "kill_machine/run.rs"]
mod run;

use common::machine::{Machine, busy_share, children_of, guardian_of, idle_values, journals_of_run, others_share};
use common::{Random, comes_true, comes_true_within, gleaner, own_pid, program, send};
use run::{Run, reap_orphans, was_killed, was_killed_with_its_group};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
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
    kills(&["yielding", "yielding", "haltpoll", "pm-qos"]);
}

#[test]
#[ignore = "five minutes: cargo test --test kill_machine -- --ignored each_means"]
fn a_hundred_kills_under_each_means_leave_this_machine_unchanged() {
    for means in ["yielding", "haltpoll", "pm-qos"] {
        kills(&[means]);
    }
}

/// Each run is told one of these means.
fn kills(means: &[&'static str]) {
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
    std::fs::write(&config, program::LENIENT).unwrap();

    check_was_killed();
    // Nothing can be consolidated where others leave no idle time: on such a machine only the undoing is tested.
    let mut busy = busy_share();
    let steps = if busy < BUSY { steps_without_a_kill(&config, &mut busy) } else { 0 };
    let (mut kills, mut by_means, mut wrong) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let (mut confined, mut polled) = (0, 0);
    let mut rounds = 0;
    while kills.values().sum::<usize>() < KILLS && rounds < MOST_ROUNDS {
        let kind = [Kind::Main, Kind::Guardian, *random.pick(&[Kind::Both, Kind::GroupAndGuardian])][rounds % 3];
        rounds += 1;
        let round = Round::choose(kind, means, &mut random, &config);
        let about = format!("round {rounds} of seed {seed}: {kind:?}, {}, {:?}", round.options.join(" "), round.moment);
        match round.play() {
            Ok(outcome) => {
                *kills.entry(kind).or_insert(0) += usize::from(outcome.killed);
                *by_means.entry(round.means).or_insert(0) += usize::from(outcome.killed);
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
        "{} kills in {rounds} rounds and {:.0} s: {kills:?}, {by_means:?}; {confined} met a confined program, {polled} vCPUs kept awake; steps without a kill: {steps:?}",
        kills.values().sum::<usize>(),
        began.elapsed().as_secs_f64(),
    );
    assert!(wrong.is_empty(), "{} machines left changed: {wrong:#?}", wrong.len());
    if Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists() {
        assert!(means == ["yielding"] || polled >= LEAST_POLLED, "only {polled} kills met vCPUs kept awake");
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
    // Where idle vCPUs poll, little is packed.
    assert!(!means.contains(&"yielding") || confined >= LEAST_CONFINED, "only {confined} kills met a confined program");
}

/// The lenient policy does take steps: how many. `busy`: what others used, where that was in the way.
fn steps_without_a_kill(config: &Path, busy: &mut f64) -> usize {
    // Where idle vCPUs poll, there is nothing to win by fewer of them.
    let options = ["--policy", "full", "--retain", "yielding"];
    let (before, mut run) = (Machine::look(&BTreeSet::new()), Run::start(&options, config));
    run.wait_for_start();
    // Busy neighbours may hide the idle periods for a while.
    let confined = comes_true_within(Duration::from_secs(60), || run.is_confined());
    run.tell_to_end();
    let status = run.reap();
    let said = run.json();
    assert_eq!(status.code(), Some(program::STATUS), "{said}");
    *busy = busy.max(if confined { 0.0 } else { others_share(&said) });
    assert!(confined || *busy >= BUSY, "no step within the longest wait: {said}");
    assert_eq!(said["restored"], true, "{said}");
    assert_eq!(before.difference(&Machine::look(&BTreeSet::from([run.pid]))), Vec::<String>::new());
    let decisions = said["decisions"].as_array().unwrap().clone();
    decisions.iter().filter(|decision| decision["action"] == "deactivate").count()
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
    means: &'static str,
    options: Vec<&'static str>,
    moment: Moment,
    /// Whether the dead main process stays a zombie while the others undo.
    reaped_late: bool,
    config: &'a Path,
}

impl<'a> Round<'a> {
    fn choose(kind: Kind, means: &[&'static str], random: &mut Random, config: &'a Path) -> Self {
        let millis = |random: &mut Random, from: u64, to: u64| {
            Duration::from_micros(from * 1_000 + random.below((to - from) * 1_000))
        };
        let moment = match random.below(10) {
            0 | 1 => Moment::Running(millis(random, 0, 100)),
            2 | 3 => Moment::Ending(millis(random, 50, 500), millis(random, 0, 30)),
            _ => Moment::Running(millis(random, 100, 1000)),
        };
        let mut options = vec!["--policy", *random.pick(&["full", "full", "consolidate", "retain"])];
        options.extend(["--observer", *random.pick(&["auto", "procfs"])]);
        let means = *random.pick(means);
        options.extend(["--retain", means]);
        Self { kind, means, options, moment, reaped_late: random.below(2) == 0, config }
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

/// What `was_killed` rests on.
fn check_was_killed() {
    let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
    let pid = common::pid_of(&child);
    assert!(!was_killed_with_its_group(pid));
    send(pid, libc::SIGKILL);
    assert!(was_killed(pid) && was_killed_with_its_group(pid));
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}
