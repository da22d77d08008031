//! Records that survive JSON unchanged, and records that are refused.
//!
//! Old schemas stay readable.
//! Files are whole or not there.

use super::*;
use forerun_core::readahead::Cause;
use forerun_testkit::Scratch;
use std::fs;

fn full() -> RunRecord {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    RunRecord {
        schema: Schema::First,
        commit: "8fd6de2".to_owned(),
        machine: Machine {
            cpu: "Core \"2\" \\ \u{fc}".to_owned(),
            cores: 2,
            memory_bytes: u64::MAX,
            kernel: "Linux 6.18".to_owned(),
        },
        date: 1_795_203_000,
        command: vec!["forerun".to_owned(), "bench".to_owned()],
        device: "t7k250".to_owned(),
        settings: map(&[("cache", "64M")]),
        seed: u64::MAX,
        warm_up: 1,
        repeats: 3,
        runs: vec![Run {
            readahead: "linux-2.6.24".to_owned(),
            params: map(&[("max", "1M")]),
            device: "t7k250".to_owned(),
            emulated: true,
            drive_cache: Some(false),
            streams: 10,
            workload: "workload:streams,n=10".to_owned(),
            mb_per_second: 21.78,
            delay_seconds: 0.1 + 0.2,
            device_requests: 2_000,
            mean_request_bytes: 524_288,
            bytes_read: u64::MAX,
            bytes_wanted: 1,
            limit_mb_per_second: Some(28.5),
            ratio_to_limit: Some(0.764),
            p50_us: 1.5,
            p99_us: 1e300,
            late_max_seconds: Some(0.5),
            spread: Some(Spread { min: 21.0, max: 22.0 }),
            waits: Some(Waits {
                mean_us: 11.0,
                trimmed_mean_us: 10.5,
                cpu_us_per_io: 0.1,
                late_share: 0.05,
                quantiles_us: vec![9.0, 10.0],
            }),
            requests: [RequestKind::Demand, RequestKind::Readahead, RequestKind::Write]
                .map(|kind| DeviceRequest { at_us: 1, done_us: 2, offset: 3, bytes: 4, kind })
                .to_vec(),
            requests_left_out: 7,
            windows: vec![Window {
                at_us: 1,
                last_use_us: 2,
                handle: 3,
                stream: Some(4),
                cause: Cause::Recovered,
                offset: 5,
                bytes: u64::MAX,
                tail_bytes: 6,
                fresh_bytes: 7,
                used_bytes: 8,
                late_bytes: 9,
                wasted_bytes: 10,
                failed_bytes: 11,
                unread_bytes: 12,
            }],
            windows_left_out: 9,
        }],
    }
}

#[test]
fn a_record_comes_back_equal_whether_full_or_bare() {
    let folder = Scratch::new("round-trip");
    let path = folder.join("run.json");
    let bare = RunRecord { runs: vec![Run::default()], ..RunRecord::default() };
    for record in [full(), bare, RunRecord::default()] {
        record.write(&path).unwrap();
        assert_eq!(RunRecord::read(&path).unwrap(), record);
    }
}

#[test]
fn the_json_has_the_documented_names() {
    let json = serde_json::to_value(full()).unwrap();
    assert_eq!(json["schema"], "forerun-run/1");
    assert_eq!(json["runs"][0]["requests"][1]["kind"], "readahead");
    assert_eq!(json["runs"][0]["requests_left_out"], 7);
    let bare = serde_json::to_value(Run::default()).unwrap();
    let windows = &json["runs"][0]["windows"];
    assert_eq!(
        (&windows[0]["cause"], &windows[0]["stream"]),
        (&"async-recovered".into(), &4.into())
    );
    let optional = ["requests", "requests_left_out", "windows", "windows_left_out", "spread"];
    for field in optional.into_iter().chain(["limit_mb_per_second"]) {
        assert!(bare.get(field).is_none(), "{field} is left out when there is none");
    }
}

#[test]
fn what_is_no_record_of_this_version_is_refused_in_one_line_that_names_the_file() {
    let folder = Scratch::new("refused-records");
    let path = folder.join("two\nlines.json");
    let whole = serde_json::to_string(&full()).unwrap();
    #[rustfmt::skip]
    let rows = [ // why                  content                                  the error says
        ("a future version",       whole.replace("run/1", "run/2"),
                   "schema \"forerun-run/2\""),
        ("another version shape",  r#"{"schema":"x","runs":5}"#.to_owned(), "schema \"x\""),
        ("no schema",              r#"{"runs":[]}"#.to_owned(),
                       "it has no \"schema\""),
        ("a schema of no text",    r#"{"schema":1}"#.to_owned(),
                      "it has no \"schema\""),
        ("cut short",              whole[..whole.len() / 2].to_owned(),    "line 1 column"),
        ("empty",                  String::new(),                          "line 1 column 0"),
        ("no object",              "[1,2]".to_owned(),
                                "no whole run record"),
        ("a field is missing",     r#"{"schema":"forerun-run/1"}"#.to_owned(),
            "missing field `commit`"),
        ("a wrong kind of value",  whole.replace("\"seed\":", "\"seed\":-"), "line 1 column"),
    ];
    for (why, content, expected) in rows {
        fs::write(&path, content).unwrap();
        let error = RunRecord::read(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{why}: {error}");
        assert!(error.contains("lines.json") && !error.contains('\n'), "{why}: {error}");
    }
    let missing = folder.join("missing.json");
    let error = RunRecord::read(&missing).unwrap_err().to_string();
    assert!(error.contains("missing.json") && error.contains("No such file"), "{error}");
}

#[test]
fn a_field_of_the_same_version_that_is_not_known_is_passed_over() {
    let text = serde_json::to_string(&full()).unwrap().replacen('{', "{\"later\":[1],", 1);
    assert_eq!(RunRecord::parse(Path::new("x"), text.as_bytes()).unwrap(), full());
}

#[test]
fn a_run_alone_says_by_its_record_which_schema_it_follows() {
    assert!(serde_json::from_str::<Schema>("\"forerun-run/1\"").is_ok());
    assert!(serde_json::from_str::<Schema>("\"forerun-run/9\"").is_err());
}

#[test]
fn a_file_too_long_for_a_record_is_refused() {
    let folder = Scratch::new("too-long");
    let path = folder.join("long.json");
    full().write(&path).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    assert_eq!(RunRecord::read_up_to(&path, length).unwrap(), full());
    let error = RunRecord::read_up_to(&path, length - 1).unwrap_err();
    assert!(matches!(error, ReadError::TooLong { .. }), "{error}");
    const { assert!(RECORD_BYTES_MAX >= 100 << 20, "a million requests are 100 MB") };
}

#[test]
fn figures_that_json_cannot_hold_are_refused_and_the_old_record_stays() {
    type Spoil = fn(&mut Run);
    let folder = Scratch::new("not-finite");
    let path = folder.join("run.json");
    full().write(&path).unwrap();
    #[rustfmt::skip]
    let rows: [(&str, Spoil); 8] = [
        ("mb_per_second",       |r| r.mb_per_second = f64::NAN),
        ("delay_seconds",       |r| r.delay_seconds = f64::INFINITY),
        ("limit_mb_per_second", |r| r.limit_mb_per_second = Some(f64::NAN)),
        ("ratio_to_limit",      |r| r.ratio_to_limit = Some(f64::NEG_INFINITY)),
        ("p50_us",              |r| r.p50_us = f64::NAN),
        ("p99_us",              |r| r.p99_us = f64::NAN),
        ("spread",              |r| r.spread = Some(Spread { min: f64::NAN, max: 1.0 })),
        ("spread",              |r| r.spread = Some(Spread { min: 1.0, max: f64::NAN })),
    ];
    for (field, spoil) in rows {
        let mut record = full();
        spoil(&mut record.runs[0]);
        let error = record.write(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("{field} of run 0")), "{error}");
        assert_eq!(RunRecord::read(&path).unwrap(), full());
    }
}

#[test]
fn a_record_that_cannot_be_written_says_where() {
    let folder = Scratch::new("unwritable");
    let error = full().write(&folder.join("missing/run.json")).unwrap_err().to_string();
    assert!(error.contains("missing/run.json"), "{error}");
}

#[test]
fn requests_are_cut_at_the_end_and_counted() {
    let mut run = full().runs.remove(0);
    run.cut_requests(3);
    assert_eq!((run.requests.len(), run.requests_left_out), (3, 7));
    run.cut_requests(1);
    assert_eq!((run.requests.len(), run.requests_left_out), (1, 9));
    assert_eq!(run.requests[0].kind, RequestKind::Demand);
}
