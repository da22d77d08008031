//! Writes under the checker: writers, flushes, discards, cuts, shares and ends that meet.
//!
//! ```text
//!   write --> bytes of the disk      what reads of the disk see
//!   sync  --> durable bytes          those that it had when the sync was submitted
//! ```
//!
//! # Invariants
//! - The disk takes each half of a page in a step of its own: a page that a writer changes
//!   meanwhile would be torn. What it took is its own at once.
//! - At the end of a model all that reads see is durable, and no frame is missing.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use forerun_engine::{Access, Cache, Handle, Partition, Rule, Settings, WriteError};
use forerun_io::{
    store::{Change, Completion, Op, OpKind, Queue, QueueKind, Store, StoreError, Wait},
    sync::{AtomicBool, Mutex, Ordering, thread},
};

use crate::{Met, PAGE, check, join, small, step};

/// A disk with a cache of its own. Clones are the same disk.
#[derive(Clone)]
struct Disk(Arc<Mutex<Contents>>);

struct Contents {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Pages that writes brought.
    pages_written: u64,
    /// Writes in progress.
    writing: u64,
}

/// A queue of the disk: the reaping thread carries operations out.
struct DiskQueue {
    disk: Disk,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Operations, and what a sync covers.
    ops: VecDeque<(Op, Vec<u8>)>,
    closed: bool,
}

impl Disk {
    fn new(bytes: Vec<u8>) -> Self {
        let durable = bytes.clone();
        Self(Arc::new(Mutex::new(Contents { bytes, durable, pages_written: 0, writing: 0 })))
    }

    fn durable(&self) -> Vec<u8> {
        self.0.lock().durable.clone()
    }

    fn pages_written(&self) -> u64 {
        self.0.lock().pages_written
    }

    /// Whether a write is in progress.
    fn is_writing(&self) -> bool {
        self.0.lock().writing > 0
    }

    fn carry(&self, mut op: Op, covered: Vec<u8>) -> Completion {
        let moved = match op.kind {
            OpKind::Read => self.read(&mut op),
            OpKind::Write => self.write(&op),
            OpKind::Sync => {
                step();
                self.0.lock().durable = covered;
                0
            }
        };
        Completion { op, result: Ok(moved) }
    }

    fn read(&self, op: &mut Op) -> usize {
        let mut from = at(op.offset);
        let mut moved = 0;
        for half in op.pieces_mut().flat_map(halves_mut) {
            let contents = self.0.lock();
            let source = contents.bytes.get(from..).unwrap_or_default();
            let count = source.len().min(half.len());
            half[..count].copy_from_slice(&source[..count]);
            moved += count;
            from += half.len();
        }
        op.zero_past(moved);
        moved
    }

    fn write(&self, op: &Op) -> usize {
        self.0.lock().writing += 1;
        let mut taken = Vec::new();
        for piece in op.pieces() {
            let (head, tail) = piece.split_at(piece.len() / 2);
            for half in [head, tail] {
                taken.extend_from_slice(half);
                step();
            }
        }
        let mut contents = self.0.lock();
        let (from, end) = (at(op.offset), at(op.offset) + taken.len());
        if contents.bytes.len() < end {
            contents.bytes.resize(end, 0);
        }
        contents.bytes[from..end].copy_from_slice(&taken);
        contents.pages_written += op.frames.len() as u64;
        contents.writing -= 1;
        op.bytes
    }
}

fn halves_mut(piece: &mut [u8]) -> [&mut [u8]; 2] {
    let (head, tail) = piece.split_at_mut(piece.len() / 2);
    [head, tail]
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

impl Store for Disk {
    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn queue(&self, _: QueueKind) -> Arc<dyn Queue> {
        Arc::new(DiskQueue { disk: self.clone(), waiting: Mutex::default() })
    }

    fn change(&self, change: Change) -> Result<(), i32> {
        let bytes = &mut self.0.lock().bytes;
        match change {
            Change::Length(length) => bytes.resize(at(length), 0),
            Change::Zero { offset, bytes: count, .. }
            | Change::Discard { offset, bytes: count } => {
                bytes[at(offset)..at(offset + count)].fill(0);
            }
        }
        Ok(())
    }
}

impl Queue for DiskQueue {
    fn submit(&self, op: Op) {
        let is_sync = op.kind == OpKind::Sync;
        let covered = if is_sync { self.disk.0.lock().bytes.clone() } else { Vec::new() };
        self.waiting.lock().ops.push_back((op, covered));
    }

    fn reap(&self, _: Wait, out: &mut Vec<Completion>) {
        let mut waiting = self.waiting.lock();
        let (next, closed) = (waiting.ops.pop_front(), waiting.closed);
        drop(waiting);
        out.extend(next.map(
            |(op, covered)| {
                if closed { op.cancelled() } else { self.disk.carry(op, covered) }
            },
        ));
    }

    fn close(&self) {
        self.waiting.lock().closed = true;
    }
}

/// A cache of a few frames, half of which may be dirty, and a file that may be written.
struct Rig {
    cache: Cache,
    disk: Disk,
    file: Arc<Handle>,
}

impl Rig {
    /// A file of `bytes` nines.
    fn new(frames: u64, bytes: u64) -> Self {
        Self::with(frames, bytes, Vec::new())
    }

    fn with(frames: u64, bytes: u64, partitions: Vec<Partition>) -> Self {
        let cache = Cache::new(Settings { partitions, ..small(frames, 2) }).unwrap();
        let disk = Disk::new(vec![9; at(bytes)]);
        let file = cache.open_store_with(Arc::new(disk.clone()), Access::ReadWrite).unwrap();
        Self { cache, disk, file: Arc::new(file) }
    }

    /// A thread that has the file.
    fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Handle) -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let file = Arc::clone(&self.file);
        thread::spawn(move || body(&file))
    }

    /// All that reads see.
    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0xee; at(self.file.len())];
        assert_eq!(self.file.read_at(&mut bytes, 0), Ok(bytes.len()));
        bytes
    }

    /// Flushes after all threads have ended, compares, and ends the file; returns what reads saw,
    /// and the situations of the run.
    fn end(self) -> (Vec<u8>, Met) {
        let seen = self.contents();
        self.file.flush().unwrap();
        assert!(self.disk.durable() == seen, "all that reads see is durable after a flush");
        assert_eq!(self.cache.dirty_bytes(), 0);
        let (stats, (frames, _)) = (self.cache.stats(), self.cache.frames());
        assert!(stats.core.balanced(), "{stats:?}");
        let pages_written = self.disk.pages_written();
        drop(Arc::into_inner(self.file).expect("the threads have dropped their handles"));
        assert_eq!(self.cache.frames(), (frames, frames), "no pin and no operation remains");
        let met = vec![
            ("evictions", stats.core.evicted),
            ("writes that waited", stats.core.throttled),
            ("overwrites in the cache", stats.core.written.saturating_sub(pages_written)),
        ];
        (seen, met)
    }
}

/// The bytes of a page, which are all the same.
fn whole(bytes: &[u8], page: u64) -> u8 {
    let page = &bytes[at(page * PAGE)..at((page + 1) * PAGE)];
    assert!(page.iter().all(|&byte| byte == page[0]), "a page is torn: {page:?}");
    page[0]
}

fn pages(value: u8, count: u64) -> Vec<u8> {
    vec![value; at(count * PAGE)]
}

#[test]
fn a_flush_makes_durable_what_two_writers_wrote_before_it() {
    let about = [
        "a flush after one of two",
        "a flush after both",
        "the first writer came last",
        "the second writer came last",
        "overwrites in the cache",
        "writes that waited",
    ];
    check(6_000, &about, || {
        let rig = Rig::new(6, 3 * PAGE);
        let written = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let writer = |number: usize, value: u8| {
            let written = Arc::clone(&written);
            rig.spawn(move |file| {
                file.write_at(&pages(value, 2), number as u64 * PAGE).unwrap();
                written[number].store(true, Ordering::SeqCst);
            })
        };
        let writers = [writer(0, 1), writer(1, 2)];
        let (disk, before) = (rig.disk.clone(), Arc::clone(&written));
        let flusher = rig.spawn(move |file| {
            let before = [0, 1].map(|number| before[number].load(Ordering::SeqCst));
            file.flush().unwrap();
            let durable = disk.durable();
            let [first, both, second] = [0, 1, 2].map(|page| whole(&durable, page));
            assert!(first == 1 || first == 9 && !before[0], "{before:?}: {first}");
            assert!(second == 2 || second == 9 && !before[1], "{before:?}: {second}");
            assert!([1, 2].contains(&both) || before == [false; 2], "{before:?}: {both}");
            before
        });
        join(writers);
        let before = flusher.join().unwrap();
        let (seen, mut met) = rig.end();
        let ends = [0, 1, 2].map(|page| whole(&seen, page));
        assert!(ends == [1, 1, 2] || ends == [1, 2, 2], "{ends:?}");
        met.push(("a flush after one of two", u64::from(before[0] != before[1])));
        met.push(("a flush after both", u64::from(before == [true; 2])));
        met.push(("the first writer came last", u64::from(ends[1] == 1)));
        met.push(("the second writer came last", u64::from(ends[1] == 2)));
        met
    });
}

#[test]
fn a_page_that_is_overwritten_while_the_disk_writes_it_is_written_again() {
    let about = ["a write to what the disk writes", "a durable write came last"];
    check(6_000, &about, || {
        let rig = Rig::new(4, PAGE);
        let durable = |value: u8| {
            let disk = rig.disk.clone();
            rig.spawn(move |file| {
                file.write_durable_at(&pages(value, 1), 0).unwrap();
                let durable = whole(&disk.durable(), 0);
                assert_ne!(durable, 9, "{value} is durable, or what was written after it");
            })
        };
        let disk = rig.disk.clone();
        let plain = rig.spawn(move |file| {
            let is_writing = disk.is_writing();
            file.write_at(&pages(3, 1), 0).unwrap();
            u64::from(is_writing)
        });
        join([durable(1), durable(2)]);
        let met_writing = plain.join().unwrap();
        let (seen, mut met) = rig.end();
        let last = whole(&seen, 0);
        assert!((1..=3).contains(&last), "{last}");
        met.push(("a write to what the disk writes", met_writing));
        met.push(("a durable write came last", u64::from(last < 3)));
        met
    });
}

#[test]
fn what_is_written_beside_a_discard_is_kept_or_discarded_whole() {
    /// No multiple of a page.
    const END: u64 = 2 * PAGE + 100;
    let about = [
        "the write came before the discard",
        "the discard came before the write",
        "the append came before the discard",
        "the discard came before the append",
    ];
    check(6_000, &about, || {
        let rig = Rig::new(6, END);
        let writer = rig.spawn(|file| {
            file.write_at(&[2; 100], PAGE + 200).unwrap();
            file.write_at(&[3; 100], END).unwrap();
        });
        let discarder = rig.spawn(|file| {
            file.discard(0..END).unwrap();
            let mut first = [0xee; 10];
            assert_eq!((file.read_at(&mut first, 0), first), (Ok(10), [0; 10]), "it is zero now");
        });
        let reader = rig.spawn(|file| {
            let mut first = pages(0xee, 1);
            assert_eq!(file.read_at(&mut first, 0), Ok(first.len()));
            // A store may carry out a discard in the middle of a read.
            assert!(first.iter().all(|byte| [0, 9].contains(byte)), "old or zero: {first:?}");
        });
        join([writer, discarder, reader]);
        let (seen, mut met) = rig.end();
        let (page, tail) = (at(PAGE), at(END));
        assert_eq!((whole(&seen, 0), seen.len()), (0, tail + 100));
        let [head, written, rest] = [0..200, 200..300, 300..page]
            .map(|part: Range<usize>| one_value(&seen[page + part.start..page + part.end]));
        assert!(head == 0 && rest == 0 && [0, 2].contains(&written), "{head} {written} {rest}");
        let before = one_value(&seen[2 * page..tail]);
        assert!([0, 9].contains(&before), "the last page is discarded, or was extended: {before}");
        assert_eq!(one_value(&seen[tail..]), 3, "what was appended stays");
        met.push(("the write came before the discard", u64::from(written == 0)));
        met.push(("the discard came before the write", u64::from(written == 2)));
        met.push(("the append came before the discard", u64::from(before == 9)));
        met.push(("the discard came before the append", u64::from(before == 0)));
        met
    });
}

/// The one value of these bytes.
fn one_value(bytes: &[u8]) -> u8 {
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "several values: {bytes:?}");
    bytes[0]
}

#[test]
fn a_read_beside_a_cut_within_a_page_ends_with_the_file() {
    const CUT: u64 = PAGE + 100;
    let about = ["the read was whole", "it ended with the cut"];
    check(3_000, &about, || {
        let rig = Rig::new(6, 3 * PAGE);
        let cutter = rig.spawn(|file| file.set_len(CUT).unwrap());
        let counts = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&counts);
        let reader = rig.spawn(move |file| {
            let mut bytes = pages(0xee, 3);
            let count = file.read_at(&mut bytes, 0).unwrap();
            assert!(bytes[..count].iter().all(|&byte| byte == 9), "{count} bytes of the file");
            told.lock().push(count);
        });
        join([cutter, reader]);
        let count = counts.lock()[0];
        assert!(count >= at(CUT), "{count} bytes");
        let (seen, mut met) = rig.end();
        assert_eq!(seen, vec![9; at(CUT)]);
        met.push(("the read was whole", u64::from(count == at(3 * PAGE))));
        met.push(("it ended with the cut", u64::from(count == at(CUT))));
        met
    });
}

#[test]
fn a_file_that_is_cut_beside_its_writer_has_the_bytes_of_one_order() {
    const CUT: u64 = PAGE + 100;
    let about = ["the cut came last", "the cut came first", "the cut came between"];
    check(6_000, &about, || {
        let rig = Rig::new(6, 3 * PAGE);
        let writer = rig.spawn(|file| {
            for page in 0..3 {
                file.write_at(&pages(2, 1), page * PAGE).unwrap();
            }
        });
        let cutter = rig.spawn(|file| file.set_len(CUT).unwrap());
        join([writer, cutter]);
        let (seen, mut met) = rig.end();
        assert_eq!(whole(&seen, 0), 2);
        let (cut, page) = (at(CUT), at(PAGE));
        assert_eq!(one_value(&seen[page..cut]), 2, "what lies before the cut stays");
        let last = seen.len() == cut;
        let whole_again = seen.len() == 3 * page;
        assert!(last || whole_again, "{} bytes", seen.len());
        let mut after = None;
        if whole_again {
            assert_eq!(whole(&seen, 2), 2, "it was written after the cut");
            after = Some(one_value(&seen[cut..2 * page]));
            assert!(matches!(after, Some(0 | 2)), "zeros, or written after the cut: {after:?}");
        }
        met.push(("the cut came last", u64::from(last)));
        met.push(("the cut came first", u64::from(after == Some(2))));
        met.push(("the cut came between", u64::from(after == Some(0))));
        met
    });
}

#[test]
fn a_share_that_shrinks_keeps_its_dirty_pages_until_they_are_durable() {
    let about = ["dirty pages beyond their share", "writes that waited", "evictions"];
    check(6_000, &about, || {
        let own = Partition::new("own", 4 * PAGE, Rule::Offsets(0..4 * PAGE));
        let rig = Rig::with(6, 6 * PAGE, vec![own]);
        let cache = rig.cache.clone();
        let mover = thread::spawn(move || {
            let mut beyond = 0;
            for share in [1, 0, 2] {
                cache.resize_partition("own", share * PAGE).unwrap();
                let parts = cache.partitions();
                let own = parts.iter().find(|part| part.name == "own").unwrap();
                beyond += u64::from(own.used_bytes > share * PAGE && cache.dirty_bytes() > 0);
            }
            beyond
        });
        let writer = rig.spawn(|file| {
            for page in [0, 1, 2, 0, 3] {
                file.write_at(&pages(u8::try_from(page).unwrap() + 1, 1), page * PAGE).unwrap();
            }
        });
        let reader = rig.spawn(|file| {
            for page in [4, 5] {
                let mut bytes = pages(0xee, 1);
                assert_eq!(file.read_at(&mut bytes, page * PAGE), Ok(bytes.len()));
                assert_eq!(whole(&bytes, 0), 9);
            }
        });
        let beyond = mover.join().unwrap();
        join([writer, reader]);
        let shares = rig.cache.partitions().into_iter().map(|part| part.bytes / PAGE);
        assert_eq!(shares.collect::<Vec<_>>(), [4, 2]);
        let (seen, mut met) = rig.end();
        assert_eq!([0, 1, 2, 3, 4].map(|page| whole(&seen, page)), [1, 2, 3, 4, 9]);
        met.push(("dirty pages beyond their share", beyond));
        met
    });
}

#[test]
fn what_was_written_before_a_cache_closes_is_durable_then() {
    let about = ["writes before the end", "writes after the end", "the end between two writes"];
    check(6_000, &about, || {
        let rig = Rig::new(6, 3 * PAGE);
        let writer = |pages_of: Range<u64>, value: u8| {
            rig.spawn(move |file| {
                pages_of
                    .take_while(|page| match file.write_at(&pages(value, 1), page * PAGE) {
                        Ok(()) => true,
                        Err(error) => {
                            assert_eq!(error, WriteError::Closed);
                            false
                        }
                    })
                    .collect::<Vec<_>>()
            })
        };
        let (first, second) = (writer(0..2, 1), writer(2..3, 2));
        rig.cache.close().unwrap();
        let durable = rig.disk.durable();
        let written = [first, second].map(|writer| writer.join().unwrap()).concat();
        for page in 0..3 {
            let expected = match (written.contains(&page), page) {
                (false, _) => 9,
                (true, 2) => 2,
                (true, _) => 1,
            };
            assert_eq!(whole(&durable, page), expected, "page {page}, of {written:?}");
        }
        assert_eq!(rig.file.flush(), Err(WriteError::Closed));
        let (before, after) = (written.len() as u64, 3 - written.len() as u64);
        vec![
            ("writes before the end", before),
            ("writes after the end", after),
            ("the end between two writes", before * after),
        ]
    });
}

#[test]
fn of_handles_that_close_beside_a_writer_the_last_one_flushes() {
    check(6_000, &["the writer closed last", "the writer closed first"], || {
        let Rig { cache, disk, file } = Rig::new(4, PAGE);
        let file = Arc::into_inner(file).unwrap();
        let other = file.try_clone().unwrap();
        let last = Arc::new(AtomicBool::new(false));
        let [by_writer, by_closer] = [Arc::clone(&last), Arc::clone(&last)];
        let writer = thread::spawn(move || {
            file.write_at(&pages(1, 1), 0).unwrap();
            drop(file);
            by_writer.store(true, Ordering::SeqCst);
        });
        let closer = thread::spawn(move || {
            drop(other);
            by_closer.store(false, Ordering::SeqCst);
        });
        join([writer, closer]);
        assert_eq!(whole(&disk.durable(), 0), 1);
        assert_eq!(cache.dirty_bytes(), 0);
        let (frames, free) = cache.frames();
        assert_eq!(free, frames, "the pages of a store go with its last handle");
        let writer_last = last.load(Ordering::SeqCst);
        vec![
            ("the writer closed last", u64::from(writer_last)),
            ("the writer closed first", u64::from(!writer_last)),
        ]
    });
}
