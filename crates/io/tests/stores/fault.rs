//! Faults: counted exactly, the same for the same seed, switched at run time, ended by a close.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use forerun_io::{
    store::{Completion, ECANCELED, Op, OpKind, QueueKind, Store, Wait, memory::Memory, pattern},
    wrap::fault::{Fault, FaultCounts, Faults, Rule, When},
};
use forerun_testkit::within;

use crate::rig::{KINDS, drain, held, op, reaping, write};

const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();

fn failing(when: When, errno: i32) -> Rule {
    Rule { fail: Some((when, errno)), ..Rule::default() }
}

/// A store of the pattern's first 4096 bytes, and the memory below.
fn store(faults: Faults, seed: u64) -> (Arc<Fault>, Memory) {
    let mut contents = vec![0; 4_096];
    pattern::fill(0, &mut contents);
    let memory = Memory::new(contents, 1 << 16);
    (Arc::new(Fault::new(Arc::new(memory.clone()), faults, seed)), memory)
}

/// The results by token of `count` operations.
fn results(
    store: &Fault,
    kind: QueueKind,
    count: u64,
    make: impl Fn(u64) -> Op,
) -> Vec<Result<usize, i32>> {
    let queue = store.queue(kind);
    (0..count).for_each(|token| queue.submit(make(token)));
    let mut done = drain(&queue);
    done.sort_by_key(|done| done.op.token);
    done.iter().map(|done| done.result).collect()
}

#[test]
fn every_nth_of_a_kind_fails_and_the_others_do_not() {
    for kind in KINDS {
        let faults = Faults {
            reads: failing(When::Every(3), EIO),
            writes: failing(When::Every(2), ENOSPC),
            syncs: failing(When::Every(1), EIO),
            changes: None,
        };
        let (store, memory) = store(faults, 1);
        let reads = results(&store, kind, 10, |token| op(OpKind::Read, token, 0, 64));
        for (at, result) in reads.iter().enumerate() {
            assert_eq!(*result, if at % 3 == 2 { Err(EIO) } else { Ok(64) }, "{kind:?} {at}");
        }
        let writes = results(&store, kind, 5, |token| write(token, token * 10, &[1; 10]));
        assert_eq!(writes, [Ok(10), Err(ENOSPC), Ok(10), Err(ENOSPC), Ok(10)], "{kind:?}");
        let contents = memory.contents();
        assert_eq!(contents[..10], [1; 10]);
        assert_eq!(pattern::verify(10, &contents[10..20]), Ok(()), "it failed, so nothing came");
        assert_eq!(pattern::verify(50, &contents[50..]), Ok(()));
        let syncs = results(&store, kind, 2, |token| op(OpKind::Sync, token, 0, 0));
        assert_eq!(syncs, [Err(EIO); 2], "{kind:?}");
        let expected =
            FaultCounts { reads: 10, writes: 5, syncs: 2, failed: 3 + 2 + 2, delayed: 0, cut: 0 };
        assert_eq!(store.counts(), expected, "{kind:?}");
    }
}

#[test]
fn a_cut_transfer_moves_fewer_bytes_and_says_so() {
    for kind in KINDS {
        let cut = Rule { cut: Some(When::Every(2)), ..Rule::default() };
        let faults = Faults { reads: cut.clone(), writes: cut.clone(), syncs: cut, changes: None };
        let (store, memory) = store(faults, 3);
        let queue = store.queue(kind);
        let mut lengths = BTreeSet::new();
        for token in 0..40 {
            queue.submit(op(OpKind::Read, token, 64 * token, 200));
            let done = drain(&queue).pop().unwrap();
            let moved = done.result.unwrap();
            assert_eq!(moved < 200, token % 2 == 1, "{kind:?} {token}: {moved}");
            lengths.insert(moved);
            assert_eq!(done.op.bytes, 200, "what was asked for stays");
            let held = held(&done);
            assert_eq!(pattern::verify(64 * token, &held[..moved]), Ok(()));
            assert!(held[moved..].iter().all(|byte| *byte == 0));
        }
        assert!(lengths.len() > 10, "{kind:?}: cut to any length, not to one: {lengths:?}");
        (0..2).for_each(|token| queue.submit(write(token, 64 * token, &[9; 64])));
        let mut done = drain(&queue);
        done.sort_by_key(|done| done.op.token);
        assert_eq!(done[0].result, Ok(64));
        let moved = done[1].result.unwrap();
        assert!(moved < 64);
        let contents = memory.contents();
        assert_eq!(contents[..64 + moved], vec![9; 64 + moved]);
        assert_eq!(pattern::verify(64 + moved as u64, &contents[64 + moved..]), Ok(()));
        let none = results(&store, kind, 4, |token| op(OpKind::Read, token, 0, 0));
        assert_eq!(none, [Ok(0); 4]);
        assert_eq!(results(&store, kind, 2, |token| op(OpKind::Sync, token, 0, 0)), [Ok(0); 2]);
        assert_eq!(store.counts().cut, 21, "nothing can be cut from nothing");
    }
}

#[test]
fn a_seed_gives_the_same_faults_each_time_and_about_as_many_as_asked_for() {
    let faults = Faults { reads: failing(When::Chance(250_000), EIO), ..Faults::default() };
    let run = |seed, kind| {
        let (store, _) = store(faults.clone(), seed);
        let results = results(&store, kind, 1_000, |token| op(OpKind::Read, token, 0, 8));
        let failed = results.iter().filter(|result| result.is_err()).count();
        assert_eq!(store.counts().failed, failed as u64);
        (results, failed)
    };
    let (first, failed) = run(1, QueueKind::Caller);
    assert!((200..300).contains(&failed), "{failed}");
    for kind in KINDS {
        assert_eq!(run(1, kind).0, first, "{kind:?}");
    }
    assert_ne!(run(2, QueueKind::Caller).0, first);
    let (never, always) = (failing(When::Chance(0), EIO), failing(When::Chance(1_000_000), EIO));
    let (store, _) = store(Faults { reads: never, writes: always, ..Faults::default() }, 1);
    let reads = results(&store, QueueKind::Caller, 50, |token| op(OpKind::Read, token, 0, 8));
    assert_eq!(reads, [Ok(8); 50]);
    let writes = results(&store, QueueKind::Caller, 50, |token| op(OpKind::Write, token, 0, 8));
    assert_eq!(writes, [Err(EIO); 50]);
}

#[test]
fn rules_change_for_what_is_submitted_later_and_count_anew() {
    let (store, _) = store(Faults::default(), 1);
    let read = |token| op(OpKind::Read, token, 0, 64);
    assert_eq!(results(&store, QueueKind::Caller, 3, read), [Ok(64); 3]);
    let queue = store.queue(QueueKind::Caller);
    queue.submit(read(0));
    store.set(Faults { reads: failing(When::Every(2), EIO), ..Faults::default() });
    assert_eq!(drain(&queue)[0].result, Ok(64), "it was submitted before");
    assert_eq!(results(&store, QueueKind::Caller, 3, read), [Ok(64), Err(EIO), Ok(64)]);
    store.set(Faults { reads: failing(When::Every(2), ENOSPC), ..Faults::default() });
    assert_eq!(results(&store, QueueKind::Caller, 3, read), [Ok(64), Err(ENOSPC), Ok(64)]);
    store.set(Faults::default());
    assert_eq!(results(&store, QueueKind::Caller, 3, read), [Ok(64); 3]);
    assert_eq!(store.counts(), FaultCounts { reads: 13, failed: 2, ..FaultCounts::default() });
}

#[test]
fn a_delayed_operation_is_overtaken_and_comes_back() {
    let delayed = |time| {
        let delay = Some((When::Every(2), time));
        let faults = Faults { reads: Rule { delay, ..Rule::default() }, ..Faults::default() };
        let (store, _) = store(faults, 1);
        let queue = store.queue(QueueKind::Background { depth: 2 });
        (0..3).for_each(|token| queue.submit(op(OpKind::Read, token, 0, 64)));
        (store, queue)
    };
    let tokens = |done: &[Completion]| {
        let mut tokens: Vec<_> = done.iter().map(|done| done.op.token).collect();
        tokens.sort_unstable();
        tokens
    };
    let (_, queue) = delayed(Duration::from_secs(24 * 60 * 60));
    let mut done = Vec::new();
    while done.len() < 2 {
        queue.reap(Wait::One, &mut done);
    }
    assert_eq!(tokens(&done), [0, 2], "the delayed one is overtaken");
    queue.close();
    let late = drain(&queue);
    assert_eq!((tokens(&late), late[0].result), (vec![1], Err(ECANCELED)));
    let (store, queue) = delayed(Duration::from_millis(1));
    assert_eq!(tokens(&drain(&queue)), [0, 1, 2]);
    assert_eq!(store.counts().delayed, 1);
}

#[test]
fn what_fails_is_not_cut_as_well() {
    let reads = Rule { cut: Some(When::Every(1)), ..failing(When::Every(2), EIO) };
    let (store, _) = store(Faults { reads, ..Faults::default() }, 1);
    let results = results(&store, QueueKind::Caller, 4, |token| op(OpKind::Read, token, 0, 64));
    assert_eq!(results.iter().filter(|result| **result == Err(EIO)).count(), 2);
    assert_eq!(
        store.counts(),
        FaultCounts { reads: 4, failed: 2, cut: 2, ..FaultCounts::default() }
    );
}

#[test]
fn a_failed_operation_may_come_late_too() {
    let delay = Some((When::Every(1), Duration::from_millis(1)));
    let reads = Rule { delay, ..failing(When::Every(1), EIO) };
    let (store, _) = store(Faults { reads, ..Faults::default() }, 1);
    let read = |token| op(OpKind::Read, token, 0, 64);
    assert_eq!(results(&store, QueueKind::Caller, 1, read), [Err(EIO)]);
    assert_eq!(
        store.counts(),
        FaultCounts { reads: 1, failed: 1, delayed: 1, ..FaultCounts::default() }
    );
}

#[test]
fn closing_a_queue_ends_its_delays() {
    let delay = Some((When::Every(1), Duration::from_secs(3_600)));
    let faults = Faults { reads: Rule { delay, ..Rule::default() }, ..Faults::default() };
    for nested in [false, true] {
        for kind in KINDS {
            let (store, _) = store(faults.clone(), 1);
            let store: Arc<dyn Store> =
                if nested { Arc::new(Fault::new(store, Faults::default(), 1)) } else { store };
            let queue = store.queue(kind);
            (0..6).for_each(|token| queue.submit(op(OpKind::Read, token, 0, 64)));
            let reaper = reaping(&queue);
            queue.close();
            let mut done = within(move || reaper.join().unwrap());
            done.extend(drain(&queue));
            within(move || drop(queue));
            assert!(done.iter().all(|done| done.result == Err(ECANCELED)), "{kind:?}");
            let tokens: BTreeSet<_> = done.iter().map(|done| done.op.token).collect();
            assert_eq!(tokens, (0..6).collect(), "{kind:?}");
        }
    }
}
