//! A store that fails, stalls and falls short on purpose, countably.
//!
//! Each kind of operation has a [`Rule`]: which of them fail and with which errno, which come
//! late, which move fewer bytes than were asked for. The faults of an operation are drawn when it
//! is submitted, so one submitter and one seed give the same faults in every run, however many
//! threads carry the operations out.
//!
//! ```text
//!   submit: draw -> wait in the queue -> delay -> fail | carry out, perhaps cut -> completion
//! ```
//!
//! # Invariants
//! - An operation that fails here never reaches the inner store.
//! - A cut read is zeros past what it moved, as one that met the end; a cut write wrote no more
//!   than it says.
//! - Closing a queue ends its delays.
//! # Locking
//! The lock of the rules is held while faults are drawn, over nothing else.

use std::{sync::Arc, time::Duration};

use forerun_core::prng::Prng;
use parking_lot::{Condvar, Mutex};

use super::InnerStore;
use crate::{
    queue::{Carry, open},
    store::{Change, Completion, Op, OpKind, Queue, QueueKind, Store, StoreError},
};

/// See the module.
pub struct Fault {
    inner: Arc<dyn Store>,
    state: Arc<Mutex<FaultState>>,
}

/// The rules of a store, by kind of operation. Nothing goes wrong by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// For reads.
    pub reads: Rule,
    /// For writes.
    pub writes: Rule,
    /// For syncs, which cannot be cut.
    pub syncs: Rule,
    /// The errno that each [`Change`] fails with.
    pub changes: Option<i32>,
}

/// The faults of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Which fail, and with which errno.
    pub fail: Option<(When, i32)>,
    /// Which come late, failed ones too, and by how much.
    pub delay: Option<(When, Duration)>,
    /// Which are cut to a random number of bytes below what was asked for.
    pub cut: Option<When>,
}

/// Which operations of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Each `n`-th since the rules were set, the `n`-th first; `n` is at least 1.
    Every(u64),
    /// So many in a million, drawn from the seed.
    Chance(u32),
}

/// The faults that were drawn since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Reads submitted.
    pub reads: u64,
    /// Writes submitted.
    pub writes: u64,
    /// Syncs submitted.
    pub syncs: u64,
    /// Operations to fail.
    pub failed: u64,
    /// Operations to come late.
    pub delayed: u64,
    /// Operations to move fewer bytes.
    pub cut: u64,
}

impl Fault {
    /// `inner` with `faults`; `seed` determines what is drawn.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, faults: Faults, seed: u64) -> Self {
        let prng = Prng::new(seed);
        let state = FaultState { faults, prng, since_set: [0; 3], counts: FaultCounts::default() };
        Self { inner, state: Arc::new(Mutex::new(state)) }
    }

    /// Changes the rules for what is submitted from now on, and counts anew for
    /// [`When::Every`].
    pub fn set(&self, faults: Faults) {
        let mut state = self.state.lock();
        state.faults = faults;
        state.since_set = [0; 3];
    }

    /// The faults that were drawn so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.state.lock().counts
    }
}

impl Store for Fault {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let queue = FaultQueue {
            state: Arc::clone(&self.state),
            store: InnerStore::new(Arc::clone(&self.inner)),
            closed: Mutex::new(false),
            closing: Condvar::new(),
        };
        open(queue, kind)
    }

    fn change(&self, change: Change) -> Result<(), i32> {
        let fails = self.state.lock().faults.changes;
        fails.map_or_else(|| self.inner.change(change), Err)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

/// The rules, and what was drawn by them.
struct FaultState {
    faults: Faults,
    prng: Prng,
    /// Operations since the rules were set: reads, writes, syncs.
    since_set: [u64; 3],
    counts: FaultCounts,
}

impl FaultState {
    fn draw(&mut self, op: &Op) -> FaultPlan {
        let (kind, rule, count) = match op.kind {
            OpKind::Read => (0, self.faults.reads.clone(), &mut self.counts.reads),
            OpKind::Write => (1, self.faults.writes.clone(), &mut self.counts.writes),
            OpKind::Sync => (2, self.faults.syncs.clone(), &mut self.counts.syncs),
        };
        *count += 1;
        self.since_set[kind] += 1;
        let nth = self.since_set[kind];
        let fail = rule.fail.filter(|(when, _)| self.befalls(*when, nth)).map(|(_, errno)| errno);
        let delay = rule.delay.filter(|(when, _)| self.befalls(*when, nth)).map(|(_, time)| time);
        let cut = rule.cut.is_some_and(|when| self.befalls(when, nth));
        let cut = cut && op.bytes > 0 && fail.is_none();
        let bytes = if cut { self.below(op.bytes) } else { op.bytes };
        self.counts.failed += u64::from(fail.is_some());
        self.counts.delayed += u64::from(delay.is_some());
        self.counts.cut += u64::from(cut);
        FaultPlan { fail, delay, bytes }
    }

    fn befalls(&mut self, when: When, nth: u64) -> bool {
        match when {
            When::Every(n) => {
                assert!(n > 0, "every 0th operation is none");
                nth.is_multiple_of(n)
            }
            When::Chance(in_a_million) => self.prng.below(1_000_000) < u64::from(in_a_million),
        }
    }

    fn below(&mut self, bytes: usize) -> usize {
        usize::try_from(self.prng.below(bytes as u64)).expect("below a usize")
    }
}

/// The faults of one operation.
#[derive(Default)]
struct FaultPlan {
    fail: Option<i32>,
    delay: Option<Duration>,
    bytes: usize,
}

/// How one queue carries operations out.
struct FaultQueue {
    state: Arc<Mutex<FaultState>>,
    store: InnerStore,
    closed: Mutex<bool>,
    closing: Condvar,
}

impl FaultQueue {
    /// Waits for `time` or until the queue is closed; returns whether it was closed.
    fn sleep(&self, time: Duration) -> bool {
        let mut closed = self.closed.lock();
        self.closing.wait_while_for(&mut closed, |closed| !*closed, time);
        *closed
    }
}

impl Carry for FaultQueue {
    type Plan = FaultPlan;

    fn plan(&self, op: &Op) -> FaultPlan {
        self.state.lock().draw(op)
    }

    fn carry(&self, mut op: Op, plan: FaultPlan) -> Completion {
        if plan.delay.is_some_and(|time| self.sleep(time)) {
            return op.cancelled();
        }
        if let Some(errno) = plan.fail {
            return Completion { op, result: Err(errno) };
        }
        let asked = op.bytes;
        op.bytes = plan.bytes;
        assert!(op.bytes <= asked, "a cut moves fewer bytes");
        let mut done = self.store.carry(op);
        done.op.bytes = asked;
        done
    }

    fn interrupt(&self) {
        *self.closed.lock() = true;
        self.closing.notify_all();
        self.store.close();
    }
}
