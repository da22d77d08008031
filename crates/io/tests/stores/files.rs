//! Files on every interface that the kernel has, past its page cache and through it.
//!
//! A row of these tables is a file; each is read whole, in pieces and past its end, by readers
//! and in the background.

use std::{
    fs::OpenOptions,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use forerun_core::{prng::Prng, units::FrameId};
use forerun_io::{
    files::{Backend, BackendError, Files, FilesSettings, RING_ENTRIES_MAX},
    frames::{Frame, Frames},
    store::{
        Completion, ECANCELED, Op, OpKind, Queue, QueueKind, Store, Wait,
        pattern::{self, Pattern},
        threads::Access,
    },
};
use forerun_testkit::{ScratchFile, skip, within};

use crate::rig::{KINDS, drain, held, one};

/// Each interface by name.
pub(crate) const BACKENDS: [Backend; 2] = [Backend::Uring, Backend::Threads];

/// Files on `backend`; none where it does not work here, which is said.
pub(crate) fn files(backend: Backend, direct: bool) -> Option<Files> {
    let settings = FilesSettings { backend, direct, ring_entries: 8, rings_max: 4 };
    match Files::new(settings) {
        Ok(files) => Some(files),
        Err(error @ BackendError::Refused { .. }) => {
            skip(&format!("files on {backend:?}"), &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Every interface that works, past the page cache and through it, with its name.
fn each() -> impl Iterator<Item = (String, Files)> {
    let both = BACKENDS.into_iter().flat_map(|backend| [(backend, true), (backend, false)]);
    both.filter_map(|(backend, direct)| {
        let name = format!("{backend:?}{}", if direct { " direct" } else { "" });
        Some((name, files(backend, direct)?))
    })
}

const PAGE: usize = 4096;

/// A read into frames of a page that all begin at a page.
fn read(token: u64, offset: u64, bytes: usize) -> Op {
    let frames = (0..bytes.div_ceil(PAGE)).map(|_| page()).collect();
    Op { token, kind: OpKind::Read, offset, bytes, frames }
}

/// A frame that begins at a page's place in memory, as those of a cache do.
fn page() -> Frame {
    let mut others = Vec::new();
    loop {
        let mut frame = Frame::new(PAGE).unwrap();
        if frame.as_ptr().addr().is_multiple_of(512) {
            frame.fill(0xee);
            return frame;
        }
        others.push(frame);
    }
}

fn check(name: &str, done: &Completion, file_bytes: u64) {
    let op = &done.op;
    let there = usize::try_from(file_bytes.saturating_sub(op.offset)).unwrap().min(op.bytes);
    assert_eq!(done.result, Ok(there), "{name}: {} at {}", op.bytes, op.offset);
    let held = held(done);
    assert_eq!(pattern::verify(op.offset, &held[..there]), Ok(()), "{name} at {}", op.offset);
    assert!(held[there..].iter().all(|byte| *byte == 0), "{name} at {}: not zeroed", op.offset);
}

/// The first `bytes` of the pattern in `folder`.
fn pattern_file(folder: &Path, bytes: u64) -> ScratchFile {
    let scratch = ScratchFile::within(folder, "files");
    let mut contents = vec![0; usize::try_from(bytes).unwrap()];
    pattern::fill(0, &mut contents);
    let mut file = std::fs::File::create(&scratch).unwrap();
    file.write_all(&contents).unwrap();
    file.sync_all().unwrap();
    scratch
}

/// Drops the pages of the file that the kernel holds, so that it is read from the device.
fn forget(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Where files lie: a disk, and memory where there is such a place.
fn folders() -> Vec<PathBuf> {
    let memory = PathBuf::from("/dev/shm");
    let mut folders = vec![std::env::temp_dir()];
    if memory.is_dir() {
        folders.push(memory);
    } else {
        skip("files in memory", "there is no /dev/shm");
    }
    folders
}

#[test]
fn files_of_any_length_are_read_whole_in_pieces_and_past_their_end() {
    const LENGTHS: [u64; 9] = [0, 1, 511, 512, 513, 4095, 4096, 4097, 300_001];
    for (folder, bytes) in
        folders().iter().flat_map(|folder| LENGTHS.map(|bytes| (folder.clone(), bytes)))
    {
        let file = pattern_file(&folder, bytes);
        for (name, files) in each() {
            for cold in [true, false] {
                if cold {
                    forget(&file);
                } else {
                    std::fs::read(&file).unwrap();
                }
                let store = files.open(&file, Access::Read).unwrap();
                let name = format!("{name}, {bytes} in {}, cold {cold}", folder.display());
                assert_eq!(store.bytes(), Ok(bytes), "{name}");
                for kind in KINDS {
                    let whole = usize::try_from(bytes).unwrap();
                    #[rustfmt::skip]
                    let rows = [
                        (0, whole + 1), (0, whole), (0, whole + 9_000), (bytes, PAGE),
                        (bytes / 2, 100), (bytes & !4095, PAGE), (bytes & !511, 512),
                        (bytes + 4096, PAGE), (bytes & !4095, 3 * PAGE), (0, PAGE), (0, 100),
                        (1 << 40, PAGE),
                    ];
                    for (offset, count) in rows {
                        check(&name, &one(&store, kind, read(1, offset, count)), bytes);
                    }
                }
            }
        }
    }
}

#[test]
fn holes_are_zeros() {
    for folder in folders() {
        let file = ScratchFile::within(&folder, "files");
        let mut out = std::fs::File::create(&file).unwrap();
        out.seek(SeekFrom::Start(1 << 20)).unwrap();
        out.write_all(&[7; 5_000]).unwrap();
        out.sync_all().unwrap();
        for (name, files) in each() {
            let store = files.open(&file, Access::Read).unwrap();
            for kind in KINDS {
                let done = one(&store, kind, read(1, (1 << 20) - 8192, 8192 + 5_000));
                assert_eq!(done.result, Ok(8192 + 5_000), "{name}");
                let held = held(&done);
                assert!(held[..8192].iter().all(|byte| *byte == 0), "{name}");
                assert_eq!(held[8192..13_192], [7; 5_000], "{name}");
            }
        }
    }
}

#[test]
fn a_file_that_shrinks_or_grows_is_as_long_as_it_is_at_the_read() {
    for (name, files) in each() {
        let file = pattern_file(&std::env::temp_dir(), 40_000);
        let store = files.open(&file, Access::Read).unwrap();
        for bytes in [40_000, 9_000, 4_096, 0, 20_000] {
            let other = OpenOptions::new().write(true).open(&file).unwrap();
            other.set_len(bytes).unwrap();
            let mut contents = vec![0; usize::try_from(bytes).unwrap()];
            pattern::fill(0, &mut contents);
            other.write_all_at(&contents, 0).unwrap();
            for kind in KINDS {
                check(&name, &one(&store, kind, read(1, 0, 40_960)), bytes);
                check(&name, &one(&store, kind, read(1, 8_192, PAGE)), bytes);
            }
        }
    }
}

#[test]
fn what_is_written_is_there_whichever_way_it_went() {
    for (name, files) in each() {
        let file = pattern_file(&std::env::temp_dir(), 100_000);
        let store = files.open(&file, Access::ReadWrite).unwrap();
        let mut model = std::fs::read(&file).unwrap();
        let mut prng = Prng::new(3);
        for kind in KINDS {
            for step in 0..40 {
                let odd = prng.chance(40);
                let unit: usize = if odd { 1 } else { 512 };
                let offset = usize::try_from(prng.below(120_000)).unwrap() / unit * unit;
                let bytes = usize::try_from(1 + prng.below(9_000)).unwrap().next_multiple_of(unit);
                let mut op = read(step, offset as u64, bytes);
                if prng.chance(50) {
                    op.kind = OpKind::Write;
                    op.frames.iter_mut().for_each(|frame| frame.fill(u8::try_from(step).unwrap()));
                    model.resize(model.len().max(offset + bytes), 0);
                    model[offset..offset + bytes].fill(u8::try_from(step).unwrap());
                    assert_eq!(one(&store, kind, op).result, Ok(bytes), "{name} {step}");
                    let sync = Op { kind: OpKind::Sync, bytes: 0, ..read(0, 0, 0) };
                    assert_eq!(one(&store, kind, sync).result, Ok(0), "{name}");
                } else {
                    let done = one(&store, kind, op);
                    let there = &model[offset.min(model.len())..model.len().min(offset + bytes)];
                    assert_eq!(done.result, Ok(there.len()), "{name} {step}");
                    assert_eq!(&held(&done)[..there.len()], there, "{name} {kind:?} {step}");
                }
            }
        }
        assert!(std::fs::read(&file).unwrap() == model, "{name}");
    }
}

#[test]
fn more_operations_than_a_ring_takes_all_come_back() {
    const OPS: u64 = 200;
    let file = pattern_file(&std::env::temp_dir(), OPS * 4096 - 7);
    for (name, files) in each() {
        forget(&file);
        let store = files.open(&file, Access::Read).unwrap();
        for kind in [QueueKind::Caller, QueueKind::Background { depth: 64 }] {
            let queue = store.queue(kind);
            (0..OPS).for_each(|token| queue.submit(read(token, token * 4096, PAGE)));
            let mut done = drain(&queue);
            done.sort_by_key(|done| done.op.token);
            let tokens = done.iter().map(|done| done.op.token);
            assert!(tokens.eq(0..OPS), "{name} {kind:?}");
            for done in &done {
                check(&name, done, OPS * 4096 - 7);
            }
        }
    }
}

#[test]
fn a_large_operation_over_scattered_and_adjacent_frames_is_carried_out_whole() {
    const FRAMES: usize = 3_000;
    let bytes = FRAMES * PAGE - 1;
    let file = pattern_file(&std::env::temp_dir(), bytes as u64);
    for (name, files) in each() {
        forget(&file);
        let store = files.open(&file, Access::Read).unwrap();
        for kind in [QueueKind::Caller, QueueKind::Background { depth: 2 }] {
            let mut op = read(1, 0, bytes);
            op.frames.rotate_left(FRAMES / 3);
            check(&name, &one(&store, kind, op), bytes as u64);
        }
    }
}

#[test]
fn readers_on_many_threads_and_the_background_share_files() {
    const BYTES: u64 = 2_000_000;
    let file = pattern_file(&std::env::temp_dir(), BYTES);
    for (name, files) in each() {
        forget(&file);
        let store = files.open(&file, Access::Read).unwrap();
        let background = store.queue(QueueKind::Background { depth: 4 });
        let read_some = |seed: u64| {
            let mut prng = Prng::new(seed);
            let queue = store.queue(QueueKind::Caller);
            for token in 0..60 {
                let offset = prng.below(BYTES) & !4095;
                background.submit(read((seed << 32) | token, offset, 3 * PAGE));
                queue.submit(read(token, offset, 2 * PAGE));
                let mut out = Vec::new();
                queue.reap(Wait::One, &mut out);
                assert_eq!(out.len(), 1, "{name}");
                check(&name, &out[0], BYTES);
            }
        };
        thread::scope(|scope| {
            for seed in 0..8 {
                let read_some = &read_some;
                scope.spawn(move || read_some(seed));
            }
        });
        let reaper = background.reaper().unwrap_or_else(|| Arc::clone(&background));
        let done = drain(&reaper);
        assert_eq!(done.len(), 8 * 60, "{name}");
        for done in &done {
            check(&name, done, BYTES);
        }
    }
}

#[test]
fn one_reaper_gets_what_several_queues_carry_out_and_closing_one_leaves_the_others() {
    let Some(files) = files(Backend::Uring, true) else { return };
    let file = pattern_file(&std::env::temp_dir(), 400_000);
    for _ in 0..20 {
        forget(&file);
        let store = files.open(&file, Access::Read).unwrap();
        let other = files.open(&file, Access::Read).unwrap();
        let kind = QueueKind::Background { depth: 3 };
        let (kept, closed) = (store.queue(kind), other.queue(kind));
        let reaper = kept.reaper().expect("rings are shared");
        for token in 0..40 {
            kept.submit(read(token, token * 8192, 2 * PAGE));
            closed.submit(read(100 + token, token * 8192, 2 * PAGE));
        }
        closed.close();
        drop(closed);
        let mut done = drain(&reaper);
        done.sort_by_key(|done| done.op.token);
        assert!(done.iter().map(|done| done.op.token).eq((0..40).chain(100..140)));
        for done in &done {
            if done.op.token < 100 || done.result != Err(ECANCELED) {
                check("shared", done, 400_000);
            }
        }
        let after = store.queue(kind);
        after.submit(read(7, 0, PAGE));
        assert_eq!(drain(&reaper).len(), 1, "a lane is used again");
    }
}

#[test]
fn a_reaper_that_sleeps_wakes_when_a_queue_is_closed_or_more_is_submitted() {
    let Some(files) = files(Backend::Uring, true) else { return };
    let file = pattern_file(&std::env::temp_dir(), 4_000_000);
    for round in 0..100 {
        forget(&file);
        let store = files.open(&file, Access::Read).unwrap();
        let queue = store.queue(QueueKind::Background { depth: 1 });
        let reaper = queue.reaper().expect("rings are shared");
        let reaping = {
            let reaper = Arc::clone(&reaper);
            thread::spawn(move || {
                let mut out: Vec<Completion> = Vec::new();
                while out.len() < 6 {
                    reaper.reap(Wait::One, &mut out);
                    thread::yield_now();
                }
                out.len()
            })
        };
        (0..5).for_each(|token| queue.submit(read(token, token * 524_288, 128 * PAGE)));
        (0..round % 7).for_each(|_| thread::yield_now());
        queue.close();
        queue.submit(read(5, 0, PAGE));
        assert_eq!(within(move || reaping.join().unwrap()), 6);
    }
}

#[test]
fn a_thread_that_goes_leaves_what_it_submitted_to_the_reaper() {
    let file = pattern_file(&std::env::temp_dir(), 1_000_000);
    for (name, files) in each() {
        forget(&file);
        let store = files.open(&file, Access::Read).unwrap();
        let queue = store.queue(QueueKind::Background { depth: 16 });
        let submitter = Arc::clone(&queue);
        let submit = move || (0..30).for_each(|n| submitter.submit(read(n, n * 32_768, 8 * PAGE)));
        thread::spawn(submit).join().unwrap();
        let done = drain(&queue);
        assert_eq!(done.len(), 30, "{name}");
        for done in &done {
            check(&name, done, 1_000_000);
        }
    }
}

#[test]
fn rings_go_while_something_is_in_them() {
    let file = pattern_file(&std::env::temp_dir(), 4_000_000);
    for _ in 0..20 {
        let Some(files) = files(Backend::Uring, true) else { return };
        forget(&file);
        let store = files.open(&file, Access::Read).unwrap();
        let queue = store.queue(QueueKind::Background { depth: 8 });
        (0..8).for_each(|token| queue.submit(read(token, (token * 400_000) & !4095, 64 * PAGE)));
        drop((files, store));
        within(move || drop(queue));
    }
}

#[test]
fn without_rings_for_readers_they_read_all_the_same() {
    let settings = FilesSettings { rings_max: 0, ..FilesSettings::default() };
    let files = Files::new(settings).unwrap();
    let file = pattern_file(&std::env::temp_dir(), 50_000);
    let store = files.open(&file, Access::Read).unwrap();
    check("no rings", &one(&store, QueueKind::Caller, read(1, 4096, 50_000)), 50_000);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for entries in [0, RING_ENTRIES_MAX + 1] {
        let settings = FilesSettings { ring_entries: entries, ..FilesSettings::default() };
        let error = Files::new(settings).expect_err("it should be refused");
        assert_eq!(error, BackendError::RingEntries { entries });
    }
    let line = Files::new(FilesSettings::default()).unwrap().chosen().to_string();
    assert!(["io_uring", "threads"].iter().any(|name| line.starts_with(name)));
}

#[test]
fn what_cannot_be_opened_is_the_same_error_on_every_interface() {
    for (name, files) in each() {
        let folder = std::env::temp_dir();
        let error = files.open(&folder, Access::Read).err().expect("a directory");
        assert!(error.to_string().contains("a directory"), "{name}: {error}");
        let error = files.open("/nonexistent/file", Access::Read).err().expect("it is missing");
        assert_eq!(error.errno(), rustix::io::Errno::NOENT.raw_os_error(), "{name}");
        let running = std::env::current_exe().unwrap();
        let error = files.open(&running, Access::ReadWrite).err().expect("a running program");
        // A user without the right to write gets that error first.
        let expected = [rustix::io::Errno::TXTBSY, rustix::io::Errno::ACCESS];
        assert!(expected.iter().any(|errno| errno.raw_os_error() == error.errno()), "{name}");
        let error = files.open("/dev/null", Access::Read).err().expect("a device");
        assert!(error.to_string().contains("a character device"), "{name}: {error}");
    }
}

#[test]
fn a_wrong_offset_is_an_error_and_never_the_files_position() {
    let file = pattern_file(&std::env::temp_dir(), 10_000);
    for (name, files) in each() {
        let store = files.open(&file, Access::Read).unwrap();
        for offset in [u64::MAX, u64::MAX - 4095, 1 << 63] {
            for kind in KINDS {
                let done = one(&store, kind, read(1, offset, PAGE));
                let expected = Err(rustix::io::Errno::INVAL.raw_os_error());
                assert_eq!(done.result, expected, "{name} {kind:?} {offset}");
            }
        }
        check(&name, &one(&store, QueueKind::Caller, read(1, 0, PAGE)), 10_000);
    }
}

#[test]
fn frames_that_the_kernel_keeps_pinned_are_read_into_and_outlive_their_table() {
    const PAGES: u32 = 700;
    let file = pattern_file(&std::env::temp_dir(), u64::from(PAGES) * 4096);
    for (name, files) in each() {
        let frames = Frames::new(PAGES, PAGE).unwrap();
        files.register(&frames);
        files.register(&frames);
        let bytes = files.chosen().registered_bytes;
        assert!(bytes <= u64::from(PAGES) * 4096, "{name}: {bytes}");
        let store = files.open(&file, Access::ReadWrite).unwrap();
        for kind in KINDS {
            forget(&file);
            let queue = store.queue(kind);
            for first in (0..PAGES).step_by(100) {
                // Every other operation has its frames out of order.
                let turn = if first % 200 == 0 { 0 } else { 30 };
                let mut pages: Vec<_> =
                    (first..first + 100).map(|id| frames.check_out(FrameId(id))).collect();
                pages.rotate_left(turn);
                let (token, offset) = (u64::from(first), u64::from(first) * 4096);
                let bytes = 100 * PAGE;
                queue.submit(Op { token, kind: OpKind::Read, offset, bytes, frames: pages });
            }
            for mut done in drain(&queue) {
                check(&name, &done, u64::from(PAGES) * 4096);
                done.op.kind = OpKind::Write;
                let done = one(&store, kind, done.op);
                assert_eq!(done.result, Ok(100 * PAGE), "{name}");
                done.op.frames.into_iter().for_each(|frame| frames.check_in(frame));
            }
        }
        drop(frames);
        check(&name, &one(&store, QueueKind::Caller, read(1, 0, PAGE)), 4096);
    }
}

/// A store's answers are compared with the formula's own.
#[test]
fn the_pattern_in_a_file_is_the_pattern() {
    let file = pattern_file(&std::env::temp_dir(), 20_000);
    let formula: Arc<dyn Store> = Arc::new(Pattern::new(20_000));
    for (name, files) in each() {
        let store = files.open(&file, Access::Read).unwrap();
        let queue: Arc<dyn Queue> = store.queue(QueueKind::Caller);
        queue.submit(read(1, 0, 20_000));
        let expected = one(&formula, QueueKind::Caller, read(1, 0, 20_000));
        assert_eq!(held(&drain(&queue)[0]), held(&expected), "{name}");
    }
}
