//! With an `xl` of our own that keeps what it is told in a file and refuses what the real one refuses, in its words.

use super::*;
use crate::{UndoOutcome, undo_journal, undo_own};
use std::os::unix::fs::PermissionsExt as _;

/// A folder with an `xl` whose Pool-0 is under credit, and journals beside it.
struct Host {
    folder: tempfile::TempDir,
}

const FAKE: &str = r#"#!/bin/sh
state=$(dirname "$0")/state
echo "$*" >>"$state.log"
case "$*" in
"sched-credit -s -p Pool-0") echo "Cpupool Pool-0: $(cat "$state") migration-delay=0us" ;;
"sched-credit -s -p Pool-0 -t "*) [ -e "$state.deaf" ] || echo "tslice=$6ms ratelimit=$8us" >"$state" ;;
"sched-credit2 -s -p fast") echo "Cpupool fast: ratelimit=1000us" ;;
"sched-credit -s -p dumb") echo "Cpupool dumb: [sched params unavailable]" ;;
*) echo "unknown cpupool '$4'" >&2; exit 1 ;;
esac
"#;

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("xl");
        fs::write(&program, FAKE).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let host = Self { folder };
        host.set("tslice=30ms ratelimit=1000us");
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn xl(&self) -> Xl {
        Xl::at(&self.path("xl"))
    }

    fn set(&self, words: &str) {
        fs::write(self.path("state"), format!("{words}\n")).unwrap();
    }

    fn now(&self) -> String {
        fs::read_to_string(self.path("state")).unwrap().trim().to_owned()
    }

    fn journal(&self, run: &str) -> Journal {
        Journal::create(&self.path("journals"), run).unwrap()
    }
}

fn credit(slice_ms: u32, ratelimit_us: u32) -> XenTimes {
    XenTimes { slice_ms: Some(slice_ms), ratelimit_us }
}

fn pool(name: &str, scheduler: &str) -> XenPool {
    XenPool { name: name.to_owned(), scheduler: scheduler.to_owned() }
}

fn one_ms() -> XenChange {
    XenChange { pool: pool("Pool-0", "credit"), was: credit(30, 1000), set: credit(1, 1000) }
}

#[test]
fn a_slice_is_set_read_back_and_put_back() {
    let host = Host::new();
    let mut journal = host.journal("own");
    change_xen(&host.xl(), &one_ms(), &mut journal).unwrap();
    assert_eq!(host.now(), "tslice=1ms ratelimit=1000us");
    for _ in 0..2 {
        assert_eq!(undo_own(&journal).unwrap(), UndoOutcome::Undone { entries: 1 });
        assert_eq!(host.now(), "tslice=30ms ratelimit=1000us");
    }
    let commands = fs::read_to_string(host.path("state.log")).unwrap();
    assert_eq!(
        commands.lines().take(4).collect::<Vec<_>>(),
        [
            "sched-credit -s -p Pool-0 -t 1 -r 1000",
            "sched-credit -s -p Pool-0",
            "sched-credit -s -p Pool-0",
            "sched-credit -s -p Pool-0 -t 30 -r 1000",
        ]
    );
}

#[test]
fn what_somebody_else_set_meanwhile_stays() {
    let host = Host::new();
    let mut journal = host.journal("own");
    change_xen(&host.xl(), &one_ms(), &mut journal).unwrap();
    host.set("tslice=10ms ratelimit=1000us");
    undo_own(&journal).unwrap();
    assert_eq!(host.now(), "tslice=10ms ratelimit=1000us");
}

#[test]
fn a_slice_that_xen_does_not_keep_is_an_error() {
    let host = Host::new();
    fs::write(host.path("state.deaf"), "").unwrap();
    let error = change_xen(&host.xl(), &one_ms(), &mut host.journal("own")).unwrap_err().to_string();
    assert!(error.contains("slice 1 ms, ratelimit 1000 us for cpupool Pool-0"), "{error}");
    assert!(error.contains("tslice=30ms"), "{error}");
}

#[test]
fn two_runs_do_not_set_the_same_cpupool() {
    let host = Host::new();
    let (mut first, mut second) = (host.journal("first"), host.journal("second"));
    change_xen(&host.xl(), &one_ms(), &mut first).unwrap();
    let again = XenChange { was: credit(1, 1000), set: credit(2, 1000), ..one_ms() };
    let error = change_xen(&host.xl(), &again, &mut second).unwrap_err().to_string();
    assert!(error.contains("another run of Gleaner"), "{error}");
    assert_eq!(host.now(), "tslice=1ms ratelimit=1000us");
    let by_another = |name: &str| second.made_by_another(|other: &XenSet| other.pool == name);
    assert!(by_another("Pool-0").is_some() && by_another("fast").is_none());
    // The journal of a run that is over says nothing any more.
    undo_journal(first.path(), true).unwrap();
    assert_eq!(by_another("Pool-0"), None);
}

#[test]
fn a_cpupool_that_is_gone_needs_no_undoing() {
    let host = Host::new();
    let gone =
        |xl: &str| XenSet { xl: host.path(xl), pool: "gone".into(), was: credit(30, 1000), set: credit(1, 1000) };
    let journal = host.path("journal");
    let run = Run { path: &journal, id: "own", foreign: false, own: true, undos: &[] };
    gone("xl").undo(&run).unwrap();
    // But an `xl` that cannot be run is told: the change may still be there.
    gone("nothing").undo(&run).unwrap_err();
}

#[test]
fn what_xl_shows_is_read_word_by_word() {
    for (text, times) in [
        ("Cpupool Pool-0: tslice=10ms ratelimit=1000us migration-delay=0us\n", Some(credit(10, 1000))),
        ("libxl: warning: x\nCpupool my pool: ratelimit=0us\n\n", Some(XenTimes { slice_ms: None, ratelimit_us: 0 })),
        ("Cpupool Pool-0: [sched params unavailable]", None),
        ("", None),
    ] {
        assert_eq!(XenTimes::shown(text), times, "{text}");
    }
}

/// What is set where Pool-0's slice is 30 ms and its ratelimit 5 ms; or why nothing is.
fn planned(request: &XenRequest, pools: &[XenPool]) -> Result<XenTimes, String> {
    let host = Host::new();
    host.set("tslice=30ms ratelimit=5000us");
    let change = plan_xen(request, pools, &host.xl()).unwrap();
    change.map(|change| change.set).map_err(|refusal| refusal.to_string())
}

fn slice(ns: u64) -> XenRequest {
    XenRequest { slice: Some(Nanos(ns)), ..XenRequest::default() }
}

fn ratelimit(request: XenRequest, ns: u64) -> XenRequest {
    XenRequest { ratelimit: Some(Nanos(ns)), ..request }
}

#[test]
fn credit_takes_whole_milliseconds_from_1_to_1000() {
    const MS: u64 = 1_000_000;
    let set = |request: &XenRequest| planned(request, &[pool("Pool-0", "credit")]);
    // The ratelimit gives way where Xen would refuse the slice for it.
    assert_eq!(set(&slice(MS)), Ok(credit(1, 1000)));
    assert_eq!(set(&slice(5 * MS)), Ok(credit(5, 5000)));
    assert_eq!(set(&slice(1000 * MS)), Ok(credit(1000, 5000)));
    assert_eq!(set(&ratelimit(slice(MS), 100_000)), Ok(credit(1, 100)));
    assert_eq!(set(&ratelimit(slice(MS), 0)), Ok(credit(1, 0)));
    assert_eq!(set(&ratelimit(XenRequest::default(), 500_000)), Ok(credit(30, 500)));
    for (request, reason) in [
        (XenRequest::default(), "nothing to set"),
        (slice(100_000), "credit's least slice is 1 ms, and 100 us was asked for"),
        (slice(999_999), "--ratelimit 100us"),
        (slice(1_500_000), "give for instance --slice 2ms"),
        (slice(1001 * MS), "give for instance --slice 1000ms"),
        (ratelimit(slice(MS), 99_000), "within 100us and 500ms"),
        (ratelimit(slice(MS), 100_500), "within 100us and 500ms"),
        (ratelimit(slice(1000 * MS), 501 * MS), "within 100us and 500ms"),
        (ratelimit(slice(MS), 1_001_000), "cannot be above the slice: 1001 us, and the slice would be 1 ms"),
        (XenRequest { pool: Some("fast".to_owned()), ..slice(MS) }, "there is no cpupool fast; there is: Pool-0"),
    ] {
        let refusal = set(&request).unwrap_err();
        assert!(refusal.contains(reason), "{request:?}: {refusal}");
    }
}

#[test]
fn credit2_has_a_ratelimit_and_no_slice() {
    let pools = [pool("fast", "credit2")];
    let set = XenTimes { slice_ms: None, ratelimit_us: 100 };
    assert_eq!(planned(&ratelimit(XenRequest::default(), 100_000), &pools), Ok(set));
    let refusal = planned(&slice(1_000_000), &pools).unwrap_err();
    assert!(refusal.contains("credit2, which has no slice") && refusal.contains("sched=credit"), "{refusal}");
}

#[test]
fn what_is_not_known_is_not_touched() {
    for name in ["rtds", "null", "arinc653", "brand-new"] {
        let refusal = planned(&slice(1_000_000), &[pool("Pool-0", name)]).unwrap_err();
        assert!(refusal.contains(&format!("`{name}`")) && refusal.contains("sets nothing"), "{refusal}");
    }
    let refusal = planned(&slice(1_000_000), &[pool("dumb", "credit")]).unwrap_err();
    assert!(refusal.contains("could not be put back"), "{refusal}");
    let two = [pool("Pool-0", "credit"), pool("fast", "credit2")];
    let refusal = planned(&slice(1_000_000), &two).unwrap_err();
    assert!(refusal.contains("2 cpupools (Pool-0, fast)") && refusal.contains("--pool"), "{refusal}");
    let named = XenRequest { pool: Some("Pool-0".to_owned()), ..slice(1_000_000) };
    assert_eq!(planned(&named, &two), Ok(credit(1, 1000)));
}

#[test]
fn no_program_is_started_that_others_could_have_written() {
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
