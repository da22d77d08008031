//! `forerun demo`, end to end: short, but all of it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use forerun_testkit::Scratch;
use serde_json::Value;

use crate::browser;

fn folder(test: &str) -> Scratch {
    Scratch::on_disk(&format!("demo-{test}"))
}

fn demo(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forerun"))
        .arg("demo")
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("it starts")
}

#[test]
fn a_short_demo_compares_all_policies_and_writes_a_page_with_all_charts() {
    let test = "a_short_demo_compares_all_policies_and_writes_a_page_with_all_charts";
    let folder = folder("short");
    let output = demo(&folder, &["--seconds", "3", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    let runs = told["runs"].as_array().expect("there are runs");
    let of = |time: &str, streams: u64, readahead: &str| {
        let found = runs.iter().find(|run| {
            (&run["time"], &run["streams"], &run["readahead"])
                == (&time.into(), &streams.into(), &readahead.into())
        });
        found.unwrap_or_else(|| panic!("{time} {streams} {readahead}"))["mb_per_second"]
            .as_f64()
            .expect("a figure")
    };
    assert_eq!(runs.iter().filter(|run| run["time"] == "real").count(), 12);
    assert_eq!(runs.iter().filter(|run| run["time"] == "virtual").count(), 22);
    // How fast it was in real time is for people to see: the machine may be busy.
    assert!(of("real", 10, "linux-2.6.22") > 0.0 && of("real", 10, "linux-2.6.24") > 0.0);
    // Wu, Xi, Xu 2010, section 4.3: 0.81 and 21.78 MB/s, 24.95 and 28.32 for one stream.
    assert!((0.6..1.1).contains(&of("virtual", 10, "linux-2.6.22")));
    assert!((20.0..32.0).contains(&of("virtual", 10, "linux-2.6.24")));
    assert!((24.0..30.0).contains(&of("virtual", 1, "linux-2.6.22")));
    let wanted = |run: &&Value| run["time"] == "real";
    let real: u64 = runs.iter().filter(wanted).filter_map(|r| r["bytes_wanted"].as_u64()).sum();
    assert_eq!(told["verified_bytes"], real);
    programs(&told["programs"], errors.as_ref());

    let page = folder.join("forerun-report.html");
    assert_eq!(told["page"], page.to_str().expect("a plain name"));
    let html = fs::read_to_string(&page).expect("the page is there");
    for part in [
        "real time, at most 0.6 s a run: workload:streams,each=1M",
        "virtual time: workload:streams,each=100M",
        "virtual time: workload:disturb,percent=1,sequential=100M",
        "(emulated)",
        "class=\"run-bar\"",
        "<details class=\"part experiment\">",
        "id=\"throughput-0\"",
        "id=\"delay-0\"",
        "id=\"requests-0-10-0\"",
        "id=\"requests-0-10-2\"",
        "id=\"throughput-1\"",
        "id=\"delay-1\"",
        "id=\"requests-2-1-0\"",
        "id=\"requests-2-1-1\"",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing but the page");
    let Some(chrome) = forerun_testkit::browser(test) else { return };
    let root = browser::look(&chrome, "demo_short", &html, (1_000, false), "");
    assert_eq!((root.get("data-ready"), root.get("data-errors")), ("1", "0"));
    assert_eq!(root.get("data-charts"), (2 + 3 + 3 + 2 + 2).to_string(), "every chart is drawn");
}

/// What the demo says of the programs that it ran, or of their reads on an emulated store.
fn programs(told: &Value, errors: &str) {
    let rows = told["rows"].as_array().expect("rows");
    let left_out = told["left_out"].as_array().expect("a list");
    let place = told["place"].as_str().expect("a place");
    let is_mounted = place.starts_with("Real programs");
    assert!(is_mounted || place.contains("emulated store, not of real programs"), "{place}");
    let missing = usize::from(!is_mounted);
    assert_eq!(rows.len() + left_out.len(), 3 + missing, "{told} {errors}");
    for row in rows {
        for run in ["kernel", "forerun"] {
            let seconds = row[run]["seconds"].as_f64().expect("a time");
            let mut before = 0.0;
            for wait in row[run]["waits"].as_array().expect("spans") {
                let [from, to] = [0, 1].map(|end| wait[end].as_f64().expect("a time"));
                assert!(before <= from && from <= to && to <= seconds + 1e-9, "{run}: {row}");
                before = to;
            }
        }
        assert!(row["kernel"]["waits"][0].is_array(), "a slow store is waited for: {row}");
    }
}

#[test]
fn without_a_volume_the_programs_reads_are_emulated_and_the_page_says_so() {
    let test = "without_a_volume_the_programs_reads_are_emulated_and_the_page_says_so";
    let folder = folder("emulated");
    let output = demo(&folder, &["--seconds", "1", "--no-mount", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    programs(&told["programs"], "");
    let rows = told["programs"]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        // Virtual time: the same everywhere.
        let [kernel, forerun] = ["kernel", "forerun"].map(|run| row[run]["seconds"].as_f64());
        assert!(kernel > forerun && forerun > Some(0.0), "{row}");
    }
    let html = fs::read_to_string(folder.join("forerun-report.html")).expect("the page is there");
    assert!(html.contains("These rows are of the emulated store"));
    assert!(html.contains("Real programs are left out: no slow volume"));
    let Some(chrome) = forerun_testkit::browser(test) else { return };
    browser::check(&chrome, "demo_emulated", &html, "");
}

/// A demo whose volume is mounted below `folder`; none, and `test` is skipped, where it cannot be.
fn mounted(test: &str, folder: &Path) -> Option<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(["demo", "--seconds", "12"]).current_dir(folder).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut demo = command.spawn().expect("it starts");
    let mut ended = false;
    forerun_testkit::until(|| {
        // Without a volume it goes on with what follows, and makes no folder that stays.
        ended = demo.try_wait().expect("it is a child").is_some();
        ended || is_mounted(folder)
    });
    if ended {
        forerun_testkit::skip(test, "FUSE (/dev/fuse and root, or fusermount3)");
    }
    (!ended).then_some(demo)
}

fn is_mounted(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
    mounts.contains(folder.to_str().expect("a plain name"))
}

#[test]
fn a_demo_that_is_interrupted_or_killed_leaves_nothing_mounted() {
    let test = "a_demo_that_is_interrupted_or_killed_leaves_nothing_mounted";
    for (signal, status) in [("-INT", Some(130)), ("-TERM", Some(130)), ("-KILL", None)] {
        let folder = folder("interrupted");
        let Some(mut demo) = mounted(test, &folder) else { return };
        let id = demo.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().is_ok_and(|it| it.success()));
        assert_eq!(demo.wait().expect("it is a child").code(), status, "{signal}");
        forerun_testkit::until(|| !is_mounted(&folder));
        forerun_testkit::until(|| fs::read_dir(&folder).is_ok_and(|left| left.count() == 0));
    }
}

#[test]
fn the_page_of_a_demo_is_whole_at_every_width_light_and_dark() {
    let test = "the_page_of_a_demo_is_whole_at_every_width_light_and_dark";
    let Some(chrome) = forerun_testkit::browser(test) else { return };
    let folder = folder("looked-at");
    let output = demo(&folder, &["--seconds", "2", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let html = fs::read_to_string(folder.join("forerun-report.html")).expect("the page is there");
    browser::check(&chrome, "demo", &html, "");
}

#[test]
fn a_place_that_takes_no_page_is_refused_before_anything_is_read() {
    let folder = folder("refused");
    let rows = [
        ("-o", ".", 1, "a folder"),
        ("-o", "no/page.html", 1, "no such folder"),
        ("-o", "page.pdf", 2, "ends with .html"),
        ("--seconds", "0", 2, "0"),
    ];
    for (flag, value, status, says) in rows {
        let output = demo(&folder, &[flag, value]);
        let errors = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(status), "{errors}");
        assert!(errors.contains(says) && errors.lines().count() == 1, "{errors}");
        assert!(output.stdout.is_empty(), "nothing was begun");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}
