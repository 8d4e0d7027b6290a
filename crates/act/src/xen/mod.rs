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

use crate::ActError;
use crate::journal::{Change, Journal, Run, never_written, path_bytes};
use gleaner_model::XenSetting;
use serde::{Deserialize, Serialize};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Makes one change, journalled first, and reads it back.
///
/// # Errors
/// [`ActError::Unavailable`] when another run has set the same thing or Xen kept another value, and whatever `xl`
/// refuses; what was journalled is then still undone by the journal.
pub fn change_xen(xl: &Xl, change: &XenChange, journal: &mut Journal) -> Result<(), ActError> {
    let XenChange { was, set } = change;
    // Two that overlap would put back each other's values.
    if let Some(pid) = journal.made_by_another(|other: &XenSet| other.set.target() == set.target()) {
        let why = format!("process {pid}, another run of Gleaner, has set it; end that one first");
        return Err(ActError::Unavailable { what: set.target(), why });
    }
    journal.before(&XenSet { xl: xl.program().to_owned(), was: was.clone(), set: set.clone() })?;
    xl.run(&set_words(set))?;
    let shown = xl.run(&read_words(set))?;
    if shows(&shown, set) {
        return Ok(());
    }
    let why = format!("`{}` says otherwise after it was set: {}", xl::command_line(&read_words(set)), shown.trim());
    Err(ActError::Unavailable { what: format!("{set} for {}", set.target()), why })
}

/// Something of Xen's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct XenSet {
    /// Xen's tool.
    #[serde(with = "path_bytes")]
    xl: PathBuf,
    /// What it was.
    was: XenSetting,
    /// What it was set to.
    set: XenSetting,
}

impl Change for XenSet {
    const NAME: &'static str = "xen";

    fn check(&self) -> Result<(), ActError> {
        if is_nobody_elses(&self.xl) {
            Ok(())
        } else {
            never_written(&self.xl, "others could have written that program")
        }
    }

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        undo_xen(&self.xl, &self.was, &self.set)
    }
}

/// Whether nobody but root and this user could have put it there.
fn is_nobody_elses(program: &Path) -> bool {
    let trusted = |found: &Metadata| {
        let is_link = found.file_type().is_symlink();
        [0, rustix::process::geteuid().as_raw()].contains(&found.uid()) && (is_link || found.mode() & 0o022 == 0)
    };
    // The folder as it really is: a link on the way there may be somebody's.
    let real = program.parent().and_then(|folder| folder.canonicalize().ok()).zip(program.file_name());
    let Some((folder, name)) = real.filter(|(folder, _)| program.parent() == Some(folder)) else { return false };
    fs::metadata(&folder).is_ok_and(|found| trusted(&found))
        && fs::symlink_metadata(folder.join(name)).is_ok_and(|found| trusted(&found))
        && fs::metadata(program).is_ok_and(|found| trusted(&found))
}

/// Puts back what was there.
fn undo_xen(program: &Path, was: &XenSetting, set: &XenSetting) -> Result<(), ActError> {
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
