//! Ranges and ticks: round numbers that leave room for their labels.
//!
//! # Invariants
//! - A range has an extent, whatever the values are.
//! - Ticks lie within their range.

use super::{Chart, Unit, X};
use forerun_report::quantity::{bytes, count};

/// The values that an axis shows, and where its ticks stand.
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<f64>,
}

impl Range {
    /// Where `value` lies: 0 at the low end, 1 at the high one.
    pub(super) fn part(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

/// The values of a chart: from 0, unless all of a chart's curves lie far above it and are not flat,
/// or some lie below.
pub(super) fn values(chart: &Chart) -> Range {
    let all = || chart.series.iter().flat_map(|series| series.points().map(|(_, y)| y));
    let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let bars = matches!(chart.x, X::Classes { .. });
    let above = bars || least >= most || least < most / 2.0;
    let from = if above { least.min(0.0) } else { least };
    let flat = if chart.y.unit == Unit::Points { POINT } else { 1.0 };
    let most = if most > from { most } else { from + flat };
    let step = round_step((most - from) / TICKS);
    let (mut tick, mut end) = ((from / step).floor(), (most / step).ceil());
    let low = tick * step;
    if chart.y.unit == Unit::Share {
        // A ratio is never above 1, however round the tick above would be.
        end = end.min((1.0 / step).floor().max(tick + 1.0));
    }
    let mut ticks = Vec::new();
    while tick <= end {
        ticks.push(tick * step);
        tick += 1.0;
    }
    Range { low, high: (end * step).max(most), ticks }
}

/// The label of a value's tick.
pub(super) fn value_label(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Share => format!("{} %", trimmed(value * 100.0)),
        Unit::Points if value.abs() < f64::EPSILON => "0".to_owned(),
        Unit::Points if value > 0.0 => format!("+{}", trimmed(value * 100.0)),
        Unit::Points => trimmed(value * 100.0),
        Unit::Count => {
            let units = [(1e9, "G"), (1e6, "M"), (1e3, "K")];
            let unit = units.into_iter().find(|(unit, _)| value >= *unit);
            unit.map_or_else(|| trimmed(value), |(unit, name)| trimmed(value / unit) + name)
        }
    }
}

/// `value` without zeros that say nothing.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powi(exponent(step));
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= step * 0.999);
    digit.unwrap_or(10.0) * power
}

#[expect(clippy::cast_possible_truncation, reason = "of a finite positive number: within 400")]
fn exponent(value: f64) -> i32 {
    value.log10().floor() as i32
}

/// Sizes in powers of two, by their logarithm, with at most `most` ticks.
pub(super) fn sizes(pages: &[u32], most: u32) -> Range {
    let smallest = pages.iter().copied().min().unwrap_or(1).max(1);
    let largest = pages.iter().copied().max().unwrap_or(1).max(1);
    let (low, high) = (f64::from(smallest).log2(), f64::from(largest).log2());
    let margin = ((high - low) * 0.03).max(0.25);
    let (from, to) = (32 - (smallest - 1).leading_zeros(), largest.ilog2());
    let step = to.saturating_sub(from) / most.max(1) + 1;
    let ticks = (from..=to).step_by(step as usize).map(f64::from).collect();
    Range { low: low - margin, high: high + margin, ticks }
}

/// Times with at most `most` ticks: at round times, or on a log axis at powers of ten.
pub(super) fn times(seconds: &[f64], log: bool, most: u32) -> Range {
    let all = || seconds.iter().map(|&seconds| scaled(seconds, log));
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let (low, high) = if low < high { (low, high) } else { (low - 0.5, high + 0.5) };
    let step = (high - low) / f64::from(most.max(1));
    let step = if log { step.ceil().max(1.0) } else { round_step(step) };
    let mut ticks = Vec::new();
    let mut tick = (low / step).ceil();
    while tick * step <= high {
        ticks.push(tick * step);
        tick += 1.0;
    }
    Range { low, high, ticks }
}

/// A time as its axis has it.
pub(super) fn scaled(seconds: f64, log: bool) -> f64 {
    if log { seconds.max(f64::MIN_POSITIVE).log10() } else { seconds }
}

/// The label of a time's tick.
pub(super) fn time_label(seconds: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")];
    let unit = units.into_iter().find(|(unit, _)| seconds.abs() >= unit * 0.999_9);
    unit.map_or_else(|| "0".to_owned(), |(unit, name)| trimmed(seconds / unit) + " " + name)
}

/// A size in pages, and in bytes.
pub(super) fn size_labels(pages: u64, page_bytes: u32) -> (String, String) {
    (count(pages), bytes(pages * u64::from(page_bytes)))
}

/// Spaces between ticks, about.
const TICKS: f64 = 6.0;
/// One percentage point.
const POINT: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curves::tests::sheet;

    #[test]
    fn values_have_round_ticks_that_enclose_them() {
        #[rustfmt::skip]
        let rows: &[(&str, &[f64], f64, f64, usize)] = &[ // why  values  low  high  ticks
            ("from zero",           &[0.0, 0.55],   0.0, 0.6, 7),
            ("far above zero",      &[0.71, 0.93],  0.7, 0.95, 6),
            ("never above one",     &[0.1, 1.0],    0.0, 1.0, 6),
            ("all alike",           &[0.89, 0.89],  0.0, 1.0, 6),
            ("all one",             &[1.0, 1.0],    0.0, 1.0, 6),
            ("nothing",             &[],            0.0, 1.0, 6),
            ("below zero",          &[-0.1, 0.2],   -0.1, 0.2, 7),
            ("all below zero",      &[-0.3, -0.1],  -0.3, 0.0, 7),
        ];
        for (why, y, low, high, ticks) in rows {
            let mut chart = sheet().sections[0].charts[0].clone();
            chart.series.truncate(1);
            chart.series[0].y = y.iter().copied().map(Some).collect();
            let range = values(&chart);
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(close(range.low, *low), "{why}: {}", range.low);
            assert!(range.high >= y.iter().copied().fold(0.0, f64::max), "{why}");
            assert!(close(range.high, *high), "{why}: {}", range.high);
            assert_eq!(range.ticks.len(), *ticks, "{why}: {:?}", range.ticks);
        }
    }

    #[test]
    fn ticks_have_short_labels() {
        #[rustfmt::skip]
        let rows = [
            (Unit::Share, 0.05,        "5 %"),   (Unit::Share, 0.000_25, "0.025 %"),
            (Unit::Share, 1.0,         "100 %"), (Unit::Count, 0.0,      "0"),
            (Unit::Count, 1_200_000.0, "1.2M"),  (Unit::Count, 2_500.0,  "2.5K"),
            (Unit::Count, 999.0,       "999"),   (Unit::Count, 5e9,      "5G"),
            (Unit::Points, 0.05,       "+5"),    (Unit::Points, -0.125,  "-12.5"),
            (Unit::Points, 0.0,        "0"),
        ];
        for (unit, value, label) in rows {
            assert_eq!(value_label(unit, value), label);
        }
    }

    #[test]
    fn times_have_ticks_within_their_range() {
        #[rustfmt::skip]
        let rows: &[(&[f64], bool, u32, &[f64])] = &[
            (&[0.0, 60.0],       false, 6, &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]),
            (&[3.0, 3_600.0],    false, 3, &[2_000.0]),
            (&[1e-6, 1e-3, 2.0], true,  8, &[-6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0]),
            (&[1e-6, 1e-3, 2.0], true,  3, &[-6.0, -3.0, 0.0]),
            (&[7.0],             false, 6, &[6.6, 6.8, 7.0, 7.2, 7.4]),
            (&[],                false, 2, &[0.0, 0.5, 1.0]),
        ];
        for (seconds, log, most, ticks) in rows {
            let range = times(seconds, *log, *most);
            assert_eq!(range.ticks.len(), ticks.len(), "{seconds:?}: {:?}", range.ticks);
            let near = range.ticks.iter().zip(*ticks).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(near, "{seconds:?}: {:?}", range.ticks);
            assert!(range.low < range.high);
        }
    }

    #[test]
    fn sizes_have_ticks_at_powers_of_two() {
        #[rustfmt::skip]
        let rows: &[(&[u32], u32, &[f64])] = &[
            (&[1],               8, &[0.0]),
            (&[3, 100],          8, &[2.0, 3.0, 4.0, 5.0, 6.0]),
            (&[1, 1 << 20],      6, &[0.0, 4.0, 8.0, 12.0, 16.0, 20.0]),
            (&[5],               8, &[]),
            (&[],                8, &[0.0]),
        ];
        for (pages, most, ticks) in rows {
            let range = sizes(pages, *most);
            assert_eq!(range.ticks, *ticks, "{pages:?}");
            assert!(range.low < range.high);
        }
        for (seconds, label) in
            [(0.0, "0"), (2.5e-7, "250 ns"), (1e-4, "100 us"), (0.02, "20 ms"), (3_600.0, "3600 s")]
        {
            assert_eq!(time_label(seconds), label);
        }
        assert_eq!(size_labels(1_024, 4_096), ("1,024".to_owned(), "4 MiB".to_owned()));
    }
}
