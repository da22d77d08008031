//! The latency wrapper in real time. What it computes is tested in virtual time beside it.

use std::sync::Arc;

use forerun_core::{device, units::Nanos};
use forerun_io::{
    store::{ECANCELED, OpKind, QueueKind, Store, Wait, pattern::Pattern},
    wrap::latency::{DeviceCounts, Latency},
};
use forerun_testkit::within;

use crate::rig::{KINDS, drain, op, reaping};

/// A gigabyte of the pattern behind a device.
fn latency(spec: &str) -> Arc<Latency> {
    Arc::new(Latency::new(Arc::new(Pattern::new(1 << 30)), device::make(spec, 1).unwrap()))
}

#[test]
fn nothing_comes_back_before_its_moment_nor_long_after() {
    for spec in ["optane", "ssd", "cloud", "t7k250"] {
        for kind in KINDS {
            let store = latency(spec);
            let queue = store.queue(kind);
            let begun = store.now();
            (0..6).for_each(|token| queue.submit(op(OpKind::Read, token, token << 27, 4_096)));
            let mut seen = Vec::new();
            for _ in 0..6 {
                let queue = Arc::clone(&queue);
                let mut out = within(move || {
                    let mut out = Vec::new();
                    queue.reap(Wait::One, &mut out);
                    out
                });
                let now = store.now();
                seen.extend(out.drain(..).map(|done| (done.op.token, now)));
            }
            let records = store.log().records;
            assert_eq!((records.len(), seen.len()), (6, 6), "{spec} {kind:?}");
            let last = records.iter().map(|record| record.done).max().unwrap();
            assert!(records.is_sorted_by_key(|record| record.done), "{spec} {kind:?}");
            for record in &records {
                assert!(record.arrived >= begun, "{spec} {kind:?}");
                assert!(record.arrived <= record.started && record.started < record.done);
                assert!(record.released >= record.done, "{spec} {kind:?}");
                let (_, seen) = seen.iter().find(|(token, _)| *token == record.token).unwrap();
                assert!(*seen >= record.released, "{spec} {kind:?}");
                let generous = Nanos(10 * last.since(begun).0) + Nanos::from_millis(1_000);
                assert!(seen.since(begun) < generous, "{spec} {kind:?}: late beyond reason");
            }
        }
    }
}

#[test]
fn requests_are_counted_and_the_log_is_taken_once() {
    let store = latency("optane");
    let queue = store.queue(QueueKind::Background { depth: 2 });
    (0..5).for_each(|token| queue.submit(op(OpKind::Read, token, token * 512, 512)));
    queue.submit(op(OpKind::Write, 5, 0, 100));
    queue.submit(op(OpKind::Sync, 6, 0, 0));
    assert_eq!(drain(&queue).len(), 7);
    let counts = DeviceCounts { reads: 5, read_bytes: 5 * 512, writes: 1, write_bytes: 100 };
    assert_eq!(store.counts(), counts);
    let log = store.log();
    assert_eq!((log.records.len(), log.dropped), (6, 0));
    assert_eq!(log.records.iter().filter(|record| record.write).count(), 1);
    assert!(store.log().records.is_empty());
}

#[test]
fn a_slow_request_does_not_keep_a_fast_one_of_another_queue() {
    let store = latency("object");
    let (slow, fast) = (store.queue(QueueKind::Caller), store.queue(QueueKind::Caller));
    (0..8).for_each(|token| slow.submit(op(OpKind::Read, token, token << 20, 64)));
    fast.submit(op(OpKind::Sync, 100, 0, 0));
    assert_eq!(drain(&fast)[0].result, Ok(0));
    assert_eq!(drain(&slow).len(), 8);
}

#[test]
fn a_refused_operation_comes_back_while_others_are_at_the_device() {
    let store = latency("cloud:rate=1");
    let queue = store.queue(QueueKind::Caller);
    queue.submit(op(OpKind::Read, 1, 0, 64));
    queue.submit(op(OpKind::Read, 2, u64::MAX - 10, 64));
    let done = within(move || {
        let mut out = Vec::new();
        queue.reap(Wait::One, &mut out);
        out
    });
    assert_eq!((done.len(), done[0].op.token), (1, 2));
    assert_eq!(done[0].result, Err(rustix::io::Errno::NXIO.raw_os_error()));
}

#[test]
fn closing_a_queue_wakes_its_reaper_before_the_moment_comes() {
    for kind in KINDS {
        let store = latency("cloud:rate=1");
        let queue = store.queue(kind);
        queue.submit(op(OpKind::Read, 1, 0, 64));
        let reaper = reaping(&queue);
        queue.close();
        let done = within(move || reaper.join().unwrap());
        assert_eq!(done[0].result, Err(ECANCELED), "{kind:?}");
    }
}

#[test]
fn dropping_the_store_ends_its_thread_and_cancels_its_operations() {
    for kind in KINDS {
        let store = latency("object");
        let queue = store.queue(kind);
        (0..3).for_each(|token| queue.submit(op(OpKind::Read, token, 0, 64)));
        let reaper = reaping(&queue);
        within(move || drop(store));
        let mut done = within(move || reaper.join().unwrap());
        done.extend(drain(&queue));
        assert_eq!(done.len(), 3, "{kind:?}");
        assert!(done.iter().all(|done| done.result == Err(ECANCELED)), "{kind:?}");
        queue.submit(op(OpKind::Read, 3, 0, 64));
        assert_eq!(drain(&queue)[0].result, Err(ECANCELED), "{kind:?}");
    }
}
