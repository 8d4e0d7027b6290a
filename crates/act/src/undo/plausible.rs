//! What a journal of another process may ask for: only what Gleaner does. Whoever forges one should gain nothing.

use super::Undo;
use crate::ActError;
use rustix::fs::statfs;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What its cgroups and resctrl groups begin with.
const OURS: &str = "gleaner-";
/// Magic numbers of the cgroup file systems (linux/magic.h).
const CGROUPS: [i64; 2] = [0x0027_e0eb, 0x6367_7270];

/// # Errors
/// When Gleaner never writes such an entry.
pub(super) fn check(undo: &Undo) -> Result<(), ActError> {
    let why = |what: &Path, why: &str| {
        let why = format!("{why}, so Gleaner has not written that; its journal was kept, and can be removed");
        Err(ActError::Unavailable { what: format!("an undo of {}", what.display()), why })
    };
    match undo {
        Undo::FileValue { path, .. } if !is_set(path) => why(path, "it is no file that Gleaner sets"),
        // What is not there needs no undo.
        Undo::RemoveCgroup { path, .. } | Undo::RemoveResctrlGroup { path } if !path.exists() => Ok(()),
        Undo::RemoveCgroup { path, .. } | Undo::RemoveResctrlGroup { path } if !is_ours(path) => {
            why(path, "its name does not begin with gleaner-")
        }
        Undo::RemoveCgroup { path, members_to } => {
            let to_parent = members_to.as_deref().is_none_or(|to| path.parent() == Some(to));
            if to_parent && is_cgroup(path) { Ok(()) } else { why(path, "it is no cgroup below the one it names") }
        }
        Undo::DisableController { parent, controller } => {
            let known = ["cpu", "cpuset"].contains(&controller.as_str());
            if known && (!parent.exists() || is_cgroup(parent)) { Ok(()) } else { why(parent, "it is no cgroup") }
        }
        Undo::UnmountResctrl { path } if !path.ends_with("resctrl") => why(path, "it is not called resctrl"),
        Undo::Xen { xl, .. } if !is_nobody_elses(xl) => why(xl, "others could have written that program"),
        _ => Ok(()),
    }
}

/// Whether it is called as one of the files that Gleaner sets. Nothing else is called so, wherever it lies.
fn is_set(path: &Path) -> bool {
    let names: Vec<&str> = path.iter().rev().take(4).map(|name| name.to_str().unwrap_or_default()).collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match names[..] {
        [parameter, "parameters", "haltpoll", "module"] => {
            ["guest_halt_poll_ns", "guest_halt_poll_grow", "guest_halt_poll_grow_start"].contains(&parameter)
        }
        ["pm_qos_resume_latency_us", "power", cpu, "cpu"] => cpu.strip_prefix("cpu").is_some_and(is_number),
        ["smp_affinity_list", number, "irq", ..] => is_number(number),
        _ => false,
    }
}

fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(OURS.as_bytes()))
}

fn is_cgroup(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| CGROUPS.contains(&found.f_type))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_gleaner_sets_are_set_back() {
        for (path, set) in [
            ("/sys/module/haltpoll/parameters/guest_halt_poll_ns", true),
            ("/sys/module/haltpoll/parameters/force", false),
            ("/sys/devices/system/cpu/cpu11/power/pm_qos_resume_latency_us", true),
            ("/sys/devices/system/cpu/cpu/power/pm_qos_resume_latency_us", false),
            ("/proc/irq/5/smp_affinity_list", true),
            ("/proc/irq/default_smp_affinity", false),
            ("/proc/irq/x/smp_affinity_list", false),
            ("/etc/passwd", false),
            ("", false),
        ] {
            let undo = Undo::FileValue { path: path.into(), had: "0".into(), set: "1".into() };
            assert_eq!(check(&undo).is_ok(), set, "{path}");
        }
    }

    #[test]
    fn what_is_no_cgroup_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("gleaner-1-1");
        fs::create_dir(&folder).unwrap();
        let elsewhere = Some(dir.path().join("other"));
        for members_to in [None, Some(dir.path().to_owned()), elsewhere] {
            assert!(check(&Undo::RemoveCgroup { path: folder.clone(), members_to }).is_err());
        }
        // Never made, or gone.
        let gone = dir.path().join("gleaner-2-1");
        assert!(check(&Undo::RemoveCgroup { path: gone, members_to: None }).is_ok());
        assert!(check(&Undo::RemoveCgroup { path: dir.path().to_owned(), members_to: None }).is_err());
        assert!(check(&Undo::RemoveResctrlGroup { path: dir.path().to_owned() }).is_err());
        let controller = |parent: &Path, controller: &str| {
            check(&Undo::DisableController { parent: parent.to_owned(), controller: controller.into() })
        };
        assert!(controller(dir.path(), "cpu").is_err());
        assert!(controller(Path::new("/sys/fs/cgroup/no/such"), "cpu").is_ok());
        assert!(controller(Path::new("/sys/fs/cgroup/no/such"), "memory").is_err());
        assert!(check(&Undo::UnmountResctrl { path: "/home".into() }).is_err());
        assert!(check(&Undo::UnmountResctrl { path: "/sys/fs/resctrl".into() }).is_ok());
    }

    #[test]
    fn no_program_is_started_that_others_could_have_written() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (folder, xl) = (dir.path().canonicalize().unwrap(), dir.path().canonicalize().unwrap().join("xl"));
        fs::write(&xl, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&xl, 0o755);
        assert!(is_nobody_elses(&xl));
        for (path, bad) in [(&xl, 0o777), (&folder, 0o777)] {
            mode(path, bad);
            assert!(!is_nobody_elses(&xl), "{}", path.display());
            mode(path, 0o755);
        }
        let link = folder.join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(is_nobody_elses(&xl) && !is_nobody_elses(&link.join("xl")));
        assert!(!is_nobody_elses(Path::new("/no/such/xl")) && !is_nobody_elses(Path::new("xl")));
    }
}
