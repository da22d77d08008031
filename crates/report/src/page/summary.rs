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

use super::group::{Group, Groups, Row};
use crate::html::escape;
use crate::quantity::{bytes, count, figure, percent};
use std::fmt::Write;

/// Every run, a line each, with a heading line for each group.
pub(super) fn summary(page: &Groups<'_>) -> String {
    let mut rows = page.groups.iter().flat_map(|group| &group.rows);
    let with_spread = rows.any(|row| row.run.spread.is_some());
    let mut text = String::from(
        "<section>\n<h2>Runs</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Table of runs\">\n<table class=\"runs\">\n<thead><tr>\
         <th scope=\"col\">Readahead</th>",
    );
    let titles = COLUMNS.iter().filter(|&&title| with_spread || title != SPREAD);
    for title in titles.clone() {
        let _ = write!(text, "<th scope=\"col\" class=\"n\">{title}</th>");
    }
    text += "</tr></thead>\n";
    for group in &page.groups {
        let _ = writeln!(
            text,
            "<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" \
             colspan=\"{}\"><span>{}</span></th></tr>",
            titles.clone().count() + 1,
            group_in_words(group)
        );
        let mut streams = None;
        for row in &group.rows {
            let begins = streams.replace(row.run.streams).is_some_and(|s| s != row.run.streams);
            text += &summary_row(page, row, begins, with_spread);
        }
        text += "</tbody>\n";
    }
    text += "</table>\n</div>\n<p class=\"note\">MB/s: 10<sup>6</sup> bytes wanted by readers, a \
             second. Of limit: the share of what the device can give on this workload. Delay: time \
             that readers waited for the device. p50, p99: times of a read. Read: from the device, \
             coloured where it is more than 5&nbsp;% over what readers wanted. KiB, MiB, GiB are \
             powers of 1024.</p>\n</section>\n";
    text
}

fn summary_row(page: &Groups<'_>, row: &Row<'_>, begins: bool, with_spread: bool) -> String {
    let run = row.run;
    let spread = run.spread.map_or_else(
        || "&ndash;".to_owned(),
        |spread| format!("{} &ndash; {}", figure(spread.min), figure(spread.max)),
    );
    let over = run.bytes_read > run.bytes_wanted.saturating_add(run.bytes_wanted / 20);
    let mut text = format!(
        "<tr{}><th scope=\"row\">{}</th>",
        if begins { " class=\"begins\"" } else { "" },
        policy(page, row.policy)
    );
    for (title, class, value) in [
        ("Streams", "n", count(u64::from(run.streams))),
        ("MB/s", "n strong", figure(run.mb_per_second)),
        (SPREAD, "n soft", spread),
        ("Of limit", "n", ratio(run.ratio_to_limit)),
        ("Requests", "n", count(run.device_requests)),
        ("Mean size", "n", bytes(run.mean_request_bytes)),
        ("Delay", "n", seconds(run.delay_seconds)),
        ("p50", "n", seconds(run.p50_us / 1e6)),
        ("p99", "n", seconds(run.p99_us / 1e6)),
        ("Read", if over { "n over" } else { "n" }, bytes(run.bytes_read)),
        ("Wanted", "n", bytes(run.bytes_wanted)),
    ] {
        if with_spread || title != SPREAD {
            let _ = write!(text, "<td class=\"{class}\">{value}</td>");
        }
    }
    text + "</tr>\n"
}

/// A share in percent beside a bar of that length.
fn ratio(ratio: Option<f64>) -> String {
    let Some(ratio) = ratio else { return "&ndash;".to_owned() };
    let filled = if ratio.is_finite() { ratio.clamp(0.0, 1.0) * 100.0 } else { 0.0 };
    format!("<i class=\"share\" style=\"--share:{filled:.1}%\"></i><span>{}</span>", percent(ratio))
}

/// A time with the unit that fits it, as markup.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds != 0.0 && seconds.abs() < 0.000_999_5 {
        format!("{} &micro;s", figure(seconds * 1e6))
    } else if seconds != 0.0 && seconds.abs() < 0.9995 {
        format!("{} ms", figure(seconds * 1e3))
    } else {
        format!("{} s", figure(seconds))
    }
}

/// A policy's name with the mark of its colour and shape.
pub(super) fn policy(page: &Groups<'_>, number: usize) -> String {
    format!(
        "<span class=\"policy\"><i class=\"mark\" data-policy=\"{number}\"></i>{}</span>",
        escape(&page.labels[number])
    )
}

pub(super) fn group_in_words(group: &Group<'_>) -> String {
    let kind = if group.emulated { "emulated" } else { "real device" };
    let mut words = format!("{} ({kind})", escape(&group.device_in_words()));
    if !group.workload.is_empty() {
        let _ = write!(words, " <span class=\"workload\">{}</span>", escape(&group.workload));
    }
    words
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
