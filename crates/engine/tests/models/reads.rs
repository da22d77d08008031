//! Reads under the checker: hits without the lock, late hits, pins, evictions, failures, files that
//! change, and a cache that ends.
//!
//! # Invariants
//! - Each read has the bytes of the pattern, or an error that the model allows.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use forerun_core::{
    event::{Event, Hit},
    units::{FrameId, Nanos},
};
use forerun_engine::{
    Cache, Cancel, Handle, Partition, ReadError, Recorder, Rule, Settings,
    model::{HitBuffer, HitCounts},
};
use forerun_io::{
    store::{Completion, Op, Queue, QueueKind, Stamp, Store, StoreError, Version, Wait, pattern},
    sync::{AtomicU64 as SharedU64, Mutex, Ordering, thread},
};

use crate::{EIO, Met, PAGE, PAGE_BYTES, check, join, small, step};

/// A pattern that is read in steps.
#[derive(Clone)]
struct Steps {
    pages: u64,
    /// Pages from here on cannot be read.
    fails_from: u64,
    /// Pages of a request at most.
    request_pages: u32,
    /// The time of the last change of its bytes; a write sets this first, as file systems do.
    modified: Arc<SharedU64>,
    /// The offset of its bytes in the pattern.
    shift: Arc<SharedU64>,
}

impl Default for Steps {
    fn default() -> Self {
        let (modified, shift) = (Arc::default(), Arc::default());
        Self { pages: 8, fails_from: u64::MAX, request_pages: 8, modified, shift }
    }
}

/// A queue of the store: the reaping thread carries operations out.
struct StepsQueue {
    store: Steps,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    ops: VecDeque<Op>,
    closed: bool,
}

impl Store for Steps {
    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.pages * PAGE)
    }

    fn version(&self) -> Result<Version, StoreError> {
        let seconds = self.modified.load(Ordering::SeqCst).cast_signed();
        Ok(Version { modified: Stamp { seconds, nanos: 0 }, ..Version::default() })
    }

    fn queue(&self, _: QueueKind) -> Arc<dyn Queue> {
        Arc::new(StepsQueue { store: self.clone(), waiting: Mutex::default() })
    }
}

impl Queue for StepsQueue {
    fn submit(&self, op: Op) {
        self.waiting.lock().ops.push_back(op);
    }

    fn reap(&self, _: Wait, out: &mut Vec<Completion>) {
        let mut waiting = self.waiting.lock();
        let (next, closed) = (waiting.ops.pop_front(), waiting.closed);
        drop(waiting);
        out.extend(next.map(|op| if closed { op.cancelled() } else { self.store.carry(op) }));
    }

    fn close(&self) {
        self.waiting.lock().closed = true;
    }
}

impl Steps {
    fn carry(&self, mut op: Op) -> Completion {
        if op.offset / PAGE >= self.fails_from {
            return Completion { op, result: Err(EIO) };
        }
        let mut at = op.offset;
        for piece in op.pieces_mut() {
            let (head, tail) = piece.split_at_mut(piece.len() / 2);
            pattern::fill(at + self.shift.load(Ordering::SeqCst), head);
            let half = at + head.len() as u64;
            pattern::fill(half + self.shift.load(Ordering::SeqCst), tail);
            at += piece.len() as u64;
        }
        step();
        let moved = op.bytes;
        Completion { op, result: Ok(moved) }
    }
}

/// A cache of a few frames, and a file on it.
struct Rig {
    cache: Cache,
    file: Arc<Handle>,
    ticks: Arc<AtomicU64>,
}

/// Counts retries of an allocation, which happen while a read waits for a frame.
struct Ticks(Arc<AtomicU64>);

impl Recorder for Ticks {
    fn sent(&mut self, _: Nanos, event: &Event<'_>) {
        if matches!(event, Event::Tick) {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

impl Rig {
    fn new(frames: u64, readahead: &str) -> Self {
        Self::on(Steps::default(), frames, readahead)
    }

    fn on(store: Steps, frames: u64, readahead: &str) -> Self {
        Self::with(store, frames, readahead, |settings| settings)
    }

    fn with(
        store: Steps,
        frames: u64,
        readahead: &str,
        change: impl Fn(Settings) -> Settings,
    ) -> Self {
        let readahead = readahead.into();
        let settings = Settings { readahead, ..small(frames, store.request_pages) };
        let ticks = Arc::default();
        let cache = Cache::recorded(change(settings), Box::new(Ticks(Arc::clone(&ticks)))).unwrap();
        let file = cache.open_store(Arc::new(store)).unwrap();
        Self { cache, file: Arc::new(file), ticks }
    }

    /// A thread that reads those pages, one after the other.
    fn reader<const N: usize>(&self, pages: [u64; N]) -> thread::JoinHandle<()> {
        let file = Arc::clone(&self.file);
        thread::spawn(move || pages.into_iter().for_each(|page| read(&file, page, 1).unwrap()))
    }

    /// A thread that reads one page unless it is cancelled.
    fn cancellable(&self, page: u64, cancel: &Cancel) -> thread::JoinHandle<Result<(), ReadError>> {
        let (file, cancel) = (Arc::clone(&self.file), cancel.clone());
        thread::spawn(move || read_cancellable(&file, page, 1, &cancel))
    }

    /// Checks the counts after all threads have ended; returns the situations of the run.
    fn end(self) -> Met {
        let (frames, _) = self.cache.frames();
        self.end_with(0..u64::from(frames))
    }

    /// As [`Rig::end`], where these pages fill the shares of all partitions.
    fn end_with(self, pages: impl IntoIterator<Item = u64>) -> Met {
        let Self { cache, file, ticks } = self;
        let (stats, (frames, _)) = (cache.stats(), cache.frames());
        assert!(stats.core.balanced(), "{stats:?}");
        assert_eq!(stats.latency.count(), stats.requests - stats.unlocked, "{stats:?}");
        drop(Arc::into_inner(file).expect("the threads have dropped their handles"));
        // Invalidated pages that a reader had pinned free their frames at the next want of frames.
        if let Ok(other) = cache.open_store(Arc::new(Steps::default())) {
            let pin = |page| other.pin(page * PAGE).unwrap();
            drop(pages.into_iter().map(pin).collect::<Vec<_>>());
        }
        assert_eq!(cache.frames(), (frames, frames), "no pin and no fetch remains");
        vec![
            ("hits without the lock", stats.unlocked),
            ("late hits", stats.core.late_hits),
            ("evictions", stats.core.evicted),
            ("victims that were pinned", stats.core.pinned),
            ("stale hits", stats.core.stale_hits),
            ("dropped hits", stats.dropped_hits),
            ("readahead that was used", stats.core.ahead_used),
            ("failures", stats.failures),
            ("changes", stats.files_changed),
            ("a want of frames", ticks.load(Relaxed)),
        ]
    }
}

/// Reads `count` pages from `page` on and checks them.
fn read(file: &Handle, page: u64, count: usize) -> Result<(), ReadError> {
    read_cancellable(file, page, count, &Cancel::new())
}

fn read_cancellable(
    file: &Handle,
    page: u64,
    count: usize,
    cancel: &Cancel,
) -> Result<(), ReadError> {
    let mut buf = vec![0; count * PAGE_BYTES as usize];
    let bytes = file.read_at_cancellable(&mut buf, page * PAGE, cancel)?;
    assert_eq!(bytes, buf.len());
    assert_eq!(pattern::verify(page * PAGE, &buf), Ok(()), "{count} from {page} on");
    Ok(())
}

/// The error of a page that the store cannot read.
fn refused(answer: &Result<(), ReadError>) {
    assert!(matches!(answer, Err(ReadError::Store { .. })), "{answer:?}");
}

#[test]
fn every_hit_is_drained_once_or_counted_as_dropped() {
    check(20_000, &["dropped hits", "full stripes"], || {
        let hit_buffer = Arc::new(HitBuffer::default());
        let writer = |first: u32| {
            let hit_buffer = Arc::clone(&hit_buffer);
            thread::spawn(move || {
                let hit = |number: u32| Hit { frame: FrameId(number), generation: !number };
                let full = |&number: &u32| hit_buffer.record(hit(number), 10, number % 2 == 0);
                (first..first + 4).filter(full).count() as u64
            })
        };
        let writers = [writer(0), writer(4)];
        let mut out = Vec::new();
        hit_buffer.drain(&mut out);
        hit_buffer.sweep(&mut out);
        hit_buffer.drain(&mut out);
        let full = writers.map(|writer| writer.join().unwrap()).iter().sum();
        hit_buffer.sweep(&mut out);
        let mut frames: Vec<_> = out.iter().map(|hit| hit.frame.0).collect();
        assert!(out.iter().all(|hit| hit.generation == !hit.frame.0), "{out:?}");
        frames.sort_unstable();
        frames.dedup();
        assert_eq!(frames.len(), out.len(), "none twice");
        let dropped = 8 - out.len() as u64;
        assert_eq!(hit_buffer.counts(), HitCounts { reads: 4, bytes: 80, dropped });
        vec![("dropped hits", dropped), ("full stripes", full)]
    });
}

#[test]
fn readers_of_the_same_and_other_pages_all_get_theirs() {
    for (frames, wanting) in [(2, "a want of frames"), (3, "victims that were pinned")] {
        check(2_500, &["late hits", "evictions", wanting], move || {
            let rig = Rig::new(frames, "off");
            join([rig.reader([0, 1, 0]), rig.reader([0, 2, 1]), rig.reader([1, 3])]);
            rig.end()
        });
    }
}

#[test]
fn readers_and_readahead_share_pages_in_flight() {
    check(4_000, &["late hits", "readahead that was used"], || {
        let rig = Rig::new(4, "fixed:size=1K");
        let sequential = |from: u64| {
            let file = Arc::clone(&rig.file);
            thread::spawn(move || {
                read(&file, from, 2).unwrap();
                read(&file, from + 2, 1).unwrap();
            })
        };
        join([sequential(0), sequential(1)]);
        rig.end()
    });
}

#[test]
fn a_read_that_waits_for_a_frame_is_woken_by_an_unpin() {
    check(6_000, &["a want of frames", "victims that were pinned"], || {
        let rig = Rig::new(2, "off");
        let pinner = {
            let file = Arc::clone(&rig.file);
            thread::spawn(move || {
                let pins = [file.pin(0).unwrap(), file.pin(PAGE).unwrap()];
                step();
                for (page, pin) in (0..).zip(&pins) {
                    assert_eq!(pattern::verify(page * PAGE, pin), Ok(()), "pinned {page}");
                }
            })
        };
        join([pinner, rig.reader([2, 0])]);
        rig.end()
    });
}

#[test]
fn a_read_that_waits_for_a_frame_is_woken_by_hits_without_the_lock() {
    check(6_000, &["a want of frames", "hits without the lock"], || {
        let rig = Rig::new(2, "off");
        read(&rig.file, 0, 2).unwrap();
        join([rig.reader([0, 1]), rig.reader([1, 0]), rig.reader([2])]);
        rig.end()
    });
}

#[test]
fn hits_that_race_evictions_get_their_own_page() {
    let about = ["hits without the lock", "evictions", "victims that were pinned", "stale hits"];
    check(6_000, &about, || {
        let rig = Rig::new(2, "off");
        read(&rig.file, 0, 2).unwrap();
        join([rig.reader([0, 1, 0, 1]), rig.reader([2, 3, 0])]);
        rig.end()
    });
}

#[test]
fn a_read_that_is_cancelled_as_its_page_arrives_has_one_of_both_answers() {
    check(6_000, &["failures", "late hits"], || {
        let rig = Rig::new(2, "off");
        let cancel = Cancel::new();
        let cancelled = rig.cancellable(0, &cancel);
        let other = {
            let cancel = cancel.clone();
            thread::spawn(move || cancel.cancel())
        };
        join([rig.reader([0, 1]), other]);
        let answer = cancelled.join().unwrap();
        assert!(matches!(answer, Ok(()) | Err(ReadError::Cancelled)), "{answer:?}");
        assert_eq!(read_cancellable(&rig.file, 0, 1, &cancel), Err(ReadError::Cancelled));
        read(&rig.file, 0, 1).unwrap();
        rig.end()
    });
}

#[test]
fn a_read_that_waits_in_vain_ends_when_it_is_cancelled() {
    check(6_000, &["failures", "a want of frames"], || {
        let rig = Rig::new(2, "off");
        let pins = [0, 1].map(|page| rig.file.pin(page * PAGE).unwrap());
        let cancel = Cancel::new();
        let cancelled = rig.cancellable(2, &cancel);
        cancel.cancel();
        assert_eq!(cancelled.join().unwrap(), Err(ReadError::Cancelled));
        drop(pins);
        read(&rig.file, 2, 1).unwrap();
        rig.end()
    });
}

#[test]
fn a_partition_that_shrinks_and_grows_under_its_readers_loses_no_frame() {
    let about = ["evictions", "victims that were pinned", "a want of frames", "late hits"];
    check(6_000, &about, || {
        let own = Partition::new("own", 2 * PAGE, Rule::Offsets(0..4 * PAGE));
        let parted = |settings| Settings { partitions: vec![own.clone()], ..settings };
        let rig = Rig::with(Steps::default(), 3, "off", parted);
        let mover = {
            let cache = rig.cache.clone();
            thread::spawn(move || {
                cache.resize_partition("own", 0).unwrap();
                cache.move_share("rest", "own", 2 * PAGE).unwrap();
                cache.move_share("own", "rest", PAGE).unwrap();
            })
        };
        join([mover, rig.reader([0, 5, 1]), rig.reader([1, 2, 0])]);
        let shares = rig.cache.partitions().into_iter().map(|part| part.bytes / PAGE);
        assert_eq!(shares.collect::<Vec<_>>(), [2, 1]);
        rig.end_with([0, 4, 5])
    });
}

#[test]
fn a_pool_is_filled_beside_readers_that_pin_what_it_evicts() {
    let about = ["evictions", "hits without the lock", "victims that were pinned"];
    check(6_000, &about, || {
        let (pool_bytes_min, pool_bytes_max) = (PAGE, PAGE);
        let pooled = |settings| Settings { pool_bytes_min, pool_bytes_max, ..settings };
        let rig = Rig::with(Steps::default(), 4, "off", pooled);
        join([rig.reader([0, 1, 0, 2]), rig.reader([1, 3, 0]), rig.reader([2, 1])]);
        rig.end()
    });
}

#[test]
fn a_failed_page_is_an_error_of_each_read_that_waits_for_it() {
    check(4_000, &["failures", "late hits"], || {
        let rig = Rig::on(Steps { fails_from: 1, ..Steps::default() }, 2, "off");
        let reader = || {
            let file = Arc::clone(&rig.file);
            thread::spawn(move || {
                refused(&read(&file, 1, 1));
                read(&file, 0, 1).unwrap();
            })
        };
        join([reader(), reader()]);
        rig.end()
    });
}

#[test]
fn a_page_that_failed_twice_is_not_left_in_flight_when_its_readers_are_gone() {
    check(4_000, &["failures", "late hits"], || {
        let store = Steps { fails_from: 1, request_pages: 1, ..Steps::default() };
        let rig = Rig::on(store, 8, "fixed:size=2K");
        let reader = |count: usize| {
            let file = Arc::clone(&rig.file);
            thread::spawn(move || {
                read(&file, 0, 1).unwrap();
                refused(&read(&file, 1, count));
            })
        };
        join([reader(3), reader(2)]);
        refused(&read(&rig.file, 2, 2));
        rig.end()
    });
}

#[test]
fn a_file_that_changes_gives_bytes_of_one_version_or_an_error() {
    check(4_000, &["changes", "hits without the lock"], || {
        let store = Steps::default();
        let (modified, shift) = (Arc::clone(&store.modified), Arc::clone(&store.shift));
        let rig = Rig::on(store, 3, "off");
        let reader = || {
            let file = Arc::clone(&rig.file);
            thread::spawn(move || {
                for page in [0, 1, 0] {
                    let answer = read(&file, page, 1);
                    assert!(matches!(answer, Ok(()) | Err(ReadError::Changed)), "{answer:?}");
                }
            })
        };
        let writer = thread::spawn(move || {
            modified.store(1, Ordering::SeqCst);
            shift.store(8 * PAGE, Ordering::SeqCst);
        });
        join([reader(), reader(), writer]);
        assert_eq!(read(&rig.file, 4, 1), Err(ReadError::Changed));
        rig.end()
    });
}

#[test]
fn a_read_refused_after_a_lookup_without_the_lock_blocks_no_other() {
    check(6_000, &["changes", "a want of frames"], || {
        let store = Steps::default();
        let modified = Arc::clone(&store.modified);
        let rig = Rig::on(store, 2, "off");
        read(&rig.file, 0, 2).unwrap();
        modified.store(1, Ordering::SeqCst);
        let late = {
            let file = Arc::clone(&rig.file);
            thread::spawn(move || {
                let answer = read(&file, 1, 1);
                assert!(matches!(answer, Ok(()) | Err(ReadError::Changed)), "{answer:?}");
            })
        };
        assert_eq!(read(&rig.file, 2, 1), Err(ReadError::Changed));
        let other = rig.cache.open_store(Arc::new(Steps::default())).unwrap();
        let pinned = other.pin(0).unwrap();
        read(&other, 1, 1).unwrap();
        drop((pinned, late.join().unwrap()));
        drop(other);
        rig.end()
    });
}

#[test]
fn a_cache_that_is_closed_answers_every_read_and_ends_its_threads() {
    check(4_000, &["readahead that was used"], || {
        let rig = Rig::new(4, "fixed:size=1K");
        let reader = |from: u64| {
            let file = Arc::clone(&rig.file);
            thread::spawn(move || {
                for page in [from, from + 2] {
                    let answer = read(&file, page, 2);
                    assert!(matches!(answer, Ok(()) | Err(ReadError::Closed)), "{answer:?}");
                }
            })
        };
        let readers = [reader(0), reader(1)];
        rig.cache.close().unwrap();
        join(readers);
        assert_eq!(read(&rig.file, 0, 1), Err(ReadError::Closed));
        rig.end()
    });
}
