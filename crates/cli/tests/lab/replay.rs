//! `forerun replay`: a trace at its times, on models and on files.

use std::fs;
use std::process::{Command, Output, Stdio};

use forerun_testkit::{Scratch, until};
use serde_json::Value;

fn forerun(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(args).stdin(Stdio::null());
    command
}

fn replay(args: &[&str]) -> Output {
    forerun(&["replay"]).args(args).output().expect("the command runs")
}

fn done(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = replay(args);
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("the command prints text")
}

fn runs(args: &[&str]) -> Vec<Value> {
    let printed: Value = serde_json::from_str(&done(args)).expect("one object");
    printed["runs"].as_array().expect("a list").clone()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"))
}

/// A trace of 4,000 requests for pages of 1 MiB, each third a write, a millisecond apart.
fn written(folder: &Scratch) -> String {
    let mut text = String::from("time,offset,size,op\n");
    let mut state = 7_u64;
    for at in 0..4_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (page, op) = ((state >> 33) % 256, if at % 3 == 2 { "W" } else { "R" });
        let line = format!("{}.{:03},{},4096,{op}\n", at / 1_000, at % 1_000, page * 4_096);
        text.push_str(&line);
    }
    let path = folder.join("trace.csv");
    fs::write(&path, text).expect("a file");
    path.to_str().expect("a text").to_owned()
}

#[test]
fn a_replay_misses_what_the_simulator_misses() {
    let trace = "workload:random,file=64M,bytes=20M,request=4K";
    for policy in ["lru", "2q-star", "arc"] {
        let common = [trace, "--policy", policy, "--json"];
        let sim =
            forerun(&["sim"]).args(common).args(["--size", "1000"]).output().expect("it runs");
        let sim: Value = serde_json::from_slice(&sim.stdout).expect("one object");
        let rows =
            runs(&[&common[..], &["--cache", "1000", "--device", "ssd", "--depth", "1"]].concat());
        assert_eq!(rows[0]["hit_ratio"], sim["runs"][0]["hit_ratio"], "{policy}");
        assert_eq!(rows[0]["requests"], 5_120, "{policy}");
    }
}

#[test]
fn responses_are_those_of_the_device_and_grow_where_it_is_overloaded() {
    let folder = Scratch::new("cli-replay");
    let trace = written(&folder);
    let of = |words: &[&str]| {
        let words = [&[trace.as_str(), "--cache", "128", "--policy", "lru", "--json"], words];
        runs(&words.concat()).remove(0)
    };
    let calm = of(&["--device", "hdd", "--speed", "0.1"]);
    let again = of(&["--device", "hdd", "--speed", "0.1"]);
    assert_eq!(calm, again, "the same run gives the same figures");
    assert_eq!(calm["requests"], 4_000);
    assert!(number(&calm, "bytes_written") > 0.0, "{calm}");
    let wide = of(&["--device", "hdd*4", "--speed", "0.1"]);
    assert!(number(&wide, "device_busy_share") < number(&calm, "device_busy_share"), "{wide}");
    let fast = of(&["--device", "hdd", "--speed", "100"]);
    let mean = |row| number(row, "mean_response_us");
    assert!(mean(&fast) > 10.0 * mean(&calm), "{fast} beside {calm}");
    let share = number(&fast, "device_busy_share");
    assert!((0.9..=1.0).contains(&share), "an overloaded device is always busy: {share}");
    let closed = of(&["--device", "hdd", "--depth", "1"]);
    assert!(mean(&closed) < mean(&fast), "one at a time waits for no other");
}

#[test]
fn a_warm_up_counts_neither_misses_nor_the_time_of_the_device() {
    let folder = Scratch::new("replay-warm-up");
    let trace = folder.join("trace.csv");
    let row = |second: u64, page: u64| format!("{second}.{page:03},{},4096,R\n", page * 4_096);
    let pages = |second| (0..20).map(move |page| row(second, page)).collect::<String>();
    fs::write(&trace, format!("time,offset,size,op\n{}{}", pages(0), pages(10))).expect("a file");
    let common = [trace.to_str().expect("a text"), "--device", "hdd", "--cache", "1M", "--json"];
    let all = &runs(&common)[0];
    let warm = &runs(&[&common[..], &["--warm-up", "5s"]].concat())[0];
    let figures = |row: &Value| {
        [&row["requests"], &row["hit_ratio"]].map(|count| count.as_f64().expect("a number"))
    };
    assert_eq!([figures(all), figures(warm)], [[40.0, 0.5], [20.0, 1.0]]);
    assert!(number(all, "device_busy_share") > 0.0, "{all}");
    assert_eq!(warm["device_busy_share"], 0.0, "{warm}");
}

#[test]
fn a_file_is_read_and_stays_as_it_was() {
    let folder = Scratch::on_disk("cli-replay-file");
    let trace = written(&folder);
    let path = folder.join("disk.img");
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|at| at.to_le_bytes()[1]).collect();
    fs::write(&path, &bytes).expect("a file");
    let modified = fs::metadata(&path).and_then(|found| found.modified()).expect("a time");
    let file = path.to_str().expect("a text");
    let words = [trace.as_str(), "--on", file, "--depth", "4", "--cache", "1M"];
    let text = done(&words);
    assert!(text.contains("1,333 requests that write were left out"), "{text}");
    let row = runs(&[&words[..], &["--json"]].concat()).remove(0);
    assert_eq!(row["requests"], 2_667);
    assert!(number(&row, "bytes_read") >= 4_096.0, "{row}");
    assert_eq!(fs::read(&path).expect("it is there"), bytes);
    let after = fs::metadata(&path).and_then(|found| found.modified()).expect("a time");
    assert_eq!(after, modified, "a replay does not write");
}

#[test]
fn an_interrupted_replay_tells_what_was_replayed() {
    let folder = Scratch::on_disk("cli-replay-interrupted");
    let trace = folder.join("slow.csv");
    let text = "time,offset,size,op\n0,0,4096,R\n0.001,4096,4096,R\n86400,8192,4096,R\n";
    fs::write(&trace, text).expect("a file");
    let trace = trace.to_str().expect("a text");
    let words = ["replay", trace, "--device", "ssd", "--real-time", "--threads", "1", "--json"];
    let mut command = forerun(&words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let tasks = format!("/proc/{}/task", child.id());
    let slots = || {
        let tasks = fs::read_dir(&tasks).expect("it runs").flatten();
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
        tasks
            .filter_map(|task| name(task).ok())
            .filter(|name| name.trim() == "forerun-slot")
            .count()
    };
    until(|| slots() == 1);
    let pid = i32::try_from(child.id()).expect("a number");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(130), "{errors}");
    let printed: Value = serde_json::from_slice(&stdout).expect("one object");
    // The third waits for tomorrow.
    assert!(number(&printed["runs"][0], "requests") <= 2.0, "{printed}");
}

#[test]
fn what_cannot_be_replayed_is_refused_with_a_remedy() {
    let folder = Scratch::new("cli-replay-refused");
    let (trace, small) = (written(&folder), folder.join("small"));
    fs::write(&small, [1; 8_192]).expect("a file");
    let keys = folder.join("keys");
    fs::write(&keys, "1\n2\n3\n").expect("a file");
    let (small, keys) = (small.to_str().expect("a text"), keys.to_str().expect("a text"));
    #[rustfmt::skip]
    let rows: [(&[&str], i32, &str); 9] = [
        (&[&trace],                                          2, "--device"),
        (&[&trace, "--device", "hdx"],                       2, "hdd"),
        (&[&trace, "--device", "hdd*0"],                     2, "1 to 64 devices"),
        (&[&trace, "--device", "hdd", "--policy", "lur"],    2, "lru"),
        (&[&trace, "--device", "hdd", "--speed", "0"],       2, "0.001 to 1000"),
        (&[&trace, "--device", "hdd", "--size", "10%"],      2, "--cache"),
        (&[&trace, "--device", "hdd*2", "--real-time"],      2, "one device alone"),
        (&[&trace, "--on", small],                           1, "larger file"),
        (&[keys, "--device", "hdd", "--format", "keys"],     1, "blocks"),
    ];
    for (words, status, says) in rows {
        let output = replay(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
        assert!(errors.contains(says), "{words:?}: {errors}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}
