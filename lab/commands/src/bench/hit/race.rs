//! The timed part of a hit: threads that read the same pages, each by one way, as fast as they
//! go.
//!
//! Each thread has a descriptor and a handle of its own, so all ways have the same cost of
//! sharing. The order of the pages is made beforehand, and the clock is read once a batch.
//!
//! # Invariants
//! - All ways of one thread number read the same pages in the same order.
//! - The bytes read equal the file's: the sum of a word of each page is checked.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use forerun_console::machine;
use forerun_core::prng::Prng;
use forerun_core::units::Nanos;
use forerun_engine::Handle;
use forerun_measure::steps::Steps;
use forerun_report::quantity;
use forerun_report::quantity::float;
use rustix::time::ClockId;

use crate::process;

/// The ways from memory to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The kernel copies a page.
    Pread,
    /// The engine copies a page.
    Copy,
    /// The engine pins a page, and the reader reads a word of it.
    Pin,
}

/// All of them, in the order of their numbers.
pub(super) const WAYS: [Way; 3] = [Way::Pread, Way::Copy, Way::Pin];

impl Way {
    /// The name in tables and JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pread => "pread",
            Self::Copy => "copy",
            Self::Pin => "pin",
        }
    }

    /// The most that it should take as a share of `pread`.
    pub(super) fn ratio_max(self) -> Option<f64> {
        match self {
            Self::Copy => Some(1.0),
            Self::Pin => Some(0.2),
            Self::Pread => None,
        }
    }
}

/// The results of one measurement: means over all hits of all threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) wall_ns: f64,
    pub(super) cpu_ns: f64,
}

/// The pages to read, and their expected words.
pub(super) struct PageOrder {
    /// The word of each page.
    words: Vec<u64>,
    seed: u64,
}

impl PageOrder {
    /// A race over the pages with the words `words`.
    pub(super) fn new(words: Vec<u64>, seed: u64) -> Self {
        assert!(u32::try_from(words.len()).is_ok_and(|count| count > 0), "a page at least");
        Self { words, seed }
    }

    /// Measures `way` with `threads` for a time of `each`.
    pub(super) fn run(
        &self,
        way: Way,
        threads: u32,
        handle: &Handle,
        path: &Path,
        each: Nanos,
    ) -> Result<Sample> {
        let mut readers = Vec::new();
        for thread in 0..threads {
            let file = File::open(path).context("cannot open the file again")?;
            readers.push(HitThread {
                file,
                handle: handle.try_clone()?,
                pages: self.pages(thread),
            });
        }
        let bodies = readers
            .iter()
            .map(|thread| move |start: &Steps| thread.run(way, start, each, &self.words));
        let ended = Steps::start_together(bodies)?;
        let (mut wall, mut cpu, mut hits) = (0.0, 0.0, 0.0);
        for own in ended {
            let own = own?;
            wall += quantity::seconds(own.wall) * 1e9;
            cpu += quantity::seconds(own.cpu) * 1e9;
            hits += float(own.hits);
        }
        Ok(Sample { wall_ns: wall / hits, cpu_ns: cpu / hits })
    }

    /// The pages that the thread of this number reads, over and over.
    fn pages(&self, thread: u32) -> Vec<u32> {
        let mut prng = Prng::new(self.seed.wrapping_add(u64::from(thread) << 32));
        let count = self.words.len() as u64;
        let page = |_| u32::try_from(prng.below(count)).expect("checked when it was made");
        (0..ROUND).map(page).collect()
    }
}

/// What one thread has for itself.
struct HitThread {
    file: File,
    handle: Handle,
    pages: Vec<u32>,
}

/// The results of one thread.
struct ThreadHits {
    hits: u64,
    wall: Nanos,
    cpu: Nanos,
}

impl HitThread {
    fn run(&self, way: Way, start: &Steps, each: Nanos, words: &[u64]) -> Result<ThreadHits> {
        let mut room = page();
        match way {
            Way::Pread => self.hits(start, each, words, |offset| {
                self.file.read_exact_at(&mut room.0, offset)?;
                Ok(word(&room.0, offset))
            }),
            Way::Copy => self.hits(start, each, words, |offset| {
                self.handle.read_at(&mut room.0, offset)?;
                Ok(word(&room.0, offset))
            }),
            Way::Pin => {
                self.hits(start, each, words, |offset| Ok(word(&self.handle.pin(offset)?, offset)))
            }
        }
    }

    fn hits(
        &self,
        start: &Steps,
        each: Nanos,
        words: &[u64],
        mut hit: impl FnMut(u64) -> Result<u64>,
    ) -> Result<ThreadHits> {
        let mut batch = |pages: &[u32]| -> Result<u64> {
            let mut sum = 0_u64;
            for &page in pages {
                sum = sum.wrapping_add(hit(u64::from(page) * PAGE_BYTES as u64)?);
            }
            Ok(sum)
        };
        // Before the start, so that no thread waits for a failed one.
        let warm = batch(&self.pages[..BATCH]);
        let goes = start.next();
        warm?;
        if !goes {
            return Ok(ThreadHits { hits: 0, wall: Nanos(0), cpu: Nanos(0) });
        }
        let (mut hits, mut sum) = (0_u64, 0_u64);
        let (begun, begun_cpu) = (machine::now(), process::cpu(ClockId::ThreadCPUTime));
        let wall = loop {
            let from = usize::try_from(hits % ROUND as u64).expect("below a length");
            sum = sum.wrapping_add(batch(&self.pages[from..from + BATCH])?);
            hits += BATCH as u64;
            let passed = machine::now().since(begun);
            if passed >= each {
                break passed;
            }
        };
        let cpu = process::cpu(ClockId::ThreadCPUTime).since(begun_cpu);
        if sum != self.expected(hits, words) {
            bail!(
                "a hit had other bytes than the file; unless somebody changed it, please report it"
            );
        }
        Ok(ThreadHits { hits, wall, cpu })
    }

    /// The sum of the first `hits` words.
    fn expected(&self, hits: u64, words: &[u64]) -> u64 {
        let sum = |pages: &[u32]| {
            pages.iter().fold(0_u64, |sum, &page| sum.wrapping_add(words[page as usize]))
        };
        let rest = usize::try_from(hits % ROUND as u64).expect("below a length");
        sum(&self.pages).wrapping_mul(hits / ROUND as u64).wrapping_add(sum(&self.pages[..rest]))
    }
}

/// Memory for a page, aligned to one.
#[repr(align(4096))]
pub(super) struct Page(pub(super) [u8; PAGE_BYTES]);

/// An empty one.
pub(super) fn page() -> Box<Page> {
    Box::new(Page([0; PAGE_BYTES]))
}

/// The word of the page at `offset` that is added up: at another place in each.
pub(super) fn word(page: &[u8], offset: u64) -> u64 {
    let at = at(offset);
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

fn at(offset: u64) -> usize {
    usize::try_from(offset / PAGE_BYTES as u64 % (PAGE_BYTES as u64 / 8)).expect("in a page") * 8
}

/// What a hit is of.
pub(super) const PAGE_BYTES: usize = 4096;
/// Hits between two reads of the clock, and in a round of the pages.
const BATCH: usize = 1 << 8;
const ROUND: usize = 1 << 16;
const _: () = assert!(ROUND.is_multiple_of(BATCH), "a round is whole batches");
