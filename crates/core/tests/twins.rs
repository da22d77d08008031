//! Twins: each policy against its paper's pseudo-code over plain vectors.
//!
//! A twin is written to be compared with the paper by eye, not to be fast. Policy and twin get the
//! same calls and must name the same frames in the same order: under all short sequences of
//! accesses at tiny sizes, and under random calls with pins, pages read ahead, truncated pages,
//! batches and changes of size. Those whose paper has one call an access have a second twin, which
//! has it too: it must let the same pages go, on short sequences, at random, and in loops.
//!
//! ```text
//!   a vector:  [0] oldest, leaves first  ...  last, newest
//! ```
//!
//! # Sources
//! Each twin names its own.

#[path = "twins/apart.rs"]
mod apart;
#[path = "twins/arc.rs"]
mod arc;
#[path = "twins/lfu.rs"]
mod lfu;
#[path = "twins/lirs.rs"]
mod lirs;
#[path = "twins/plain.rs"]
mod plain;
#[path = "twins/s3_fifo.rs"]
mod s3_fifo;
#[path = "twins/sieve.rs"]
mod sieve;
#[path = "twins/two_q.rs"]
mod two_q;
#[path = "twins/w_tinylfu.rs"]
mod w_tinylfu;

use std::cell::RefCell;
use std::collections::BTreeSet;

use forerun_core::eviction::{AnyEviction, NAMES};
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, FrameId, PageId};

use apart::Apart;
use two_q::TwoQ;

type Pinned<'a> = &'a dyn Fn(FrameId) -> bool;

/// What a policy does, said plainly.
trait Twin {
    fn missed(&mut self, _page: PageId) {}
    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool);
    fn renew(&mut self, frame: FrameId);
    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId>;
    fn forget(&mut self, frame: FrameId);
    fn resize(&mut self, capacity: u32);
}

/// Makes a twin for a capacity.
type Make = fn(u32) -> Box<dyn Twin>;

/// Every spec that is compared, with its twin for a capacity.
#[rustfmt::skip]
const TWINS: &[(&str, Make)] = &[
    ("fifo",                  |_| Box::new(plain::Fifo::default())),
    ("lru",                   |_| Box::new(plain::Lru::default())),
    ("clock",                 |_| Box::new(plain::Clock::default())),
    ("2q",                    |capacity| TwoQ::boxed(false, (1, 4), (1, 2), capacity)),
    ("2q:kin=0.5,kout=1",     |capacity| TwoQ::boxed(false, (1, 2), (1, 1), capacity)),
    ("2q:kin=1,kout=2",       |capacity| TwoQ::boxed(false, (1, 1), (2, 1), capacity)),
    ("2q-star",               |capacity| TwoQ::boxed(true, (1, 10), (1, 1), capacity)),
    ("2q-star:kin=0.5",       |capacity| TwoQ::boxed(true, (1, 2), (1, 1), capacity)),
    ("2q-star:kin=0.3,kout=0.5", |capacity| TwoQ::boxed(true, (3, 10), (1, 2), capacity)),
    ("lfu",                   |capacity| Apart::boxed(capacity, lfu::Lfu::default())),
    ("arc",                   |capacity| Apart::boxed(capacity, arc::Arc::new(capacity))),
    ("lirs",                  |capacity| {
        Apart::boxed(capacity, lirs::Lirs::new(capacity, |_| 4_096))
    }),
    ("lirs:least=0,ghost=1",  |capacity| Apart::boxed(capacity, lirs::Lirs::new(capacity, |c| c))),
    ("lirs:least=1,ghost=0",  |capacity| Apart::boxed(capacity, lirs::Lirs::new(capacity, |_| 1))),
    ("lirs:least=0,ghost=0",  |capacity| Apart::boxed(capacity, lirs::Lirs::new(capacity, |_| 0))),
    ("s3-fifo",               |capacity| Apart::boxed(capacity, s3_fifo::S3Fifo::new(capacity))),
    ("sieve",                 |capacity| Apart::boxed(capacity, sieve::Sieve::default())),
    ("w-tinylfu",             |capacity| {
        Apart::boxed(capacity, w_tinylfu::WTinyLfu::new(capacity))
    }),
];

/// A policy as its paper has it: one call an access.
trait Classic {
    /// What leaves, if anything does.
    fn access(&mut self, page: u64) -> Option<u64>;
}

/// Makes one for a capacity.
type MakeClassic = fn(usize) -> Box<dyn Classic>;

/// Specs whose papers have one call an access.
#[rustfmt::skip]
const CLASSICS: &[(&str, MakeClassic)] = &[
    ("2q",                       |c| two_q::Access::boxed(false, (1, 4), (1, 2), c)),
    ("2q:kin=0.5,kout=1",        |c| two_q::Access::boxed(false, (1, 2), (1, 1), c)),
    ("2q-star",                  |c| two_q::Access::boxed(true, (1, 10), (1, 1), c)),
    ("2q-star:kin=0.5,kout=0.5", |c| two_q::Access::boxed(true, (1, 2), (1, 2), c)),
    ("lfu",                      lfu::Access::boxed),
    ("arc",                      arc::Access::boxed),
    ("lirs",                     lirs::Access::boxed),
    ("s3-fifo",                  s3_fifo::Access::boxed),
    ("sieve",                    sieve::Access::boxed),
    ("w-tinylfu",                w_tinylfu::Access::boxed),
];

/// A policy in a full cache, and which page lies in which frame.
struct Cached {
    policy: AnyEviction,
    frames: Vec<Option<u64>>,
}

impl Cached {
    fn new(spec: &str, capacity: u32) -> Self {
        let policy = AnyEviction::make(spec, capacity).expect("the spec is known");
        Self { policy, frames: vec![None; capacity as usize] }
    }

    fn find(&self, page: Option<u64>) -> Option<FrameId> {
        let at = self.frames.iter().position(|&other| other == page)?;
        Some(FrameId(u32::try_from(at).unwrap()))
    }

    /// Uses `number`, or only fetches it, in the policy and in `twin`. Returns what left.
    fn access(&mut self, number: u64, read: bool, mut twin: Option<&mut dyn Twin>) -> Option<u64> {
        if let Some(frame) = self.find(Some(number)) {
            if read {
                self.policy.renew(frame);
                if let Some(twin) = twin {
                    twin.renew(frame);
                }
            }
            return None;
        }
        if read {
            self.policy.missed(page(number));
            if let Some(twin) = &mut twin {
                twin.missed(page(number));
            }
        }
        let (mut left, mut frame) = (None, self.find(None));
        if frame.is_none() {
            let mut out = Vec::new();
            self.policy.evict(1, &|_| true, &mut out);
            if let Some(twin) = &mut twin {
                assert_eq!(out, twin.evict(1, &|_| false));
            }
            frame = Some(out[0]);
            left = self.frames[out[0].0 as usize];
        }
        let frame = frame.expect("one was empty or freed");
        self.policy.insert(frame, page(number), !read);
        if let Some(twin) = twin {
            twin.insert(frame, page(number), !read);
        }
        self.frames[frame.0 as usize] = Some(number);
        left
    }
}

#[test]
fn every_listed_policy_has_a_twin() {
    let compared: BTreeSet<_> =
        TWINS.iter().map(|(spec, _)| spec.split(':').next().unwrap()).collect();
    assert_eq!(compared, NAMES.iter().copied().collect());
}

#[test]
fn every_short_sequence_of_reads_names_the_same_victims() {
    for pages in sequences(8) {
        for &(spec, twin) in TWINS {
            for capacity in 1..=4 {
                let (mut cached, mut twin) = (Cached::new(spec, capacity), twin(capacity));
                for &page in &pages {
                    cached.access(page, true, Some(twin.as_mut()));
                }
            }
        }
    }
}

#[test]
fn every_short_sequence_with_pages_read_ahead_names_the_same_victims() {
    for pages in sequences(6) {
        for reads in 0..1_u32 << pages.len() {
            for &(spec, twin) in TWINS {
                for capacity in 1..=3 {
                    let (mut cached, mut twin) = (Cached::new(spec, capacity), twin(capacity));
                    for (nth, &page) in pages.iter().enumerate() {
                        cached.access(page, reads >> nth & 1 == 1, Some(twin.as_mut()));
                    }
                }
            }
        }
    }
}

/// Sends `pages` through both, which must let the same pages go.
fn compare(spec: &str, classic: MakeClassic, capacity: u32, pages: impl IntoIterator<Item = u64>) {
    let (mut cached, mut classic) = (Cached::new(spec, capacity), classic(capacity as usize));
    for (step, page) in pages.into_iter().enumerate() {
        let left = cached.access(page, true, None);
        assert_eq!(left, classic.access(page), "{spec}, {capacity} frames, step {step}: {page}");
    }
}

#[test]
fn one_eviction_a_miss_is_the_classic_algorithm_on_every_short_sequence() {
    for pages in sequences(8) {
        for &(spec, classic) in CLASSICS {
            for capacity in 1..=4 {
                compare(spec, classic, capacity, pages.iter().copied());
            }
        }
    }
}

#[test]
fn one_eviction_a_miss_is_the_classic_algorithm_at_random_and_in_loops() {
    for &(spec, classic) in CLASSICS {
        for seed in 0..60 {
            let mut prng = Prng::new(seed);
            let capacity = u32::try_from(1 + prng.below(24)).unwrap();
            let skewed = (0..600).map(|_| prng.below(30).min(prng.below(30)));
            let skewed: Vec<u64> = skewed.collect();
            compare(spec, classic, capacity, skewed);
            // Loops of a length that changes, with popular pages between.
            let lengths: Vec<u64> = (0..12).map(|_| 1 + prng.below(45)).collect();
            let looping =
                lengths.iter().flat_map(|&length| (0..2 * length).map(move |x| x % length));
            let looping: Vec<u64> = looping
                .flat_map(|x| [Some(x), prng.chance(30).then(|| 100 + x % 3)])
                .flatten()
                .collect();
            compare(spec, classic, capacity, looping);
        }
        let capacity = 250;
        let mut prng = Prng::new(9);
        let large: Vec<u64> = (0..6_000).map(|_| prng.below(900).min(prng.below(900))).collect();
        compare(spec, classic, capacity, large);
    }
}

#[test]
fn random_calls_name_the_same_victims() {
    for &(spec, twin) in TWINS {
        for seed in 0..150 {
            let mut prng = Prng::new(seed);
            let capacity = u32::try_from(1 + prng.below(10)).unwrap();
            let policy = AnyEviction::make(spec, capacity).unwrap();
            let mut run = Run {
                policy,
                twin: twin(capacity),
                resident: Vec::new(),
                refused: RefCell::default(),
                pins: 0,
                capacity,
            };
            for step in 0..150 {
                let (out, expected) = run.step(&mut prng);
                assert_eq!(out, expected, "{spec}, {capacity} frames, seed {seed}, step {step}");
            }
        }
    }
}

/// A policy and its twin under random calls.
struct Run {
    policy: AnyEviction,
    twin: Box<dyn Twin>,
    resident: Vec<(FrameId, PageId)>,
    /// What evictions were refused, and `may_leave` has not named since.
    refused: RefCell<BTreeSet<FrameId>>,
    /// A bit for each frame that may not leave.
    pins: u64,
    capacity: u32,
}

impl Run {
    /// One call or two; what was named by the policy, and by the twin.
    fn step(&mut self, prng: &mut Prng) -> (Vec<FrameId>, Vec<FrameId>) {
        let mut small = |bound| u32::try_from(prng.below(bound)).unwrap();
        let (percent, nth, batch) = (small(100), small(16) as usize, small(5));
        let (new, number) = (FrameId(small(25)), small(16));
        let chosen = self.resident.get(nth % self.resident.len().max(1)).copied();
        let mut named = (Vec::new(), Vec::new());
        match (percent, chosen) {
            (0..50, _) => {
                let page = page(number.into());
                if self.resident.iter().any(|&(frame, other)| frame == new || other == page) {
                    return named;
                }
                let prefetched = prng.chance(30);
                if !prefetched && prng.chance(90) {
                    self.policy.missed(page);
                    self.twin.missed(page);
                }
                if self.resident.len() >= self.capacity as usize {
                    let pins = if prng.chance(50) { 0 } else { self.pins };
                    named = self.evict(1, pins);
                }
                self.policy.insert(new, page, prefetched);
                self.twin.insert(new, page, prefetched);
                self.resident.push((new, page));
            }
            (50..78, Some((frame, _))) => {
                self.policy.renew(frame);
                self.twin.renew(frame);
            }
            (78..90, _) => {
                self.pins ^= prng.draw() & prng.draw() & prng.draw();
                named = self.evict(batch, self.pins);
            }
            (90..95, Some((frame, _))) => {
                self.policy.forget(frame);
                self.twin.forget(frame);
                self.resident.retain(|&(other, _)| other != frame);
                self.refused.get_mut().remove(&frame);
            }
            (95.., _) => {
                self.capacity = 1 + number;
                self.policy.resize(self.capacity);
                self.twin.resize(self.capacity);
            }
            (50.., None) => {}
        }
        named
    }

    fn evict(&mut self, count: u32, pins: u64) -> (Vec<FrameId>, Vec<FrameId>) {
        let pinned = |frame: FrameId| pins >> frame.0 & 1 == 1;
        self.refused.get_mut().retain(|&frame| {
            if !pinned(frame) {
                self.policy.may_leave(frame);
            }
            pinned(frame)
        });
        let evictable = |frame: FrameId| {
            if pinned(frame) {
                self.refused.borrow_mut().insert(frame);
            }
            !pinned(frame)
        };
        let mut out = Vec::new();
        self.policy.evict(count, &evictable, &mut out);
        self.resident.retain(|(frame, _)| !out.contains(frame));
        (out, self.twin.evict(count, &pinned))
    }
}

/// Every sequence of `length` pages up to renaming: each is one seen before, or the next number.
fn sequences(length: usize) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        all = all
            .iter()
            .flat_map(|pages: &Vec<u64>| {
                let next = pages.iter().max().map_or(0, |page| page + 1);
                (0..=next).map(|page| [pages.as_slice(), &[page]].concat())
            })
            .collect();
    }
    all
}

/// Takes the first `count` for which `may_leave` holds; the others keep their places.
fn take<T: Copy>(list: &mut Vec<T>, count: u32, may_leave: impl Fn(&T) -> bool) -> Vec<T> {
    let mut taken = Vec::new();
    list.retain(|item| {
        let leaves = taken.len() < count as usize && may_leave(item);
        if leaves {
            taken.push(*item);
        }
        !leaves
    });
    taken
}

fn part((number, of): (u32, u32), whole: u32) -> usize {
    (whole * number / of) as usize
}

fn len<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).expect("few")
}

fn page(number: u64) -> PageId {
    PageId { file: FileId(0), index: number }
}
