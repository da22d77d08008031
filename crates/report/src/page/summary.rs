//! The table of all runs, a line each, and the words that it shares with the charts.
//!
//! ```text
//!   Readahead  Streams  MB/s  Min-max  Of limit  Requests  Mean  Delay  p50  p99  Read  Wanted
//!   device (emulated) workload                                        a heading for each group
//!   policy           1     .        .         .         .     .      .    .    .     .       .
//! ```
//!
//! # Invariants
//! - A run that read more than 5 % over what was wanted shows it.
//! - A column is there only where a run has a value for it.

use super::group::{Group, Groups};
use crate::html::{DASH, Text, figure_heads};
use crate::quantity::{bytes, count, figure, percent, time};
use crate::record::{Run, Spread};
use maud::{Markup, PreEscaped, Render as _, html};

/// Every run, a line each, with a heading line for each group.
pub(super) fn summary(page: &Groups<'_>) -> Markup {
    let mut rows = page.groups.iter().flat_map(|group| &group.rows);
    let with_spread = rows.any(|row| row.run.spread.is_some());
    let shown = |title: &&&str| with_spread || **title != SPREAD;
    let titles: Vec<PreEscaped<&str>> =
        COLUMNS.iter().filter(shown).map(|title| PreEscaped(*title)).collect();
    let columns = titles.len() + 1;
    html! {
        section {
            h2 { "Runs" }
            div.scroll tabindex="0" role="region" aria-label="Table of runs" {
                table class="runs stacked" {
                    thead { tr { th scope="col" { "Readahead" } (figure_heads(titles)) } }
                    @for group in &page.groups {
                        tbody {
                            tr.group {
                                th scope="rowgroup" colspan=(columns) {
                                    span { (group_in_words(group)) }
                                }
                            }
                            (group_rows(page, group, with_spread))
                        }
                    }
                }
            }
            p.note { (PreEscaped(NOTE)) }
            @if above_limit(page) { p.note { (PreEscaped(ABOVE)) } }
        }
    }
}

/// Whether a run is shown with more than its device's limit.
fn above_limit(page: &Groups<'_>) -> bool {
    let mut runs = page.groups.iter().flat_map(|group| &group.rows).map(|row| row.run);
    runs.any(|run| run.ratio_to_limit.is_some_and(|ratio| ratio >= 1.005))
}

fn group_rows(page: &Groups<'_>, group: &Group<'_>, with_spread: bool) -> Markup {
    let before = std::iter::once(None).chain(group.rows.iter().map(Some));
    html! {
        @for (row, before) in group.rows.iter().zip(before) {
            @let begins = before.is_some_and(|before| before.run.streams != row.run.streams);
            tr class=[begins.then_some("begins")] {
                th scope="row" { (policy(page, row.policy)) }
                (cells(row.run, with_spread))
            }
        }
    }
}

fn cells(run: &Run, with_spread: bool) -> Markup {
    let ends = |spread: Spread| {
        html! { (figure(spread.min)) " " (DASH) " " (figure(spread.max)) }
    };
    let over = run.bytes_read > run.bytes_wanted.saturating_add(run.bytes_wanted / 20);
    let [delay, p50, p99] = [run.delay_seconds, run.p50_us / 1e6, run.p99_us / 1e6].map(seconds);
    let cell = |title: &str, class: &str, value: Markup| {
        html! { td class=(class) data-head=(PreEscaped(title)) { (value) } }
    };
    html! {
        (cell("Streams", "n", count(run.streams.into()).render()))
        (cell("MB/s", "n strong", figure(run.mb_per_second).render()))
        @if with_spread {
            (cell(SPREAD, "n soft", run.spread.map_or(DASH.render(), ends)))
        }
        (cell("Of limit", "n", run.ratio_to_limit.map_or(DASH.render(), share)))
        (cell("Requests", "n", count(run.device_requests).render()))
        (cell("Mean size", "n", bytes(run.mean_request_bytes).render()))
        (cell("Delay", "n", delay))
        (cell("p50", "n", p50))
        (cell("p99", "n", p99))
        (cell("Read", if over { "n over" } else { "n" }, bytes(run.bytes_read).render()))
        (cell("Wanted", "n", bytes(run.bytes_wanted).render()))
    }
}

/// A share in percent beside a bar of that length.
pub(super) fn share(share: f64) -> Markup {
    let filled = if share.is_finite() { share.clamp(0.0, 1.0) * 100.0 } else { 0.0 };
    html! {
        i.share style={ "--share:" (format!("{filled:.1}")) "%" } {}
        span { (percent(share)) }
    }
}

/// A time with the unit that fits it.
pub(super) fn seconds(seconds: f64) -> Markup {
    html! { (PreEscaped(time(seconds).replace("us", "&micro;s"))) }
}

/// A policy's name with the mark of its colour and shape.
pub(super) fn policy(page: &Groups<'_>, number: usize) -> Markup {
    html! {
        span.policy { i.mark data-policy=(number) {} (Text(&page.labels[number])) }
    }
}

pub(super) fn group_in_words(group: &Group<'_>) -> Markup {
    let kind = if group.emulated { "emulated" } else { "real device" };
    html! {
        (Text(group.device_in_words())) " (" (kind) ")"
        @if !group.workload.is_empty() { " " span.workload { (Text(&group.workload)) } }
    }
}

/// The table of runs, after the policy's name.
const COLUMNS: [&str; 11] = [
    "Streams",
    "MB/s",
    SPREAD,
    "Of limit",
    "Requests",
    "Mean size",
    "Delay",
    "p50",
    "p99",
    "Read",
    "Wanted",
];
/// The column of the slowest and the fastest repeat, there only where runs were repeated.
pub(super) const SPREAD: &str = "Min &ndash; max";
/// Below that where a share is above 1.
const ABOVE: &str = "More than 100 % of the limit: the limit is the speed of a readahead that \
                     knows each stream from its second read on (from the first at the head of a \
                     file), on the same device in virtual time. It is a measure, not a bound: \
                     windows that are larger or that come in another order can cost the device \
                     less.";
/// Below the table of runs.
const NOTE: &str = "MB/s: 10<sup>6</sup> bytes wanted by readers, a second. Of limit: the share of \
                    what the device can give on this workload. Delay: time that readers waited \
                    for the device. p50, p99: times of a read. Read: from the device, coloured \
                    where it is more than 5&nbsp;% over what readers wanted. KiB, MiB, GiB are \
                    powers of 1024.";
