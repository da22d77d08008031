//! The markup around each chart: title, legend, text alternative, and the table behind it.
//!
//! The script finds a chart's place by the id that [`charts`] gave its data. The words and figures
//! here say the same, for readers without the script or without sight.
//!
//! # Invariants
//! - Every chart in the data has one figure with its id, and every such figure its chart.
//! - A run without requests keeps its panel, which says so, as long as another run has some.

use std::collections::BTreeSet;

use super::charts::{self, Chart, Measure};
use super::group::{Group, Groups, Row};
use super::panels::{
    Caption, HINT, TABLE_ROWS_MAX, captioned, first_of, legend, more_in_record, plot,
};
use super::summary::{group_in_words, policy, seconds};
use super::windows;
use crate::html::{DASH, Text, figure_heads, figures, folded};
use crate::quantity::{bytes, count, figure, float};
use crate::record::{DeviceRequest, RequestKind, Run};
use maud::{Markup, html};

/// The charts of one group; what they draw is appended to `charts`.
pub(super) fn group_section(
    page: &Groups<'_>,
    group: &Group<'_>,
    number: usize,
    charts: &mut Vec<Chart>,
) -> Markup {
    let streams = group.streams();
    // A single dot beside another group's lines says no more than the table of runs.
    let several = |group: &Group<'_>| group.streams().len() > 1;
    let with_lines = several(group) || !page.groups.iter().any(several);
    let with_limit = with_lines && streams.iter().any(|&n| group.limit(n).is_some());
    html! {
        section.charts {
            h2 { (group_in_words(group)) }
            ul.legend {
                @for number in group.policies() { li { (policy(page, number)) } }
                @if with_limit {
                    li { span.policy { i class="mark limit" {} "device limit" } }
                }
            }
            @if with_lines {
                div.pair {
                    @for measure in &Measure::ALL {
                        @let () = charts.push(charts::lines(group, number, measure));
                        (lines_figure(page, group, number, measure))
                    }
                }
            }
            @for &n in streams.iter().rev() { (request_panels(page, group, number, n, charts)) }
        }
    }
}

fn lines_figure(page: &Groups<'_>, group: &Group<'_>, number: usize, measure: &Measure) -> Markup {
    html! {
        figure id=(measure.id(number)) data-chart="lines" {
            figcaption {
                div {
                    h3 { (measure.title) " by streams " span.unit { (measure.unit) } }
                    p { (measure.note) }
                }
                label hidden { input type="checkbox" class="log"; " log scale" }
            }
            (plot(&html! { (Text(charts::lines_in_words(page, group, measure))) }))
            (lines_table(page, group, measure))
        }
    }
}

/// The figures of a lines chart: streams down, policies across.
fn lines_table(page: &Groups<'_>, group: &Group<'_>, measure: &Measure) -> Markup {
    let policies = group.policies();
    let streams = group.streams();
    let with_limit = measure.has_limit && streams.iter().any(|&n| group.limit(n).is_some());
    let values = |n: u32| {
        let of = |&policy: &usize| group.run(policy, n).map(|run| (measure.of)(run));
        let limit = with_limit.then(|| group.limit(n));
        policies.iter().map(of).chain(limit).collect::<Vec<Option<f64>>>()
    };
    let heads = html! {
        (figure_heads(["Streams"]))
        (figure_heads(policies.iter().map(|&number| policy(page, number))))
        (figure_heads(with_limit.then_some("Device limit")))
    };
    let rows = html! {
        @for &n in &streams {
            tr {
                th scope="row" class="n" { (count(n.into())) }
                (figures(values(n).into_iter().map(|value| html! {
                    @if let Some(value) = value { (figure(value)) } @else { (DASH) }
                })))
            }
        }
    };
    folded("Figures", &heads, &rows, None)
}

/// The panels of all policies at one number of streams, side by side on the same axes.
fn request_panels(
    page: &Groups<'_>,
    group: &Group<'_>,
    number: usize,
    streams: u32,
    charts: &mut Vec<Chart>,
) -> Markup {
    let rows = || group.rows.iter().filter(|row| row.run.streams == streams);
    let requests = rows().flat_map(|row| &row.run.requests);
    let kinds: BTreeSet<RequestKind> = requests.map(|request| request.kind).collect();
    let panels = html! {
        @for row in rows() {
            @let name = policy(page, row.policy);
            @if let Some(chart) = charts::panel(number, row.policy, row.run) {
                @let () = charts.push(chart);
                (panel_figure(page, row, &charts::panel_id(number, streams, row.policy)))
            } @else {
                figure.empty {
                    figcaption { h4 { (name) } p { (run_in_words(row.run)) } }
                    p.none { "The requests of this run were not kept." }
                }
            }
        }
    };
    let windows = windows::windows_panels(page, group, number, streams, charts);
    let caption = Caption {
        title: "Device requests over time",
        note: "Each bar is a request: its height is what it reads, its width how long it took.",
        hint: Some(HINT),
    };
    let requests = html! {
        @if !kinds.is_empty() {
            (captioned(&caption, streams, &legend(kinds.into_iter().map(kind_in_words)), &panels))
        }
    };
    html! {
        @if !(requests.0.is_empty() && windows.0.is_empty()) {
            div.set data-set=(format!("{number}-{streams}")) { (requests) (windows) }
        }
    }
}

fn panel_figure(page: &Groups<'_>, row: &Row<'_>, id: &str) -> Markup {
    let run = row.run;
    let shown = run.requests.len().min(charts::REQUESTS_MAX);
    let total = (run.requests.len() as u64).saturating_add(run.requests_left_out);
    html! {
        figure id=(id) data-chart="requests" {
            figcaption { h4 { (policy(page, row.policy)) } p { (run_in_words(run)) } }
            (plot(&html! {
                (Text(&page.labels[row.policy])) ": " (requests_in_words(&run.requests))
            }))
            (first_of(shown, total, "requests"))
            (requests_table(&run.requests))
        }
    }
}

fn run_in_words(run: &Run) -> String {
    let plural = if run.device_requests == 1 { "request" } else { "requests" };
    format!(
        "{} MB/s, {} {plural}, mean {}",
        figure(run.mb_per_second),
        count(run.device_requests),
        bytes(run.mean_request_bytes)
    )
}

fn requests_in_words(requests: &[DeviceRequest]) -> Markup {
    let end = requests.iter().map(|request| request.done_us).max().unwrap_or(0);
    let of = |kind| requests.iter().filter(|request| request.kind == kind).count() as u64;
    html! {
        (count(requests.len() as u64)) " device requests in " (seconds(float(end) / 1e6))
        ", " (count(of(RequestKind::Demand))) " demand, "
        (count(of(RequestKind::Readahead))) " readahead, "
        (count(of(RequestKind::Write))) " write"
        @if of(RequestKind::Read) > 0 { ", " (count(of(RequestKind::Read))) " read" }
        "."
    }
}

fn requests_table(requests: &[DeviceRequest]) -> Markup {
    let heads = html! {
        (figure_heads(["At, ms", "Took, ms", "Offset", "Size"]))
        th scope="col" { "Kind" }
    };
    let millis = |us: u64| figure(float(us) / 1e3);
    let rows = html! {
        @for request in requests.iter().take(TABLE_ROWS_MAX) {
            tr {
                (figures([
                    millis(request.at_us),
                    millis(request.done_us.saturating_sub(request.at_us)),
                    count(request.offset),
                    bytes(request.bytes),
                ]))
                td { (kind_in_words(request.kind).0) }
            }
        }
    };
    folded("Figures", &heads, &rows, more_in_record(requests.len()))
}

/// The kind's name, which is also its class on the page, and what it means.
fn kind_in_words(kind: RequestKind) -> (&'static str, &'static str) {
    match kind {
        RequestKind::Demand => ("demand", "a reader waits"),
        RequestKind::Readahead => ("readahead", "nobody waits yet"),
        RequestKind::Write => ("write", "dirty pages"),
        RequestKind::Read => ("read", "by whom is not known"),
    }
}
