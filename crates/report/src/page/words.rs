//! The page's opening, in plain words: what was measured, on what, and what came out.
//!
//! Every sentence is computed from the runs, so it is as true as they are. With one policy there is
//! nothing to compare, and nothing is compared.
//!
//! # Invariants
//! - Only figures of the same group and number of streams are compared.
//! - What is returned is escaped markup.

use super::group::{Group, Groups};
use crate::html::escape;
use crate::quantity::{figure, percent};
use crate::record::Run;
use std::fmt::Write;

/// The opening paragraphs, as markup.
pub(super) fn opening(page: &Groups<'_>) -> String {
    let mut text = format!("<p class=\"lead\">{}</p>\n", measured(page));
    for group in &page.groups {
        if let Some(outcome) = outcome(page, group) {
            let _ = writeln!(text, "<p class=\"outcome\">{outcome}</p>");
        }
    }
    text
}

/// What ran on what.
fn measured(page: &Groups<'_>) -> String {
    let mut streams: Vec<u32> = page.groups.iter().flat_map(Group::streams).collect();
    streams.sort_unstable();
    streams.dedup();
    let rows = || page.groups.iter().flat_map(|group| &group.rows);
    let ran = |policy: &usize| rows().any(|row| row.policy == *policy);
    let policies = (0..page.labels.len()).filter(ran).map(|policy| code(&page.labels[policy]));
    let policies: Vec<String> = policies.collect();
    let counts: Vec<String> = streams.iter().map(ToString::to_string).collect();
    let plural = if streams.last() == Some(&1) { "stream" } else { "streams" };
    let mut text = format!(
        "This page compares how fast {} {plural} of reads {} served with {}.",
        list(&counts, "or"),
        if streams == [1] { "is" } else { "are" },
        list(&policies, "and"),
    );
    if policies.len() == 1 {
        text = text.replacen("compares", "shows", 1);
    }
    for (emulated, words) in KINDS {
        let mut devices: Vec<String> = Vec::new();
        for group in page.groups.iter().filter(|group| group.emulated == emulated) {
            let name = code(group.device);
            if !devices.contains(&name) {
                devices.push(name);
            }
        }
        let (one, many) = words;
        if !devices.is_empty() {
            let kind = if devices.len() == 1 { one } else { many };
            let _ = write!(text, " {} {kind}", list(&devices, "and"));
        }
    }
    text
}

/// The fastest and the slowest where most streams ran.
fn outcome(page: &Groups<'_>, group: &Group<'_>) -> Option<String> {
    let streams = *group.streams().last()?;
    let mut runs: Vec<(&str, &Run)> = group
        .rows
        .iter()
        .filter(|row| row.run.streams == streams && row.run.mb_per_second.is_finite())
        .map(|row| (page.labels[row.policy].as_str(), row.run))
        .collect();
    runs.sort_by(|(_, a), (_, b)| b.mb_per_second.total_cmp(&a.mb_per_second));
    let (fastest, best) = *runs.first()?;
    let (slowest, worst) = *runs.last()?;
    let limit = best.ratio_to_limit.map_or_else(String::new, |ratio| {
        format!(", {} of what the device can give", percent(ratio))
    });
    let plural = if streams == 1 { "stream" } else { "streams" };
    let place = if page.groups.len() == 1 {
        String::new()
    } else {
        let device = group.device_in_words();
        let like = page.groups.iter().filter(|other| other.device_in_words() == device).count();
        let workload = if like > 1 && !group.workload.is_empty() {
            format!(" ({})", escape(&group.workload))
        } else {
            String::new()
        };
        format!(" on {}{workload}", escape(&device))
    };
    let reached = format!("<strong>{} MB/s</strong>{limit}", figure(best.mb_per_second));
    let place = format!("With {streams} {plural}{place}, {} reached {reached}", code(fastest));
    if runs.len() == 1 {
        return Some(format!("{place}."));
    }
    let times = best.mb_per_second / worst.mb_per_second;
    Some(if times < 1.02 {
        format!("{place}; no policy was more than 2 % slower.")
    } else if worst.mb_per_second > 0.0 && times < 2.0 {
        format!(
            "{place}; {} was slowest with {} MB/s, {} less.",
            code(slowest),
            figure(worst.mb_per_second),
            percent(1.0 - 1.0 / times)
        )
    } else if worst.mb_per_second > 0.0 {
        format!(
            "{place}: <strong>{} times</strong> the {} MB/s of {}.",
            figure(times),
            figure(worst.mb_per_second),
            code(slowest)
        )
    } else {
        format!("{place}; {} got nothing through.", code(slowest))
    })
}

fn code(name: &str) -> String {
    format!("<code>{}</code>", escape(name))
}

/// `a, b and c`.
fn list(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

/// Emulated or not, and what to say of one such device or of several.
const KINDS: [(bool, (&str, &str)); 2] = [
    (
        true,
        (
            "is an emulated device: a model computes when each request is done, no hardware \
             was timed.",
            "are emulated devices: models compute when each request is done, no hardware was \
             timed.",
        ),
    ),
    (
        false,
        (
            "is a real device: its requests were timed.",
            "are real devices: their requests were timed.",
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RunRecord;

    fn run(readahead: &str, streams: u32, mb_per_second: f64) -> Run {
        Run {
            readahead: readahead.to_owned(),
            device: "t7k250".to_owned(),
            emulated: true,
            streams,
            mb_per_second,
            ..Run::default()
        }
    }

    fn words(runs: Vec<Run>) -> String {
        let records = [RunRecord { runs, ..RunRecord::default() }];
        opening(&Groups::new(&records)).replace("<strong>", "").replace("</strong>", "")
    }

    #[test]
    fn the_opening_names_streams_policies_and_the_kind_of_device() {
        let mut real = run("<b>", 2, 2.0);
        (real.device, real.emulated) = ("/dev/sda".to_owned(), false);
        let text = words(vec![run("a", 1, 1.0), run("a", 10, 1.0), real]);
        for part in [
            "compares how fast 1, 2 or 10 streams of reads are served with",
            "<code>a</code> and <code>&lt;b&gt;</code>.",
            "<code>t7k250</code> is an emulated device",
            "<code>/dev/sda</code> is a real device",
            "With 10 streams on t7k250,",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = words(vec![run("a", 1, 1.0)]);
        assert!(text.contains("shows how fast 1 stream of reads is served with <code>a"), "{text}");
        assert!(text.contains("With 1 stream, <code>a</code> reached 1.00 MB/s.</p>"), "{text}");
    }

    #[test]
    fn two_devices_of_a_kind_are_named_once_each() {
        let mut other = run("a", 1, 1.0);
        other.device = "hdd".to_owned();
        let text = words(vec![run("a", 1, 1.0), run("b", 1, 1.0), other]);
        assert!(text.contains("<code>t7k250</code> and <code>hdd</code> are emulated"), "{text}");
    }

    #[test]
    fn the_outcome_compares_the_fastest_with_the_slowest_at_most_streams() {
        let mut fast = run("fast", 10, 21.78);
        fast.ratio_to_limit = Some(0.764);
        #[rustfmt::skip]
        let rows = [ // why            slowest   the outcome ends
            ("many times slower",  0.81,
                   "21.8 MB/s, 76 % of what the device can give: 26.9 times the 0.810 MB/s of \
                    <code>slow</code>."),
            ("twice is a multiple", 10.89,  ": 2.00 times the 10.9 MB/s of <code>slow</code>."),
            ("somewhat slower",    20.0,
                   "; <code>slow</code> was slowest with 20.0 MB/s, 8.2 % less."),
            ("the same",           21.5,    "; no policy was more than 2 % slower."),
            ("nothing",            0.0,     "; <code>slow</code> got nothing through."),
        ];
        for (why, slow, end) in rows {
            let text = words(vec![run("slow", 1, 99.0), run("slow", 10, slow), fast.clone()]);
            assert!(text.ends_with(&format!("{end}</p>\n")), "{why}: {text}");
        }
    }

    #[test]
    fn groups_on_the_same_device_are_told_apart_by_their_workload() {
        let with = |workload: &str| Run { workload: workload.to_owned(), ..run("a", 2, 1.0) };
        let text = words(vec![with("x"), with("<y>")]);
        assert!(text.contains("With 2 streams on t7k250 (x), <code>a</code>"), "{text}");
        assert!(text.contains("With 2 streams on t7k250 (&lt;y&gt;), <code>a</code>"), "{text}");
        let other = Run { device: "hdd".to_owned(), ..with("x") };
        let text = words(vec![with("x"), other]);
        assert!(text.contains("With 2 streams on hdd, <code>a</code>"), "{text}");
    }

    #[test]
    fn a_figure_that_is_no_number_is_not_compared() {
        let text = words(vec![run("a", 1, f64::NAN), run("b", 1, 2.0)]);
        assert!(text.contains("<code>b</code> reached 2.00 MB/s.</p>"), "{text}");
    }
}
