//! Scales: which values an axis reaches over, and where its ticks are.

use crate::show::{Axis, Extent};
use plotters::coord::ranged1d::{BoldPoints, Ranged};
use plotters::coord::types::RangedCoordf64;

/// A range of values and how they are laid out.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub from: f64,
    pub to: f64,
    log: bool,
    pub ticks: Vec<f64>,
}

impl Scale {
    /// An axis' for these values, with fewer ticks where there is little room.
    pub fn of(axis: &Axis, values: &[f64], narrow: bool) -> Self {
        let (low, high) = bounds(values.iter().copied()).unwrap_or((0.0, 1.0));
        match axis.extent {
            Extent::FromZeroOrLog if low > 0.0 && high / low > 20.0 => Self::log(values),
            Extent::FromZero | Extent::FromZeroOrLog => Self::from_zero(low, high),
            Extent::Log => Self::log(values),
            Extent::Ratio => Self::ratio(values),
            Extent::Exactly(from, to) => Self::exactly(from, to),
            Extent::Whole(from, to, most) => {
                let most = if narrow { most.min(8) } else { most };
                // `as` saturates.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let every = ((to.floor() as u64).div_ceil(most)).max(1);
                let ticks =
                    (0..=most).map(|n| n.saturating_mul(every) as f64).filter(|tick| (from..=to).contains(tick));
                Self { ticks: ticks.collect(), ..Self::exactly(from, to) }
            }
        }
    }

    /// From 0 to a little more than the greatest; from less where there is less.
    fn from_zero(low: f64, high: f64) -> Self {
        if low < 0.0 {
            let spare = (high.max(0.0) - low) * 0.06;
            return Self::exactly(low - spare, high.max(0.0) + spare);
        }
        Self::exactly(0.0, if high > 0.0 { high * 1.06 } else { 1.0 })
    }

    /// Ratios around 1.
    fn ratio(values: &[f64]) -> Self {
        /// Ticks where the greatest is less than so many times the least.
        const FINE: [(f64, &[f64]); 3] = [
            (2.2, &[0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6]),
            (6.0, &[0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0]),
            (60.0, &[0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]),
        ];
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let (low, high) = bounds(positive.chain([0.8, 1.25])).unwrap_or((0.8, 1.25));
        let scale = Self::in_decades(low.log10() - 0.03, high.log10() + 0.03);
        let span = 10f64.powf(scale.to - scale.from);
        let Some((_, ticks)) = FINE.into_iter().find(|(most, _)| span < *most) else { return scale };
        let within = |tick: &f64| (scale.from..=scale.to).contains(&tick.log10());
        Self { ticks: ticks.iter().copied().filter(within).collect(), ..scale }
    }

    /// Between these two, in equal steps.
    pub fn exactly(from: f64, to: f64) -> Self {
        let ticks = RangedCoordf64::from(from..to).key_points(BoldPoints(9));
        Self { from, to, log: false, ticks }
    }

    /// In equal ratios. What is not above zero is taken for 1.
    fn log(values: &[f64]) -> Self {
        let positive = values.iter().map(|&value| if value > 0.0 { value } else { 1.0 });
        let (low, high) = bounds(positive).unwrap_or((1.0, 10.0));
        let (low, high) = (low.log10(), high.log10());
        // Times that agree must not fill the whole width with their last digit.
        let spare = if high - low < 0.34 { 0.28 } else { 0.08 };
        Self::in_decades(low - spare, high + spare)
    }

    /// Between these two powers of ten.
    fn in_decades(from: f64, to: f64) -> Self {
        let (multiples, every): (&[f64], i32) = match to - from {
            decades if decades > 9.0 => (&[1.0], 3),
            decades if decades > 4.5 => (&[1.0], 1),
            decades if decades > 2.5 => (&[1.0, 3.0], 1),
            decades if decades < 0.8 => (&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], 1),
            _ => (&[1.0, 2.0, 5.0], 1),
        };
        // `as` saturates.
        #[allow(clippy::cast_possible_truncation)]
        let ticks = (from.floor() as i32..=to.ceil() as i32)
            .filter(|decade| decade % every == 0)
            .flat_map(|decade| multiples.iter().map(move |multiple| multiple * 10f64.powi(decade)))
            .filter(|tick| (from..=to).contains(&tick.log10()))
            .collect();
        Self { from, to, log: true, ticks }
    }

    /// Where a value is between `from` and `to`.
    pub fn place(&self, value: f64) -> f64 {
        let value = match (self.log, value > 0.0) {
            (true, true) => value.log10(),
            (true, false) => 0.0,
            (false, _) => value,
        };
        if value.is_finite() { value.clamp(self.from, self.to) } else { self.from }
    }
}

fn bounds(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |bounds, value| {
        let (low, high) = bounds.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}
