use super::*;

#[test]
fn a_controller_that_was_never_enabled_is_not_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("cgroup.subtree_control");
    for (now, after) in [("", ""), ("memory cpuset\n", "memory cpuset\n"), ("memory cpu\n", "-cpu")] {
        fs::write(&control, now).unwrap();
        disable_controller(dir.path(), "cpu").unwrap();
        let found = fs::read_to_string(&control).unwrap();
        assert!(found.starts_with(after) && (after == "-cpu" || found == after), "{now:?}: {found:?}");
    }
}
