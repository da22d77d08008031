//! Operations and queues for tests.

use std::{sync::Arc, thread};

use forerun_io::{
    frames::Frame,
    store::{Completion, Op, OpKind, Queue, QueueKind, Store, Wait},
};
use forerun_testkit::within;

/// The pages of these tests: small, so that an operation spans several.
pub(crate) const PAGE_BYTES: usize = 64;

/// Both kinds of queue, shallow and deep.
pub(crate) const KINDS: [QueueKind; 3] =
    [QueueKind::Caller, QueueKind::Background { depth: 1 }, QueueKind::Background { depth: 4 }];

/// A thread that waits for one operation of `queue`, and gives what it got.
pub(crate) fn reaping(queue: &Arc<dyn Queue>) -> thread::JoinHandle<Vec<Completion>> {
    let queue = Arc::clone(queue);
    thread::spawn(move || {
        let mut out = Vec::new();
        queue.reap(Wait::One, &mut out);
        out
    })
}

/// An operation whose frames just hold `bytes`, filled with `0xee`.
pub(crate) fn op(kind: OpKind, token: u64, offset: u64, bytes: usize) -> Op {
    let count = bytes.div_ceil(PAGE_BYTES);
    let mut frames: Vec<_> = (0..count).map(|_| Frame::new(PAGE_BYTES).unwrap()).collect();
    for frame in &mut frames {
        frame.fill(0xee);
    }
    Op { token, kind, offset, bytes, frames }
}

/// A write of `data` at `offset`.
pub(crate) fn write(token: u64, offset: u64, data: &[u8]) -> Op {
    let mut op = op(OpKind::Write, token, offset, data.len());
    let mut rest = data;
    for piece in op.pieces_mut() {
        let (now, later) = rest.split_at(piece.len());
        piece.copy_from_slice(now);
        rest = later;
    }
    op
}

/// All that the frames hold, one after the other.
pub(crate) fn held(done: &Completion) -> Vec<u8> {
    done.op.frames.iter().flat_map(|frame| frame.iter().copied()).collect()
}

/// Submits one operation on a queue of its own and reaps it.
pub(crate) fn one(store: &Arc<dyn Store>, kind: QueueKind, op: Op) -> Completion {
    let queue = store.queue(kind);
    queue.submit(op);
    let mut done = drain(&queue);
    assert_eq!(done.len(), 1);
    done.pop().unwrap()
}

/// Reaps until nothing is in flight.
pub(crate) fn drain(queue: &Arc<dyn Queue>) -> Vec<Completion> {
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
