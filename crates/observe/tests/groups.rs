//! Several groups seen by one set of BPF programs.
//!
//! Whether counts are right is asked of the programs themselves, which know what they did, and of `/proc`.

mod support;

use gleaner_model::{Nanos, Window};
use gleaner_observe::{BpfObserver, Observer, ObserverChoice, ObserverConfig};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{Player, alone, bpf_expected, play};

const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[test]
fn player() {
    play();
}

/// One for groups that run already.
fn observer(groups_max: usize) -> BpfObserver {
    let mut observer = BpfObserver::new(&ObserverConfig { groups_max, ..ObserverConfig::default() }).unwrap();
    observer.remove_group(0);
    observer.start(&[]);
    observer
}

fn windows<const N: usize>(observer: &mut BpfObserver) -> [Window; N] {
    observer.windows(&[]).unwrap().try_into().unwrap()
}

/// Lets a ping-pong of so many rounds play to its end; how many of its reads had to wait.
fn played(player: &mut Player) -> u64 {
    player.go();
    player.wait_done().parse().unwrap()
}

fn ping_pong(rounds: u32) -> Player {
    Player::start(&format!("pingpong:{rounds}:100"))
}

/// Starting and ending threads are some switches more than those that the players counted while they played.
fn assert_played(window: &Window, waited: u64) {
    let switches = window.group.voluntary_switches;
    assert!((waited..waited + waited / 10 + 50).contains(&switches), "{switches} switches, {waited} waits");
    let granularity = window.group.g_comp.as_ref().unwrap();
    assert_eq!(granularity.count(), switches);
    let by_vcpu = |count: fn(&gleaner_model::VcpuWindow) -> u64| window.vcpus.iter().map(count).sum::<u64>();
    let all = switches + window.group.involuntary_switches;
    assert_eq!(by_vcpu(|vcpu| vcpu.work_switches.unwrap()), all);
    let work: Nanos = window.vcpus.iter().map(|vcpu| vcpu.work.unwrap()).sum();
    assert_eq!(work, window.group.cpu_time);
}

#[test]
fn two_groups_at_once_have_their_own_counts_and_proc_says_the_same() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let mut players = [ping_pong(400), ping_pong(1600)];
    let mut bpf = observer(2);
    let mut procfs = Observer::new(ObserverChoice::Procfs, &ObserverConfig::default()).unwrap().0;
    procfs.remove_group(0);
    for player in &players {
        assert!(bpf.add_group(&[player.pid()], None) && procfs.add_group(&[player.pid()], None));
    }
    assert!(!bpf.add_group(&[players[0].pid()], None), "there is room for two");
    bpf.start(&[]);
    procfs.start(&[]).unwrap();
    // Both at once: the second is by far the longer.
    players.iter_mut().for_each(Player::go);
    let waited = players.each_mut().map(|player| player.wait_done().parse().unwrap());
    let seen = windows::<2>(&mut bpf);
    let told = procfs.windows(&[]).unwrap();
    for ((seen, told), waited) in seen.iter().zip(&told).zip(waited) {
        assert_played(seen, waited);
        assert_eq!(seen.group.threads, told.group.threads);
        let (by_bpf, by_proc) = (seen.group.cpu_time.as_f64(), told.group.cpu_time.as_f64());
        assert!((by_bpf / by_proc - 1.0).abs() < 0.05, "CPU time: {by_bpf} and {by_proc}");
        let (by_bpf, by_proc) = (seen.group.voluntary_switches, told.group.voluntary_switches);
        assert!(by_bpf.abs_diff(by_proc) <= by_proc / 50 + 20, "switches: {by_bpf} and {by_proc}");
    }
    assert_eq!(bpf.processes(1), [players[1].pid()]);
    assert_eq!((seen[0].length, &seen[0].vcpus[0].l_idle), (seen[1].length, &seen[1].vcpus[0].l_idle));
    players.into_iter().for_each(Player::finish);
}

#[test]
fn a_slot_is_used_again_and_nothing_of_the_one_before_is_counted() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let mut observer = observer(1);
    let (mut first, mut second) = (ping_pong(1000), ping_pong(300));
    assert!(observer.add_group(&[first.pid()], None));
    observer.start(&[]);
    let waited = played(&mut first);
    assert_played(&windows::<1>(&mut observer)[0], waited);
    // It lives on, and is nobody's.
    observer.remove_group(0);
    assert!(observer.windows(&[]).unwrap().is_empty() && observer.threads().is_empty());
    assert!(observer.add_group(&[second.pid()], None), "there is room again");
    let [window] = windows(&mut observer);
    assert_eq!(window.group.new_threads, 0);
    assert!(window.group.voluntary_switches < 50, "{window:?}");
    let waited = played(&mut second);
    assert_played(&windows::<1>(&mut observer)[0], waited);
    [first, second].into_iter().for_each(Player::finish);
}

#[test]
fn what_computes_without_a_pause_counts_from_the_moment_it_is_added() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let mut observer = observer(1);
    let mut hog = Player::shell("i=0; while :; do i=$((i+1)); done");
    hog.go();
    std::thread::sleep(Duration::from_millis(50));
    assert!(observer.add_group(&[hog.pid()], None));
    windows::<1>(&mut observer);
    std::thread::sleep(Duration::from_millis(300));
    let [window] = windows(&mut observer);
    // Neighbours may take most of a vCPU, and stolen time is not its.
    assert!(window.group.cpu_time > Nanos::from_millis(30), "{}", window.group.cpu_time);
    // The kernel charges who runs at its ticks, 10 ms apart at most.
    let most = window.length + Nanos::from_millis(10);
    assert!(window.group.cpu_time <= most, "{} of {}", window.group.cpu_time, window.length);
    hog.kill();
    let [window] = windows(&mut observer);
    assert_eq!((window.group.threads, observer.threads()), (0, Vec::new()));
}

/// A cgroup in the unified hierarchy, removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Option<Self> {
        let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let top = tops.into_iter().find(|top| top.join("cgroup.controllers").exists())?;
        let folder = top.join(format!("groups-test-{name}-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        Some(Self(folder))
    }

    fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let end = Instant::now() + LONGEST_WAIT;
        while fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Windows until one has so many threads.
#[track_caller]
fn until_threads(observer: &mut BpfObserver, threads: u64) {
    let end = Instant::now() + LONGEST_WAIT;
    loop {
        let [window] = windows(observer);
        if window.group.threads == threads {
            return;
        }
        assert!(Instant::now() < end, "{} threads instead of {threads}", window.group.threads);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_cgroup_is_who_is_in_it_at_the_moment() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let Some((inner, top)) = Cgroup::new("a").and_then(|top| {
        let inner = Cgroup(top.0.join("inner"));
        fs::create_dir(&inner.0).ok()?;
        Some((inner, top))
    }) else {
        gleaner_testing::skip!("needs a unified cgroup hierarchy to make a cgroup in");
    };
    let home = top.0.parent().unwrap().join("cgroup.procs");
    let mut observer = observer(2);
    let before = Player::shell("sleep 0");
    fs::write(top.procs(), before.pid().to_string()).unwrap();
    assert!(observer.add_group(&[], Some(&top.0)));
    until_threads(&mut observer, 1);
    // A shell goes there by itself and starts others, one level below: nobody tells the observer.
    let script = format!("echo $$ > {}; sleep 600 & sleep 600", inner.procs().display());
    let mut shell = Player::shell(&script);
    shell.go();
    until_threads(&mut observer, 4);
    // Of a process of several threads the kernel shows the first one only.
    let sleepers = Player::start("sleepers:5");
    fs::write(inner.procs(), sleepers.pid().to_string()).unwrap();
    let mut many = sleepers;
    many.go();
    many.wait_done();
    let threads = fs::read_dir(format!("/proc/{}/task", many.pid())).unwrap().count() as u64;
    until_threads(&mut observer, 4 + threads);
    fs::write(&home, many.pid().to_string()).unwrap();
    until_threads(&mut observer, 4);
    many.finish();
    // And who leaves is nobody's.
    fs::write(&home, before.pid().to_string()).unwrap();
    until_threads(&mut observer, 3);
    before.finish();
    for pid in fs::read_to_string(inner.procs()).unwrap().lines().filter(|pid| *pid != shell.pid().to_string()) {
        // SAFETY: a signal to a process that this test started.
        unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
    }
    shell.kill();
    until_threads(&mut observer, 0);
    assert!(observer.threads().is_empty());
}

#[test]
fn those_of_another_group_stay_there_and_the_owner_is_nobodys() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let player = Player::start("sleepers:3");
    let mut observer = observer(2);
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(observer.add_group(&[player.pid()], None) && observer.add_group(&[player.pid(), own], None));
    let [first, second] = windows(&mut observer);
    assert!(first.group.threads > 0);
    assert_eq!(second.group.threads, 0);
    player.finish();
}
