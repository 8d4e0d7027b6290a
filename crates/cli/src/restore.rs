//! `gleaner restore`: undo what killed runs left behind.

use crate::failure::Failure;
use crate::output::{say, tell};
use gleaner_act::{UndoOutcome, default_state_dir, own_journals, undo_journal};

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
