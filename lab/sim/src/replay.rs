//! Accesses through replacement policies alone: no readahead, no device, no time.
//!
//! ```text
//!   keys --sample--> Numbering --> chunk of numbers --+--> policy A, 100 pages       level
//!                    dense, once                      +--> policy B, 100 pages       level
//!                                                     +--> LRU of many sizes         stack
//! ```
//! The accesses are read once, however many caches there are, and are not kept. While the caches
//! take a chunk, the reader thread makes the next one, then helps; with one allowed thread, the
//! reader thread does both. [`belady`] needs the future: its caches keep the accesses and run at
//! the end.
//!
//! **Samples.** A share of the keys, chosen by their hash, through caches of that share of the
//! size, stands for the whole. A few frequent keys cause the difference between the sample's
//! accesses and its share; these keys hit, so the difference counts as hits.
//!
//! **Bytes.** Where the accesses have sizes, those of the misses are summed as well. A cache still
//! has a frame a page, and no policy knows a size.
//!
//! # Invariants
//! - Memory grows with the number of distinct keys and the sizes, never with the number of
//!   accesses, but for Belady's 4 bytes an access, 12 with sizes; beyond [`ReplaySettings::memory`]
//!   the replay ends.
//! - A cache's counts depend on its policy, its size, the sample and the accesses, not on
//!   threads.
//! - At most `threads` threads compute at a time.
//! # Sources
//! Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS" (FAST 2015):
//! sampling by hash, and the adjustment (SHARDS-adj). The error is that of Horvitz and Thompson's
//! estimator (1952) where each key is drawn on its own.

mod level;
mod numbering;
mod stack;

use std::sync::{Mutex, PoisonError};
use std::thread;

use forerun_core::eviction::{self, Eviction, WithEviction};
use forerun_core::params::{ParamError, Share};
use forerun_core::units::Nanos;

use crate::oracle::belady::{self, Future, Past};
use crate::trace::survey::is_sampled;
use level::Level;
pub use numbering::{Full, Numbering};
use stack::{Stack, Uses};

/// A cache to replay through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its policy, as `NAME:key=value,...`.
    pub policy: String,
    /// Its frames; at least 1.
    pub pages: u32,
}

/// The settings of a replay.
pub struct ReplaySettings<'a> {
    /// Threads that may compute; at least 1.
    pub threads: usize,
    /// Bytes that keys and caches may take.
    pub memory: u64,
    /// The share of the keys that is followed; all, or less.
    pub sample: Share,
    /// The time of the machine, for [`Counts::busy`].
    pub clock: &'a (dyn Fn() -> Nanos + Sync),
}

/// The counts of a cache; with a sample, the estimate for the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages requested.
    pub accesses: u64,
    /// Pages that were not resident.
    pub misses: u64,
    /// The bytes requested of all pages, and of those that were not resident; 0 where no access
    /// has a size.
    pub bytes: u64,
    /// See [`Counts::bytes`].
    pub miss_bytes: u64,
    /// The time that it computed. Sizes that share a pass over the accesses share its time.
    pub busy: Nanos,
    /// The basis of an estimate; none where all accesses count.
    pub sampled: Option<SampleCounts>,
}

/// What a cache counted itself: of a sample, the basis of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleCounts {
    /// Accesses to the sample.
    pub accesses: u64,
    /// Misses among them.
    pub misses: u64,
    /// Bytes of these misses.
    pub miss_bytes: u64,
    /// The sum of the squares of each page's misses, where that is known.
    pub squares: Option<u64>,
}

impl SampleCounts {
    /// The standard error of the misses that were estimated, by which keys `sample` happened to
    /// choose. What a small cache of few pages adds is not in it.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn error(&self, sample: Share) -> Option<f64> {
        let rate = f64::from(sample.ppm) / WHOLE;
        self.squares.map(|squares| ((1.0 - rate) * squares as f64).sqrt() / rate)
    }
}

/// The reason why a replay failed.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplayError<E> {
    /// The accesses broke off.
    Accesses(E),
    /// A policy's name or parameter.
    Policy(ParamError),
    /// Keys and caches need more than the memory that is allowed.
    Memory {
        /// Bytes that are needed so far.
        bytes: u64,
        /// Distinct keys so far; 0 if the caches alone are too large.
        keys: u32,
    },
    /// The sample leaves nothing of a cache of so many pages.
    Sample {
        /// The smallest cache.
        pages: u32,
    },
}

/// The parameters of the policy that `spec` describes, as they are in force: those of
/// [`eviction::show`], and [`belady`], which has none.
///
/// # Errors
/// The name or a parameter is unknown, or a value does not parse.
pub fn show(spec: &str) -> Result<Vec<(&'static str, String)>, ParamError> {
    if spec == belady::NAME { Ok(Vec::new()) } else { eviction::show(spec) }
}

/// Sends keys through each of `cells`; the counts come in their order. `more` puts the next keys
/// into the vector, which is empty, and says whether there were any. No access has a size.
///
/// # Errors
/// A policy is unknown, the accesses broke off, the caches do not fit into the memory, or the
/// sample not into a cache.
///
/// # Panics
/// `threads` or the size of a cell is 0.
pub fn replay<E>(
    mut more: impl FnMut(&mut Vec<u64>) -> Result<bool, E>,
    cells: &[Cell],
    settings: &ReplaySettings,
) -> Result<Vec<Counts>, ReplayError<E>> {
    replay_sized(|accesses| more(&mut accesses.keys), cells, settings)
}

/// The same: `more` may put sizes beside the keys, then of each.
///
/// # Errors
/// As [`replay`].
///
/// # Panics
/// As [`replay`]; and there are sizes of some of the keys.
pub fn replay_sized<E>(
    more: impl FnMut(&mut Accesses) -> Result<bool, E>,
    cells: &[Cell],
    settings: &ReplaySettings,
) -> Result<Vec<Counts>, ReplayError<E>> {
    assert!(settings.threads > 0 && cells.iter().all(|cell| cell.pages > 0));
    let mut groups = groups(cells, settings)?;
    let mut reading = Reading::new(more);
    let (mut chunk, mut next) = (Chunk::default(), Chunk::default());
    reading.fill(&mut chunk, settings)?;
    while !chunk.numbers.is_empty() {
        check_memory(&groups, &reading.numbering, settings)?;
        let read = each(
            &mut groups,
            settings,
            |group| group.cache.take(&chunk),
            || reading.fill(&mut next, settings),
        );
        read?;
        (chunk, next) = (next, chunk);
    }
    check_memory(&groups, &reading.numbering, settings)?;
    each(&mut groups, settings, |group| group.cache.end(), || ());
    let mut counts = vec![Counts::default(); cells.len()];
    for group in &groups {
        let share = Nanos(group.busy.0 / group.cells.len() as u64);
        for (&cell, counted) in group.cells.iter().zip(group.cache.counted()) {
            let seen = (reading.seen, reading.seen_bytes);
            counts[cell] = estimated(counted, seen, share, settings.sample);
        }
    }
    Ok(counts)
}

/// Accesses, one after the other.
#[derive(Default)]
pub struct Accesses {
    /// The pages.
    pub keys: Vec<u64>,
    /// The bytes requested of each; empty where no size is known.
    pub bytes: Vec<u64>,
}

impl Accesses {
    /// Removes all.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.bytes.clear();
    }

    /// Leaves those that `sample` follows.
    pub fn keep_sample(&mut self, sample: Share) {
        if is_whole(sample) {
            return;
        }
        let mut keys = self.keys.iter();
        self.bytes.retain(|_| keys.next().is_some_and(|&key| is_sampled(key, sample)));
        self.keys.retain(|&key| is_sampled(key, sample));
    }
}

/// Accesses by the numbers of their pages.
#[derive(Default)]
struct Chunk {
    numbers: Vec<u32>,
    /// As those of [`Accesses`].
    bytes: Vec<u64>,
}

impl Chunk {
    /// The bytes of the access at this place; 0 where no size is known.
    fn bytes_of(&self, at: usize) -> u64 {
        self.bytes.get(at).copied().unwrap_or(0)
    }
}

/// The estimate for the accesses and bytes `seen` from the counts of a sample.
fn estimated(counted: SampleCounts, seen: (u64, u64), busy: Nanos, sample: Share) -> Counts {
    let SampleCounts { accesses, misses, miss_bytes, .. } = counted;
    let (seen, bytes) = seen;
    if is_whole(sample) {
        return Counts { accesses, misses, bytes, miss_bytes, busy, sampled: None };
    }
    let of_all = |part: u64, most: u64| {
        let scaled = u128::from(part) * 1_000_000 / u128::from(sample.ppm.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX).min(most)
    };
    let (misses, miss_bytes) = (of_all(misses, seen), of_all(miss_bytes, bytes));
    Counts { accesses: seen, misses, bytes, miss_bytes, busy, sampled: Some(counted) }
}

fn is_whole(sample: Share) -> bool {
    f64::from(sample.ppm) >= WHOLE
}

/// The stream of keys.
struct Reading<M> {
    more: M,
    read: Accesses,
    numbering: Numbering,
    /// Accesses so far, in the sample or not, and their bytes.
    seen: u64,
    seen_bytes: u64,
}

impl<M> Reading<M> {
    fn new(more: M) -> Self {
        let (read, numbering) = (Accesses::default(), Numbering::default());
        Self { more, read, numbering, seen: 0, seen_bytes: 0 }
    }

    /// Puts the next accesses into `chunk`, in place of what is there; none at the end.
    fn fill<E>(
        &mut self,
        chunk: &mut Chunk,
        settings: &ReplaySettings,
    ) -> Result<(), ReplayError<E>>
    where
        M: FnMut(&mut Accesses) -> Result<bool, E>,
    {
        chunk.numbers.clear();
        chunk.bytes.clear();
        while chunk.numbers.len() < CHUNK_ACCESSES {
            let read = &mut self.read;
            read.clear();
            if !(self.more)(read).map_err(ReplayError::Accesses)? {
                break;
            }
            let sizes = read.bytes.len();
            assert!(sizes == 0 || sizes == read.keys.len(), "a size of each access, or of none");
            self.seen += read.keys.len() as u64;
            self.seen_bytes =
                read.bytes.iter().fold(self.seen_bytes, |sum, it| sum.saturating_add(*it));
            read.keep_sample(settings.sample);
            chunk.bytes.extend_from_slice(&read.bytes);
            let numbered =
                self.numbering.number_all(&read.keys, settings.memory, &mut chunk.numbers);
            numbered.map_err(|Full| ReplayError::Memory {
                bytes: self.numbering.bytes().saturating_mul(2),
                keys: self.numbering.len(),
            })?;
        }
        Ok(())
    }
}

/// Checks that the keys and caches fit the memory.
fn check_memory<E>(
    groups: &[CellGroup],
    numbering: &Numbering,
    settings: &ReplaySettings,
) -> Result<(), ReplayError<E>> {
    let pages = numbering.len();
    let caches: u64 = groups.iter().map(|group| group.cache.bytes(pages)).sum();
    let bytes = caches.saturating_add(numbering.bytes());
    let fits = bytes <= settings.memory;
    if fits { Ok(()) } else { Err(ReplayError::Memory { bytes, keys: pages }) }
}

/// Runs `work` on each pass, and `meanwhile` on the reader thread.
fn each<R>(
    groups: &mut [CellGroup],
    settings: &ReplaySettings,
    work: impl Fn(&mut CellGroup) + Sync,
    meanwhile: impl FnOnce() -> R,
) -> R {
    let helpers = (settings.threads - 1).min(groups.len());
    let left = Mutex::new(groups.iter_mut());
    let turn = || {
        while let Some(group) = {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            left.next()
        } {
            let begun = (settings.clock)();
            work(group);
            group.busy += (settings.clock)().since(begun);
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(turn);
        }
        let read = meanwhile();
        turn();
        read
    })
}

/// Cells that share one pass over the accesses.
struct CellGroup {
    /// Their places among all.
    cells: Vec<usize>,
    cache: Box<dyn Pass>,
    busy: Nanos,
}

/// One pass over the accesses.
trait Pass: Send {
    /// Takes the next accesses.
    fn take(&mut self, chunk: &Chunk);

    /// Ends the accesses.
    fn end(&mut self) {}

    /// The counts of each of its cells.
    fn counted(&self) -> Vec<SampleCounts>;

    /// Bytes that it takes once there are `pages` distinct ones.
    fn bytes(&self, pages: u32) -> u64;
}

/// The empty passes for `cells`.
fn groups<E>(cells: &[Cell], settings: &ReplaySettings) -> Result<Vec<CellGroup>, ReplayError<E>> {
    let is_sample = !is_whole(settings.sample);
    for cell in cells {
        show(&cell.policy).map_err(ReplayError::Policy)?;
        if scaled(cell.pages, settings.sample) == 0 {
            let pages = cells.iter().map(|cell| cell.pages).min().unwrap_or(0);
            return Err(ReplayError::Sample { pages });
        }
    }
    let of = |policy: &str| -> Vec<usize> {
        (0..cells.len()).filter(|&at| cells[at].policy == policy).collect()
    };
    let pages = |at: &usize| scaled(cells[*at].pages, settings.sample);
    let mut groups = Vec::new();
    let mut put = |cells: Vec<usize>, cache: Box<dyn Pass>| {
        groups.push(CellGroup { cells, cache, busy: Nanos(0) });
    };
    let (mut curve, oracles) = (of(LRU), of(belady::NAME));
    curve.sort_by_key(pages);
    curve.dedup_by_key(|at| pages(at));
    if curve.len() < STACK_SIZES || is_sample {
        curve.clear();
    }
    let mut bytes_empty = 0_u64;
    for (at, cell) in cells.iter().enumerate() {
        if curve.contains(&at) || oracles.contains(&at) {
            continue;
        }
        let pages = pages(&at);
        let bytes = eviction::dispatch(&cell.policy, Empty { pages });
        bytes_empty = bytes_empty.saturating_add(bytes.map_err(ReplayError::Policy)?);
        if bytes_empty > settings.memory {
            return Err(ReplayError::Memory { bytes: bytes_empty, keys: 0 });
        }
        let cache = eviction::dispatch(&cell.policy, One { pages, is_sample });
        put(vec![at], cache.map_err(ReplayError::Policy)?);
    }
    if !curve.is_empty() {
        let sizes: Vec<u32> = curve.iter().map(pages).collect();
        let stack = Stack::new(&sizes);
        put(curve, Box::new(Curve { stack, all: Uses::default() }));
    }
    if !oracles.is_empty() {
        let sizes = oracles.iter().map(pages).collect();
        put(oracles, Box::new(Oracle::new(sizes)));
    }
    Ok(groups)
}

/// The size of a cache of `pages` under `sample`, to the nearest page.
fn scaled(pages: u32, sample: Share) -> u32 {
    let rounded = (u64::from(pages) * u64::from(sample.ppm) + 500_000) / 1_000_000;
    u32::try_from(rounded).unwrap_or(u32::MAX).min(pages)
}

/// Bytes of a cache with all frames in use and no names.
struct Empty {
    pages: u32,
}

impl WithEviction for Empty {
    type Output = u64;

    fn with<E: Eviction>(self, params: E::Params) -> u64 {
        E::bytes(self.pages, 0, &params)
    }
}

/// A cache of its own.
struct One {
    pages: u32,
    is_sample: bool,
}

impl WithEviction for One {
    type Output = Box<dyn Pass>;

    fn with<E: Eviction>(self, params: E::Params) -> Box<dyn Pass> {
        let level = Level::<E>::new(self.pages, params, self.is_sample);
        Box::new(Alone { level, accesses: 0, misses: Uses::default() })
    }
}

struct Alone<E: Eviction> {
    level: Level<E>,
    accesses: u64,
    misses: Uses,
}

impl<E: Eviction> Pass for Alone<E> {
    fn take(&mut self, chunk: &Chunk) {
        self.accesses += chunk.numbers.len() as u64;
        self.misses = self.misses.and(self.level.access_all(chunk));
    }

    fn counted(&self) -> Vec<SampleCounts> {
        let Uses { count: misses, bytes: miss_bytes } = self.misses;
        let squares = Some(self.level.squares());
        vec![SampleCounts { accesses: self.accesses, misses, miss_bytes, squares }]
    }

    fn bytes(&self, pages: u32) -> u64 {
        self.level.bytes(pages)
    }
}

/// Several sizes of LRU.
struct Curve {
    stack: Stack,
    all: Uses,
}

impl Pass for Curve {
    fn take(&mut self, chunk: &Chunk) {
        let bytes = chunk.bytes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        self.all = self.all.and(Uses { count: chunk.numbers.len() as u64, bytes });
        self.stack.access_all(chunk);
    }

    fn counted(&self) -> Vec<SampleCounts> {
        let Uses { count: accesses, bytes } = self.all;
        let of = |hits: Uses| SampleCounts {
            accesses,
            misses: accesses - hits.count,
            miss_bytes: bytes.saturating_sub(hits.bytes),
            squares: None,
        };
        self.stack.hits().into_iter().map(of).collect()
    }

    fn bytes(&self, pages: u32) -> u64 {
        Stack::bytes(pages)
    }
}

/// Belady's bound for some sizes.
struct Oracle {
    sizes: Vec<u32>,
    past: Past,
    /// Of each access, where sizes are known.
    bytes: Vec<u64>,
    future: Option<Future>,
    misses: Vec<Uses>,
    /// More accesses came than the oracle can number.
    overflowed: bool,
}

impl Oracle {
    fn new(sizes: Vec<u32>) -> Self {
        let (past, bytes, misses) = (Past::default(), Vec::new(), Vec::new());
        Self { sizes, past, bytes, future: None, misses, overflowed: false }
    }
}

impl Pass for Oracle {
    fn take(&mut self, chunk: &Chunk) {
        self.overflowed |= self.past.push(&chunk.numbers, u64::MAX).is_err();
        self.bytes.extend_from_slice(&chunk.bytes);
    }

    fn end(&mut self) {
        let future = self.future.insert(std::mem::take(&mut self.past).future());
        let misses = |&pages: &u32| {
            let mut misses = Uses::default();
            future.each_miss(pages, |at| {
                let bytes = self.bytes.get(at).copied().unwrap_or(0);
                misses = misses.and(Uses { count: 1, bytes });
            });
            misses
        };
        self.misses = self.sizes.iter().map(misses).collect();
    }

    fn counted(&self) -> Vec<SampleCounts> {
        let accesses = self.future.as_ref().map_or(0, Future::accesses);
        // The oracle does not say which page is missed: of a sample there is no error.
        let of = |&Uses { count: misses, bytes: miss_bytes }: &Uses| SampleCounts {
            accesses,
            misses,
            miss_bytes,
            squares: None,
        };
        self.misses.iter().map(of).collect()
    }

    fn bytes(&self, pages: u32) -> u64 {
        let sizes = size_of_val(self.bytes.as_slice()) as u64;
        if self.overflowed { u64::MAX } else { self.past.bytes(pages) + sizes }
    }
}

/// The policy that replays several sizes in one pass.
const LRU: &str = "lru";
/// The least number of sizes that share a pass.
const STACK_SIZES: usize = 4;
/// Accesses of a chunk: enough to hide the cost of a turn, few enough to stay in a processor's
/// cache.
const CHUNK_ACCESSES: usize = 1 << 16;
/// A whole, in parts per million.
const WHOLE: f64 = 1e6;

#[cfg(test)]
mod tests;
