//! Files: what is refused, what another program's changes do, transfers that the kernel cuts.

use std::{os::unix::net::UnixListener, path::Path, sync::Arc};

use forerun_io::{
    frames::Frame,
    store::{
        Op, OpKind, QueueKind, Store, StoreError, pattern,
        threads::{Access, Threads},
    },
};
use forerun_testkit::{ScratchFile, within};
use rustix::{
    fs::{CWD, Mode, mkfifoat},
    io::Errno,
};

use crate::rig::{held, one, op, write};

fn open_error(path: &Path, access: Access) -> StoreError {
    let path = path.to_path_buf();
    within(move || Threads::open(path, access).expect_err("it should be refused"))
}

#[test]
fn what_is_no_file_is_refused_with_what_it_is() {
    let (folder, fifo, socket) =
        (ScratchFile::new("threads"), ScratchFile::new("threads"), ScratchFile::new("threads"));
    std::fs::create_dir(&folder).unwrap();
    mkfifoat(CWD, &*fifo, Mode::RUSR | Mode::WUSR).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let rows = [
        (&*folder, "a directory", Errno::ISDIR),
        (&*fifo, "a FIFO", Errno::SPIPE),
        (&*socket, "a socket", Errno::SPIPE),
        (Path::new("/dev/null"), "a character device", Errno::SPIPE),
    ];
    for (path, kind, errno) in rows {
        for access in [Access::Read, Access::ReadWrite] {
            let error = open_error(path, access);
            assert_eq!(error.errno(), errno.raw_os_error(), "{kind} {access:?}");
            let message = error.to_string();
            assert!(message.contains(kind), "{message}");
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            assert!(matches!(error, StoreError::NotAFile { what, .. } if what == kind));
        }
    }
}

#[test]
fn what_the_system_refuses_is_said_with_its_reason() {
    let file = ScratchFile::holding("threads", b"x");
    let running = std::env::current_exe().unwrap();
    let below_a_file = file.join("below");
    let nul = Path::new("a\0b");
    #[rustfmt::skip]
    let rows = [
        (Path::new("/nonexistent/file"), Access::Read,      Errno::NOENT),
        (below_a_file.as_path(),         Access::Read,      Errno::NOTDIR),
        (running.as_path(),              Access::ReadWrite, Errno::TXTBSY),
        (nul,                            Access::Read,      Errno::INVAL),
    ];
    for (path, access, errno) in rows {
        let error = open_error(path, access);
        assert_eq!(error.errno(), errno.raw_os_error(), "{path:?}");
        assert!(matches!(&error, StoreError::System { path: at, .. } if at == path));
        assert!(error.to_string().starts_with("cannot open "), "{error}");
    }
}

#[test]
fn a_file_opened_to_read_is_not_written_to() {
    let file = ScratchFile::holding("threads", b"before");
    let store: Arc<dyn Store> = Arc::new(Threads::open(&file, Access::Read).unwrap());
    let done = one(&store, QueueKind::Caller, write(1, 0, b"after!"));
    assert_eq!(done.result, Err(Errno::BADF.raw_os_error()));
    assert_eq!(std::fs::read(&file).unwrap(), b"before");
}

#[test]
fn length_and_version_follow_what_others_do_to_the_file() {
    let file = ScratchFile::holding("threads", b"12345678");
    let store = Threads::open(&file, Access::Read).unwrap();
    let before = store.version().unwrap();
    assert_eq!((store.bytes(), before.bytes), (Ok(8), 8));
    assert_ne!(before.inode, 0);
    assert!(before.modified.seconds > 0 && before.changed.seconds > 0);
    assert_eq!(store.version(), Ok(before), "nobody changed it");
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(3).unwrap();
    let after = store.version().unwrap();
    assert_eq!((store.bytes(), after.bytes), (Ok(3), 3));
    assert_eq!((after.device, after.inode), (before.device, before.inode));
    let replaced = ScratchFile::holding("threads", b"123");
    let other = Threads::open(&replaced, Access::Read).unwrap().version().unwrap();
    assert_ne!(other.inode, after.inode);
}

#[test]
fn a_transfer_of_more_buffers_than_a_call_takes_is_taken_up_again() {
    const FRAMES: usize = 2_500;
    let file = ScratchFile::holding("threads", []);
    let store: Arc<dyn Store> = Arc::new(Threads::open(&file, Access::ReadWrite).unwrap());
    let frames = || (0..FRAMES).map(|_| Frame::new(16).unwrap()).collect::<Vec<_>>();
    let bytes = FRAMES * 16 - 5;
    let mut write = Op { token: 1, kind: OpKind::Write, offset: 3, bytes, frames: frames() };
    let mut at = 3;
    for piece in write.pieces_mut() {
        pattern::fill(at, piece);
        at += piece.len() as u64;
    }
    assert_eq!(one(&store, QueueKind::Caller, write).result, Ok(bytes));
    assert_eq!(store.bytes(), Ok(3 + bytes as u64));
    let read = Op { token: 2, kind: OpKind::Read, offset: 3, bytes, frames: frames() };
    let done = one(&store, QueueKind::Background { depth: 2 }, read);
    assert_eq!(done.result, Ok(bytes));
    let held = held(&done);
    assert_eq!(pattern::verify(3, &held[..bytes]), Ok(()));
    assert_eq!(held[bytes..], [0; 5]);
}

#[test]
fn an_offset_that_no_file_has_is_an_error() {
    let file = ScratchFile::holding("threads", b"x");
    let store: Arc<dyn Store> = Arc::new(Threads::open(&file, Access::ReadWrite).unwrap());
    for kind in [OpKind::Read, OpKind::Write] {
        for offset in [u64::MAX, 1 << 63] {
            let done = one(&store, QueueKind::Caller, op(kind, 1, offset, 64));
            assert_eq!(done.result, Err(Errno::INVAL.raw_os_error()), "{kind:?} {offset}");
        }
    }
}

#[test]
fn bytes_beyond_four_gigabytes_are_where_they_were_written() {
    const AT: u64 = (1 << 32) + 100;
    let file = ScratchFile::holding("threads", b"x");
    let store: Arc<dyn Store> = Arc::new(Threads::open(&file, Access::ReadWrite).unwrap());
    assert_eq!(one(&store, QueueKind::Caller, write(1, AT, b"far away")).result, Ok(8));
    assert_eq!(store.bytes(), Ok(AT + 8));
    for (offset, moved, expected) in [(AT, 8, *b"far away"), (AT + 4, 4, *b"away\0\0\0\0")] {
        let done = one(&store, QueueKind::Caller, op(OpKind::Read, 2, offset, 8));
        assert_eq!(done.result, Ok(moved));
        assert_eq!(held(&done)[..8], expected);
    }
    let done = one(&store, QueueKind::Caller, op(OpKind::Read, 3, 100, 8));
    assert_eq!(held(&done)[..8], [0; 8], "the offset was not cut to 32 bits");
}
