//! Writes whose partition changes while they wait for room: their pieces are cut anew.
//!
//! ```text
//!   |==|==|==|==|  5  |           a piece waits; its partition becomes one that takes no 5 pages
//!   |==|==|==|==|1|1|1|1|1|...    the piece is refused, and sent again in smaller ones
//! ```
//!
//! # Invariants
//! - The store completes no write before the shares have changed, so the piece waits until then.

use std::sync::{Arc, Mutex};

use forerun_core::{event::Event, units::Nanos};
use forerun_engine::{Access, Cache, Partition, Recorder, Rule, Settings};
use forerun_io::store::{
    Completion, Op, Queue, QueueKind, Store, StoreError, Wait, memory::Memory,
};
use forerun_testkit::{until, within};

use crate::rig::{Gate, PAGE, PAGE_BYTES, settings};

/// A memory whose background completes nothing while its gate is shut.
struct Gated {
    memory: Memory,
    gate: Arc<Gate>,
}

struct GatedQueue {
    inner: Arc<dyn Queue>,
    gate: Arc<Gate>,
}

impl Store for Gated {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.memory.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let inner = self.memory.queue(kind);
        match kind {
            QueueKind::Caller => inner,
            QueueKind::Background { .. } => {
                Arc::new(GatedQueue { inner, gate: Arc::clone(&self.gate) })
            }
        }
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.memory)
    }
}

impl Queue for GatedQueue {
    fn submit(&self, op: Op) {
        self.inner.submit(op);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        self.gate.pass();
        self.inner.reap(wait, out);
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// Keeps the pages of each piece that is sent to the core.
struct Pieces(Arc<Mutex<Vec<u32>>>);

impl Recorder for Pieces {
    fn sent(&mut self, _: Nanos, event: &Event<'_>) {
        if let Event::Write { count, .. } = event {
            self.0.lock().unwrap().push(*count);
        }
    }
}

/// Pages of a piece of the cache of these tests, before shares change.
const PIECE_PAGES: u32 = 5;
const PAGES: u32 = 200;

/// The pages of the pieces of a write that waits while partition `name` gets `frames`.
fn pieces_of_a_write(partition: Partition, frames: u64) -> Vec<u32> {
    let name = partition.name.clone();
    let settings = Settings { partitions: vec![partition], ..settings(320) };
    let pieces = Arc::default();
    let cache = Cache::recorded(settings, Box::new(Pieces(Arc::clone(&pieces)))).unwrap();
    let bytes = PAGES as usize * PAGE_BYTES as usize;
    let (memory, gate) = (Memory::new(vec![0; bytes], bytes), Arc::new(Gate::default()));
    let store = Gated { memory: memory.clone(), gate: Arc::clone(&gate) };
    let client = cache.client("own");
    let file = client.open_store_with(Arc::new(store), Access::ReadWrite).unwrap();
    let written = std::thread::scope(|scope| {
        let written = scope.spawn(|| file.write_at(&vec![7; bytes], 0));
        until(|| cache.stats().core.throttled == 1);
        let resized = cache.resize_partition(&name, frames * PAGE);
        gate.open();
        resized.unwrap();
        written.join().unwrap()
    });
    assert_eq!(written, Ok(()));
    file.flush().unwrap();
    assert!(memory.contents() == vec![7; bytes]);
    let pieces = pieces.lock().unwrap();
    pieces.clone()
}

#[test]
fn a_piece_that_its_partition_became_too_small_for_is_cut_anew() {
    let rows = [
        // A range of offsets takes the page, whatever partition the handle has.
        (Partition::new("range", 0, Rule::Offsets(0..u64::MAX)), 2),
        (Partition::new("own", 200 * PAGE, Rule::Client("own".into())), 3),
    ];
    for (partition, frames) in rows {
        let name = partition.name.clone();
        let pieces = within(move || pieces_of_a_write(partition, frames));
        let whole = pieces.iter().take_while(|&&pages| pages == PIECE_PAGES).count();
        assert!(0 < whole && whole < pieces.len(), "{name}: {pieces:?}");
        let bound = u32::try_from(frames).unwrap();
        assert!(pieces[whole..].iter().all(|&pages| pages <= bound), "{name}: {pieces:?}");
        let sent: u32 = pieces.iter().sum();
        assert_eq!(sent, PAGES + PIECE_PAGES, "{name}: one piece is sent again: {pieces:?}");
    }
}
