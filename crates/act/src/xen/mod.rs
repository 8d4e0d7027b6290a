//! Slices on a Xen host, by its own tool `xl`: there the vCPUs are no threads of ours, and Xen itself enforces what it
//! was told.
//!
//! ```text
//!   XenRequest ── plan ──▶ XenChange ── change_xen ──▶ journal ──▶ xl sched-credit -s -p Pool-0 -t 1 -r 1000
//!                  │                                              read back: is it so?
//!                  └── XenRefusal: what this scheduler cannot do, and what can
//! ```
//!
//! What is put back is what was there, and only where what we set is still there: somebody else's later word counts.

mod plan;
mod xl;

pub use plan::{XenChange, XenRefusal, XenRequest, plan_xen};
pub use xl::Xl;

use crate::journal::{self, Journal};
use crate::{ActError, Undo};
use gleaner_model::XenSetting;
use std::path::Path;

/// Makes one change, journalled first, and reads it back.
///
/// # Errors
/// [`ActError::Unavailable`] when another run has set the same thing or Xen kept another value, and whatever `xl`
/// refuses; what was journalled is then still undone by the journal.
pub fn change_xen(xl: &Xl, change: &XenChange, journal: &mut Journal) -> Result<(), ActError> {
    let XenChange { was, set } = change;
    if let Some(pid) = set_by_another(journal.path(), set) {
        let why = format!("process {pid}, another run of Gleaner, has set it; end that one first");
        return Err(ActError::Unavailable { what: set.target(), why });
    }
    journal.before(&Undo::Xen { xl: xl.program().to_owned(), was: was.clone(), set: set.clone() })?;
    xl.run(&set_words(set))?;
    let shown = xl.run(&read_words(set))?;
    if shows(&shown, set) {
        return Ok(());
    }
    let why = format!("`{}` says otherwise after it was set: {}", xl::command_line(&read_words(set)), shown.trim());
    Err(ActError::Unavailable { what: format!("{set} for {}", set.target()), why })
}

/// The living run, other than this journal's, that has the same target in its journal. Two that overlap would put back
/// each other's values.
fn set_by_another(own: &Path, set: &XenSetting) -> Option<i32> {
    let journals = own.parent().map(journal::list_journals)?.unwrap_or_default();
    journals.iter().filter(|path| *path != own).find_map(|path| {
        let state = journal::read(path).ok()?;
        let has = |undo: &Undo| matches!(undo, Undo::Xen { set: other, .. } if other.target() == set.target());
        state.alive.filter(|_| state.undos.iter().any(has))
    })
}

/// Puts back what was there.
pub(crate) fn undo_xen(program: &Path, was: &XenSetting, set: &XenSetting) -> Result<(), ActError> {
    let xl = Xl::at(program);
    let shown = match xl.run(&read_words(set)) {
        Ok(shown) => shown,
        // The domain has ended or the cpupool is gone, and with it what we set.
        Err(ActError::Xl { reason, .. }) if is_gone(&reason) => return Ok(()),
        Err(error) => return Err(error),
    };
    if shows(&shown, was) {
        return Ok(());
    }
    if !shows(&shown, set) {
        tracing::warn!(
            "{}: somebody has changed it meanwhile, so it was left as it is: {}",
            set.target(),
            shown.trim()
        );
        return Ok(());
    }
    xl.run(&set_words(was))?;
    Ok(())
}

fn is_gone(reason: &str) -> bool {
    reason.contains("invalid domain identifier") || reason.contains("unknown cpupool")
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// The arguments of `xl` that set it.
fn set_words(setting: &XenSetting) -> Vec<String> {
    match setting {
        // Both at once: one after the other, a ratelimit above the new slice would be refused.
        XenSetting::Credit { pool, slice_ms, ratelimit_us } => {
            words(["sched-credit", "-s", "-p", pool, "-t", &slice_ms.to_string(), "-r", &ratelimit_us.to_string()])
        }
        XenSetting::Credit2 { pool, ratelimit_us } => {
            words(["sched-credit2", "-s", "-p", pool, "-r", &ratelimit_us.to_string()])
        }
        XenSetting::Rtds { domain, vcpu, period_us, budget_us, extratime } => {
            let (domain, vcpu) = (domain.to_string(), vcpu.to_string());
            let (period, budget) = (period_us.to_string(), budget_us.to_string());
            let extra = if *extratime { "1" } else { "0" };
            words(["sched-rtds", "-d", &domain, "-v", &vcpu, "-p", &period, "-b", &budget, "-e", extra])
        }
    }
}

/// The arguments of `xl` that show what the same target is set to.
fn read_words(setting: &XenSetting) -> Vec<String> {
    match setting {
        XenSetting::Credit { pool, .. } => words(["sched-credit", "-s", "-p", pool]),
        XenSetting::Credit2 { pool, .. } => words(["sched-credit2", "-s", "-p", pool]),
        XenSetting::Rtds { domain, vcpu, .. } => {
            words(["sched-rtds", "-d", &domain.to_string(), "-v", &vcpu.to_string()])
        }
    }
}

/// Whether what `xl` showed says that it is set so. It is compared with the words that `xl` would write, so that
/// undoing needs no reader of its own.
fn shows(shown: &str, setting: &XenSetting) -> bool {
    match setting {
        XenSetting::Credit { slice_ms, ratelimit_us, .. } => {
            has_words(shown, &[format!("tslice={slice_ms}ms"), format!("ratelimit={ratelimit_us}us")])
        }
        XenSetting::Credit2 { ratelimit_us, .. } => has_words(shown, &[format!("ratelimit={ratelimit_us}us")]),
        XenSetting::Rtds { domain, vcpu, period_us, budget_us, extratime } => {
            let row = format!("{domain} {vcpu} {period_us} {budget_us} {}", if *extratime { "yes" } else { "no" });
            // After the domain's name, which may be anything.
            let rows = shown.lines().map(|line| line.split_whitespace().rev().take(5).collect::<Vec<_>>());
            rows.into_iter().any(|columns| columns.into_iter().rev().collect::<Vec<_>>().join(" ") == row)
        }
    }
}

fn has_words(shown: &str, wanted: &[String]) -> bool {
    // Only the last line: libxl's warnings may precede it.
    let last = shown.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    wanted.iter().all(|wanted| last.split_whitespace().any(|word| word == wanted))
}

#[cfg(test)]
mod tests;
