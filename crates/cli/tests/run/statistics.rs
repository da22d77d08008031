//! Statistics and reports that go to a pipe.
//!
//! # Invariants
//! - What waits for a reader can be ended by a signal.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::thread;

use forerun_testkit::{installed, until};
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::rig::{explain, folder, run};

#[test]
fn statistics_are_not_lost_in_a_descriptor_that_is_the_programs() {
    for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        for command in [run(&format!("--stats-json {path}")), explain(&format!("-o {path}"))] {
            let mut command = command;
            let output = command.args(["sh", "-c", "echo ran"]).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{errors}");
            assert!(errors.contains("name a file") && errors.lines().count() == 1, "{errors}");
        }
    }
}

#[test]
fn statistics_are_lost_where_their_pipe_has_no_reader_and_none_is_waited_for() {
    let test = "statistics_are_lost_where_their_pipe_has_no_reader_and_none_is_waited_for";
    if !installed(test, "timeout") {
        return;
    }
    let folder = folder(test);
    let pipe = folder.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let run = || {
        // It would wait for ever.
        let mut command = Command::new("timeout");
        command.args(["600", env!("CARGO_BIN_EXE_forerun"), "run", "--stats-json"]).arg(&pipe);
        command.args(["--", "sh", "-c", "exit 3"]).output().unwrap()
    };
    let output = run();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("no process reads that pipe"), "{errors}");

    let of_reader = pipe.clone();
    let reader = thread::spawn(move || fs::read_to_string(of_reader).unwrap());
    // The reader waits in its call, or has the pipe open: a writer does not wait for it.
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let mut held = None;
    until(|| {
        held = rustix::fs::open(&pipe, flags, Mode::empty()).ok().map(File::from);
        held.is_some()
    });
    let output = run();
    drop(held);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let stats: Value = serde_json::from_str(&reader.join().unwrap()).unwrap();
    assert_eq!(stats["status"], 3);
}

#[test]
fn a_signal_ends_what_waits_for_the_reader_of_its_results() {
    for words in ["run --stats", "explain", "explain --json", "trace record -o trace.jsonl"] {
        let folder = folder("a_signal_ends_what_waits_for_the_reader_of_its_results");
        let (reader, mut writer) = std::io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        while writer.write(&[0; 4096]).is_ok() {}
        fcntl_setfl(&writer, OFlags::empty()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
        command.args(words.split(' ')).args(["--", "true"]).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        let mut status = None;
        // One that comes before the program's end is the program's.
        until(|| {
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            status = child.try_wait().unwrap();
            status.is_some()
        });
        let signal = status.and_then(|status| status.signal());
        assert_eq!(signal, Some(Signal::TERM.as_raw()), "{words}: {status:?}");
        drop(reader);
    }
}
