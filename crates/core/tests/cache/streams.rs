//! `streams` on the cache: what it remembers lies with marked pages, whatever happens to them; see
//! [`Rig`].

use std::collections::BTreeSet;

use forerun_core::cache::Settings;
use forerun_core::device::DeviceKind;
use forerun_core::device::estimate::DeviceProfile;
use forerun_core::event::Event;
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, HandleId};

use crate::spied::{Rig, facts};

/// Every sequence of `length` of `reads`, as indices.
fn sequences(reads: usize, length: u32) -> impl Iterator<Item = Vec<usize>> {
    let count = reads.pow(length);
    (0..count).map(move |number| (0..length).map(|at| number / reads.pow(at) % reads).collect())
}

/// All sequences of `reads` of `length` in a file of five pages, with memory for few and for all.
fn run_all(reads: &[(u32, u64, u32, bool)], length: u32) {
    let mut windows = 0;
    for (kind, frames, ahead_pages_max) in [
        (DeviceKind::SeekBound, 12, 5),
        (DeviceKind::SeekBound, 3, 2),
        (DeviceKind::Parallel, 12, 5),
        (DeviceKind::Parallel, 4, 4),
        (DeviceKind::Parallel, 3, 1),
    ] {
        let mut settings = Settings::new(frames, "lru", "off");
        settings.ahead_pages_max = ahead_pages_max;
        settings.request_pages_max = 2;
        settings.device = Some(facts(kind, 2));
        for sequence in sequences(reads.len(), length) {
            let mut rig = Rig::new(settings.clone());
            let mut ends = [None; 2];
            rig.open(0, 0, 5);
            rig.open(1, 0, 5);
            for &at in &sequence {
                let (handle, first, count, congested) = reads[at];
                let end = &mut ends[handle as usize];
                rig.read(handle, first, count, congested, *end);
                *end = Some(first + u64::from(count));
                rig.check();
                rig.arrive();
                rig.check();
            }
            windows += rig.spy.0.lock().unwrap().at_markers;
        }
    }
    assert!(windows > 1_000, "{windows} markers were met");
}

#[test]
fn short_sequences_of_reads_of_one_or_two_pages_by_two_handles_keep_the_bounds() {
    let mut reads = Vec::new();
    for handle in 0..2 {
        reads.extend((0..5).map(|first| (handle, first, 1, false)));
        reads.extend((0..4).map(|first| (handle, first, 2, false)));
    }
    run_all(&reads, 3);
}

#[test]
fn longer_sequences_of_reads_of_one_page_keep_the_bounds() {
    let reads: Vec<_> = (0..5).map(|first| (0, first, 1, false)).collect();
    run_all(&reads, 6);
    let two: Vec<_> = (0..5).flat_map(|at| [(0, at, 1, false), (1, at, 1, true)]).collect();
    run_all(&two, 4);
}

/// Reads that mostly go on, in any order, with all that may happen to pages in between.
struct Workload {
    prng: Prng,
    /// Of each handle: its file, where it reads on, whether backward.
    handles: Vec<Option<(u32, u64, bool)>>,
    previous: Vec<Option<u64>>,
    /// Of each handle: pages from a piece to the next; 0: it has no pieces.
    steps: Vec<u64>,
    file_pages: Vec<u64>,
    /// Pages of a file at most.
    largest: u64,
}

impl Workload {
    fn step(&mut self, rig: &mut Rig) {
        let handle = u32::try_from(self.prng.below(self.handles.len() as u64)).unwrap();
        let at = handle as usize;
        match self.prng.below(40) {
            0 => self.reopen(rig, handle),
            1 => {
                let file = self.prng.below(self.file_pages.len() as u64);
                let pages = 1 + self.prng.below(self.largest);
                self.file_pages[usize::try_from(file).unwrap()] = pages;
                rig.send(Event::Truncate { file: FileId(u32::try_from(file).unwrap()), pages });
            }
            2 => {
                let file = FileId(u32::try_from(self.prng.below(3)).unwrap());
                let (first, count) = (self.prng.below(self.largest), 1 + self.prng.below(40));
                rig.send(Event::Invalidate { file, first, count });
            }
            3..=5 if !rig.outside.published.is_empty() => {
                let nth = self.prng.below(rig.outside.published.len() as u64);
                let frame = rig.outside.published.keys().nth(usize::try_from(nth).unwrap());
                rig.outside.held.extend(frame);
            }
            6 => {
                rig.outside.held.clear();
                rig.send(Event::Tick);
            }
            7..=16 if !rig.outside.in_flight.is_empty() => {
                let at = self.prng.below(rig.outside.in_flight.len() as u64);
                let good = self.prng.chance(90);
                rig.end(usize::try_from(at).unwrap(), good);
            }
            17 => rig.arrive(),
            _ if self.handles[at].is_some() => self.read(rig, handle),
            _ => self.reopen(rig, handle),
        }
    }

    fn reopen(&mut self, rig: &mut Rig, handle: u32) {
        let at = handle as usize;
        if rig.outside.waiting.values().any(|&waits| waits == HandleId(handle)) {
            return;
        }
        if self.handles[at].take().is_some() {
            return rig.send(Event::Close { handle: HandleId(handle) });
        }
        let file = u32::try_from(self.prng.below(self.file_pages.len() as u64)).unwrap();
        let pages = self.file_pages[file as usize];
        let place = if self.prng.chance(50) { 0 } else { self.prng.below(pages) };
        self.handles[at] = Some((file, place, self.prng.chance(30)));
        self.previous[at] = None;
        if self.steps[at] > 0 {
            self.steps[at] = 2 + self.prng.below(self.largest / 12);
        }
        rig.open(handle, file, pages);
    }

    fn read(&mut self, rig: &mut Rig, handle: u32) {
        let at = handle as usize;
        let (file, mut place, mut backward) = self.handles[at].expect("it is open");
        let pages = self.file_pages[file as usize];
        if self.prng.chance(5) {
            (place, backward) = (self.prng.below(pages), self.prng.chance(30));
        }
        let count = 1 + self.prng.below(4);
        let first = if backward { place.saturating_sub(count) } else { place };
        let first = first.min(pages - 1);
        let count = count.min(pages - first);
        let congested = self.prng.chance(20);
        let short = u32::try_from(count).unwrap();
        rig.read(handle, first, short, congested, self.previous[at]);
        self.previous[at] = Some(first + count);
        let place = match self.steps[at] {
            0 if backward => first,
            0 => first + count,
            step => first + step,
        };
        self.handles[at] = Some((file, if place < pages { place } else { 0 }, backward));
    }
}

#[test]
fn whatever_happens_to_pages_no_record_is_left_without_its_marker() {
    for largest in [300, 4_000, 40_000] {
        whatever_happens(largest);
    }
}

/// Some handles read pieces where files are large.
fn whatever_happens(largest: u64) {
    let (mut met, mut taken) = (0, 0);
    for seed in 0..400 {
        let mut prng = Prng::new(seed);
        let frames = 8 + u32::try_from(prng.below(120)).unwrap();
        let mut settings = Settings::new(frames, "lru", "off");
        settings.ahead_pages_max = 1 + u32::try_from(prng.below(frames.into())).unwrap();
        settings.request_pages_max = 1 << prng.below(6);
        settings.pool_high = u32::try_from(prng.below(3)).unwrap();
        let kind = if prng.chance(50) { DeviceKind::SeekBound } else { DeviceKind::Parallel };
        settings.device = prng.chance(80).then(|| facts(kind, 1 << prng.below(8)));
        let mut rig = Rig::new(settings);
        let mut load = Workload {
            prng,
            handles: vec![None; 6],
            previous: vec![None; 6],
            steps: if largest > 300 { vec![0, 1, 1, 1, 1, 1] } else { vec![0; 6] },
            file_pages: vec![largest; 3],
            largest,
        };
        for _ in 0..1_000 {
            load.step(&mut rig);
            rig.check();
        }
        met += rig.spy.0.lock().unwrap().at_markers;
        taken += rig.spy.0.lock().unwrap().taken;
        finish(&mut rig, &load, seed);
    }
    assert!(met > 10_000 && taken > 10_000, "{met} markers were met, {taken} taken back");
}

#[test]
fn a_stream_outlives_the_eviction_of_its_marker_if_a_reader_holds_the_page() {
    for held in [true, false] {
        let mut settings = Settings::new(16, "lru", "off");
        settings.device = Some(facts(DeviceKind::SeekBound, 4));
        let mut rig = Rig::new(settings);
        rig.open(0, 0, 100);
        rig.read(0, 0, 1, false, None);
        rig.arrive();
        let records = rig.spy.0.lock().unwrap().records();
        let [marker] = records[..] else { panic!("one stream: {records:?}") };
        if held {
            rig.outside.held.insert(rig.cache.resident(marker).expect("it arrived"));
        }
        // All frames are named, and the unpinned ones leave.
        rig.open(1, 1, 100);
        for first in [50, 70, 90] {
            rig.read(1, first, 8, false, None);
            rig.arrive();
        }
        assert_eq!(rig.cache.resident(marker).is_some(), held);
        assert_eq!(rig.spy.0.lock().unwrap().records().contains(&marker), held);
        rig.check();
        let before = rig.outside.fetched;
        if held {
            rig.outside.held.clear();
            rig.read(0, marker.index, 1, false, None);
            assert!(rig.outside.fetched > before, "its use has the next window fetched");
        }
    }
}

/// All handles close and all pages go: nothing is left.
fn finish(rig: &mut Rig, load: &Workload, seed: u64) {
    rig.outside.held.clear();
    rig.send(Event::Tick);
    rig.arrive();
    rig.check();
    for file in 0..3 {
        rig.send(Event::Invalidate { file: FileId(file), first: 0, count: u64::MAX });
    }
    rig.arrive();
    assert_eq!(rig.outside.waiting.len(), 0, "seed {seed}");
    for (handle, open) in (0..).zip(&load.handles) {
        if open.is_some() {
            rig.send(Event::Close { handle: HandleId(handle) });
        }
    }
    assert_eq!(rig.cache.free_frames(), rig.cache.settings().frames, "seed {seed}");
    assert_eq!(rig.cache.stats().ahead_unread, 0, "seed {seed}");
    assert_eq!(rig.spy.0.lock().unwrap().records(), [], "seed {seed}");
}

#[test]
fn ten_thousand_streams_ask_twice_a_read_at_most_and_have_a_record_each_at_most() {
    ["lru", "2q-star"].into_iter().for_each(ten_thousand_streams);
}

fn ten_thousand_streams(policy: &str) {
    const STREAMS: u64 = 10_000;
    const ROUNDS: u64 = 12;
    let mut settings = Settings::new(1 << 17, policy, "off");
    settings.device = Some(facts(DeviceKind::SeekBound, 256));
    let mut rig = Rig::new(settings);
    let far = 1 << 20;
    let mut ends = [None; 8];
    for handle in 0..8 {
        rig.open(handle, 0, STREAMS * far);
    }
    let mut calls = 0;
    for round in 0..ROUNDS {
        for stream in 0..STREAMS {
            let (handle, first) = ((stream + round) % 8, stream * far + 1_000 + round);
            let end = &mut ends[usize::try_from(handle).unwrap()];
            rig.read(u32::try_from(handle).unwrap(), first, 1, false, *end);
            *end = Some(first + 1);
            rig.arrive();
            let before = core::mem::replace(&mut calls, rig.spy.0.lock().unwrap().decisions);
            assert!(calls <= before + 2, "a miss, and a marker on what it brought");
        }
    }
    let records = rig.spy.0.lock().unwrap().records().len() as u64;
    assert!(records <= STREAMS, "{records} records");
    let stats = *rig.cache.stats();
    // A stream misses its first page and its second; few of the others have left.
    let others = stats.demanded - 2 * STREAMS;
    assert!(10 * stats.hits > 8 * others, "{policy}: {stats:?}");
}

/// Pages fetched and pages wanted where `reads` requests for `count` of `file_pages` are read at
/// random.
fn at_random(
    seed: u64,
    file_pages: u64,
    (reads, count): (u64, u32),
    device: Option<DeviceProfile>,
) -> (u64, u64) {
    let mut settings = Settings::new(1 << 16, "lru", "off");
    settings.device = device;
    let mut rig = Rig::new(settings);
    rig.open(0, 0, file_pages);
    let (mut prng, mut end, mut wanted) = (Prng::new(seed), None, BTreeSet::new());
    for _ in 0..reads {
        let first = prng.below(file_pages + 1 - u64::from(count));
        let pages = first..first + u64::from(count);
        rig.read(0, first, count, false, end);
        end = Some(pages.end);
        wanted.extend(pages);
        rig.arrive();
    }
    (rig.outside.fetched, wanted.len() as u64)
}

/// Pages fetched for each thousand that are wanted, over eight seeds.
fn at_random_for(device: Option<DeviceProfile>, file_pages: u64, reads: (u64, u32)) -> u64 {
    let runs = (0..8).map(|seed| at_random(seed, file_pages, reads, device));
    let (fetched, wanted) = runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    fetched * 1_000 / wanted
}

#[test]
fn reads_at_random_fetch_hardly_more_than_they_want() {
    for file_pages in [1_000, 3_000, 10_000, 30_000, 100_000, 1 << 20, 1 << 24] {
        for (kind, reach) in [(DeviceKind::SeekBound, 256), (DeviceKind::Parallel, 25)] {
            // A request of a page, and one that lies across two.
            for reads in [(4_000, 1), (20_000, 1), (2_000, 2), (10_000, 2)] {
                let per_mille = at_random_for(Some(facts(kind, reach)), file_pages, reads);
                let why = format!("{kind:?}, {file_pages} pages, {reads:?} reads");
                assert!(per_mille <= MOST_PER_MILLE, "{why}: {per_mille}");
            }
        }
    }
}

const MOST_PER_MILLE: u64 = 1_050;

/// Misses of so many streams of `length` pages that take turns at one handle, a page at a time,
/// each somewhere in its place of the file.
fn short_streams_in_turns(streams: u64, length: u64, lone_in_ten: u64) -> u64 {
    let mut settings = Settings::new(1 << 17, "lru", "off");
    settings.device = Some(facts(DeviceKind::Parallel, 25));
    let mut rig = Rig::new(settings);
    let mut prng = Prng::new(streams * length);
    let file_pages = 2 * streams * length;
    rig.open(0, 0, file_pages);
    let place = |stream: u64, prng: &mut Prng| 2 * stream * length + prng.below(length);
    let starts: Vec<u64> = (0..streams).map(|stream| place(stream, &mut prng)).collect();
    let (mut end, mut misses) = (None, 0);
    for nth in 0..length {
        for start in &starts {
            if prng.below(10) < lone_in_ten {
                let lone = prng.below(file_pages);
                rig.read(0, lone, 1, false, end);
                end = Some(lone + 1);
                rig.arrive();
            }
            let before = rig.cache.stats().misses;
            rig.read(0, start + nth, 1, false, end);
            end = Some(start + nth + 1);
            rig.arrive();
            misses += rig.cache.stats().misses - before;
        }
    }
    misses
}

#[test]
fn short_streams_miss_a_few_pages_each_however_short_they_are() {
    for (streams, lone_in_ten) in [(30, 0), (100, 0), (1_000, 0), (100, 2), (1_000, 2)] {
        for length in [16, 20, 24, 30, 40, 60, 90] {
            let misses = short_streams_in_turns(streams, length, lone_in_ten);
            let why = format!("{streams} of {length} pages, {lone_in_ten} of ten: {misses}");
            assert!(misses <= 3 * streams, "{why}");
        }
    }
}
