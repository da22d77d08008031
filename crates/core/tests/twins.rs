//! Twins: each policy against its paper's pseudo-code over plain vectors.
//!
//! A twin is written to be compared with the paper by eye, not to be fast. Policy and twin get the
//! same calls and must name the same frames in the same order: under all short sequences of
//! accesses at tiny sizes, and under random calls with pins, pages read ahead, pages that vanish,
//! batches and changes of size. The 2Q family has a second twin: the classic `access(page)`, where
//! a miss frees just one slot.
//!
//! ```text
//!   a vector:  [0] oldest, leaves first  ...  last, newest
//! ```
//!
//! # Sources
//! Each twin names its own.

use std::collections::BTreeSet;

use forerun_core::eviction::{AnyEviction, NAMES};
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, FrameId, PageId};

type Pinned<'a> = &'a dyn Fn(FrameId) -> bool;

/// What a policy does, said plainly.
trait Twin {
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
    ("fifo",                  |_| Box::new(Fifo::default())),
    ("lru",                   |_| Box::new(Lru::default())),
    ("clock",                 |_| Box::new(Clock::default())),
    ("2q",                    |capacity| TwoQ::boxed(false, (1, 4), (1, 2), capacity)),
    ("2q:kin=0.5,kout=1",     |capacity| TwoQ::boxed(false, (1, 2), (1, 1), capacity)),
    ("2q:kin=1,kout=2",       |capacity| TwoQ::boxed(false, (1, 1), (2, 1), capacity)),
    ("2q-star",               |capacity| TwoQ::boxed(true, (1, 10), (1, 1), capacity)),
    ("2q-star:kin=0.5",       |capacity| TwoQ::boxed(true, (1, 2), (1, 1), capacity)),
    ("2q-star:kin=0.3,kout=0.5", |capacity| TwoQ::boxed(true, (3, 10), (1, 2), capacity)),
];

/// First in, first out.
#[derive(Default)]
struct Fifo {
    frames: Vec<FrameId>,
}

impl Twin for Fifo {
    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.frames.push(frame);
    }

    fn renew(&mut self, _: FrameId) {}

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        take(&mut self.frames, count, |&frame| !pinned(frame))
    }

    fn forget(&mut self, frame: FrameId) {
        self.frames.retain(|&other| other != frame);
    }

    fn resize(&mut self, _: u32) {}
}

/// Least recently used, by the time of the last use.
#[derive(Default)]
struct Lru {
    used: Vec<(u64, FrameId)>,
    now: u64,
}

impl Twin for Lru {
    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.now += 1;
        self.used.push((self.now, frame));
    }

    fn renew(&mut self, frame: FrameId) {
        self.forget(frame);
        self.insert(frame, PageId::default(), false);
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        self.used.sort_unstable();
        let taken = take(&mut self.used, count, |&(_, frame)| !pinned(frame));
        taken.into_iter().map(|(_, frame)| frame).collect()
    }

    fn forget(&mut self, frame: FrameId) {
        self.used.retain(|&(_, other)| other != frame);
    }

    fn resize(&mut self, _: u32) {}
}

/// Corbato 1968, one bit: the hand stands at the oldest frame that it may take.
#[derive(Default)]
struct Clock {
    ring: Vec<(FrameId, bool)>,
}

impl Twin for Clock {
    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.ring.push((frame, false));
    }

    fn renew(&mut self, frame: FrameId) {
        let entry = self.ring.iter_mut().find(|(other, _)| *other == frame);
        entry.expect("only resident frames are used").1 = true;
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        let mut out = Vec::new();
        while out.len() < count as usize {
            let Some(hand) = self.ring.iter().position(|&(frame, _)| !pinned(frame)) else {
                break;
            };
            match self.ring.remove(hand) {
                (frame, true) => self.ring.push((frame, false)),
                (frame, false) => out.push(frame),
            }
        }
        out
    }

    fn forget(&mut self, frame: FrameId) {
        self.ring.retain(|&(other, _)| other != frame);
    }

    fn resize(&mut self, _: u32) {}
}

/// FlexiCache's listing of 2Q* (Meng et al. 2009, section 4), whose A1in is FIFO in 2Q. Ours: pages
/// of A1in that were read ahead and not used leave after those that were.
struct TwoQ {
    star: bool,
    kin: (u32, u32),
    kout: (u32, u32),
    capacity: u32,
    a1in: Vec<Block>,
    am: Vec<Block>,
    a1out: Vec<PageId>,
    /// Pages that came so far.
    arrivals: u32,
}

#[derive(Clone, Copy)]
struct Block {
    frame: FrameId,
    page: PageId,
    pref: bool,
    hot: bool,
    /// The how manyth page it was.
    arrival: u32,
}

impl TwoQ {
    fn boxed(star: bool, kin: (u32, u32), kout: (u32, u32), capacity: u32) -> Box<dyn Twin> {
        let (a1in, am, a1out) = (Vec::new(), Vec::new(), Vec::new());
        Box::new(Self { star, kin, kout, capacity, a1in, am, a1out, arrivals: 0 })
    }

    /// Names beyond the limit go once the next page has looked for its own, or the size changed.
    fn trim(&mut self) {
        let excess = self.a1out.len().saturating_sub(part(self.kout, self.capacity));
        self.a1out.drain(..excess);
    }

    /// What leaves A1in: wrong guesses, used pages but for a sixteenth, unread ones, the rest.
    fn leave_a1in(&mut self, count: u32, may_leave: &dyn Fn(&Block) -> bool) -> Vec<Block> {
        let mut out = Vec::new();
        while len(&out) < count {
            let Some(oldest) = self.a1in.iter().find(|x| x.pref) else { break };
            if self.arrivals - oldest.arrival < 4 * self.capacity {
                break;
            }
            let stale = take(&mut self.a1in, 1, |x| x.pref && may_leave(x));
            if stale.is_empty() {
                break;
            }
            out.extend(stale);
        }
        let used = self.a1in.iter().filter(|x| !x.pref).count();
        let used = u32::try_from(used.saturating_sub(self.a1in.len() / 16)).unwrap();
        let first = used.min(count - len(&out));
        out.extend(take(&mut self.a1in, first, |x| !x.pref && may_leave(x)));
        out.extend(take(&mut self.a1in, count - len(&out), |x| x.pref && may_leave(x)));
        out.extend(take(&mut self.a1in, count - len(&out), may_leave));
        out
    }
}

impl Twin for TwoQ {
    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let mut x = Block { frame, page, pref: prefetched, hot: false, arrival };
        if self.a1out.contains(&page) {
            self.a1out.retain(|&other| other != page);
            x.hot = true;
            if x.pref { self.a1in.push(x) } else { self.am.push(x) }
        } else {
            self.a1in.push(x);
        }
        self.trim();
    }

    fn renew(&mut self, frame: FrameId) {
        let all = self.a1in.iter().chain(&self.am);
        let mut x = *all.clone().find(|x| x.frame == frame).expect("resident");
        let first = core::mem::take(&mut x.pref);
        if x.hot {
            self.forget(frame);
            self.am.push(x);
        } else if self.star || first {
            self.forget(frame);
            self.a1in.push(x);
        }
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        let may_leave = |x: &Block| !pinned(x.frame);
        let resident = u32::try_from(self.a1in.len() + self.am.len()).unwrap();
        // One more than what will be left: the page that this is for.
        let limit = part(self.kin, resident.saturating_sub(count) + 1);
        let a1in_first = self.a1in.len() > limit;
        let (most, rest) = if a1in_first {
            let most = self.leave_a1in(count, &may_leave);
            let rest = take(&mut self.am, count - len(&most), may_leave);
            (most, rest)
        } else {
            let most = take(&mut self.am, count, may_leave);
            let rest = self.leave_a1in(count - len(&most), &may_leave);
            (most, rest)
        };
        if part(self.kout, self.capacity) > 0 {
            let from_a1in = if a1in_first { &most } else { &rest };
            self.a1out.extend(from_a1in.iter().map(|x| x.page));
        }
        most.iter().chain(&rest).map(|x| x.frame).collect()
    }

    fn forget(&mut self, frame: FrameId) {
        self.a1in.retain(|x| x.frame != frame);
        self.am.retain(|x| x.frame != frame);
    }

    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.trim();
    }
}

/// 2Q as its paper has it (Johnson and Shasha 1994), and 2Q* as its own (Meng et al. 2009,
/// section 3): one call an access, one slot freed a miss.
struct Classic {
    star: bool,
    kin: usize,
    kout: usize,
    capacity: usize,
    a1in: Vec<u64>,
    am: Vec<u64>,
    a1out: Vec<u64>,
}

impl Classic {
    /// What leaves, if anything does.
    fn access(&mut self, b: u64) -> Option<u64> {
        if self.am.contains(&b) {
            self.am.retain(|&other| other != b);
            self.am.push(b);
            None
        } else if self.a1in.contains(&b) {
            if self.star {
                self.a1in.retain(|&other| other != b);
                self.a1in.push(b);
            }
            None
        } else if self.a1out.contains(&b) {
            self.a1out.retain(|&other| other != b);
            let left = self.free_a_slot();
            self.am.push(b);
            left
        } else {
            let left = self.free_a_slot();
            self.a1in.push(b);
            left
        }
    }

    fn free_a_slot(&mut self) -> Option<u64> {
        if self.a1in.len() + self.am.len() < self.capacity {
            return None;
        }
        if self.a1in.len() <= self.kin && !self.am.is_empty() {
            return Some(self.am.remove(0));
        }
        let y = self.a1in.remove(0);
        self.a1out.push(y);
        if self.a1out.len() > self.kout {
            self.a1out.remove(0);
        }
        Some(y)
    }
}

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

    /// Uses `number`, or only fetches it; what `twin` is told is the same. Gives what left.
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

#[test]
fn one_eviction_a_miss_on_a_full_cache_is_the_classic_algorithm() {
    #[rustfmt::skip]
    let rows = [ // spec                   star   kin      kout
        ("2q",                             false, (1, 4),  (1, 2)),
        ("2q:kin=0.5,kout=1",              false, (1, 2),  (1, 1)),
        ("2q-star",                        true,  (1, 10), (1, 1)),
        ("2q-star:kin=0.5,kout=0.5",       true,  (1, 2),  (1, 2)),
    ];
    for (spec, star, kin, kout) in rows {
        let classic = |capacity| Classic {
            star,
            kin: part(kin, capacity),
            kout: part(kout, capacity),
            capacity: capacity as usize,
            a1in: Vec::new(),
            am: Vec::new(),
            a1out: Vec::new(),
        };
        for capacity in 1..=4 {
            for pages in sequences(8) {
                let (mut cached, mut classic) = (Cached::new(spec, capacity), classic(capacity));
                for &page in &pages {
                    let left = cached.access(page, true, None);
                    assert_eq!(left, classic.access(page), "{spec}, {capacity} frames: {pages:?}");
                }
            }
        }
        for seed in 0..60 {
            let mut prng = Prng::new(seed);
            let capacity = u32::try_from(1 + prng.below(24)).unwrap();
            let (mut cached, mut classic) = (Cached::new(spec, capacity), classic(capacity));
            for _ in 0..400 {
                let page = prng.below(30).min(prng.below(30));
                let left = cached.access(page, true, None);
                assert_eq!(left, classic.access(page), "{spec}, {capacity} frames, seed {seed}");
            }
        }
    }
}

#[test]
fn random_calls_name_the_same_victims() {
    for &(spec, twin) in TWINS {
        for seed in 0..150 {
            let mut prng = Prng::new(seed);
            let capacity = u32::try_from(1 + prng.below(10)).unwrap();
            let policy = AnyEviction::make(spec, capacity).unwrap();
            let mut run = Run { policy, twin: twin(capacity), resident: Vec::new(), capacity };
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
                if self.resident.len() >= self.capacity as usize {
                    named = self.evict(1, &|_| false);
                }
                let prefetched = prng.chance(30);
                self.policy.insert(new, page, prefetched);
                self.twin.insert(new, page, prefetched);
                self.resident.push((new, page));
            }
            (50..78, Some((frame, _))) => {
                self.policy.renew(frame);
                self.twin.renew(frame);
            }
            (78..90, _) => {
                let pins = prng.draw() & prng.draw();
                named = self.evict(batch, &|frame| pins >> frame.0 & 1 == 1);
            }
            (90..95, Some((frame, _))) => {
                self.policy.forget(frame);
                self.twin.forget(frame);
                self.resident.retain(|&(other, _)| other != frame);
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

    fn evict(&mut self, count: u32, pinned: Pinned) -> (Vec<FrameId>, Vec<FrameId>) {
        let mut out = Vec::new();
        self.policy.evict(count, &|frame| !pinned(frame), &mut out);
        self.resident.retain(|(frame, _)| !out.contains(frame));
        (out, self.twin.evict(count, pinned))
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
