//! What one window costs the observer's own thread, by the number of managed threads, each of which wakes up about five
//! times a window. Ten windows a second for 0.5 % of one CPU leave 500 us.
//!
//! `cargo bench -p gleaner-observe --bench window_cost`

#[path = "../tests/support/mod.rs"]
mod support;

use divan::Bencher;
use gleaner_observe::{Observer, ObserverChoice, ObserverConfig};
use std::time::Duration;
use support::{Player, bpf_expected, play};

const THREADS: [u64; 5] = [1, 16, 64, 512, 1024];

fn main() {
    if std::env::var_os("GLEANER_TEST_ROLE").is_some() {
        return play();
    }
    divan::main();
}

fn bench(bencher: Bencher<'_, '_>, choice: ObserverChoice, threads: u64) {
    let (mut observer, _) = Observer::new(choice, &ObserverConfig::default()).expect("the observer opens");
    let mut player = Player::start(&format!("sleepers:{threads}"));
    observer.adopted(player.pid());
    observer.start(&[]).expect("it starts");
    player.go();
    player.wait_done();
    // The first window finds the threads; the later ones only read them.
    let mut costs = Vec::new();
    observer.window(&[]).expect("a first window");
    bencher.with_inputs(|| std::thread::sleep(Duration::from_millis(100))).bench_local_refs(|()| {
        let window = observer.window(&[]);
        costs.push(observer.last_cost().0);
        window
    });
    costs.sort_unstable();
    eprintln!("  own CPU time of a window: median {} ns", costs.get(costs.len() / 2).unwrap_or(&0));
    player.finish();
}

#[divan::bench(args = THREADS, sample_count = 15, sample_size = 1)]
fn procfs(bencher: Bencher<'_, '_>, threads: u64) {
    bench(bencher, ObserverChoice::Procfs, threads);
}

#[divan::bench(args = THREADS, sample_count = 15, sample_size = 1)]
fn bpf(bencher: Bencher<'_, '_>, threads: u64) {
    if bpf_expected() {
        bench(bencher, ObserverChoice::Bpf, threads);
    }
}
