//! The page's opening, in plain words: the measurement, the device, the result.
//!
//! Every sentence is computed from the runs, so it is as true as they are. With one policy there is
//! nothing to compare, and nothing is compared.
//!
//! # Invariants
//! - Only figures of the same group and number of streams are compared.
//! - The returned text is escaped markup.

use super::group::{Group, Groups};
use crate::html::Text;
use crate::quantity::{figure, percent};
use crate::record::Run;
use maud::{Markup, Render, html};

/// The opening paragraphs.
pub(super) fn opening(page: &Groups<'_>) -> Markup {
    html! {
        p.lead { (measured(page)) }
        @for outcome in page.groups.iter().filter_map(|group| outcome(page, group)) {
            p.outcome { (outcome) }
        }
    }
}

/// The workloads and their devices.
fn measured(page: &Groups<'_>) -> Markup {
    let mut streams: Vec<u32> = page.groups.iter().flat_map(Group::streams).collect();
    streams.sort_unstable();
    streams.dedup();
    let rows = || page.groups.iter().flat_map(|group| &group.rows);
    let ran = |policy: &usize| rows().any(|row| row.policy == *policy);
    let policies = (0..page.labels.len()).filter(ran).map(|policy| code(&page.labels[policy]));
    let policies: Vec<Markup> = policies.collect();
    let plural = if streams.last() == Some(&1) { "stream" } else { "streams" };
    html! {
        "This page " (if policies.len() == 1 { "shows" } else { "compares" }) " how fast "
        (list(&streams, "or")) " " (plural) " of reads "
        (if streams == [1] { "is" } else { "are" }) " served with " (list(&policies, "and")) "."
        @for (emulated, (one, many)) in KINDS {
            @let devices = devices(page, emulated);
            @if !devices.is_empty() {
                " " (list(&devices, "and")) " " (if devices.len() == 1 { one } else { many })
            }
        }
    }
}

/// The emulated devices, or the real ones, each once.
fn devices(page: &Groups<'_>, emulated: bool) -> Vec<Markup> {
    let mut devices: Vec<&str> = Vec::new();
    for group in page.groups.iter().filter(|group| group.emulated == emulated) {
        if !devices.contains(&group.device) {
            devices.push(group.device);
        }
    }
    devices.into_iter().map(code).collect()
}

/// The fastest and the slowest where most streams ran.
fn outcome(page: &Groups<'_>, group: &Group<'_>) -> Option<Markup> {
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
    let plural = if streams == 1 { "stream" } else { "streams" };
    let times = best.mb_per_second / worst.mb_per_second;
    let comparison = if runs.len() == 1 {
        html! { "." }
    } else if times < 1.02 {
        html! { "; no policy was more than 2 % slower." }
    } else if worst.mb_per_second <= 0.0 {
        html! { "; " (code(slowest)) " got nothing through." }
    } else if times < 2.0 {
        html! {
            "; " (code(slowest)) " was slowest with " (figure(worst.mb_per_second)) " MB/s, "
            (percent(1.0 - 1.0 / times)) " less."
        }
    } else {
        html! {
            ": " strong { (figure(times)) " times" } " the " (figure(worst.mb_per_second))
            " MB/s of " (code(slowest)) "."
        }
    };
    Some(html! {
        "With " (streams) " " (plural) (place(page, group)) ", " (code(fastest)) " reached "
        strong { (figure(best.mb_per_second)) " MB/s" }
        @if let Some(ratio) = best.ratio_to_limit {
            ", " (percent(ratio)) " of what the device can give"
        }
        (comparison)
    })
}

/// Where a group ran, as far as the page has to say so.
fn place(page: &Groups<'_>, group: &Group<'_>) -> Markup {
    let device = group.device_in_words();
    let like = page.groups.iter().filter(|other| other.device_in_words() == device).count();
    html! {
        @if page.groups.len() > 1 {
            " on " (Text(&device))
            @if like > 1 && !group.workload.is_empty() { " (" (Text(&group.workload)) ")" }
        }
    }
}

fn code(name: &str) -> Markup {
    html! { code { (Text(name)) } }
}

/// `a, b and c`.
fn list(words: &[impl Render], last: &str) -> Markup {
    html! {
        @for (number, word) in words.iter().enumerate() {
            @if number + 1 == words.len() && number > 0 { " " (last) " " }
            @else if number > 0 { ", " }
            (word)
        }
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
        opening(&Groups::new(&records))
            .into_string()
            .replace("<strong>", "")
            .replace("</strong>", "")
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
            assert!(text.ends_with(&format!("{end}</p>")), "{why}: {text}");
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
