use super::*;

#[test]
fn a_cpuset_is_told_apart_from_one_just_like_it() {
    let dir = tempfile::tempdir().unwrap();
    let child = dir.path().join("child");
    fs::create_dir(&child).unwrap();
    for (parents, own, written) in [("0-2", "0-2", "0wn"), ("0-2", "1", "own"), ("0", "0", "own")] {
        fs::write(dir.path().join("cpuset.cpus.effective"), parents).unwrap();
        fs::write(child.join("cpuset.cpus.effective"), own).unwrap();
        fs::write(child.join("cpuset.cpus"), "own").unwrap();
        tell_apart(&child, dir.path());
        assert_eq!(fs::read_to_string(child.join("cpuset.cpus")).unwrap(), written, "{parents:?} {own:?}");
    }
}

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
