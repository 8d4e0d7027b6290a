//! How much a neighbour got done between two moments, from the lines it prints meanwhile.
//!
//! `progress AT_NS ITEMS` carries the guest's time since the program's start. The serial line and a busy host delay a line by
//! milliseconds to seconds, so a line's arrival is not when it was true; but both clocks run at the same rate, and the line that was
//! delayed least shows their distance. Between two lines progress is taken to be even.
//!
//! A command may run several programs at a time, whose lines then end with a name of theirs, `progress AT_NS ITEMS NAME`; what it gets done is the
//! geometric mean of their rates.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The progress of what a VM runs in the background.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// By name; of a single program without one.
    programs: BTreeMap<String, Lines>,
}

/// One program's.
#[derive(Clone, Debug, Default)]
struct Lines {
    /// Guest's time and items, oldest first.
    lines: Vec<(Duration, u64)>,
    /// The host's time at the guest's zero, by the least delayed line.
    zero: Option<Instant>,
}

/// More lines than a day has at ten a second.
const LINES_MAX: usize = 1_000_000;
/// More programs than a VM has vCPUs.
const PROGRAMS_MAX: usize = 64;

impl Progress {
    /// Takes a line that arrived at `now`; says whether it was one of progress.
    pub fn line(&mut self, now: Instant, line: &str) -> bool {
        let mut words = line.split_whitespace();
        let (Some("progress"), Some(at), Some(items)) = (words.next(), words.next(), words.next()) else {
            return false;
        };
        let (Ok(at), Ok(items)) = (at.parse().map(Duration::from_nanos), items.parse::<u64>()) else { return false };
        let name = words.next().unwrap_or_default();
        let known = self.programs.contains_key(name) || self.programs.len() < PROGRAMS_MAX;
        words.next().is_none() && known && self.programs.entry(name.to_owned()).or_default().line(now, at, items)
    }

    /// Whether anything was heard.
    pub fn began(&self) -> bool {
        !self.programs.is_empty()
    }

    /// Whether it is known what was true at this moment.
    pub fn covers(&self, moment: Instant) -> bool {
        self.began() && self.programs.values().all(|lines| lines.covers(moment))
    }

    /// Items per second from one moment to another, as far as lines reach; `None` when that is not half of the time at least.
    pub fn rate(&self, from: Instant, to: Instant) -> Option<f64> {
        let rates: Option<Vec<f64>> = self.programs.values().map(|lines| lines.rate(from, to)).collect();
        match rates?.as_slice() {
            [] => None,
            [rate] => Some(*rate),
            several => Some((several.iter().map(|rate| rate.ln()).sum::<f64>() / several.len() as f64).exp()),
        }
    }
}

impl Lines {
    fn line(&mut self, now: Instant, at: Duration, items: u64) -> bool {
        // Neither time nor items go backwards: whoever says so is a program anew, or garbage.
        if self.lines.last().is_some_and(|(last, so_far)| at <= *last || items < *so_far)
            || self.lines.len() >= LINES_MAX
        {
            return false;
        }
        self.lines.push((at, items));
        if let Some(zero) = now.checked_sub(at) {
            self.zero = Some(self.zero.map_or(zero, |so_far| so_far.min(zero)));
        }
        true
    }

    fn covers(&self, moment: Instant) -> bool {
        let Some(zero) = self.zero else { return false };
        self.lines.last().is_some_and(|(last, _)| zero + *last >= moment)
    }

    fn rate(&self, from: Instant, to: Instant) -> Option<f64> {
        let zero = self.zero?;
        let (first, last) = (self.lines.first()?.0, self.lines.last()?.0);
        let wanted = to.checked_duration_since(from)?;
        let from = from.saturating_duration_since(zero).max(first);
        let to = to.saturating_duration_since(zero).min(last);
        let covered = to.checked_sub(from).filter(|covered| !covered.is_zero() && *covered * 2 >= wanted)?;
        Some((self.items_at(to)? - self.items_at(from)?) / covered.as_secs_f64())
    }

    fn items_at(&self, at: Duration) -> Option<f64> {
        let after = self.lines.partition_point(|(when, _)| *when < at);
        let (t1, n1) = *self.lines.get(after)?;
        let Some((t0, n0)) = after.checked_sub(1).map(|before| self.lines[before]) else { return Some(n1 as f64) };
        let share = at.saturating_sub(t0).div_duration_f64(t1.saturating_sub(t0));
        Some(n0 as f64 + share * (n1 - n0) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten lines a second, 1000 items a second, from `start` on, each late by `late`.
    fn even(start: Instant, late: impl Fn(u32) -> Duration) -> Progress {
        let mut progress = Progress::default();
        for n in 0..50 {
            let at = Duration::from_millis(100) * n;
            let line = format!("progress {} {}", at.as_nanos(), u64::from(n) * 100);
            assert!(progress.line(start + at + late(n), &line));
        }
        progress
    }

    #[test]
    fn an_even_rate_is_found_between_lines_too() {
        let start = Instant::now();
        let progress = even(start, |_| Duration::ZERO);
        for (from, to) in [(1_000, 2_000), (1_050, 1_930), (0, 4_900)] {
            let ms = |n| start + Duration::from_millis(n);
            let rate = progress.rate(ms(from), ms(to)).unwrap();
            assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
        }
    }

    #[test]
    fn late_lines_do_not_move_what_they_say() {
        let start = Instant::now();
        // A burst: the lines of the second second arrive together at its end.
        let late = |n: u32| {
            if (10..20).contains(&n) { Duration::from_millis(u64::from(20 - n) * 100) } else { Duration::ZERO }
        };
        let ms = |n| start + Duration::from_millis(n);
        let rate = even(start, late).rate(ms(1_200), ms(1_800)).unwrap();
        assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn what_lines_do_not_cover_is_unknown() {
        let start = Instant::now();
        let ms = |n| start + Duration::from_millis(n);
        let progress = even(start, |_| Duration::ZERO);
        assert!(progress.rate(ms(4_000), ms(5_500)).is_some(), "more than half is covered");
        assert_eq!(progress.rate(ms(4_500), ms(6_000)), None);
        assert_eq!(progress.rate(ms(7_000), ms(8_000)), None);
        assert_eq!(Progress::default().rate(ms(0), ms(100)), None);
        assert!(progress.covers(ms(4_900)) && !progress.covers(ms(5_000)));
    }

    #[test]
    fn of_several_programs_it_is_the_geometric_mean() {
        let start = Instant::now();
        let ms = |n| start + Duration::from_millis(n);
        let mut progress = Progress::default();
        for n in 0..20_u64 {
            let (at, now) = (n * 100_000_000, ms(n * 100));
            assert!(progress.line(now, &format!("progress {at} {} slow", n * 10)));
            assert!(n < 15 || !progress.covers(now), "of fast that is not known");
            assert!(n >= 15 || progress.line(now, &format!("progress {at} {} fast", n * 1000)));
        }
        let rate = progress.rate(ms(200), ms(1200)).unwrap();
        assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
        assert_eq!(progress.rate(ms(1500), ms(1900)), None, "one of them is unknown");
    }

    #[test]
    fn other_lines_are_not_progress() {
        let mut progress = Progress::default();
        let now = Instant::now();
        for line in ["", "progress", "progress 1", "progress x 2", "progress 1 2 a b", "regress 1 2", "progress -1 2"] {
            assert!(!progress.line(now, line), "{line}");
        }
        assert!(!progress.began());
        assert!(progress.line(now, "progress 10 5"));
        assert!(!progress.line(now, "progress 5 6"), "time does not go backwards");
        assert!(!progress.line(now, "progress 20 4"), "nor do items");
    }
}
