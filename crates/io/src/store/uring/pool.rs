//! The readers' rings: a bounded number, each leased to the thread that made it.
//!
//! ```text
//!   check out:  this thread's idle ring, else a new one, else the place of an idle ring that was
//!               not leased in a long time, else none (the reader does without)
//! ```
//!
//! # Invariants
//! - There are at most `rings_max` rings, leased ones included.
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
    store::{Completion, file::Transfer},
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
    leases: u64,
    flavour: Flavour,
    /// The system refuses further rings.
    refused: bool,
    /// The ring whose pinned memory the rings of the pool copy.
    pinned: Weak<Shared>,
}

/// The ring that [`Pool::check_out`] gives, decided under the lock.
enum Choice {
    Idle(Ring),
    New(Flavour, Option<Ring>),
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(rings_max: u32, entries: u32) -> Self {
        let state = State {
            idle: Vec::new(),
            rings: 0,
            leases: 0,
            flavour: Flavour::Deferred,
            refused: false,
            pinned: Weak::new(),
        };
        Self { rings_max, entries, home: OwnerProcess::current(), state: Mutex::new(state) }
    }

    /// A ring for this thread, as long as the guard lives; none for a child of the process.
    pub(super) fn check_out(self: &Arc<Self>) -> Option<Lease> {
        if self.home.is_forked() {
            return None;
        }
        let (choice, leases, pinned) = {
            let mut state = self.state.lock();
            state.leases += 1;
            (state.choose(self.rings_max)?, state.leases, state.pinned.clone())
        };
        let mut ring = match choice {
            Choice::Idle(ring) => ring,
            Choice::New(flavour, old) => {
                drop(old);
                self.make(flavour)?
            }
        };
        assert!(ring.is_sound(), "a ring in the pool is empty and sound");
        ring.last_lease = leases;
        if !ring.copied
            && let Some(shared) = pinned.upgrade()
        {
            shared.share_registered(&mut ring);
        }
        Some(Lease { pool: Arc::clone(self), ring: Some(ring) })
    }

    /// Carries `batch` out on this thread. A single read by `preadv` is about a microsecond faster
    /// than by a ring: it takes fewer steps through memory that a device's latency has left cold.
    pub(super) fn carry(
        self: &Arc<Self>,
        mut batch: VecDeque<Transfer>,
        out: &mut Vec<Completion>,
    ) {
        let ring = if batch.len() > 1 { self.check_out() } else { None };
        if let Some(mut ring) = ring {
            let ring: &mut Ring = &mut ring;
            while !batch.is_empty() && ring.is_sound() {
                let count = batch.len().min(ring.capacity());
                ring.begin(batch.drain(..count));
                ring.finish(out);
            }
        }
        out.extend(batch.into_iter().map(Transfer::carry));
    }

    /// A ring with as many of `waiting` as it can start together; none where there is no ring.
    pub(super) fn begin(
        self: &Arc<Self>,
        waiting: impl Iterator<Item = Transfer>,
    ) -> Option<Lease> {
        let mut ring = self.check_out()?;
        let capacity = ring.capacity();
        ring.begin(waiting.take(capacity));
        Some(ring)
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

    fn check_in(&self, ring: Ring) {
        assert!(ring.in_flight() == 0, "a ring is checked in empty");
        let mut state = self.state.lock();
        assert!(state.idle.len() < state.rings as usize, "a ring is checked in once");
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
        assert!(self.rings <= rings_max && self.idle.len() <= self.rings as usize, "rings");
        let me = thread::current().id();
        let bound = self.flavour == Flavour::Deferred;
        if let Some(at) = self.idle.iter().rposition(|ring| ring.owner == me || !bound) {
            return Some(Choice::Idle(self.idle.swap_remove(at)));
        }
        if self.refused {
            return None;
        }
        if self.rings < rings_max {
            self.rings += 1;
            return Some(Choice::New(self.flavour, None));
        }
        let long_ago = self.leases.saturating_sub(LEASES_IDLE);
        let at = self.idle.iter().position(|ring| ring.last_lease < long_ago)?;
        Some(Choice::New(self.flavour, Some(self.idle.swap_remove(at))))
    }
}

/// A lease of a ring.
pub(super) struct Lease {
    pool: Arc<Pool>,
    ring: Option<Ring>,
}

impl Lease {
    /// Whether this thread made the ring.
    pub(super) fn is_mine(&self) -> bool {
        self.owner == thread::current().id()
    }
}

impl Deref for Lease {
    type Target = Ring;

    fn deref(&self) -> &Ring {
        self.ring.as_ref().expect("a lease has its ring until it is dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("a lease has its ring until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.pool.check_in(ring);
        }
    }
}

/// Leases after which a ring that was in none of them may go: making a ring costs more than
/// several reads without one.
const LEASES_IDLE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_ring_again_and_the_bound_holds() {
        let pool = Arc::new(Pool::new(1, 4));
        let Some(first) = pool.check_out() else { return }; // No rings here: other tests say so.
        assert!(pool.check_out().is_none(), "the only ring is checked out");
        drop(first);
        assert!(pool.check_out().is_some());
        let state = pool.state.lock();
        assert_eq!((state.rings, state.idle.len()), (1, 1));
    }

    #[test]
    fn another_threads_ring_gives_its_place_up_once_it_was_idle_long() {
        let pool = Arc::new(Pool::new(1, 4));
        if pool.check_out().is_none() || pool.state.lock().flavour != Flavour::Deferred {
            return; // No rings here, or rings of any thread.
        }
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let none = (0..LEASES_IDLE).take_while(|_| pool.check_out().is_none()).count();
                (none, pool.check_out().is_some())
            });
            let (none, got) = other.join().unwrap();
            assert!(got && none > 0, "{none}");
        });
        assert_eq!(pool.state.lock().rings, 1);
    }
}
