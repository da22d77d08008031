//! The charts of the page's script: every chart as plain data, and its text alternative.
//!
//! ```text
//!   lines     x = streams, a series a policy (+ the device's limit)   throughput, delay
//!   requests  [at, done, offset, bytes, kind] a request               one panel a policy
//!   windows   an array a window, see [`Chart::Windows`]               one panel a policy
//! ```
//!
//! The script finds a chart's place by its id. It writes how many points it drew into that place,
//! so that a test can compare the count with the data.
//!
//! # Invariants
//! - A chart holds finite numbers only; a figure that is none is a gap.
//! - At most [`REQUESTS_MAX`] requests and [`WINDOWS_MAX`] windows a panel go into the page.

use super::group::{Group, Groups};
use crate::quantity::figure;
use crate::record::Run;
use forerun_core::readahead::Cause;
use serde::Serialize;
use std::fmt::Write;

/// The script's data.
#[derive(Serialize)]
pub(super) struct Data<'a> {
    pub(super) policies: &'a [String],
    /// The names of causes, by their number.
    pub(super) causes: [&'static str; Cause::ALL.len()],
    pub(super) charts: Vec<Chart>,
}

/// One chart and the id of its place.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Chart {
    /// A line a policy, by number of streams.
    Lines {
        id: String,
        unit: &'static str,
        x: Vec<u32>,
        limit: Option<Vec<Option<f64>>>,
        series: Vec<Series>,
    },
    /// Requests over time. Panels of one `set` share their axes.
    Requests { id: String, set: String, policy: usize, requests: Vec<(u64, u64, u64, u64, u8)> },
    /// Readahead windows over time, on the axes of the requests of their `set`. Each is `[at,
    /// last use, offset, bytes, cause, wasted, used, late, unread, fresh, tail, failed, handle]`,
    /// and the stream at its end if it has one.
    Windows { id: String, set: String, policy: usize, windows: Vec<Vec<u64>> },
}

/// One policy's line.
#[derive(Serialize)]
pub(super) struct Series {
    pub(super) policy: usize,
    pub(super) y: Vec<Option<f64>>,
    /// The slowest and the fastest repeat, where known.
    pub(super) spread: Vec<Option<(f64, f64)>>,
}

/// The figure that a lines chart shows.
pub(super) struct Measure {
    pub(super) title: &'static str,
    /// The better direction.
    pub(super) note: &'static str,
    pub(super) unit: &'static str,
    /// How its ids begin.
    name: &'static str,
    pub(super) of: fn(&Run) -> f64,
    /// Whether the device has a limit of it, and repeats a spread.
    pub(super) has_limit: bool,
}

impl Measure {
    pub(super) const ALL: [Self; 2] = [
        Self {
            title: "Throughput",
            note: "Higher is better.",
            unit: "MB/s",
            name: "throughput",
            of: |run| run.mb_per_second,
            has_limit: true,
        },
        Self {
            title: "I/O delay",
            note: "Lower is better. Time that readers waited for the device.",
            unit: "s",
            name: "delay",
            of: |run| run.delay_seconds,
            has_limit: false,
        },
    ];

    pub(super) fn id(&self, group: usize) -> String {
        format!("{}-{group}", self.name)
    }
}

/// The chart of one measure in one group.
pub(super) fn lines(group: &Group<'_>, number: usize, measure: &Measure) -> Chart {
    let x = group.streams();
    let limit: Vec<Option<f64>> =
        x.iter().map(|&n| group.limit(n).filter(|v| v.is_finite())).collect();
    let series = group.policies().into_iter().map(|policy| {
        let runs: Vec<Option<&Run>> = x.iter().map(|&n| group.run(policy, n)).collect();
        let figure = |run: &&Run| Some((measure.of)(run)).filter(|value| value.is_finite());
        let spread = |run: &&Run| {
            let spread = run
                .spread
                .filter(|s| measure.has_limit && s.min.is_finite() && s.max.is_finite())?;
            Some((spread.min, spread.max))
        };
        Series {
            policy,
            y: runs.iter().map(|run| run.as_ref().and_then(figure)).collect(),
            spread: runs.iter().map(|run| run.as_ref().and_then(spread)).collect(),
        }
    });
    Chart::Lines {
        id: measure.id(number),
        unit: measure.unit,
        limit: (measure.has_limit && limit.iter().any(Option::is_some)).then_some(limit),
        series: series.collect(),
        x,
    }
}

/// The id of a panel of requests.
pub(super) fn panel_id(group: usize, streams: u32, policy: usize) -> String {
    format!("requests-{group}-{streams}-{policy}")
}

/// The panel of one run, or none when its requests were not kept.
pub(super) fn panel(group: usize, policy: usize, run: &Run) -> Option<Chart> {
    if run.requests.is_empty() {
        return None;
    }
    let mut requests: Vec<(u64, u64, u64, u64, u8)> = run
        .requests
        .iter()
        .map(|r| (r.at_us, r.done_us.max(r.at_us), r.offset, r.bytes, r.kind as u8))
        .collect();
    requests.sort_unstable();
    requests.truncate(REQUESTS_MAX);
    Some(Chart::Requests {
        id: panel_id(group, run.streams, policy),
        set: set(group, run),
        policy,
        requests,
    })
}

/// The id of a panel of windows.
pub(super) fn windows_id(group: usize, streams: u32, policy: usize) -> String {
    format!("windows-{group}-{streams}-{policy}")
}

/// The windows of one run, or none where the record has none.
pub(super) fn windows(group: usize, policy: usize, run: &Run) -> Option<Chart> {
    if run.windows.is_empty() {
        return None;
    }
    let windows = run.windows.iter().take(WINDOWS_MAX).map(|w| {
        let (times, place) = ([w.at_us, w.last_use_us.max(w.at_us)], [w.offset, w.bytes]);
        let outcomes = [w.wasted_bytes, w.used_bytes, w.late_bytes, w.unread_bytes];
        let sizes = [w.fresh_bytes, w.tail_bytes, w.failed_bytes, w.handle.into()];
        let stream = w.stream.map(u64::from);
        let numbers = times.into_iter().chain(place).chain([w.cause as u64]);
        numbers.chain(outcomes).chain(sizes).chain(stream).collect()
    });
    Some(Chart::Windows {
        id: windows_id(group, run.streams, policy),
        set: set(group, run),
        policy,
        windows: windows.collect(),
    })
}

/// The panels that share their axes.
fn set(group: usize, run: &Run) -> String {
    format!("{group}-{}", run.streams)
}

/// A lines chart in words, for readers without sight.
pub(super) fn lines_in_words(page: &Groups<'_>, group: &Group<'_>, measure: &Measure) -> String {
    let mut words = format!("{} in {} by number of streams.", measure.title, measure.unit);
    for policy in group.policies() {
        let points: Vec<String> = group
            .rows
            .iter()
            .filter(|row| row.policy == policy)
            .map(|row| format!("{} at {}", figure((measure.of)(row.run)), row.run.streams))
            .collect();
        let _ = write!(words, " {}: {}.", page.labels[policy], points.join(", "));
    }
    words
}

/// The most requests of one run that a page carries: about half a megabyte.
pub(super) const REQUESTS_MAX: usize = 20_000;
/// The most windows of one run that a page carries: about a megabyte and a half.
pub(super) const WINDOWS_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{DeviceRequest, RequestKind, RunRecord, Spread};
    use crate::window::Window;

    fn run(readahead: &str, streams: u32, mb_per_second: f64) -> Run {
        let readahead = readahead.to_owned();
        Run { readahead, streams, mb_per_second, delay_seconds: 7.0, ..Run::default() }
    }

    #[test]
    fn a_line_has_a_point_for_every_run_and_gaps_for_the_others() {
        let mut spread = run("a", 1, 1.0);
        spread.spread = Some(Spread { min: 0.5, max: 1.5 });
        spread.limit_mb_per_second = Some(9.0);
        let mut odd = run("b", 1, 4.0);
        odd.spread = Some(Spread { min: f64::NAN, max: 1.0 });
        let runs = vec![spread, run("a", 10, f64::INFINITY), odd];
        let records = [RunRecord { runs, ..RunRecord::default() }];
        let page = Groups::new(&records);
        let group = &page.groups[0];
        let json = |measure| serde_json::to_value(lines(group, 3, measure)).unwrap();
        assert_eq!(
            json(&Measure::ALL[0]),
            serde_json::json!({
                "type": "lines", "id": "throughput-3", "unit": "MB/s", "x": [1, 10],
                "limit": [9.0, null],
                "series": [
                    {"policy": 0, "y": [1.0, null], "spread": [[0.5, 1.5], null]},
                    {"policy": 1, "y": [4.0, null], "spread": [null, null]},
                ],
            })
        );
        let delay = json(&Measure::ALL[1]);
        assert_eq!((&delay["limit"], &delay["id"]), (&serde_json::Value::Null, &"delay-3".into()));
        assert_eq!(delay["series"][0]["y"], serde_json::json!([7.0, 7.0]));
        assert_eq!(delay["series"][0]["spread"], serde_json::json!([null, null]));
        assert_eq!(
            lines_in_words(&page, group, &Measure::ALL[0]),
            "Throughput in MB/s by number of streams. a: 1.00 at 1, n/a at 10. b: 4.00 at 1."
        );
    }

    #[test]
    fn a_panel_of_windows_has_their_outcomes_and_no_more_than_the_most() {
        let mut with = run("a", 10, 1.0);
        assert!(super::windows(0, 0, &with).is_none());
        let named = Window { stream: Some(7), cause: Cause::Async, ..Window::default() };
        with.windows = vec![
            Window {
                at_us: 5,
                last_use_us: 3,
                offset: 8,
                bytes: 9,
                wasted_bytes: 1,
                used_bytes: 2,
                late_bytes: 3,
                unread_bytes: 4,
                fresh_bytes: 10,
                tail_bytes: 6,
                failed_bytes: 7,
                handle: 11,
                ..Window::default()
            },
            named,
        ];
        assert_eq!(
            serde_json::to_value(super::windows(2, 1, &with).unwrap()).unwrap(),
            serde_json::json!({
                "type": "windows", "id": "windows-2-10-1", "set": "2-10", "policy": 1,
                "windows": [
                    [5, 5, 8, 9, 0, 1, 2, 3, 4, 10, 6, 7, 11],
                    [0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 7],
                ],
            })
        );
        with.windows = vec![named; WINDOWS_MAX + 1];
        let Some(Chart::Windows { windows, .. }) = super::windows(0, 0, &with) else {
            panic!("a panel")
        };
        assert_eq!(windows.len(), WINDOWS_MAX);
    }

    #[test]
    fn a_panel_has_its_requests_in_order_of_time_and_no_more_than_the_most() {
        let request = |at_us, kind| DeviceRequest { at_us, done_us: 3, offset: 8, bytes: 4, kind };
        let mut with = run("a", 10, 1.0);
        assert!(panel(0, 0, &with).is_none());
        with.requests = vec![
            request(5, RequestKind::Write),
            request(1, RequestKind::Demand),
            request(2, RequestKind::Readahead),
        ];
        let json = serde_json::to_value(panel(2, 1, &with).unwrap()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "requests", "id": "requests-2-10-1", "set": "2-10", "policy": 1,
                "requests": [[1, 3, 8, 4, 0], [2, 3, 8, 4, 1], [5, 5, 8, 4, 2]],
            })
        );
        with.requests = vec![request(1, RequestKind::Demand); REQUESTS_MAX + 1];
        let Some(Chart::Requests { requests, .. }) = panel(0, 0, &with) else { panic!("a panel") };
        assert_eq!(requests.len(), REQUESTS_MAX);
    }
}
