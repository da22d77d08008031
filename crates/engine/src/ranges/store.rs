//! The store of a host, which the caches of its files share: what is seen of it, and remembered.
//!
//! # Locking
//! One lock, held for one call of the core and under no other.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun_core::device::estimate::{Estimate, Ticket};
use forerun_core::device::remembered::DeviceRecord;
use forerun_core::planner::ranges::{FetchId, RangeFetch, StoreKnowledge};
use forerun_core::units::FileId;

use crate::clock::Clock;

/// See the module. Clones are the same store.
#[derive(Clone)]
pub struct Store(Arc<Mutex<Shared>>);

struct Shared {
    knowledge: StoreKnowledge,
    clock: Clock,
    files: u32,
}

impl Store {
    /// A store of which earlier processes have left `record`.
    #[must_use]
    pub fn new(record: Option<DeviceRecord>) -> Self {
        let knowledge = StoreKnowledge::new(record);
        Self(Arc::new(Mutex::new(Shared { knowledge, clock: Clock::start(), files: 0 })))
    }

    /// What is kept for the next process; `None` where too little was seen.
    #[must_use]
    pub fn record(&self) -> Option<DeviceRecord> {
        self.lock().knowledge.record()
    }

    pub(super) fn estimate(&self) -> Estimate {
        self.lock().knowledge.estimate()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.record()).finish()
    }
}

/// The fetches of one file that are in flight at its store.
pub(super) struct FileOfStore {
    store: Store,
    file: FileId,
    /// Of the fetches in flight: their tickets, and whether they tell how fast the store is.
    tickets: BTreeMap<FetchId, (Ticket, bool)>,
}

impl FileOfStore {
    pub(super) fn new(store: Store) -> Self {
        let mut known = store.lock();
        known.files = known.files.wrapping_add(1);
        let file = FileId(known.files);
        drop(known);
        Self { store, file, tickets: BTreeMap::new() }
    }

    fn issued(&mut self, fetch: RangeFetch) {
        let mut known = self.store.lock();
        let now = known.clock.now();
        let ticket = known.knowledge.issued(now, self.file, fetch.start, fetch.end);
        let before = self.tickets.insert(fetch.id, (ticket, true));
        assert!(before.is_none(), "{fetch:?} is claimed once");
    }

    /// The fetch `id` is made again: it is in flight on, and tells nothing.
    fn retried(&mut self, id: FetchId) {
        if let Some((_, tells)) = self.tickets.get_mut(&id) {
            *tells = false;
        }
    }

    /// The fetch `id` ended: `whole`, or in another way that tells nothing.
    fn ended(&mut self, id: FetchId, whole: bool) {
        let Some((ticket, tells)) = self.tickets.remove(&id) else { return };
        let mut known = self.store.lock();
        let now = known.clock.now();
        if whole && tells {
            known.knowledge.arrived(now, ticket);
        } else {
            known.knowledge.lost(ticket);
        }
    }
}

/// The fetches of one file that are in flight at a store that is learnt of, if it is of one. They
/// may outlive their cache: the store is as busy with them as before.
pub struct InFlight(pub(super) Option<FileOfStore>);

impl InFlight {
    pub(super) fn issued(&mut self, fetch: RangeFetch) {
        if let Some(store) = &mut self.0 {
            store.issued(fetch);
        }
    }

    /// The fetch `id` ended: `whole`, or in another way.
    pub fn ended(&mut self, id: FetchId, whole: bool) {
        if let Some(store) = &mut self.0 {
            store.ended(id, whole);
        }
    }

    /// The fetch `id` is made again: its time tells nothing of the store.
    pub fn retried(&mut self, id: FetchId) {
        if let Some(store) = &mut self.0 {
            store.retried(id);
        }
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fetches = self.0.iter().flat_map(|store| store.tickets.keys());
        f.debug_set().entries(fetches).finish()
    }
}

impl Drop for FileOfStore {
    fn drop(&mut self) {
        for (ticket, _) in std::mem::take(&mut self.tickets).into_values() {
            self.store.lock().knowledge.lost(ticket);
        }
    }
}
