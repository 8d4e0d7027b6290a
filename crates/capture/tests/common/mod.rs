//! Policies that are told windows of any content while a recorder notes it.

#![allow(dead_code, reason = "each test uses a part")]

use gleaner_capture::{Damage, GroupOutcome, Machine, Reader, Record, Recorder, Replay, Target};
use gleaner_decide::guest::{GuestParams, GuestPolicy, GuestSetup, Tuning};
use gleaner_model::{
    Burst, CpuSet, Decision, Distribution, GroupWindow, Nanos, Policy, Profile, RetainMeans, Source, Topology, VcpuId,
    VcpuWindow, Window,
};
use std::io::Cursor;
use std::path::Path;

/// Numbers that look random and are always the same.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn any(&mut self, end: u64) -> Option<u64> {
        (!self.one_in(10)).then(|| self.below(end))
    }

    fn lengths(&mut self) -> Option<Distribution> {
        if self.one_in(2) {
            return None;
        }
        let mut lengths = Distribution::new();
        for _ in 0..self.below(40) {
            lengths.record(Nanos(1 << (10 + self.below(12))));
        }
        Some(lengths)
    }
}

pub fn machine() -> Machine {
    Machine {
        gleaner: "0.0.0".to_owned(),
        kernel: "6.1".to_owned(),
        vcpus: CpuSet::first(4),
        began_unix_s: 1_700_000_000,
        session: "1-2".to_owned(),
        ..Machine::default()
    }
}

/// A set-up of any kind.
pub fn setup(dice: &mut Dice) -> GuestSetup {
    let policies = [Policy::Full, Policy::Retain, Policy::Consolidate, Policy::Observe];
    let profiles = [Profile::Frugal, Profile::Balanced, Profile::Latency];
    let params = GuestParams {
        tuning: Tuning { hold_off_min_ms: 200, ..Tuning::default() },
        load_factor: 0.1 + dice.below(9) as f64 / 10.0,
        ..GuestParams::default()
    };
    GuestSetup {
        policy: policies[usize::try_from(dice.below(4)).unwrap()],
        profile: profiles[usize::try_from(dice.below(3)).unwrap()],
        params,
        vcpus: CpuSet::first(4),
        means: [None, Some(RetainMeans::Haltpoll), Some(RetainMeans::Yielding), Some(RetainMeans::IdlePoll)]
            [usize::try_from(dice.below(4)).unwrap()],
        timeout: Some(Nanos::from_micros(300)).filter(|_| dice.one_in(5)),
        budget: Some(0.25).filter(|_| dice.one_in(4)),
        topology: Topology::default(),
    }
}

/// A window of a program that changes now and then; some no guest could produce.
pub fn window(dice: &mut Dice, at: Nanos) -> Window {
    let length = Nanos::from_millis(100);
    let load = [3, 25, 60, 99][usize::try_from(dice.below(40).saturating_sub(36)).unwrap()];
    let mut vcpus = Vec::new();
    for id in 0..4 {
        if dice.one_in(200) {
            continue;
        }
        let busy = Nanos(length.0 * (load + dice.below(3)) / 100);
        let steal = if dice.one_in(15) { Nanos(length.0 / 4) } else { Nanos::ZERO };
        vcpus.push(VcpuWindow {
            busy,
            work: Some(busy).filter(|_| !dice.one_in(10)),
            halted: length - busy - steal,
            steal,
            idle_entries: dice.any(900),
            halts: dice.any(900),
            cross_wakeups: dice.any(900),
            l_idle: dice.lengths(),
            ..VcpuWindow::new(VcpuId(id))
        });
    }
    Window {
        at,
        length,
        source: if dice.one_in(3) { Source::Procfs } else { Source::Bpf },
        vcpus,
        idle_entries: dice.any(3_000),
        halts: None,
        group: GroupWindow {
            threads: 8,
            new_threads: if dice.one_in(80) { 30 } else { 0 },
            execs: Some(u64::from(dice.one_in(100))),
            cpu_time: Nanos(length.0 * 4 * load / 100),
            voluntary_switches: 500 + dice.below(200),
            involuntary_switches: dice.below(20),
            g_comp: dice.lengths(),
            wake_to_run: dice.lengths(),
            progress: dice.any(1_000),
            ..GroupWindow::default()
        },
    }
}

/// What was recorded, as the reader should tell it again.
#[derive(Default)]
pub struct Told {
    pub windows: Vec<(u64, bool, Window, Vec<Decision>)>,
    pub events: u64,
    /// What was decided between windows.
    pub at_once: usize,
}

/// Runs `groups` policies for so many windows, and records them. A new segment wherever the recorder wants one.
pub fn record(target: Target, seed: u64, groups: u64, windows: u64) -> (Told, Option<String>) {
    let dice = &mut Dice(seed);
    let mut told = Told::default();
    let mut recorder = Recorder::start(target, machine()).unwrap();
    let mut running: Vec<(u64, GuestSetup, GuestPolicy)> = Vec::new();
    for id in 1..=groups {
        begin(&mut recorder, &mut running, id, Nanos::ZERO, dice);
    }
    for n in 1..=windows {
        let at = Nanos::from_millis(100 * n);
        if recorder.is_segment_full() {
            recorder.begin_segment();
            for (id, setup, policy) in &running {
                recorder.group_as_it_is(*id, &name(*id), setup, policy);
            }
            recorder.segment_begun();
        }
        let window = window(dice, at);
        for (id, _, policy) in &mut running {
            if dice.one_in(20) {
                recorder.window(*id, false, &window, &[]);
                told.windows.push((*id, false, window.clone(), Vec::new()));
                continue;
            }
            if dice.one_in(4) {
                let (runnable, us) = (dice.below(9), dice.below(3_000));
                let lasted = Nanos::from_micros(us);
                let burst = Burst { at: at - Nanos::from_millis(dice.below(90)), runnable, lasted, delay: lasted };
                let decisions = policy.burst(&burst);
                recorder.burst(*id, &burst, &decisions);
                told.at_once += decisions.len();
            }
            let decisions = policy.step(&window);
            recorder.window(*id, true, &window, &decisions);
            told.windows.push((*id, true, window.clone(), decisions));
        }
        if dice.one_in(50) {
            recorder.event("something happened");
            told.events += 1;
        }
        if dice.one_in(100) && !running.is_empty() {
            let (id, ..) = running.remove(0);
            recorder.gone(id);
            begin(&mut recorder, &mut running, groups + n, at, dice);
        }
        // The thread gets to say that a segment is full.
        if n % 25 == 0 {
            let _ = recorder.flush(std::time::Duration::from_secs(60));
        }
    }
    (told, recorder.finish())
}

fn begin(
    recorder: &mut Recorder,
    running: &mut Vec<(u64, GuestSetup, GuestPolicy)>,
    id: u64,
    at: Nanos,
    dice: &mut Dice,
) {
    let setup = setup(dice);
    let mut policy = GuestPolicy::of(setup.clone());
    let mut decisions = policy.begin();
    for decision in &mut decisions {
        decision.at = at;
    }
    recorder.group(id, at, &name(id), &setup, &decisions);
    running.push((id, setup, policy));
}

pub fn name(id: u64) -> String {
    format!("group {id}")
}

/// A recording in memory.
pub fn recorded(seed: u64, groups: u64, windows: u64) -> (Told, Vec<u8>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (told, trouble) = record(Target::File(file.reopen().unwrap(), 64 << 20), seed, groups, windows);
    assert_eq!(trouble, None);
    (told, std::fs::read(file.path()).unwrap())
}

/// The segments of a ring, oldest first, one after the other.
pub fn joined(folder: &Path) -> Vec<u8> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().flat_map(|path| std::fs::read(path).unwrap()).collect()
}

/// What can be read, and what is in the way of reading on.
pub fn read(bytes: &[u8]) -> (Vec<Record>, Option<Damage>) {
    let (mut records, mut damage) = (Vec::new(), None);
    for next in Reader::new(Cursor::new(bytes)).unwrap() {
        assert!(damage.is_none(), "there is nothing behind a damage");
        match next {
            Ok(record) => records.push(record),
            Err(found) => damage = Some(found),
        }
    }
    (records, damage)
}

/// All records of a file that is whole.
pub fn records(bytes: &[u8]) -> Vec<Record> {
    let (records, damage) = read(bytes);
    assert_eq!(damage, None);
    records
}

/// The windows among them.
pub fn windows(records: &[Record]) -> Vec<(u64, bool, Window, Vec<Decision>)> {
    let window = |record: &Record| match record {
        Record::Window(of) => Some((of.group, of.decided, of.window.clone(), of.decisions.clone())),
        _ => None,
    };
    records.iter().filter_map(window).collect()
}

pub fn replayed(records: &[Record]) -> Vec<GroupOutcome> {
    let mut replay = Replay::new(None);
    for record in records {
        replay.feed(record).unwrap();
    }
    replay.outcomes()
}
