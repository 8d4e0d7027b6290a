//! The time-out of least expected cost, by the lengths of recent idle periods.
//!
//! Problem: an idle vCPU may poll or halt. Polling costs vCPU time, halting costs whoever waits, and how long the idle
//! period will last nobody knows (ski rental). Without history a time-out B of as much polling as a halt is worth costs
//! at most twice what knowing the future would (Karlin, Manasse, Rudolph, Sleator: Competitive snoopy caching, 1988).
//! With history the cost of each time-out T is known:
//!
//! ```text
//! cost(T) = price * (sum of l where l <= T  +  T * number of l > T)  +  halt * number of l > T
//! ```
//!
//! and the cheapest is best on average (Karlin, Manasse, McGeoch, Owicki: Competitive randomized algorithms for
//! nonuniform problems, 1994). History is halved every second. A window on which the time-out in force cost clearly
//! more than the best possible is another distribution: what was before is forgotten. So a shift costs more than the
//! bound of B in its first window only, if that has periods enough to tell.

use gleaner_model::{Distribution, Nanos, Profile, VcpuWindow, Window};
use serde::{Deserialize, Serialize};

/// The time-outs there are to choose from, in microseconds: a few, because each is written into a file or a map, and
/// journalled.
const LADDER_US: [u64; 9] = [0, 25, 50, 100, 200, 400, 800, 1600, 3200];
/// Fewer idle periods tell nothing.
const PERIODS_MIN: f64 = 20.0;
/// Another time-out has to be cheaper by this part, or it would come and go.
const GAIN_MIN: f64 = 0.1;
/// What costs more than this many times the best possible is another distribution.
const SHIFTED: f64 = 1.5;
/// History counts half after this time.
const HALF_LIFE: Nanos = Nanos::from_secs(1);

/// A budget that is overdrawn makes polling dearer by this factor a window, until it is kept.
const DEARER: f64 = 1.5;
/// ... and cheaper again where less than this part of it is used.
const BUDGET_AIR: f64 = 0.8;
const CHEAPER: f64 = 1.1;
/// The most that a budget makes of the price: at that nothing is polled.
const DEAREST: f64 = 1e6;
/// What polling costs more where the host is short of CPUs: this many times the stolen share.
const STEAL_PRICE: f64 = 20.0;
/// What the newest window counts in the share of stolen time.
const STEAL_NEWEST: f64 = 0.2;

/// What polling and halting cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// What a halt is worth, in polled time.
    pub halt: Nanos,
    /// What polling costs, as a multiple of what it costs where the vCPU's time is nobody else's. 1 and more.
    pub poll: f64,
}

/// Idle periods by their length: so many of about this length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IdleLengths {
    /// Length in nanoseconds and weight.
    cells: Vec<(f64, f64)>,
}

impl IdleLengths {
    /// Of a distribution that an observer saw.
    pub fn of(distribution: &Distribution) -> Self {
        let cells = distribution.cells().map(|(length, count)| (length.as_f64(), count as f64));
        Self { cells: cells.collect() }
    }

    /// Where only sums are known: `held` periods that ended while the vCPU polled, and `halted` ones, each with their
    /// time in all. Each kind is taken to be as long as its mean.
    pub fn of_sums(held: (u64, Nanos), halted: (u64, Nanos)) -> Self {
        let mean = |(count, time): (u64, Nanos)| (count > 0).then(|| (time.as_f64() / count as f64, count as f64));
        Self { cells: mean(held).into_iter().chain(mean(halted)).collect() }
    }

    /// Those of a vCPU in one window, retained for `timeout` meanwhile; `None` where nobody counted them.
    pub fn seen(vcpu: &VcpuWindow, timeout: Nanos) -> Option<Self> {
        if let Some(lengths) = &vcpu.l_idle {
            return Some(Self::of(lengths));
        }
        let (held, halts) = (vcpu.polls_held?, vcpu.halts?);
        // Before each halt the whole time-out was polled in vain.
        let in_vain = Nanos(timeout.0.saturating_mul(halts)).min(vcpu.retained);
        Some(Self::of_sums((held, vcpu.retained - in_vain), (halts, vcpu.halted + in_vain)))
    }

    fn periods(&self) -> f64 {
        self.cells.iter().map(|(_, weight)| weight).sum()
    }

    /// What `timeout` costs, in nanoseconds of polling.
    pub fn cost(&self, timeout: Nanos, prices: Prices) -> f64 {
        let limit = timeout.as_f64();
        let one = |length: f64| {
            if length <= limit { prices.poll * length } else { prices.poll * limit + prices.halt.as_f64() }
        };
        self.cells.iter().map(|&(length, weight)| weight * one(length)).sum()
    }

    /// What it would cost to know each length in advance.
    pub fn offline_cost(&self, prices: Prices) -> f64 {
        let one = |length: f64| (prices.poll * length).min(prices.halt.as_f64());
        self.cells.iter().map(|&(length, weight)| weight * one(length)).sum()
    }

    /// The part of the periods that end within `timeout`, 0 to 1.
    pub fn within(&self, timeout: Nanos) -> f64 {
        let within = self.cells.iter().filter(|(length, _)| *length <= timeout.as_f64());
        // An empty sum of floats is -0.0.
        let within = within.fold(0.0, |sum, cell| sum + cell.1);
        if self.cells.is_empty() { 0.0 } else { within / self.periods() }
    }

    /// The cheapest time-out of the ladder up to `longest`.
    pub fn best(&self, prices: Prices, longest: Nanos) -> Nanos {
        let costs = ladder(longest).map(|timeout| (self.cost(timeout, prices), timeout));
        costs.min_by(|(a, _), (b, _)| a.total_cmp(b)).map_or(Nanos::ZERO, |(_, timeout)| timeout)
    }

    fn add(&mut self, other: &Self, keep: f64) {
        for cell in &mut self.cells {
            cell.1 *= keep;
        }
        self.cells.retain(|cell| cell.1 > 0.01);
        // Those of an observer are the middles of its buckets, ascending: the next one is mostly right behind the last.
        let mut next = 0;
        for &(length, weight) in &other.cells {
            let is_next = self.cells.get(next).is_some_and(|cell| cell.0.to_bits() == length.to_bits());
            let like_it = |cell: &(f64, f64)| (cell.0 / length - 1.0).abs() < 0.05;
            let place = if is_next { Some(next) } else { self.cells.iter().position(like_it) };
            match place {
                Some(place) => {
                    self.cells[place].1 += weight;
                    next = place + 1;
                }
                None => self.cells.push((length, weight)),
            }
        }
    }
}

/// The time-outs to choose from: up to `longest`, which is one of them.
fn ladder(longest: Nanos) -> impl Iterator<Item = Nanos> {
    LADDER_US.into_iter().map(Nanos::from_micros).filter(move |step| *step < longest).chain([longest])
}

/// What polling costs now: more where the host is short of CPUs, and where the budget is used up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PollPrice {
    /// Share of one CPU, all vCPUs together; `None`: no limit.
    budget: Option<f64>,
    overdrawn: f64,
    steal_share: f64,
}

impl PollPrice {
    /// What all vCPUs together may poll, as a share of one CPU; `None`: no limit.
    pub fn budget(profile: Profile) -> Option<f64> {
        match profile {
            Profile::Frugal => Some(0.05),
            Profile::Balanced => Some(1.0),
            Profile::Latency => None,
        }
    }

    /// With the profile's budget.
    pub fn new(profile: Profile) -> Self {
        Self { budget: Self::budget(profile), overdrawn: 1.0, steal_share: 0.0 }
    }

    /// The same with another budget: a share of one CPU.
    #[must_use]
    pub fn within(self, budget: f64) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// Takes a window.
    pub fn feed(&mut self, window: &Window) {
        let sum = |of: fn(&VcpuWindow) -> Nanos| window.vcpus.iter().map(of).sum::<Nanos>().share_of(window.length);
        let (polled, stolen) = (sum(|vcpu| vcpu.retained), sum(|vcpu| vcpu.steal));
        let stolen = stolen / window.vcpus.len().max(1) as f64;
        self.steal_share += STEAL_NEWEST * (stolen - self.steal_share);
        let Some(budget) = self.budget else { return };
        if polled > budget {
            self.overdrawn = (self.overdrawn * DEARER).min(DEAREST);
        } else if polled < BUDGET_AIR * budget {
            self.overdrawn = (self.overdrawn / CHEAPER).max(1.0);
        }
    }

    /// As a multiple of what it costs where the vCPU's time is nobody else's.
    pub fn get(&self) -> f64 {
        (1.0 + STEAL_PRICE * self.steal_share) * self.overdrawn
    }
}

/// The time-out of one vCPU, by what it saw.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LearntTimeout {
    history: IdleLengths,
    longest: Nanos,
    timeout: Nanos,
}

impl LearntTimeout {
    /// Until something is known, `first`; never more than `longest`.
    pub fn new(first: Nanos, longest: Nanos) -> Self {
        Self { history: IdleLengths::default(), longest, timeout: first.min(longest) }
    }

    /// The time-out in force.
    pub fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// The part of recent idle periods that end within it, 0 to 1.
    pub fn within(&self) -> f64 {
        self.history.within(self.timeout)
    }

    /// Takes a window's idle periods. Says whether the time-out is another one now.
    pub fn feed(&mut self, window: &IdleLengths, length: Nanos, prices: Prices) -> bool {
        let keep = 0.5f64.powf(length.share_of(HALF_LIFE));
        let tells = window.periods() >= PERIODS_MIN;
        let shifted = tells && window.cost(self.timeout, prices) > SHIFTED * window.offline_cost(prices);
        self.history.add(window, if shifted { 0.0 } else { keep });
        if self.history.periods() < PERIODS_MIN {
            return false;
        }
        let best = self.history.best(prices, self.longest);
        let cheaper = self.history.cost(best, prices) < (1.0 - GAIN_MIN) * self.history.cost(self.timeout, prices);
        let changes = best != self.timeout && cheaper;
        if changes {
            self.timeout = best;
        }
        changes
    }

    /// The program is another one.
    pub fn forget(&mut self) {
        self.history = IdleLengths::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRICES: Prices = Prices { halt: Nanos::from_micros(200), poll: 1.0 };
    const LONGEST: Nanos = Nanos::from_millis(5);

    fn lengths(us: &[u64]) -> IdleLengths {
        let mut seen = Distribution::new();
        for us in us {
            seen.record(Nanos::from_micros(*us));
        }
        IdleLengths::of(&seen)
    }

    /// Each period by itself: polled up to the time-out, then halted.
    fn played(us: &[u64], timeout: Nanos, prices: Prices) -> f64 {
        us.iter().fold(0.0, |cost, us| {
            let length = Nanos::from_micros(*us);
            let polled = prices.poll * length.min(timeout).as_f64();
            cost + polled + if length > timeout { prices.halt.as_f64() } else { 0.0 }
        })
    }

    proptest! {
        /// Against playing every time-out of the ladder on the values themselves: buckets are 12.5 % wide.
        #[test]
        fn the_best_is_the_best_of_all(
            us in prop::collection::vec(1u64..20_000, 20..200),
            halt in 10u64..5_000,
            poll in 1.0..20.0f64,
        ) {
            let prices = Prices { halt: Nanos::from_micros(halt), poll };
            let best = lengths(&us).best(prices, LONGEST);
            let least = ladder(LONGEST).map(|timeout| played(&us, timeout, prices)).fold(f64::MAX, f64::min);
            prop_assert!(played(&us, best, prices) <= 1.2 * least, "{best}: {} against {least}", played(&us, best, prices));
        }

        #[test]
        fn a_time_out_of_a_halts_worth_costs_at_most_twice_the_future(
            us in prop::collection::vec(1u64..20_000, 1..200),
        ) {
            let seen = lengths(&us);
            prop_assert!(seen.cost(PRICES.halt, PRICES) <= 2.0 * seen.offline_cost(PRICES) + 1.0);
        }
    }

    #[test]
    fn each_distribution_has_its_timeout() {
        for (name, us, best_us) in [
            ("all short", [40; 50].to_vec(), 50),
            ("all too long to hold", [900; 50].to_vec(), 0),
            ("just longer than a halt is worth", [250; 50].to_vec(), 0),
            ("mostly short, some long", [[60; 40].as_slice(), &[3_000; 10]].concat(), 100),
            ("mostly long, a few short", [[60; 5].as_slice(), &[3_000; 45]].concat(), 0),
        ] {
            assert_eq!(lengths(&us).best(PRICES, LONGEST), Nanos::from_micros(best_us), "{name}");
        }
    }

    #[test]
    fn dear_halts_hold_for_longer_and_dear_polling_for_less() {
        let server = lengths(&[950; 50]);
        assert_eq!(server.best(PRICES, LONGEST), Nanos::ZERO);
        assert_eq!(server.best(Prices { halt: Nanos::from_millis(5), ..PRICES }, LONGEST), Nanos::from_micros(1_600));
        assert_eq!(lengths(&[100; 50]).best(PRICES, LONGEST), Nanos::from_micros(200));
        assert_eq!(lengths(&[100; 50]).best(Prices { poll: 3.0, ..PRICES }, LONGEST), Nanos::ZERO);
    }

    #[test]
    fn a_shift_is_followed_after_one_window() {
        let window = Nanos::from_millis(100);
        let mut learnt = LearntTimeout::new(PRICES.halt, LONGEST);
        for (us, wanted_us) in [(900, 0), (900, 0), (30, 50), (30, 50), (150, 200), (900, 0)] {
            learnt.feed(&lengths(&[us; 100]), window, PRICES);
            assert_eq!(learnt.timeout(), Nanos::from_micros(wanted_us), "{us}");
        }
    }

    #[test]
    fn a_few_periods_change_nothing() {
        let mut learnt = LearntTimeout::new(PRICES.halt, LONGEST);
        assert!(!learnt.feed(&lengths(&[900; 19]), Nanos::from_millis(100), PRICES));
        assert_eq!(learnt.timeout(), PRICES.halt);
    }

    #[test]
    fn sums_tell_two_kinds() {
        let us = Nanos::from_micros;
        let seen = IdleLengths::of_sums((90, us(90 * 40)), (10, us(10 * 3_000)));
        assert_eq!(seen.best(PRICES, LONGEST), us(50));
        assert!((seen.within(us(50)) - 0.9).abs() < 1e-9);
        assert_eq!(IdleLengths::of_sums((0, Nanos::ZERO), (0, Nanos::ZERO)).within(us(50)).to_bits(), 0);
    }
}
