//! Direct and buffered reads of a file: when each is made, what a refusal leads to.

use std::sync::Arc;

use super::*;
use crate::frames::Frame;

#[test]
fn a_file_is_not_left_in_the_mode_that_it_was_opened_in() {
    let running = std::env::current_exe().unwrap();
    let opened = OpenFile::open_direct(running, Access::Read).unwrap();
    for file in [Some(&opened.buffered), opened.direct.as_ref()].into_iter().flatten() {
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}

/// A read of the running program's first page.
fn first_page() -> Op {
    let frames = vec![Frame::new(4096).unwrap()];
    Op { token: 0, kind: OpKind::Read, offset: 0, bytes: 4096, frames }
}

#[test]
fn a_direct_read_that_is_refused_is_done_buffered_and_the_last_of_its_kind() {
    let running = std::env::current_exe().unwrap();
    let mut opened = OpenFile::open(running.clone(), Access::Read).unwrap();
    // With this alignment every operation seems to fit; the kernel has its own mind.
    opened.direct = open_as(&running, Access::Read, OFlags::DIRECT).ok();
    if opened.direct.is_none() {
        return; // A file system without direct reads, as of the test below.
    }
    let mut op = first_page();
    op.offset = 1;
    assert_eq!(opened.route(&op), Route::Direct);
    let opened = Arc::new(opened);
    let done = Transfer::carry_out(op, &opened);
    assert_eq!(done.result, Ok(4096));
    assert_eq!(done.op.frames[0][..4096], std::fs::read(&running).unwrap()[1..4097]);
    assert_eq!(opened.route(&first_page()), Route::Buffered, "it is remembered");
}

#[test]
fn what_the_kernel_has_cached_is_read_buffered() {
    let running = std::env::current_exe().unwrap();
    std::fs::read(&running).unwrap();
    let opened = OpenFile::open_direct(running.clone(), Access::Read).unwrap();
    let cached = opened.cached.all_of(&opened.buffered, 0, 4096);
    if opened.direct.is_some() {
        let expected = if cached { Route::Buffered } else { Route::Direct };
        assert_eq!(opened.route(&first_page()), expected);
    }
    let mut write = first_page();
    write.kind = OpKind::Write;
    let expected = if opened.direct.is_some() { Route::Direct } else { Route::Buffered };
    assert_eq!(opened.route(&write), expected, "what is written is not looked up");
}

#[test]
fn a_file_system_without_direct_reads_is_read_buffered() {
    let opened = OpenFile::open_direct("/proc/self/status".into(), Access::Read).unwrap();
    assert!(opened.direct.is_none());
}
