//! A store that fails, stalls and falls short on purpose, countably.
//!
//! Each kind of operation has a [`Rule`]: which of them fail and with which errno, which come
//! late, which move fewer bytes than were asked for. What befalls an operation is settled when it
//! is submitted, so one submitter and one seed give the same faults in every run, however many
//! threads carry the operations out.
//!
//! ```text
//!   submit: settle -> wait in the queue -> delay -> fail | carry out, perhaps cut -> done
//! ```
//!
//! # Invariants
//! - An operation that fails here never reaches the inner store.
//! - A cut read is zeros past what it moved, as one that met the end; a cut write wrote no more
//!   than it says.
//! - Closing a queue ends its delays.
//! # Locking
//! The switch's lock is held while a fault is settled, over nothing else.

use std::{sync::Arc, time::Duration};

use forerun_core::prng::Prng;
use parking_lot::{Condvar, Mutex};

use super::Through;
use crate::{
    queue::{Carry, open},
    store::{Completion, Op, OpKind, Queue, QueueKind, Store, StoreError},
};

/// See the module.
pub struct Fault {
    inner: Arc<dyn Store>,
    switch: Arc<Mutex<Switch>>,
}

/// What goes wrong, by kind of operation. Nothing, by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// For reads.
    pub reads: Rule,
    /// For writes.
    pub writes: Rule,
    /// For syncs, which cannot be cut.
    pub syncs: Rule,
}

/// What goes wrong with one kind of operation.
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

/// What was settled since the store was made.
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
        let switch = Switch { faults, prng, since_set: [0; 3], counts: FaultCounts::default() };
        Self { inner, switch: Arc::new(Mutex::new(switch)) }
    }

    /// Changes the rules for what is submitted from now on, and counts anew for
    /// [`When::Every`].
    pub fn set(&self, faults: Faults) {
        let mut switch = self.switch.lock();
        switch.faults = faults;
        switch.since_set = [0; 3];
    }

    /// What was settled so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.switch.lock().counts
    }
}

impl Store for Fault {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let lane = Lane {
            switch: Arc::clone(&self.switch),
            through: Through::new(Arc::clone(&self.inner)),
            closed: Mutex::new(false),
            closing: Condvar::new(),
        };
        open(lane, kind)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

/// The rules and where they stand.
struct Switch {
    faults: Faults,
    prng: Prng,
    /// Operations since the rules were set: reads, writes, syncs.
    since_set: [u64; 3],
    counts: FaultCounts,
}

impl Switch {
    fn settle(&mut self, op: &Op) -> Settled {
        let (kind, rule, count) = match op.kind {
            OpKind::Read => (0, self.faults.reads.clone(), &mut self.counts.reads),
            OpKind::Write => (1, self.faults.writes.clone(), &mut self.counts.writes),
            OpKind::Sync => (2, self.faults.syncs.clone(), &mut self.counts.syncs),
        };
        *count += 1;
        self.since_set[kind] += 1;
        let nth = self.since_set[kind];
        let fail = rule.fail.filter(|(when, _)| self.falls(*when, nth)).map(|(_, errno)| errno);
        let delay = rule.delay.filter(|(when, _)| self.falls(*when, nth)).map(|(_, time)| time);
        let cut = rule.cut.is_some_and(|when| self.falls(when, nth));
        let cut = cut && op.bytes > 0 && fail.is_none();
        let bytes = if cut { self.below(op.bytes) } else { op.bytes };
        self.counts.failed += u64::from(fail.is_some());
        self.counts.delayed += u64::from(delay.is_some());
        self.counts.cut += u64::from(cut);
        Settled { fail, delay, bytes }
    }

    fn falls(&mut self, when: When, nth: u64) -> bool {
        match when {
            When::Every(n) => nth.is_multiple_of(n),
            When::Chance(in_a_million) => self.prng.below(1_000_000) < u64::from(in_a_million),
        }
    }

    fn below(&mut self, bytes: usize) -> usize {
        usize::try_from(self.prng.below(bytes as u64)).expect("below a usize")
    }
}

/// What befalls one operation.
#[derive(Default)]
struct Settled {
    fail: Option<i32>,
    delay: Option<Duration>,
    bytes: usize,
}

/// One queue's way to the inner store.
struct Lane {
    switch: Arc<Mutex<Switch>>,
    through: Through,
    closed: Mutex<bool>,
    closing: Condvar,
}

impl Lane {
    /// Waits for `time` or until the queue is closed; tells whether it was closed.
    fn sleep(&self, time: Duration) -> bool {
        let mut closed = self.closed.lock();
        self.closing.wait_while_for(&mut closed, |closed| !*closed, time);
        *closed
    }
}

impl Carry for Lane {
    type Plan = Settled;

    fn plan(&self, op: &Op) -> Settled {
        self.switch.lock().settle(op)
    }

    fn carry(&self, mut op: Op, settled: Settled) -> Completion {
        if settled.delay.is_some_and(|time| self.sleep(time)) {
            return op.cancelled();
        }
        if let Some(errno) = settled.fail {
            return Completion { op, result: Err(errno) };
        }
        let asked = op.bytes;
        op.bytes = settled.bytes;
        let mut done = self.through.carry(op);
        done.op.bytes = asked;
        done
    }

    fn interrupt(&self) {
        *self.closed.lock() = true;
        self.closing.notify_all();
        self.through.close();
    }
}
