//! Figures in few letters; what is not known is a dash.

use gleaner_model::{CpuSet, Nanos, VcpuId};
use ratatui::text::{Line, Span};
use std::fmt::Display;

/// What stands for what is not known.
pub(crate) const UNKNOWN: &str = "-";

/// `12`, `1.2k`, `43k`, `2.0M`.
pub(crate) fn count(n: f64) -> String {
    let (value, unit) = match n {
        n if n < 1e3 => return format!("{n:.0}"),
        n if n < 1e6 => (n / 1e3, "k"),
        n => (n / 1e6, "M"),
    };
    if value < 10.0 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// So many in this time, a second.
pub(crate) fn rate(n: Option<u64>, observed_ns: u64) -> String {
    match n.filter(|_| observed_ns > 0) {
        Some(n) => format!("{}/s", count(n as f64 / (observed_ns as f64 / 1e9))),
        None => UNKNOWN.to_owned(),
    }
}

pub(crate) fn duration(ns: Option<f64>) -> String {
    ns.map_or_else(|| UNKNOWN.to_owned(), |ns| Nanos::from_f64(ns).to_string())
}

pub(crate) fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent > 0.0 && percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// How long something goes on: `12s`, `3m05s`, `2h10m`, `4d02h`.
pub(crate) fn age(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86400, s / 3600 % 24),
    }
}

/// As a CPU list.
pub(crate) fn vcpus(numbers: &[u32]) -> String {
    let set: CpuSet = numbers.iter().map(|vcpu| VcpuId(*vcpu)).collect();
    if set.is_empty() { "none".to_owned() } else { set.to_string() }
}

/// As many of these as have room, the first ones first.
pub(crate) fn fitting(parts: impl IntoIterator<Item = String>, width: u16) -> String {
    let mut text = String::new();
    for part in parts {
        let gap = if text.is_empty() { "" } else { "  " };
        if Span::raw(&text).width() + gap.len() + Span::raw(&part).width() <= usize::from(width) {
            text = text + gap + &part;
        }
    }
    text
}

/// `name    what`, as in `gleaner explain`.
pub(crate) fn named(name: &str, what: impl Display) -> Line<'static> {
    Line::raw(format!("{name:<8}{what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!([0.0, 999.4, 1200.0, 43_210.0, 2e6].map(count), ["0", "999", "1.2k", "43k", "2.0M"]);
        assert_eq!([rate(Some(5), 500_000_000), rate(Some(5), 0), rate(None, 1)], ["10/s", "-", "-"]);
        assert_eq!([0.0, 0.004, 0.123, 1.0].map(percent), ["0 %", "0.4 %", "12 %", "100 %"]);
        assert_eq!([5, 65, 3_725, 90_000].map(|s| age(s * 1_000_000_000)), ["5s", "1m05s", "1h02m", "1d01h"]);
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let parts = || ["one", "three", "two"].map(str::to_owned);
        assert_eq!(fitting(parts(), 80), "one  three  two");
        assert_eq!(fitting(parts(), 9), "one  two");
        assert_eq!(fitting(parts(), 0), "");
    }
}
