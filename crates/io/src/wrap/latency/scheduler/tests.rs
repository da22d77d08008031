//! The modelled device behind the scheduler, moment by moment.

use forerun_core::device;

use super::*;
use crate::{frames::Frame, store::ECANCELED};

const BOUNDS: Bounds = Bounds { requests_max: 64, log_records_max: 1_000 };

fn make(spec: &str, bounds: Bounds) -> DeviceScheduler {
    DeviceScheduler::new(device::make(spec, 1).unwrap(), bounds)
}

fn queue(scheduler: &mut DeviceScheduler, depth: Option<u32>) -> QueueId {
    let kind = depth.map_or(QueueKind::Caller, |depth| QueueKind::Background { depth });
    scheduler.open(kind, Arc::new(Condvar::new()))
}

fn op(kind: OpKind, token: u64, offset: u64, bytes: usize) -> Op {
    Op { token, kind, offset, bytes, frames: vec![Frame::new(bytes.next_power_of_two()).unwrap()] }
}

fn read(token: u64, offset: u64, bytes: usize) -> Op {
    op(OpKind::Read, token, offset, bytes)
}

fn take(scheduler: &mut DeviceScheduler, id: QueueId) -> (Vec<u64>, Vec<Result<usize, i32>>) {
    let (mut due, mut ended) = (Vec::new(), Vec::new());
    scheduler.take(id, &mut due, &mut ended);
    scheduler.scheduler.finish(id, due.len());
    let tokens = due.iter().map(|op| op.token).collect();
    (tokens, ended.iter().map(|done| done.result).collect())
}

/// Goes to the next moment; the tokens that it made due in `id`.
fn step(scheduler: &mut DeviceScheduler, id: QueueId) -> Vec<u64> {
    let next = scheduler.device.next().expect("something is at the device");
    scheduler.advance(Nanos(next.0 - 1));
    assert_eq!(take(scheduler, id).0, [0; 0], "not before its moment");
    scheduler.advance(next);
    take(scheduler, id).0
}

/// Every device of the list.
fn devices() -> &'static [&'static str] {
    device::NAMES
}

#[test]
fn moments_are_those_of_the_bare_device() {
    for spec in devices() {
        let mut scheduler = make(spec, BOUNDS);
        let mut bare = device::make(spec, 1).unwrap();
        let id = queue(&mut scheduler, None);
        let offsets = [0, 4_096, 90 << 30, 8_192, 5 << 30, 12_288];
        for (at, offset) in offsets.into_iter().enumerate() {
            let now = Nanos(at as u64 * 1_000);
            scheduler.advance(now);
            scheduler.submit(now, id, read(at as u64, offset, 4_096));
        }
        let mut due = take(&mut scheduler, id).0;
        for (at, offset) in offsets.into_iter().enumerate() {
            let request = Request { id: at as u64, offset, bytes: 4_096, write: false };
            bare.submit(Nanos(at as u64 * 1_000), request);
        }
        assert!(!scheduler.scheduler.is_idle(id));
        while scheduler.device.next().is_some() {
            due.extend(step(&mut scheduler, id));
        }
        let mut expected = Vec::new();
        while let Some(next) = bare.next() {
            expected.extend(bare.complete(next));
        }
        let records = scheduler.log.records;
        assert_eq!(records.len(), offsets.len(), "{spec}");
        for (record, completion) in records.iter().zip(&expected) {
            assert_eq!(record.token, completion.request.id, "{spec}");
            assert_eq!(record.offset, completion.request.offset, "{spec}");
            assert_eq!(record.arrived, completion.arrived, "{spec}");
            assert_eq!(record.started, completion.started, "{spec}");
            assert_eq!(record.done, completion.done, "{spec}");
            assert_eq!(record.positioning, completion.positioning, "{spec}");
            assert!(record.released >= record.done, "{spec}");
        }
        let tokens: Vec<_> = records.iter().map(|record| record.token).collect();
        assert_eq!(due, tokens, "{spec}");
        assert!(scheduler.scheduler.is_idle(id));
    }
}

#[test]
fn a_queue_has_its_depth_at_the_device_and_goes_on_in_order() {
    for depth in 1..4_u32 {
        let mut scheduler = make("t7k250", BOUNDS);
        let id = queue(&mut scheduler, Some(depth));
        let other = queue(&mut scheduler, None);
        for token in 0..8 {
            scheduler.submit(Nanos(0), id, read(token, token << 30, 4_096));
            let expected = depth.min(u32::try_from(token).unwrap() + 1);
            assert_eq!(scheduler.device.in_flight(), expected);
        }
        scheduler.submit(Nanos(0), other, read(100, 0, 4_096));
        assert_eq!(scheduler.device.in_flight(), depth + 1, "each queue has its own depth");
        let mut tokens = Vec::new();
        while scheduler.device.next().is_some() {
            tokens.extend(step(&mut scheduler, id));
            let left = 8 - u32::try_from(tokens.len()).unwrap();
            let others = scheduler.scheduler.in_flight_of(other);
            assert_eq!(scheduler.device.in_flight(), left.min(depth) + others);
        }
        tokens.sort_unstable();
        assert_eq!(tokens, (0..8).collect::<Vec<_>>());
        assert_eq!(take(&mut scheduler, other).0, [100]);
    }
}

#[test]
fn a_depth_holds_from_the_next_submission_on() {
    let mut scheduler = make("t7k250", BOUNDS);
    let id = queue(&mut scheduler, Some(1));
    for (token, depth, at_device) in [(0, 1, 1), (1, 1, 1), (2, 4, 3), (3, 2, 3), (4, 4, 4)] {
        scheduler.scheduler.set_depth(id, depth);
        scheduler.submit(Nanos(0), id, read(token, token << 30, 4_096));
        assert_eq!(scheduler.device.in_flight(), at_device, "{token}");
    }
}

#[test]
fn a_large_operation_is_due_with_its_last_part() {
    for spec in devices() {
        let mut scheduler = make(spec, BOUNDS);
        let max = usize::try_from(scheduler.device.request_bytes_max()).unwrap();
        let id = queue(&mut scheduler, Some(1));
        scheduler.submit(Nanos(0), id, read(7, 4_096, 2 * max + 100));
        scheduler.submit(Nanos(0), id, op(OpKind::Write, 8, 0, max));
        assert_eq!(scheduler.device.in_flight(), 3);
        let mut tokens = Vec::new();
        while scheduler.device.next().is_some() {
            tokens.push(step(&mut scheduler, id));
        }
        let (last, before) = tokens.split_last().unwrap();
        assert_eq!(*last, [8], "{spec}");
        assert_eq!(*before.last().unwrap(), [7], "{spec}");
        assert!(before[..before.len() - 1].iter().all(Vec::is_empty), "{spec}");
        let records = scheduler.log.records;
        let mut runs: Vec<_> =
            records.iter().map(|r| (r.token, r.write, r.offset, r.bytes)).collect();
        runs.sort_unstable();
        let max = max as u64;
        let expected = [
            (7, false, 4_096, max),
            (7, false, 4_096 + max, max),
            (7, false, 4_096 + 2 * max, 100),
            (8, true, 0, max),
        ];
        assert_eq!(runs, expected, "{spec}");
        let counts =
            DeviceCounts { reads: 3, read_bytes: 2 * max + 100, writes: 1, write_bytes: max };
        assert_eq!(scheduler.counts, counts, "{spec}");
    }
}

#[test]
fn what_the_device_has_no_part_in_is_due_at_once() {
    let mut scheduler = make("hdd", BOUNDS);
    let id = queue(&mut scheduler, Some(1));
    scheduler.submit(Nanos(0), id, read(1, 0, 4_096));
    scheduler.submit(Nanos(0), id, op(OpKind::Sync, 2, 0, 0));
    scheduler.submit(Nanos(0), id, read(3, 0, 0));
    assert!(!scheduler.scheduler.is_idle(id));
    assert_eq!(take(&mut scheduler, id).0, [2, 3]);
    assert_eq!(scheduler.device.in_flight(), 1);
    assert_eq!(step(&mut scheduler, id), [1]);
    assert!(scheduler.scheduler.is_idle(id));
}

#[test]
fn what_the_device_cannot_take_is_refused() {
    let bounds = Bounds { requests_max: 3, ..BOUNDS };
    let mut scheduler = make("t7k250", bounds);
    let (end, max) = (scheduler.device.capacity_bytes(), scheduler.device.request_bytes_max());
    let max = usize::try_from(max).unwrap();
    let id = queue(&mut scheduler, None);
    let nxio = Some(Errno::NXIO.raw_os_error());
    let inval = Some(Errno::INVAL.raw_os_error());
    #[rustfmt::skip]
    let rows = [ // why                            offset        bytes        errno
        ("up to the device's end",             end - 4_096,       4_096,       None),
        ("one byte past it",                   end - 4_095,       4_096,       nxio),
        ("offsets wrap",                      u64::MAX - 10,      4_096,       nxio),
        ("as many parts as the device holds",            0,     3 * max,       None),
        ("more parts than it holds",                     0, 3 * max + 1,      inval),
    ];
    for (at, (why, offset, bytes, errno)) in (1..).zip(rows) {
        let now = Nanos::from_millis(1_000 * at);
        scheduler.submit(now, id, read(1, offset, bytes));
        let expected: Vec<Result<usize, i32>> = errno.into_iter().map(Err).collect();
        assert_eq!(take(&mut scheduler, id).1, expected, "{why}");
        while scheduler.device.next().is_some() {
            step(&mut scheduler, id);
        }
        assert!(scheduler.scheduler.is_idle(id), "{why}");
    }
}

#[test]
fn a_full_device_makes_all_queues_wait_and_none_for_ever() {
    let mut scheduler = make("ssd", Bounds { requests_max: 4, ..BOUNDS });
    let queues = [queue(&mut scheduler, None), queue(&mut scheduler, None)];
    for token in 0..10 {
        for id in queues {
            scheduler.submit(Nanos(0), id, read(token, token * 4_096, 4_096));
            assert!(scheduler.device.in_flight() <= 4);
        }
    }
    assert_eq!(scheduler.device.in_flight(), 4);
    let mut due = [Vec::new(), Vec::new()];
    while let Some(next) = scheduler.device.next() {
        scheduler.advance(next);
        let left = 20 - u32::try_from(due[0].len() + due[1].len()).unwrap();
        assert!(scheduler.device.in_flight() <= 4.min(left));
        for (due, id) in due.iter_mut().zip(queues) {
            due.extend(take(&mut scheduler, id).0);
        }
    }
    for mut tokens in due {
        tokens.sort_unstable();
        assert_eq!(tokens, (0..10).collect::<Vec<_>>());
    }
}

#[test]
fn a_queue_with_nothing_at_the_full_device_gets_its_turn() {
    let mut scheduler = make("ssd", Bounds { requests_max: 4, ..BOUNDS });
    let (first, second) = (queue(&mut scheduler, None), queue(&mut scheduler, None));
    (0..4).for_each(|token| scheduler.submit(Nanos(0), first, read(token, 0, 4_096)));
    scheduler.submit(Nanos(0), second, read(9, 0, 4_096));
    while let Some(next) = scheduler.device.next() {
        scheduler.advance(next);
    }
    assert_eq!(take(&mut scheduler, first).0, [0, 1, 2, 3]);
    assert_eq!(take(&mut scheduler, second).0, [9]);
}

#[test]
fn a_submission_releases_what_is_due_and_starts_what_waited_for_it() {
    let mut scheduler = make("hdd", BOUNDS);
    let (deep, other) = (queue(&mut scheduler, Some(1)), queue(&mut scheduler, None));
    (0..2).for_each(|token| scheduler.submit(Nanos(0), deep, read(token, 0, 4_096)));
    scheduler.submit(Nanos::from_millis(1_000), other, read(9, 0, 4_096));
    assert_eq!(take(&mut scheduler, deep).0, [0]);
    assert_eq!(scheduler.device.in_flight(), 2);
}

#[test]
fn a_closed_queue_is_cancelled_and_the_device_goes_on() {
    let mut scheduler = make("hdd", BOUNDS);
    let (id, other) = (queue(&mut scheduler, Some(2)), queue(&mut scheduler, None));
    (0..4).for_each(|token| scheduler.submit(Nanos(0), id, read(token, token << 30, 4_096)));
    scheduler.submit(Nanos(0), id, op(OpKind::Sync, 4, 0, 0));
    scheduler.submit(Nanos(0), other, read(9, 0, 4_096));
    scheduler.close(id);
    assert!(!scheduler.scheduler.is_idle(id), "five are to be taken");
    assert_eq!(take(&mut scheduler, id), (vec![], vec![Err(ECANCELED); 5]));
    assert!(scheduler.scheduler.is_idle(id));
    scheduler.submit(Nanos(0), id, read(5, 0, 4_096));
    assert_eq!(take(&mut scheduler, id), (vec![], vec![Err(ECANCELED)]));
    scheduler.forget(id);
    assert_eq!(scheduler.device.in_flight(), 3, "the device has them still");
    let mut tokens = Vec::new();
    while scheduler.device.next().is_some() {
        tokens.extend(step(&mut scheduler, other));
    }
    assert_eq!(tokens, [9]);
    assert_eq!(scheduler.log.records.len(), 3);
    assert_eq!((scheduler.ops.len(), scheduler.requests.len(), scheduler.queue_count()), (0, 0, 1));
}

#[test]
fn the_end_closes_all_queues_and_later_ones() {
    let mut scheduler = make("hdd", BOUNDS);
    let before = queue(&mut scheduler, None);
    scheduler.submit(Nanos(0), before, read(1, 0, 4_096));
    assert!(!scheduler.ended);
    scheduler.end();
    assert!(scheduler.ended);
    assert_eq!(take(&mut scheduler, before).1, [Err(ECANCELED)]);
    let after = queue(&mut scheduler, None);
    scheduler.submit(Nanos(0), after, read(2, 0, 4_096));
    assert_eq!(take(&mut scheduler, after).1, [Err(ECANCELED)]);
}

#[test]
fn what_is_being_carried_out_is_in_flight() {
    let mut scheduler = make("optane", BOUNDS);
    let id = queue(&mut scheduler, None);
    (0..2).for_each(|token| scheduler.submit(Nanos(0), id, read(token, 0, 0)));
    let (mut due, mut ended) = (Vec::new(), Vec::new());
    scheduler.take(id, &mut due, &mut ended);
    assert_eq!((due.len(), ended.len()), (2, 0));
    assert!(!scheduler.scheduler.is_idle(id));
    scheduler.scheduler.finish(id, 1);
    assert!(!scheduler.scheduler.is_idle(id));
    scheduler.scheduler.finish(id, 1);
    assert!(scheduler.scheduler.is_idle(id));
}

#[test]
fn the_log_is_bounded_and_counts_what_it_dropped() {
    let mut scheduler = make("optane", Bounds { log_records_max: 2, ..BOUNDS });
    let id = queue(&mut scheduler, None);
    let mut now = Nanos(0);
    let mut run = |count: u64| {
        for token in 0..count {
            now += Nanos::from_millis(1);
            scheduler.submit(now, id, read(token, 0, 512));
            while let Some(next) = scheduler.device.next() {
                scheduler.advance(next);
            }
        }
        let log = std::mem::take(&mut scheduler.log);
        (log.records.iter().map(|record| record.token).collect::<Vec<_>>(), log.dropped)
    };
    assert_eq!(run(2), (vec![0, 1], 0));
    assert_eq!(run(0), (vec![], 0), "it was taken");
    assert_eq!(run(5), (vec![0, 1], 3));
}
