//! The cache with `streams`, each of whose decisions is held to its bounds.
//!
//! ```text
//!   events -> Cache -> Spy -> streams       each decision is held to its bounds
//!               |
//!   Rig:  fetches in flight, published pages with their markers, pages that readers hold
//! ```
//!
//! # Invariants
//! - When nothing is in flight, each record's marker is on a published page.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use forerun_core::cache::{Cache, Settings};
use forerun_core::device::DeviceKind;
use forerun_core::device::estimate::DeviceProfile;
use forerun_core::drive::{Driver, drive};
use forerun_core::event::{Actions, Error, Event, FetchKind};
use forerun_core::readahead::{
    self, Bounds, Cause, Decision, Demand, Probes, Readahead, ReclaimRange, StreamFeedback,
    StreamId, Trigger, Window,
};
use forerun_core::units::{
    FileId, FrameId, HandleId, Nanos, PageId, PageIndex, PartitionId, RequestId,
};

/// `streams`, with every decision looked at.
#[derive(Clone)]
pub(crate) struct Spy(pub(crate) Arc<Mutex<Seen>>);

pub(crate) struct Seen {
    pub(crate) policy: Box<dyn Readahead + Send>,
    /// Streams that were named, but for those found to be forgotten.
    pub(crate) named: BTreeMap<StreamId, FileId>,
    /// The stream that the last decisions were for, and whether one of them has its marker.
    pub(crate) batch: Option<(StreamId, bool)>,
    pub(crate) decisions: u64,
    pub(crate) at_markers: u64,
    /// Pieces that were to be reclaimed.
    pub(crate) taken: u64,
}

impl Seen {
    pub(crate) fn marker_of(&self, stream: StreamId) -> Option<PageIndex> {
        // Wherever it is in the largest file here.
        (0..4).find_map(|part| {
            let start = part * u64::from(u32::MAX);
            let window = Window { start, size: u32::MAX, async_size: 0 };
            let decision = Decision { stream: Some(stream), ..Decision::new(Cause::Async, window) };
            self.policy.marker(decision, u64::MAX)
        })
    }

    /// Where the markers of the streams are that it remembers.
    pub(crate) fn records(&mut self) -> Vec<PageId> {
        let known: Vec<_> = self.named.iter().map(|(&stream, &file)| (stream, file)).collect();
        let mut pages = Vec::new();
        for (stream, file) in known {
            match self.marker_of(stream) {
                Some(index) => pages.push(PageId { file, index }),
                None => {
                    self.named.remove(&stream);
                }
            }
        }
        pages
    }

    pub(crate) fn look(&mut self, demand: &Demand, decision: Decision) {
        let Window { start, size, async_size } = decision.window;
        assert!(size > 0 && async_size <= size, "{decision:?}");
        assert!(decision.window.end() <= demand.file_pages, "{decision:?} for {demand:?}");
        let asked = match demand.trigger {
            Trigger::Request | Trigger::Marker => 0,
            Trigger::Miss => demand.count,
        };
        let moved = decision.cause == Cause::Async && size == 1;
        assert!(moved || size <= demand.ahead_room + asked, "{decision:?} for {demand:?}");
        if demand.trigger == Trigger::Miss && self.batch.is_none() {
            let end = demand.first + u64::from(demand.count);
            assert!(start <= demand.first && end <= decision.window.end(), "{decision:?}");
        }
        let Some(stream) = decision.stream else { return };
        let marker = self.marker_of(stream).expect("a stream that goes on is remembered");
        let within = (start..decision.window.end()).contains(&marker);
        assert_eq!(self.policy.marker(decision, u64::MAX).is_some(), within, "{decision:?}");
        let (named, before) = self.batch.unwrap_or((stream, false));
        assert_eq!(named, stream, "a batch is of one stream");
        self.batch = Some((stream, before || within));
        self.named.insert(stream, demand.file);
    }
}

impl Readahead for Spy {
    fn sees_congestion(&self) -> bool {
        self.0.lock().unwrap().policy.sees_congestion()
    }

    fn sees_device(&self) -> bool {
        self.0.lock().unwrap().policy.sees_device()
    }

    fn probes(&self) -> Probes {
        self.0.lock().unwrap().policy.probes()
    }

    fn window_pages_max(&self) -> u32 {
        self.0.lock().unwrap().policy.window_pages_max()
    }

    fn window_pages_min(&self) -> u32 {
        self.0.lock().unwrap().policy.window_pages_min()
    }

    fn bounds(&mut self, bounds: Bounds) {
        self.0.lock().unwrap().policy.bounds(bounds);
    }

    fn open(&mut self, handle: HandleId, file: FileId) {
        self.0.lock().unwrap().policy.open(handle, file);
    }

    fn close(&mut self, handle: HandleId) {
        self.0.lock().unwrap().policy.close(handle);
    }

    fn reclaim(&mut self, demand: &Demand) -> Option<ReclaimRange> {
        let mut seen = self.0.lock().unwrap();
        let range = seen.policy.reclaim(demand)?;
        seen.taken += 1;
        assert!(range.count > 0 && Some(range.stream) != demand.stream, "{range:?}");
        Some(range)
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        let mut seen = self.0.lock().unwrap();
        seen.decisions += 1;
        seen.at_markers += u64::from(demand.trigger == Trigger::Marker);
        seen.batch = None;
        let decision = seen.policy.decide(demand)?;
        seen.look(demand, decision);
        Some(decision)
    }

    fn marker(&self, decision: Decision, file_pages: u64) -> Option<PageIndex> {
        self.0.lock().unwrap().policy.marker(decision, file_pages)
    }

    fn carried(&self, decision: Decision, page: PageIndex) -> bool {
        self.0.lock().unwrap().policy.carried(decision, page)
    }

    fn submitted(&mut self, demand: &Demand, decision: Decision, fresh: u32) -> Option<Decision> {
        let mut seen = self.0.lock().unwrap();
        let Some(next) = seen.policy.submitted(demand, decision, fresh) else {
            assert!(seen.batch.is_none_or(|batch| batch.1), "{decision:?} has no marker");
            return None;
        };
        seen.look(demand, next);
        Some(next)
    }

    fn note(&mut self, stream: StreamId, page: PageIndex, feedback: StreamFeedback) {
        self.0.lock().unwrap().policy.note(stream, page, feedback);
    }
}

/// The cache and its driver.
pub(crate) struct Rig {
    pub(crate) cache: Cache,
    pub(crate) spy: Spy,
    pub(crate) now: Nanos,
    pub(crate) actions: Actions,
    pub(crate) outside: Outside,
    pub(crate) requests: u64,
}

#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) in_flight: Vec<Vec<FrameId>>,
    pub(crate) published: BTreeMap<FrameId, (PageId, bool)>,
    pub(crate) held: BTreeSet<FrameId>,
    /// Requests that wait, by their handle.
    pub(crate) waiting: BTreeMap<RequestId, HandleId>,
    pub(crate) fetched: u64,
}

impl Driver for Outside {
    fn fetch(&mut self, _: FetchKind, page: PageId, frames: &[FrameId]) {
        for index in page.index..page.index + frames.len() as u64 {
            let page = PageId { index, ..page };
            let absent = || self.published.values().all(|at| at.0 != page);
            assert!(self.big() || absent(), "{page:?} is there");
        }
        self.in_flight.push(frames.to_vec());
        self.fetched += frames.len() as u64;
    }

    fn publish(&mut self, page: PageId, frame: FrameId, _: u32, marker: bool) {
        self.published.insert(frame, (page, marker));
    }

    fn retract(&mut self, frame: FrameId, gone: bool) -> bool {
        let loose = !self.held.contains(&frame);
        if loose || gone {
            self.published.remove(&frame);
        }
        loose
    }

    fn done(&mut self, request: RequestId) {
        self.waiting.remove(&request);
    }

    fn fail(&mut self, request: RequestId, _: Error) {
        self.waiting.remove(&request);
    }
}

impl Outside {
    /// Too many pages to look through them at each fetch.
    pub(crate) fn big(&self) -> bool {
        self.published.len() > 1_000
    }
}

/// A device that delivers `reach` pages in the time of one access.
pub(crate) fn facts(kind: DeviceKind, reach: u64) -> DeviceProfile {
    let bytes_per_second = reach * 4_096 * 1_000;
    let access = Nanos::from_millis(1);
    DeviceProfile { kind, access, bytes_per_second, depth: 32, request_bytes: 16 * 4_096 }
}

impl Rig {
    pub(crate) fn new(settings: Settings) -> Self {
        let policy = readahead::make("streams", settings.page_bytes).expect("it is listed").policy;
        let named = BTreeMap::new();
        let seen = Seen { policy, named, batch: None, decisions: 0, at_markers: 0, taken: 0 };
        let spy = Spy(Arc::new(Mutex::new(seen)));
        let cache = Cache::with_oracle(settings, Some(Box::new(spy.clone())));
        Self {
            cache: cache.expect("good settings"),
            spy,
            now: Nanos(0),
            actions: Actions::new(),
            outside: Outside::default(),
            requests: 0,
        }
    }

    pub(crate) fn send(&mut self, event: Event<'_>) {
        self.now += Nanos(1_000);
        drive(&mut self.cache, self.now, event, &mut self.actions, &mut self.outside);
        let (stats, bound) = (self.cache.stats(), self.cache.settings().ahead_pages_max);
        assert!(stats.ahead_unread <= bound.into(), "{stats:?}, at most {bound}");
    }

    pub(crate) fn open(&mut self, handle: u32, file: u32, file_pages: u64) {
        let (handle, file, partition) = (HandleId(handle), FileId(file), PartitionId(0));
        self.send(Event::Open { handle, file, partition, file_pages });
    }

    pub(crate) fn read(
        &mut self,
        handle: u32,
        first: u64,
        count: u32,
        congested: bool,
        end: Option<u64>,
    ) {
        self.requests += 1;
        let (request, handle) = (RequestId(self.requests), HandleId(handle));
        self.outside.waiting.insert(request, handle);
        let previous_end = end.map(|page| page * 4_096);
        self.send(Event::Read { request, handle, first, count, previous_end, congested });
    }

    /// A fetch ends, one of those in flight.
    pub(crate) fn end(&mut self, at: usize, good: bool) {
        let frames = self.outside.in_flight.swap_remove(at);
        let (first, count) = (frames[0], u32::try_from(frames.len()).unwrap());
        if good {
            self.send(Event::Arrived { first, count });
        } else {
            self.send(Event::Failed { first, count, errno: 5 });
        }
    }

    pub(crate) fn arrive(&mut self) {
        while !self.outside.in_flight.is_empty() {
            self.end(0, true);
        }
    }

    /// No record without a page that carries its marker.
    pub(crate) fn check(&self) {
        let records = self.spy.0.lock().unwrap().records();
        let marked = self.outside.published.values().filter(|at| at.1).count();
        if self.outside.in_flight.is_empty() {
            for page in &records {
                let on = self.outside.published.values().any(|at| *at == (*page, true));
                assert!(on, "the marker of a stream is not on {page:?}");
            }
            assert!(records.len() <= marked, "{records:?}: {marked} markers");
        }
        let frames = self.cache.settings().frames as usize;
        assert!(records.len() <= frames, "{} records", records.len());
    }
}
