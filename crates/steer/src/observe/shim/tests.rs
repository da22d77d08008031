//! The ring: order, losses counted to the record, and memory full of any bytes.
//!
//! # Invariants
//! - Every test ends however the threads are scheduled; what they check does not depend on it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use forerun_core::prng::Prng;

use super::*;

/// The program's side, in this process.
struct Writer(NonNull<Shared>);

// SAFETY: atomic words, mapped until the writer goes.
unsafe impl Sync for Writer {}

impl Writer {
    fn new(far_end: &RingWriter) -> Self {
        let (bytes, access) = (size_of::<Shared>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping, of the size that the ring is sealed at.
        let map = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &far_end.fd, 0)
        };
        Self(NonNull::new(map.unwrap().cast()).unwrap())
    }

    fn push(&self, number: u64) {
        self.shared().push(&record(number));
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped until the writer goes; atomic words.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, with no reference left.
        unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<Shared>()) }.unwrap();
    }
}

/// A record all of whose words follow from `number`: a torn one shows.
fn record(number: u64) -> Record {
    let kind = layout::KINDS[(number % 6) as usize];
    let pid = u32::try_from(number % 1000 + 1).unwrap();
    let (dev, ino) = (number ^ 0x5555, !number);
    Record { kind, pid, fd: pid - 1, dev, ino, offset: number, length: number * 3, to: (pid, dev) }
}

fn ring() -> (Ring, RingWriter, Writer) {
    let (ring, far_end) = Ring::create().unwrap();
    let writer = Writer::new(&far_end);
    (ring, far_end, writer)
}

fn drained(ring: &mut Ring) -> Vec<u64> {
    let mut got = Vec::new();
    ring.drain(|found| {
        assert_eq!(found, record(found.offset));
        got.push(found.offset);
    });
    got
}

/// How often each number came.
fn count(numbers: &[u64], times: &mut BTreeMap<u64, u64>) {
    for number in numbers {
        *times.entry(*number).or_default() += 1;
    }
}

/// Puts `word` at `offset` of the memory, past all manners.
fn poke(far_end: &RingWriter, offset: usize, word: u64) {
    rustix::io::pwrite(&far_end.fd, &word.to_ne_bytes(), offset as u64).unwrap();
}

#[test]
fn records_come_once_and_in_order() {
    let (mut ring, _far_end, writer) = ring();
    assert_eq!(drained(&mut ring), [0; 0]);
    (0..10).for_each(|number| writer.push(number));
    assert_eq!(drained(&mut ring), (0..10).collect::<Vec<_>>());
    assert_eq!(drained(&mut ring), [0; 0]);
    (10..12).for_each(|number| writer.push(number));
    assert_eq!(drained(&mut ring), [10, 11]);
    assert_eq!(ring.lost(), 0);
}

#[test]
fn what_a_full_ring_loses_is_the_oldest_and_is_counted() {
    let (mut ring, _far_end, writer) = ring();
    let slots = SLOTS as u64;
    for (round, (pushed, lost)) in
        [(slots, 0), (slots + 1, 1), (3 * slots + 7, 2 * slots + 8)].into_iter().enumerate()
    {
        (0..pushed).for_each(|number| writer.push(number));
        let expected = (pushed.saturating_sub(slots)..pushed).collect::<Vec<_>>();
        assert_eq!(drained(&mut ring), expected, "round {round}");
        assert_eq!(ring.lost(), lost, "round {round}");
    }
}

#[test]
fn threads_that_write_at_once_tear_no_record() {
    const EACH: u64 = 60_000;
    let (mut ring, _far_end, writer) = ring();
    let (left, mut got) = (AtomicUsize::new(4), BTreeMap::<u64, u64>::new());
    thread::scope(|scope| {
        for thread in 0..4 {
            let (writer, left) = (&writer, &left);
            scope.spawn(move || {
                (0..EACH).for_each(|number| writer.push(thread * EACH + number));
                left.fetch_sub(1, Ordering::Release);
            });
        }
        while left.load(Ordering::Acquire) > 0 {
            count(&drained(&mut ring), &mut got);
        }
    });
    count(&drained(&mut ring), &mut got);
    assert!(got.values().all(|times| *times == 1));
    assert_eq!(got.len() as u64 + ring.lost(), 4 * EACH);
}

#[test]
fn a_writer_that_died_costs_its_record_and_its_slot() {
    let (mut ring, far_end, writer) = ring();
    writer.push(0);
    // As a writer leaves it that took number 1 and its slot, and was killed.
    poke(&far_end, HEAD_AT, 2);
    poke(&far_end, turn_at(1), 3);
    writer.push(2);
    assert_eq!(drained(&mut ring), [0, 2], "what is being written is passed over");
    assert_eq!(ring.lost(), 1);
    (3..SLOTS as u64 + 3).for_each(|number| writer.push(number));
    let expected = (3..SLOTS as u64 + 3).filter(|number| *number != SLOTS as u64 + 1);
    assert_eq!(drained(&mut ring), expected.collect::<Vec<_>>(), "a taken slot is passed over");
    assert_eq!(ring.lost(), 2);
}

#[test]
fn what_was_being_written_comes_late() {
    let (mut ring, _far_end, writer) = ring();
    let shared = writer.shared();
    let take = || shared.take().expect("its slot is free");
    let (first, late) = (take(), LATE_MAX as u64);
    (1..10).for_each(|number| writer.push(number));
    for _ in 0..2 {
        // The processor is with others.
        ring.drain(|_| {});
    }
    assert_eq!((ring.lost(), ring.next), (1, 10));
    shared.write(first, &record(first));
    assert_eq!((drained(&mut ring), ring.lost()), (vec![0], 0));
    // As many as are awaited, and one more.
    let taken: Vec<u64> = (0..=late).map(|_| take()).collect();
    writer.push(late + 11);
    assert_eq!(drained(&mut ring), [late + 11], "those behind them are there");
    taken.iter().rev().for_each(|&number| shared.write(number, &record(number)));
    assert_eq!((drained(&mut ring), ring.lost()), (taken[1..].to_vec(), 1));
    // One that comes when the ring has gone round.
    let number = take();
    (0..SLOTS as u64).for_each(|_| writer.push(number + 1));
    assert_eq!(drained(&mut ring).len(), SLOTS - 1, "its slot is passed over");
    shared.write(number, &record(number));
    assert_eq!((drained(&mut ring), ring.lost()), (vec![], 3));
}

#[test]
fn a_late_writer_leaves_newer_records_alone() {
    let (mut ring, far_end, writer) = ring();
    (0..SLOTS as u64 + 5).for_each(|number| writer.push(number));
    // Its number was taken a lap ago.
    poke(&far_end, HEAD_AT, 3);
    writer.push(77);
    poke(&far_end, HEAD_AT, SLOTS as u64 + 5);
    assert_eq!(drained(&mut ring), (5..SLOTS as u64 + 5).collect::<Vec<_>>());
}

#[test]
fn words_that_are_no_record_count_as_lost() {
    #[rustfmt::skip]
    let rows: &[(&str, usize, u64)] = &[ // why, which word, its value
        ("no kind", 0, 0),
        ("an unknown kind", 0, 7),
        ("a negative descriptor", 0, 2 | 1 << 63),
        ("no process", 1, 0),
        ("a negative process", 1, 1 << 31),
        ("a negative destination", 1, 1 | 1 << 63),
        ("an offset beyond all files", 4, 1 << 63),
        ("an end beyond all files", 5, u64::MAX >> 1),
        ("an end beyond all numbers", 5, u64::MAX),
        ("a destination beyond all files", 6, 1 << 63),
    ];
    for (index, (why, word, value)) in rows.iter().enumerate() {
        let (mut ring, far_end, writer) = ring();
        writer.push(1);
        poke(&far_end, turn_at(0) + 8 + 8 * word, *value);
        assert_eq!(drained(&mut ring), [0; 0], "{index}: {why}");
        assert_eq!(ring.lost(), 1, "{index}: {why}");
    }
}

#[test]
fn a_head_that_leaps_is_followed_at_once() {
    for head in [1, 2, SLOTS as u64, 1 << 40, 1 << 63, u64::MAX] {
        let (mut ring, far_end, writer) = ring();
        poke(&far_end, HEAD_AT, head);
        assert_eq!(drained(&mut ring), [0; 0], "{head}");
        assert_eq!(ring.lost(), head, "{head}");
        writer.push(9);
        assert_eq!(drained(&mut ring), [9], "{head}");
        // And back.
        poke(&far_end, HEAD_AT, 0);
        assert_eq!(drained(&mut ring), [0; 0], "{head}");
    }
}

#[test]
fn a_ring_full_of_noise_ends_each_call_and_gives_sound_records_alone() {
    let mut prng = Prng::new(6);
    let (mut ring, far_end, writer) = ring();
    let words = size_of::<Shared>() / 8;
    for round in 0..200 {
        for _ in 0..prng.below(2000) {
            let word = usize::try_from(prng.below(words as u64)).unwrap();
            let value = match prng.below(4) {
                0 => prng.draw(),
                1 => prng.below(8),
                2 => u64::MAX - prng.below(8),
                _ => ring.next.wrapping_mul(2).wrapping_add(prng.below(2 * SLOTS as u64)),
            };
            poke(&far_end, 8 * word, value);
        }
        if prng.chance(50) {
            poke(&far_end, HEAD_AT, prng.draw() >> prng.below(64));
        }
        (0..prng.below(100)).for_each(|number| writer.push(number));
        let (mut records, lost) = (0, ring.lost());
        ring.drain(|record| {
            assert!(record.pid > 0 && i32::try_from(record.pid).is_ok());
            assert!(i32::try_from(record.fd).is_ok());
            assert!(i64::try_from(record.offset + record.length).is_ok());
            records += 1;
        });
        assert!(records <= Ring::AT_ONCE_MAX, "round {round}");
        // What was awaited came or is lost.
        assert!(ring.lost().saturating_add(records as u64) >= lost, "round {round}");
    }
}

#[test]
fn the_memory_cannot_be_cut_away() {
    let (mut ring, far_end, writer) = ring();
    for bytes in [0, 4096, size_of::<Shared>() as u64 * 2] {
        assert_eq!(rustix::fs::ftruncate(&far_end.fd, bytes), Err(Errno::PERM));
    }
    writer.push(3);
    assert_eq!(drained(&mut ring), [3]);
}

#[test]
fn the_program_keeps_what_it_preloads_already() {
    let (_ring, far_end) = Ring::create().unwrap();
    let library = Path::new("/lib/shim.so");
    #[rustfmt::skip]
    let rows = [ // why, LD_PRELOAD before, after
        ("nothing before", None, ""),
        ("an empty one", Some(""), ""),
        ("a sanitizer stays first", Some("libasan.so.8"), "libasan.so.8:"),
    ];
    for (why, before, after) in rows {
        let [(name, list), (ring, number)] = far_end.variables(library, before.map(OsStr::new));
        let mut after = OsString::from(after);
        after.push(named(library, Path::new(library::FOLDER)));
        assert_eq!((name.to_str(), list), (Some("LD_PRELOAD"), after), "{why}");
        assert_eq!(ring.to_str(), Some("FORERUN_RING"));
        assert_eq!(number.to_str(), Some(far_end.fd.as_raw_fd().to_string().as_str()));
    }
}

/// Where the head lies.
const HEAD_AT: usize = 64;

/// Where the turn of slot `slot` lies; its words follow.
fn turn_at(slot: usize) -> usize {
    128 + 64 * slot
}
