//! Statistics that go to a pipe.

use std::fs::{self, File};
use std::process::Command;
use std::thread;

use forerun_testkit::{installed, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

use crate::rig::folder;

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
