//! Lengths, zeros and discards: what reads see, what the store holds, and what a failure leaves.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use forerun_core::prng::Prng;
use forerun_engine::{Access, Backend, Cache, Handle, Settings, WriteError, Zeroing};
use forerun_io::{
    store::{Change, Queue, QueueKind, Store, StoreError, memory::Memory, pattern::Pattern},
    wrap::{
        fault::{Faults, Rule, When},
        volatile::{Keep, Volatile},
    },
};
use forerun_testkit::{Scratch, on_threads, until, within};

use crate::rig::{EIO, Gate, Model, PAGE, bytes, failing, faulty, memory, range, settings};

/// A file, its model, and what changes both.
struct Changing {
    file: Handle,
    model: Model,
    random: Prng,
    bytes_max: u64,
    page_bytes: u64,
    /// The store discards: whole pages are zero then.
    discards: bool,
}

impl Changing {
    /// Changes the file in one of all ways.
    fn step(&mut self) {
        let (offset, count) = range(&mut self.random, self.bytes_max, self.bytes_max / 4);
        let end = offset + count as u64;
        match self.random.below(6) {
            0 => {
                self.file.set_len(offset).unwrap();
                self.model.0.resize(usize::try_from(offset).unwrap(), 0);
            }
            1 => {
                let (allocated, durable) = (self.random.below(2) == 0, self.random.below(2) == 0);
                let how = Zeroing { allocated, durable, fast: false };
                self.file.zero(offset..end, how).unwrap();
                self.zeroed(offset, end);
            }
            2 => self.discard(offset, end),
            3 => self.file.flush().unwrap(),
            _ => {
                let written = bytes(&mut self.random, count);
                self.file.write_at(&written, offset).unwrap();
                self.model.write(&written, offset);
            }
        }
        assert_eq!(self.file.len(), self.model.0.len() as u64);
        let (offset, count) = range(&mut self.random, self.bytes_max, self.bytes_max / 2);
        self.model.check(&self.file, offset, count);
    }

    fn discard(&mut self, offset: u64, end: u64) {
        self.file.discard(offset..end).unwrap();
        let (len, page_bytes) = (self.model.0.len() as u64, self.page_bytes);
        let to = if end >= len { len } else { end / page_bytes * page_bytes };
        if self.discards {
            return self.zeroed(offset.next_multiple_of(page_bytes), to);
        }
        // A file system may discard or not: what is there counts for nothing.
        if offset < to {
            let written = vec![7; usize::try_from(to - offset).unwrap()];
            self.file.write_at(&written, offset).unwrap();
            self.model.write(&written, offset);
        }
    }

    fn zeroed(&mut self, from: u64, to: u64) {
        let at = |at: u64| usize::try_from(at).unwrap().min(self.model.0.len());
        let (from, to) = (at(from), at(to));
        if from < to {
            self.model.0[from..to].fill(0);
        }
    }
}

#[test]
fn reads_see_each_change_at_once_and_the_store_holds_all_after_a_flush() {
    for (seed, frames) in (0..).zip([16, 64, 512]) {
        let cache = Cache::new(settings(frames)).unwrap();
        let (store, file) = memory(&cache, 5_000);
        let (model, random) = (Model(vec![0; 5_000]), Prng::new(seed));
        let (bytes_max, page_bytes) = (40_000, PAGE);
        let mut changing = Changing { file, model, random, bytes_max, page_bytes, discards: true };
        for step in 0..600 {
            changing.step();
            if step % 20 == 19 {
                changing.file.flush().unwrap();
                assert!(store.contents() == changing.model.0, "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn files_on_every_interface_change_their_length_and_have_ranges_zeroed() {
    for backend in [Backend::Auto, Backend::Threads] {
        let scratch = Scratch::new("changes");
        let path = scratch.file("data", vec![3; 30_000]);
        let request_bytes_max = 16 << 10; // Zeros beyond it are the store's.
        let settings = Settings { cache_bytes: 1 << 20, request_bytes_max, ..Settings::default() };
        let mut settings = Settings { readahead: "off".into(), ..settings };
        settings.files.backend = backend;
        let Ok(cache) = Cache::new(settings) else {
            continue; // The system refuses it; `forerun-io` tests what is said then.
        };
        let file = cache.open_with(&path, Access::ReadWrite).unwrap();
        let (model, random, discards) = (Model(vec![3; 30_000]), Prng::new(9), false);
        let (bytes_max, page_bytes) = (400_000, 4096);
        let mut changing = Changing { file, model, random, bytes_max, page_bytes, discards };
        for step in 0..200 {
            changing.step();
            if step % 20 == 19 {
                changing.file.flush().unwrap();
                assert!(fs::read(&path).unwrap() == changing.model.0, "{backend:?}, step {step}");
            }
        }
        let Changing { file, model, .. } = changing;
        drop(file);
        assert!(fs::read(&path).unwrap() == model.0, "{backend:?}: the last handle flushes");
        model.check(&cache.open(&path).unwrap(), 0, 500_000);
        assert_eq!(cache.stats().files_changed, 0, "{backend:?}: own changes end no version");
    }
}

#[test]
fn readers_and_writers_beside_changes_see_whole_pages() {
    let cache = Cache::new(settings(32)).unwrap();
    let (store, file) = memory(&cache, 20 * 512);
    on_threads(6, |thread| {
        let file = file.try_clone().unwrap();
        let mut random = Prng::new(thread);
        for _ in 0..300 {
            let page = random.below(20);
            let range = page * PAGE..(page + 1 + random.below(9)) * PAGE;
            match thread {
                0 => file.set_len((10 + random.below(11)) * PAGE).unwrap(),
                1 => file.zero(range, Zeroing::default()).unwrap(),
                2 => file.discard(range).unwrap(),
                3 => {
                    let byte = u8::try_from(1 + random.below(255)).unwrap();
                    file.write_at(&[byte; 512], page * PAGE).unwrap();
                }
                _ => {
                    let mut buf = [0; 512];
                    let count = file.read_at(&mut buf, page * PAGE).unwrap();
                    assert!(count == 512 || count == 0 && page >= 10, "{count} of page {page}");
                    assert!(buf[..count].iter().all(|&byte| byte == buf[0]), "a torn page");
                    assert_eq!(file.pin(page * PAGE).unwrap().len() % 512, 0);
                }
            }
        }
    });
    file.flush().unwrap();
    let mut held = vec![0; 20 * 512];
    let count = file.read_at(&mut held, 0).unwrap();
    assert_eq!(count as u64, file.len());
    assert!(store.contents() == held[..count], "the store and the cache are alike");
}

#[test]
fn a_file_that_is_cut_and_extended_under_a_reader_gives_bytes_or_none() {
    let cache = Cache::new(settings(8)).unwrap();
    let (_, file) = memory(&cache, 20 * 512);
    on_threads(4, |thread| {
        let file = file.try_clone().unwrap();
        let mut buf = [1; 512];
        for round in 0..10_000 {
            match thread {
                0 => file.set_len(if round % 2 == 0 { 10 * PAGE } else { 20 * PAGE }).unwrap(),
                1 => assert!(file.pin(19 * PAGE).unwrap().iter().all(|&byte| byte == 0)),
                _ => {
                    let count = file.read_at(&mut buf, (10 + round % 10) * PAGE).unwrap();
                    assert!(count == 0 || count == 512, "{count}");
                }
            }
        }
    });
    assert_eq!(file.len(), 20 * PAGE);
}

#[test]
fn what_is_zeroed_or_discarded_never_reaches_the_store() {
    let cache = Cache::new(settings(256)).unwrap();
    let (memory, fault, file) = faulty(&cache, 0);
    file.write_at(&vec![1; 64 * 512], 0).unwrap();
    file.discard(0..32 * 512).unwrap();
    file.zero(32 * 512..48 * 512, Zeroing::default()).unwrap();
    file.set_len(56 * 512).unwrap();
    file.flush().unwrap();
    let expected = [vec![0; 48 * 512], vec![1; 8 * 512]].concat();
    assert!(memory.contents() == expected);
    assert_eq!(fault.counts().writes, 1, "the eight pages that are left");
}

#[test]
fn a_store_that_cannot_change_gets_zeros_as_bytes_and_keeps_its_length() {
    let cache = Cache::new(settings(256)).unwrap();
    let (memory, fault, file) = faulty(&cache, 64 * 512);
    file.write_at(&vec![1; 64 * 512], 0).unwrap();
    fault.set(Faults { changes: Some(95), ..Faults::default() });
    let fast = Zeroing { fast: true, ..Zeroing::default() };
    assert_eq!(file.zero(100..30_000, fast), Err(WriteError::Unsupported));
    assert_eq!(file.discard(100..30_000), Ok(()));
    assert_eq!(file.set_len(100), Err(WriteError::Unsupported));
    Model(vec![1; 64 * 512]).check(&file, 0, 64 * 512);
    file.zero(100..30_000, Zeroing { durable: true, ..Zeroing::default() }).unwrap();
    let mut model = Model(vec![1; 64 * 512]);
    model.0[100..30_000].fill(0);
    model.check(&file, 0, 64 * 512);
    assert!(memory.contents() == model.0);
    let pattern = cache.open_store_with(Arc::new(Pattern::new(1 << 10)), Access::ReadWrite);
    assert_eq!(pattern.unwrap().set_len(5), Err(WriteError::Unsupported));
}

#[test]
fn a_change_that_fails_loses_nothing() {
    let cache = Cache::new(settings(256)).unwrap();
    let (memory, fault, file) = faulty(&cache, 64 * 512);
    file.write_at(&vec![1; 64 * 512], 0).unwrap();
    fault.set(Faults { changes: Some(EIO), ..Faults::default() });
    let failed = Err(WriteError::Change { errno: EIO });
    assert_eq!(file.zero(0..30_000, Zeroing::default()), failed);
    assert_eq!(file.discard(0..30_000), failed);
    assert_eq!((file.set_len(1_000), file.set_len(100_000)), (failed.clone(), failed));
    assert_eq!(file.len(), 64 * 512);
    Model(vec![1; 64 * 512]).check(&file, 0, 64 * 512);
    fault.set(Faults::default());
    file.flush().unwrap();
    assert!(memory.contents() == vec![1; 64 * 512]);
    // What a cut within a page keeps is durable before: where it cannot be, nothing is cut.
    file.write_at(&[2; 512], 512).unwrap();
    fault.set(failing(Some(EIO), None));
    assert_eq!(file.set_len(1_000), Err(WriteError::Writeback { errno: EIO }));
    assert_eq!(file.len(), 64 * 512);
    fault.set(Faults::default());
    file.set_len(1_000).unwrap();
    assert!(memory.contents() == [vec![1; 512], vec![2; 488]].concat());
    file.set_len(2_000).unwrap();
    let mut model = Model([vec![1; 512], vec![2; 488]].concat());
    model.0.resize(2_000, 0);
    model.check(&file, 0, 3_000);
}

#[test]
fn a_length_is_durable_at_once_and_zeros_at_the_next_flush() {
    let memory = Memory::new(vec![1; 64 * 512], 1 << 20);
    let volatile = Volatile::new(Arc::new(memory.clone()), 1 << 20);
    let cache = Cache::new(settings(256)).unwrap();
    let file = cache.open_store_with(Arc::new(volatile.clone()), Access::ReadWrite).unwrap();
    file.set_len(50 * 512).unwrap();
    file.zero(0..10 * 512, Zeroing { durable: true, ..Zeroing::default() }).unwrap();
    file.zero(20 * 512..30 * 512, Zeroing::default()).unwrap();
    file.flush().unwrap();
    volatile.crash(Keep::Nothing);
    let tens = [0, 1, 0, 1, 1].map(|byte| vec![byte; 10 * 512]);
    assert!(memory.contents() == tens.concat());
}

#[test]
fn the_end_of_a_handle_makes_zeros_durable() {
    let memory = Memory::new(vec![1; 64 * 512], 1 << 20);
    let volatile = Volatile::new(Arc::new(memory.clone()), 1 << 20);
    let cache = Cache::new(settings(256)).unwrap();
    let file = cache.open_store_with(Arc::new(volatile.clone()), Access::ReadWrite).unwrap();
    file.zero(0..64 * 512, Zeroing::default()).unwrap();
    drop(file);
    volatile.crash(Keep::Nothing);
    assert!(memory.contents() == vec![0; 64 * 512]);
}

#[test]
fn a_write_beyond_what_the_store_can_hold_fails_at_once_and_leaves_nothing_dirty() {
    let cache = Cache::new(settings(64)).unwrap();
    let store = Memory::new(vec![1; 2_000], 2_000); // As a block device, which does not grow.
    let file = cache.open_store_with(Arc::new(store.clone()), Access::ReadWrite).unwrap();
    let error = WriteError::NoRoom { bytes_max: 2_000 };
    assert_eq!(error.errno(), 28);
    let no_room = Err(error);
    assert_eq!(file.write_at(&[2; 10], 1_995), no_room);
    assert_eq!(file.write_durable_at(&[2; 1], 2_000), no_room);
    assert_eq!(file.set_len(2_001), no_room);
    file.write_at(&[2; 5], 1_995).unwrap();
    assert_eq!(file.flush(), Ok(()), "nothing else was to be written");
    assert_eq!((store.contents()[1_994..].to_vec(), file.len()), (vec![1, 2, 2, 2, 2, 2], 2_000));
}

#[test]
fn a_failed_sync_after_zeros_is_reported_and_the_next_flush_syncs_again() {
    let cache = Cache::new(settings(64)).unwrap();
    let (_, fault, file) = faulty(&cache, 64 * 512);
    file.zero(0..32 * 512, Zeroing::default()).unwrap();
    let syncs = Rule { fail: Some((When::Every(1), EIO)), ..Rule::default() };
    fault.set(Faults { syncs, ..Faults::default() });
    assert_eq!(file.flush(), Err(WriteError::Writeback { errno: EIO }));
    fault.set(Faults::default());
    let before = fault.counts().syncs;
    assert_eq!(file.flush(), Ok(()));
    assert_eq!(fault.counts().syncs, before + 1);
}

#[test]
fn a_handle_that_reads_changes_nothing() {
    let cache = Cache::new(settings(64)).unwrap();
    let file = cache.open_store(Arc::new(Memory::new(vec![1; 2_000], 2_000))).unwrap();
    let refused = Err(WriteError::ReadOnly);
    assert_eq!(file.set_len(5), refused);
    assert_eq!(file.zero(0..5, Zeroing::default()), refused);
    assert_eq!(file.discard(0..5), refused);
}

/// A memory that changes nothing before its gate opens.
struct SlowlyChanged {
    memory: Memory,
    began: AtomicBool,
    gate: Gate,
}

impl Store for SlowlyChanged {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.memory.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        self.memory.queue(kind)
    }

    fn change(&self, change: Change) -> Result<(), i32> {
        self.began.store(true, Ordering::SeqCst);
        self.gate.pass();
        self.memory.change(change)
    }
}

#[test]
fn readers_see_a_cut_before_the_store_makes_it() {
    let seen = within(|| {
        let cache = Cache::new(settings(64)).unwrap();
        let memory = Memory::new(vec![7; 5_000], 1 << 24);
        let (began, gate) = (AtomicBool::new(false), Gate::default());
        let store = Arc::new(SlowlyChanged { memory, began, gate });
        let opened = Arc::clone(&store) as Arc<dyn Store>;
        let file = cache.open_store_with(opened, Access::ReadWrite).unwrap();
        std::thread::scope(|scope| {
            let cut = scope.spawn(|| file.set_len(700));
            until(|| store.began.load(Ordering::SeqCst));
            let mut buf = [0; 1_000];
            let seen = (file.len(), file.read_at(&mut buf, 600), file.read_at(&mut buf, 4_000));
            store.gate.open();
            assert_eq!(cut.join().unwrap(), Ok(()));
            seen
        })
    });
    assert_eq!(seen, (700, Ok(100), Ok(0)), "nothing that the store is about to cut is read");
}
