//! The static page: one HTML file that shows records to a colleague.
//!
//! ```text
//!   title, theme switch
//!   what was measured, on what, what came out          words
//!   all runs                                           one table
//!   for each device and workload:                      group
//!     throughput by streams | delay by streams         charts
//!     requests over time, a panel a policy             charts
//!   how to repeat it                                   commit, machine, command, settings
//! ```
//!
//! Tables and words are written here, so the page says everything without its script; the script
//! (`assets/page.js`, with uPlot) draws the charts from data embedded as JSON.
//!
//! # Invariants
//! - The page asks the network for nothing; its content policy forbids that.
//! - All text from records is escaped, in markup and in the data.
//! - The same records give the same page, byte for byte.

mod charts;
mod group;
mod html;
mod words;

use crate::format::{bytes, count, date, figure, percent};
use crate::record::{DeviceRequest, RequestKind, Run, RunRecord};
use charts::{Chart, Data, Measure};
use group::{Group, Groups, Row};
use html::{escape, script_json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Why no page could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// There is nothing to show: give at least one record that holds a run.
    #[error("no runs to show: give at least one record that holds a run")]
    NoRuns,
}

/// The page of `records` under `title`, as the whole text of an HTML file.
///
/// # Errors
/// There is no run in the records.
pub fn render(records: &[RunRecord], title: &str) -> Result<String, PageError> {
    let page = Groups::new(records);
    if page.groups.is_empty() {
        return Err(PageError::NoRuns);
    }
    let mut body = head(records, title);
    body += &words::opening(&page);
    body += &summary(&page);
    let mut charts = Vec::new();
    for (number, group) in page.groups.iter().enumerate() {
        body += &group_section(&page, group, number, &mut charts);
    }
    body += &provenance(records);
    let data = script_json(&Data { policies: &page.labels, charts });
    Ok(shell(title, &body, &data))
}

/// The document around the body.
fn shell(title: &str, body: &str, data: &str) -> String {
    [
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ",
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; ",
        "form-action 'none'\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
        &escape(title),
        "</title>\n<style>\n",
        UPLOT_CSS,
        PAGE_CSS,
        "</style>\n<script>\n",
        ERRORS_JS,
        "</script>\n</head>\n<body>\n<main>\n",
        body,
        "</main>\n<div id=\"tip\" hidden></div>\n<script type=\"application/json\" id=\"data\">",
        data,
        "</script>\n<script>\n",
        UPLOT_JS,
        "</script>\n<script>\n",
        PAGE_JS,
        "</script>\n</body>\n</html>\n",
    ]
    .concat()
}

fn head(records: &[RunRecord], title: &str) -> String {
    let mut facts: Vec<String> = Vec::new();
    for record in records {
        let machine = &record.machine;
        let parts = [date(record.date), machine.cpu.clone(), commit_in_words(&record.commit)];
        let fact: Vec<String> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| escape(part)).collect();
        let fact = format!("<span>{}</span>", fact.join(" &middot; "));
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    let more = facts.len().saturating_sub(HEAD_FACTS_MAX);
    facts.truncate(HEAD_FACTS_MAX);
    if more > 0 {
        facts.push(format!("<span>and {more} more</span>"));
    }
    format!(
        "<header>\n<div>\n<h1>{}</h1>\n<p class=\"facts\">{}</p>\n</div>\n\
         <button type=\"button\" id=\"theme\" hidden>Theme: auto</button>\n</header>\n\
         <noscript><p class=\"note\">The charts need JavaScript. The tables hold the same figures.\
         </p></noscript>\n",
        escape(title),
        facts.join(" ")
    )
}

fn commit_in_words(commit: &str) -> String {
    let short: String = commit.chars().take(COMMIT_CHARS).collect();
    if short.is_empty() { short } else { format!("commit {short}") }
}

/// Every run, a line each, with a heading line for each group.
fn summary(page: &Groups<'_>) -> String {
    let mut text = String::from(
        "<section>\n<h2>Runs</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Table of runs\">\n<table class=\"runs\">\n<thead><tr>\
         <th scope=\"col\">Readahead</th><th scope=\"col\" class=\"n\">Streams</th>\
         <th scope=\"col\" class=\"n\">MB/s</th><th scope=\"col\" class=\"n\">Of limit</th>\
         <th scope=\"col\" class=\"n\">Requests</th><th scope=\"col\" class=\"n\">Mean size</th>\
         <th scope=\"col\" class=\"n\">Delay</th><th scope=\"col\" class=\"n\">p50</th>\
         <th scope=\"col\" class=\"n\">p99</th><th scope=\"col\" class=\"n\">Read</th>\
         <th scope=\"col\" class=\"n\">Wanted</th></tr></thead>\n",
    );
    for group in &page.groups {
        let _ = writeln!(
            text,
            "<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"11\"><span>{}</span></th></tr>",
            group_in_words(group)
        );
        let mut streams = None;
        for row in &group.rows {
            let begins = streams.replace(row.run.streams).is_some_and(|s| s != row.run.streams);
            text += &summary_row(page, row, begins);
        }
        text += "</tbody>\n";
    }
    text += "</table>\n</div>\n<p class=\"note\">MB/s: 10<sup>6</sup> bytes wanted by readers, a \
             second; where runs were repeated, the slowest and the fastest stand below. Of limit: \
             the share of what the device can give on this workload. Delay: time that readers \
             waited for the device. p50, p99: times of a read. KiB, MiB, GiB are powers of \
             1024.</p>\n</section>\n";
    text
}

fn summary_row(page: &Groups<'_>, row: &Row<'_>, begins: bool) -> String {
    let run = row.run;
    let spread = run.spread.map_or_else(String::new, |s| {
        format!("<small>{}&ndash;{}</small>", figure(s.min), figure(s.max))
    });
    let ratio = run.ratio_to_limit.map_or_else(
        || "&ndash;".to_owned(),
        |ratio| {
            let share = if ratio.is_finite() { ratio.clamp(0.0, 1.0) * 100.0 } else { 0.0 };
            format!("{}<i class=\"share\" style=\"--share:{share:.1}%\"></i>", percent(ratio))
        },
    );
    let wasteful = if run.bytes_read > run.bytes_wanted.saturating_add(run.bytes_wanted / 20) {
        " class=\"n over\" title=\"more than 5 % over what was wanted\""
    } else {
        " class=\"n\""
    };
    format!(
        "<tr{}><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n strong\">{}{spread}</td>\
         <td class=\"n\">{ratio}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td{wasteful}>{}</td><td class=\"n\">{}</td></tr>\n",
        if begins { " class=\"begins\"" } else { "" },
        policy(page, row.policy),
        count(u64::from(run.streams)),
        figure(run.mb_per_second),
        count(run.device_requests),
        bytes(run.mean_request_bytes),
        seconds(run.delay_seconds),
        seconds(run.p50_us / 1e6),
        seconds(run.p99_us / 1e6),
        bytes(run.bytes_read),
        bytes(run.bytes_wanted),
    )
}

/// A time with the unit that fits it.
fn seconds(seconds: f64) -> String {
    if seconds != 0.0 && seconds.abs() < 0.000_999_5 {
        format!("{} &micro;s", figure(seconds * 1e6))
    } else if seconds != 0.0 && seconds.abs() < 0.9995 {
        format!("{} ms", figure(seconds * 1e3))
    } else {
        format!("{} s", figure(seconds))
    }
}

/// A policy's name with the mark of its colour and shape.
fn policy(page: &Groups<'_>, number: usize) -> String {
    format!(
        "<span class=\"policy\"><i class=\"mark\" data-policy=\"{number}\"></i>{}</span>",
        escape(&page.labels[number])
    )
}

fn group_in_words(group: &Group<'_>) -> String {
    let kind = if group.emulated { "emulated" } else { "real device" };
    let mut words = format!("{} ({kind})", escape(&group.device_in_words()));
    if !group.workload.is_empty() {
        let _ = write!(words, " <span class=\"workload\">{}</span>", escape(&group.workload));
    }
    words
}

/// The charts of one group; what they draw is appended to `charts`.
fn group_section(
    page: &Groups<'_>,
    group: &Group<'_>,
    number: usize,
    charts: &mut Vec<Chart>,
) -> String {
    let mut text = format!("<section class=\"charts\">\n<h2>{}</h2>\n", group_in_words(group));
    let legend: String = group
        .policies()
        .into_iter()
        .map(|number| format!("<li>{}</li>", policy(page, number)))
        .collect();
    let streams = group.streams();
    let limit = if streams.iter().any(|&n| group.limit(n).is_some()) {
        "<li><span class=\"policy\"><i class=\"mark limit\"></i>device limit</span></li>"
    } else {
        ""
    };
    let _ = writeln!(text, "<ul class=\"legend\">{legend}{limit}</ul>\n<div class=\"pair\">");
    for measure in Measure::ALL {
        text += &lines_figure(page, group, number, measure);
        charts.push(charts::lines(group, number, measure));
    }
    text += "</div>\n";
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
            let _ = write!(
                panels,
                "<figure class=\"empty\"><figcaption><h4>{}</h4><p>{}</p></figcaption>\
                 <p class=\"none\">The requests of this run were not kept.</p></figure>\n",
                policy(page, row.policy),
                run_in_words(row.run),
            );
        }
    }
    if drawn == 0 {
        return String::new();
    }
    kinds.sort_unstable();
    kinds.dedup();
    let legend: String = kinds
        .into_iter()
        .map(|kind| {
            let (name, meaning) = kind_in_words(kind);
            format!("<li><i class=\"kind {name}\"></i>{name}<span>, {meaning}</span></li>")
        })
        .collect();
    let plural = if streams == 1 { "stream" } else { "streams" };
    format!(
        "<div class=\"set\" data-set=\"{number}-{streams}\">\n<div class=\"caption\"><div>\
         <h3>Device requests over time, {} {plural}</h3><p>Each bar is a request: its height is \
         what it reads, its width how long it took. <span class=\"hint\">Drag to zoom, \
         double-click to go back.</span></p></div>\
         <label hidden><input type=\"checkbox\" class=\"own\"> each on its own time</label></div>\n\
         <ul class=\"legend\">{legend}</ul>\n<div class=\"panels\">\n{panels}</div>\n</div>\n",
        count(u64::from(streams)),
    )
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
        "<figure id=\"{id}\" data-chart=\"requests\"><figcaption><h4>{}</h4><p>{}</p></figcaption>\n\
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
        "{} MB/s, {} {plural} of {} on average",
        figure(run.mb_per_second),
        count(run.device_requests),
        bytes(run.mean_request_bytes)
    )
}

fn requests_in_words(requests: &[DeviceRequest]) -> String {
    let end = requests.iter().map(|request| request.done_us).max().unwrap_or(0);
    let of = |kind| requests.iter().filter(|request| request.kind == kind).count() as u64;
    format!(
        "{} device requests in {}, {} demand, {} readahead, {} write.",
        count(requests.len() as u64),
        seconds(crate::format::float(end) / 1e6),
        count(of(RequestKind::Demand)),
        count(of(RequestKind::Readahead)),
        count(of(RequestKind::Write)),
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
        let millis = |us: u64| figure(crate::format::float(us) / 1e3);
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
    }
}

/// What is needed to run it again.
fn provenance(records: &[RunRecord]) -> String {
    let mut text = String::from("<section>\n<h2>How to repeat it</h2>\n");
    for (number, record) in (1..).zip(records) {
        if records.len() > 1 {
            let _ = writeln!(text, "<h3>Record {number}</h3>");
        }
        text += "<dl>\n";
        let machine = &record.machine;
        let cores = if machine.cores == 1 { "core" } else { "cores" };
        let machine_in_words = format!(
            "{}, {} {cores}, {} of memory, {}",
            machine.cpu,
            machine.cores,
            bytes(machine.memory_bytes),
            machine.kernel
        );
        let counted = format!("{} counted after {} to warm up", record.repeats, record.warm_up);
        for (term, value, code) in [
            ("Command", record.command.join(" "), true),
            ("Commit", record.commit.clone(), true),
            ("Date", date(record.date), false),
            ("Machine", machine_in_words, false),
            ("Device", record.device.clone(), true),
            ("Repeats", counted, false),
            ("Seed", record.seed.to_string(), false),
            ("Settings", pairs(&record.settings), true),
            ("Parameters", params(record), true),
        ] {
            if value.is_empty() {
                continue;
            }
            let value = escape(&value);
            let value = if code { format!("<code>{value}</code>") } else { value };
            let _ = writeln!(text, "<dt>{term}</dt><dd>{value}</dd>");
        }
        text += "</dl>\n";
    }
    text + "</section>\n"
}

/// Each policy of the record that has parameters, with them.
fn params(record: &RunRecord) -> String {
    let mut all: Vec<String> = Vec::new();
    for run in record.runs.iter().filter(|run| !run.params.is_empty()) {
        let text = format!("{}: {}", run.readahead, pairs(&run.params));
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join("; ")
}

fn pairs(map: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(", ")
}

/// Requests in the table behind a panel; the record has them all.
const TABLE_REQUESTS_MAX: usize = 100;
/// Records that the head of the page names.
const HEAD_FACTS_MAX: usize = 3;
/// Of a commit, in the head.
const COMMIT_CHARS: usize = 10;

const UPLOT_CSS: &str = include_str!("../assets/uPlot.min.css");
const UPLOT_JS: &str = include_str!("../assets/uPlot.iife.min.js");
const PAGE_CSS: &str = include_str!("../assets/page.css");
const PAGE_JS: &str = include_str!("../assets/page.js");
const ERRORS_JS: &str = include_str!("../assets/errors.js");
