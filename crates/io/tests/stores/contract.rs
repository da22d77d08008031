//! What holds of every store: the same bytes as a plain vector, back exactly once, never hung.

use std::{collections::BTreeSet, sync::Arc, thread};

use forerun_core::{device, prng::Prng};
use forerun_io::{
    store::{
        Completion, ECANCELED, OpKind, QueueKind, Store, Wait,
        memory::Memory,
        pattern::{self, Pattern},
        threads::{Access, Threads},
    },
    wrap::{
        fault::{Fault, Faults, Rule, When},
        latency::Latency,
        record::Record,
        volatile::Volatile,
    },
};
use forerun_testkit::{ScratchFile, within};

use crate::{
    files::{BACKENDS, files},
    rig::{KINDS, PAGE_BYTES, drain, held, one, op, write},
};

/// A store under test and what keeps it.
struct Subject {
    name: &'static str,
    store: Arc<dyn Store>,
    writable: bool,
    _file: Option<ScratchFile>,
}

/// Every store and wrapper, each holding the first `bytes` of the pattern.
fn subjects(bytes: usize) -> Vec<Subject> {
    let mut contents = vec![0; bytes];
    pattern::fill(0, &mut contents);
    let memory = || Arc::new(Memory::new(contents.clone(), 1 << 20)) as Arc<dyn Store>;
    let file = ScratchFile::holding("contract", &contents);
    let threads = Threads::open(&file, Access::ReadWrite).unwrap();
    let on = |backend| {
        let file = ScratchFile::holding("contract", &contents);
        let files = files(backend, true)?;
        let store = files.open(&file, Access::ReadWrite).unwrap();
        Some(Subject { name: files.chosen().backend, store, writable: true, _file: Some(file) })
    };
    let optane = || device::make("optane", 1).unwrap();
    let late = Rule { cut: Some(When::Every(u64::MAX)), ..Rule::default() };
    let never = Faults { reads: late.clone(), writes: late.clone(), syncs: late, changes: None };
    let subject = |name, store, writable| Subject { name, store, writable, _file: None };
    let mut all = vec![
        subject("memory", memory(), true),
        subject("pattern", Arc::new(Pattern::new(bytes as u64)), false),
        Subject { _file: Some(file), ..subject("threads", Arc::new(threads), true) },
        subject("fault", Arc::new(Fault::new(memory(), never.clone(), 1)), true),
        subject("latency", Arc::new(Latency::new(memory(), optane())), true),
        subject("record", Arc::new(Record::new(memory(), 10)), true),
        subject("volatile", Arc::new(Volatile::new(memory(), 1 << 20)), true),
        subject(
            "volatile(record(fault))",
            Arc::new(Volatile::new(
                Arc::new(Record::new(Arc::new(Fault::new(memory(), never.clone(), 1)), 10)),
                1 << 20,
            )),
            true,
        ),
        subject(
            "fault(latency)",
            Arc::new(Fault::new(Arc::new(Latency::new(memory(), optane())), never.clone(), 1)),
            true,
        ),
        subject(
            "latency(fault)",
            Arc::new(Latency::new(Arc::new(Fault::new(memory(), never, 1)), optane())),
            true,
        ),
    ];
    all.extend(BACKENDS.into_iter().filter_map(on));
    all
}

#[test]
fn a_read_gives_the_bytes_there_and_zeros_past_them() {
    const BYTES: usize = 1_000;
    #[rustfmt::skip]
    let rows = [ // why                            offset  bytes  moved
        ("one whole page",                              0,    64,    64),
        ("several pages",                              64,   192,   192),
        ("the last page counts in part",              128,   100,   100),
        ("one byte",                                    7,     1,     1),
        ("unaligned",                                   3,   130,   130),
        ("nothing",                                    10,     0,     0),
        ("up to the end",                             936,    64,    64),
        ("across the end",                            960,    64,    40),
        ("across the end, whole pages beyond",        960,   256,    40),
        ("the last byte and beyond",                  999,   200,     1),
        ("at the end",                              1_000,    64,     0),
        ("far past the end",                    1_000_000,    64,     0),
        ("as far as files go",             i64::MAX as u64 - 64, 64,  0),
    ];
    for subject in subjects(BYTES) {
        for (why, offset, bytes, moved) in rows {
            for kind in KINDS {
                let name = format!("{} {kind:?}: {why}", subject.name);
                let done = one(&subject.store, kind, op(OpKind::Read, 5, offset, bytes));
                assert_eq!(done.result, Ok(moved), "{name}");
                assert_eq!((done.op.token, done.op.offset, done.op.bytes), (5, offset, bytes));
                let held = held(&done);
                assert_eq!(held.len(), bytes.next_multiple_of(PAGE_BYTES), "{name}");
                assert_eq!(pattern::verify(offset, &held[..moved]), Ok(()), "{name}");
                assert!(held[moved..].iter().all(|byte| *byte == 0), "{name}: not zeroed");
            }
        }
    }
}

#[test]
fn frames_that_do_not_count_are_zeroed_by_a_read_and_left_out_of_a_write() {
    for subject in subjects(1_000) {
        let mut read = op(OpKind::Read, 1, 0, 4 * PAGE_BYTES);
        read.bytes = 70;
        let done = one(&subject.store, QueueKind::Caller, read);
        assert_eq!(done.result, Ok(70), "{}", subject.name);
        assert!(held(&done)[70..].iter().all(|byte| *byte == 0), "{}", subject.name);
        if !subject.writable {
            continue;
        }
        let mut write = write(2, 10, &[7; 4 * PAGE_BYTES]);
        write.bytes = 70;
        assert_eq!(one(&subject.store, QueueKind::Caller, write).result, Ok(70));
        let done = one(&subject.store, QueueKind::Caller, op(OpKind::Read, 3, 0, 128));
        let held = held(&done);
        assert_eq!(pattern::verify(0, &held[..10]), Ok(()), "{}", subject.name);
        assert_eq!(held[10..80], [7; 70], "{}", subject.name);
        assert_eq!(pattern::verify(80, &held[80..128]), Ok(()), "{}", subject.name);
    }
}

#[test]
fn random_reads_and_writes_agree_with_a_vector() {
    for kind in KINDS {
        for subject in subjects(700).iter().filter(|subject| subject.writable) {
            compare_with_vector(subject, kind, &mut Prng::new(7));
        }
    }
}

fn compare_with_vector(subject: &Subject, kind: QueueKind, prng: &mut Prng) {
    let mut model = vec![0; 700];
    pattern::fill(0, &mut model);
    let queue = subject.store.queue(kind);
    for step in 0..60 {
        let offset = usize::try_from(prng.below(900)).unwrap();
        let bytes = usize::try_from(prng.below(300)).unwrap();
        let reads = prng.chance(50);
        if reads {
            queue.submit(op(OpKind::Read, step, offset as u64, bytes));
        } else {
            let byte = u8::try_from(prng.below(256)).unwrap();
            if bytes > 0 {
                model.resize(model.len().max(offset + bytes), 0);
                model[offset..offset + bytes].fill(byte);
            }
            queue.submit(write(step, offset as u64, &vec![byte; bytes]));
        }
        let done = drain(&queue).pop().unwrap();
        let end = model.len().min(offset + bytes).max(offset);
        let expected = model.get(offset..end).unwrap_or_default();
        let name = format!("{} {kind:?} step {step}", subject.name);
        assert_eq!(done.result, Ok(if reads { expected.len() } else { bytes }), "{name}");
        if reads {
            assert_eq!(held(&done)[..expected.len()], *expected, "{name}");
        }
    }
    assert_eq!(subject.store.bytes(), Ok(model.len() as u64), "{}", subject.name);
}

#[test]
fn a_sync_moves_nothing() {
    for subject in subjects(100) {
        for kind in KINDS {
            let done = one(&subject.store, kind, op(OpKind::Sync, 1, 0, 0));
            assert_eq!(done.result, Ok(0), "{} {kind:?}", subject.name);
        }
    }
}

#[test]
fn a_reap_without_anything_in_flight_comes_back_with_nothing() {
    for subject in subjects(100) {
        for kind in KINDS {
            let queue = subject.store.queue(kind);
            for wait in [Wait::Never, Wait::One] {
                let reaped = Arc::clone(&queue);
                let out = within(move || {
                    let mut out = Vec::new();
                    reaped.reap(wait, &mut out);
                    out
                });
                assert!(out.is_empty(), "{} {kind:?} {wait:?}", subject.name);
            }
        }
    }
}

#[test]
fn reaping_without_waiting_gets_everything_in_time() {
    for subject in subjects(1_000) {
        for kind in KINDS {
            let queue = subject.store.queue(kind);
            (0..10).for_each(|token| queue.submit(op(OpKind::Read, token, token * 64, 64)));
            let tokens: BTreeSet<_> = within(move || {
                let mut out = Vec::new();
                while out.len() < 10 {
                    queue.reap(Wait::Never, &mut out);
                    thread::yield_now();
                }
                out.iter().map(|done| done.op.token).collect()
            });
            assert_eq!(tokens, (0..10).collect(), "{} {kind:?}", subject.name);
        }
    }
}

#[test]
fn whatever_becomes_of_its_depth_a_queue_gives_back_everything() {
    for subject in subjects(8_000) {
        for kind in KINDS {
            let queue = subject.store.queue(kind);
            let tokens: BTreeSet<_> = within(move || {
                let mut out = Vec::new();
                for (token, depth) in (0..100).zip([1, 9, 2, 1, 64].into_iter().cycle()) {
                    queue.set_depth(depth);
                    queue.submit(op(OpKind::Read, token, token * 64, 64));
                    if token % 7 == 0 {
                        queue.reap(Wait::One, &mut out);
                    }
                }
                while out.len() < 100 {
                    queue.reap(Wait::One, &mut out);
                }
                out.iter().map(|done| done.op.token).collect()
            });
            assert_eq!(tokens, (0..100).collect(), "{} {kind:?}", subject.name);
        }
    }
}

#[test]
fn one_queue_serves_many_threads_and_each_operation_comes_back_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = 25;
    for subject in subjects(8_000) {
        for kind in KINDS {
            let queue = subject.store.queue(kind);
            let name = subject.name;
            let all = within(move || {
                let reap = |first: u64| {
                    let mut out: Vec<Completion> = Vec::new();
                    for token in first..first + EACH {
                        queue.submit(op(OpKind::Read, token, token * 64, 64));
                        queue.reap(Wait::One, &mut out);
                    }
                    loop {
                        let before = out.len();
                        queue.reap(Wait::One, &mut out);
                        if out.len() == before {
                            return out;
                        }
                    }
                };
                thread::scope(|scope| {
                    let reap = &reap;
                    let threads: Vec<_> =
                        (0..THREADS).map(|n| scope.spawn(move || reap(n * EACH))).collect();
                    threads
                        .into_iter()
                        .flat_map(|thread| thread.join().unwrap())
                        .collect::<Vec<_>>()
                })
            });
            let tokens: BTreeSet<_> = all.iter().map(|done| done.op.token).collect();
            assert_eq!(all.len() as u64, THREADS * EACH, "{name} {kind:?}");
            assert_eq!(tokens, (0..THREADS * EACH).collect(), "{name} {kind:?}");
            for done in &all {
                assert_eq!(done.result, Ok(64), "{name} {kind:?}");
                assert_eq!(pattern::verify(done.op.offset, &held(done)), Ok(()), "{name}");
            }
        }
    }
}

#[test]
fn a_closed_queue_gives_back_what_it_holds_and_cancels_the_rest() {
    for subject in subjects(1_000) {
        for kind in KINDS {
            let name = format!("{} {kind:?}", subject.name);
            let queue = subject.store.queue(kind);
            (0..8).for_each(|token| queue.submit(op(OpKind::Read, token, token * 64, 64)));
            queue.close();
            queue.close();
            queue.submit(op(OpKind::Read, 8, 0, 64));
            let done = drain(&queue);
            let tokens: BTreeSet<_> = done.iter().map(|done| done.op.token).collect();
            assert_eq!(tokens, (0..9).collect(), "{name}");
            for done in &done {
                assert!(matches!(done.result, Ok(64) | Err(ECANCELED)), "{name}");
                assert_eq!(done.op.capacity_bytes(), 64, "{name}");
            }
            let last = done.iter().find(|done| done.op.token == 8).unwrap();
            assert_eq!(last.result, Err(ECANCELED), "{name}");
        }
    }
}

#[test]
fn a_queue_outlives_its_store_without_hanging() {
    for subject in subjects(1_000) {
        for kind in KINDS {
            let queue = subject.store.queue(kind);
            queue.submit(op(OpKind::Read, 1, 0, 64));
            queue.close();
            within(move || drop(queue));
        }
        let queue = subject.store.queue(QueueKind::Caller);
        queue.submit(op(OpKind::Read, 1, 0, 64));
        let name = subject.name;
        within(move || drop(subject));
        let done = drain(&queue);
        assert!(matches!(done[0].result, Ok(64) | Err(ECANCELED)), "{name}");
    }
}

#[test]
fn an_operation_larger_than_its_frames_is_a_bug() {
    for subject in subjects(1_000) {
        let queue = subject.store.queue(QueueKind::Caller);
        let mut too_large = op(OpKind::Read, 1, 0, 64);
        too_large.bytes = 65;
        let submit = std::panic::AssertUnwindSafe(|| queue.submit(too_large));
        assert!(std::panic::catch_unwind(submit).is_err(), "{}", subject.name);
    }
}

#[test]
fn what_was_started_comes_back_with_what_was_submitted_later_also_after_a_close() {
    for closes in [false, true] {
        for subject in subjects(1_000) {
            let name = subject.name;
            let queue = subject.store.queue(QueueKind::Caller);
            let tokens = within(move || {
                (0..3).for_each(|token| queue.submit(op(OpKind::Read, token, token * 64, 64)));
                queue.start();
                queue.start();
                (3..5).for_each(|token| queue.submit(op(OpKind::Read, token, token * 64, 64)));
                if closes {
                    queue.close();
                }
                let mut out = Vec::new();
                while out.len() < 5 {
                    queue.reap(Wait::One, &mut out);
                }
                for done in &out {
                    assert!(done.result == Ok(64) || closes && done.result == Err(ECANCELED));
                    if done.result == Ok(64) {
                        assert_eq!(pattern::verify(done.op.offset, &done.op.frames[0]), Ok(()));
                    }
                }
                out.iter().map(|done| done.op.token).collect::<BTreeSet<_>>()
            });
            assert_eq!(tokens, (0..5).collect(), "{name}");
        }
    }
}
