//! The readers' rings: a bounded number, each lent to the thread that it was made by.
//!
//! ```text
//!   lend:  this thread's idle ring, else a new one, else the place of an idle ring that
//!          nobody asked for in a long time, else none (the reader does without)
//! ```
//!
//! # Invariants
//! - There are at most `rings_max` rings, lent ones included.
//! - A ring in the pool is empty and sound.
//! # Locking
//! One lock, held over no system call; a ring is made and ended outside of it.

use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
    sync::{Arc, Weak},
    thread,
};

use parking_lot::Mutex;

use super::{
    ring::{Flavour, Ring},
    shared::Shared,
};
use crate::{
    process::OwnerProcess,
    store::{
        Completion,
        file::{Batches, Started, Transfer},
    },
};

/// See the module.
pub(super) struct Pool {
    rings_max: u32,
    entries: u32,
    home: OwnerProcess,
    state: Mutex<State>,
}

struct State {
    idle: Vec<Ring>,
    /// Rings there are, or are being made.
    rings: u32,
    lends: u64,
    flavour: Flavour,
    /// The system makes no more rings for us.
    refused: bool,
    /// The ring whose pinned memory others copy.
    pinned: Weak<Shared>,
}

/// What [`Pool::lend`] settles under the lock.
enum Choice {
    Ours(Ring),
    New(Flavour, Option<Ring>),
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(rings_max: u32, entries: u32) -> Self {
        let state = State {
            idle: Vec::new(),
            rings: 0,
            lends: 0,
            flavour: Flavour::Deferred,
            refused: false,
            pinned: Weak::new(),
        };
        Self { rings_max, entries, home: OwnerProcess::current(), state: Mutex::new(state) }
    }

    /// A ring for this thread, as long as the guard lives; none for a child of the process.
    pub(super) fn lend(self: &Arc<Self>) -> Option<Lent> {
        if self.home.is_forked() {
            return None;
        }
        let (choice, lends, pinned) = {
            let mut state = self.state.lock();
            state.lends += 1;
            (state.choose(self.rings_max)?, state.lends, state.pinned.clone())
        };
        let mut ring = match choice {
            Choice::Ours(ring) => ring,
            Choice::New(flavour, old) => {
                drop(old);
                self.make(flavour)?
            }
        };
        ring.lent = lends;
        if !ring.copied
            && let Some(shared) = pinned.upgrade()
        {
            shared.lend_registered(&mut ring);
        }
        Some(Lent { pool: Arc::clone(self), ring: Some(ring) })
    }

    /// From now on rings copy the pinned memory of `shared`.
    pub(super) fn copy_from(&self, shared: &Arc<Shared>) {
        self.state.lock().pinned = Arc::downgrade(shared);
    }

    /// A new ring, counted already, of the newest flavour that the kernel has.
    fn make(&self, mut flavour: Flavour) -> Option<Ring> {
        let made = Ring::newest(self.entries, &mut flavour);
        let mut state = self.state.lock();
        state.flavour = flavour;
        if made.is_err() {
            state.rings -= 1;
            state.refused = true;
        }
        made.ok()
    }

    fn give_back(&self, ring: Ring) {
        let mut state = self.state.lock();
        if ring.is_sound() {
            state.idle.push(ring);
        } else {
            state.rings -= 1;
            state.refused = true;
            drop(state);
            drop(ring);
        }
    }
}

impl State {
    fn choose(&mut self, rings_max: u32) -> Option<Choice> {
        let me = thread::current().id();
        let bound = self.flavour == Flavour::Deferred;
        if let Some(at) = self.idle.iter().rposition(|ring| ring.owner == me || !bound) {
            return Some(Choice::Ours(self.idle.swap_remove(at)));
        }
        if self.refused {
            return None;
        }
        if self.rings < rings_max {
            self.rings += 1;
            return Some(Choice::New(self.flavour, None));
        }
        let long_ago = self.lends.saturating_sub(LENDS_IDLE);
        let at = self.idle.iter().position(|ring| ring.lent < long_ago)?;
        Some(Choice::New(self.flavour, Some(self.idle.swap_remove(at))))
    }
}

/// A ring on loan.
pub(super) struct Lent {
    pool: Arc<Pool>,
    ring: Option<Ring>,
}

impl Deref for Lent {
    type Target = Ring;

    fn deref(&self) -> &Ring {
        self.ring.as_ref().expect("it goes back when the guard does")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("it goes back when the guard does")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.pool.give_back(ring);
        }
    }
}

impl Batches for Pool {
    type Started = Lent;

    /// A single read by `preadv` is about a microsecond faster than by a ring: it takes fewer
    /// steps through memory that a device's latency has left cold.
    fn carry(self: &Arc<Self>, mut batch: VecDeque<Transfer>, out: &mut Vec<Completion>) {
        let ring = if batch.len() > 1 { self.lend() } else { None };
        if let Some(mut ring) = ring {
            let ring: &mut Ring = &mut ring;
            while !batch.is_empty() && ring.is_sound() {
                let count = batch.len().min(ring.room());
                ring.begin(batch.drain(..count));
                ring.finish(out);
            }
        }
        out.extend(batch.into_iter().map(Transfer::carry));
    }

    fn begin(self: &Arc<Self>, waiting: &mut dyn Iterator<Item = Transfer>) -> Option<Lent> {
        let mut ring = self.lend()?;
        let room = ring.room();
        ring.begin(waiting.take(room));
        Some(ring)
    }
}

impl Started for Lent {
    fn submit(&mut self) {
        self.deref_mut().submit();
    }

    fn is_mine(&self) -> bool {
        self.owner == thread::current().id()
    }

    fn finish(mut self, out: &mut Vec<Completion>) {
        self.deref_mut().finish(out);
    }
}

/// Lends after which a ring that was in none of them may go: making a ring costs more than
/// several reads without one.
const LENDS_IDLE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_ring_again_and_the_bound_holds() {
        let pool = Arc::new(Pool::new(1, 4));
        let Some(first) = pool.lend() else { return }; // No rings here: other tests say so.
        assert!(pool.lend().is_none(), "the only ring is out");
        drop(first);
        assert!(pool.lend().is_some());
        let state = pool.state.lock();
        assert_eq!((state.rings, state.idle.len()), (1, 1));
    }

    #[test]
    fn another_threads_ring_gives_its_place_up_once_it_lay_idle_long() {
        let pool = Arc::new(Pool::new(1, 4));
        if pool.lend().is_none() || pool.state.lock().flavour != Flavour::Deferred {
            return; // No rings here, or rings of any thread.
        }
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let none = (0..LENDS_IDLE).take_while(|_| pool.lend().is_none()).count();
                (none, pool.lend().is_some())
            });
            let (none, got) = other.join().unwrap();
            assert!(got && none > 0, "{none}");
        });
        assert_eq!(pool.state.lock().rings, 1);
    }
}
