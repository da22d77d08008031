//! A program that is refused `io_uring`, as in many containers: files work, and say what is used.
//!
//! The refusal holds for the whole process and cannot be undone, so this is a test program of
//! its own with one test.

use std::sync::Arc;

use forerun_io::{
    files::{Backend, BackendError, Files, FilesSettings},
    frames::Frame,
    reaper::{Group, Purpose, Reaper, ReaperSettings},
    store::{Op, OpKind, QueueKind, Wait, file::Access, pattern},
};
use forerun_testkit::ScratchFile;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Has the system answer `EPERM` to these calls from now on.
fn refuse(calls: &[i64]) {
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let eperm = u32::try_from(rustix::io::Errno::PERM.raw_os_error()).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(eperm), arch);
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter_all_threads(&program).unwrap();
}

fn settings(backend: Backend) -> FilesSettings {
    FilesSettings { backend, ..FilesSettings::default() }
}

/// Reads a file of an odd length, by a reader and in the background.
fn read_all(files: &Files) {
    let mut contents = vec![0; 100_001];
    pattern::fill(0, &mut contents);
    let path = ScratchFile::holding("refused", contents);
    let store = files.open(&path, Access::Read).unwrap();
    for kind in [QueueKind::Caller, QueueKind::Background { depth: 4 }] {
        let queue = store.queue(kind);
        for token in 0..25 {
            let frames = vec![Frame::new(4096).unwrap()];
            let offset = token * 4096;
            queue.submit(Op { token, kind: OpKind::Read, offset, bytes: 4096, frames });
        }
        let mut out = Vec::new();
        let reaper = queue.reaper().unwrap_or_else(|| Arc::clone(&queue));
        while out.len() < 25 {
            reaper.reap(Wait::One, &mut out);
        }
        for done in out {
            let moved = done.result.unwrap();
            assert_eq!(moved, if done.op.token == 24 { 1_697 } else { 4_096 });
            assert_eq!(pattern::verify(done.op.offset, &done.op.frames[0][..moved]), Ok(()));
        }
    }
}

/// Reaps groups from a file by the policy that spins: on which port, and what it says.
fn reap(files: &Files) -> (&'static str, Option<String>) {
    let mut contents = vec![0; 16 * 4096];
    pattern::fill(0, &mut contents);
    let path = ScratchFile::holding("refused-reap", contents);
    let port = files.port(&path, 4).unwrap();
    let settings = ReaperSettings { policy: "spin".to_owned(), ..ReaperSettings::default() };
    let mut reaper = Reaper::new(port, &settings).unwrap();
    let mut out = Vec::new();
    for first in (0..16).step_by(4) {
        let read = |token: u64| {
            let frames = vec![Frame::new(4096).unwrap()];
            Op { token, kind: OpKind::Read, offset: token * 4096, bytes: 4096, frames }
        };
        let reads = (first..first + 4).map(read).collect();
        reaper.reap(Group::new(Purpose::Demand, reads), &mut out);
    }
    out.sort_by_key(|done| done.op.token);
    assert!(out.iter().map(|done| done.op.token).eq(0..16));
    for done in out {
        assert_eq!(done.result, Ok(4096));
        assert_eq!(pattern::verify(done.op.offset, &done.op.frames[0]), Ok(()));
    }
    (reaper.port(), reaper.fallback())
}

#[test]
fn where_io_uring_is_refused_threads_are_used_and_say_why() {
    let before = Files::new(settings(Backend::Auto)).unwrap();
    read_all(&before);

    refuse(&[libc::SYS_io_uring_setup]);
    let files = Files::new(settings(Backend::Auto)).unwrap();
    let chosen = files.chosen();
    assert_eq!(chosen.backend, "threads");
    let why = chosen.why.clone().expect("rings were refused");
    assert!(why.contains("io_uring_setup: Operation not permitted"), "{why}");
    assert!(chosen.to_string().contains(&why));
    read_all(&files);
    read_all(&before);
    // A ring of one's own is refused as well, also where rings were there before.
    for files in [&files, &before] {
        let (port, fallen) = reap(files);
        assert_eq!(port, "threads");
        let said = fallen.expect("it says so");
        assert!(said.starts_with("spin waits by interrupt on threads"), "{said}");
    }

    let error = Files::new(settings(Backend::Uring)).expect_err("it is refused");
    assert!(matches!(error, BackendError::Refused { backend: "io_uring", .. }));
    assert!(error.to_string().contains("Operation not permitted"), "{error}");

    // What was had before the refusal goes on, without new rings; then without rings at all.
    refuse(&[libc::SYS_io_uring_enter]);
    let late = before.open(std::env::current_exe().unwrap(), Access::Read).unwrap();
    let queue = late.queue(QueueKind::Caller);
    let frames = vec![Frame::new(4096).unwrap()];
    queue.submit(Op { token: 1, kind: OpKind::Read, offset: 0, bytes: 4096, frames });
    let mut out = Vec::new();
    queue.reap(Wait::One, &mut out);
    assert_eq!(out[0].result, Ok(4096));
    let queue = late.queue(QueueKind::Background { depth: 1 });
    for token in 0..2 {
        let frames = vec![Frame::new(4096).unwrap()];
        queue.submit(Op { token, kind: OpKind::Read, offset: 0, bytes: 4096, frames });
    }
    let mut out = Vec::new();
    while out.len() < 2 {
        queue.reap(Wait::One, &mut out);
    }
    let before = before.chosen().backend;
    assert!(out.iter().all(|done| done.result.is_ok() == (before != "io_uring")), "{out:?}");
}
