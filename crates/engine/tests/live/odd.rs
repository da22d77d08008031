//! Stores that break their promises: an error for the reader, never a wrong byte or a hang.

use std::sync::Arc;

use forerun_engine::{Cache, ReadError};
use forerun_io::store::{
    Completion, Op, Queue, QueueKind, Store, StoreError, Wait, pattern::Pattern,
};
use forerun_testkit::within;

use crate::rig::{PAGE, fixed, read, settings};

/// Falsifies the completion of a successful read.
type Twist = fn(&mut Completion);

/// A pattern with falsified completions.
struct Odd {
    inner: Pattern,
    twist: Twist,
}

struct TwistedQueue {
    inner: Arc<dyn Queue>,
    twist: Twist,
}

impl Store for Odd {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        Arc::new(TwistedQueue { inner: self.inner.queue(kind), twist: self.twist })
    }
}

impl Queue for TwistedQueue {
    fn submit(&self, op: Op) {
        self.inner.submit(op);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        self.inner.reap(wait, out);
        out.iter_mut().for_each(self.twist);
    }

    fn close(&self) {
        self.inner.close();
    }
}

#[test]
fn a_store_that_reports_other_bytes_than_requested_fails_the_read() {
    #[rustfmt::skip]
    let rows: [(&str, Twist); 8] = [
        ("a byte too many", |done| done.result = Ok(done.op.bytes + 1)),
        ("pages too many", |done| done.result = Ok(done.op.bytes * 2)),
        ("the largest count", |done| done.result = Ok(usize::MAX)),
        ("another question", |done| { done.op.bytes = 1; done.result = Ok(1); }),
        ("nothing at all", |done| done.result = Ok(0)),
        ("no error", |done| done.result = Err(0)),
        ("no errno", |done| done.result = Err(-5)),
        ("what no system has", |done| done.result = Err(i32::MAX)),
    ];
    for (why, twist) in rows {
        within(move || {
            let cache = Cache::new(settings(64, &fixed())).unwrap();
            let odd = Odd { inner: Pattern::new(40 * PAGE + 7), twist };
            let file = cache.open_store(Arc::new(odd)).unwrap();
            for offset in [0, 5 * PAGE, 40 * PAGE] {
                let error = ReadError::Store { offset, errno: 5 };
                assert_eq!(read(&file, offset, 3 * 512), Err(error), "{why}");
            }
            drop(file);
            assert_eq!(cache.frames(), (64, 64), "{why}");
            assert!(cache.stats().core.balanced(), "{why}");
        });
    }
}
