//! The planners under any input: the same calls give the same requests, each of which is answered
//! once, within the budget and the distance.
//!
//! # Invariants
//! - The driver here is a page cache of numbers: no kernel, no time but the test's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forerun_core::cache::SettingsError;
use forerun_core::device::DeviceKind;
use forerun_core::planner::device::DeviceEstimate;
use forerun_core::planner::pace::PaceRule;
use forerun_core::planner::ranges::{RangeAction, RangePlanner, RangesSettings};
use forerun_core::planner::{
    Access, CURSORS_MAX, CursorId, PAGE_BYTES, PlannedFile, Planner, PlannerSettings, PrefetchId,
    PrefetchRequest, RequestState,
};
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, Nanos, RequestId};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 24 * MIB;

/// What `run` takes a device for before it is measured.
const ASSUMED: DeviceEstimate = DeviceEstimate {
    kind: DeviceKind::Parallel,
    latency: Nanos::from_millis(10),
    bytes_per_second: u64::MAX,
    depth: 32,
};

fn settings(limit: u64, budget_bytes: u64, readahead: &str) -> PlannerSettings {
    let pace = PaceRule::make(&format!("adaptive:burst=16M,limit={limit}")).unwrap();
    let device = ASSUMED;
    PlannerSettings { pace, budget_bytes, readahead: readahead.into(), device }
}

/// A driver whose page cache loses some requests, and has others after a while.
struct Run {
    chance: Prng,
    planner: Planner,
    cached: BTreeSet<(FileId, u64)>,
    cursors: Vec<(CursorId, u64)>,
    sizes: BTreeMap<FileId, u64>,
    answered: BTreeSet<PrefetchId>,
    limit: u64,
    budget: u64,
    /// All that was requested, in order.
    requests: Vec<PrefetchRequest>,
}

impl Run {
    fn new(seed: u64, device: DeviceEstimate) -> Self {
        let mut chance = Prng::new(seed);
        let limit = 1 << (16 + chance.below(9));
        let budget = (4 * MIB) << chance.below(5);
        let settings = settings(limit, budget, "streams:first=1M");
        let planner = Planner::new(PlannerSettings { device, ..settings }).unwrap();
        let (cached, answered) = (BTreeSet::new(), BTreeSet::new());
        let (cursors, sizes, requests) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { chance, planner, cached, cursors, sizes, answered, limit, budget, requests }
    }

    fn request_bytes(file: FileId) -> u64 {
        (128 << 10) << (file.0 % 4)
    }

    fn is_cached(&self, file: FileId, range: &Range<u64>) -> bool {
        let mut pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        pages.all(|page| self.cached.contains(&(file, page)))
    }

    fn bring(&mut self, file: FileId, range: &Range<u64>) {
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        self.cached.extend(pages.map(|page| (file, page)));
    }

    fn open(&mut self) {
        let file = FileId(u32::try_from(self.chance.below(3)).unwrap());
        let bytes = *self.sizes.entry(file).or_insert(FILE_BYTES);
        let position = self.chance.below(3) * self.chance.below(bytes);
        let (device, request_bytes) = (u64::from(file.0 / 2), Self::request_bytes(file));
        let file = PlannedFile { file, device, bytes, request_bytes };
        if self.cursors.len() < 40 {
            let cursor = self.planner.open(&file, position).expect("there is room");
            self.cursors.push((cursor, position));
        }
    }

    fn read(&mut self, now: Nanos, which: usize, range: Range<u64>) {
        let (cursor, at) = self.cursors[which];
        let follows = range.start == at;
        self.cursors[which].1 = if range.end <= at { range.start } else { range.end };
        let processor = (self.chance.below(2) == 0).then_some(now);
        let access = Access { cursor, range: range.clone(), follows, processor };
        let file = self.planner.file(cursor).unwrap();
        let is_cached =
            self.planner.probe(&access).is_some_and(|probe| self.is_cached(file, &probe));
        self.planner.read(now, &access, is_cached);
        self.bring(file, &range);
    }

    fn advance(&mut self, now: Nanos) {
        let mut nth = 0;
        while let Some(request) = self.planner.in_flight(nth) {
            let (id, file, range) = (request.id, request.file, request.range());
            let has_arrived = self.chance.below(3) == 0;
            let state = if has_arrived { RequestState::Arrived } else { RequestState::Absent };
            if self.planner.complete(now, id, state) {
                assert!(self.answered.insert(id), "{id:?} is answered twice");
                self.bring(file, &range);
            } else {
                nth += 1;
            }
        }
        let room = usize::try_from(self.chance.below(20)).unwrap();
        let mut requests = Vec::new();
        self.planner.issue(now, room, &mut requests);
        assert!(requests.len() <= room);
        for request in &requests {
            let PrefetchRequest { id, file, ref range, cursor } = *request;
            assert!(!range.is_empty() && range.start.is_multiple_of(PAGE_BYTES), "{request:?}");
            assert_eq!(self.planner.file(cursor), Some(file), "a request has a reader");
            assert!(range.start < self.sizes[&file], "{request:?} begins past the end");
            if self.is_cached(file, range) {
                assert!(self.planner.complete(now, id, RequestState::Cached));
                assert!(self.answered.insert(id), "{id:?} is answered twice");
            } else {
                self.planner.submitted(id, self.chance.below(2) == 0);
            }
        }
        self.requests.append(&mut requests);
        self.check();
    }

    fn check(&self) {
        let stats = self.planner.stats();
        let ahead = self.planner.ahead_bytes();
        assert!(ahead <= self.budget, "{ahead} ahead, budget {}", self.budget);
        let farthest = self.limit + MIB + PAGE_BYTES;
        assert!(stats.distance_bytes_max <= farthest, "{stats:?}, limit {}", self.limit);
        assert!(self.planner.core_stats().balanced());
        let in_flight: Vec<_> = (0..).map_while(|nth| self.planner.in_flight(nth)).collect();
        for (at, one) in in_flight.iter().enumerate() {
            for other in &in_flight[..at] {
                let (own, its) = (one.range(), other.range());
                let apart = own.end <= its.start || its.end <= own.start;
                assert!(one.file != other.file || apart, "{one:?} and {other:?} overlap");
            }
        }
    }

    fn step(&mut self, now: Nanos) {
        let readers = self.cursors.len();
        let which = usize::try_from(self.chance.below(readers.max(1) as u64)).unwrap();
        match self.chance.below(14) {
            0 => self.open(),
            _ if readers == 0 => self.open(),
            1 => {
                let (cursor, _) = self.cursors.swap_remove(which);
                self.planner.close(now, cursor);
            }
            2 => {
                let to = self.chance.below(FILE_BYTES + 9_999);
                self.planner.seek(now, self.cursors[which].0, to);
                self.cursors[which].1 = to;
            }
            3 => {
                let file = self.planner.file(self.cursors[which].0).unwrap();
                let bytes = FILE_BYTES - self.chance.below(FILE_BYTES / 2);
                self.sizes.insert(file, bytes);
                self.planner.resize(now, file, bytes);
            }
            4 => {
                let (cursor, at) = self.cursors[which];
                if readers < 40 {
                    let cursor = self.planner.open_again(cursor, at).expect("there is room");
                    self.cursors.push((cursor, at));
                }
            }
            5 => {
                let at = self.cursors[which].1;
                let start = at.saturating_sub(self.chance.below(300_000));
                self.read(now, which, start..at);
            }
            6 => {
                let start = self.chance.below(FILE_BYTES);
                let end = start + self.chance_bytes();
                self.read(now, which, start..end);
            }
            7 => self.planner.set_memory(MIB << (4 + now.0 % 8)),
            _ => {
                let at = self.cursors[which].1;
                let end = at + self.chance_bytes();
                self.read(now, which, at..end);
            }
        }
    }

    fn chance_bytes(&mut self) -> u64 {
        self.chance.below(300_000)
    }
}

fn run(seed: u64, device: DeviceEstimate) -> Vec<PrefetchRequest> {
    let mut run = Run::new(seed, device);
    let mut now = Nanos(0);
    for _ in 0..400 {
        now += Nanos::from_micros(run.chance.below(5_000));
        run.step(now);
        run.advance(now);
    }
    // What does not come is lost after a while.
    now += Nanos::from_millis(20_000);
    run.advance(now);
    for (cursor, _) in std::mem::take(&mut run.cursors) {
        run.planner.close(now, cursor);
    }
    assert!(!run.planner.is_busy(), "seed {seed}: {:?}", run.planner.stats());
    assert!(run.planner.core_stats().balanced());
    run.requests
}

#[test]
fn whatever_readers_do_requests_are_bounded_answered_once_and_the_same_twice() {
    let mut requests = 0;
    for seed in 0..120 {
        let first = run(seed, ASSUMED);
        assert_eq!(first, run(seed, ASSUMED), "seed {seed}");
        requests += first.len();
    }
    assert!(requests > 1_000, "{requests} requests");
}

/// Decision 0046: `run` has no use for a profile.
#[test]
fn how_far_away_a_device_is_taken_for_beforehand_changes_no_request() {
    let millis = Nanos::from_millis;
    #[rustfmt::skip]
    let rows = [ // why                    estimate
        ("a store far away",      DeviceEstimate { latency: millis(100), depth: 64, ..ASSUMED }),
        ("a network file system", DeviceEstimate { latency: millis(25), ..ASSUMED }),
        ("a queue of one",        DeviceEstimate { depth: 1, ..ASSUMED }),
    ];
    for (why, device) in rows {
        for seed in 0..120 {
            assert_eq!(run(seed, device), run(seed, ASSUMED), "{why}, seed {seed}");
        }
    }
}

#[test]
fn a_reader_in_order_is_led_up_to_the_limit() {
    for (limit, step) in [(2 * MIB, 64 << 10), (8 * MIB, 100_000), (256 << 10, 4096)] {
        let mut run = Run::new(1, ASSUMED);
        run.limit = limit;
        run.budget = 64 * MIB;
        run.planner = Planner::new(settings(limit, run.budget, "streams:first=1M")).unwrap();
        run.planner.set_memory(1 << 30);
        run.sizes.insert(FileId(0), FILE_BYTES);
        let request_bytes = Run::request_bytes(FileId(0));
        let file = PlannedFile { file: FileId(0), device: 0, bytes: FILE_BYTES, request_bytes };
        run.cursors.push((run.planner.open(&file, 0).unwrap(), 0));
        let mut now = Nanos(0);
        for at in (0..FILE_BYTES).step_by(usize::try_from(step).unwrap()) {
            now += Nanos::from_millis(1);
            run.read(now, 0, at..at + step);
            run.advance(now);
        }
        let stats = run.planner.stats();
        assert!(stats.bytes_requested >= FILE_BYTES / 2, "{limit}: {stats:?}");
        assert!(stats.bytes_requested <= FILE_BYTES, "{limit}: {stats:?}");
        assert!(stats.distance_bytes_max >= limit / 2, "{limit}: {stats:?}");
        assert_eq!(run.planner.close(now, run.cursors[0].0), Some(FileId(0)));
        assert!(!run.planner.is_busy());
    }
}

#[test]
fn a_cached_file_is_left_alone_and_builds_no_core() {
    let mut planner = Planner::new(settings(8 * MIB, 64 * MIB, "streams")).unwrap();
    let file = PlannedFile { file: FileId(3), device: 0, bytes: FILE_BYTES, request_bytes: MIB };
    let cursor = planner.open(&file, 0).unwrap();
    let mut probes = 0;
    for at in (0..FILE_BYTES).step_by(64 << 10) {
        let range = at..at + (64 << 10);
        let access = Access { cursor, range, follows: true, processor: None };
        probes += u32::from(planner.probe(&access).is_some());
        assert!(!planner.read(Nanos(at), &access, true), "all is cached");
    }
    let mut requests = Vec::new();
    planner.issue(Nanos(FILE_BYTES), 10, &mut requests);
    assert_eq!((requests, planner.core_stats().demanded), (Vec::new(), 0));
    assert!(probes <= 2, "{probes} probes of a cached file");
}

#[test]
fn readers_beyond_the_bound_are_refused() {
    let mut planner = Planner::new(settings(8 * MIB, 64 * MIB, "streams")).unwrap();
    let file = PlannedFile { file: FileId(3), device: 0, bytes: MIB, request_bytes: MIB };
    for _ in 0..CURSORS_MAX {
        assert!(planner.has_room() && planner.open(&file, 0).is_some());
    }
    assert!(!planner.has_room() && planner.open(&file, 0).is_none());
    assert_eq!(planner.close(Nanos(0), CursorId(17)), None, "the file has readers still");
    assert_eq!(planner.open(&file, 0), Some(CursorId(17)), "a number is used again");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = |budget, readahead| Planner::new(settings(MIB, budget, readahead)).err();
    assert!(matches!(refused(64 * MIB, "none"), Some(SettingsError::Policy(_))));
    assert!(matches!(refused(0, "linux-6:max=64M"), Some(SettingsError::Window { .. })));
    assert_eq!(refused(0, "streams"), None, "a small budget has a small core");
}

/// The fetches of `reads`, each made at once but for some that fail.
fn fetches(file_bytes: u64, seed: u64) -> Vec<(u64, u64, bool)> {
    let settings =
        RangesSettings { memory_bytes: MIB, request_bytes_max: 64 << 10, ..Default::default() };
    let mut planner = RangePlanner::new(&settings, file_bytes).unwrap();
    let mut chance = Prng::new(seed);
    let (mut made, mut open) = (Vec::new(), BTreeSet::new());
    let mut at = 0;
    for request in 1..300 {
        let start =
            if chance.below(3) > 0 && at < file_bytes { at } else { chance.below(file_bytes) };
        let most = planner.read_bytes_max().min(file_bytes - start).min(40_000);
        at = start + 1 + chance.below(most);
        let now = Nanos(request);
        planner.access(now, start, at);
        planner.prepare(now, start, at);
        planner.read(now, RequestId(request), false);
        open.insert(RequestId(request));
        loop {
            for action in planner.actions().collect::<Vec<_>>() {
                match action {
                    RangeAction::Done(request) | RangeAction::Fail(request) => {
                        assert!(open.remove(&request), "{request:?} ends twice");
                    }
                    RangeAction::Serve { .. }
                    | RangeAction::Fetch { .. }
                    | RangeAction::FetchFailed(_) => {}
                }
            }
            let Some(fetch) = planner.queue_mut().claim() else { break };
            assert!(fetch.start < fetch.end && fetch.end <= file_bytes, "{fetch:?}");
            made.push((fetch.start, fetch.end, fetch.demand));
            if chance.below(20) == 0 {
                planner.failed(now, fetch.id);
            } else {
                let row = planner.arrived(now, fetch.id, fetch.end - fetch.start);
                assert!(row.is_some_and(|row| !row.frames.is_empty()));
            }
            assert!(planner.arrived(now, fetch.id, 1).is_none(), "a fetch ends once");
        }
        assert!(open.is_empty(), "{open:?} wait in vain");
        let ahead = planner.stats().core.ahead_unread;
        assert!(ahead < u64::from(planner.frames()), "{ahead} of {} pages", planner.frames());
    }
    assert!(planner.stats().core.balanced());
    made
}

#[test]
fn byte_ranges_are_fetched_once_each_within_the_frames_and_the_same_twice() {
    for seed in 0..60 {
        let file_bytes = 1 + Prng::new(seed).below(3 * MIB);
        let made = fetches(file_bytes, seed);
        assert_eq!(made, fetches(file_bytes, seed), "seed {seed}");
        assert!(!made.is_empty());
    }
}

#[test]
fn known_ranges_are_fetched_ahead_as_far_as_there_is_room_and_not_beyond() {
    let known = [(100_001, 900_000), (1_500_000, 2_900_001)];
    let settings = RangesSettings {
        memory_bytes: MIB,
        request_bytes_max: 64 << 10,
        readahead: "off".into(),
        ..Default::default()
    };
    let mut planner = RangePlanner::new(&settings, 3 * MIB).unwrap();
    for (start, end) in known {
        assert!(planner.will_need(Nanos(0), start, end));
    }
    let (mut request, mut stalls) = (0, 0);
    arrive_all(&mut planner, Nanos(0));
    let ahead = planner.stats().core.ahead_unread;
    assert!(ahead > u64::from(planner.frames()) / 2, "{ahead} pages are ahead at first");
    for (start, end) in known {
        for at in (start..end).step_by(50_000) {
            request += 1;
            let (now, end) = (Nanos(request), end.min(at + 50_000));
            planner.access(now, at, end);
            planner.prepare(now, at, end);
            planner.read(now, RequestId(request), false);
            let is_done = planner.actions().any(|it| it == RangeAction::Done(RequestId(request)));
            stalls += u32::from(!is_done);
            arrive_all(&mut planner, now);
        }
    }
    let wanted: u64 = known.iter().map(|(start, end)| end - start).sum();
    let fetched = planner.stats().bytes_fetched;
    assert!(fetched >= wanted, "{fetched} of {wanted}");
    assert!(fetched <= wanted + known.len() as u64 * 2 * (8 << 10), "{fetched} of {wanted}");
    assert_eq!(stalls, 0, "all was there before it was read");
}

/// All fetches are made.
fn arrive_all(planner: &mut RangePlanner, now: Nanos) {
    while let Some(fetch) = planner.queue_mut().claim() {
        planner.arrived(now, fetch.id, fetch.end - fetch.start);
    }
}

/// Reads at random places, as `run` sees those of `pread`: each by a cursor of its own, that gives
/// way to the next ones, while another holds the file.
#[test]
fn random_reads_are_not_read_ahead_for() {
    const FILE: u64 = 128 * MIB;
    #[rustfmt::skip]
    let rows = [ // bytes   reads   percent that may be fetched in vain
        (4_096,             2_000,  1),
        (16_384,            1_500,  1),
        (65_536,            700,    10),
        (262_144,           150,    30), // a third of the file
    ];
    for (bytes, reads, most) in rows {
        let settings = settings(64 * MIB, 256 * MIB, "streams:first=1M,through=4K");
        let (mut planner, mut chance) = (Planner::new(settings).unwrap(), Prng::new(7));
        let file = PlannedFile { file: FileId(0), device: 0, bytes: FILE, request_bytes: MIB };
        let first = planner.open(&file, 0).unwrap();
        let mut cached = BTreeSet::new();
        let (mut open, mut ahead) = (Vec::new(), 0);
        for nth in 0..reads {
            let now = Nanos::from_micros(nth * 100);
            let start = chance.below(FILE / bytes) * bytes;
            let range = start..start + bytes;
            let cursor = planner.open_again(first, start).unwrap();
            let access = Access { cursor, range: range.clone(), follows: false, processor: None };
            let is_cached = planner.probe(&access).is_some_and(|probe| {
                let mut pages = probe.start / PAGE_BYTES..probe.end.div_ceil(PAGE_BYTES);
                pages.all(|page| cached.contains(&page))
            });
            planner.read(now, &access, is_cached);
            cached.extend(range.start / PAGE_BYTES..range.end / PAGE_BYTES);
            let mut requests = Vec::new();
            planner.issue(now, 20, &mut requests);
            for PrefetchRequest { id, range, .. } in requests {
                let pages = range.start / PAGE_BYTES..range.end / PAGE_BYTES;
                ahead += pages.filter(|page| cached.insert(*page)).count() as u64;
                planner.complete(now, id, RequestState::Cached);
            }
            open.push(cursor);
            if open.len() == 16 {
                open.drain(..).for_each(|cursor| assert_eq!(planner.close(now, cursor), None));
            }
        }
        let read = reads * bytes / PAGE_BYTES;
        assert!(ahead * 100 <= read * most, "{bytes}: {ahead} pages ahead of {read}");
        for cursor in open {
            assert_eq!(planner.close(Nanos(1 << 40), cursor), None);
        }
        assert_eq!(planner.close(Nanos(1 << 40), first), Some(FileId(0)));
    }
}
