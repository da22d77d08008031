//! A store that forgets at a crash every write that was not synced, as a disk does without power.
//!
//! Writes wait beside the inner store until a sync takes them there:
//!
//! ```text
//!   write 1 -> [1]          sync: covers 1 and 2, which were done before it was submitted
//!   write 2 -> [1][2]         |
//!   write 3 -> [1][2][3]      |
//!                             +-> inner store: write 1, write 2, sync  -> [3]
//!   crash                                                              -> []  or some of 3
//!
//!   a read: the inner store's bytes, under the writes that wait, in their order
//! ```
//!
//! # Invariants
//! - A sync covers the writes that were done before it was submitted, and so all that were
//!   reaped. It covers no later one, and only once it succeeded: after one that failed, what it
//!   was to cover still waits, and a crash may or may not forget it.
//! - A write is taken whole or refused with `ENOSPC`; what waits never exceeds the bound.
//! - Of what a crash may keep, each sector holds one of its contents over time, never a mixture.
//! - An operation that was submitted before the end of a crash fails with `EIO`, and touches the
//!   inner store no more.
//! - The version is the inner store's: a write that waits does not change it.
//! - Zeros and discards wait as writes do. Another length takes what waits along, and is durable.
//! # Locking
//! `moving` before `state`. `moving` is held while a sync or a crash uses the inner store, so that
//! nothing of before a crash reaches it later; `state` over no operation.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use forerun_core::prng::Prng;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::InnerStore;
use crate::{
    frames::Frame,
    queue::{Carry, open},
    store::{Change, Completion, Op, OpKind, Queue, QueueKind, Store, StoreError},
};

/// See the module. Clones are the same store.
#[derive(Clone)]
pub struct Volatile {
    shared: Arc<Shared>,
}

/// What a crash leaves of the writes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// Of each sector that was written, one of its contents since the last sync, drawn from this
    /// seed.
    Some(u64),
}

/// What a crash did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crash {
    /// Sectors with writes that were not synced.
    pub sectors: u64,
    /// Those that kept one of these writes or more.
    pub kept: u64,
}

impl Volatile {
    /// `inner`, with at most `bytes_max` bytes of writes that wait.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, bytes_max: usize) -> Self {
        let through = InnerStore::new(Arc::clone(&inner));
        let state = Mutex::new(State { bytes_max, ..State::default() });
        Self { shared: Arc::new(Shared { inner, moving: Mutex::new(through), state }) }
    }

    /// The power fails and comes back: what was not synced is forgotten, save what `keep` says.
    /// Waits for syncs that are in flight.
    #[expect(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn crash(&self, keep: Keep) -> Crash {
        let through = self.shared.moving.lock();
        let forgotten = {
            let mut state = self.shared.state.lock();
            state.epoch += 1;
            state.bytes = 0;
            std::mem::take(&mut state.waiting)
        };
        let sectors = sectors_of(&forgotten);
        let mut crash = Crash { sectors: sectors.len() as u64, kept: 0 };
        if let Keep::Some(seed) = keep {
            let mut prng = Prng::new(seed);
            for history in sectors.values() {
                let count = usize::try_from(prng.below(history.len() as u64 + 1));
                let kept = &history[..count.expect("at most a length")];
                for (offset, data) in kept {
                    // What the inner store refuses is forgotten as well.
                    let _ = store(&through, *offset, data);
                }
                crash.kept += u64::from(!kept.is_empty());
            }
        }
        // An operation that was submitted meanwhile may have read some of it: it fails, too.
        self.shared.state.lock().epoch += 1;
        crash
    }

    /// Memory that writes take up while they wait for a sync, in bytes.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.shared.state.lock().bytes
    }
}

impl Store for Volatile {
    fn bytes(&self) -> Result<u64, StoreError> {
        let waiting = self.shared.state.lock().end();
        Ok(self.shared.inner.bytes()?.max(waiting))
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let store = InnerStore::new(Arc::clone(&self.shared.inner));
        open(VolatileQueue { shared: Arc::clone(&self.shared), store }, kind)
    }

    fn change(&self, change: Change) -> Result<(), i32> {
        match change {
            Change::Length(_) => self.shared.set_length(change),
            Change::Zero { offset, bytes, .. } | Change::Discard { offset, bytes } => {
                let bytes = usize::try_from(bytes).map_err(|_| Errno::NOSPC.raw_os_error())?;
                let fill = |data: &mut Vec<u8>| data.resize(bytes, 0);
                self.shared.state.lock().push(offset, bytes, fill).map(drop)
            }
        }
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.shared.inner)
    }
}

struct Shared {
    inner: Arc<dyn Store>,
    /// The crash's own way to the inner store; every sync and crash moves writes under this lock.
    moving: Mutex<InnerStore>,
    state: Mutex<State>,
}

impl Shared {
    /// Changes the length of the inner store, after the writes that wait: a length is durable at
    /// once.
    fn set_length(&self, change: Change) -> Result<(), i32> {
        let through = self.moving.lock();
        let (waiting, taken) = {
            let state = self.state.lock();
            (state.waiting.clone(), state.taken)
        };
        for write in &waiting {
            store(&through, write.offset, &write.data)?;
        }
        self.inner.change(change)?;
        self.state.lock().settle(taken);
        Ok(())
    }
}

#[derive(Default)]
struct State {
    /// Writes that wait, oldest first.
    waiting: VecDeque<Waiting>,
    /// The memory that they take up.
    bytes: usize,
    bytes_max: usize,
    /// Writes that were ever taken.
    taken: u64,
    /// Grows at each crash.
    epoch: u64,
}

/// A write that waits for a sync.
#[derive(Clone)]
struct Waiting {
    /// Which of all that were taken it is, from 1.
    number: u64,
    offset: u64,
    data: Arc<[u8]>,
}

impl Waiting {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    fn held_bytes(&self) -> usize {
        self.data.len() + ENTRY_BYTES
    }
}

impl State {
    /// The byte after the last that waits.
    fn end(&self) -> u64 {
        self.waiting.iter().map(Waiting::end).max().unwrap_or(0)
    }

    /// Takes a write of `bytes` bytes in, which `fill` appends.
    fn push(
        &mut self,
        offset: u64,
        bytes: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, i32> {
        if bytes == 0 {
            return Ok(0);
        }
        if offset.checked_add(bytes as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::INVAL.raw_os_error());
        }
        let held = bytes.saturating_add(ENTRY_BYTES);
        if held > self.bytes_max - self.bytes {
            return Err(Errno::NOSPC.raw_os_error());
        }
        let mut data = Vec::with_capacity(bytes);
        fill(&mut data);
        self.taken += 1;
        self.bytes += held;
        assert!(self.bytes <= self.bytes_max, "what waits never exceeds the bound");
        self.waiting.push_back(Waiting { number: self.taken, offset, data: data.into() });
        Ok(bytes)
    }

    /// Forgets the writes up to `number`: they are in the inner store.
    fn settle(&mut self, number: u64) {
        assert!(number <= self.taken, "a sync covers writes that were taken");
        while let Some(first) = self.waiting.front()
            && first.number <= number
        {
            self.bytes -= first.held_bytes();
            self.waiting.pop_front();
        }
    }
}

/// What is decided about an operation when it is submitted.
#[derive(Default)]
struct Plan {
    epoch: u64,
    /// The last write that a sync covers.
    covered: u64,
}

/// How one queue carries operations out.
struct VolatileQueue {
    shared: Arc<Shared>,
    store: InnerStore,
}

impl VolatileQueue {
    /// The inner store's bytes under those that wait.
    fn read(&self, op: Op) -> Completion {
        let from = op.offset;
        let until = from.saturating_add(op.bytes as u64);
        // Before the inner store is read: what a sync takes there meanwhile is then in both.
        let (over, end) = {
            let state = self.shared.state.lock();
            let meets = |write: &&Waiting| write.offset < until && from < write.end();
            let over: Vec<_> = state.waiting.iter().filter(meets).cloned().collect();
            (over, state.end())
        };
        let mut done = self.store.carry(op);
        let Ok(inner) = done.result else { return done };
        let cut = inner < done.op.bytes
            && self.shared.inner.bytes().is_ok_and(|bytes| from + (inner as u64) < bytes);
        let waiting = usize::try_from(end.min(until).saturating_sub(from)).expect("within the op");
        let moved = if cut { inner } else { inner.max(waiting) };
        for write in over {
            lay_over(&mut done.op, &write);
        }
        assert!(moved <= done.op.bytes, "a read moves what was asked for");
        done.op.zero_past(moved);
        done.result = Ok(moved);
        done
    }

    /// Takes the writes up to `plan.covered` to the inner store and syncs that.
    fn sync(&self, op: Op, plan: &Plan) -> Completion {
        let moving = self.shared.moving.lock();
        let covered: Vec<_> = {
            let state = self.shared.state.lock();
            if state.epoch != plan.epoch {
                return Completion { op, result: Err(EIO) };
            }
            let ours = |write: &&Waiting| write.number <= plan.covered;
            state.waiting.iter().take_while(ours).cloned().collect()
        };
        for write in covered {
            if let Err(errno) = store(&self.store, write.offset, &write.data) {
                return Completion { op, result: Err(errno) };
            }
        }
        let done = self.store.carry(op);
        if done.result.is_ok() {
            self.shared.state.lock().settle(plan.covered);
        }
        drop(moving);
        done
    }
}

impl Carry for VolatileQueue {
    type Plan = Plan;

    fn plan(&self, _: &Op) -> Plan {
        let state = self.shared.state.lock();
        Plan { epoch: state.epoch, covered: state.taken }
    }

    fn carry(&self, op: Op, plan: Plan) -> Completion {
        let mut done = match op.kind {
            OpKind::Read => self.read(op),
            OpKind::Write => {
                let mut state = self.shared.state.lock();
                let alive = state.epoch == plan.epoch;
                let fill = |data: &mut Vec<u8>| {
                    op.pieces().for_each(|piece| data.extend_from_slice(piece));
                };
                let result = if alive { state.push(op.offset, op.bytes, fill) } else { Err(EIO) };
                drop(state);
                return Completion { op, result };
            }
            OpKind::Sync => self.sync(op, &plan),
        };
        if self.shared.state.lock().epoch != plan.epoch {
            done.result = Err(EIO);
        }
        done
    }

    fn interrupt(&self) {
        self.store.close();
    }
}

/// Copies what of `write` lies within `op` to where it lies there.
fn lay_over(op: &mut Op, write: &Waiting) {
    let mut at = op.offset;
    for piece in op.pieces_mut() {
        let until = at + piece.len() as u64;
        let (from, to) = (at.max(write.offset), until.min(write.end()));
        if from < to {
            let source = &write.data[within(from - write.offset)..within(to - write.offset)];
            piece[within(from - at)..within(to - at)].copy_from_slice(source);
        }
        at = until;
    }
}

/// Writes `data` at `offset` of the inner store, all of it.
fn store(through: &InnerStore, offset: u64, data: &[u8]) -> Result<(), i32> {
    let (mut offset, mut data) = (offset, data);
    while !data.is_empty() {
        let mut frames = Vec::with_capacity(data.len().div_ceil(FRAME_BYTES));
        for chunk in data.chunks(FRAME_BYTES) {
            let mut frame = Frame::new(FRAME_BYTES).map_err(|refused| refused.errno())?;
            frame[..chunk.len()].copy_from_slice(chunk);
            frames.push(frame);
        }
        let op = Op { token: 0, kind: OpKind::Write, offset, bytes: data.len(), frames };
        let moved = through.carry(op).result?;
        if moved == 0 {
            return Err(EIO);
        }
        assert!(moved <= data.len(), "a write moves what was asked for");
        offset += moved as u64;
        data = &data[moved..];
    }
    Ok(())
}

/// What was written to each sector, oldest first: where it begins and its bytes.
type Histories<'a> = BTreeMap<u64, Vec<(u64, &'a [u8])>>;

/// Cuts writes at the borders of sectors.
fn sectors_of(writes: &VecDeque<Waiting>) -> Histories<'_> {
    let mut histories = Histories::new();
    for write in writes {
        let mut at = write.offset;
        while at < write.end() {
            let sector = at / SECTOR_BYTES;
            let until = ((sector + 1) * SECTOR_BYTES).min(write.end());
            let data = &write.data[within(at - write.offset)..within(until - write.offset)];
            histories.entry(sector).or_default().push((at, data));
            at = until;
        }
    }
    histories
}

/// A distance within memory.
fn within(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a part of what lies in memory")
}

const EIO: i32 = Errno::IO.raw_os_error();

/// What a disk writes at once or not at all.
const SECTOR_BYTES: u64 = 512;

/// The memory that a write takes up besides its bytes, so that small ones are bounded too.
const ENTRY_BYTES: usize = 64;

/// The size of the frames that writes go to the inner store in.
const FRAME_BYTES: usize = 4096;
