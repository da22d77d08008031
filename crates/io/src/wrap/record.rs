//! A store that logs what was done to it.
//!
//! Every operation that reaches the inner store is logged when it completes there, with its
//! result. The log has a bound: what exceeds it is counted, and the first records stay.
//!
//! ```text
//!   submit -> wait in the queue -> inner store -> logged -> completion
//! ```
//!
//! # Invariants
//! - Records are in the order of completion, which is the order of submission only where one
//!   operation is in flight at a time.
//! - An operation that a closed queue cancels before it began is not in the log.
//! # Locking
//! The log's lock is held over nothing else.

use std::sync::Arc;

use parking_lot::Mutex;

use super::InnerStore;
use crate::{
    queue::{Carry, open},
    store::{Completion, Op, OpKind, Queue, QueueKind, Store, StoreError},
};

/// See the module. Clones share the store and the log.
#[derive(Clone)]
pub struct Record {
    inner: Arc<dyn Store>,
    log: Arc<SharedLog>,
}

/// The record of one operation that reached the inner store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRecord {
    /// What it did.
    pub kind: OpKind,
    /// Where it began.
    pub offset: u64,
    /// Bytes asked for.
    pub bytes: usize,
    /// Bytes moved, or an errno.
    pub result: Result<usize, i32>,
}

/// The operations that were logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpLog {
    /// In the order of completion.
    pub entries: Vec<OpRecord>,
    /// Operations that completed when the log was full.
    pub dropped: u64,
}

impl OpLog {
    /// Records of `kind`.
    #[must_use]
    pub fn count(&self, kind: OpKind) -> usize {
        self.entries.iter().filter(|entry| entry.kind == kind).count()
    }

    /// Bytes that operations of `kind` moved.
    #[must_use]
    pub fn bytes_moved(&self, kind: OpKind) -> u64 {
        let ours = self.entries.iter().filter(|entry| entry.kind == kind);
        ours.map(|entry| entry.result.map_or(0, |moved| moved as u64)).sum()
    }
}

impl Record {
    /// `inner` with a log of at most `records_max` operations.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, records_max: usize) -> Self {
        let log = SharedLog { records_max, log: Mutex::default() };
        Self { inner, log: Arc::new(log) }
    }

    /// A copy of what was logged since the log was last taken.
    #[must_use]
    pub fn log(&self) -> OpLog {
        self.log.log.lock().clone()
    }

    /// Takes the log: it begins anew, for all clones.
    #[must_use]
    pub fn take(&self) -> OpLog {
        std::mem::take(&mut *self.log.log.lock())
    }
}

impl Store for Record {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let store = InnerStore::new(Arc::clone(&self.inner));
        open(LoggedQueue { log: Arc::clone(&self.log), store }, kind)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

/// The log and its bound.
struct SharedLog {
    records_max: usize,
    log: Mutex<OpLog>,
}

impl SharedLog {
    fn push(&self, entry: OpRecord) {
        let mut log = self.log.lock();
        assert!(log.entries.len() <= self.records_max, "the log has a bound");
        if log.entries.len() < self.records_max {
            log.entries.push(entry);
        } else {
            log.dropped += 1;
        }
    }
}

/// How one queue carries operations out.
struct LoggedQueue {
    log: Arc<SharedLog>,
    store: InnerStore,
}

impl Carry for LoggedQueue {
    type Plan = ();

    fn carry(&self, op: Op, (): ()) -> Completion {
        let done = self.store.carry(op);
        let Op { kind, offset, bytes, .. } = done.op;
        self.log.push(OpRecord { kind, offset, bytes, result: done.result });
        done
    }

    fn interrupt(&self) {
        self.store.close();
    }
}
