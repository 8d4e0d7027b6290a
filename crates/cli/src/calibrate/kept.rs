//! What a wake-up costs here, kept for an hour: a run need not measure again what the one before has.
//!
//! The file is a cache. It is not believed where anything that it depends on is different, and nobody misses it.

use super::{GAP_BRIDGED, costs_from_text, costs_now, costs_to_text};
use crate::machine::machine;
use crate::means::polls_here;
use gleaner_act::{IdlePoll, default_state_dir};
use gleaner_command::files::Place;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{CpuSet, RetainMeans, WakeupCosts};
use gleaner_observe::{ProcRoot, hypervisor};
use gleaner_runtime::Config;
use gleaner_settings::{Profile, RetainChoice};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// In the folder of the journals.
const FILE: &str = "calibration.json";
/// How long it is believed: the host's other guests come and go, and a machine that was busy once need not be now.
const KEPT_FOR: Duration = Duration::from_secs(3600);
/// Characters of a reason that are kept.
const LONGEST_REASON: usize = 300;

/// The file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    gleaner_calibration: u32,
    /// Of the clock that began at boot and goes on while the machine sleeps.
    at_s: u64,
    /// All that the rest holds for: another boot, version, kernel, number of vCPUs or driver has others.
    on: serde_json::Value,
    /// Why idle-poll is not to be had, if it was tried and refused: to find out takes 20 ms.
    idle_poll_why_not: Option<String>,
    /// As on the command line; none where it is to be had.
    wakeup_costs_ns: Option<String>,
}

/// What is known of a machine whose kernel polls by itself in no way.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    idle_poll_why_not: Option<String>,
    /// By yielding threads, where those are all there is.
    pub costs: Option<WakeupCosts>,
}

/// Adds to `config` what a run by it has to know, which is found out unless it was since the boot. Nothing where a
/// means that polls in the idle task is to be had: there a trial in each run decides.
pub fn add_what_is_known(config: &mut Config, vcpus: &CpuSet) {
    add(config, vcpus, known);
}

/// The same as far as it was found out before: a program that is to be managed waits for no measurement, and would be
/// in its way.
pub fn add_what_is_kept(config: &mut Config, vcpus: &CpuSet) {
    add(config, vcpus, |vcpus, _, yielding_is_asked| {
        if !matters(vcpus, yielding_is_asked) {
            return None;
        }
        kept(&default_state_dir(), &conditions(vcpus), yielding_is_asked)
    });
}

fn add(config: &mut Config, vcpus: &CpuSet, find: impl Fn(&CpuSet, &GuestParams, bool) -> Option<Known>) {
    let group = &config.group;
    let asks = group.policy().retains() && group.profile() != Profile::Latency && group.retain_for.is_none();
    let yielding_is_asked = match config.retain {
        RetainChoice::Auto => false,
        RetainChoice::Yielding => true,
        _ => return,
    };
    if !asks {
        return;
    }
    if let Some(known) = find(vcpus, &group.params(), yielding_is_asked) {
        config.costs = config.costs.or(known.costs);
        config.refused = known.idle_poll_why_not.map(|why| (RetainMeans::IdlePoll, why)).into_iter().collect();
    }
}

/// What a wake-up costs here by yielding threads, for a service that retains by `retain`; `None` where better means are
/// to be had.
pub fn costs_for_service(retain: RetainChoice, vcpus: &CpuSet) -> Option<WakeupCosts> {
    let yielding_is_asked = match retain {
        RetainChoice::Auto => false,
        RetainChoice::Yielding => true,
        _ => return None,
    };
    known(vcpus, &GuestParams::default(), yielding_is_asked)?.costs
}

/// What was not found out is logged.
fn known(vcpus: &CpuSet, params: &GuestParams, yielding_is_asked: bool) -> Option<Known> {
    if !matters(vcpus, yielding_is_asked) {
        return None;
    }
    kept_or_measured(vcpus, params, yielding_is_asked, || true).unwrap_or_else(|error| {
        tracing::info!("the cost of a halt was not measured: {error}");
        None
    })
}

/// Whether it is to be known. Elsewhere the trial alone decides: what an emulated wake-up takes says nothing, and
/// loading programs more often than need be hangs QEMU 7.2 now and then.
fn matters(vcpus: &CpuSet, yielding_is_asked: bool) -> bool {
    let kvm = || hypervisor(&ProcRoot::default()).is_some_and(|found| found.name.contains("KVM"));
    vcpus.len() >= 2 && (yielding_is_asked || !polls_here(vcpus)) && kvm()
}

/// As `known`, for whoever can be interrupted: `None`, too, once `go_on` said no.
pub fn kept_or_measured(
    vcpus: &CpuSet,
    params: &GuestParams,
    yielding_is_asked: bool,
    go_on: impl FnMut() -> bool,
) -> Result<Option<Known>, Box<dyn std::error::Error>> {
    let (folder, on) = (default_state_dir(), conditions(vcpus));
    if let Some(kept) = kept(&folder, &on, yielding_is_asked) {
        return Ok(Some(kept));
    }
    let tried = if yielding_is_asked { Ok(()) } else { IdlePoll::check(&ProcRoot::default().sys) };
    let idle_poll_why_not = tried.err().map(|error| error.to_string());
    let mut known = Known { idle_poll_why_not, costs: None };
    if known.idle_poll_why_not.is_some() || yielding_is_asked {
        known.costs = costs_now(vcpus, params, GAP_BRIDGED, go_on)?;
        if known.costs.is_none() {
            return Ok(None);
        }
    }
    if let Err(error) = keep(&folder, on, &known, since_boot()) {
        // The next run finds out again.
        tracing::info!("{}: {error}", folder.join(FILE).display());
    }
    Ok(Some(known))
}

fn kept(folder: &Path, on: &serde_json::Value, yielding_is_asked: bool) -> Option<Known> {
    read(folder, on, since_boot()).filter(|kept| kept.costs.is_some() || !yielding_is_asked)
}

fn conditions(vcpus: &CpuSet) -> serde_json::Value {
    let root = ProcRoot::default();
    let boot = fs::read_to_string(root.proc.join("sys/kernel/random/boot_id")).unwrap_or_default();
    serde_json::json!({
        "boot_id": boot.trim(),
        "gleaner": env!("CARGO_PKG_VERSION"),
        "machine": machine(&root, vcpus),
    })
}

fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0))
}

/// `None`: there is none, it is not this user's, it is too old, or it says nothing of this machine.
fn read(folder: &Path, on: &serde_json::Value, now: Duration) -> Option<Known> {
    let path = folder.join(FILE);
    let own = fs::symlink_metadata(&path).is_ok_and(|found| {
        found.is_file() && found.uid() == rustix::process::geteuid().as_raw() && found.len() < 10_000
    });
    let text = own.then(|| fs::read_to_string(&path).ok()).flatten()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    let costs = kept.wakeup_costs_ns.as_deref().map(costs_from_text).transpose().ok()?;
    let age = now.checked_sub(Duration::from_secs(kept.at_s));
    let holds = kept.gleaner_calibration == 1 && kept.on == *on && age.is_some_and(|age| age < KEPT_FOR);
    holds.then_some(Known { idle_poll_why_not: kept.idle_poll_why_not, costs })
}

/// Whole or not at all: another run may read it meanwhile.
fn keep(folder: &Path, on: serde_json::Value, known: &Known, now: Duration) -> std::io::Result<()> {
    let shortened = |why: &String| why.chars().take(LONGEST_REASON).collect();
    let kept = Kept {
        gleaner_calibration: 1,
        at_s: now.as_secs(),
        on,
        idle_poll_why_not: known.idle_poll_why_not.as_ref().map(shortened),
        wakeup_costs_ns: known.costs.as_ref().map(costs_to_text),
    };
    // It goes with the last journal.
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let path = folder.join(FILE);
    // Where the name is free, a kill leaves nothing else.
    let _ = fs::remove_file(&path);
    Place::open(&path)?.write((serde_json::to_string(&kept)? + "\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::Nanos;

    const NOW: Duration = Duration::from_secs(5_000);

    fn found() -> Known {
        let costs = WakeupCosts { retained_p50: Nanos(5_000), halted_p50: Nanos(20_000), ..WakeupCosts::default() };
        Known { idle_poll_why_not: Some("refused".to_owned()), costs: Some(costs) }
    }

    #[test]
    fn what_is_kept_is_read_on_the_same_machine_and_on_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let on = conditions(&CpuSet::first(2));
        assert_eq!(read(folder.path(), &on, NOW), None);
        keep(folder.path(), on.clone(), &found(), NOW).unwrap();
        assert_eq!(read(folder.path(), &on, NOW), Some(found()));
        assert_eq!(read(folder.path(), &on, NOW + KEPT_FOR / 2), Some(found()));
        for when in [NOW + KEPT_FOR, NOW / 2] {
            assert_eq!(read(folder.path(), &on, when), None, "kept too long, or of a later time");
        }
        let mut others = vec![conditions(&CpuSet::first(1))];
        for (key, value) in [("boot_id", "another"), ("gleaner", "0.0.1")] {
            let mut other = on.clone();
            other[key] = value.into();
            others.push(other);
        }
        for other in others {
            assert_eq!(read(folder.path(), &other, NOW), None, "{other}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_as_good_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let on = conditions(&CpuSet::first(2));
        keep(folder.path(), on.clone(), &found(), NOW).unwrap();
        let path = folder.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        for bad in ["", "{", "[]", &text.replace("20000", "-1"), &"x".repeat(20_000), &text.replace(":1", ":2")] {
            fs::write(&path, bad).unwrap();
            assert_eq!(read(folder.path(), &on, NOW), None, "{bad}");
        }
        fs::remove_file(&path).unwrap();
        fs::write(folder.path().join("elsewhere"), &text).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert_eq!(read(folder.path(), &on, NOW), None, "a link");
    }
}
