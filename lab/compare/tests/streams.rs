//! `forerun-compare streams`, end to end, at its smallest: the kernel, the engine and the virtual
//! device read the same streams from an emulated network volume.
//!
//! Without root, FUSE or loop devices it is skipped by name, as it is where the command to measure
//! was not built: what `cargo test --workspace` does.
//!
//! # Invariants
//! - Nothing stays mounted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_testkit::{seconds_max, skip};

const TEST: &str = "the_kernel_and_the_engine_read_the_same_streams";

#[test]
fn the_kernel_and_the_engine_read_the_same_streams() {
    let compare = Path::new(env!("CARGO_BIN_EXE_forerun-compare"));
    let forerun = compare.with_file_name("forerun");
    if !forerun.exists() {
        return skip(TEST, "the command was not built beside this one");
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-streams");
    let _ = fs::remove_dir_all(&out);
    let mut command = Command::new(compare);
    command.args(["streams", "--quick", "--device", "cloud", "--pattern", "streams-10-10M"]);
    command.args(["--ra", "128,1024", "--folios", "large", "--readahead", "linux-6"]);
    // Each run reads all: on a loaded machine any limit of its time is too short.
    command.args(["--rounds", "2", "--log", "--seconds", &seconds_max().to_string()]);
    command.arg("--forerun").arg(&forerun).arg("--out").arg(&out);
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let own = format!("bed-{}", started.id());
    let ended = started.wait_with_output().expect("it ends");
    let (text, errors) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{text}{errors}");
    if let Some(why) = text.lines().find_map(|line| line.strip_prefix("left out: ")) {
        return skip(TEST, why);
    }
    let record = fs::read(out.join("cloud.json")).expect("there is a record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("it is JSON");
    let runs = record["runs"].as_array().expect("it has runs");
    let names: Vec<_> = runs.iter().map(|run| run["readahead"].as_str().unwrap_or("?")).collect();
    let expected = [
        "kernel 128K, large folios",
        "kernel 1024K, large folios",
        "forerun linux-6",
        "virtual linux-6",
    ];
    assert_eq!(names, expected, "{text}");
    for run in &runs[..3] {
        let requests = run["requests"].as_array().expect("a log of the device");
        assert!(!requests.is_empty() && requests.iter().all(|it| it["kind"] == "read"), "{run}");
        let (min, max) = (&run["spread"]["min"], &run["spread"]["max"]);
        assert!(min.as_f64() <= max.as_f64() && min.as_f64().is_some(), "{run}");
    }
    assert!(runs[3]["limit_mb_per_second"].is_number(), "the online limit: {}", runs[3]);
    let summary = fs::read_to_string(out.join("summary.md")).expect("there is a summary");
    assert!(summary.contains("| cloud | streams-10-10M | "), "{summary}");
    assert!(out.join("page.html").exists(), "the requests are drawn");
    for run in runs {
        assert_eq!(run["bytes_wanted"], 10 * (2_560 << 10), "{run}");
        assert!(run["bytes_read"].as_u64() >= run["bytes_wanted"].as_u64(), "{run}");
        // Nothing comes faster than from the device, but for its first moments.
        let rate = run["mb_per_second"].as_f64().expect("a rate");
        assert!(rate > 0.0 && rate < 130.0, "{run}");
    }
    let mounts = fs::read_to_string("/proc/mounts").expect("a system has mounts");
    assert!(!mounts.contains(&own), "{mounts}");
}
