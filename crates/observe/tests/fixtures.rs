//! The `/proc` observer on trees made up for the purpose: every number of a window is known.

use gleaner_model::{CpuSet, Nanos, RetainCounters, VcpuId, Window};
use gleaner_observe::{
    ObserveError, Observer, ObserverChoice, ObserverConfig, ProcRoot, StatReader, capabilities, online_cpus,
};
use gleaner_sys::SysError;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

const OWNER: i32 = 10;
const GUARDIAN: i32 = 20;
const ROOT: i32 = 30;
const CHILD: i32 = 40;

/// A machine of two vCPUs with an owner, a guardian, and a program of one process, `children` files included.
struct Machine {
    dir: TempDir,
    children_files: bool,
}

impl Machine {
    fn new(children_files: bool) -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap(), children_files };
        machine.write("sys/devices/system/cpu/online", "0-1\n");
        machine.stat([[0, 0], [0, 0]], 0, 0);
        machine.thread(OWNER, OWNER, 1, [0, 0, 0, 0]);
        machine.thread(GUARDIAN, GUARDIAN, OWNER, [0, 0, 0, 0]);
        machine.thread(ROOT, ROOT, OWNER, [0, 0, 0, 0]);
        machine.children(OWNER, &[GUARDIAN, ROOT]);
        machine
    }

    fn root(&self) -> ProcRoot {
        ProcRoot::below(self.dir.path())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// `cpus`: idle and steal ticks by vCPU.
    fn stat(&self, cpus: [[u64; 2]; 2], ctxt: u64, processes: u64) {
        let [[i0, s0], [i1, s1]] = cpus;
        let text = format!(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 9 0 9 {i0} 0 0 0 {s0} 0 0\ncpu1 9 0 9 {i1} 0 0 0 {s1} 0 0\n\
             intr 5 0\nctxt {ctxt}\nbtime 1\nprocesses {processes}\nprocs_running 1\n"
        );
        self.write("proc/stat", &text);
    }

    /// `counts`: run time in ns, slices, voluntary and involuntary switches.
    fn thread(&self, pid: i32, tid: i32, parent: i32, counts: [u64; 4]) {
        let [run, slices, voluntary, involuntary] = counts;
        let task = format!("proc/{pid}/task/{tid}");
        let stat = format!("{tid} (a (b) c) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0\n");
        self.write(&format!("{task}/schedstat"), &format!("{run} 5 {slices}\n"));
        self.write(
            &format!("{task}/status"),
            &format!("Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n"),
        );
        self.write(&format!("{task}/stat"), &stat);
        self.write(&format!("proc/{pid}/stat"), &stat);
        if self.children_files && !self.path(&format!("{task}/children")).exists() {
            self.children(tid, &[]);
        }
    }

    fn children(&self, pid: i32, children: &[i32]) {
        if self.children_files {
            let list: Vec<String> = children.iter().map(ToString::to_string).collect();
            self.write(&format!("proc/{pid}/task/{pid}/children"), &list.join(" "));
        }
    }

    fn kill(&self, pid: i32) {
        // An open file of a fixture outlives its name; a real one of /proc answers ESRCH. Emptied, it parses no more.
        for file in ["schedstat", "status"] {
            self.write(&format!("proc/{pid}/task/{pid}/{file}"), "");
        }
        fs::remove_dir_all(self.path(&format!("proc/{pid}"))).unwrap();
    }

    fn observer(&self) -> Observer {
        let config = ObserverConfig {
            root: self.root(),
            owner_pid: OWNER,
            excluded_pids: vec![GUARDIAN],
            ..ObserverConfig::default()
        };
        Observer::new(ObserverChoice::Procfs, &config).unwrap().0
    }
}

/// A window over a little real time, long enough for the ticks the fixtures count.
fn window(observer: &mut Observer, yields: &[RetainCounters]) -> Window {
    sleep(Duration::from_millis(60));
    observer.window(yields).unwrap()
}

fn ticks(n: u64) -> Nanos {
    Nanos(n * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

#[test]
fn a_window_is_the_difference_of_two_moments() {
    let machine = Machine::new(true);
    let mut observer = machine.observer();
    machine.thread(ROOT, ROOT, OWNER, [1_000, 10, 10, 0]);
    observer.start(&[]).unwrap();
    machine.thread(ROOT, ROOT, OWNER, [5_001_000, 40, 35, 5]);
    machine.thread(OWNER, OWNER, 1, [9, 9, 7, 1]);
    machine.stat([[2, 1], [3, 0]], 100, 0);
    let window = window(&mut observer, &[]);
    assert_eq!(window.group.cpu_time, Nanos(5_000_000));
    assert_eq!((window.group.voluntary_switches, window.group.involuntary_switches), (25, 5));
    assert_eq!((window.group.threads, window.group.new_threads), (1, 0));
    // 100 switches; 30 were the group's, 8 the owner's: the others were the idle tasks'.
    assert_eq!((window.halts, window.idle_entries), (Some(62), Some(62)));
    let [first, second] = &window.vcpus[..] else { panic!("{window:?}") };
    assert_eq!((first.halted, first.steal, first.retained), (ticks(2), ticks(1), Nanos::ZERO));
    assert_eq!((second.halted, second.steal), (ticks(3), Nanos::ZERO));
    for vcpu in [first, second] {
        assert_eq!(vcpu.busy + vcpu.halted + vcpu.steal, window.length);
        assert_eq!((vcpu.work, vcpu.idle_entries, &vcpu.l_comp), (None, None, &None));
    }
}

#[test]
fn yielding_threads_turn_idle_exits_into_idle_periods() {
    let machine = Machine::new(true);
    let mut observer = machine.observer();
    let yields = |retained, displaced, idle_naps| {
        let vcpu = Some(VcpuId(1));
        [RetainCounters {
            vcpu,
            tid: 11,
            retained: Nanos::from_millis(retained),
            displaced,
            idle_naps,
            ..Default::default()
        }]
    };
    machine.thread(OWNER, 11, 1, [0, 0, 0, 0]);
    observer.start(&yields(5, 100, 10)).unwrap();
    // 70 switches: the yielding thread was displaced 30 times and slept 4 times, so the idle tasks were left 36 times,
    // 6 times of them by a nap that ended on a vCPU still idle.
    machine.thread(OWNER, 11, 1, [20_000_000, 35, 4, 30]);
    machine.stat([[0, 0], [1, 0]], 70, 0);
    let window = window(&mut observer, &yields(25, 130, 16));
    assert_eq!((window.halts, window.idle_entries), (Some(36), Some(36 - 6 + 30)));
    assert_eq!((window.vcpus[1].retained, window.vcpus[1].halted), (Nanos::from_millis(20), ticks(1)));
    assert_eq!((window.vcpus[0].yield_switches, window.vcpus[1].yield_switches), (None, Some(30)));
}

#[test]
fn the_group_is_the_tree_below_the_owner_without_its_helpers() {
    for children_files in [true, false] {
        let machine = Machine::new(children_files);
        let mut observer = machine.observer();
        observer.start(&[]).unwrap();
        assert_eq!(observer.threads(), [ROOT]);
        machine.thread(ROOT, 31, OWNER, [7, 1, 1, 0]);
        machine.thread(CHILD, CHILD, ROOT, [9, 1, 1, 0]);
        machine.thread(99, 99, 1, [1_000, 1, 1, 0]);
        machine.children(ROOT, &[CHILD]);
        // What forks has run.
        machine.thread(ROOT, ROOT, OWNER, [1, 1, 0, 0]);
        machine.stat([[0, 0], [0, 0]], 50, 3);
        let window = window(&mut observer, &[]);
        assert_eq!(observer.threads(), [ROOT, 31, CHILD]);
        assert_eq!((window.group.threads, window.group.new_threads), (3, 2));
        assert_eq!(window.group.cpu_time, Nanos(17));
        // 50 switches, 2 of the group's, and one thread of somebody's came and, for all we know, went.
        assert_eq!(window.halts, Some(47));
    }
}

/// Nothing tells of it: the kernel's count of processes stands still, and its parent has not run.
#[test]
fn a_process_that_was_missed_is_found_some_windows_later() {
    let machine = Machine::new(true);
    let mut observer = machine.observer();
    observer.start(&[]).unwrap();
    machine.thread(CHILD, CHILD, ROOT, [9, 1, 1, 0]);
    machine.children(ROOT, &[CHILD]);
    let mut threads = (0..40).map(|_| observer.window(&[]).unwrap().group.threads);
    let found_in = threads.position(|threads| threads == 2);
    assert!(found_in.is_some_and(|window| window > 10), "not in each window, and not in none: {found_in:?}");
}

#[test]
fn what_exited_threads_did_stays_counted() {
    let machine = Machine::new(true);
    machine.thread(CHILD, CHILD, ROOT, [100, 10, 10, 0]);
    machine.children(ROOT, &[CHILD]);
    let mut observer = machine.observer();
    observer.start(&[]).unwrap();
    machine.thread(CHILD, CHILD, ROOT, [300, 20, 15, 0]);
    let first = window(&mut observer, &[]);
    assert_eq!((first.group.cpu_time, first.group.voluntary_switches, first.group.threads), (Nanos(200), 5, 2));
    machine.kill(CHILD);
    machine.children(ROOT, &[]);
    machine.stat([[0, 0], [0, 0]], 4, 1);
    let second = window(&mut observer, &[]);
    assert_eq!((second.group.cpu_time, second.group.voluntary_switches, second.group.threads), (Nanos::ZERO, 0, 1));
    // 4 switches, less the last one of the thread that died and one for the process that nobody saw.
    assert_eq!(second.halts, Some(2));
    machine.kill(ROOT);
    machine.children(OWNER, &[GUARDIAN]);
    let third = window(&mut observer, &[]);
    assert_eq!((third.group.threads, third.group.cpu_time), (0, Nanos::ZERO));
    assert_eq!(observer.threads(), Vec::<i32>::new());
}

#[test]
fn vcpus_follow_the_online_list() {
    let machine = Machine::new(true);
    let mut observer = machine.observer();
    observer.start(&[]).unwrap();
    let ids = |window: &Window| window.vcpus.iter().map(|vcpu| vcpu.id.0).collect::<Vec<_>>();
    assert_eq!(ids(&window(&mut observer, &[])), [0, 1]);
    machine.write("sys/devices/system/cpu/online", "0\n");
    assert_eq!(ids(&window(&mut observer, &[])), [0]);
    // One that /proc/stat does not know yet is there, with nothing known of it.
    machine.write("sys/devices/system/cpu/online", "0-2\n");
    let window = window(&mut observer, &[]);
    assert_eq!(ids(&window), [0, 1, 2]);
    assert_eq!(window.vcpus[2].busy, Nanos::ZERO);
}

#[test]
fn the_vcpus_the_group_may_not_use_are_left_out() {
    let machine = Machine::new(true);
    let config = ObserverConfig {
        root: machine.root(),
        owner_pid: OWNER,
        allowed: Some("1".parse::<CpuSet>().unwrap()),
        ..ObserverConfig::default()
    };
    let mut observer = Observer::new(ObserverChoice::Procfs, &config).unwrap().0;
    observer.start(&[]).unwrap();
    let window = window(&mut observer, &[]);
    assert_eq!(window.vcpus.iter().map(|vcpu| vcpu.id).collect::<Vec<_>>(), [VcpuId(1)]);
}

#[test]
fn ticks_never_make_more_than_the_window() {
    let machine = Machine::new(true);
    let mut observer = machine.observer();
    observer.start(&[]).unwrap();
    machine.stat([[9_000, 9_000], [0, 9_000]], 0, 0);
    let window = window(&mut observer, &[]);
    for vcpu in &window.vcpus {
        assert_eq!(vcpu.busy + vcpu.retained + vcpu.halted + vcpu.steal, window.length);
    }
    assert_eq!(window.halts, Some(0));
}

#[test]
fn broken_files_are_named() {
    let machine = Machine::new(true);
    machine.write("sys/devices/system/cpu/online", "zero\n");
    let error = online_cpus(&machine.root()).unwrap_err();
    assert!(matches!(&error, ObserveError::Sys(SysError::Parse { line: 1, .. })));
    assert!(error.to_string().contains("sys/devices/system/cpu/online:1: 'zero'"), "{error}");
    machine.write("proc/stat", "cpu 1 2 3\nctxt none\n");
    let error = StatReader::open(&machine.root()).unwrap().read().unwrap_err();
    assert!(error.to_string().contains("proc/stat:2: no count"), "{error}");
    fs::remove_file(machine.path("proc/stat")).unwrap();
    let error = StatReader::open(&machine.root()).unwrap_err();
    assert!(error.to_string().starts_with("cannot read"), "{error}");
}

#[test]
fn without_an_online_list_the_stat_file_tells() {
    let machine = Machine::new(true);
    fs::remove_file(machine.path("sys/devices/system/cpu/online")).unwrap();
    assert_eq!(online_cpus(&machine.root()).unwrap().to_string(), "0-1");
}

#[test]
fn capabilities_say_what_is_missing() {
    let machine = Machine::new(true);
    let capabilities = capabilities(&machine.root());
    let refusal = capabilities.bpf.unwrap_err().to_string();
    assert!(refusal.contains("btf/vmlinux") && refusal.contains("CONFIG_DEBUG_INFO_BTF"), "{refusal}");
    assert!(capabilities.procfs.is_ok() && !capabilities.children_files);
}
