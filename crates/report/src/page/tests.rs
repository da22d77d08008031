//! The page's statements on records, and its escaping of their text.
//!
//! Markup is compared in parts, so that the layout may change.
//! Every text of a record is hostile.

use super::provenance::provenance;
use super::summary::{SPREAD, seconds};
use super::*;
use crate::record::{DeviceRequest, Machine, RequestKind, Run, Spread};
use crate::shell::{ERRORS_JS, SHELL_JS};

fn request(at_us: u64, kind: RequestKind) -> DeviceRequest {
    DeviceRequest { at_us, done_us: at_us + 2_500, offset: 8_192, bytes: 4_096, kind }
}

fn run(readahead: &str, streams: u32) -> Run {
    Run {
        readahead: readahead.to_owned(),
        device: "hdd".to_owned(),
        emulated: true,
        streams,
        workload: "mail".to_owned(),
        mb_per_second: 12.5,
        delay_seconds: 0.25,
        device_requests: 1_234,
        mean_request_bytes: 4_096,
        bytes_read: 105,
        bytes_wanted: 100,
        p50_us: 0.5,
        p99_us: 13_100.0,
        ..Run::default()
    }
}

fn record(runs: Vec<Run>) -> RunRecord {
    RunRecord {
        commit: "0123456789abcdef".to_owned(),
        machine: Machine { cpu: "cpu".to_owned(), cores: 1, ..Machine::default() },
        date: 951_782_400,
        runs,
        ..RunRecord::default()
    }
}

fn html(runs: Vec<Run>) -> String {
    render(&[record(runs)], "title").unwrap()
}

/// Everything but style and scripts.
fn body(html: &str) -> &str {
    &html[html.find("<main>").unwrap()..html.find("</main>").unwrap()]
}

#[test]
fn without_runs_there_is_no_page_but_a_reason() {
    for records in [vec![], vec![record(vec![])]] {
        let error = render(&records, "title").unwrap_err();
        assert_eq!(error, PageError::NoRuns);
        assert!(error.to_string().starts_with("no runs to show: give at least one"));
    }
}

#[test]
fn the_page_asks_the_network_for_nothing() {
    let html = html(vec![run("a", 1)]);
    assert!(html.contains("default-src 'none'"));
    for loader in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!html.contains(loader), "{loader} is in the page");
    }
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
}

#[test]
fn embedded_scripts_and_styles_cannot_end_early() {
    for script in [UPLOT_JS, PAGE_JS, SHELL_JS, ERRORS_JS] {
        assert!(!script.contains("</script") && !script.contains("<!--"));
    }
    for style in [UPLOT_CSS, PAGE_CSS] {
        assert!(!style.contains("</style"));
    }
}

#[test]
fn no_text_of_a_record_opens_a_tag() {
    let attack = "<img \"'>&</script>";
    let mut run = run(attack, 1);
    (run.device, run.workload) = (attack.to_owned(), attack.to_owned());
    run.params.insert(attack.to_owned(), attack.to_owned());
    run.requests = vec![request(0, RequestKind::Demand)];
    let mut record = record(vec![run.clone()]);
    run.params.clear();
    record.runs.push(run);
    record.commit = attack.to_owned();
    record.device = attack.to_owned();
    record.command = vec![attack.to_owned(); 2];
    (record.machine.cpu, record.machine.kernel) = (attack.to_owned(), attack.to_owned());
    record.settings.insert(attack.to_owned(), attack.to_owned());
    let html = render(&[record], attack).unwrap();
    assert!(!html.contains("<img"));
    assert_eq!(html.matches("</script>").count(), 5, "those of the page itself");
    assert!(html.contains("<h1>&lt;img &quot;&#39;&gt;&amp;&lt;/script&gt;</h1>"));
}

#[test]
fn the_table_of_runs_has_every_figure() {
    let mut other = run("b", 10);
    other.ratio_to_limit = Some(0.764);
    other.bytes_read = 106;
    let page = html(vec![run("a", 1), run("b", 1), other]);
    let body = body(&page);
    for part in [
        "<td class=\"n\" data-head=\"Streams\">1</td>\
         <td class=\"n strong\" data-head=\"MB/s\">12.5</td>\
         <td class=\"n\" data-head=\"Of limit\">&ndash;</td>\
         <td class=\"n\" data-head=\"Requests\">1,234</td>\
         <td class=\"n\" data-head=\"Mean size\">4 KiB</td>\
         <td class=\"n\" data-head=\"Delay\">250 ms</td>\
         <td class=\"n\" data-head=\"p50\">500 ns</td>\
         <td class=\"n\" data-head=\"p99\">13.1 ms</td>\
         <td class=\"n\" data-head=\"Read\">105 B</td>\
         <td class=\"n\" data-head=\"Wanted\">100 B</td></tr>",
        "--share:76.4%\"></i><span>76 %</span>",
        "<td class=\"n over\" data-head=\"Read\">106 B</td>",
        "hdd (emulated) <span class=\"workload\">mail</span>",
        "colspan=\"11\"",
    ] {
        assert!(body.contains(part), "{part}");
    }
    assert_eq!(body.matches("<tr class=\"begins\">").count(), 1, "a rule where streams change");
    let begins = &body[body.find("<tr class=\"begins\">").unwrap()..];
    let name = "<tr class=\"begins\"><th scope=\"row\"><span class=\"policy\">\
                <i class=\"mark\" data-policy=\"1\"></i>b</span></th>\
                <td class=\"n\" data-head=\"Streams\">10</td>";
    assert!(begins.starts_with(name), "{begins}");
    assert!(!body.contains(SPREAD), "no column that would be empty");
}

#[test]
fn a_spread_has_its_column_where_any_run_was_repeated() {
    let mut repeated = run("a", 1);
    repeated.spread = Some(Spread { min: 11.0, max: 13.0 });
    let page = html(vec![repeated, run("b", 1)]);
    let body = body(&page);
    assert!(body.contains("<th scope=\"col\" class=\"n\">Min &ndash; max</th>"));
    assert!(body.contains("data-head=\"Min &ndash; max\">11.0 &ndash; 13.0</td>"));
    assert!(body.contains("data-head=\"Min &ndash; max\">&ndash;</td>"));
    assert!(body.contains("colspan=\"12\""));
}

#[test]
fn charts_have_a_legend_words_and_their_figures() {
    let mut limited = run("a", 1);
    let plain = html(vec![limited.clone()]);
    assert!(!body(&plain).contains("device limit") && !body(&plain).contains("Device limit"));
    limited.limit_mb_per_second = Some(28.5);
    let page = html(vec![limited, run("b", 1), run("b", 2)]);
    let body = body(&page);
    assert_eq!(body.matches("</i>device limit</span></li>").count(), 1);
    assert_eq!(body.matches(">Device limit</th>").count(), 1, "not behind the delay");
    assert!(body.contains("aria-label=\"Throughput in MB/s by number of streams. a: 12.5 at 1."));
    assert!(body.contains(
        "<td class=\"n\">12.5</td><td class=\"n\">12.5</td><td class=\"n\">28.5</td></tr>"
    ));
    assert!(body.contains(
        "<th scope=\"row\" class=\"n\">2</th><td \
     class=\"n\">&ndash;</td><td class=\"n\">12.5</td><td class=\"n\">&ndash;</td>"
    ));
    assert!(!body.contains("Device requests over time"), "no run has requests");
}

#[test]
fn a_group_of_one_number_of_streams_has_no_lines_beside_one_that_has() {
    let mut lone = run("a", 1);
    lone.workload = "other".to_owned();
    lone.requests = vec![request(0, RequestKind::Demand)];
    lone.limit_mb_per_second = Some(28.5);
    let page = html(vec![run("a", 1), run("a", 2), lone.clone()]);
    let body = body(&page);
    assert!(body.contains("\"throughput-0\"") && body.contains("\"delay-0\""));
    assert!(!body.contains("\"throughput-1\"") && !body.contains("\"delay-1\""));
    assert!(body.contains("id=\"requests-1-1-0\"") && !body.contains("device limit"));
    assert!(html(vec![run("a", 1), lone]).contains("<figure id=\"throughput-1\""));
}

#[test]
fn panels_stand_side_by_side_and_say_whose_requests_are_missing() {
    let mut with = run("a", 10);
    with.requests = vec![
        request(1_000, RequestKind::Demand),
        request(2_000, RequestKind::Readahead),
        request(3_000, RequestKind::Readahead),
    ];
    let mut left_out = with.clone();
    left_out.readahead = "c".to_owned();
    left_out.requests_left_out = 7;
    left_out.device_requests = 1;
    let page = html(vec![with, run("b", 10), left_out, run("b", 1)]);
    let body = body(&page);
    for part in [
        "Device requests over time, 10 streams",
        "<figure id=\"requests-0-10-0\"",
        "<figure id=\"requests-0-10-2\"",
        "12.5 MB/s, 1,234 requests, mean 4 KiB",
        "12.5 MB/s, 1 request, mean 4 KiB",
        "aria-label=\"a: 3 device requests in 5.50 ms, 1 demand, 2 readahead, 0 write.\"",
        "The first 3 of 10 requests.",
        "<td class=\"n\">1.00</td><td class=\"n\">2.50</td><td class=\"n\">8,192</td><td \
         class=\"n\">4 KiB</td><td>demand</td>",
        "demand<span>, a reader waits",
        "readahead<span>, nobody waits yet",
    ] {
        assert!(body.contains(part), "{part}");
    }
    assert_eq!(body.matches("were not kept").count(), 1);
    assert_eq!(body.matches("class=\"cut\"").count(), 1);
    assert!(!body.contains("dirty pages"), "no request is a write");
    assert!(!body.contains("over time, 1 stream"), "nothing to draw there");
    assert!(!body.contains("more are in the record"));
}

#[test]
fn the_table_behind_a_panel_is_bounded_and_says_so() {
    let mut many = run("a", 1);
    many.requests = (0..103).map(|n| request(n, RequestKind::Write)).collect();
    let page = html(vec![many]);
    let body = body(&page);
    assert!(body.contains("over time, 1 stream<") && body.contains(">3 more are in the record."));
    assert_eq!(body.matches("<td>write</td>").count(), 100);
    let mut full = run("a", 1);
    full.requests = (0..100).map(|n| request(n, RequestKind::Write)).collect();
    assert!(!html(vec![full]).contains("more are in the record."));
}

#[test]
fn times_take_the_unit_that_fits() {
    #[rustfmt::skip]
    let rows = [
        (0.0, "0 s"), (0.000_001, "1.00 &micro;s"), (0.000_999, "999 &micro;s"),
        (0.9994, "999 ms"), (-0.5, "-500 ms"), (100.0, "1 min 40 s"), (f64::NAN, "n/a"),
    ];
    for (value, text) in rows {
        assert_eq!(seconds(value).into_string(), text);
    }
}

#[test]
fn the_head_names_each_origin_once_and_no_more_than_three() {
    let with = |commit: &str| RunRecord { commit: commit.to_owned(), ..record(vec![run("a", 1)]) };
    let head_of = |records: &[RunRecord]| head(records, "title").into_string();
    let fact = "<span>2000-02-29 00:00 UTC &middot; cpu &middot; commit 0123456789</span>";
    let same = [record(vec![run("a", 1)]), record(vec![run("b", 1)])];
    assert_eq!(head_of(&same).matches(fact).count(), 1);
    let four: Vec<RunRecord> = ["w", "x", "y", "z"].map(with).to_vec();
    assert!(head_of(&four).contains("commit y</span> <span>and 1 more</span>"));
    assert!(!head_of(&four[..3]).contains("more</span>"));
    assert!(head_of(&[with("")]).contains("UTC &middot; cpu</span>"), "nothing for no commit");
}

#[test]
fn the_end_says_how_to_repeat_each_record() {
    let mut first = record(vec![run("a", 1), run("a", 2), run("b", 1)]);
    for run in &mut first.runs[..2] {
        run.params.insert("max".to_owned(), "1M".to_owned());
        run.params.insert("min".to_owned(), "4K".to_owned());
    }
    first.command = vec!["forerun".to_owned(), "demo".to_owned()];
    first.device = "hdd".to_owned();
    (first.seed, first.warm_up, first.repeats) = (7, 1, 3);
    first.settings.insert("cache".to_owned(), "64M".to_owned());
    let provenance = |records: &[RunRecord]| provenance(records).into_string();
    let text = provenance(&[first.clone()]);
    for part in [
        "<dt>Command</dt><dd><code>forerun demo</code></dd>",
        "<dt>Commit</dt><dd><code>0123456789abcdef</code></dd>",
        "<dt>Machine</dt><dd>cpu, 1 core, 0 B of memory, </dd>",
        "<dt>Repeats</dt><dd>3 counted after 1 to warm up</dd>",
        "<dt>Seed</dt><dd>7</dd>",
        "<dt>Device</dt><dd><code>hdd</code></dd>",
        "<dt>Settings</dt><dd><code>cache=64M</code></dd>",
        "<dt>Parameters</dt><dd><code>a: max=1M, min=4K</code></dd>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("<h3>"), "one record has no number: {text}");
    first.device.clear();
    assert!(!provenance(std::slice::from_ref(&first)).contains("<dt>Device"));
    first.machine.cores = 2;
    assert!(provenance(&[record(vec![]), first]).contains("<h3>Record 2</h3>"));
}

#[test]
fn the_same_records_give_the_same_page() {
    assert_eq!(html(vec![run("a", 1)]), html(vec![run("a", 1)]));
}
