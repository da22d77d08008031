//! A store that remembers what was done to it.
//!
//! Every operation that reaches the inner store is logged when it comes back from there, with
//! what came of it. The log has a bound: what exceeds it is counted, and its first entries stay.
//!
//! ```text
//!   submit -> wait in the queue -> inner store -> logged -> done
//! ```
//!
//! # Invariants
//! - Entries are in the order of completion, which is the order of submission only where one
//!   operation is under way at a time.
//! - An operation that a closed queue cancels before it began is not in the log.
//! # Locking
//! The log's lock is held over nothing else.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Through;
use crate::{
    queue::{Carry, open},
    store::{Completion, Op, OpKind, Queue, QueueKind, Store, StoreError},
};

/// See the module. Clones share the store and the log.
#[derive(Clone)]
pub struct Record {
    inner: Arc<dyn Store>,
    book: Arc<Book>,
}

/// One operation that reached the inner store.
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

/// What was logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpLog {
    /// In the order of completion.
    pub entries: Vec<OpRecord>,
    /// Operations that completed when the log was full.
    pub dropped: u64,
}

impl OpLog {
    /// How many entries of `kind` there are.
    #[must_use]
    pub fn count(&self, kind: OpKind) -> usize {
        self.entries.iter().filter(|entry| entry.kind == kind).count()
    }

    /// The bytes that entries of `kind` moved.
    #[must_use]
    pub fn bytes_moved(&self, kind: OpKind) -> u64 {
        let ours = self.entries.iter().filter(|entry| entry.kind == kind);
        ours.map(|entry| entry.result.map_or(0, |moved| moved as u64)).sum()
    }
}

impl Record {
    /// `inner` with a log of at most `entries_max` operations.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, entries_max: usize) -> Self {
        let book = Book { entries_max, log: Mutex::default() };
        Self { inner, book: Arc::new(book) }
    }

    /// A copy of what was logged since the log was last taken.
    #[must_use]
    pub fn log(&self) -> OpLog {
        self.book.log.lock().clone()
    }

    /// Takes the log: it begins anew, for all clones.
    #[must_use]
    pub fn take(&self) -> OpLog {
        std::mem::take(&mut *self.book.log.lock())
    }
}

impl Store for Record {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let through = Through::new(Arc::clone(&self.inner));
        open(Lane { book: Arc::clone(&self.book), through }, kind)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

/// The log and its bound.
struct Book {
    entries_max: usize,
    log: Mutex<OpLog>,
}

impl Book {
    fn note(&self, entry: OpRecord) {
        let mut log = self.log.lock();
        if log.entries.len() < self.entries_max {
            log.entries.push(entry);
        } else {
            log.dropped += 1;
        }
    }
}

/// One queue's way to the inner store.
struct Lane {
    book: Arc<Book>,
    through: Through,
}

impl Carry for Lane {
    type Plan = ();

    fn carry(&self, op: Op, (): ()) -> Completion {
        let done = self.through.carry(op);
        let Op { kind, offset, bytes, .. } = done.op;
        self.book.note(OpRecord { kind, offset, bytes, result: done.result });
        done
    }

    fn interrupt(&self) {
        self.through.close();
    }
}
