//! `forerun trace record`: a program runs as it is, and what it uses is written down.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use forerun_testkit::{Scratch, skip, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::rig::{folder, observing, waits};

fn record(flags: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(["trace", "record"]).args(flags).arg("--");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A pipe with a name that is no UTF-8, in a directory of 20 files.
fn pipe(scratch: &Scratch) -> std::path::PathBuf {
    let top = fs::canonicalize(scratch).expect("it is there").join("tree");
    fs::create_dir(&top).expect("there is room");
    for at in 0..20 {
        fs::write(top.join(format!("f{at:02}")), [7; 100]).expect("there is room");
    }
    let pipe = top.join(OsStr::from_bytes(b"p\\ \xff"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("there is room");
    pipe
}

/// Waits until the program that `child` records was polled often, or has ended.
fn is_polled(child: &mut Child) {
    let observing = observing(child.id());
    let polled = waits(observing) + 50;
    until(|| waits(observing) >= polled || child.try_wait().expect("it was started").is_some());
}

/// The lines of a trace.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("it is written");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_blocked_open_is_recorded_with_its_directory_and_the_trace_is_replayed() {
    let test = "a_blocked_open_is_recorded_with_its_directory_and_the_trace_is_replayed";
    let scratch = folder("record");
    let (pipe, file) = (pipe(&scratch), scratch.join("out.jsonl"));
    let tree = pipe.parent().expect("it has one");
    let flags = [OsStr::new("-o"), file.as_os_str(), OsStr::new("--tree"), tree.as_os_str()];
    let mut child = record(&flags)
        .args(["sh", "-c", "echo out; cat \"$0\"; exit 7"])
        .arg(&pipe)
        .spawn()
        .expect("it starts");
    is_polled(&mut child);
    fs::write(&pipe, "from the pipe\n").expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(7), "{}", words(&output));
    assert_eq!(output.stdout, b"out\nfrom the pipe\n");
    if words(&output).contains("may not be asked") {
        return skip(test, "processes may not be observed here");
    }
    let next = format!("next: `forerun sim walks {} --device", file.display());
    assert!(words(&output).contains(&next), "{}", words(&output));
    let sizes = "for cache sizes (`forerun sim --size`) record with strace";
    assert!(words(&output).contains(sizes), "{}", words(&output));
    let lines = lines(&file);
    assert_eq!(lines[0]["forerun_accesses"], 2);
    let is_open = |line: &&Value| line["call"] == "open" && line["path"] == "p\\\\ \\xff";
    let open = lines.iter().find(is_open).unwrap_or_else(|| panic!("{lines:?}"));
    assert!(open["took"].as_u64() > Some(0), "{open}");
    let top = lines.iter().find(|line| line["directory"] == "").expect("the top is listed");
    assert_eq!(top["entries"].as_array().map(Vec::len), Some(21));
    let replayed = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .args(["sim", "walks", "--json"])
        .arg(&file)
        .output()
        .expect("it runs");
    let replayed: Value = serde_json::from_slice(&replayed.stdout).expect("one object");
    assert!(replayed["runs"][0]["entries"].as_u64() >= Some(1), "{replayed}");
}

#[test]
fn an_interrupt_is_the_programs_and_the_trace_is_written() {
    let scratch = folder("record-interrupt");
    let (pipe, file) = (pipe(&scratch), scratch.join("out.jsonl.zst"));
    let mut child = record(&[OsStr::new("-o"), file.as_os_str()])
        .arg("cat")
        .arg(&pipe)
        .spawn()
        .expect("it starts");
    is_polled(&mut child);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", words(&output));
    let packed = fs::read(&file).expect("it is written");
    assert_eq!(packed[..4], [0x28, 0xb5, 0x2f, 0xfd], "packed by zstd");
}

#[test]
fn bad_usage_starts_nothing_and_a_trace_that_cannot_be_written_is_told() {
    let scratch = folder("record-usage");
    let (made, file) = (scratch.join("made"), scratch.join("out.jsonl"));
    let file = file.to_str().expect("a text");
    #[rustfmt::skip]
    let rows: [(&[&str], i32, &str); 5] = [
        (&["-o", "/no/such/folder/x"],     1, "no such folder"),
        (&["-o", "/"],                     1, "it is a folder"),
        (&["-o", file, "--tree", "/no/x"], 1, "--tree"),
        (&["-o", file, "--tree", "/dev/null"], 1, "no directory"),
        (&["-o", file, "--observe", "x"],  2, "--observe"),
    ];
    for (flags, status, expected) in rows {
        let flags: Vec<&OsStr> = flags.iter().map(OsStr::new).collect();
        let output = record(&flags).arg("touch").arg(&made).output().expect("it runs");
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {}", words(&output));
        assert!(words(&output).contains(expected), "{flags:?}: {}", words(&output));
        assert!(!made.exists() && !Path::new(file).exists(), "{flags:?}");
    }
    let flags = [OsStr::new("-o"), OsStr::new(file)];
    for (program, status) in [("no-such-program-here", 127), ("/", 126)] {
        let output = record(&flags).arg(program).output().expect("it runs");
        assert_eq!(output.status.code(), Some(status), "{program}");
        assert!(!Path::new(file).exists(), "{program}");
    }
    let full = [OsStr::new("-o"), OsStr::new("/dev/full")];
    let output = record(&full).arg("touch").arg(&made).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(words(&output).contains("cannot write /dev/full"), "{}", words(&output));
    assert!(made.exists(), "the program has run");
}
