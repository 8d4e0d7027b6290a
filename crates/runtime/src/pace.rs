//! How long windows are: as short as observing may cost.

use gleaner_decide::guest::Urgency;
use gleaner_model::Nanos;

/// Windows are this long, unless observing costs too much.
pub(crate) const WINDOW: Nanos = Nanos::from_millis(100);
/// Where a policy waits for its next window to go on ...
const QUICK_WINDOW: Nanos = Nanos::from_millis(25);
/// ... and has its program in a place that may be the wrong one.
const QUICKEST_WINDOW: Nanos = Nanos::from_millis(5);
/// Longest window: the yielding threads want a heartbeat within two seconds.
const LONGEST_WINDOW: Nanos = Nanos::from_secs(1);
/// Windows are paced for this part of what observing may take, so that it stays below.
const AIR: f64 = 0.8;
/// Quick windows may be so many times as dense, and the quickest so many times as dense as those ...
const DENSER: u64 = 5;
/// ... for as long as this much CPU time lasts, which comes back at the rate of what observing may take: enough for a
/// first trial, which takes retention away from the program meanwhile.
const CREDIT: Nanos = Nanos::from_millis(20);

/// The length of the next window.
#[derive(Debug)]
pub(crate) struct Pace {
    /// What observing may take, as a part of one CPU.
    target: f64,
    /// As long as what windows cost asks for.
    paced: Nanos,
    urgency: Urgency,
    credit: Nanos,
}

impl Pace {
    /// Observing may take `overhead` of one CPU.
    pub(crate) fn new(overhead: f64) -> Self {
        Self { target: AIR * overhead, paced: QUICK_WINDOW, urgency: Urgency::None, credit: CREDIT }
    }

    /// How long until the next window is due.
    pub(crate) fn window(&self) -> Nanos {
        let (wanted, denser) = match self.urgency {
            Urgency::None => return WINDOW.max(self.paced),
            Urgency::Some => (QUICK_WINDOW, DENSER),
            Urgency::Most => (QUICKEST_WINDOW, DENSER * DENSER),
        };
        wanted.max(if self.credit > Nanos::ZERO { Nanos(self.paced.0 / denser) } else { self.paced })
    }

    /// Whether windows are longer than they should be.
    pub(crate) fn is_used_up(&self) -> bool {
        self.paced > WINDOW
    }

    /// A window cost so much: longer ones when that is too dear, shorter ones again when it is not.
    pub(crate) fn cost(&mut self, cost: Nanos) {
        let earned = Nanos::from_f64(self.window().as_f64() * self.target);
        self.credit = (self.credit + earned).min(CREDIT) - cost;
        let length = Nanos::from_f64(cost.as_f64() / self.target).min(LONGEST_WINDOW);
        // A quarter of the way: one expensive window is no reason.
        self.paced = Nanos((self.paced.0 * 3 + length.0) / 4);
    }

    /// How much somebody waits for the next window.
    pub(crate) fn set_urgency(&mut self, urgency: Urgency) {
        self.urgency = urgency;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Nanos = Nanos::from_micros;

    fn paced(cost: Nanos, windows: u32, quick: bool) -> Pace {
        let mut pace = Pace::new(0.005);
        pace.set_urgency(if quick { Urgency::Some } else { Urgency::None });
        for _ in 0..windows {
            pace.cost(cost);
        }
        pace
    }

    #[test]
    fn windows_are_as_long_as_their_cost_asks_for() {
        assert_eq!(paced(US(100), 50, false).window(), WINDOW);
        let dear = paced(US(1_000), 50, false).window();
        assert!((Nanos::from_millis(245)..Nanos::from_millis(255)).contains(&dear), "{dear}");
        let longest = paced(Nanos::from_millis(100), 50, false).window();
        assert!(longest > Nanos::from_millis(990) && longest <= LONGEST_WINDOW, "{longest}");
    }

    #[test]
    fn who_waits_gets_dense_windows_until_the_credit_is_used_up() {
        assert_eq!(paced(US(250), 20, true).window(), QUICK_WINDOW);
        // 20 ms of credit, of which each window takes what it costs beyond what it earns.
        let long = paced(US(250), 200, true).window();
        assert!(long > Nanos::from_millis(60), "{long}");
        let mut pace = paced(US(250), 200, true);
        pace.set_urgency(Urgency::None);
        for _ in 0..200 {
            pace.cost(US(50));
        }
        pace.set_urgency(Urgency::Some);
        assert_eq!(pace.window(), QUICK_WINDOW);
        pace.set_urgency(Urgency::Most);
        assert_eq!(pace.window(), QUICKEST_WINDOW);
        let dear = paced(Nanos::from_millis(4), 2, true).window();
        assert!(dear > QUICK_WINDOW && dear < WINDOW, "{dear}");
    }

    #[test]
    fn all_together_stays_below_what_observing_may_take() {
        let (mut pace, cost, mut at, mut spent) = (Pace::new(0.005), US(250), Nanos::ZERO, Nanos::ZERO);
        pace.set_urgency(Urgency::Most);
        while at < Nanos::from_secs(60) {
            at += pace.window();
            spent += cost;
            pace.cost(cost);
        }
        assert!(spent.as_f64() < CREDIT.as_f64() + 0.005 * at.as_f64(), "{spent}");
    }
}
