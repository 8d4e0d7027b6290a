//! With an `xl` of our own that keeps what it is told in a file and refuses what the real one refuses, in its words.

use super::*;
use crate::{UndoOutcome, undo_journal, undo_own};
use gleaner_model::{Nanos, XenPool, XenScheduler};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

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
"sched-credit -s -p "*) echo "unknown cpupool '$4'" >&2; exit 1 ;;
*) echo "web is an invalid domain identifier (rc=-6)" >&2; exit 1 ;;
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

fn credit(slice_ms: u32, ratelimit_us: u32) -> XenSetting {
    XenSetting::Credit { pool: "Pool-0".to_owned(), slice_ms, ratelimit_us }
}

fn one_ms() -> XenChange {
    XenChange { was: credit(30, 1000), set: credit(1, 1000) }
}

#[test]
fn a_slice_is_set_read_back_and_put_back() {
    let host = Host::new();
    let mut journal = host.journal("own");
    change_xen(&host.xl(), &one_ms(), &mut journal).unwrap();
    assert_eq!(host.now(), "tslice=1ms ratelimit=1000us");
    assert_eq!(undo_own(&journal).unwrap(), UndoOutcome::Undone { entries: 1 });
    assert_eq!(host.now(), "tslice=30ms ratelimit=1000us");
    let commands = fs::read_to_string(host.path("state.log")).unwrap();
    assert_eq!(
        commands.lines().collect::<Vec<_>>(),
        [
            "sched-credit -s -p Pool-0 -t 1 -r 1000",
            "sched-credit -s -p Pool-0",
            "sched-credit -s -p Pool-0",
            "sched-credit -s -p Pool-0 -t 30 -r 1000",
        ]
    );
}

#[test]
fn undoing_twice_or_nothing_does_no_harm() {
    let host = Host::new();
    undo_xen(&host.path("xl"), &credit(30, 1000), &credit(1, 1000)).unwrap();
    assert_eq!(host.now(), "tslice=30ms ratelimit=1000us");
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
    let mut journal = host.journal("own");
    let error = change_xen(&host.xl(), &one_ms(), &mut journal).unwrap_err().to_string();
    assert!(error.contains("slice 1 ms, ratelimit 1000 us for cpupool Pool-0"), "{error}");
    assert!(error.contains("tslice=30ms"), "{error}");
}

fn set_by_another(own: &Journal, set: &XenSetting) -> Option<i32> {
    own.made_by_another(|other: &XenSet| other.set.target() == set.target())
}

#[test]
fn two_runs_do_not_set_the_same_cpupool() {
    let host = Host::new();
    let (mut first, mut second) = (host.journal("first"), host.journal("second"));
    change_xen(&host.xl(), &one_ms(), &mut first).unwrap();
    let again = XenChange { was: credit(1, 1000), set: credit(2, 1000) };
    let error = change_xen(&host.xl(), &again, &mut second).unwrap_err().to_string();
    assert!(error.contains("another run of Gleaner"), "{error}");
    assert_eq!(host.now(), "tslice=1ms ratelimit=1000us");
    let other = XenSetting::Credit2 { pool: "Pool-1".to_owned(), ratelimit_us: 100 };
    assert_eq!(set_by_another(&second, &other), None);
    // The journal of a run that is over says nothing any more.
    undo_journal(first.path(), true).unwrap();
    assert_eq!(set_by_another(&second, &credit(2, 1000)), None);
}

#[test]
fn a_domain_or_cpupool_that_is_gone_needs_no_undoing() {
    let host = Host::new();
    let gone = |ratelimit_us| XenSetting::Credit { pool: "gone".to_owned(), slice_ms: 1, ratelimit_us };
    undo_xen(&host.path("xl"), &gone(1000), &gone(500)).unwrap();
    let ended = |budget_us| XenSetting::Rtds { domain: 7, vcpu: 0, period_us: 10_000, budget_us, extratime: true };
    undo_xen(&host.path("xl"), &ended(4000), &ended(100)).unwrap();
    // But an `xl` that cannot be run is told: the change may still be there.
    undo_xen(&host.path("nothing"), &credit(30, 1000), &credit(1, 1000)).unwrap_err();
}

#[test]
fn what_xl_shows_is_compared_word_by_word() {
    let line = "Cpupool Pool-0: tslice=10ms ratelimit=1000us migration-delay=0us\n";
    assert!(shows(line, &credit(10, 1000)));
    for other in [credit(1, 1000), credit(10, 100), credit(10, 10_000)] {
        assert!(!shows(line, &other), "{other}");
    }
    let rtds =
        |vcpu, period_us, budget_us, extratime| XenSetting::Rtds { domain: 2, vcpu, period_us, budget_us, extratime };
    let table = "Name                                ID VCPU    Period    Budget  Extratime\n\
                 my web server                        2    1       250       100        yes\n";
    assert!(shows(table, &rtds(1, 250, 100, true)));
    for other in [rtds(0, 250, 100, true), rtds(1, 50, 100, true), rtds(1, 250, 100, false)] {
        assert!(!shows(table, &other), "{other}");
    }
}

#[test]
fn commands_are_those_of_xl() {
    let line = |setting: &XenSetting| (set_words(setting).join(" "), read_words(setting).join(" "));
    let credit2 = XenSetting::Credit2 { pool: "fast".to_owned(), ratelimit_us: 0 };
    assert_eq!(line(&credit2), ("sched-credit2 -s -p fast -r 0".to_owned(), "sched-credit2 -s -p fast".to_owned()));
    let rtds = XenSetting::Rtds { domain: 3, vcpu: 1, period_us: 250, budget_us: 100, extratime: false };
    let expected = ("sched-rtds -d 3 -v 1 -p 250 -b 100 -e 0".to_owned(), "sched-rtds -d 3 -v 1".to_owned());
    assert_eq!(line(&rtds), expected);
}

// --- plans -----------------------------------------------------------------------------------------------------------

fn pool(scheduler: XenScheduler, settings: Vec<XenSetting>) -> XenPool {
    XenPool { name: "Pool-0".to_owned(), scheduler, pcpus: 4, settings }
}

fn slice(ns: u64) -> XenRequest {
    XenRequest { slice: Some(Nanos(ns)), ..XenRequest::default() }
}

fn ratelimit(request: XenRequest, ns: u64) -> XenRequest {
    XenRequest { ratelimit: Some(Nanos(ns)), ..request }
}

/// What is set where credit has a slice of 30 ms and a ratelimit of 5 ms; or why nothing is.
fn under_credit(request: &XenRequest) -> Result<Option<XenSetting>, String> {
    let pools = [pool(XenScheduler::Credit, vec![credit(30, 5000)])];
    let changes = plan_xen(request, &pools).map_err(|refusal| refusal.to_string())?;
    assert!(changes.len() <= 1 && changes.iter().all(|change| change.was == credit(30, 5000)));
    Ok(changes.into_iter().next().map(|change| change.set))
}

#[test]
fn credit_takes_whole_milliseconds_from_1_to_1000() {
    const MS: u64 = 1_000_000;
    // The ratelimit gives way where Xen would refuse the slice for it.
    assert_eq!(under_credit(&slice(MS)), Ok(Some(credit(1, 1000))));
    assert_eq!(under_credit(&slice(5 * MS)), Ok(Some(credit(5, 5000))));
    assert_eq!(under_credit(&slice(1000 * MS)), Ok(Some(credit(1000, 5000))));
    assert_eq!(under_credit(&slice(30 * MS)), Ok(None));
    assert_eq!(under_credit(&ratelimit(slice(MS), 100_000)), Ok(Some(credit(1, 100))));
    assert_eq!(under_credit(&ratelimit(slice(MS), 0)), Ok(Some(credit(1, 0))));
    assert_eq!(under_credit(&ratelimit(XenRequest::default(), 500_000)), Ok(Some(credit(30, 500))));
    for (request, reason) in [
        (XenRequest::default(), "nothing to set"),
        (slice(100_000), "credit's least slice is 1 ms, and 100 us was asked for"),
        (slice(999_999), "--ratelimit 100us"),
        (slice(100_000), "sched=rtds"),
        (slice(1_500_000), "give for instance --slice 2ms"),
        (slice(1001 * MS), "give for instance --slice 1000ms"),
        (ratelimit(slice(MS), 99_000), "within 100us and 500ms"),
        (ratelimit(slice(MS), 100_500), "within 100us and 500ms"),
        (ratelimit(slice(1000 * MS), 501 * MS), "within 100us and 500ms"),
        (ratelimit(slice(MS), 1_001_000), "cannot be above the slice: 1001 us, and the slice would be 1 ms"),
        (XenRequest { domains: vec![2], ..slice(MS) }, "credit has one setting for the whole cpupool Pool-0"),
        (XenRequest { pool: Some("fast".to_owned()), ..slice(MS) }, "there is no cpupool fast; there is: Pool-0"),
    ] {
        let refusal = under_credit(&request).unwrap_err();
        assert!(refusal.contains(reason), "{request:?}: {refusal}");
    }
}

#[test]
fn credit2_has_a_ratelimit_and_no_slice() {
    let was = XenSetting::Credit2 { pool: "Pool-0".to_owned(), ratelimit_us: 1000 };
    let pools = [pool(XenScheduler::Credit2, vec![was.clone()])];
    let set = XenSetting::Credit2 { pool: "Pool-0".to_owned(), ratelimit_us: 100 };
    let request = ratelimit(XenRequest::default(), 100_000);
    assert_eq!(plan_xen(&request, &pools), Ok(vec![XenChange { was, set }]));
    let refusal = plan_xen(&slice(1_000_000), &pools).unwrap_err().to_string();
    assert!(refusal.contains("credit2, which has no slice") && refusal.contains("sched=credit"), "{refusal}");
}

#[test]
fn rtds_keeps_each_vcpus_share() {
    let vcpu = |domain, vcpu, period_us, budget_us, extratime| XenSetting::Rtds {
        domain,
        vcpu,
        period_us,
        budget_us,
        extratime,
    };
    let settings = vec![vcpu(0, 0, 10_000, 4000, true), vcpu(1, 0, 10_000, 4000, false), vcpu(1, 1, 3000, 3000, true)];
    let pools = [pool(XenScheduler::Rtds, settings)];
    let set = |request: &XenRequest| {
        let changes = plan_xen(request, &pools).map_err(|refusal| refusal.to_string())?;
        Ok::<_, String>(changes.into_iter().map(|change| change.set).collect::<Vec<_>>())
    };
    assert_eq!(
        set(&slice(100_000)).unwrap(),
        [vcpu(0, 0, 250, 100, true), vcpu(1, 0, 250, 100, false), vcpu(1, 1, 100, 100, true)]
    );
    let one = XenRequest { domains: vec![1], ..slice(10_000) };
    assert_eq!(set(&one).unwrap(), [vcpu(1, 0, 25, 10, false), vcpu(1, 1, 10, 10, true)]);
    // What is as asked for already is not set.
    assert_eq!(set(&XenRequest { domains: vec![0], ..slice(4_000_000) }).unwrap(), []);
    for (request, reason) in [
        (slice(9000), "10 us at least"),
        (slice(10_500), "whole microseconds"),
        (slice(2_000_000_000), "1 s at most"),
        (ratelimit(slice(100_000), 100_000), "RTDS has no ratelimit"),
        (XenRequest { domains: vec![9], ..slice(100_000) }, "none of the domains is in cpupool Pool-0"),
    ] {
        let refusal = set(&request).unwrap_err();
        assert!(refusal.contains(reason), "{request:?}: {refusal}");
    }
}

#[test]
fn what_is_not_known_is_not_touched() {
    for name in ["null", "arinc653", "brand-new"] {
        let refusal =
            plan_xen(&slice(1_000_000), &[pool(XenScheduler::from(name), Vec::new())]).unwrap_err().to_string();
        assert!(refusal.contains(&format!("`{name}`")) && refusal.contains("knows no slice"), "{refusal}");
    }
    let unreadable = [pool(XenScheduler::Credit, Vec::new())];
    let refusal = plan_xen(&slice(1_000_000), &unreadable).unwrap_err().to_string();
    assert!(refusal.contains("could not be put back"), "{refusal}");
    let two = [
        pool(XenScheduler::Credit, vec![credit(30, 1000)]),
        XenPool { name: "fast".to_owned(), scheduler: XenScheduler::Rtds, pcpus: 2, settings: Vec::new() },
    ];
    let refusal = plan_xen(&slice(1_000_000), &two).unwrap_err().to_string();
    assert!(refusal.contains("2 cpupools (Pool-0, fast)") && refusal.contains("--pool"), "{refusal}");
    let named = XenRequest { pool: Some("Pool-0".to_owned()), ..slice(1_000_000) };
    assert_eq!(plan_xen(&named, &two).unwrap().len(), 1);
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
