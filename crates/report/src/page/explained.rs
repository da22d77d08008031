//! The page of one program: its time, its reads over time, the possible gain.
//!
//! ```text
//!   title, theme switch
//!   the program, bars by cause       as it was, under `run`
//!   the reason                       words, with what a list of this run would gain, and what
//!                                    the verdict leaves out
//!   a panel a file                   charts: time -> offset, waits in their own colour
//!   where the time went, causes, walks, directories, files     tables, folded
//! ```
//!
//! # Invariants
//! - As of `page`; the panels are those of device requests, so the same script draws them.
//! - At most [`PANELS_MAX`] files have a panel, and every panel in the data has its place.

mod trees;

use maud::{Markup, html};

use super::charts::{Chart, Data};
use super::panels::{HINT, legend, own_time, plot};
use super::summary::{seconds, share};
use super::{ASSETS, fact, head_of};
use crate::explanation::{ExplainedFile, Explanation};
use crate::html::{Text, cut, figure_heads, figures, folded, prose, script_json, scrolled};
use crate::plain;
use crate::quantity::{bytes, count, date, figure, percent};
use crate::record::Machine;
use crate::shell;
use forerun_core::readahead::Cause;

/// The page of `explanation`, made at `unix_seconds` on `machine`, as the text of an HTML file.
#[must_use]
pub fn explained(explanation: &Explanation, machine: &Machine, unix_seconds: u64) -> String {
    let program = explanation.command.first().map_or("a program", String::as_str);
    let title = format!("forerun: what {program} reads");
    let mut charts = Vec::new();
    let body = html! {
        (head_of(&title, &fact(&[
            date(unix_seconds), machine.cpu.clone(), machine.kernel.clone(),
        ])))
        (opening(explanation))
        (trees::bars(explanation))
        p.outcome { (prose(&explanation.prediction.why)) }
        @for note in &explanation.notes { p.note { (prose(note)) } }
        (trees::traps(explanation))
        (panels(explanation, &mut charts))
        section {
            h2 { "Details" }
            (times(explanation))
            (trees::tables(explanation))
            (files(explanation))
        }
    };
    let labels = [program.to_owned()];
    let data = Data { policies: &labels, causes: Cause::ALL.map(Cause::name), charts };
    shell::document(&title, &body, script_json(&data), &ASSETS)
}

fn opening(explanation: &Explanation) -> Markup {
    html! {
        p.lead {
            code { (Text(plain::command(&explanation.command))) }
            " ran for " (seconds(explanation.seconds))
            " and ended with status " (explanation.status) ". It was seen to read "
            (bytes(explanation.bytes_read)) "; " (bytes(explanation.device_bytes))
            " came from devices."
        }
    }
}

/// Where the time went.
fn times(explanation: &Explanation) -> Markup {
    let queue = explanation.queue_seconds.unwrap_or(0.0);
    let rest =
        explanation.seconds - explanation.processor_seconds - explanation.storage_seconds - queue;
    let mut times = vec![
        ("computing", explanation.processor_seconds),
        ("waiting for storage", explanation.storage_seconds),
        ("waiting for a processor", queue),
    ];
    if explanation.processes == 1 && rest > 0.0 {
        times.push(("all else: pipes, sleep, the network", rest));
    }
    let heads = html! { th scope="col" {} (figure_heads(["Time", "Share of all"])) };
    let rows = html! {
        @for (name, time) in times {
            tr {
                th scope="row" { (name) }
                (figures([seconds(time), share(time / explanation.seconds.max(f64::MIN_POSITIVE))]))
            }
        }
    };
    let note = html! {
        p.note {
            "Waiting for storage: " (Text(&explanation.storage_basis)) ". Several threads or \
             processes compute at the same time."
        }
    };
    part("Where the time went", &heads, &rows, &note)
}

fn files(explanation: &Explanation) -> Markup {
    let heads = html! {
        th scope="col" { "File" }
        (figure_heads(["Size", "Read", "Waited"]))
        th scope="col" { "Pattern" }
        (figure_heads(["In order"]))
        th scope="col" { "In memory at first" }
    };
    let rows = html! {
        @for file in &explanation.files {
            tr {
                th scope="row" { (Text(&file.path)) }
                (figures([file.bytes, file.bytes_read].map(bytes)))
                (figures([seconds(file.storage_seconds)]))
                td { (pattern(file)) }
                (figures([percent(file.sequential_share)]))
                td { (start(file)) }
            }
        }
        @if explanation.files.is_empty() {
            tr { td colspan="7" { "It was not seen to read a file of 256 KiB or more." } }
        }
    };
    let left_out = html! {
        @if explanation.files_left_out > 0 {
            p.note { (count(explanation.files_left_out)) " openings of more files are left out." }
        }
    };
    part("Files", &heads, &rows, &left_out)
}

/// A table that is folded away under `title`, with what is to be said of it. Where the page is
/// narrow each row is a block.
fn part(title: &str, heads: &Markup, rows: &Markup, note: &Markup) -> Markup {
    html! {
        details.part {
            summary { (title) }
            (scrolled(Some("stacked"), heads, rows))
            (note)
        }
    }
}

fn pattern(file: &ExplainedFile) -> String {
    let mapped = if file.mapped { "mapped, " } else { "" };
    format!("{mapped}{}", file.pattern)
}

fn start(file: &ExplainedFile) -> String {
    let Some(share) = file.start_share else { return "not known".to_owned() };
    let when = if file.start_basis == Some("opening") { ", when first seen" } else { "" };
    format!("{} ({}{when})", file.start, percent(share))
}

fn panels(explanation: &Explanation, charts: &mut Vec<Chart>) -> Markup {
    let with = explanation.files.iter().enumerate().filter(|(_, file)| !file.moments.is_empty());
    let panels = html! {
        @for (number, file) in with.take(PANELS_MAX) {
            @let id = format!("file-{number}");
            (panel(file, &id))
            @let () = charts.push(chart(file, id));
        }
    };
    html! {
        @if !panels.0.is_empty() {
            section.charts {
                h2 { "What was read when" }
                ul.legend {
                    (legend([("demand", "storage was waited for"), ("read", "without a wait")]))
                }
                (panels)
            }
        }
    }
}

fn panel(file: &ExplainedFile, id: &str) -> Markup {
    let words = words(file);
    let left_out = (file.moments_left_out > 0).then_some(file.moments_left_out);
    html! {
        div.set data-set=(id) {
            div.caption {
                div { h3 { (Text(&file.path)) } p { (words) " " span.hint { (HINT) } } }
                (own_time())
            }
            div.panels {
                figure id=(id) data-chart="requests" {
                    (plot(&words))
                    (cut(left_out.map(|more| format!("{} later looks are left out.", count(more)))))
                    (streams(file))
                }
            }
        }
    }
}

fn chart(file: &ExplainedFile, id: String) -> Chart {
    let requests = file.moments.iter().flat_map(|moment| {
        // As much of it has the colour of waiting as was waited.
        let from = moment.to_us.saturating_sub(moment.waited_us).max(moment.from_us);
        let parts = [(moment.from_us, from, READ), (from, moment.to_us, WAITED)];
        let is_some = |&(from, to, kind): &(u64, u64, u8)| from < to || kind == READ;
        let all_waited = from == moment.from_us && moment.waited_us > 0;
        let parts = parts.into_iter().skip(usize::from(all_waited)).filter(is_some);
        parts.map(|(from, to, kind)| (from, to, moment.offset, moment.bytes, kind))
    });
    Chart::Requests { set: id.clone(), id, policy: 0, requests: requests.collect() }
}

fn words(file: &ExplainedFile) -> Markup {
    let plural = if file.streams.len() == 1 { "stream" } else { "streams" };
    html! {
        (pattern(file)) ", " (count(file.streams.len() as u64 + file.streams_left_out)) " "
        (plural) "; " (bytes(file.bytes_read)) " read, " (seconds(file.storage_seconds))
        " waited."
    }
}

fn streams(file: &ExplainedFile) -> Markup {
    let heads = html! {
        th scope="col" { "Pattern" }
        (figure_heads(["Read", "Offset", "End", "From, s", "To, s", "Waited"]))
    };
    let rows = html! {
        @for stream in &file.streams {
            tr {
                td { (stream.pattern) }
                (figures([bytes(stream.bytes), count(stream.offset), count(stream.end)]))
                (figures([stream.from_seconds, stream.to_seconds].map(figure)))
                (figures([seconds(stream.storage_seconds)]))
            }
        }
    };
    let left_out = (file.streams_left_out > 0).then_some(file.streams_left_out);
    let cut = left_out.map(|more| format!("{} more are counted with these.", count(more)));
    folded("Streams", &heads, &rows, cut)
}

const PANELS_MAX: usize = 12;
/// Kinds, as the script numbers them.
const WAITED: u8 = 0;
const READ: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explanation::{ExplainedStream, Forecast, ReadMoment};

    fn told(name: &str) -> Explanation {
        let moment = ReadMoment { from_us: 5, to_us: 9, offset: 0, bytes: 4096, waited_us: 4 };
        let stream = ExplainedStream { pattern: "random", bytes: 4096, ..Default::default() };
        let file = ExplainedFile {
            path: name.to_owned(),
            pattern: "random",
            mapped: true,
            start: "part",
            start_share: Some(0.25),
            start_basis: Some("opening"),
            streams: vec![stream],
            moments: vec![
                moment,
                ReadMoment { waited_us: 0, ..moment },
                ReadMoment { waited_us: 1, ..moment },
                ReadMoment { waited_us: 9, ..moment },
            ],
            ..ExplainedFile::default()
        };
        let prediction = Forecast { why: format!("Because of {name}."), ..Forecast::default() };
        Explanation {
            command: vec!["cat".to_owned(), name.to_owned()],
            seconds: 2.0,
            processor_seconds: 0.5,
            storage_seconds: 1.0,
            processes: 1,
            prediction,
            files: vec![file],
            ..Explanation::default()
        }
    }

    #[test]
    fn the_page_says_where_the_time_went_and_draws_each_file() {
        let page = explained(&told("a.bin"), &Machine::default(), 951_782_400);
        for part in [
            "<code>cat a.bin</code> ran for 2.00 s",
            "Because of a.bin.",
            "waiting for storage</th><td class=\"n\">1.00 s</td>",
            "--share:50.0%",
            "mapped, random",
            "part (25 %, when first seen)",
            "<figure id=\"file-0\" data-chart=\"requests\">",
            "[5,9,0,4096,0],[5,9,0,4096,3],[5,8,0,4096,3],[8,9,0,4096,0],[5,9,0,4096,0]",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let empty = explained(&Explanation::default(), &Machine::default(), 0);
        assert!(empty.contains("not seen to read a file") && !empty.contains("<figure"));
    }

    #[test]
    fn no_name_opens_a_tag() {
        let page = explained(&told("<img \"'>&</script>"), &Machine::default(), 0);
        assert!(!page.contains("<img"));
        let own = explained(&told("a.bin"), &Machine::default(), 0);
        let scripts = |page: &str| page.matches("</script>").count();
        assert_eq!(scripts(&page), scripts(&own), "those of the page itself");
    }
}
