//! Polling in the idle loop, in guests: this very test binary is what runs in them, with its ignored tests.
//!
//! On this machine the kernel may refuse such programs (the unit tests look at the refusal); a guest with Debian's
//! kernel does not. Nothing looks at a duration: guests are emulated.

use gleaner_act::{IdlePoll, IdlePollParams, IdlePollRefusal, Journal, Retainer};
use gleaner_model::{CpuSet, Nanos, RetainCounters, VcpuId};
use rustix::thread::{CpuSet as Affinity, sched_setaffinity};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// What a child of these tests is to do.
const ROLE: &str = "IDLE_POLL_ROLE";
/// How often children are to be killed. Each kill makes the guest's kernel patch itself, which QEMU 7.2 does not always
/// survive (testbed/guest.sh): 100 kills passed on 6.1, and broke four of four guests on 7.3.
const KILLS: &str = "IDLE_POLL_KILLS";

fn kills(default: u32) -> u32 {
    env::var(KILLS).map_or(default, |kills| kills.parse().unwrap())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Boots a guest of two vCPUs and runs the ignored tests of this binary in it.
fn in_a_guest(series: &str, kills: u32) {
    let fetched = Command::new(root().join("testbed/fetch-kernel.sh")).arg(series).output().unwrap();
    let errors = String::from_utf8_lossy(&fetched.stderr);
    assert!(fetched.status.success(), "no kernel {series}:\n{errors}");
    let line = String::from_utf8(fetched.stdout).unwrap();
    let Some((_, kernel)) = line.trim_end().split_once(' ') else {
        gleaner_testing::skip!("needs Linux {series} for a guest: {errors}");
    };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let run = "idle-poll-tests inside --ignored --test-threads=1 --nocapture || exit 1\n! dmesg | grep -E 'WARNING: CPU|BUG:'\n";
    fs::write(&script, format!("#!/bin/sh\nexport {KILLS}={kills}\n{run}")).unwrap();
    let binary = format!("{}:/bin/idle-poll-tests", env::current_exe().unwrap().display());
    let booted = Command::new(root().join("testbed/guest.sh"))
        .args(["--timeout", &(360 + 12 * kills).to_string(), "--file", &binary, kernel])
        .arg(script)
        .arg("2")
        // Boots again fit into what a test may take.
        .env("STILL", "30")
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8_lossy(&booted.stdout), String::from_utf8_lossy(&booted.stderr));
    assert!(booted.status.success(), "{}\n{text}\n{errors}", booted.status);
    // Whether it was booted more than once.
    eprint!("{errors}");
    assert!(text.contains("6 passed"), "not all tests ran in the guest:\n{text}");
}

#[test]
fn guest_polls_on_linux_6_1() {
    in_a_guest("6.1", kills(4));
}

#[test]
fn guest_polls_on_the_newest_kernel() {
    in_a_guest("newest", kills(3));
}

fn open(params: &IdlePollParams) -> IdlePoll {
    IdlePoll::open(Path::new("/sys"), &CpuSet::first(2), params).unwrap()
}

fn set(poll: &mut IdlePoll, timeout: Option<Nanos>) {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), "test").unwrap();
    for vcpu in CpuSet::first(2).iter() {
        poll.set(vcpu, timeout, &mut journal).unwrap();
    }
    let lines = fs::read_to_string(journal.path()).unwrap().lines().count();
    assert_eq!(lines, 1, "there is nothing to journal");
}

/// Two threads, each on a vCPU of its own, hand something to and fro so many times.
fn hand_over(times: u32) {
    let pin = |cpu| {
        let mut only = Affinity::new();
        only.set(cpu);
        sched_setaffinity(None, &only).unwrap();
    };
    let ((there, here), (back, again)) = (mpsc::channel::<u32>(), mpsc::channel());
    let partner = thread::spawn(move || {
        pin(1);
        for turn in here {
            back.send(turn).unwrap();
        }
    });
    thread::spawn(move || {
        pin(0);
        for turn in 0..times {
            there.send(turn).unwrap();
            again.recv().unwrap();
        }
    })
    .join()
    .unwrap();
    partner.join().unwrap();
}

/// Hands over until `enough`: on a busy machine polls are missed, and vCPUs pause.
fn hand_over_until(poll: &IdlePoll, enough: impl Fn(&[RetainCounters]) -> bool) {
    let began = Instant::now();
    while !enough(&poll.counters()) {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {:?}", poll.counters());
        poll.beat();
        hand_over(100);
    }
}

/// The counters once they have not moved for a fifth of a second.
fn when_it_stood_still(poll: &IdlePoll) -> Vec<RetainCounters> {
    let began = Instant::now();
    loop {
        let before = poll.counters();
        thread::sleep(Duration::from_millis(200));
        if poll.counters() == before {
            return before;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it polls for ever: {before:?}");
    }
}

/// Without a guard: what it does is the subject of one test, and of no other.
fn unguarded() -> IdlePollParams {
    IdlePollParams { steal_share_stop: 2.0, ..IdlePollParams::default() }
}

fn sum(poll: &IdlePoll, of: impl Fn(&RetainCounters) -> u64) -> u64 {
    poll.counters().iter().map(of).sum()
}

#[test]
#[ignore = "runs in a guest"]
fn inside_it_polls_where_it_is_told_to() {
    let mut poll = open(&unguarded());
    assert_eq!(poll.detail(), "idle-poll", "the flag is learnt");
    assert!(poll.fallbacks().is_empty(), "{:?}", poll.fallbacks());
    hand_over(200);
    assert_eq!(sum(&poll, |counters| counters.polled.0), 0, "nobody asked for it");
    set(&mut poll, Some(Nanos::from_micros(500)));
    let polls = |counters: &RetainCounters| counters.polled > Nanos::ZERO && counters.polls_held > 0;
    hand_over_until(&poll, |counters| counters.iter().all(polls));
    let counters = poll.counters();
    assert_eq!(counters.iter().map(|counters| counters.vcpu).collect::<Vec<_>>(), [Some(VcpuId(0)), Some(VcpuId(1))]);
    set(&mut poll, None);
    // A poll that had begun goes on to its time-out, and its vCPU may be away meanwhile.
    let before = when_it_stood_still(&poll);
    hand_over(200);
    assert_eq!(poll.counters(), before, "it was told to stop");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_nothing_polls_for_an_owner_that_hangs() {
    let mut poll = open(&unguarded());
    set(&mut poll, Some(Nanos::from_micros(500)));
    hand_over_until(&poll, |counters| counters.iter().all(|counters| counters.polled > Nanos::ZERO));
    thread::sleep(Duration::from_millis(2_100));
    let before = when_it_stood_still(&poll);
    hand_over(500);
    assert_eq!(poll.counters(), before, "the owner has not beaten for two seconds");
    // The owner is back.
    hand_over_until(&poll, |counters| counters.iter().zip(&before).all(|(now, then)| now != then));
}

/// Where every look is late, all time is stolen.
#[test]
#[ignore = "runs in a guest"]
fn inside_the_guard_stops_polling_by_itself() {
    let params = IdlePollParams {
        stolen_gap: Nanos(1),
        steal_span: Nanos::from_millis(2),
        hold_off_min: Nanos::from_secs(3_600),
        hold_off_max: Nanos::from_secs(3_600),
        ..IdlePollParams::default()
    };
    let mut poll = open(&params);
    set(&mut poll, Some(Nanos::from_millis(5)));
    hand_over_until(&poll, |counters| counters.iter().all(|counters| counters.guard_trips > 0));
    let counters = poll.counters();
    assert!(counters.iter().all(|counters| counters.guard_trips == 1 && counters.stolen > Nanos::ZERO), "{counters:?}");
    poll.beat();
    hand_over(500);
    assert_eq!(poll.counters(), counters, "it stays stopped");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_a_vcpu_that_was_away_polls_again() {
    let mut poll = open(&unguarded());
    set(&mut poll, Some(Nanos::from_micros(500)));
    let online = |state: &str| fs::write("/sys/devices/system/cpu/cpu1/online", state).unwrap();
    for _ in 0..5 {
        poll.beat();
        online("0");
        poll.beat();
        online("1");
    }
    let before = poll.counters()[1];
    hand_over_until(&poll, |counters| counters[1] != before);
}

/// A child that plays another role of this binary.
fn child(role: &str, uid: u32) -> Child {
    let test = "inside_what_children_do";
    Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env(ROLE, role)
        .uid(uid)
        .spawn()
        .unwrap()
}

/// Our programs in the kernel.
fn programs() -> usize {
    let ours = |name: &str| ["on_idle_enter", "on_idle_exit", "on_interrupt"].contains(&name);
    libbpf_rs::query::ProgInfoIter::default().filter(|info| info.name.to_str().is_some_and(ours)).count()
}

#[test]
#[ignore = "runs in a guest"]
fn inside_nothing_is_left_of_whoever_was_killed() {
    let mut opens_in = Duration::ZERO;
    let kills = kills(10);
    for kill in 0..kills {
        let began = Instant::now();
        let mut opener = child("open", 0);
        if kill == 0 {
            while programs() < 3 {
                assert!(began.elapsed() < Duration::from_secs(60), "it does not get as far as to poll");
                thread::sleep(Duration::from_millis(5));
            }
            opens_in = began.elapsed();
        }
        // From the first moments of loading to half as long again as it takes.
        thread::sleep(opens_in * kill * 3 / (2 * kills));
        opener.kill().unwrap();
        opener.wait().unwrap();
        let patience = Instant::now();
        while programs() > 0 {
            assert!(patience.elapsed() < Duration::from_secs(60), "{} programs are left after kill {kill}", programs());
            thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(child("nobody", 65_534).wait().unwrap().success());
}

/// Not a test of its own: without a role it has nothing to do.
#[test]
#[ignore = "runs in a guest"]
fn inside_what_children_do() {
    match env::var(ROLE).as_deref() {
        Ok("open") => {
            let mut poll = open(&IdlePollParams::default());
            set(&mut poll, Some(Nanos::from_millis(1)));
            loop {
                poll.beat();
                thread::sleep(Duration::from_millis(100));
            }
        }
        Ok("nobody") => {
            let refused = IdlePoll::open(Path::new("/sys"), &CpuSet::first(2), &IdlePollParams::default()).unwrap_err();
            assert!(matches!(refused, IdlePollRefusal::Bpf(_)) && refused.to_string().contains("as root"), "{refused}");
        }
        _ => {}
    }
}
