//! Caches, stores and a model of a file for tests of writes.

use std::sync::{Arc, Condvar, Mutex};

use forerun_core::prng::Prng;
use forerun_engine::{Access, Cache, Handle, Settings};
use forerun_io::{
    store::{Store, memory::Memory},
    wrap::fault::{Fault, Faults, Rule, When},
};

/// The pages of these tests: small, so that writes span many.
pub(crate) const PAGE_BYTES: u32 = 512;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EIO: i32 = 5;

/// A cache of `frames` small pages, without readahead.
pub(crate) fn settings(frames: u32) -> Settings {
    Settings {
        cache_bytes: u64::from(frames) * PAGE,
        page_bytes: PAGE_BYTES,
        readahead: "off".into(),
        request_bytes_max: 8 * PAGE_BYTES,
        background_depth: 2,
        ..Settings::default()
    }
}

/// A memory of `bytes` zeros that may grow, and a handle that writes it.
pub(crate) fn memory(cache: &Cache, bytes: usize) -> (Memory, Handle) {
    let store = Memory::new(vec![0; bytes], 1 << 24);
    let handle = cache.open_store_with(Arc::new(store.clone()), Access::ReadWrite);
    (store, handle.expect("a memory is written"))
}

/// As [`memory`], behind faults.
pub(crate) fn faulty(cache: &Cache, bytes: usize) -> (Memory, Arc<Fault>, Handle) {
    let memory = Memory::new(vec![0; bytes], 1 << 24);
    let fault = Arc::new(Fault::new(Arc::new(memory.clone()), Faults::default(), 1));
    let store = Arc::clone(&fault) as Arc<dyn Store>;
    let handle = cache.open_store_with(store, Access::ReadWrite).expect("a memory is written");
    (memory, fault, handle)
}

/// Faults of every write, or of every sync, with `errno`.
pub(crate) fn failing(writes: Option<i32>, syncs: Option<i32>) -> Faults {
    let rule = |errno: Option<i32>| Rule {
        fail: errno.map(|errno| (When::Every(1), errno)),
        ..Rule::default()
    };
    Faults { writes: rule(writes), syncs: rule(syncs), ..Faults::default() }
}

/// What a thread waits at until a test opens it.
#[derive(Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub(crate) fn pass(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

/// What the file should hold.
#[derive(Default)]
pub(crate) struct Model(pub(crate) Vec<u8>);

impl Model {
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        let from = usize::try_from(offset).unwrap();
        let end = from + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[from..end].copy_from_slice(bytes);
    }

    /// Reads `bytes` bytes at `offset` through `file`, and compares.
    pub(crate) fn check(&self, file: &Handle, offset: u64, bytes: usize) {
        let mut buf = vec![0xee; bytes];
        let count = file.read_at(&mut buf, offset).unwrap();
        let from = usize::try_from(offset).unwrap().min(self.0.len());
        let to = (from + bytes).min(self.0.len());
        assert_eq!(count, to - from, "{bytes} at {offset} of {}", self.0.len());
        assert!(buf[..count] == self.0[from..to], "{bytes} at {offset}");
    }
}

/// A random range that begins before `end_max`, of at most `bytes_max` bytes.
pub(crate) fn range(random: &mut Prng, end_max: u64, bytes_max: u64) -> (u64, usize) {
    let (offset, bytes) = (random.below(end_max), 1 + random.below(bytes_max));
    (offset, usize::try_from(bytes).unwrap())
}

/// `bytes` random bytes.
pub(crate) fn bytes(random: &mut Prng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}
