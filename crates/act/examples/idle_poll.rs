//! Runs a command while the idle loops of all vCPUs poll, and says what they did. For trying that means alone.
//!
//!     idle_poll TIMEOUT_US -- COMMAND...       0: the same without polling
//!
//! On stderr, a line a vCPU: `idle-poll cpu 0: polled 12 ms, held 34, timed out 5, stolen 6 ms, guard trips 0`.

use gleaner_act::{IdlePoll, IdlePollParams, Journal, Retainer};
use gleaner_model::{CpuSet, Nanos};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let timeout: u64 = words.next().ok_or("idle_poll TIMEOUT_US -- COMMAND...")?.parse()?;
    let command: Vec<String> = words.skip_while(|word| word != "--").skip(1).collect();
    let [program, arguments @ ..] = command.as_slice() else { return Err("no command".into()) };
    let vcpus = CpuSet::first(u32::try_from(std::thread::available_parallelism()?.get())?);
    // Nothing is journalled, but the trait asks for a journal.
    let folder = std::env::temp_dir().join("idle-poll-journals");
    let mut journal = Journal::create(&folder, &std::process::id().to_string())?;
    let mut poll = None;
    if timeout > 0 {
        let began = Instant::now();
        let mut opened = IdlePoll::open(Path::new("/sys"), &vcpus, &IdlePollParams::default())?;
        eprintln!("idle-poll opened in {:?}: {} {:?}", began.elapsed(), opened.detail(), opened.fallbacks());
        for vcpu in vcpus.iter() {
            opened.set(vcpu, Some(Nanos::from_micros(timeout)), &mut journal)?;
        }
        poll = Some(opened);
    }
    let mut child = Command::new(program).args(arguments).spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Some(poll) = &poll {
            poll.beat();
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    for counters in poll.iter().flat_map(Retainer::counters) {
        eprintln!(
            "idle-poll {}: polled {} ms, held {}, timed out {}, stolen {} ms, guard trips {}",
            counters.vcpu.map_or_else(String::new, |vcpu| vcpu.to_string()),
            counters.polled.0 / 1_000_000,
            counters.polls_held,
            counters.sleeps,
            counters.stolen.0 / 1_000_000,
            counters.guard_trips
        );
    }
    std::fs::remove_file(journal.path())?;
    let began = Instant::now();
    drop(poll);
    eprintln!("idle-poll closed in {:?}", began.elapsed());
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}
