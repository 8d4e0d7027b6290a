//! `make test` says at its start who else acts on the machine (scripts/who-acts.sh).

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn another_gleaner_and_other_daemons_are_named_and_the_dead_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let said = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/who-acts.sh");
        let said = Command::new(script).env("WHO_ACTS_ROOT", folder.path()).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stderr).unwrap()
    };
    file("proc/stat", "cpu  10 0 10 100 0 0 0 0 0 0\n");
    assert_eq!(said(), "");
    let journal = "{\"undo\":{\"path\":\"/sys/module/haltpoll/parameters/guest_halt_poll_ns\"}}\n";
    file("run/gleaner/77-1.journal", journal);
    assert_eq!(said(), "", "it is dead");
    file("proc/77/comm", "gleaner\n");
    assert!(said().contains("another Gleaner, process 77, holds haltpoll"), "{}", said());
    file("run/gleaner/77-1.journal", "{}\n");
    assert!(said().contains("process 77, runs here"), "{}", said());
    for name in ["tuned", "irqbalance", "scx_lavd"] {
        file("proc/88/comm", &format!("{name}\n"));
        assert!(said().contains(&format!("{name} runs here")), "{}", said());
    }
}
