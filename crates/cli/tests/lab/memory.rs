//! The lab on traces that are too large: its memory is bounded, and samples stand for the whole.
//!
//! # Invariants
//! - Memory is what the kernel says that the process took at most.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use forerun_core::prng::Prng;
use serde_json::Value;

/// `forerun sim` of what is written to its standard input.
fn started(words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(["sim", "-"]).args(words.split_whitespace());
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().expect("the command starts")
}

/// Words of 8 bytes: `accesses` of `distinct` keys, most of them of few.
fn words(accesses: u64, distinct: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut prng = Prng::new(3);
    let mut left = accesses;
    std::iter::from_fn(move || {
        let count = left.min(8_192);
        left -= count;
        let mut draw = || {
            let most = 1 + prng.below(distinct);
            prng.below(most).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        (count > 0).then(|| (0..count).flat_map(|_| draw().to_le_bytes()).collect())
    })
}

/// The most memory that the process of `child` has had.
fn peak_bytes(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is told");
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

fn runs(output: &Output) -> Vec<Value> {
    let Output { status, stdout, stderr } = output;
    assert!(status.success(), "{}", String::from_utf8_lossy(stderr));
    let json: Value = serde_json::from_slice(stdout).expect("one JSON object");
    json["runs"].as_array().expect("runs").clone()
}

#[test]
fn a_long_trace_takes_the_memory_of_its_distinct_pages() {
    let mut child =
        started("--format i64le --policy lru,2q,lirs,s3-fifo --size 1000,10000 --threads 1 --json");
    let mut input = child.stdin.take().expect("piped");
    let (accesses, mut bytes) = (8_000_000, 0);
    for part in words(accesses, 50_000) {
        input.write_all(&part).expect("it is read");
        bytes += part.len() as u64;
    }
    // It has all but what is in the pipe, and cannot end before the pipe is closed.
    let peak = peak_bytes(&child);
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    for run in runs(&output) {
        assert_eq!(run["accesses"], accesses);
    }
    assert!(bytes == 64_000_000 && peak < 48 << 20, "{peak} bytes for a trace of {bytes}");
}

#[test]
fn what_does_not_fit_is_refused_and_the_sample_that_is_proposed_fits() {
    let run = |rate: &str| {
        let words_of =
            format!("--format i64le --policy 2q --size 200000 --memory 8M --sample {rate} --json");
        let mut child = started(&words_of);
        let mut input = child.stdin.take().expect("piped");
        for part in words(1_500_000, 1_000_000) {
            // It may end before it has read all.
            if input.write_all(&part).is_err() {
                break;
            }
        }
        drop(input);
        child.wait_with_output().expect("it ends")
    };
    let refused = run("1");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{why}");
    let rate = why.split("--sample ").nth(1).and_then(|rest| rest.split(',').next());
    let rate = rate.unwrap_or_else(|| panic!("no rate is proposed: {why}"));
    let run = &runs(&run(rate))[0];
    assert_eq!(run["accesses"], 1_500_000);
    assert_eq!(run["sample"]["rate"].to_string(), rate);
    let error = run["sample"]["hit_ratio_error"].as_f64().expect("an error");
    assert!(error > 0.0 && error < 0.05, "{error}");
}

#[test]
fn a_sample_of_a_file_is_near_the_whole() {
    let folder = forerun_testkit::Scratch::new("lab");
    let path = folder.join("keys");
    let mut text = String::new();
    for part in words(400_000, 100_000) {
        for word in part.chunks_exact(8) {
            let key = u64::from_le_bytes(word.try_into().expect("eight"));
            writeln!(text, "{key}").expect("a string takes all");
        }
    }
    fs::write(&path, text).expect("the folder takes a file");
    let of = |rate: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
        command.arg("sim").arg(&path).args(["--size", "10%", "--policy", "lru,arc", "--json"]);
        runs(&command.args(["--sample", rate]).output().expect("the command runs"))
    };
    for (whole, part) in of("1").iter().zip(of("0.1")) {
        assert!(whole["sample"].is_null());
        let pages = |run: &Value| run["cache_pages"].as_f64().expect("pages");
        assert!((pages(whole) / pages(&part) - 1.0).abs() < 0.03, "{whole} {part}");
        let ratio = |run: &Value| run["hit_ratio"].as_f64().expect("a ratio");
        let error = part["sample"]["hit_ratio_error"].as_f64().expect("an error");
        let off = (ratio(whole) - ratio(&part)).abs();
        assert!(off < 4.0 * error + 0.002 && error < 0.02, "{off} of {error}");
    }
}

#[test]
fn samples_are_of_replacement_alone() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(["sim", "workload:streams", "--device", "hdd", "--sample", "0.1"]);
    let output = command.output().expect("the command runs");
    assert_eq!(output.status.code(), Some(2));
}
