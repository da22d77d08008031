//! The markup around each chart: title, legend, text alternative, and the table behind it.
//!
//! The script finds a chart's place by the id that [`charts`] gave its data. What it would draw is
//! said here in words and figures first, for readers without the script or without sight.
//!
//! # Invariants
//! - Every chart in the data has one figure with its id, and every such figure its chart.
//! - A run without requests keeps its panel, which says so, as long as another run has some.

use super::charts::{self, Chart, Measure};
use super::group::{Group, Groups, Row};
use super::lanes;
use super::summary::{group_in_words, policy, seconds};
use crate::html::escape;
use crate::quantity::{bytes, count, figure, float};
use crate::record::{DeviceRequest, RequestKind, Run};
use std::fmt::Write;

/// The charts of one group; what they draw is appended to `charts`.
pub(super) fn group_section(
    page: &Groups<'_>,
    group: &Group<'_>,
    number: usize,
    charts: &mut Vec<Chart>,
) -> String {
    let mut text = format!("<section class=\"charts\">\n<h2>{}</h2>\n", group_in_words(group));
    let mut legend = String::new();
    for number in group.policies() {
        let _ = write!(legend, "<li>{}</li>", policy(page, number));
    }
    let streams = group.streams();
    // A single dot beside another group's lines says no more than the table of runs.
    let several = |group: &Group<'_>| group.streams().len() > 1;
    let with_lines = several(group) || !page.groups.iter().any(several);
    let limit = if with_lines && streams.iter().any(|&n| group.limit(n).is_some()) {
        "<li><span class=\"policy\"><i class=\"mark limit\"></i>device limit</span></li>"
    } else {
        ""
    };
    let _ = writeln!(text, "<ul class=\"legend\">{legend}{limit}</ul>");
    if with_lines {
        text += "<div class=\"pair\">\n";
        for measure in Measure::ALL {
            text += &lines_figure(page, group, number, measure);
            charts.push(charts::lines(group, number, measure));
        }
        text += "</div>\n";
    }
    for &n in streams.iter().rev() {
        text += &request_panels(page, group, number, n, charts);
    }
    text + "</section>\n"
}

fn lines_figure(page: &Groups<'_>, group: &Group<'_>, number: usize, measure: Measure) -> String {
    format!(
        "<figure id=\"{id}\" data-chart=\"lines\">\n<figcaption><div><h3>{title} by streams \
         <span class=\"unit\">{unit}</span></h3><p>{note}</p></div>\
         <label hidden><input type=\"checkbox\" class=\"log\"> log scale</label></figcaption>\n\
         <div class=\"plot\" role=\"img\" aria-label=\"{words}\"></div>\n{table}</figure>\n",
        id = measure.id(number),
        title = measure.title(),
        unit = measure.unit(),
        note = measure.note(),
        words = escape(&charts::lines_in_words(page, group, measure)),
        table = lines_table(page, group, measure),
    )
}

/// The figures of a lines chart: streams down, policies across.
fn lines_table(page: &Groups<'_>, group: &Group<'_>, measure: Measure) -> String {
    let policies = group.policies();
    let streams = group.streams();
    let with_limit =
        measure == Measure::Throughput && streams.iter().any(|&n| group.limit(n).is_some());
    let mut text = String::from(
        "<details><summary>Figures</summary><div class=\"scroll\" tabindex=\"0\">\
         <table><thead><tr><th scope=\"col\" class=\"n\">Streams</th>",
    );
    for &number in &policies {
        let _ = write!(text, "<th scope=\"col\" class=\"n\">{}</th>", policy(page, number));
    }
    text += if with_limit { "<th scope=\"col\" class=\"n\">Device limit</th>" } else { "" };
    text += "</tr></thead><tbody>";
    for n in streams {
        let _ = write!(text, "<tr><th scope=\"row\" class=\"n\">{}</th>", count(u64::from(n)));
        let mut values: Vec<Option<f64>> =
            policies.iter().map(|&p| group.run(p, n).map(|run| measure.of(run))).collect();
        if with_limit {
            values.push(group.limit(n));
        }
        for value in values {
            let value = value.map_or_else(|| "&ndash;".to_owned(), figure);
            let _ = write!(text, "<td class=\"n\">{value}</td>");
        }
        text += "</tr>";
    }
    text + "</tbody></table></div></details>\n"
}

/// The panels of all policies at one number of streams, side by side on the same axes.
fn request_panels(
    page: &Groups<'_>,
    group: &Group<'_>,
    number: usize,
    streams: u32,
    charts: &mut Vec<Chart>,
) -> String {
    let mut panels = String::new();
    let mut kinds: Vec<RequestKind> = Vec::new();
    let mut drawn = 0;
    for row in group.rows.iter().filter(|row| row.run.streams == streams) {
        if let Some(chart) = charts::panel(number, row.policy, row.run) {
            panels += &panel_figure(page, row, &charts::panel_id(number, streams, row.policy));
            kinds.extend(row.run.requests.iter().map(|request| request.kind));
            charts.push(chart);
            drawn += 1;
        } else {
            let _ = writeln!(
                panels,
                "<figure class=\"empty\"><figcaption><h4>{}</h4><p>{}</p></figcaption>\
                 <p class=\"none\">The requests of this run were not kept.</p></figure>",
                policy(page, row.policy),
                run_in_words(row.run),
            );
        }
    }
    let lanes = lanes::lanes_panels(page, group, number, streams, charts);
    if drawn == 0 {
        return if lanes.is_empty() { lanes } else { set_of(number, streams, &lanes) };
    }
    let legend = kinds_legend(kinds);
    let plural = if streams == 1 { "stream" } else { "streams" };
    let requests = format!(
        "<div class=\"caption\"><div>\
         <h3>Device requests over time, {} {plural}</h3><p>Each bar is a request: its height is \
         what it reads, its width how long it took. <span class=\"hint\">Drag to zoom, \
         double-click to go back.</span></p></div>\
         {OWN_TIME}</div>\n\
         <ul class=\"legend\">{legend}</ul>\n<div class=\"panels\">\n{panels}</div>\n",
        count(u64::from(streams)),
    );
    set_of(number, streams, &(requests + &lanes))
}

/// Panels that share their axes.
fn set_of(number: usize, streams: u32, panels: &str) -> String {
    format!("<div class=\"set\" data-set=\"{number}-{streams}\">\n{panels}</div>\n")
}

/// The colours of the kinds that there are.
fn kinds_legend(mut kinds: Vec<RequestKind>) -> String {
    kinds.sort_unstable();
    kinds.dedup();
    let mut legend = String::new();
    for kind in kinds {
        let (name, meaning) = kind_in_words(kind);
        let _ =
            write!(legend, "<li><i class=\"kind {name}\"></i>{name}<span>, {meaning}</span></li>");
    }
    legend
}

fn panel_figure(page: &Groups<'_>, row: &Row<'_>, id: &str) -> String {
    let run = row.run;
    let shown = run.requests.len().min(charts::REQUESTS_MAX);
    let total = (run.requests.len() as u64).saturating_add(run.requests_left_out);
    let cut = if total > shown as u64 {
        format!(
            "<p class=\"cut\">The first {} of {} requests.</p>",
            count(shown as u64),
            count(total)
        )
    } else {
        String::new()
    };
    format!(
        "<figure id=\"{id}\" \
         data-chart=\"requests\"><figcaption><h4>{}</h4><p>{}</p></figcaption>\n\
         <div class=\"plot\" role=\"img\" aria-label=\"{}: {}\"></div>\n{cut}{}</figure>\n",
        policy(page, row.policy),
        run_in_words(run),
        escape(&page.labels[row.policy]),
        requests_in_words(&run.requests),
        requests_table(&run.requests),
    )
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

fn requests_in_words(requests: &[DeviceRequest]) -> String {
    let end = requests.iter().map(|request| request.done_us).max().unwrap_or(0);
    let of = |kind| requests.iter().filter(|request| request.kind == kind).count() as u64;
    format!(
        "{} device requests in {}, {} demand, {} readahead, {} write{}.",
        count(requests.len() as u64),
        seconds(float(end) / 1e6),
        count(of(RequestKind::Demand)),
        count(of(RequestKind::Readahead)),
        count(of(RequestKind::Write)),
        match of(RequestKind::Read) {
            0 => String::new(),
            reads => format!(", {} read", count(reads)),
        },
    )
}

fn requests_table(requests: &[DeviceRequest]) -> String {
    let mut text = String::from(
        "<details><summary>Figures</summary><div class=\"scroll\" tabindex=\"0\"><table><thead>\
         <tr><th scope=\"col\" class=\"n\">At, ms</th><th scope=\"col\" class=\"n\">Took, ms</th>\
         <th scope=\"col\" class=\"n\">Offset</th><th scope=\"col\" class=\"n\">Size</th>\
         <th scope=\"col\">Kind</th></tr></thead><tbody>",
    );
    for request in requests.iter().take(TABLE_REQUESTS_MAX) {
        let millis = |us: u64| figure(float(us) / 1e3);
        let _ = write!(
            text,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td>{}</td></tr>",
            millis(request.at_us),
            millis(request.done_us.saturating_sub(request.at_us)),
            count(request.offset),
            bytes(request.bytes),
            kind_in_words(request.kind).0,
        );
    }
    text += "</tbody></table></div>";
    if requests.len() > TABLE_REQUESTS_MAX {
        let more = count((requests.len() - TABLE_REQUESTS_MAX) as u64);
        let _ = write!(text, "<p class=\"cut\">{more} more are in the record.</p>");
    }
    text + "</details>\n"
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

/// A switch for all panels of a set; where there are two in it, both say the same.
pub(super) const OWN_TIME: &str =
    "<label hidden><input type=\"checkbox\" class=\"own\"> each on its own time</label>";
/// Requests in the table behind a panel; the record has them all.
const TABLE_REQUESTS_MAX: usize = 100;
