//! What the BPF programs cost a context switch: two threads of a managed process, on one vCPU, hand a byte to and fro,
//! with and without the programs, in turn. Prints the series, and the medians of the differences and ratios *within*
//! pairs: a baseline that drifts from pair to pair moves the difference of two medians, and says nothing about the
//! programs. Then what the kernel itself counts per run of each program (`bpf_enable_stats`, which costs two clock
//! readings a run and is off otherwise).
//!
//! `cargo bench -p gleaner-observe --bench switch_cost [-- --pairs N --rounds N]`

#[path = "../tests/support/mod.rs"]
mod support;

use gleaner_observe::{BpfObserver, ObserverConfig};
use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};
use libbpf_rs::query::ProgInfoIter;
use std::os::fd::{FromRawFd, OwnedFd};
use support::{Player, bpf_expected, play};

fn main() {
    if std::env::var_os("GLEANER_TEST_ROLE").is_some() {
        return play();
    }
    if !bpf_expected() {
        return;
    }
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str, default: u64| {
        args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    // `cargo test` runs benches too, with --test: then once, small.
    let smoke = !args.iter().any(|arg| arg == "--bench");
    let (pairs, rounds) = if smoke { (1, 1_000) } else { (option("--pairs", 15), option("--rounds", 50_000)) };
    let mut measured = Vec::new();
    println!("ns per context switch ({} switches a run)", 2 * rounds);
    println!("{:>4} {:>8} {:>8} {:>10} {:>6}", "pair", "without", "with", "difference", "ratio");
    for pair in 1..=pairs {
        // Each goes first in every other pair.
        let (without, with) = if pair % 2 == 0 {
            let with = play_once(Some(&mut observer()), rounds);
            (play_once(None, rounds), with)
        } else {
            (play_once(None, rounds), play_once(Some(&mut observer()), rounds))
        };
        println!("{pair:>4} {without:>8} {with:>8} {:>+10.0} {:>6.3}", with - without, with / without);
        measured.push((without, with));
    }
    let of_pairs = |figure: fn(&(f64, f64)) -> f64| median(measured.iter().map(figure).collect());
    let (without, with) = (of_pairs(|pair| pair.0), of_pairs(|pair| pair.1));
    println!("medians: without {without:.0}, with {with:.0} (for orientation)");
    let (difference, ratio) = (of_pairs(|pair| pair.1 - pair.0), of_pairs(|pair| pair.1 / pair.0));
    println!("medians within pairs: difference {difference:+.0} ns, ratio {ratio:.3}");
    kernel_statistics(rounds);
}

fn observer() -> BpfObserver {
    BpfObserver::new(&ObserverConfig::default()).expect("BPF loads")
}

/// Plays once, under the observer if there is one; returns ns per switch.
fn play_once(mut observer: Option<&mut BpfObserver>, rounds: u64) -> f64 {
    let mut player = Player::start(&format!("switches:{rounds}"));
    if let Some(observer) = &mut observer {
        observer.adopted(player.pid());
    }
    player.go();
    let result = player.wait_done().parse().expect("the player says ns");
    player.finish();
    result
}

/// Of an even number the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

fn kernel_statistics(rounds: u64) {
    let mut observer = observer();
    // SAFETY: the call returns a descriptor of ours or a negative error; closing it turns the statistics off again.
    let statistics = unsafe {
        let fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
        assert!(fd >= 0, "bpf_enable_stats: {fd}");
        OwnedFd::from_raw_fd(fd)
    };
    play_once(Some(&mut observer), rounds);
    println!("\nthe kernel's own count, its two clock readings a run included");
    println!("{:<12} {:>9} {:>8}", "program", "runs", "ns/run");
    for (name, runs, ns) in programs().into_iter().filter(|(_, runs, _)| *runs > 0) {
        println!("{name:<12} {runs:>9} {:>8.0}", ns as f64 / runs as f64);
    }
    drop(statistics);
}

fn programs() -> Vec<(String, u64, u64)> {
    let ours = ["on_switch", "on_waking", "on_fork", "on_exec"];
    ProgInfoIter::default()
        .map(|info| (info.name.to_string_lossy().into_owned(), info.run_cnt, info.run_time_ns))
        .filter(|(name, ..)| ours.contains(&name.as_str()))
        .collect()
}
