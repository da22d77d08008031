//! Prefetching threads in the lab, end to end: `sim --prefetch` and `sim prefetch`.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn sim(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("sim").args(words.split_whitespace()).stdin(Stdio::null());
    command.output().expect("it starts")
}

fn stdout(words: &str) -> String {
    let output = sim(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn runs(words: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(&stdout(words)).expect("one JSON object");
    json["runs"].as_array().expect("runs").clone()
}

#[test]
fn each_thread_is_a_case_and_is_told() {
    let words = "workload:compute,file=16M,rate=46M --device t7k250:cache=on --readahead off \
                 --prefetch none,paper:limit=1M,adaptive --size 64M";
    let runs = runs(&format!("{words} --json"));
    let names: Vec<_> = runs.iter().map(|run| run["prefetch"]["name"].as_str()).collect();
    assert_eq!(names, [None, Some("paper"), Some("adaptive")]);
    assert_eq!(runs[1]["prefetch"]["params"]["limit"], "1M");
    let seconds = |run: usize| runs[run]["device"]["seconds"].as_f64().expect("a figure");
    assert!(seconds(0) > 1.25 * seconds(1) && seconds(0) > 1.25 * seconds(2));
    let table = stdout(words);
    assert!(table.contains("  prefetch ") && table.contains("  seconds "), "{table}");
    assert!(table.contains("adaptive:burst=16M,chunk=128K,limit=64M,nap=1ms"), "{table}");
}

#[test]
fn what_no_thread_can_read_ahead_for_is_refused_with_the_reason() {
    #[rustfmt::skip]
    let rows = [
        ("workload:streams,n=2,each=1M --device ssd --prefetch adaptive", "needs one reader"),
        ("workload:compute --device ssd --prefetch theirs", "neither none nor a thread"),
        ("workload:compute --device ssd --prefetch adaptive:nap=0s", "from 1us to 1s"),
        ("workload:compute --prefetch adaptive",                     "--device"),
        ("prefetch --nap 2s",                                    "from 1us to 1s"),
        ("prefetch --limit 4K,0",                                "at least a byte"),
        ("prefetch --scale 0",                                   "1..=1024"),
        ("prefetch -o /nowhere/run.json",                        "no such folder"),
    ];
    for (words, reason) in rows {
        let output = sim(words);
        let error = String::from_utf8(output.stderr).expect("text");
        assert!(!output.status.success() && error.contains(reason), "{words}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn the_paper_is_in_the_lab() {
    let folder = forerun_testkit::Scratch::on_disk("prefetch");
    let record = folder.join("run.json");
    let text = stdout("prefetch --scale 1024 --limit 512K");
    assert_eq!(text.matches("Table 3, machine").count(), 2, "{text}");
    assert_eq!(text.matches("\n512K").count(), 2, "{text}");
    let words = format!("prefetch --scale 256 --limit 4K,512K --json -o {}", record.display());
    let runs = runs(&words);
    let written = std::fs::read_to_string(&record).expect("it was written");
    let written: Value = serde_json::from_str(&written).expect("one JSON object");
    // Two machines, eight files, two kernels: alone, and three rules at two limits.
    assert_eq!(written["runs"].as_array().map(Vec::len), Some(2 * 8 * 2 * 7));
    assert_eq!(runs.len(), 2 * 8 * 2 * 7);
    let found = |kernel: &str, prefetch: &str, limit: Option<u64>| {
        let run = runs.iter().find(|run| {
            let same = |key: &str, value: &str| run[key] == value;
            let (limit_is, file) = (run["limit_bytes"].as_u64(), run["file"].as_u64());
            same("machine", "A")
                && same("kernel", kernel)
                && same("prefetch", prefetch)
                && limit_is == limit
                && file == Some(8)
        });
        run.expect("it ran")["seconds"].as_f64().expect("a figure")
    };
    let alone = found("no overlap", "none", None);
    let large = found("no overlap", "looks", Some(512 << 10));
    let small = found("no overlap", "looks", Some(4 << 10));
    assert!(alone > 1.25 * large && alone < 1.15 * small, "{alone} {large} {small}");
    assert!(found("overlap", "none", None) < 1.05 * large);
}
