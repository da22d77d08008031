//! The timed reads of a file: one reader thread each part, with a handle of its own.
//!
//! ```text
//!   offset --> clock -- read_at -- clock --> time kept --> a word of each page checked
//!              |<---- latency --->|
//! ```
//!
//! # Invariants
//! - The clock before a read is read after the checks of the one before: they are in no latency,
//!   and one word a page keeps them out of the throughput too.
//! - The same plan gives the same offsets, so reads can be repeated plainly.
//! - A failed read stops all threads, and `run` returns its error.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use forerun_console::machine;
use forerun_core::prng::Prng;
use forerun_core::units::Nanos;
use forerun_engine::Handle;
use forerun_io::store::pattern;
use forerun_measure::steps::Steps;
use forerun_measure::verify::{Against, step};
use serde::Serialize;

/// The plan of the reads.
pub(super) struct Plan {
    pub(super) pattern: Pattern,
    /// Of random reads.
    pub(super) seed: u64,
    /// Bytes of a read.
    pub(super) size: usize,
    pub(super) threads: u32,
    pub(super) file_bytes: u64,
    /// No read begins after it.
    pub(super) time_max: Nanos,
    pub(super) against: Against,
}

/// The order of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pattern {
    /// Each thread reads its part of the file in order, once
    Seq,
    /// Aligned reads anywhere, until the time is over
    Rand,
}

/// The results of all threads.
pub(super) struct FileReads {
    /// From the first read to the end of the last.
    pub(super) elapsed: Nanos,
    pub(super) threads: Vec<ThreadReads>,
}

/// The results of one thread.
#[derive(Default)]
pub(super) struct ThreadReads {
    pub(super) bytes: u64,
    /// Nanoseconds of each read, at most `u32::MAX`.
    pub(super) times: Vec<u32>,
    digest: u64,
    begun: Nanos,
    ended: Nanos,
}

impl Plan {
    /// Carries it out on `handle`'s file.
    pub(super) fn run(&self, handle: &Handle) -> Result<FileReads> {
        let stop = AtomicBool::new(false);
        let handles: Vec<Handle> =
            (0..self.threads).map(|_| handle.try_clone()).collect::<Result<_, _>>()?;
        let threads = (0..self.threads).zip(&handles).map(|(thread, handle)| {
            let stop = &stop;
            move |start: &Steps| self.read_thread(thread, handle, start, stop)
        });
        let threads =
            Steps::start_together(threads)?.into_iter().collect::<Result<Vec<ThreadReads>>>()?;
        let begun = threads.iter().map(|own| own.begun).min().expect("a thread at least");
        let ended = threads.iter().map(|own| own.ended).max().expect("a thread at least");
        Ok(FileReads { elapsed: ended.since(begun), threads })
    }

    /// Compares the bytes that `ran` read with plain reads of `file`.
    pub(super) fn compare(&self, file: &File, ran: &FileReads) -> Result<()> {
        let mut room = vec![0; self.size];
        for (thread, own) in (0..self.threads).zip(&ran.threads) {
            let mut digest = 0;
            for (offset, bytes) in self.reads(thread).take(own.times.len()) {
                let room = &mut room[..bytes];
                file.read_exact_at(room, offset).context("it cannot be read again")?;
                digest = self.checked(digest, offset, room)?;
            }
            ensure!(digest == own.digest, "the bytes that were served are not those of the file");
        }
        Ok(())
    }

    fn read_thread(
        &self,
        thread: u32,
        handle: &Handle,
        start: &Steps,
        stop: &AtomicBool,
    ) -> Result<ThreadReads> {
        let mut room = vec![0; self.size];
        let mut own =
            ThreadReads { times: Vec::with_capacity(TIMES_ROOM), ..ThreadReads::default() };
        if !start.next() {
            return Ok(own);
        }
        let begun = machine::now();
        (own.begun, own.ended) = (begun, begun);
        for (offset, bytes) in self.reads(thread) {
            let from = machine::now();
            let is_over = from.since(begun) >= self.time_max || own.times.len() >= READS_MAX;
            if is_over || stop.load(Ordering::Relaxed) {
                break;
            }
            let read = handle.read_at(&mut room[..bytes], offset);
            own.ended = machine::now();
            let time = own.ended.since(from).0;
            let checked = read.map_err(anyhow::Error::from).and_then(|count| {
                ensure!(count == bytes, "it ended at byte {}", handle.len());
                self.checked(own.digest, offset, &room[..bytes])
            });
            match checked {
                Ok(digest) => own.digest = digest,
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            own.bytes += bytes as u64;
            own.times.push(u32::try_from(time).unwrap_or(u32::MAX));
        }
        Ok(own)
    }

    /// Offsets and lengths of the reads of one thread.
    fn reads(&self, thread: u32) -> impl Iterator<Item = (u64, usize)> {
        let (size, end) = (self.size as u64, self.file_bytes);
        let blocks = end.div_ceil(size);
        let share = |thread: u32| {
            let block = u128::from(blocks) * u128::from(thread) / u128::from(self.threads);
            u64::try_from(block).expect("at most all blocks")
        };
        let (mut next, last) = (share(thread), share(thread + 1));
        // Thread numbers in the high half: seeds next to each other share no thread.
        let seed = self.seed.wrapping_add(u64::from(thread + 1) << 32);
        let mut prng = (self.pattern == Pattern::Rand).then(|| Prng::new(seed));
        std::iter::from_fn(move || {
            let block = match &mut prng {
                // The last block may be short; a file of no whole block has that one alone.
                Some(prng) => prng.below((end / size).max(1)),
                None if next < last => {
                    next += 1;
                    next - 1
                }
                None => return None,
            };
            let offset = block * size;
            let bytes = usize::try_from(size.min(end - offset)).expect("at most a read's size");
            Some((offset, bytes))
        })
    }

    /// Checks a word of each page of a read, or takes it into the digest.
    fn checked(&self, digest: u64, offset: u64, bytes: &[u8]) -> Result<u64> {
        let mut digest = digest;
        for page in (0..bytes.len()).step_by(PAGE_BYTES) {
            let (at, word) = word(offset, bytes, page);
            match self.against {
                Against::Pattern => {
                    let mut expected = [0; 8];
                    pattern::fill(at, &mut expected[..word.len()]);
                    if *word != expected[..word.len()] {
                        bail!("a wrong byte was served near {at}: please report it");
                    }
                }
                Against::Later => {
                    let mut padded = [0; 8];
                    padded[..word.len()].copy_from_slice(word);
                    digest = step(digest ^ at, u64::from_le_bytes(padded));
                }
            }
        }
        Ok(digest)
    }
}

/// Eight bytes, or those there are, of the page that begins `page` bytes into a read: at another
/// place in each page of the file.
fn word(offset: u64, bytes: &[u8], page: usize) -> (u64, &[u8]) {
    let at = offset + page as u64;
    let drawn = (at / PAGE_BYTES as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
    let within = usize::try_from(drawn).expect("nine bits") * 8;
    let from = page + within.min((bytes.len() - page).saturating_sub(8));
    (offset + from as u64, &bytes[from..bytes.len().min(from + 8)])
}

const PAGE_BYTES: usize = 4096;
/// Reads of one thread at most: their times are kept.
const READS_MAX: usize = 1 << 24;
/// Of these, so many without a move of those before.
const TIMES_ROOM: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(pattern: Pattern, size: usize, threads: u32, file_bytes: u64) -> Plan {
        let (time_max, against) = (Nanos(1), Against::Later);
        Plan { pattern, seed: 1, size, threads, file_bytes, time_max, against }
    }

    #[test]
    fn sequential_shares_cover_the_file_once() {
        for (size, threads, file_bytes) in
            [(100, 1, 1_000), (100, 3, 1_001), (4_096, 2, 10), (7, 5, 3_000), (1, 4, 3)]
        {
            let plan = plan(Pattern::Seq, size, threads, file_bytes);
            let mut next = 0;
            for (offset, bytes) in (0..threads).flat_map(|thread| plan.reads(thread)) {
                assert_eq!(offset, next);
                next += bytes as u64;
            }
            assert_eq!(next, file_bytes);
        }
    }

    #[test]
    fn random_reads_are_aligned_whole_and_the_same_each_time() {
        let plan = plan(Pattern::Rand, 4_096, 2, 1_000_000);
        let reads = |thread| plan.reads(thread).take(1_000).collect::<Vec<_>>();
        assert_eq!(reads(0), reads(0));
        assert_ne!(reads(0), reads(1));
        assert!(reads(1).iter().all(|&(offset, bytes)| offset % 4_096 == 0 && bytes == 4_096));
        let small = self::plan(Pattern::Rand, 4_096, 1, 10);
        assert_eq!(small.reads(0).next(), Some((0, 10)));
    }

    #[test]
    fn a_page_of_other_bytes_is_noticed_in_both_ways() {
        let mut plan = plan(Pattern::Seq, 10_000, 1, 50_000);
        for against in [Against::Pattern, Against::Later] {
            plan.against = against;
            let mut bytes = vec![0; 10_000];
            pattern::fill(20_000, &mut bytes);
            let right = plan.checked(0, 20_000, &bytes).unwrap();
            for page in 0..3 {
                let mut wrong = bytes.clone();
                let end = wrong.len().min((page + 1) * PAGE_BYTES);
                wrong[page * PAGE_BYTES..end].fill(0);
                let found = plan.checked(0, 20_000, &wrong);
                assert!(found.is_err() || found.unwrap() != right, "{against:?} page {page}");
            }
        }
    }
}
