//! Whether other programs use this machine: what is measured meanwhile is theirs too.

use gleaner_model::Nanos;
use gleaner_observe::{ProcRoot, StatReader, SystemStat};
use std::time::{Duration, Instant};

/// How long is looked, and from which share on a machine is busy.
const SPAN: Duration = Duration::from_millis(300);
const SHARE: f64 = 0.2;

/// The share of all vCPUs' time that others use now, where that makes the machine busy.
pub fn share() -> Option<f64> {
    let read = || StatReader::open(&ProcRoot::default()).and_then(|mut reader| reader.read()).ok();
    let (began, before) = (Instant::now(), read()?);
    std::thread::sleep(SPAN);
    let after = read()?;
    let idle = |stat: &SystemStat| stat.cpus.iter().map(|(_, times)| times.idle).sum::<Nanos>();
    let whole = Nanos::from(began.elapsed()).times(after.cpus.len() as u64);
    let busy = 1.0 - (idle(&after) - idle(&before)).share_of(whole).min(1.0);
    (busy > SHARE).then_some(busy)
}

/// The same in words.
pub fn warning(share: f64) -> String {
    format!(
        "this machine is busy: other programs use {:.0} % of its vCPUs, and these figures are theirs too",
        share * 100.0
    )
}
