//! `gleaner restore`: undo what killed runs left behind.

use clap::Args;
use gleaner_act::{UndoOutcome, default_state_dir, own_journals, undo_journal};
use gleaner_command::failure::Failure;
use gleaner_command::output::{say, tell};

#[derive(Debug, Args)]
#[command(
    after_help = "Runs that are still going on are left alone. Needed only when Gleaner and its guardian were both \
                  killed; running it when there is nothing to do does no harm."
)]
pub struct RestoreArgs {}

pub fn main() -> Result<u8, Failure> {
    let dir = default_state_dir();
    let journals = own_journals().map_err(Failure::work)?;
    if journals.is_empty() {
        tell(&format!("Nothing to restore: no run has left a journal in {}.", dir.display()));
    }
    let mut failed = false;
    for journal in journals {
        let name = journal.display();
        match undo_journal(&journal, false) {
            Ok(UndoOutcome::Undone { entries }) => tell(&format!("{name}: undone ({entries} entries).")),
            Ok(UndoOutcome::InUse { pid }) => tell(&format!("{name}: left alone, its run goes on as process {pid}.")),
            Ok(UndoOutcome::Gone) => tell(&format!("{name}: already undone by its guardian.")),
            Err(error) => {
                failed = true;
                say(&format!(
                    "{name}: {error}. Its journal was kept; run `gleaner restore` again once that is mended."
                ));
            }
        }
    }
    gleaner_daemon::tidy(&dir);
    Ok(u8::from(failed))
}
