//! The connections that there are.
//!
//! # Invariants
//! - At most the bound at any time: an entry goes when its thread ends.
//! - Of connections that are in their handshake, the oldest gives way to a new one.
//! # Locking
//! One lock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};

use super::{counters::ClientCounters, socket::Socket};

/// See the module.
pub(super) struct Table {
    entries: Mutex<Entries>,
    /// An entry went.
    left: Condvar,
    count_max: usize,
}

#[derive(Default)]
struct Entries {
    next: u64,
    /// By number: the oldest first.
    all: BTreeMap<u64, Entry>,
    ends: bool,
}

struct Entry {
    socket: Arc<Socket>,
    /// The export that the client opened.
    export: Option<usize>,
    counts: Arc<ClientCounters>,
}

/// A client that has opened an export.
pub(super) struct ClientRow {
    pub(super) number: u64,
    /// Its process, or its address.
    pub(super) peer: String,
    pub(super) export: usize,
    pub(super) counts: Arc<ClientCounters>,
}

/// A connection's place in the table, until it is dropped.
pub(super) struct Ticket<'a> {
    table: &'a Table,
    number: u64,
    socket: Arc<Socket>,
    counts: Arc<ClientCounters>,
}

impl Table {
    pub(super) fn new(count_max: u32) -> Self {
        let count_max = count_max.max(1) as usize;
        Self { entries: Mutex::default(), left: Condvar::new(), count_max }
    }

    /// The connections, and how many of them are past their handshake.
    pub(super) fn count(&self) -> (usize, usize) {
        let entries = self.entries.lock();
        (entries.all.len(), entries.all.values().filter(|entry| entry.export.is_some()).count())
    }

    /// Those that have opened an export.
    pub(super) fn clients(&self) -> Vec<ClientRow> {
        let entries = self.entries.lock();
        let row = |(&number, entry): (&u64, &Entry)| {
            let (peer, counts) = (entry.socket.peer(), Arc::clone(&entry.counts));
            entry.export.map(|export| ClientRow { number, peer, export, counts })
        };
        entries.all.iter().filter_map(row).collect()
    }

    /// A place for a connection, or none.
    pub(super) fn enter(&self, socket: Arc<Socket>) -> Option<Ticket<'_>> {
        let mut entries = self.entries.lock();
        if entries.ends {
            return None;
        }
        while entries.all.len() >= self.count_max {
            let (_, oldest) = entries.all.iter().find(|(_, entry)| entry.export.is_none())?;
            oldest.socket.end();
            self.left.wait(&mut entries);
        }
        let number = entries.next;
        entries.next += 1;
        let counts = Arc::<ClientCounters>::default();
        let entry =
            Entry { socket: Arc::clone(&socket), export: None, counts: Arc::clone(&counts) };
        entries.all.insert(number, entry);
        Some(Ticket { table: self, number, socket, counts })
    }

    /// Waits until a connection ends, or for `time`.
    pub(super) fn wait_for_an_end(&self, time: Duration) {
        let mut entries = self.entries.lock();
        let _ = self.left.wait_for(&mut entries, time);
    }

    /// Ends the input of all connections, waits for `time` until they have answered what they
    /// received, and cuts off the rest.
    pub(super) fn end(&self, time: Duration) {
        let mut entries = self.entries.lock();
        entries.ends = true;
        entries.all.values().for_each(|entry| entry.socket.end_input());
        let _ = self.left.wait_while_for(&mut entries, |entries| !entries.all.is_empty(), time);
        entries.all.values().for_each(|entry| entry.socket.end());
    }
}

impl Ticket<'_> {
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// What is counted of its client.
    pub(super) fn counts(&self) -> &ClientCounters {
        &self.counts
    }

    /// The handshake is over, and the client has opened an export.
    pub(super) fn agreed(&self, export: usize) {
        if let Some(entry) = self.table.entries.lock().all.get_mut(&self.number) {
            entry.export = Some(export);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.table.entries.lock().all.remove(&self.number);
        self.table.left.notify_all();
    }
}
