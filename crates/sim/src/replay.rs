//! Accesses through replacement policies alone: no readahead, no device, no time.
//!
//! ```text
//!   keys --> Numbering: dense numbers, once --> chunks --+--> policy A, 100 pages   (a thread)
//!                                                        +--> policy A, 1,000 pages (a thread)
//!                                                        +--> policy B, 100 pages   (a thread)
//! ```
//! The accesses are read once, however many caches there are, and are not kept. A cache runs a
//! loop that is compiled for its policy alone. [`belady`] must know what comes: its caches share
//! one thread, which keeps the accesses and runs once all are there.
//!
//! # Invariants
//! - Memory grows with the number of distinct keys and the sizes, never with the number of
//!   accesses, but for Belady's 4 bytes an access; of those there is a bound.
//! - What a cache counts depends on its policy, its size and the accesses, not on threads.
//! - At most `threads` caches compute at a time, so that the time of each is its own.
//! # Sources
//! Meng et al. 2009, section 4: a hit renews, a miss on a full cache evicts one and inserts.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use forerun_core::eviction::{self, Eviction, WithEviction};
use forerun_core::hash::FixedState;
use forerun_core::params::ParamError;
use forerun_core::units::{FileId, FrameId, Nanos, PageId};
use hashbrown::HashMap;

use crate::oracle::belady::{self, Past};

/// A cache to replay through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its policy, as `NAME:key=value,...`.
    pub policy: String,
    /// Its frames; at least 1.
    pub pages: u32,
}

/// What a cache counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages asked for.
    pub accesses: u64,
    /// Those that were not resident.
    pub misses: u64,
    /// The time that it computed.
    pub busy: Nanos,
}

/// Why a replay failed.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplayError<E> {
    /// The accesses broke off.
    Accesses(E),
    /// A policy's name or parameter.
    Policy(ParamError),
    /// There are more accesses than Belady's bound is computed for.
    Future {
        /// So many there may be.
        accesses_max: u64,
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

/// Dense numbers for keys, in the order in which they first come.
#[derive(Default)]
pub struct Numbering {
    numbers: HashMap<u64, u32, FixedState>,
}

impl Numbering {
    /// The number of `key`.
    pub fn number(&mut self, key: u64) -> u32 {
        let next = u32::try_from(self.numbers.len()).expect("fewer than 2^32 distinct keys");
        *self.numbers.entry(key).or_insert(next)
    }

    /// Distinct keys so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Whether no key has come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// Sends `keys` through each of `cells`; the counts come in their order. `clock` tells the time
/// of the machine, for [`Counts::busy`].
///
/// # Errors
/// A policy is unknown, the accesses broke off, or there are too many for Belady.
///
/// # Panics
/// `threads` or the size of a cell is 0.
pub fn replay<E>(
    keys: impl Iterator<Item = Result<u64, E>>,
    cells: &[Cell],
    threads: usize,
    clock: &(dyn Fn() -> Nanos + Sync),
) -> Result<Vec<Counts>, ReplayError<E>> {
    assert!(threads > 0 && cells.iter().all(|cell| cell.pages > 0));
    for cell in cells {
        show(&cell.policy).map_err(ReplayError::Policy)?;
    }
    let turns = Turns { free: Mutex::new(threads), freed: Condvar::new() };
    let (oracles, plain): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().partition(|cell| cell.policy == belady::NAME);
    thread::scope(|scope| {
        let (mut senders, mut running) = (Vec::new(), Vec::new());
        for &cell in &plain {
            let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
            senders.push(sender);
            let run = Run { pages: cell.pages, chunks, turns: &turns, clock };
            running.push(scope.spawn(move || eviction::dispatch(&cell.policy, run)));
        }
        let bounds = (!oracles.is_empty()).then(|| {
            let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
            senders.push(sender);
            let (oracles, turns) = (&oracles, &turns);
            scope.spawn(move || bounds(oracles, chunks, turns, clock))
        });
        let sent = send(keys, &senders);
        drop(senders);
        let counted: Result<Vec<Counts>, ParamError> = running.into_iter().map(joined).collect();
        let bounds = bounds.map_or_else(|| Ok(Vec::new()), joined);
        sent.map_err(ReplayError::Accesses)?;
        let mut counted = counted.map_err(ReplayError::Policy)?.into_iter();
        let mut bounds = bounds
            .map_err(|belady::TooMany| ReplayError::Future { accesses_max: FUTURE_ACCESSES_MAX })?
            .into_iter();
        let of = |cell: &Cell| {
            let next = if cell.policy == belady::NAME { bounds.next() } else { counted.next() };
            next.expect("each cell was counted")
        };
        Ok(cells.iter().map(of).collect())
    })
}

fn joined<T>(run: ScopedJoinHandle<'_, T>) -> T {
    run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What each of `cells` counts if it knows all of `chunks` before.
fn bounds(
    cells: &[&Cell],
    chunks: Receiver<Chunk>,
    turns: &Turns,
    clock: &(dyn Fn() -> Nanos + Sync),
) -> Result<Vec<Counts>, belady::TooMany> {
    let mut past = Past::default();
    for chunk in chunks {
        past.push(&chunk, FUTURE_ACCESSES_MAX)?;
    }
    let (future, shared) = turns.take(|| {
        let begun = clock();
        let future = past.future();
        (future, clock().since(begun))
    });
    let count = |cell: &&Cell| {
        turns.take(|| {
            let begun = clock();
            let misses = future.misses(cell.pages);
            Counts { accesses: future.accesses(), misses, busy: shared + clock().since(begun) }
        })
    };
    Ok(cells.iter().map(count).collect())
}

type Chunk = Arc<Vec<u32>>;

/// Numbers `keys` and gives them to all, in chunks.
fn send<E>(keys: impl Iterator<Item = Result<u64, E>>, to: &[SyncSender<Chunk>]) -> Result<(), E> {
    let mut numbering = Numbering::default();
    let mut chunk = Vec::with_capacity(CHUNK_ACCESSES);
    let give = |chunk: Vec<u32>| {
        let chunk = Arc::new(chunk);
        for sender in to {
            // Who does not listen any more has panicked; joining it tells.
            let _ = sender.send(Arc::clone(&chunk));
        }
    };
    for key in keys {
        chunk.push(numbering.number(key?));
        if chunk.len() == CHUNK_ACCESSES {
            give(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK_ACCESSES)));
        }
    }
    give(chunk);
    Ok(())
}

/// How many may compute.
struct Turns {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Turns {
    fn take<R>(&self, work: impl FnOnce() -> R) -> R {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.freed.wait_while(free, |free| *free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        let result = work();
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.freed.notify_one();
        result
    }
}

/// One cell's share of the work.
struct Run<'a> {
    pages: u32,
    chunks: Receiver<Chunk>,
    turns: &'a Turns,
    clock: &'a (dyn Fn() -> Nanos + Sync),
}

impl WithEviction for Run<'_> {
    type Output = Counts;

    fn with<E: Eviction>(self, params: E::Params) -> Counts {
        let mut level = Level::<E>::new(self.pages, params);
        let mut counts = Counts::default();
        for chunk in self.chunks {
            self.turns.take(|| {
                let begun = (self.clock)();
                counts.misses += level.access_all(&chunk);
                counts.accesses += chunk.len() as u64;
                counts.busy += (self.clock)().since(begun);
            });
        }
        counts
    }
}

/// A cache without bytes.
struct Level<E> {
    policy: E,
    pages: u32,
    /// The frame of each number, or [`ABSENT`].
    frames: Vec<u32>,
    /// The number in each frame that was ever filled.
    numbers: Vec<u32>,
    victims: Vec<FrameId>,
}

impl<E: Eviction> Level<E> {
    fn new(pages: u32, params: E::Params) -> Self {
        let policy = E::new(pages, params);
        Self { policy, pages, frames: Vec::new(), numbers: Vec::new(), victims: Vec::new() }
    }

    /// Misses among `numbers`.
    fn access_all(&mut self, numbers: &[u32]) -> u64 {
        let Some(&largest) = numbers.iter().max() else { return 0 };
        if self.frames.len() <= largest as usize {
            self.frames.resize(largest as usize + 1, ABSENT);
        }
        numbers.iter().map(|&number| u64::from(!self.hit(number))).sum()
    }

    fn hit(&mut self, number: u32) -> bool {
        let frame = self.frames[number as usize];
        if frame != ABSENT {
            self.policy.renew(FrameId(frame));
            return true;
        }
        let page = PageId { file: FileId(0), index: number.into() };
        self.policy.missed(page);
        let frame = self.empty_frame();
        self.frames[number as usize] = frame;
        self.numbers[frame as usize] = number;
        self.policy.insert(FrameId(frame), page, false);
        false
    }

    fn empty_frame(&mut self) -> u32 {
        let filled = u32::try_from(self.numbers.len()).expect("at most `pages`");
        if filled < self.pages {
            self.numbers.push(ABSENT);
            return filled;
        }
        self.victims.clear();
        self.policy.evict(1, &|_| true, &mut self.victims);
        let &[FrameId(victim)] = self.victims.as_slice() else {
            panic!("a full cache has one victim, not {:?}", self.victims);
        };
        self.frames[self.numbers[victim as usize] as usize] = ABSENT;
        victim
    }
}

const ABSENT: u32 = u32::MAX;
/// Accesses that go to the caches at a time: long enough that handing them over costs nothing.
const CHUNK_ACCESSES: usize = 1 << 16;
/// Accesses that Belady's caches keep: 1 GiB.
const FUTURE_ACCESSES_MAX: u64 = 1 << 28;
/// Chunks that may wait for a cache.
const CHUNKS_AHEAD: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(policy: &str, pages: u32) -> Cell {
        Cell { policy: policy.into(), pages }
    }

    fn run(keys: &[u64], cells: &[Cell], threads: usize) -> Vec<(u64, u64)> {
        let keys = keys.iter().copied().map(Ok::<u64, ()>);
        let counts = replay(keys, cells, threads, &|| Nanos(0)).expect("known policies");
        counts.iter().map(|count| (count.accesses, count.misses)).collect()
    }

    #[test]
    fn misses_are_those_of_the_policy() {
        #[rustfmt::skip]
        let rows: &[(&str, &str, u32, &[u64], u64)] = &[ // why  policy  pages  keys  misses
            ("all new",                   "lru",  2, &[1, 2, 3],            3),
            ("all fits",                  "lru",  2, &[9, 8, 9, 8],         2),
            ("a use saves a page",        "lru",  2, &[1, 2, 1, 3, 1],      3),
            ("a use saves nothing",       "fifo", 2, &[1, 2, 1, 3, 1],      4),
            ("a loop beyond the cache",   "lru",  2, &[1, 2, 3, 1, 2, 3],   6),
            ("one frame",                 "lru",  1, &[1, 1, 2, 1],         3),
            ("the largest keys",          "fifo", 2, &[u64::MAX, 0, u64::MAX], 2),
            ("nothing",                   "lru",  2, &[],                   0),
            ("the future is known",       "belady", 2, &[1, 2, 3, 1, 2, 3], 4),
        ];
        for (why, policy, pages, keys, misses) in rows {
            let counts = run(keys, &[cell(policy, *pages)], 1);
            assert_eq!(counts, [(keys.len() as u64, *misses)], "{why}");
        }
    }

    #[test]
    fn many_caches_at_once_count_as_each_alone() {
        let keys: Vec<u64> = (0..200_000_u64).map(|i| i * i % 1_009 + i % 7 * 100_000).collect();
        let cells: Vec<Cell> = eviction::NAMES
            .iter()
            .chain(&[belady::NAME])
            .flat_map(|policy| [1, 10, 300].map(|pages| cell(policy, pages)))
            .collect();
        let together = run(&keys, &cells, 3);
        for (cell, counts) in cells.iter().zip(&together) {
            assert_eq!(run(&keys, std::slice::from_ref(cell), 1), [*counts], "{cell:?}");
            assert!(counts.0 == 200_000 && counts.1 >= 1_009, "{cell:?} {counts:?}");
        }
    }

    #[test]
    fn errors_come_back() {
        let keys = [Ok(1), Err("torn"), Ok(2)];
        let torn = replay(keys.into_iter(), &[cell("lru", 1)], 1, &|| Nanos(0));
        assert_eq!(torn, Err(ReplayError::Accesses("torn")));
        let unknown = replay([Ok::<u64, ()>(1)].into_iter(), &[cell("x", 1)], 1, &|| Nanos(0));
        assert!(matches!(unknown, Err(ReplayError::Policy(_))));
    }

    #[test]
    fn time_is_the_clocks() {
        let ticks = std::sync::atomic::AtomicU64::new(0);
        let clock = || Nanos(ticks.fetch_add(5, std::sync::atomic::Ordering::Relaxed));
        let keys = [7_u64; 3].map(Ok::<u64, ()>).into_iter();
        let counts = replay(keys, &[cell("lru", 1)], 1, &clock).expect("known");
        assert_eq!(counts, [Counts { accesses: 3, misses: 1, busy: Nanos(5) }]);
        let mut numbering = Numbering::default();
        assert!(numbering.is_empty());
        assert_eq!([5, 9, 5].map(|key| numbering.number(key)), [0, 1, 0]);
        assert_eq!((numbering.len(), numbering.is_empty()), (2, false));
    }
}
