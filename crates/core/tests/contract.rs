//! The contract: every listed policy against a plain model.
//!
//! The model knows which frames are resident, nothing of their order. So it finds a policy that
//! names a frame twice, one that is pinned or not there, or too few of them; which frame is
//! the right one is for `twins.rs` to say. Each step is also taken by the enum that partitions
//! hold, which must name the same frames.
//!
//! # Invariants
//! - Policies are taken from the list alone: a new one is tested here without being named.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forerun_core::eviction::{AnyEviction, Eviction, NAMES, WithEviction, dispatch, show};
use forerun_core::params::ParamError;
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, FrameId, PageId};

/// A policy, its enum, and what is known to be resident.
struct Pair<E> {
    policy: E,
    any: AnyEviction,
    resident: BTreeMap<FrameId, PageId>,
    /// What evictions were refused, and `may_leave` has not named since.
    refused: RefCell<BTreeSet<FrameId>>,
    why: String,
}

impl<E: Eviction> Pair<E> {
    fn new(spec: &str, capacity: u32, params: E::Params) -> Self {
        Self {
            policy: E::new(capacity, params),
            any: AnyEviction::make(spec, capacity).expect("the spec is known"),
            resident: BTreeMap::new(),
            refused: RefCell::default(),
            why: format!("{spec} for {capacity} frames"),
        }
    }

    fn missed(&mut self, page: PageId) {
        self.policy.missed(page);
        self.any.missed(page);
    }

    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
        self.policy.insert(frame, page, prefetched);
        self.any.insert(frame, page, prefetched);
        assert!(self.resident.insert(frame, page).is_none());
    }

    fn renew(&mut self, frame: FrameId) {
        self.policy.renew(frame);
        self.any.renew(frame);
    }

    /// One by one in the policy, all at once in the enum.
    fn renew_all(&mut self, frames: &[FrameId]) {
        for &frame in frames {
            self.policy.renew(frame);
        }
        self.any.renew_all(frames);
    }

    fn forget(&mut self, frame: FrameId) {
        self.policy.forget(frame);
        self.any.forget(frame);
        assert!(self.resident.remove(&frame).is_some());
        self.refused.get_mut().remove(&frame);
    }

    /// What was refused and is not `pinned` may leave.
    fn unpin(&mut self, pinned: &BTreeSet<FrameId>) {
        let refused = core::mem::take(self.refused.get_mut());
        for frame in refused {
            if pinned.contains(&frame) {
                self.refused.get_mut().insert(frame);
            } else {
                self.policy.may_leave(frame);
                self.any.may_leave(frame);
            }
        }
    }

    fn resize(&mut self, capacity: u32) {
        self.policy.resize(capacity);
        self.any.resize(capacity);
    }

    /// Evicts, and holds what was named to the contract.
    fn evict(&mut self, count: u32, pinned: &BTreeSet<FrameId>) -> Vec<FrameId> {
        self.unpin(pinned);
        let before = FrameId(u32::MAX);
        let (mut out, mut out_any) = (vec![before], vec![before]);
        let evictable = |frame: FrameId| {
            assert!(self.resident.contains_key(&frame), "{}: asked for {frame:?}", self.why);
            let refused = pinned.contains(&frame);
            if refused {
                self.refused.borrow_mut().insert(frame);
            }
            !refused
        };
        let possible = self.resident.keys().filter(|frame| !pinned.contains(frame)).count();
        self.policy.evict(count, &evictable, &mut out);
        self.any.evict(count, &evictable, &mut out_any);
        assert_eq!(out, out_any, "{}: the enum differs", self.why);
        assert_eq!(out.remove(0), before, "{}: what was there is left alone", self.why);
        assert_eq!(out.len(), possible.min(count as usize), "{}: {count} wanted", self.why);
        for frame in &out {
            assert!(!pinned.contains(frame), "{}: {frame:?} is pinned", self.why);
            let there = self.resident.remove(frame).is_some();
            assert!(there, "{}: {frame:?} named twice or not resident", self.why);
        }
        out
    }

    fn any_resident(&self, prng: &mut Prng) -> Option<FrameId> {
        let nth = prng.below(self.resident.len().max(1) as u64);
        self.resident.keys().nth(usize::try_from(nth).unwrap()).copied()
    }
}

/// Random calls, sizes and pins.
struct Random<'a> {
    spec: &'a str,
    seed: u64,
}

impl WithEviction for Random<'_> {
    type Output = ();

    fn with<E: Eviction>(self, params: E::Params) {
        let mut prng = Prng::new(self.seed);
        let mut below = |bound| u32::try_from(prng.below(bound)).unwrap();
        let (mut capacity, frames) = (1 + below(12), 1 + below(40));
        let mut pair = Pair::<E>::new(self.spec, capacity, params);
        for step in 0..200 {
            let percent = prng.below(100);
            let chosen = pair.any_resident(&mut prng);
            match (percent, chosen) {
                (0..50, _) => {
                    // A miss: make room first, as a cache does, though now and then it is late.
                    let page = PageId { file: FileId(0), index: prng.below(30) };
                    let frame = FrameId(u32::try_from(prng.below(frames.into())).unwrap());
                    let resident = pair.resident.values().any(|&other| other == page);
                    if resident || pair.resident.contains_key(&frame) {
                        continue;
                    }
                    let prefetched = prng.chance(30);
                    if !prefetched {
                        pair.missed(page);
                    }
                    let full = pair.resident.len() >= capacity as usize;
                    if full && prng.chance(90) {
                        assert_eq!(pair.evict(1, &BTreeSet::new()).len(), 1);
                    }
                    pair.insert(frame, page, prefetched);
                }
                (50..65, Some(frame)) => pair.renew(frame),
                (65..75, Some(_)) => {
                    let count = prng.below(8);
                    let frames: Vec<FrameId> =
                        (0..count).filter_map(|_| pair.any_resident(&mut prng)).collect();
                    pair.renew_all(&frames);
                }
                (75..88, _) => {
                    let some = |_: &&FrameId| prng.chance(30);
                    let pinned = pair.resident.keys().filter(some).copied().collect();
                    let count = u32::try_from(prng.below(6)).unwrap();
                    pair.evict(count, &pinned);
                }
                (88..95, Some(frame)) => pair.forget(frame),
                (95.., _) => {
                    capacity = 1 + u32::try_from(prng.below(12)).unwrap();
                    pair.resize(capacity);
                    let excess = pair.resident.len().saturating_sub(capacity as usize);
                    if prng.chance(50) {
                        pair.evict(u32::try_from(excess).unwrap(), &BTreeSet::new());
                        assert!(pair.resident.len() <= capacity as usize, "step {step}");
                    }
                }
                (50.., None) => {}
            }
        }
        pair.evict(u32::MAX, &BTreeSet::new());
        assert!(pair.resident.is_empty());
        pair.evict(1, &BTreeSet::new());
    }
}

/// What a policy must do whatever its order is, said one by one.
struct Plain<'a> {
    spec: &'a str,
}

impl WithEviction for Plain<'_> {
    type Output = ();

    fn with<E: Eviction>(self, params: E::Params) {
        let none = BTreeSet::new();
        let page = |index| PageId { file: FileId(1), index };
        let mut pair = Pair::<E>::new(self.spec, 4, params);
        assert_eq!(pair.evict(3, &none), [], "nothing is there yet");

        // Frame numbers are global: they begin anywhere.
        for number in 0..4 {
            pair.insert(FrameId(1_000 - number), page(number.into()), false);
        }
        assert_eq!(pair.evict(0, &none), [], "nothing is wanted");
        let all: BTreeSet<_> = pair.resident.keys().copied().collect();
        assert_eq!(pair.evict(4, &all), [], "all are pinned");
        let but_one = all.iter().copied().filter(|frame| frame.0 != 998).collect();
        assert_eq!(pair.evict(4, &but_one), [FrameId(998)], "the only one that may leave");
        assert_eq!(pair.evict(2, &none).len(), 2);

        // The same frame, another page; the same page, another frame.
        pair.forget(*pair.resident.keys().next().expect("one is left"));
        assert_eq!(pair.evict(1, &none), []);
        for round in 0..20 {
            pair.insert(FrameId(5), page(round % 3), round % 2 == 0);
            pair.renew(FrameId(5));
            pair.renew(FrameId(5));
            assert_eq!(pair.evict(1, &none), [FrameId(5)]);
        }

        // Shrunk below what is resident: all stay until they are evicted.
        for number in 0..4 {
            pair.insert(FrameId(number), page(number.into()), true);
        }
        pair.resize(1);
        assert_eq!(pair.evict(3, &none).len(), 3);
        pair.resize(8);
        for number in 10..17 {
            pair.insert(FrameId(number), page(number.into()), false);
        }
        assert_eq!(pair.evict(9, &none).len(), 8);
    }
}

/// Sequential pages through a small cache, without end: what is remembered stays bounded, so the
/// frames named settle into a period.
struct Scan<'a> {
    spec: &'a str,
}

impl WithEviction for Scan<'_> {
    type Output = ();

    fn with<E: Eviction>(self, params: E::Params) {
        let mut pair = Pair::<E>::new(self.spec, 3, params);
        for index in 0..2_000_u32 {
            let frame = match pair.resident.len() {
                3 => pair.evict(1, &BTreeSet::new())[0],
                _ => FrameId(index),
            };
            pair.insert(frame, PageId { file: FileId(2), index: index.into() }, false);
            assert!(pair.resident.len() <= 3);
        }
    }
}

/// How often evictions ask of a frame, where most may not leave: as pages become dirty and clean,
/// each eviction asks of a few.
struct Steps<'a> {
    spec: &'a str,
    frames: u32,
}

impl WithEviction for Steps<'_> {
    type Output = ();

    fn with<E: Eviction>(self, params: E::Params) {
        let Self { spec, frames } = self;
        let mut policy = E::new(frames, params);
        let mut prng = Prng::new(frames.into());
        let page = |index| PageId { file: FileId(0), index };
        for number in 0..frames {
            policy.missed(page(number.into()));
            policy.insert(FrameId(number), page(number.into()), false);
        }
        let clean_from = frames - 16;
        let mut dirty: VecDeque<FrameId> = (0..clean_from).map(FrameId).collect();
        let mut is_dirty: Vec<bool> = (0..frames).map(|number| number < clean_from).collect();
        let (asked, mut calls) = (Cell::new(0_u64), 2 * u64::from(frames));
        for number in frames..5 * frames {
            let (mut out, number) = (Vec::new(), number.into());
            let evictable = |frame: FrameId| {
                asked.set(asked.get() + 1);
                !is_dirty[frame.0 as usize]
            };
            policy.missed(page(number));
            policy.evict(1, &evictable, &mut out);
            policy.insert(out[0], page(number), false);
            calls += 2;
            let used = FrameId(u32::try_from(prng.below(frames.into())).unwrap());
            if number % 2 == 0 {
                policy.renew(used);
                calls += 1;
            }
            if number % 4 == 0 {
                let cleaned = dirty.pop_front().expect("most are dirty");
                is_dirty[cleaned.0 as usize] = false;
                is_dirty[out[0].0 as usize] = true;
                dirty.push_back(out[0]);
                policy.may_leave(cleaned);
                calls += 1;
            }
        }
        let (asked, most) = (asked.get(), 2 * calls);
        assert!(asked <= most, "{spec}, {frames} frames: asked {asked} times in {calls} calls");
    }
}

/// Every policy by its name, and the parameters at their ends where it has some.
fn specs() -> Vec<String> {
    let mut specs = Vec::new();
    for name in NAMES {
        specs.push((*name).to_string());
        for (key, _) in show(name).expect("listed names are known") {
            for value in ["0", "1"] {
                let spec = format!("{name}:{key}={value}");
                if show(&spec).is_ok() {
                    specs.push(spec);
                }
            }
        }
    }
    specs
}

#[test]
fn every_listed_policy_keeps_the_contract_under_random_calls() {
    for spec in specs() {
        for seed in 0..60 {
            dispatch(&spec, Random { spec: &spec, seed }).unwrap();
        }
    }
}

#[test]
fn every_listed_policy_keeps_the_contract_in_plain_cases() {
    for spec in specs() {
        dispatch(&spec, Plain { spec: &spec }).unwrap();
        dispatch(&spec, Scan { spec: &spec }).unwrap();
    }
}

#[test]
fn what_an_eviction_costs_does_not_grow_with_what_may_not_leave() {
    for spec in specs() {
        for frames in [64, 2_000] {
            dispatch(&spec, Steps { spec: &spec, frames }).unwrap();
        }
    }
}

#[test]
fn names_are_found_and_unlike() {
    struct Name;
    impl WithEviction for Name {
        type Output = &'static str;
        fn with<E: Eviction>(self, _: E::Params) -> &'static str {
            E::NAME
        }
    }
    assert_eq!(NAMES.iter().collect::<BTreeSet<_>>().len(), NAMES.len());
    for name in NAMES {
        assert_eq!(dispatch(name, Name), Ok(*name));
        assert_eq!(dispatch(&format!("{name}:"), Name), Ok(*name));
    }
}

#[test]
fn what_is_not_known_is_refused() {
    let name = || ParamError::UnknownName { name: "lur".into(), known: NAMES.to_vec() };
    assert_eq!(show("lur:x=1"), Err(name()));
    assert_eq!(AnyEviction::make("lur", 4).err(), Some(name()));
    for name in NAMES {
        let spec = format!("{name}:no_such_key=1");
        assert!(matches!(show(&spec), Err(ParamError::UnknownKey { .. })), "{spec}");
        assert!(matches!(AnyEviction::make(&spec, 4), Err(ParamError::UnknownKey { .. })));
    }
}

#[test]
fn a_policy_made_by_hand_fits_the_enum() {
    let mut any = AnyEviction::make("lru", 2).expect("it is listed");
    any.insert(FrameId(1), PageId::default(), false);
    let mut out = Vec::new();
    any.evict(1, &|_| true, &mut out);
    assert_eq!(out, [FrameId(1)]);
}

#[test]
fn defaults_are_those_of_the_papers() {
    #[rustfmt::skip]
    let rows: [(&str, &[(&str, &str)]); 12] = [
        ("fifo",         &[]),
        ("lru",          &[]),
        ("lfu",          &[]),
        ("clock",        &[]),
        ("arc",          &[]),
        ("lirs",         &[("hirs", "0.01"), ("ghost", "40"), ("least", "4096")]),
        ("s3-fifo",      &[("small", "0.1"), ("ghost", "0.9"), ("uses", "2")]),
        ("sieve",        &[]),
        ("w-tinylfu",    &[("window", "0.01"), ("protected", "0.8"), ("sample", "10")]),
        ("2q",           &[("kin", "0.25"), ("kout", "0.5")]),
        ("2q-star",      &[("kin", "0.1"), ("kout", "1")]),
        ("2q:kout=0.75", &[("kin", "0.25"), ("kout", "0.75")]),
    ];
    for (spec, expected) in rows {
        let shown = show(spec).unwrap();
        let shown: Vec<_> = shown.iter().map(|(key, value)| (*key, value.as_str())).collect();
        assert_eq!(shown, expected, "{spec}");
    }
}
