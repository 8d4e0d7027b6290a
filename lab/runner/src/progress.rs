//! How much a program got done between two moments, from the lines it wrote meanwhile.
//!
//! `progress AT_NS ITEMS` carries the guest's time (CLOCK_MONOTONIC); guest's and host's clock run at the same rate.
//! The lines stay in the guest until the program is stopped: sent as they are written, over an emulated serial line,
//! they presumably took programs part of what they tell of (experiments/slices, item 6). Between two lines progress is
//! taken to be even.
//!
//! A command may run several programs at a time, whose lines then end with a name of theirs, `progress AT_NS ITEMS
//! NAME`; what it gets done is the geometric mean of their rates.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The progress of what a VM ran until it was stopped.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The host's time when the guest's clock was 0.
    booted: Option<Instant>,
    /// By name; of a single program without one.
    programs: BTreeMap<String, Lines>,
}

/// One program's: guest's time and items, oldest first.
#[derive(Clone, Debug, Default)]
struct Lines(Vec<(Duration, u64)>);

impl Progress {
    /// What a program wrote by a clock that was 0 at `booted`. Lines of something else are passed over.
    pub fn of(booted: Instant, text: &str) -> Self {
        let mut progress = Self { booted: Some(booted), programs: BTreeMap::new() };
        for line in text.lines() {
            progress.take(line);
        }
        progress
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.strip_prefix("progress ")?.split_whitespace();
        let at = words.next()?.parse().map(Duration::from_nanos).ok()?;
        let items = words.next()?.parse().ok()?;
        let name = words.next().unwrap_or_default();
        if words.next().is_none() {
            self.programs.entry(name.to_owned()).or_default().push(at, items);
        }
        Some(())
    }

    /// Items per second from one moment to another, as far as lines reach; `None` when that is not half of the time at
    /// least.
    pub fn rate(&self, from: Instant, to: Instant) -> Option<f64> {
        let booted = self.booted?;
        let (from, to) = (from.saturating_duration_since(booted), to.saturating_duration_since(booted));
        let rates: Option<Vec<f64>> = self.programs.values().map(|lines| lines.rate(from, to)).collect();
        match rates?.as_slice() {
            [] => None,
            [rate] => Some(*rate),
            several => Some((several.iter().map(|rate| rate.ln()).sum::<f64>() / several.len() as f64).exp()),
        }
    }
}

impl Lines {
    /// Neither time nor items go backwards: whoever says so is a program anew, or garbage.
    fn push(&mut self, at: Duration, items: u64) {
        if self.0.last().is_none_or(|(last, so_far)| at > *last && items >= *so_far) {
            self.0.push((at, items));
        }
    }

    fn rate(&self, from: Duration, to: Duration) -> Option<f64> {
        let (first, last) = (self.0.first()?.0, self.0.last()?.0);
        let wanted = to.checked_sub(from)?;
        let (from, to) = (from.max(first), to.min(last));
        let covered = to.checked_sub(from).filter(|covered| !covered.is_zero() && *covered * 2 >= wanted)?;
        Some((self.items_at(to)? - self.items_at(from)?) / covered.as_secs_f64())
    }

    fn items_at(&self, at: Duration) -> Option<f64> {
        let after = self.0.partition_point(|(when, _)| *when < at);
        let (t1, n1) = *self.0.get(after)?;
        let Some((t0, n0)) = after.checked_sub(1).map(|before| self.0[before]) else { return Some(n1 as f64) };
        let share = at.saturating_sub(t0).div_duration_f64(t1.saturating_sub(t0));
        Some(n0 as f64 + share * (n1 - n0) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten lines a second, 1000 items a second.
    fn even(booted: Instant) -> Progress {
        let lines = (0..50_u64).map(|n| format!("progress {} {}\n", n * 100_000_000, n * 100));
        Progress::of(booted, &lines.collect::<String>())
    }

    #[test]
    fn an_even_rate_is_found_between_lines_too() {
        let booted = Instant::now();
        let progress = even(booted);
        for (from, to) in [(1_000, 2_000), (1_050, 1_930), (0, 4_900)] {
            let ms = |n| booted + Duration::from_millis(n);
            let rate = progress.rate(ms(from), ms(to)).unwrap();
            assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
        }
    }

    #[test]
    fn what_lines_do_not_cover_is_unknown() {
        let booted = Instant::now();
        let ms = |n| booted + Duration::from_millis(n);
        let progress = even(booted);
        assert!(progress.rate(ms(4_000), ms(5_500)).is_some(), "more than half is covered");
        assert_eq!(progress.rate(ms(4_500), ms(6_000)), None);
        assert_eq!(progress.rate(ms(7_000), ms(8_000)), None);
        assert_eq!(Progress::default().rate(ms(0), ms(100)), None);
    }

    #[test]
    fn of_several_programs_it_is_the_geometric_mean() {
        let booted = Instant::now();
        let ms = |n| booted + Duration::from_millis(n);
        let lines = |n: u64| {
            let at = n * 100_000_000;
            let fast = format!("progress {at} {} fast\n", n * 1000);
            format!("progress {at} {} slow\n{}", n * 10, if n < 15 { &fast } else { "" })
        };
        let text: String = (0..20).map(lines).collect();
        let progress = Progress::of(booted, &text);
        let rate = progress.rate(ms(200), ms(1200)).unwrap();
        assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
        assert_eq!(progress.rate(ms(1500), ms(1900)), None, "one of them is unknown");
    }

    #[test]
    fn other_lines_are_not_progress() {
        let booted = Instant::now();
        for line in ["", "progress", "progress 1", "progress x 2", "progress 1 2 a b", "regress 1 2", "progress -1 2"] {
            assert!(Progress::of(booted, line).programs.is_empty(), "{line}");
        }
        let ms = |n| booted + Duration::from_millis(n);
        // Time does not go backwards, nor do items.
        let text = "progress 10000000 5\nnoise\nprogress 5000000 6\nprogress 20000000 4\nprogress 30000000 25\n";
        assert_eq!(Progress::of(booted, text).rate(ms(10), ms(30)), Some(1000.0));
    }
}
