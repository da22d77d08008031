//! The hit buffer: uses of pages and counts that readers record without the cache's lock.
//!
//! ```text
//!   reader: record -> tally [ places taken | reads | bytes ]      one of a few stripes, by thread
//!                    places [ h h h . . . . ]
//!                       | full, or the next miss, or statistics
//!   lock:   drain <-----+  --> Event::Hits, in the order of each stripe
//! ```
//!
//! A thread always uses the same stripe; where there are more threads than stripes, some share
//! one. A hit that finds its stripe full is dropped and counted: the replacement policy misses a
//! use, nothing else. A hit costs two atomic operations on cache lines that other processors
//! rarely touch.
//!
//! # Invariants
//! - Recording takes no lock and no memory, and never waits.
//! - Every hit is drained once, or counted as dropped. A hit recorded during a drain of its stripe
//!   is part of a later batch.
//! - The tally's fields never overflow: a thread that finds one half full drains the stripe under
//!   the lock before it records more ([`Full::Must`]).
//! # Locking
//! None for hits. [`HitBuffer::drain`] runs under the state's lock: one drain at a time. Counts of
//! reads that took the lock have a lock a stripe, held for a few additions and over nothing.
//! # Sources
//! Bounded buffers that may lose uses: the read buffers of Caffeine (Manes 2015). Here a stripe is
//! drained under the lock that a miss takes anyway.

use std::array;

use forerun_core::{
    event::Hit,
    units::{FrameId, Nanos},
};
use forerun_io::sync::{AtomicU64, Mutex, Ordering, Stripes};

use crate::stats::Histogram;

/// See the module.
pub(crate) struct HitBuffer {
    stripes: Stripes<Stripe>,
}

/// A stripe in cache lines of its own, against false sharing.
#[repr(align(128))]
struct Stripe {
    /// Since the last drain: places taken, reads of hits alone, bytes copied without the lock.
    tally: AtomicU64,
    hits: [AtomicU64; STRIPE_HITS],
    dropped: AtomicU64,
    counts: Mutex<Counts>,
}

/// Whether a stripe should be drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// No: the stripe has room.
    No,
    /// If the lock is free.
    May,
    /// Before the thread records more.
    Must,
}

/// Counts of a stripe, as of the last drain.
#[derive(Clone, Debug, Default)]
struct Counts {
    unlocked: u64,
    bytes: u64,
    locked: LockedReads,
}

/// Counts of reads that took the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockedReads {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) bytes: u64,
    pub(crate) waits: u64,
    pub(crate) waited: Nanos,
    pub(crate) latency: Histogram,
}

/// The sum of all stripes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Total {
    pub(crate) locked: LockedReads,
    pub(crate) unlocked: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
}

impl HitBuffer {
    /// A hit buffer with a few stripes for each processor.
    pub(crate) fn new() -> Self {
        Self { stripes: Stripes::new(STRIPES_MAX, Stripe::new) }
    }

    /// The most hits that all stripes hold together.
    pub(crate) fn capacity(&self) -> usize {
        self.stripes.all().len() * STRIPE_HITS
    }

    /// Records the use of a page of which `bytes` were copied; `ends`: the page completes a read of
    /// hits alone.
    #[inline]
    pub(crate) fn record(&self, hit: Hit, bytes: usize, ends: bool) -> Full {
        self.stripes.mine().record(hit, bytes, ends)
    }

    /// Counts a read that took the lock.
    pub(crate) fn count_locked(&self, count: impl FnOnce(&mut LockedReads)) {
        count(&mut self.stripes.mine().counts.lock().locked);
    }

    /// Appends the hits recorded so far to `out`, each once.
    pub(crate) fn drain(&self, out: &mut Vec<Hit>) {
        for stripe in self.stripes.all() {
            if stripe.tally.load(Ordering::Relaxed) > 0 {
                stripe.drain(out);
            }
        }
    }

    /// As [`HitBuffer::drain`], over every place: also finds hits recorded during a drain.
    pub(crate) fn sweep(&self, out: &mut Vec<Hit>) {
        for stripe in self.stripes.all() {
            stripe.drain(out);
            stripe.hits.iter().for_each(|place| take(place, out));
        }
    }

    /// The sum over all stripes, as of the last drain.
    pub(crate) fn total(&self) -> Total {
        let mut total = Total::default();
        for stripe in self.stripes.all() {
            let counts = stripe.counts.lock();
            total.unlocked += counts.unlocked;
            total.bytes += counts.bytes;
            total.dropped += stripe.dropped.load(Ordering::Relaxed);
            total.locked.add(&counts.locked);
        }
        total
    }
}

impl Stripe {
    fn new() -> Self {
        Self {
            tally: AtomicU64::new(0),
            hits: array::from_fn(|_| AtomicU64::new(EMPTY)),
            dropped: AtomicU64::new(0),
            counts: Mutex::new(Counts::default()),
        }
    }

    #[inline]
    fn record(&self, hit: Hit, bytes: usize, ends: bool) -> Full {
        let copied = (bytes as u64) << BYTES_SHIFT | u64::from(ends) << READS_SHIFT;
        // Loaded first: a stripe that stays full must not count places until they overflow.
        let room = self.tally.load(Ordering::Relaxed) & PLACES < STRIPE_HITS as u64;
        let tally = self.tally.fetch_add(copied + u64::from(room), Ordering::Relaxed);
        let at = usize::try_from(tally & PLACES).expect("12 bits");
        let dropped = match self.hits.get(at) {
            // A hit recorded during a drain of the stripe may still be here.
            Some(place) if room => place.swap(encode(hit), Ordering::AcqRel) != EMPTY,
            Some(_) | None => true,
        };
        if dropped {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if tally & HALF_FULL != 0 {
            Full::Must
        } else if at + 1 >= STRIPE_HITS {
            Full::May
        } else {
            Full::No
        }
    }

    fn drain(&self, out: &mut Vec<Hit>) {
        let tally = self.tally.swap(0, Ordering::AcqRel);
        let places = usize::try_from(tally & PLACES).expect("12 bits");
        self.hits.iter().take(places).for_each(|place| take(place, out));
        let mut counts = self.counts.lock();
        counts.unlocked += tally >> READS_SHIFT & READS;
        counts.bytes += tally >> BYTES_SHIFT;
    }
}

fn take(place: &AtomicU64, out: &mut Vec<Hit>) {
    let word = place.swap(EMPTY, Ordering::AcqRel);
    if word != EMPTY {
        out.push(decode(word));
    }
}

impl LockedReads {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failures += other.failures;
        self.bytes += other.bytes;
        self.waits += other.waits;
        self.waited += other.waited;
        self.latency.merge(&other.latency);
    }
}

/// An empty place: no frame has this number, so no hit encodes to it.
const EMPTY: u64 = u64::MAX;

fn encode(hit: Hit) -> u64 {
    u64::from(hit.frame.0) << 32 | u64::from(hit.generation)
}

fn decode(word: u64) -> Hit {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits");
    Hit { frame: FrameId(half(word >> 32)), generation: half(word) }
}

/// The fields of a tally, from the lowest bit on: places (12 bits), reads (20), bytes (32).
const PLACES: u64 = (1 << 12) - 1;
const READS_SHIFT: u32 = 12;
const READS: u64 = (1 << 20) - 1;
const BYTES_SHIFT: u32 = 32;
/// The highest bits of reads and bytes: far from an overflow, and seen by the next record.
const HALF_FULL: u64 = 1 << 31 | 1 << 63;
/// The places of a stripe, and so the most hits of a batch from it. A model has a few.
const STRIPE_HITS: usize = if cfg!(feature = "shuttle") { 3 } else { 64 };
/// The threads of a model share one stripe.
const STRIPES_MAX: usize = if cfg!(feature = "shuttle") { 1 } else { 64 };

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn hit_buffer(stripes: usize) -> HitBuffer {
        HitBuffer { stripes: Stripes::of(stripes, Stripe::new) }
    }

    fn hit(number: u32) -> Hit {
        Hit { frame: FrameId(number), generation: !number }
    }

    #[test]
    fn hits_come_out_once_and_in_order() {
        let hit_buffer = hit_buffer(1);
        let mut out = Vec::new();
        for round in 0..3 {
            for number in 0..10 {
                assert_eq!(hit_buffer.record(hit(round * 10 + number), 7, false), Full::No);
            }
            out.clear();
            hit_buffer.drain(&mut out);
            let expected: Vec<_> = (0..10).map(|number| hit(round * 10 + number)).collect();
            assert_eq!(out, expected);
        }
        out.clear();
        hit_buffer.drain(&mut out);
        assert_eq!(out, []);
    }

    #[test]
    fn a_full_stripe_asks_to_be_drained_and_counts_what_it_drops() {
        let hit_buffer = hit_buffer(1);
        let room = u32::try_from(STRIPE_HITS).unwrap();
        for number in 0..room + 5 {
            let expected = if number + 1 >= room { Full::May } else { Full::No };
            assert_eq!(hit_buffer.record(hit(number), 0, false), expected, "{number}");
        }
        let mut out = Vec::new();
        hit_buffer.drain(&mut out);
        assert_eq!((out.len(), out.last()), (STRIPE_HITS, Some(&hit(room - 1))));
        assert_eq!(hit_buffer.total().dropped, 5);
        assert_eq!(hit_buffer.record(hit(0), 0, false), Full::No, "it has room again");
    }

    #[test]
    fn every_hit_survives_its_encoding() {
        for (frame, generation) in [(0, 0), (1, u32::MAX), (u32::MAX - 1, 0), (77, 1 << 31)] {
            let hit = Hit { frame: FrameId(frame), generation };
            assert_eq!(decode(encode(hit)), hit);
            assert_ne!(encode(hit), EMPTY);
        }
    }

    #[test]
    fn while_threads_record_and_one_drains_no_hit_is_lost_or_doubled() {
        const HITS: u32 = 20_000;
        let hit_buffer = hit_buffer(2);
        let mut seen = Vec::new();
        thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|thread| {
                    let hit_buffer = &hit_buffer;
                    scope.spawn(move || {
                        (0..HITS).for_each(|at| {
                            hit_buffer.record(hit(thread * HITS + at), 3, at % 2 == 0);
                        });
                    })
                })
                .collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                hit_buffer.drain(&mut seen);
            }
        });
        hit_buffer.sweep(&mut seen);
        let mut frames: Vec<_> = seen.iter().map(|hit| hit.frame.0).collect();
        frames.sort_unstable();
        let before = frames.len();
        frames.dedup();
        assert_eq!(frames.len(), before, "none twice");
        let dropped = usize::try_from(hit_buffer.total().dropped).unwrap();
        assert_eq!(frames.len() + dropped, 4 * HITS as usize);
        let total = hit_buffer.total();
        let reads = u64::from(4 * HITS);
        assert_eq!((total.bytes, total.unlocked), (3 * reads, reads / 2), "{total:?}");
    }

    #[test]
    fn a_tally_that_is_half_full_must_be_drained_and_then_is_not() {
        #[rustfmt::skip]
        let rows = [ // why           bytes      ends   hits before it must
            ("by its bytes",          1 << 20,   false, 2_048),
            ("by its reads",          0,         true,  1 << 19),
        ];
        for (why, bytes, ends, before) in rows {
            let hit_buffer = hit_buffer(1);
            for at in 0..before {
                assert_ne!(hit_buffer.record(hit(0), bytes, ends), Full::Must, "{why}: {at}");
            }
            assert_eq!(hit_buffer.record(hit(0), bytes, ends), Full::Must, "{why}");
            hit_buffer.sweep(&mut Vec::new());
            let total = hit_buffer.total();
            let count = before + 1;
            assert_eq!(total.bytes, count * bytes as u64, "{why}");
            assert_eq!(total.unlocked, if ends { count } else { 0 }, "{why}");
            assert_eq!(hit_buffer.record(hit(0), bytes, ends), Full::No, "{why}");
        }
    }
}
