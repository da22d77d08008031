//! `forerun sim walks`: from strace's text over a trace to a table.

use std::fs;
use std::process::{Command, Output, Stdio};

use forerun_testkit::Scratch;
use serde_json::Value;

fn forerun(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(args).stdin(Stdio::null());
    command
}

fn walks(args: &[&str]) -> Output {
    forerun(&["sim", "walks"]).args(args).output().expect("the command runs")
}

fn done(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = walks(args);
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("the command prints text")
}

/// A tree of 40 files, and what strace writes of a program that reads them by name.
fn recorded(folder: &Scratch) -> [String; 2] {
    let top = folder.join("tree");
    fs::create_dir(&top).expect("a folder");
    let top_text = top.to_str().expect("a text").to_owned();
    let mut lines = Vec::new();
    for number in 0..40_u32 {
        fs::write(top.join(format!("f{number:02}")), [7; 3_000]).expect("a file");
        let path = format!("{top_text}/f{number:02}");
        let at = number * 2_000;
        lines.push(format!("9 5.{at:06} openat(3<{top_text}>, \"f{number:02}\", 0) = 4<{path}>"));
        let read = at + 500;
        lines.push(format!("9 5.{read:06} read(4<{path}>, \"\"..., 4096) = 3000 <0.000010>"));
    }
    let strace = folder.join("read.strace");
    fs::write(&strace, lines.join("\n")).expect("a file");
    [strace.to_str().expect("a text").to_owned(), top_text]
}

#[test]
fn what_strace_wrote_becomes_a_trace_and_the_trace_a_row() {
    let folder = Scratch::new("cli-walks");
    let [strace, tree] = recorded(&folder);
    let trace = folder.join("read.jsonl");
    let trace = trace.to_str().expect("a text");
    let words = [&strace, trace, "--to", "accesses", "--tree", &tree, "--program", "reads"];
    let converted = forerun(&["trace", "convert"]).args(words).output().expect("it runs");
    assert!(converted.status.success(), "{converted:?}");
    let told = String::from_utf8_lossy(&converted.stderr);
    assert!(told.contains("80 calls; 40 entries"), "{told}");
    let printed: Value = serde_json::from_str(&done(&[trace, "--json"])).expect("one object");
    let row = &printed["runs"][0];
    assert_eq!((&row["trace"], &row["program"]), (&"read".into(), &"reads".into()));
    assert_eq!((&row["calls"], &row["entries"]), (&80.into(), &40.into()));
    let seconds = |name: &str| row[name].as_f64().expect("a number");
    assert!(seconds("walks_s") < seconds("alone_s"), "{row}");
    assert!(seconds("precision") > 0.9 && seconds("recall") > 0.8, "{row}");
    // strace's text alone gives the same row, and polls another one, as a table.
    let direct = done(&[&strace, "--tree", &tree, "--json"]);
    let mut direct: Value = serde_json::from_str(&direct).expect("one object");
    direct["runs"][0]["program"] = "reads".into();
    assert_eq!(direct, printed);
    let table = done(&[trace, "--observer", "poll", "--device", "object"]);
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(table.starts_with("trace") && table.contains("\nread "), "{table}");
}

#[test]
fn of_a_large_tree_the_directories_on_the_way_are_read() {
    let folder = Scratch::new("cli-walks-way");
    let [strace, tree] = recorded(&folder);
    fs::create_dir_all(folder.join("beside/within")).expect("folders");
    let trace = folder.join("read.jsonl");
    let trace = trace.to_str().expect("a text");
    let words = [&strace, trace, "--to", "accesses", "--tree", "/"];
    let converted = forerun(&["trace", "convert"]).args(words).output().expect("it runs");
    assert!(converted.status.success(), "{converted:?}");
    let lines = fs::read_to_string(trace).expect("it is written");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let listed = |path: &str| lines.iter().any(|line| line["directory"] == path[1..]);
    assert!(listed(&tree), "{tree} is on the way");
    let beside = folder.join("beside");
    assert!(!listed(beside.to_str().expect("a text")), "nothing below it was used");
}

#[test]
fn what_is_no_trace_is_refused_with_its_name_and_line() {
    let folder = Scratch::new("cli-walks-refused");
    let path = folder.join("x.jsonl");
    fs::write(&path, "{}\n").expect("a file");
    let path = path.to_str().expect("a text");
    let Output { status, stderr, .. } = walks(&[path]);
    let text = String::from_utf8_lossy(&stderr);
    assert!(!status.success() && text.contains("x.jsonl") && text.contains("line 1"), "{text}");
    assert_eq!(walks(&[path, "--device", "cluod"]).status.code(), Some(2));
    for words in [&["--to", "accesses"][..], &["--to", "csv", "--tree", "."]] {
        let convert = forerun(&["trace", "convert", path, "-"]).args(words).output();
        assert_eq!(convert.expect("it runs").status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn what_was_counted_before_a_trace_failed_is_not_run_again() {
    let folder = Scratch::new("cli-walks-kept");
    let [strace, tree] = recorded(&folder);
    let [rows, first, late] =
        ["rows.csv", "read.jsonl", "late.jsonl"].map(|name| folder.join(name));
    let [rows_text, first_text, late_text] =
        [&rows, &first, &late].map(|path| path.to_str().expect("a text"));
    let words = [&strace, first_text, "--to", "accesses", "--tree", &tree];
    let converted = forerun(&["trace", "convert"]).args(words).output().expect("it runs");
    assert!(converted.status.success(), "{converted:?}");
    let words = [first_text, late_text, "-o", rows_text];
    let output = walks(&words);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let partial = folder.join("rows.csv.partial");
    let text = fs::read_to_string(&partial).expect("the first is kept");
    fs::write(&partial, text.replacen("\"calls\":80", "\"calls\":81", 1)).expect("writable");
    fs::copy(&first, &late).expect("a file");
    let output = walks(&words);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 results are there already"), "{told}");
    let csv = fs::read_to_string(&rows).expect("written");
    let calls: Vec<&str> = csv.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
    assert_eq!(calls, ["81", "80"], "{csv}");
    assert!(!partial.exists());
}
