//! First the journal, then the change: for every actuator, and for every line that it writes.
//!
//! Who acts is a process of its own, and its journal lies in a folder (`support/journal_fs.rs`) that refuses a line, or
//! kills its writer with SIGKILL before that hears that the line is written: after the line, before the change. In both
//! cases the change must not have been made, and what was made before must be undone.

#[path = "support/actuators.rs"]
mod actuators;
#[path = "support/journal_fs.rs"]
mod journal_fs;

use actuators::{Actuator, World};
use gleaner_act::{Journal, UndoOutcome, undo_journal};
use journal_fs::{Fault, JournalFs};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

const ACTOR: &str = "GLEANER_TEST_ACTOR";

/// A test for each, and the list of which one a child is to be.
macro_rules! actuators {
    ($($test:ident: $actuator:ident,)*) => {
        const ALL: &[&Actuator] = &[$(&actuators::$actuator),*];
        $(
            #[test]
            fn $test() {
                first_the_journal(&actuators::$actuator);
            }
        )*
    };
}

actuators! {
    idle_group: IDLE_GROUP,
    affinity: AFFINITY,
    slices: SLICES,
    pm_qos: PM_QOS,
    haltpoll: HALTPOLL,
    xen_credit: XEN_CREDIT,
    xen_credit2: XEN_CREDIT2,
}

/// What a child process does: acts, and ends without undoing anything. Nothing in the test process itself.
#[test]
fn actor() {
    let Ok(task) = std::env::var(ACTOR) else { return };
    let task: Vec<String> = task.split('\n').map(str::to_owned).collect();
    let [name, run_id, state_dir, words @ ..] = &task[..] else { panic!("{task:?}") };
    let actuator = ALL.iter().find(|actuator| actuator.name == name).unwrap();
    let mut journal = Journal::create(Path::new(state_dir), run_id).unwrap();
    let status = (actuator.act)(words, &mut journal).map_or_else(
        |said| {
            eprintln!("{said}");
            REFUSED
        },
        |()| 0,
    );
    // SAFETY: ends the process at once, as a kill does.
    unsafe { libc::_exit(status) };
}

/// The status of an actor that reports a failure.
const REFUSED: i32 = 9;

/// One act and its undoing.
struct Play {
    folder: tempfile::TempDir,
    journals: JournalFs,
    run_id: String,
    world: World,
    before: String,
}

impl Play {
    fn begin(actuator: &Actuator, fault: Fault) -> Result<Self, &'static str> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            return Err("root and /dev/fuse");
        }
        let folder = tempfile::tempdir().unwrap();
        let run_id = format!("{}-{}", actuator.name.replace('_', "-"), std::process::id());
        let world = (actuator.world)(&run_id, folder.path())?;
        let before = (world.look)();
        Ok(Self { folder, journals: JournalFs::mount(fault), run_id, world, before })
    }

    fn now(&self) -> String {
        (self.world.look)()
    }

    /// Acts in a child process.
    fn act(&self, actuator: &Actuator) -> ExitStatus {
        let task = [actuator.name, &self.run_id, &self.journals.path().display().to_string()];
        let words = self.world.words.iter().map(String::as_str);
        let task: Vec<&str> = task.into_iter().chain(words).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "actor", "--nocapture", "--test-threads=1"]).env(ACTOR, task.join("\n"));
        command.status().unwrap()
    }

    /// As the guardian or `gleaner restore` does it; the number of entries.
    fn undo(&self) -> usize {
        match undo_journal(&Journal::path_in(self.journals.path(), &self.run_id), false).unwrap() {
            UndoOutcome::Undone { entries } => entries,
            other => panic!("{other:?} in {}", self.folder.path().display()),
        }
    }
}

fn first_the_journal(actuator: &Actuator) {
    let whole = match Play::begin(actuator, Fault::None) {
        Ok(play) => play,
        Err(lacking) => {
            gleaner_testing::skip!("needs {lacking}");
        }
    };
    let about = actuators::list(&whole.world.words);
    assert_eq!(whole.act(actuator).code(), Some(0), "it cannot act here at all:{about}");
    assert_ne!(whole.now(), whole.before, "it changes nothing that this test sees");
    let lines = whole.undo();
    assert_eq!(whole.now(), whole.before, "dead after all of it:{about}");
    assert!(lines > 0 && lines == whole.journals.lines());

    for fault in (0..lines).flat_map(|line| [Fault::Refuse(line), Fault::Kill(line)]) {
        let play = Play::begin(actuator, fault).unwrap();
        let status = play.act(actuator);
        let ended = (status.code(), status.signal());
        let expected = match fault {
            Fault::Kill(_) => (None, Some(libc::SIGKILL)),
            _ => (Some(REFUSED), None),
        };
        assert_eq!(ended, expected, "{fault:?} {status:?}");
        let (Fault::Refuse(line) | Fault::Kill(line)) = fault else { continue };
        if line == 0 {
            assert_eq!(play.now(), play.before, "{fault:?}: changed before the journal knew");
        }
        assert_eq!(play.undo(), line + usize::from(matches!(fault, Fault::Kill(_))), "{fault:?}");
        assert_eq!(play.now(), play.before, "{fault:?}: not undone");
    }
}
