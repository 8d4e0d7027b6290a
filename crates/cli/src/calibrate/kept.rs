//! What a wake-up costs here, kept until the next boot: a run need not measure again what the one before has.
//!
//! The file is a cache. It is thrown away where anything that it depends on is different, and nobody misses it.

use super::{GAP_BRIDGED, costs_from_text, costs_now, costs_to_text};
use crate::doctor::machine;
use gleaner_act::default_state_dir;
use gleaner_decide::guest::GuestParams;
use gleaner_model::{CpuSet, Profile, RetainMeans, WakeupCosts};
use gleaner_observe::ProcRoot;
use gleaner_runtime::{Config, RetainChoice};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// In the folder of the journals.
const FILE: &str = "calibration.json";

/// The file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    gleaner_calibration: u32,
    /// All that the figures hold for: another boot, version, kernel, number of vCPUs or driver has others.
    on: serde_json::Value,
    /// As on the command line.
    wakeup_costs_ns: String,
}

/// What a run by `config` has to know of wake-ups, which are measured unless they were since the boot. `None` where it
/// need not know: where the idle task polls, a trial in each run decides.
pub fn costs_for(config: &Config, vcpus: &CpuSet) -> Option<WakeupCosts> {
    let by_yielding = match config.retain {
        RetainChoice::Auto => !crate::means::polls_here(vcpus),
        choice => choice == RetainChoice::By(RetainMeans::Yielding),
    };
    let asks = config.policy.retains() && config.profile != Profile::Latency && config.timeout.is_none();
    if config.costs.is_some() || !by_yielding || !asks || vcpus.len() < 2 {
        return config.costs;
    }
    measured_or_none(vcpus, &config.params)
}

/// The same for a service, which learns later what it is to do.
pub fn costs_for_service(vcpus: &CpuSet) -> Option<WakeupCosts> {
    if crate::means::polls_here(vcpus) { None } else { measured_or_none(vcpus, &GuestParams::default()) }
}

fn measured_or_none(vcpus: &CpuSet, params: &GuestParams) -> Option<WakeupCosts> {
    kept_or_measured(vcpus, params, || true).unwrap_or_else(|error| {
        tracing::info!("the cost of a halt was not measured: {error}");
        None
    })
}

/// As it was kept, or as it is now: then it is kept. `None` on one vCPU, or when `go_on` said no.
pub fn kept_or_measured(
    vcpus: &CpuSet,
    params: &GuestParams,
    go_on: impl FnMut() -> bool,
) -> Result<Option<WakeupCosts>, Box<dyn std::error::Error>> {
    let (folder, on) = (default_state_dir(), conditions(vcpus));
    if let Some(kept) = read(&folder, &on) {
        return Ok(Some(kept));
    }
    let costs = costs_now(vcpus, params, GAP_BRIDGED, go_on)?;
    if let Some(costs) = &costs
        && let Err(error) = keep(&folder, on, costs)
    {
        // The next run measures again.
        tracing::info!("{}: {error}", folder.join(FILE).display());
    }
    Ok(costs)
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

/// `None`: there is none, it is not this user's, or it says nothing of this machine.
fn read(folder: &Path, on: &serde_json::Value) -> Option<WakeupCosts> {
    let path = folder.join(FILE);
    let own = fs::symlink_metadata(&path).is_ok_and(|found| {
        found.is_file() && found.uid() == rustix::process::geteuid().as_raw() && found.len() < 10_000
    });
    let text = own.then(|| fs::read_to_string(&path).ok()).flatten()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    let holds = kept.gleaner_calibration == 1 && kept.on == *on;
    holds.then(|| costs_from_text(&kept.wakeup_costs_ns).ok()).flatten()
}

/// Whole or not at all: another run may read it meanwhile.
fn keep(folder: &Path, on: serde_json::Value, costs: &WakeupCosts) -> std::io::Result<()> {
    let kept = Kept { gleaner_calibration: 1, on, wakeup_costs_ns: costs_to_text(costs) };
    // It goes with the last journal.
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::Builder::new().prefix(".calibration-").tempfile_in(folder)?;
    serde_json::to_writer(&mut file, &kept)?;
    file.write_all(b"\n")?;
    let path: PathBuf = folder.join(FILE);
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::Nanos;

    fn costs() -> WakeupCosts {
        WakeupCosts { retained_p50: Nanos(5_000), halted_p50: Nanos(20_000), ..WakeupCosts::default() }
    }

    #[test]
    fn what_is_kept_is_read_on_the_same_machine_and_on_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let on = conditions(&CpuSet::first(2));
        assert_eq!(read(folder.path(), &on), None);
        keep(folder.path(), on.clone(), &costs()).unwrap();
        assert_eq!(read(folder.path(), &on), Some(costs()));
        let mut others = vec![conditions(&CpuSet::first(1))];
        for (key, value) in [("boot_id", "another"), ("gleaner", "0.0.1")] {
            let mut other = on.clone();
            other[key] = value.into();
            others.push(other);
        }
        for other in others {
            assert_eq!(read(folder.path(), &other), None, "{other}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_as_good_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let on = conditions(&CpuSet::first(2));
        keep(folder.path(), on.clone(), &costs()).unwrap();
        let path = folder.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        for bad in ["", "{", "[]", &text.replace("20000", "-1"), &"x".repeat(20_000), &text.replace(":1", ":2")] {
            fs::write(&path, bad).unwrap();
            assert_eq!(read(folder.path(), &on), None, "{bad}");
        }
        fs::remove_file(&path).unwrap();
        fs::write(folder.path().join("elsewhere"), &text).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert_eq!(read(folder.path(), &on), None, "a link");
    }
}
