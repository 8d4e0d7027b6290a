use super::*;
use gleaner_settings::{Budget, RetainFor};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

/// A machine with these processes: number, user, how many numbers it has.
fn machine(folder: &Path, processes: &[(i32, &str, &str)]) -> ProcRoot {
    let root = ProcRoot::below(folder);
    for (pid, users, numbers) in processes {
        let path = root.proc.join(pid.to_string());
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("stat"), format!("{pid} (x) S 1 {}7 0\n", "0 ".repeat(17))).unwrap();
        fs::write(path.join("status"), format!("Name:\tx\nUid:\t{users}\nNSpid:\t{numbers}\n")).unwrap();
    }
    root
}

fn peer(pid: i32, uid: u32) -> Peer {
    Peer { process: Some((pid, uid)), is_trusted: uid == 0 }
}

fn join(pid: i32) -> Join {
    Join { name: "redis-server".to_owned(), pid: Some(pid), ..Join::default() }
}

#[test]
fn users_hand_over_their_own_processes_and_root_any() {
    let folder = tempfile::tempdir().unwrap();
    let root = machine(
        folder.path(),
        &[
            (10, "1000\t1000\t1000\t1000", "10"),
            (11, "1000\t1000\t1000\t1000", "11"),
            (12, "0\t0\t0\t0", "12"),
            // A program of root's that this user started.
            (13, "1000\t0\t0\t0", "13"),
            (14, "1000\t1000\t1000\t1000", "14\t1"),
        ],
    );
    let asked = |pid: i32, asker: i32, uid: u32| check(&root, &join(pid), &peer(asker, uid)).map(|found| found.1);
    assert_eq!(asked(11, 10, 1000).unwrap(), Some(Target::Process { pid: 11, start_time: 7 }));
    for (pid, why) in
        [(12, "12 is not yours"), (13, "13 is not yours"), (99, "no such process"), (-1, "no such process")]
    {
        assert!(asked(pid, 10, 1000).unwrap_err().contains(why), "{pid}");
    }
    assert!(asked(11, 10, 1001).unwrap_err().contains("not yours"), "a process of another user's");
    assert!(asked(11, 12, 0).is_ok() && asked(12, 12, 0).is_ok());
    // Its 11 is not ours, whoever it is.
    assert!(asked(11, 14, 0).unwrap_err().contains("PID namespace"));
    assert!(asked(11, 98, 0).unwrap_err().contains("PID namespace"), "nothing is known of who asks");
    assert!(check(&root, &join(11), &Peer::default()).is_err());
}

#[test]
fn who_is_not_trusted_gets_what_nobody_else_pays_for() {
    let folder = tempfile::tempdir().unwrap();
    let root = machine(folder.path(), &[(10, "1000\t1000\t1000\t1000", "10"), (12, "0\t0\t0\t0", "12")]);
    let of = |join: &Join, pid, uid| check(&root, join, &peer(pid, uid)).map(drop);
    let with = |settings: GroupSettings| Join { settings, ..join(10) };
    let plain = GroupSettings::default;
    let params = GuestParams { steal_share_stop: 0.5, ..GuestParams::default() };
    let fine = with(GroupSettings { profile: Some(Profile::Frugal), budget: Some(Budget(50.0)), ..plain() });
    assert_eq!(of(&fine, 10, 1000), Ok(()));
    for much in [
        with(GroupSettings { profile: Some(Profile::Latency), ..plain() }),
        with(GroupSettings { budget: Some(Budget(150.0)), ..plain() }),
        with(GroupSettings { params: Some(params), ..plain() }),
        with(GroupSettings { retain_for: Some(RetainFor(Duration::from_millis(5))), ..plain() }),
        with(GroupSettings { progress: Some("/etc/shadow".parse().unwrap()), ..plain() }),
        with(GroupSettings { trial: Some(false), ..plain() }),
        Join { pid: None, cgroup: Some("/sys/fs/cgroup".into()), ..join(10) },
    ] {
        assert!(of(&much, 10, 1000).unwrap_err().starts_with("only root"), "{much:?}");
        assert!(!of(&much, 12, 0).is_err_and(|why| why.starts_with("only root")), "{much:?}");
    }
}

#[test]
fn what_a_run_is_told_reaches_the_daemon() {
    let params = GuestParams { steal_share_stop: 0.5, retention_trials: false, ..GuestParams::default() };
    let group = GroupSettings {
        policy: Some(Policy::Full),
        profile: Some(Profile::Frugal),
        params: Some(params.clone()),
        progress: Some("/p".parse().unwrap()),
        ..GroupSettings::default()
    };
    let join = Join::of(&Config::of("a\x1b[31m b/../c".to_owned(), group.clone()));
    let line = serde_json::to_string(&join).unwrap();
    let settings = serde_json::from_str::<Join>(&line).unwrap().entry().unwrap().settings;
    assert_eq!((settings.params(), &settings), (params, &group));
    assert_eq!(join.group_name(), "run/a31mb..c");
    let every = serde_json::to_string(&GuestParams::default()).unwrap();
    assert!(line.len() + every.len() + (4 << 10) < crate::protocol::REQUEST_BYTES_MAX, "{}", every.len());
}

#[test]
fn what_cannot_be_is_refused() {
    let said = |settings: &str| {
        let line = format!("{{\"name\":\"a\",\"pid\":1{settings}}}");
        let join = serde_json::from_str::<Join>(&line).map_err(|error| error.to_string());
        join.and_then(|join| join.entry()).map(drop)
    };
    assert_eq!(said(r#","policy":"retain","profile":"balanced""#), Ok(()));
    for (settings, why) in [
        (r#","params":{"no_such_key":1}"#, "no_such_key"),
        (r#","params":{"steal_share_stop":-3}"#, "parameters: "),
        (r#","policy":"off""#, "policy off"),
        (r#","policy":"consolidate""#, "consolidate"),
        (r#","budget":"NaN""#, "NaN: write 0% to 100000%"),
        (r#","budget":"1000000000%""#, "write 0% to 100000%"),
        (r#","retain_for":"2s""#, "2s: write 1us to 1s"),
        (r#","progress":"p""#, "write a path from / on"),
        // As an earlier run would ask.
        (r#","retain_for":200000"#, "expected text: write it in quotes"),
    ] {
        let said = said(settings).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn one_user_cannot_take_all_the_room() {
    assert!(has_room(0, 0, 100, false).is_ok());
    assert!(has_room(16, 16, 100, false).is_err() && has_room(16, 16, 100, true).is_ok());
    assert!(has_room(50, 0, 100, false).is_err(), "services have to have room");
}

#[test]
fn a_cgroup_of_any_name_is_handed_over() {
    for (name, written) in [(&b"/a"[..], "\"cgroup\":\"/a\""), (b"/\xff", "\"cgroup\":[47,255]")] {
        let path = std::ffi::OsString::from_vec(name.to_vec());
        let join = Join { pid: None, cgroup: Some(path.into()), ..join(1) };
        let line = serde_json::to_string(&join).unwrap();
        assert!(line.contains(written), "{line}");
        assert_eq!(serde_json::from_str::<Join>(&line).unwrap(), join);
    }
    assert_eq!(serde_json::from_str::<Join>(&serde_json::to_string(&join(1)).unwrap()).unwrap(), join(1));
}
