//! One chart as SVG markup: axes, grid, lines with their marks and names, or bars.
//!
//! ```text
//!   class s0..s11  colour of a series; beyond the twelfth they repeat
//!   class bound    the bound of all series: dashed, without marks
//!   class best     a ring around the best of a place
//!   data-series    the number of a series, for the page's script
//! ```
//! Shapes and dashes differ too, so that colour is not all that tells lines apart, and curves have
//! their names at their ends where there is room for all.
//!
//! # Invariants
//! - Colours are the style sheet's, so that light and dark need no second picture.

use std::fmt::Write;

use super::axes::{self, Range};
use super::labels::{self, End};
use super::{Chart, Series, Unit, X, views};
use forerun_report::html::escape;
use forerun_report::quantity::float;

/// The size of a picture, and what its axes and names take of it.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Where the plot begins.
    pub(super) left: f64,
    /// What is right of the plot.
    room: f64,
    /// From the plot to the names.
    leader: f64,
    /// Ticks of a size axis at most.
    ticks: u32,
}

impl Frame {
    pub(super) const TOP: f64 = 12.0;
    /// As wide as the page.
    pub(super) const WIDE: Self =
        Self { width: 1_090.0, height: 470.0, left: 76.0, room: MARGIN, leader: 30.0, ticks: 12 };
    /// Two beside each other.
    pub(super) const HALF: Self =
        Self { width: 530.0, height: 330.0, left: 76.0, room: MARGIN, leader: 30.0, ticks: 6 };
    /// On a telephone.
    pub(super) const NARROW: Self =
        Self { width: 340.0, height: 380.0, left: 62.0, room: MARGIN, leader: 20.0, ticks: 3 };

    /// With room for the names of the curves of `chart`, where there is enough.
    pub(super) fn with_names(self, chart: &Chart) -> Self {
        let drawn = chart.series.iter().filter(|series| series.points().next().is_some());
        let names: Vec<usize> = drawn.map(|series| series.name.chars().count()).collect();
        let high = float(names.len() as u64) * NAME_GAP;
        let fits = names.len() > 1 && high <= self.bottom() - Self::TOP + NAME_GAP;
        if !fits || matches!(chart.x, X::Classes { .. }) {
            return self;
        }
        let longest = names.into_iter().max().unwrap_or(0) as u64;
        let wide = self.leader + 4.0 + float(longest) * NAME_CHARACTER;
        Self { room: wide.min(self.width * NAMES_MAX), ..self }
    }

    pub(super) fn right(self) -> f64 {
        self.width - self.room
    }

    pub(super) fn bottom(self) -> f64 {
        self.height - 62.0
    }

    fn down(self, part: f64) -> f64 {
        self.bottom() - part * (self.bottom() - Self::TOP)
    }

    fn across(self, part: f64) -> f64 {
        self.left + part * (self.right() - self.left)
    }
}

/// Where each place of `chart` lies, from the left edge.
pub(super) fn places(chart: &Chart, frame: Frame) -> Vec<f64> {
    match &chart.x {
        X::Pages { pages, .. } => {
            let range = axes::sizes(pages, frame.ticks);
            let at = |&pages: &u32| frame.across(range.part(f64::from(pages.max(1)).log2()));
            pages.iter().map(at).collect()
        }
        X::Times { seconds, log, .. } => {
            let range = axes::times(seconds, *log, frame.ticks);
            let at = |&seconds: &f64| frame.across(range.part(axes::scaled(seconds, *log)));
            seconds.iter().map(at).collect()
        }
        X::Classes { names, .. } | X::Steps { names, .. } => {
            let width = 1.0 / float(names.len().max(1) as u64);
            (0..names.len() as u64).map(|n| frame.across((float(n) + 0.5) * width)).collect()
        }
    }
}

/// The content of the `svg` element of a chart.
pub(super) fn plot(chart: &Chart, frame: Frame) -> String {
    let values = axes::values(chart);
    let places = places(chart, frame);
    let mut text = value_axis(chart, &values, frame);
    text += &place_axis(chart, &places, frame);
    let best = views::best(chart);
    let mut ends = Vec::new();
    for (number, series) in chart.series.iter().enumerate() {
        let at = |(at, y)| Some((at, *places.get(at)?, frame.down(values.part(y))));
        let all: Vec<(usize, f64, f64)> = series.points().filter_map(at).collect();
        let points: Vec<(f64, f64)> = all.iter().map(|&(_, x, y)| (x, y)).collect();
        let _ = write!(text, "<g data-series=\"{number}\" class=\"{}\">", class(number, series));
        text += &match &chart.x {
            X::Pages { .. } | X::Steps { .. } => line(number, series, &points),
            X::Times { .. } if points.is_empty() => String::new(),
            X::Times { .. } => polyline(number, series, &points),
            X::Classes { names, .. } => {
                let room = (frame.right() - frame.left) / float(names.len().max(1) as u64);
                let width = room * 0.78 / float(chart.series.len() as u64);
                let left = width * (float(number as u64) - float(chart.series.len() as u64) / 2.0);
                bars(&points, left, width, frame.bottom())
            }
        };
        for (_, x, y) in all.iter().filter(|(at, ..)| best[*at].contains(&number)) {
            let _ = write!(text, "<circle class=\"best\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"/>");
        }
        text += "</g>\n";
        ends.push(End { series: number, points: points.into_iter().rev().collect() });
    }
    text + &names(chart, &ends, frame)
}

/// The name of each curve beside its end.
fn names(chart: &Chart, ends: &[End], frame: Frame) -> String {
    if frame.room <= MARGIN {
        return String::new();
    }
    // Half a character for what rounding took.
    let fits = (frame.room - frame.leader - 4.0) / NAME_CHARACTER + 0.5;
    let mut text = String::new();
    for (end, y) in labels::placed(ends, Frame::TOP, frame.bottom(), NAME_GAP) {
        let End { series: number, points } = &ends[end];
        let (series, (from_x, from_y)) = (&chart.series[*number], points[0]);
        let (name, x) = (shortened(&series.name, fits), frame.right() + frame.leader);
        let _ = writeln!(
            text,
            "<g class=\"{} ended\" data-name=\"{number}\"><polyline class=\"leader\" \
             points=\"{:.1},{from_y:.1} {:.1},{y:.1} {:.1},{y:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\">{}</text></g>",
            class(*number, series),
            from_x + 5.0,
            x - 9.0,
            x - 3.0,
            y + 4.0,
            escape(&name),
        );
    }
    text
}

/// `name` in about so many characters.
fn shortened(name: &str, fits: f64) -> String {
    let mut left = fits;
    let short: String = name
        .chars()
        .take_while(|_| {
            left -= 1.0;
            left >= 0.0
        })
        .collect();
    if short.len() == name.len() {
        return short;
    }
    let kept: Vec<char> = short.chars().collect();
    kept[..kept.len().saturating_sub(1)].iter().collect::<String>() + "\u{2026}"
}

/// The colour of a series.
pub(super) fn class(number: usize, series: &Series) -> String {
    if series.bound { "bound".to_owned() } else { format!("s{}", number % COLOURS) }
}

/// A piece of a line with its mark, for a legend: 26 wide, around (13, 0).
pub(super) fn key(chart: &Chart, number: usize, series: &Series) -> String {
    if matches!(chart.x, X::Classes { .. }) {
        return "<rect class=\"bar\" x=\"7\" y=\"-5.5\" width=\"11\" height=\"11\"/>".to_owned();
    }
    let points = [(0.0, 0.0), (26.0, 0.0)];
    let line = polyline(number, series, &points);
    let marked = !series.bound && !matches!(chart.x, X::Times { .. });
    if marked { line + &mark(number, 13.0, 0.0) } else { line }
}

fn value_axis(chart: &Chart, values: &Range, frame: Frame) -> String {
    let (left, right) = (frame.left, frame.right());
    let mut text = String::new();
    for &tick in &values.ticks {
        let y = frame.down(values.part(tick));
        let zero =
            if chart.y.unit == Unit::Points && tick.abs() < f64::EPSILON { " zero" } else { "" };
        let _ = writeln!(
            text,
            "<line class=\"grid{zero}\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" \
             y2=\"{y:.1}\"/>\
             <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            y + 4.0,
            axes::value_label(chart.y.unit, tick),
        );
    }
    let middle = f64::midpoint(Frame::TOP, frame.bottom());
    let _ = writeln!(
        text,
        "<text class=\"label\" x=\"12\" y=\"{middle:.1}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 12 {middle:.1})\">{}</text>",
        escape(&chart.y.label),
    );
    text
}

fn place_axis(chart: &Chart, places: &[f64], frame: Frame) -> String {
    let bottom = frame.bottom();
    let mut text = String::new();
    let mut label = |x: f64, lines: [&str; 2]| {
        for (line, down) in lines.into_iter().zip([18.0, 33.0]) {
            let y = bottom + down;
            let _ = writeln!(
                text,
                "<text class=\"label\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
                escape(line),
            );
        }
    };
    let name = match &chart.x {
        X::Pages { pages, page_bytes } => {
            let range = axes::sizes(pages, frame.ticks);
            for &tick in &range.ticks {
                let (count, bytes) = axes::size_labels(power(tick), *page_bytes);
                label(frame.across(range.part(tick)), [&bytes, &count]);
            }
            "cache size, below it in pages"
        }
        X::Times { label: name, seconds, log } => {
            let range = axes::times(seconds, *log, frame.ticks);
            for &tick in &range.ticks {
                let time = if *log { 10_f64.powf(tick) } else { tick };
                label(frame.across(range.part(tick)), [&axes::time_label(time), ""]);
            }
            name
        }
        X::Classes { label: name, names } | X::Steps { label: name, names } => {
            // Every label where there is room for all, else every second, third...
            let longest = names.iter().map(String::len).max().unwrap_or(0) as u64;
            let room = (frame.right() - frame.left) / float(names.len().max(1) as u64);
            let step = (float(longest) * CHARACTER / room).ceil().clamp(1.0, 64.0);
            for (number, (name, &x)) in names.iter().zip(places).enumerate() {
                if float(number as u64) % step == 0.0 {
                    label(x, [name, ""]);
                }
            }
            name
        }
    };
    let middle = f64::midpoint(frame.left, frame.right());
    let _ = writeln!(
        text,
        "<text class=\"label\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        bottom + 54.0,
        escape(name),
    );
    text
}

/// 2 to the power of a tick.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ticks are 0 to 32")]
fn power(tick: f64) -> u64 {
    1 << tick as u32
}

fn line(number: usize, series: &Series, points: &[(f64, f64)]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let mut text = polyline(number, series, points);
    if !series.bound {
        text.extend(points.iter().map(|&(x, y)| mark(number, x, y)));
    }
    text
}

fn polyline(number: usize, series: &Series, points: &[(f64, f64)]) -> String {
    let dash = match (series.bound, number / SOLID) {
        (true, _) => " stroke-dasharray=\"3 4\"".to_owned(),
        (false, 0) => String::new(),
        (false, round) => format!(" stroke-dasharray=\"7 {}\"", 2 + 2 * round),
    };
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polyline class=\"line\"{dash} points=\"{}\"/>", points.join(" "))
}

/// A mark around a point; five shapes.
fn mark(number: usize, x: f64, y: f64) -> String {
    let corners: &[(f64, f64)] = match number % 5 {
        0 => return format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"/>"),
        1 => &[(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)],
        2 => &[(0.0, -4.5), (4.2, 3.2), (-4.2, 3.2)],
        3 => &[(0.0, -4.7), (4.7, 0.0), (0.0, 4.7), (-4.7, 0.0)],
        _ => &[(0.0, 4.5), (4.2, -3.2), (-4.2, -3.2)],
    };
    let at = |(dx, dy): &(f64, f64)| format!("{:.1},{:.1}", x + dx, y + dy);
    let points: Vec<String> = corners.iter().map(at).collect();
    format!("<polygon class=\"mark\" points=\"{}\"/>", points.join(" "))
}

fn bars(points: &[(f64, f64)], left: f64, width: f64, bottom: f64) -> String {
    let bar = |&(x, y): &(f64, f64)| {
        format!(
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
            x + left,
            (bottom - y).max(0.0),
        )
    };
    points.iter().map(bar).collect()
}

const COLOURS: usize = 12;
/// Lines that are drawn without dashes.
const SOLID: usize = 8;
/// Right of a plot without names.
const MARGIN: f64 = 16.0;
/// From one name to the next.
const NAME_GAP: f64 = 15.0;
/// The width of a character of a name, at most.
const NAME_CHARACTER: f64 = 8.2;
/// The part of a picture that names take at most.
const NAMES_MAX: f64 = 0.42;
/// The width of a character of a label, about.
const CHARACTER: f64 = 7.5;

#[cfg(test)]
mod tests;
