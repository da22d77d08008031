//! The markup around the panels of readahead windows: legend, text alternative, table.
//!
//! ```text
//!   file     #####=====          a bar a window: from its opening to its last use, as high as its
//!   offset        #########===   pages; # read or not read yet, = wasted; its colour is the cause
//!            -----------------> time
//! ```
//!
//! These panels stand below those of requests and share their axes, so that a window is seen
//! above the requests that it caused.
//!
//! # Invariants
//! - Every panel in the data has one figure with its id, and every such figure its panel.

use std::collections::BTreeSet;

use super::charts::{self, Chart};
use super::group::{Group, Groups, Row};
use super::panels::{Caption, TABLE_ROWS_MAX, captioned, first_of, legend, more_in_record, plot};
use super::summary::policy;
use crate::html::{Text, figure_heads, figures, folded};
use crate::quantity::{bytes, count, figure, float};
use crate::record::Run;
use crate::window::Window;
use forerun_core::readahead::Cause;
use maud::{Markup, html};

/// The panels of all policies at one number of streams; empty when no run has windows.
pub(super) fn windows_panels(
    page: &Groups<'_>,
    group: &Group<'_>,
    number: usize,
    streams: u32,
    charts: &mut Vec<Chart>,
) -> Markup {
    let rows = || group.rows.iter().filter(|row| row.run.streams == streams);
    let windows = rows().flat_map(|row| &row.run.windows);
    let causes: BTreeSet<Cause> = windows.map(|window| window.cause).collect();
    let panels = html! {
        @for row in rows() {
            @if let Some(chart) = charts::windows(number, row.policy, row.run) {
                @let () = charts.push(chart);
                (windows_figure(page, row, &charts::windows_id(number, streams, row.policy)))
            } @else {
                figure.empty {
                    figcaption { h4 { (policy(page, row.policy)) } }
                    p.none { "The windows of this run were not kept." }
                }
            }
        }
    };
    if causes.is_empty() {
        return html! {};
    }
    let causes = causes.into_iter().map(|cause| (cause.name(), meaning(cause)));
    let wasted = ("wasted", "the share that no read used");
    let caption = Caption {
        title: "Readahead windows over time",
        note: "Each bar is a window: its height is what it holds, its width lasts from its \
               opening to its last use.",
        hint: None,
    };
    captioned(&caption, streams, &legend(causes.chain([wasted])), &panels)
}

fn windows_figure(page: &Groups<'_>, row: &Row<'_>, id: &str) -> Markup {
    let run = row.run;
    let shown = run.windows.len().min(charts::WINDOWS_MAX);
    let total = (run.windows.len() as u64).saturating_add(run.windows_left_out);
    let words = windows_in_words(run);
    html! {
        figure id=(id) data-chart="windows" {
            figcaption { h4 { (policy(page, row.policy)) } p { (words) } }
            (plot(&html! { (Text(&page.labels[row.policy])) ": " (words) }))
            (first_of(shown, total, "windows"))
            (windows_table(&run.windows))
        }
    }
}

/// The number of windows, and the outcomes of their prefetched pages.
fn windows_in_words(run: &Run) -> String {
    let sum = |of: fn(&Window) -> u64| {
        run.windows.iter().fold(0_u64, |sum, window| sum.saturating_add(of(window)))
    };
    let plural = if run.windows.len() == 1 { "window" } else { "windows" };
    format!(
        "{} {plural}; read ahead and used {}, late {}, wasted {}, unread {}.",
        count(run.windows.len() as u64),
        bytes(sum(|w| w.used_bytes)),
        bytes(sum(|w| w.late_bytes)),
        bytes(sum(|w| w.wasted_bytes)),
        bytes(sum(|w| w.unread_bytes)),
    )
}

fn windows_table(windows: &[Window]) -> Markup {
    let heads = html! {
        (figure_heads(["At, ms", "Last use, ms"]))
        th scope="col" { "Cause" }
        th scope="col" { "Stream" }
        (figure_heads([
            "Offset", "Size", "Tail", "Fresh", "Used", "Late", "Wasted", "Failed", "Unread",
        ]))
    };
    let millis = |us: u64| figure(float(us) / 1e3);
    let sizes = |window: &Window| {
        [
            window.bytes,
            window.tail_bytes,
            window.fresh_bytes,
            window.used_bytes,
            window.late_bytes,
            window.wasted_bytes,
            window.failed_bytes,
            window.unread_bytes,
        ]
    };
    let rows = html! {
        @for window in windows.iter().take(TABLE_ROWS_MAX) {
            tr {
                (figures([window.at_us, window.last_use_us].map(millis)))
                td { (window.cause.name()) }
                td { (stream_in_words(window)) }
                (figures([count(window.offset)]))
                (figures(sizes(window).map(bytes)))
            }
        }
    };
    folded("Figures", &heads, &rows, more_in_record(windows.len()))
}

/// What a cause means, in a few words.
fn meaning(cause: Cause) -> &'static str {
    match cause {
        Cause::Random => "a miss, just what was asked",
        Cause::Sync => "a miss that begins a stream",
        Cause::Async => "a marker was read",
        Cause::Recovered => "an unexpected marker",
        Cause::Initial => "the first window",
        Cause::Ahead => "the window after it",
        Cause::Page => "a page by itself",
    }
}

/// The stream, or the handle where the policy names no streams.
fn stream_in_words(window: &Window) -> String {
    match window.stream {
        Some(stream) => stream.to_string(),
        None => format!("handle {}", window.handle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RunRecord;

    fn window(cause: Cause, stream: Option<u32>) -> Window {
        Window {
            at_us: 1_000,
            last_use_us: 2_500,
            handle: 3,
            stream,
            cause,
            offset: 8_192,
            bytes: 65_536,
            tail_bytes: 32_768,
            fresh_bytes: 61_440,
            used_bytes: 20_480,
            late_bytes: 4_096,
            wasted_bytes: 16_384,
            failed_bytes: 8_192,
            unread_bytes: 12_288,
        }
    }

    fn panels(runs: Vec<Run>) -> (String, usize) {
        let records = [RunRecord { runs, ..RunRecord::default() }];
        let page = Groups::new(&records);
        let mut charts = Vec::new();
        (windows_panels(&page, &page.groups[0], 0, 2, &mut charts).into_string(), charts.len())
    }

    fn run(readahead: &str, windows: Vec<Window>) -> Run {
        Run { readahead: readahead.to_owned(), streams: 2, windows, ..Run::default() }
    }

    #[test]
    fn without_windows_there_is_no_panel() {
        assert_eq!(panels(vec![run("a", vec![])]), (String::new(), 0));
    }

    #[test]
    fn panels_have_a_legend_of_their_causes_words_and_figures() {
        let mut full = run("a", vec![window(Cause::Sync, Some(5)), window(Cause::Async, None)]);
        full.windows_left_out = 7;
        let (text, charts) = panels(vec![full, run("b", vec![])]);
        assert_eq!(charts, 1);
        for part in [
            "Readahead windows over time, 2 streams",
            "<figure id=\"windows-0-2-0\" data-chart=\"windows\">",
            "</i>sync<span>, a miss that begins a stream",
            "</i>async<span>",
            "</i>wasted<span>",
            "2 windows; read ahead and used 40 KiB, late 8 KiB, wasted 32 KiB, unread 24 KiB.",
            "The first 2 of 9 windows.",
            "<td class=\"n\">1.00</td><td class=\"n\">2.50</td><td>sync</td><td>5</td>\
             <td class=\"n\">8,192</td><td class=\"n\">64 KiB</td><td class=\"n\">32 KiB</td>\
             <td class=\"n\">60 KiB</td><td class=\"n\">20 KiB</td><td class=\"n\">4 KiB</td>\
             <td class=\"n\">16 KiB</td><td class=\"n\">8 KiB</td><td class=\"n\">12 KiB</td>",
            "<td>async</td><td>handle 3</td>",
            "The windows of this run were not kept.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("</i>random<"), "no window has that cause");
    }

    #[test]
    fn the_table_behind_the_panel_is_bounded_and_says_so() {
        let (text, _) = panels(vec![run("a", vec![window(Cause::Random, None); 103])]);
        assert!(text.contains(">3 more are in the record."), "{text}");
        assert_eq!(text.matches("<td>random</td>").count(), 100);
    }
}
