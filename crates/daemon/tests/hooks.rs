//! The hooks of hypervisors' managers, called as those call them, with a service manager that only notes what it is
//! told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FAKE: &str = "#!/bin/sh\necho \"${0##*/} $*\" >>\"$NOTES\"\n";

/// Commands of systemd that note how they are called; `is-active` says no.
struct Manager(tempfile::TempDir);

impl Manager {
    fn new(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("systemd-run", FAKE);
        write("systemctl", &format!("{FAKE}case $* in *is-active*) exit 3 ;; esac\nexit 5\n"));
        write("systemd-escape", "#!/bin/sh\nprintf '%s' \"$2\" | sed 's/ /x20/g; s/-/x2d/g'\n");
        fs::write(folder.path().join("host.conf"), configuration).unwrap();
        fs::write(folder.path().join("101.pid"), "4711\n").unwrap();
        Self(folder)
    }

    /// What the hook had it do. Whatever that is, the hook succeeds, and says nothing.
    fn told(&self, hook: &str, words: &[&str]) -> Vec<String> {
        let notes = self.0.path().join("notes");
        let _ = fs::remove_file(&notes);
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        let output = Command::new(packaging(hook))
            .args(words)
            .env_clear()
            .env("PATH", path)
            .env("NOTES", &notes)
            .env("GLEANER_HOST_CONF", self.0.path().join("host.conf"))
            .env("GLEANER_QEMU_RUN", self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
        fs::read_to_string(notes).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

/// The call that starts an agent.
fn starts(unit: &str, words: &str) -> String {
    format!(
        "systemd-run --quiet --collect --unit {unit}.service --property ExecStopPost=/usr/bin/gleaner restore \
         /usr/bin/gleaner host run --vm {words}"
    )
}

#[test]
fn libvirt_starts_and_stops_an_agent_for_each_vm_that_is_named() {
    let manager = Manager::new("VMS=\"web-* db\"\nOPTIONS=\"--slice 1ms\"\n");
    let told = |words: &[&str]| manager.told("libvirt/qemu", words);
    for operation in ["started", "reconnect"] {
        let found = told(&["web-1", operation, "begin", "-"]);
        assert_eq!(found[0], "systemctl --quiet is-active gleaner-host-webx2d1.service");
        assert_eq!(found[1..], [starts("gleaner-host-webx2d1", "web-1 --slice 1ms")]);
    }
    for operation in ["stopped", "release"] {
        assert_eq!(told(&["db", operation, "end", "-"]), ["systemctl --quiet stop gleaner-host-db.service"]);
    }
    let nothing: [&[&str]; 6] =
        [&[], &["db"], &["db", "prepare", "begin", "-"], &["other", "started"], &["", "started"], &["web-"]];
    for words in nothing {
        assert_eq!(told(words), Vec::<String>::new(), "{words:?}");
    }
    // A name is one word, and no pattern.
    assert_eq!(told(&["web-a b", "started"])[1], starts("gleaner-host-webx2dax20b", "web-a b --slice 1ms"));
    assert!(told(&["*", "started"]).is_empty());
    assert!(Manager::new("").told("libvirt/qemu", &["db", "started"]).is_empty(), "nobody is named");
}

#[test]
fn proxmox_starts_and_stops_an_agent_by_the_vms_process() {
    let manager = Manager::new("OPTIONS=\"--slice 1ms\"\n");
    let told = |words: &[&str]| manager.told("proxmox/gleaner-hook.sh", words);
    assert_eq!(told(&["101", "post-start"]), [starts("gleaner-host-101", "4711 --slice 1ms")]);
    for phase in ["pre-stop", "post-stop"] {
        assert_eq!(told(&["101", phase]), ["systemctl --quiet stop gleaner-host-101.service"]);
    }
    for words in [&["101", "pre-start"][..], &["102", "post-start"], &["../101", "post-start"], &["", ""], &[]] {
        assert_eq!(told(words), Vec::<String>::new(), "{words:?}");
    }
}

#[test]
fn shellcheck_has_nothing_to_say_of_the_hooks() {
    let hooks = ["libvirt/qemu", "proxmox/gleaner-hook.sh"].map(packaging);
    let Ok(checked) = Command::new("shellcheck").args(hooks).output() else {
        gleaner_testing::skip!("needs shellcheck");
    };
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
