//! What who wakes whom looks like: hand-offs, broadcasts, requests from outside, or nothing of the kind (ours).
//!
//! Problem: the paper packs what hands over, and loses throughput with what broadcasts. How: from counts alone, over
//! the last windows. Threads that wake each other one at a time hand over; where most are woken three and more at once,
//! by one thread in one stint, that is a broadcast. It explains, and decides nothing (experiments/ahead/wakes).

use gleaner_model::{Nanos, WakePattern, Wakes, Window};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// So many woken in one stint are a wide one ([`Wakes::wide`]).
const WIDE: u64 = 3;
/// A group whose threads are woken more seldom, by one another or by other programs, is independent.
const PER_S_MIN: f64 = 100.0;
/// ... and so is one where that is a smaller share of all its wake-ups.
const SHARE_MIN: f64 = 0.3;
/// Broadcasts: at least this share of the wake-ups by one another is wide.
const WIDE_SHARE: f64 = 0.5;
/// The windows that are looked at.
const WINDOWS: usize = 10;

/// What these wake-ups, in `length`, look like; `None` for no time at all.
pub fn wake_pattern(wakes: &Wakes, length: Nanos) -> Option<WakePattern> {
    if length == Nanos::ZERO {
        return None;
    }
    let per_s = |count: u64| count as f64 / length.as_secs_f64();
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let total = wakes.total();
    let independent = WakePattern::Independent { per_s: per_s(total), by_interrupts: share(wakes.interrupts, total) };
    // The more often interrupts end a wait, the less it is one for another thread.
    let most = wakes.own.max(wakes.outside);
    if per_s(most) < PER_S_MIN || share(most, total) < SHARE_MIN {
        return Some(independent);
    }
    if wakes.outside > wakes.own {
        return Some(WakePattern::RequestReply { per_s: per_s(wakes.outside) });
    }
    // In one stint a thread may wake the same few again and again: that is no broadcast.
    let few = (1..WIDE).contains(&wakes.woken_threads);
    if share(wakes.wide, wakes.own) >= WIDE_SHARE && !few {
        let woken = share(wakes.own, wakes.bursts);
        let woken = if wakes.woken_threads == 0 { woken } else { woken.min(wakes.woken_threads as f64) };
        return Some(WakePattern::Broadcasts { woken, per_s: per_s(wakes.bursts) });
    }
    Some(WakePattern::HandOffs {
        threads: wakes.woken_threads,
        per_s: per_s(wakes.own),
        to_and_fro: share(wakes.returned, wakes.own) >= 0.5,
    })
}

/// The wake-ups of the last windows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RecentWakes(VecDeque<(Wakes, Nanos)>);

impl RecentWakes {
    /// One window more. One that does not tell ends what is known.
    pub fn add(&mut self, window: &Window) {
        let Some(wakes) = window.group.wakes.as_deref() else { return self.0.clear() };
        while self.0.len() >= WINDOWS {
            self.0.pop_front();
        }
        self.0.push_back((*wakes, window.length));
    }

    /// What they look like; `None` where nothing is known.
    pub fn pattern(&self) -> Option<WakePattern> {
        let (mut wakes, mut length) = (Wakes::default(), Nanos::ZERO);
        for (of, lasted) in &self.0 {
            wakes += *of;
            length += *lasted;
        }
        wake_pattern(&wakes, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{GroupWindow, Source};

    fn pattern(wakes: Wakes) -> WakePattern {
        wake_pattern(&wakes, Nanos::from_secs(1)).unwrap()
    }

    fn own(own: u64, returned: u64, bursts: u64, wide: u64) -> Wakes {
        Wakes { own, returned, bursts, wide, woken_threads: 4, ..Wakes::default() }
    }

    #[test]
    fn each_kind_is_recognized() {
        let hands = |to_and_fro| WakePattern::HandOffs { threads: 4, per_s: 1_000.0, to_and_fro };
        assert_eq!(pattern(own(1_000, 999, 1_000, 0)), hands(true));
        assert_eq!(pattern(own(1_000, 100, 1_000, 0)), hands(false));
        // Two at once: a stage of a pipeline wakes both its neighbours.
        assert_eq!(pattern(own(1_000, 0, 500, 0)), hands(false));
        let broadcasts = WakePattern::Broadcasts { woken: 4.0, per_s: 250.0 };
        assert_eq!(pattern(own(1_000, 0, 250, 800)), broadcasts);
        let outside = Wakes { outside: 900, own: 300, ..Wakes::default() };
        assert_eq!(pattern(outside), WakePattern::RequestReply { per_s: 900.0 });
    }

    #[test]
    fn no_more_are_woken_at_once_than_were_woken_at_all() {
        // One that never waits wakes the same four 149 times in a stint.
        assert_eq!(pattern(own(2_980, 0, 20, 2_980)), WakePattern::Broadcasts { woken: 4.0, per_s: 20.0 });
        let two = Wakes { woken_threads: 2, ..own(2_980, 0, 20, 2_980) };
        assert_eq!(pattern(two).name(), "hand-offs");
        let uncounted = Wakes { woken_threads: 0, ..own(1_000, 0, 200, 1_000) };
        assert_eq!(pattern(uncounted), WakePattern::Broadcasts { woken: 5.0, per_s: 200.0 });
    }

    #[test]
    fn timers_devices_and_rare_wakes_are_nobodys_pattern() {
        let by_timers = Wakes { interrupts: 9_000, own: 500, ..Wakes::default() };
        assert_eq!(pattern(by_timers).name(), "independent");
        assert_eq!(pattern(Wakes::default()), WakePattern::Independent { per_s: 0.0, by_interrupts: 0.0 });
        assert_eq!(pattern(own(3, 0, 3, 0)).name(), "independent");
        assert_eq!(pattern(Wakes { outside: 3, ..Wakes::default() }).name(), "independent");
        assert_eq!(wake_pattern(&own(3, 0, 3, 0), Nanos::ZERO), None);
    }

    #[test]
    fn the_last_windows_count_and_an_observer_that_sees_no_wakes_ends_it() {
        let window = |wakes: Option<Wakes>| Window {
            at: Nanos::ZERO,
            length: Nanos::from_millis(500),
            source: Source::Bpf,
            vcpus: Vec::new(),
            idle_entries: None,
            halts: None,
            group: GroupWindow { wakes: wakes.map(Box::new), ..GroupWindow::default() },
        };
        let mut recent = RecentWakes::default();
        assert_eq!(recent.pattern(), None);
        let mut add = |wakes| {
            (0..WINDOWS / 2).for_each(|_| recent.add(&window(wakes)));
            recent.pattern().map(|pattern| pattern.name())
        };
        assert_eq!(add(Some(own(1_000, 0, 100, 900))), Some("broadcasts"));
        assert_eq!(add(Some(own(1_000, 0, 1_000, 0))), Some("hand-offs"));
        assert_eq!(add(Some(Wakes::default())), Some("hand-offs"));
        assert_eq!(add(Some(Wakes::default())), Some("independent"), "the first two are forgotten");
        assert_eq!(add(None), None);
    }
}
