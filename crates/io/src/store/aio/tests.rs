//! Queues over linux-aio: the same bytes as a vector, each operation back once, none hung.
//!
//! The kernel carries an operation on an ordinary descriptor out in its submission, without any
//! rule on alignment. So most tests put the ordinary one in the direct one's place.

use std::{collections::BTreeSet, fs::OpenOptions, os::unix::fs::OpenOptionsExt, thread};

use forerun_core::prng::Prng;
use forerun_testkit::{ScratchFile, within};
use rustix::fs::OFlags;

use super::*;
use crate::{
    frames::Frame,
    store::{Completion, ECANCELED, Op, OpKind, Wait, pattern},
};

const KINDS: [QueueKind; 4] = [
    QueueKind::Caller,
    QueueKind::Background { depth: 1 },
    QueueKind::Background { depth: 4 },
    QueueKind::Background { depth: 64 },
];

/// Contexts so small that operations have to wait for each other.
const SMALL: ContextBounds = ContextBounds {
    reader_contexts_max: 2,
    reader_events: 3,
    background_events: 3,
    threads_max: 2,
};

/// Whether linux-aio is there; else says that `test` was skipped.
pub(super) fn available_or_skip(test: &str) -> bool {
    let Err(errno) = available() else { return true };
    forerun_testkit::skip(test, &format!("no linux-aio: {errno}"));
    false
}

/// A file of the pattern's first bytes, gone when this goes.
struct PatternFile(ScratchFile);

impl PatternFile {
    fn holding(bytes: usize) -> Self {
        let mut contents = vec![0; bytes];
        pattern::fill(0, &mut contents);
        Self(ScratchFile::holding("aio", contents))
    }

    /// The file, its ordinary descriptor in the direct one's place.
    fn open(&self, contexts: &Arc<Contexts>) -> Aio {
        let mut opened = OpenFile::open(self.0.to_path_buf(), Access::ReadWrite).unwrap();
        opened.direct = Some(opened.buffered.try_clone().unwrap());
        Aio::over(contexts, Arc::new(opened))
    }
}

/// Operations of one queue.
const EACH: u64 = 60;

/// A file that ends in the midst of a page.
const BYTES: usize = 300_000;

fn op(kind: OpKind, token: u64, offset: u64, bytes: usize) -> Op {
    let mut frames: Vec<_> = (0..bytes.div_ceil(64)).map(|_| Frame::new(64).unwrap()).collect();
    for frame in &mut frames {
        frame.fill(0xee);
    }
    Op { token, kind, offset, bytes, frames }
}

/// A frame of 4 KiB that lies where a device can read to.
fn aligned() -> Frame {
    let mut tried: Vec<Frame> = Vec::new();
    loop {
        let frame = Frame::new(4_096).unwrap();
        if (frame.as_ptr() as usize).is_multiple_of(512) || tried.len() == 1_000 {
            return frame;
        }
        tried.push(frame);
    }
}

fn held(done: &Completion) -> Vec<u8> {
    done.op.frames.iter().flat_map(|frame| frame.iter().copied()).collect()
}

fn drain(queue: &Arc<dyn Queue>) -> Vec<Completion> {
    let queue = Arc::clone(queue);
    within(move || {
        let mut out = Vec::new();
        loop {
            let before = out.len();
            queue.reap(Wait::One, &mut out);
            if out.len() == before {
                return out;
            }
        }
    })
}

#[test]
fn a_read_gives_the_bytes_there_and_zeros_past_them() {
    if !available_or_skip("a_read_gives_the_bytes_there_and_zeros_past_them") {
        return;
    }
    #[rustfmt::skip]
    let rows = [ // why                       offset  bytes  moved
        ("one whole page",                         0,    64,    64),
        ("several pages",                         64,   192,   192),
        ("the last page counts in part",         128,   100,   100),
        ("unaligned",                              3,   130,   130),
        ("nothing",                               10,     0,     0),
        ("up to the end",                        936,    64,    64),
        ("across the end",                       960,   256,    40),
        ("its tail crosses the end",             900,    70,    70),
        ("at the end",                         1_000,    64,     0),
        ("far past the end",               1_000_000,    64,     0),
    ];
    let file = PatternFile::holding(1_000);
    let store = file.open(&Contexts::new(SMALL));
    for kind in KINDS {
        let queue = store.queue(kind);
        for (why, offset, bytes, moved) in rows {
            queue.submit(op(OpKind::Read, 5, offset, bytes));
            let done = drain(&queue).pop().unwrap();
            assert_eq!(done.result, Ok(moved), "{kind:?}: {why}");
            let held = held(&done);
            assert_eq!(pattern::verify(offset, &held[..moved]), Ok(()), "{kind:?}: {why}");
            assert!(held[moved..].iter().all(|byte| *byte == 0), "{kind:?}: {why}");
        }
    }
}

#[test]
fn random_reads_and_writes_agree_with_a_vector() {
    if !available_or_skip("random_reads_and_writes_agree_with_a_vector") {
        return;
    }
    for kind in KINDS {
        let file = PatternFile::holding(700);
        let store = file.open(&Contexts::new(SMALL));
        let mut model = vec![0; 700];
        pattern::fill(0, &mut model);
        let (queue, mut prng) = (store.queue(kind), Prng::new(7));
        for step in 0..200 {
            let offset = usize::try_from(prng.below(900)).unwrap();
            let bytes = usize::try_from(prng.below(300)).unwrap();
            let reads = prng.chance(50);
            let mut op =
                op(if reads { OpKind::Read } else { OpKind::Write }, step, offset as u64, bytes);
            if !reads && bytes > 0 {
                let byte = u8::try_from(prng.below(256)).unwrap();
                op.pieces_mut().for_each(|piece| piece.fill(byte));
                model.resize(model.len().max(offset + bytes), 0);
                model[offset..offset + bytes].fill(byte);
            }
            queue.submit(op);
            let done = drain(&queue).pop().unwrap();
            let end = model.len().min(offset + bytes).max(offset);
            let expected = model.get(offset..end).unwrap_or_default();
            let moved = if reads { expected.len() } else { bytes };
            assert_eq!(done.result, Ok(moved), "{kind:?} {step}");
            if reads {
                assert_eq!(held(&done)[..moved], *expected, "{kind:?} {step}");
            }
        }
        queue.submit(op(OpKind::Sync, 1, 0, 0));
        assert_eq!(drain(&queue).pop().unwrap().result, Ok(0));
        assert_eq!(std::fs::read(&file.0).unwrap(), model, "{kind:?}");
    }
}

#[test]
fn every_operation_comes_back_once_to_its_own_queue_from_many_threads() {
    if !available_or_skip("every_operation_comes_back_once_to_its_own_queue_from_many_threads") {
        return;
    }
    let (first, second) = (PatternFile::holding(8_000), PatternFile::holding(8_000));
    for bounds in [SMALL, ContextBounds::default()] {
        for kind in KINDS {
            let contexts = Contexts::new(bounds);
            let stores = [first.open(&contexts), second.open(&contexts)];
            let threads: Vec<_> = (0..8_usize)
                .map(|n| {
                    let queue = stores[n % 2].queue(kind);
                    thread::spawn(move || {
                        for token in 0..EACH {
                            let kind = if token % 10 == 9 { OpKind::Sync } else { OpKind::Read };
                            let bytes = if token % 10 == 9 { 0 } else { 200 };
                            queue.submit(op(kind, token, token * 64, bytes));
                        }
                        drain(&queue)
                    })
                })
                .collect();
            let all = within(move || {
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            for done in all {
                let tokens: BTreeSet<_> = done.iter().map(|done| done.op.token).collect();
                assert_eq!(done.len() as u64, EACH, "{kind:?}");
                assert_eq!(tokens, (0..EACH).collect(), "{kind:?}");
                for done in &done {
                    assert_eq!(done.result, Ok(done.op.bytes), "{kind:?}");
                    let held = held(done);
                    assert_eq!(pattern::verify(done.op.offset, &held[..done.op.bytes]), Ok(()));
                }
            }
            within(move || drop((stores, contexts)));
        }
    }
}

#[test]
fn a_closed_queue_gives_back_what_it_holds_and_leaves_others_alone() {
    if !available_or_skip("a_closed_queue_gives_back_what_it_holds_and_leaves_others_alone") {
        return;
    }
    let file = PatternFile::holding(8_000);
    for kind in KINDS {
        let store = file.open(&Contexts::new(SMALL));
        let (closed, other) = (store.queue(kind), store.queue(kind));
        for token in 0..30 {
            closed.submit(op(OpKind::Read, token, token * 64, 64));
            other.submit(op(OpKind::Read, token, token * 64, 64));
        }
        closed.close();
        closed.submit(op(OpKind::Read, 30, 0, 64));
        let done = drain(&closed);
        let tokens: BTreeSet<_> = done.iter().map(|done| done.op.token).collect();
        assert_eq!((tokens, done.len()), ((0..31).collect(), 31), "{kind:?}");
        assert!(done.iter().all(|done| matches!(done.result, Ok(64) | Err(ECANCELED))));
        let last = done.iter().find(|done| done.op.token == 30).unwrap();
        assert_eq!(last.result, Err(ECANCELED), "{kind:?}");
        let done = drain(&other);
        assert_eq!(done.len(), 30);
        assert!(done.iter().all(|done| done.result == Ok(64)), "{kind:?}");
    }
}

#[test]
fn queues_dropped_with_operations_under_way_leave_nothing_behind() {
    if !available_or_skip("queues_dropped_with_operations_under_way_leave_nothing_behind") {
        return;
    }
    let file = PatternFile::holding(8_000);
    for kind in KINDS {
        let contexts = Contexts::new(SMALL);
        let store = file.open(&contexts);
        for _ in 0..50 {
            let queue = store.queue(kind);
            (0..6).for_each(|token| queue.submit(op(OpKind::Read, token, token * 64, 64)));
            within(move || drop(queue));
        }
        let queue = store.queue(kind);
        queue.submit(op(OpKind::Read, 1, 0, 64));
        within(move || drop((store, contexts)));
        assert_eq!(drain(&queue).pop().unwrap().result, Ok(64), "it outlives its store");
        within(move || drop(queue));
    }
}

#[test]
fn what_the_kernel_refuses_is_carried_out_blocking() {
    if !available_or_skip("what_the_kernel_refuses_is_carried_out_blocking") {
        return;
    }
    let file = PatternFile::holding(1_000);
    let contexts = Contexts::new(SMALL);
    let mut opened = OpenFile::open(file.0.to_path_buf(), Access::ReadWrite).unwrap();
    // Not open to read: linux-aio says EBADF where the ordinary descriptor reads.
    opened.direct = Some(OpenOptions::new().write(true).open(&file.0).unwrap());
    let store = Aio::over(&contexts, Arc::new(opened));
    for kind in KINDS {
        let queue = store.queue(kind);
        (0..20).for_each(|token| queue.submit(op(OpKind::Read, token, 64, 64)));
        queue.submit(op(OpKind::Read, 20, 1 << 63, 64));
        let mut done = drain(&queue);
        done.sort_by_key(|done| done.op.token);
        let last = done.pop().unwrap();
        assert_eq!(last.result, Err(Errno::INVAL.raw_os_error()), "the file's own answer");
        assert_eq!(done.len(), 20);
        assert!(done.iter().all(|done| done.result == Ok(64)), "{kind:?}");
    }
}

#[test]
fn a_file_read_past_the_page_cache_has_the_same_bytes() {
    if !available_or_skip("a_file_read_past_the_page_cache_has_the_same_bytes") {
        return;
    }
    let file = PatternFile::holding(BYTES);
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let direct = OpenOptions::new().read(true).custom_flags(flags).open(&file.0);
    let mut opened = OpenFile::open(file.0.to_path_buf(), Access::ReadWrite).unwrap();
    // Where the file system has no such thing this is one more test of the ordinary descriptor.
    opened.direct = Some(direct.unwrap_or_else(|_| opened.buffered.try_clone().unwrap()));
    let store = Aio::over(&Contexts::new(SMALL), Arc::new(opened));
    for kind in KINDS {
        let queue = store.queue(kind);
        for token in 0..20 {
            let frames = (0..5).map(|_| aligned()).collect();
            let offset = token * 16_384;
            queue.submit(Op { token, kind: OpKind::Read, offset, bytes: 5 * 4_096, frames });
        }
        let done = drain(&queue);
        assert_eq!(done.len(), 20);
        for done in done {
            let offset = usize::try_from(done.op.offset).unwrap();
            let moved = BYTES.saturating_sub(offset).min(5 * 4_096);
            assert_eq!(done.result, Ok(moved), "{kind:?} {offset}");
            let held = held(&done);
            assert_eq!(pattern::verify(done.op.offset, &held[..moved]), Ok(()), "{kind:?}");
            assert!(held[moved..].iter().all(|byte| *byte == 0), "{kind:?} {offset}");
        }
    }
}
