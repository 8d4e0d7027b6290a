//! What time-outs cost, as a multiple of knowing each idle period in advance: fixed ones, and the one that is learnt.
//!
//! `cargo bench -p gleaner-decide --bench timeouts`. Nothing is timed, so the machine makes no difference; a seed makes
//! the periods.

use gleaner_decide::guest::{IdleLengths, LearntTimeout, Prices};
use gleaner_model::{Distribution, Nanos};

const PRICES: Prices = Prices { halt: Nanos::from_micros(200), poll: 1.0 };
const LONGEST: Nanos = Nanos::from_micros(800);
const WINDOWS: usize = 300;
const WINDOW: Nanos = Nanos::from_millis(100);

/// Uniform in (0, 1): Knuth's MMIX generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.next().ln()
    }
}

type Periods = fn(&mut Random, usize) -> f64;

/// Idle lengths in microseconds, by window.
const DISTRIBUTIONS: [(&str, Periods); 7] = [
    ("40 us, exponential", |random, _| random.exponential(40.0)),
    ("200 us, exponential", |random, _| random.exponential(200.0)),
    ("1 ms, exponential", |random, _| random.exponential(1000.0)),
    ("950 us, always", |_, _| 950.0),
    ("9 of 10 of 60 us, else 3 ms", |random, _| if random.next() < 0.9 { 60.0 } else { 3000.0 }),
    ("1 of 10 of 60 us, else 3 ms", |random, _| if random.next() < 0.1 { 60.0 } else { 3000.0 }),
    ("30 us and 2 ms, changing each second", |_, window| if window / 10 % 2 == 0 { 30.0 } else { 2000.0 }),
];

fn main() {
    println!(
        "cost as a multiple of the offline optimum (halt worth 200 us of polling), {WINDOWS} windows of 200 idle periods\n"
    );
    println!("{:<38} {:>8} {:>8} {:>8} {:>8}", "idle periods", "0", "200 us", "no end", "learnt");
    for (name, draw) in DISTRIBUTIONS {
        let mut random = Random(7);
        let mut learnt = LearntTimeout::new(PRICES.halt, LONGEST);
        let (mut costs, mut offline) = ([0.0; 4], 0.0);
        for window in 0..WINDOWS {
            let mut seen = Distribution::new();
            (0..200).for_each(|_| seen.record(Nanos::from_f64(draw(&mut random, window) * 1e3)));
            let lengths = IdleLengths::of(&seen);
            let timeouts = [Nanos::ZERO, Nanos::from_micros(200), Nanos::from_secs(1), learnt.timeout()];
            for (cost, timeout) in costs.iter_mut().zip(timeouts) {
                *cost += lengths.cost(timeout, PRICES);
            }
            offline += lengths.offline_cost(PRICES);
            learnt.feed(&lengths, WINDOW, PRICES);
        }
        let [none, fixed, endless, learnt] = costs.map(|cost| cost / offline);
        println!("{name:<38} {none:>8.2} {fixed:>8.2} {endless:>8.2} {learnt:>8.2}");
    }
}
