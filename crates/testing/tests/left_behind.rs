//! `make test` fails where the suite left the machine changed (scripts/left-behind.sh).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Looks at the machine below `root`; with a file, compares.
fn look(root: &Path, with: Option<&Path>) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/left-behind.sh");
    let mut command = Command::new(script);
    command.args(with).env("LEFT_BEHIND_ROOT", root).env_remove("XDG_RUNTIME_DIR").output().unwrap()
}

#[test]
fn whatever_is_left_behind_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let start = "sys/module/haltpoll/parameters/guest_halt_poll_grow_start";
    let limit = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";
    let unchanged = [(start, "50000\n"), (limit, "0\n"), ("sys/fs/cgroup/cpu/others/tasks", "")];
    let before = folder.path().join("before");
    for (path, text) in [
        (start, "1000000\n"),
        (limit, "n/a\n"),
        ("sys/fs/cgroup/cpuset/gleaner-7-8/tasks", ""),
        ("sys/fs/cgroup/user.slice/gleaner-7-8/cgroup.procs", ""),
        ("run/gleaner/7-8.journal", ""),
    ] {
        for (path, text) in unchanged {
            file(path, text);
        }
        fs::write(&before, look(folder.path(), None).stdout).unwrap();
        assert!(look(folder.path(), Some(&before)).status.success());
        file(path, text);
        let said = look(folder.path(), Some(&before));
        let told = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(1), "{path}: {told}");
        let named = if path.contains("cgroup") { path.rsplit_once('/').unwrap().0 } else { path };
        assert!(told.contains(&format!("> {}", folder.path().join(named).display())), "{path}: {told}");
    }
}
