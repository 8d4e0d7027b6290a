//! How long a program takes to spread after its vCPUs are given back: widening a mask moves nothing by itself.
//!
//! Two threads that compute without pause are confined to one vCPU, then allowed two again; the time until each has a
//! vCPU of its own, with the freed vCPU halted and kept awake by a yielding thread.
//!
//! `cargo bench -p gleaner --bench guest -- spread`; ROUNDS=40 for more. Needs sysbench and two vCPUs. Prints; passes
//! or fails nothing.

use crate::support::{interval, median, setting};
use gleaner_act::{IdleGroup, Journal, Placement, YieldingThreads, undo_journal};
use gleaner_decide::guest::{ContentionGuard, GuestParams, YieldingThread};
use gleaner_model::{CpuSet, Nanos, Order, VcpuId, YieldMachine};
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A spread that takes longer is reported as this long.
const LONGEST: Duration = Duration::from_secs(2);

pub fn main() {
    let rounds = setting("ROUNDS", 20);
    println!(
        "time until two computing threads have a vCPU each, ms, {rounds} rounds (at most {} ms)",
        LONGEST.as_millis()
    );
    for retained in [false, true] {
        let times = (0..rounds).map(|round| spread(retained, round)).collect::<Result<Vec<f64>, String>>();
        let awake = if retained { "kept awake" } else { "halted" };
        match times {
            Ok(times) => {
                let most = times.iter().copied().fold(0.0, f64::max);
                println!(
                    "  freed vCPU {awake:<11} median {:>8.2} (95 % {}), most {most:.2}",
                    median(&times),
                    interval(&times, 2)
                );
            }
            Err(why) => println!("  freed vCPU {awake:<11} not measured: {why}"),
        }
    }
}

/// One confinement and release, in milliseconds.
fn spread(retained: bool, round: usize) -> Result<f64, String> {
    let dir = std::env::temp_dir().join(format!("gleaner-spread-{}", std::process::id()));
    let mut journal =
        Journal::create(&dir, &format!("spread-{}-{round}", std::process::id())).map_err(|e| e.to_string())?;
    let time = confined_and_released(retained, &mut journal);
    undo_journal(journal.path(), true).map_err(|error| error.to_string())?;
    time
}

fn confined_and_released(retained: bool, journal: &mut Journal) -> Result<f64, String> {
    let both = CpuSet::first(2);
    let mut placement = Placement::new(&both);
    let group = IdleGroup::create(journal);
    let params = GuestParams::default();
    let machine = |_| Box::new(YieldingThread::new(Order::Sleep, false, &params)) as Box<dyn YieldMachine>;
    let freed: CpuSet = [VcpuId(1)].into_iter().collect();
    let yields = YieldingThreads::start(&freed, &group, ContentionGuard::STOLEN_GAP, machine, |_| None);
    let yields = yields.map_err(|error| error.to_string())?;
    let mut program = computing()?;
    let pid = i32::try_from(program.id()).map_err(|error| error.to_string())?;
    let result = (|| {
        placement.program_started(pid);
        std::thread::sleep(Duration::from_millis(100));
        placement.confine(&CpuSet::first(1), &threads(pid), journal).map_err(|error| error.to_string())?;
        std::thread::sleep(Duration::from_millis(200));
        if retained {
            yields.beat();
            yields.order(VcpuId(1), Order::Retain { timeout: Nanos::from_secs(10) });
            std::thread::sleep(Duration::from_millis(20));
        }
        let began = Instant::now();
        placement.confine(&both, &threads(pid), journal).map_err(|error| error.to_string())?;
        while vcpus_of(pid).len() < 2 && began.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(began.elapsed().as_secs_f64() * 1e3)
    })();
    // The child is ours: killed by its handle, and reaped.
    let _ = program.kill();
    let _ = program.wait();
    result
}

fn computing() -> Result<Child, String> {
    let mut command = Command::new("sysbench");
    command.args(["cpu", "--threads=2", "--time=60", "run"]).stdout(Stdio::null());
    command.spawn().map_err(|error| format!("sysbench: {error}"))
}

fn threads(pid: i32) -> Vec<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Where the program's running threads are: field 39 of stat; state R.
fn vcpus_of(pid: i32) -> BTreeSet<String> {
    let stat = |tid: &i32| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok();
    let running = |text: String| {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        (fields.first() == Some(&"R")).then(|| fields[36].to_owned())
    };
    threads(pid).iter().filter_map(stat).filter_map(running).collect()
}
