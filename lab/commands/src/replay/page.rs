//! The page of a replay: response times and hit ratio over the size of the cache, how responses are
//! distributed, readahead windows over time.
//!
//! ```text
//!   rows --> a line a policy and readahead --> over sizes     where there are two sizes at least
//!                                          --> by responses   at the smallest, middle, largest
//!                                          --> over time      at the largest, where there are some
//! ```
//! # Invariants
//! - Every value on it is one of the rows, or of the histogram that they were taken from.

use std::fmt::Write as _;

use crate::curves::{Better, Chart, Section, Series, Sheet, Unit, X, Y};
use forerun_console::machine;
use forerun_core::units::Nanos;
use forerun_report::quantity;

use super::row::Row;
use super::{Done, Plan};
use crate::specs::PAGE_BYTES;

/// The contents of the page of `rows`.
pub(super) fn sheet(plan: &Plan, rows: &[Done], left_out: u64) -> Sheet {
    let title = plan.source.title();
    let sizes = sizes(rows);
    let mut charts = Vec::new();
    if sizes.len() > 1 {
        charts.extend(by_size(rows, &sizes));
    }
    for pages in shown(&sizes) {
        charts.extend(responses(rows, pages));
    }
    charts.extend(sizes.last().and_then(|&pages| windows(rows, pages)));
    let section = Section { title: title.clone(), facts: facts(plan, left_out), charts };
    Sheet {
        title: format!("Response times of {title}"),
        lead: String::new(),
        command: machine::command().join(" "),
        sections: vec![section],
    }
}

fn facts(plan: &Plan, left_out: u64) -> String {
    let layout = &plan.layout;
    let mut text = format!("{} requests", quantity::count(layout.requests));
    if layout.writes > 0 {
        let _ = write!(text, ", of which {} write", quantity::count(layout.writes));
    }
    if left_out > 0 {
        text += " and were left out";
    }
    let _ = write!(text, "; {} in reach", quantity::bytes(layout.bytes()));
    text
}

/// The sizes of the rows, ascending.
fn sizes(rows: &[Done]) -> Vec<u32> {
    let mut sizes: Vec<u32> = rows.iter().map(|done| done.row.cache_pages).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The smallest, the middle and the largest.
fn shown(sizes: &[u32]) -> Vec<u32> {
    let mut shown: Vec<u32> =
        [0, sizes.len() / 2, sizes.len().saturating_sub(1)].map(|at| sizes[at]).to_vec();
    shown.dedup();
    shown
}

/// The lines, in the order of the rows: policy and readahead.
fn lines(rows: &[Done]) -> Vec<(&str, &str)> {
    let mut lines = Vec::new();
    for Row { policy, readahead, .. } in rows.iter().map(|done| &done.row) {
        if !lines.contains(&(policy.as_str(), readahead.as_str())) {
            lines.push((policy.as_str(), readahead.as_str()));
        }
    }
    lines
}

/// A series a line that has a row of one of `sizes`, of what `values` says of its rows.
fn series<'r>(
    rows: &'r [Done],
    values: impl Fn(&dyn Fn(u32) -> Option<&'r Done>) -> Option<Vec<Option<f64>>>,
) -> Vec<Series> {
    let lines = lines(rows);
    let readaheads = lines.iter().any(|line| line.1 != lines[0].1);
    let policies = lines.iter().any(|line| line.0 != lines[0].0);
    let mut all = Vec::new();
    for (policy, readahead) in lines {
        let found = |pages: u32| {
            let same = |row: &Row| {
                (row.policy.as_str(), row.readahead.as_str(), row.cache_pages)
                    == (policy, readahead, pages)
            };
            rows.iter().find(|done| same(&done.row))
        };
        let Some(y) = values(&found) else { continue };
        let name = match (policies, readaheads) {
            (_, false) => policy.to_owned(),
            (false, true) => readahead.to_owned(),
            (true, true) => format!("{policy}, {readahead}"),
        };
        all.push(Series { name, bound: false, y });
    }
    all
}

/// Over the size of the cache.
fn by_size(rows: &[Done], sizes: &[u32]) -> Vec<Chart> {
    let chart = |title: &str, label: &str, unit, better, value: fn(&Row) -> f64| Chart {
        note: match better {
            Better::Higher => "Higher is better.".to_owned(),
            Better::Lower => "Lower is better.".to_owned(),
        },
        better: Some(better),
        series: series(rows, |found| {
            Some(sizes.iter().map(|&pages| Some(value(&found(pages)?.row))).collect())
        }),
        ..empty(title, X::Pages { pages: sizes.to_vec(), page_bytes: PAGE_BYTES }, label, unit)
    };
    let (higher, lower) = (Better::Higher, Better::Lower);
    #[rustfmt::skip]
    let charts = vec![
        chart("Mean response by cache size", "mean response, ms", Unit::Count, lower,
              |row| row.mean_response_us / 1e3),
        chart("Response that 99 % do not exceed", "p99, ms", Unit::Count, lower,
              |row| row.p99_us / 1e3),
        chart("Hit ratio by cache size", "hit ratio", Unit::Share, higher, |row| row.hit_ratio),
    ];
    charts
}

/// The distribution of responses with a cache of `pages`.
fn responses(rows: &[Done], pages: u32) -> Option<Chart> {
    let of_size = || rows.iter().filter(|done| done.row.cache_pages == pages);
    let ends: Vec<(Nanos, Nanos)> =
        of_size().filter_map(|done| done.responses.all.ends()).collect();
    let least = ends.iter().map(|ends| ends.0).min()?;
    let most = ends.iter().map(|ends| ends.1).max()?;
    let places = places(least, most);
    let series = series(rows, |found| {
        let all = &found(pages)?.responses.all;
        Some(places.iter().map(|&place| Some(all.share_within(place))).collect())
    });
    let bytes = quantity::bytes(u64::from(pages) * u64::from(PAGE_BYTES));
    let seconds = places.iter().map(|&place| quantity::seconds(place)).collect();
    let x = X::Times { label: "response, log".to_owned(), seconds, log: true };
    Some(Chart {
        note: "Requests that are answered within this time: higher is better.".to_owned(),
        series,
        ..empty(&format!("Responses with {bytes}"), x, "requests", Unit::Share)
    })
}

/// Durations from `least` to `most`, each longer than the last by the same factor: 1, 2, 5 of each
/// power of ten, and what lies between.
fn places(least: Nanos, most: Nanos) -> Vec<Nanos> {
    let mut places = Vec::new();
    let mut power = 1_u64;
    while power <= most.0 && places.len() < PLACES_MAX {
        for tenths in [10, 15, 20, 30, 50, 70] {
            let place = power.saturating_mul(tenths) / 10;
            if place.saturating_mul(2) >= least.0 && place / 2 <= most.0 && place > 0 {
                places.push(Nanos(place));
            }
        }
        let Some(next) = power.checked_mul(10) else { break };
        power = next;
    }
    places.dedup();
    places
}

/// Readahead windows over time, with a cache of `pages`.
fn windows(rows: &[Done], pages: u32) -> Option<Chart> {
    let of_size = || rows.iter().filter(|done| done.row.cache_pages == pages);
    let mut moments: Vec<Nanos> =
        of_size().flat_map(|done| done.window_sizes.means().map(|(at, _)| at)).collect();
    moments.sort_unstable();
    moments.dedup();
    if moments.is_empty() {
        return None;
    }
    let series = series(rows, |found| {
        let means: Vec<(Nanos, f64)> = found(pages)?.window_sizes.means().collect();
        let at = |moment: &Nanos| {
            let found = means.iter().find(|(at, _)| at == moment);
            found.map(|(_, mean)| mean * f64::from(PAGE_BYTES) / 1_024.0)
        };
        (!means.is_empty()).then(|| moments.iter().map(at).collect())
    });
    let bytes = quantity::bytes(u64::from(pages) * u64::from(PAGE_BYTES));
    let seconds = moments.iter().map(|&moment| quantity::seconds(moment)).collect();
    let x = X::Times { label: "time".to_owned(), seconds, log: false };
    Some(Chart {
        note: "The mean of the windows that are opened within an interval.".to_owned(),
        series,
        ..empty(&format!("Readahead windows with {bytes}"), x, "window, KiB", Unit::Count)
    })
}

fn empty(title: &str, x: X, label: &str, unit: Unit) -> Chart {
    Chart {
        title: title.to_owned(),
        note: String::new(),
        x,
        y: Y { label: label.to_owned(), unit },
        series: Vec::new(),
        better: None,
        baseline: None,
        claims: Vec::new(),
    }
}

/// Places of a distribution at most: 20 powers of ten.
const PLACES_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_enclose_all_responses_and_ascend() {
        for (least, most) in [(0, 0), (1_000, 1_000), (700, 9_000_000), (1, u64::MAX)] {
            let places = places(Nanos(least), Nanos(most));
            assert!(places.is_sorted_by(|a, b| a < b), "{least} {most}: {places:?}");
            assert!(places.len() <= PLACES_MAX + 6);
        }
        let places = places(Nanos(1_000), Nanos(2_000));
        assert!(places[0].0 <= 1_000 && places.last().is_some_and(|last| last.0 >= 2_000));
    }
}
