//! The page of one program: where its time went, what it read when, what could be gained.
//!
//! ```text
//!   title, theme switch
//!   what was run, what came out, why        words
//!   where the time went                     table
//!   files                                   table
//!   a panel a file                          charts: time -> offset, waits in their own colour
//! ```
//!
//! # Invariants
//! - As of `page`; the panels are those of device requests, so the same script draws them.
//! - At most [`PANELS_MAX`] files have a panel, and every panel in the data has its place.

use std::fmt::Write;

use super::charts::{Chart, Data};
use super::figures::OWN_TIME;
use super::summary::seconds;
use super::{ASSETS, head_of};
use crate::explanation::{ExplainedFile, Explanation};
use crate::html::{escape, script_json};
use crate::quantity::{bytes, count, date, figure, percent};
use crate::record::Machine;
use crate::shell;
use crate::window::Cause;

/// The page of `told`, which was found at `unix_seconds` on `machine`, as the text of an HTML file.
#[must_use]
pub fn explained(told: &Explanation, machine: &Machine, unix_seconds: u64) -> String {
    let program = told.command.first().map_or("a program", String::as_str);
    let title = format!("forerun: what {program} reads");
    let facts: Vec<String> = [date(unix_seconds), machine.cpu.clone(), machine.kernel.clone()]
        .iter()
        .filter(|fact| !fact.is_empty())
        .map(|fact| escape(fact))
        .collect();
    let mut body = head_of(&title, &format!("<span>{}</span>", facts.join(" &middot; ")));
    body += &opening(told);
    body += &times(told);
    body += &files(told);
    let mut charts = Vec::new();
    body += &panels(told, &mut charts);
    let labels = [program.to_owned()];
    let data = Data { policies: &labels, causes: Cause::ALL.map(Cause::name), charts };
    shell::document(&title, &body, &script_json(&data), &ASSETS)
}

fn opening(told: &Explanation) -> String {
    let words: Vec<String> = told.command.iter().map(|word| escape(word)).collect();
    format!(
        "<p class=\"lead\"><code>{}</code> ran for {} and ended with status {}. It was seen to \
         read {}; {} came from devices.</p>\n<p class=\"outcome\">{}</p>\n",
        words.join(" "),
        seconds(told.seconds),
        told.status,
        bytes(told.bytes_read),
        bytes(told.device_bytes),
        escape(&told.prediction.why),
    )
}

/// Where the time went.
fn times(told: &Explanation) -> String {
    let queue = told.queue_seconds.unwrap_or(0.0);
    let rest = told.seconds - told.processor_seconds - told.storage_seconds - queue;
    let mut rows = vec![
        ("computing", told.processor_seconds),
        ("waiting for storage", told.storage_seconds),
        ("waiting for a processor", queue),
    ];
    if told.processes == 1 && rest > 0.0 {
        rows.push(("all else: pipes, sleep, the network", rest));
    }
    let mut text = String::from(
        "<section>\n<h2>Where the time went</h2>\n<div class=\"scroll\" tabindex=\"0\">\
         <table><thead><tr><th scope=\"col\"></th><th scope=\"col\" class=\"n\">Time</th>\
         <th scope=\"col\" class=\"n\">Share of all</th></tr></thead><tbody>",
    );
    for (name, time) in rows {
        let share = time / told.seconds.max(f64::MIN_POSITIVE);
        let _ = write!(
            text,
            "<tr><th scope=\"row\">{name}</th><td class=\"n\">{}</td>\
             <td class=\"n\"><i class=\"share\" style=\"--share:{:.1}%\"></i>\
             <span>{}</span></td></tr>",
            seconds(time),
            (share * 100.0).clamp(0.0, 100.0),
            percent(share),
        );
    }
    let _ = writeln!(
        text,
        "</tbody></table></div>\n<p class=\"note\">Waiting for storage: {}. Several threads or \
         processes compute at the same time.</p>\n</section>",
        escape(&told.storage_basis)
    );
    text
}

fn files(told: &Explanation) -> String {
    let mut text = String::from(
        "<section>\n<h2>Files</h2>\n<div class=\"scroll\" tabindex=\"0\"><table class=\"runs\">\
         <thead><tr><th scope=\"col\">File</th>",
    );
    for name in ["Size", "Read", "Waited"] {
        let _ = write!(text, "<th scope=\"col\" class=\"n\">{name}</th>");
    }
    text += "<th scope=\"col\">Pattern</th><th scope=\"col\" class=\"n\">In order</th>\
             <th scope=\"col\">In memory at first</th></tr></thead><tbody>";
    for file in &told.files {
        let _ = write!(
            text,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escape(&file.path),
            bytes(file.bytes),
            bytes(file.bytes_read),
            seconds(file.storage_seconds),
            pattern(file),
            percent(file.sequential_share),
            start(file),
        );
    }
    if told.files.is_empty() {
        text +=
            "<tr><td colspan=\"7\">It was not seen to read a file of 256 KiB or more.</td></tr>";
    }
    text += "</tbody></table></div>\n";
    if told.files_left_out > 0 {
        let more = count(told.files_left_out);
        let _ = writeln!(text, "<p class=\"note\">{more} openings of more files are left out.</p>");
    }
    text + "</section>\n"
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

fn panels(told: &Explanation, charts: &mut Vec<Chart>) -> String {
    let with = told.files.iter().enumerate().filter(|(_, file)| !file.moments.is_empty());
    let mut text = String::new();
    for (number, file) in with.take(PANELS_MAX) {
        let (id, set) = (format!("file-{number}"), format!("file-{number}"));
        let words = words(file);
        let cut = if file.moments_left_out > 0 {
            let more = count(file.moments_left_out);
            format!("<p class=\"cut\">{more} later looks are left out.</p>")
        } else {
            String::new()
        };
        let _ = write!(
            text,
            "<div class=\"set\" data-set=\"{set}\">\n<div class=\"caption\"><div><h3>{}</h3>\
             <p>{words} <span class=\"hint\">Drag to zoom, double-click to go back.</span></p>\
             </div>{OWN_TIME}</div>\n<div class=\"panels\">\n<figure id=\"{id}\" \
             data-chart=\"requests\"><div class=\"plot\" role=\"img\" aria-label=\"{words}\"></div>\
             \n{cut}{}</figure>\n</div>\n</div>\n",
            escape(&file.path),
            streams(file),
        );
        let requests = file.moments.iter().map(|moment| {
            let kind = if moment.waited { WAITED } else { READ };
            (moment.from_us, moment.to_us, moment.offset, moment.bytes, kind)
        });
        charts.push(Chart::Requests { id, set, policy: 0, requests: requests.collect() });
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "<section class=\"charts\">\n<h2>What was read when</h2>\n<ul class=\"legend\">\
         <li><i class=\"kind demand\"></i>demand<span>, storage was waited for</span></li>\
         <li><i class=\"kind read\"></i>read<span>, without a wait</span></li></ul>\n\
         {text}</section>\n"
    )
}

fn words(file: &ExplainedFile) -> String {
    let plural = if file.streams.len() == 1 { "stream" } else { "streams" };
    format!(
        "{}, {} {plural}; {} read, {} waited.",
        pattern(file),
        count(file.streams.len() as u64 + file.streams_left_out),
        bytes(file.bytes_read),
        seconds(file.storage_seconds),
    )
}

fn streams(file: &ExplainedFile) -> String {
    let mut text = String::from(
        "<details><summary>Streams</summary><div class=\"scroll\" tabindex=\"0\"><table><thead>\
         <tr><th scope=\"col\">Pattern</th>",
    );
    for name in ["Read", "Offset", "End", "From, s", "To, s", "Waited"] {
        let _ = write!(text, "<th scope=\"col\" class=\"n\">{name}</th>");
    }
    text += "</tr></thead><tbody>";
    for stream in &file.streams {
        let _ = write!(
            text,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            stream.pattern,
            bytes(stream.bytes),
            count(stream.offset),
            count(stream.end),
            figure(stream.from_seconds),
            figure(stream.to_seconds),
            seconds(stream.storage_seconds),
        );
    }
    text += "</tbody></table></div>";
    if file.streams_left_out > 0 {
        let more = count(file.streams_left_out);
        let _ = write!(text, "<p class=\"cut\">{more} more are counted with these.</p>");
    }
    text + "</details>\n"
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
        let moment = ReadMoment { from_us: 5, to_us: 9, offset: 0, bytes: 4096, waited: true };
        let stream = ExplainedStream { pattern: "random", bytes: 4096, ..Default::default() };
        let file = ExplainedFile {
            path: name.to_owned(),
            pattern: "random",
            mapped: true,
            start: "part",
            start_share: Some(0.25),
            start_basis: Some("opening"),
            streams: vec![stream],
            moments: vec![moment, ReadMoment { waited: false, ..moment }],
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
            "[5,9,0,4096,0],[5,9,0,4096,3]",
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
