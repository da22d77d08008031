//! One seed's run: random events, then every operation completes.
//!
//! Bounds that the driver state must not meet are checked after every step; what the run reached is
//! counted, since a check that reaches nothing proves nothing.

mod answers;

use std::collections::BTreeMap;

use forerun_core::cache::{Cache, PartitionStats, PartitionView, Stats};
use forerun_core::drive::drive;
use forerun_core::event::{Action, Actions, Event, FetchKind, Hit, codec};
use forerun_core::eviction;
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, HandleId, Nanos, PageId, PartitionId, RequestId};

use super::driver_state::DriverState;
use super::store::{Changing, ClientRequest, Operation, Writing};

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct CheckOutcome {
    /// The digest of all events and actions.
    pub digest: u64,
    /// The encoded events sent to the core.
    pub journal: Vec<u8>,
    /// The encoded actions of the core.
    pub actions: Vec<u8>,
    /// The count of each kind of event.
    pub seen: BTreeMap<&'static str, u64>,
}

impl CheckOutcome {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.seen {
            *self.seen.entry(what).or_default() += times;
        }
    }

    /// The kinds of events with a count of 0.
    #[must_use]
    pub fn unreached(&self) -> Vec<&'static str> {
        EVERYTHING.iter().copied().filter(|what| !self.seen.contains_key(what)).collect()
    }
}

/// The events that a sufficient set of seeds reaches.
#[rustfmt::skip]
const EVERYTHING: &[&str] = &[
    "hits", "misses", "late hits", "stale hits", "marker without a lock", "marker deferred",
    "evicted", "pinned victim", "readahead used", "readahead wasted", "readahead failed",
    "readahead dropped", "store error", "write-back error", "past the end", "changed", "no frames",
    "busy", "too large", "cancelled", "write in part", "fresh page", "durable write",
    "flush done", "sync failed", "write failed", "truncated", "resized", "invalidated",
    "emptied", "another policy", "two partitions", "a rule of offsets", "evicted by itself",
    "closed", "prefetched",
    "prefetch dropped", "changed in the store", "durable change", "change failed",
    "cut within a page", "moved by sizing", "power cut",
];

/// Runs `seed` to its end.
pub(super) fn run(seed: u64) -> Result<CheckOutcome, String> {
    let mut random = Prng::new(seed);
    let settings = super::settings(&mut random);
    let frames = settings.frames;
    let cache = Cache::new(settings).map_err(|error| error.to_string())?;
    let steps = 100 + random.below(500);
    let driver = DriverState::new(random, frames);
    let mut run = Run {
        cache,
        actions: Actions::new(),
        now: Nanos(0),
        handles: BTreeMap::new(),
        owners: BTreeMap::new(),
        requests: 0,
        came_back: Vec::new(),
        faults: true,
        driver,
    };
    for file in 0..2 {
        run.driver.pages[file] = 1 + run.draw(60);
    }
    for _ in 0..steps {
        run.step()?;
    }
    run.rest()?;
    run.empty()?;
    Ok(run.outcome())
}

struct Run {
    cache: Cache,
    actions: Actions,
    now: Nanos,
    /// Open handles: file, and the byte after the last read.
    handles: BTreeMap<u32, (FileId, Option<u64>)>,
    /// The handle of a request.
    owners: BTreeMap<RequestId, u32>,
    requests: u64,
    came_back: Vec<u8>,
    faults: bool,
    driver: DriverState,
}

impl Run {
    fn draw(&mut self, bound: u64) -> u64 {
        self.driver.random.below(bound)
    }

    /// Time passes, less than `bound`.
    fn pass(&mut self, bound: u64) {
        let passed = self.draw(bound);
        self.now += Nanos(passed);
    }

    fn count(&mut self, bound: u64) -> u32 {
        u32::try_from(self.draw(bound)).expect("small bounds")
    }

    /// Sends one event and checks the resulting actions.
    fn send(&mut self, event: Event<'_>) -> Result<(), String> {
        let shares = self.shares();
        drive(&mut self.cache, self.now, event, &mut self.actions, &mut self.driver);
        if !matches!(event, Event::Resize { .. }) {
            self.check_sizing(&shares).map_err(|wrong| format!("{wrong}, after {event:?}"))?;
        }
        codec::encode_actions(&self.actions, &mut self.came_back);
        self.told_wrong().map_err(|wrong| format!("{wrong}, after {event:?}"))?;
        let (stats, settings) = (self.cache.stats(), self.cache.settings());
        if !stats.balanced() {
            return Err(format!("the counts do not add up after {event:?}: {stats:?}"));
        }
        if stats.ahead_unread > settings.ahead_pages_max.into() {
            return Err(format!("more is read ahead than may be, after {event:?}: {stats:?}"));
        }
        let sum = |count: fn(&PartitionStats) -> u64| -> u64 {
            self.cache.partitions().map(|part| count(&part.stats)).sum()
        };
        let sums = [sum(|it| it.hits), sum(|it| it.late_hits), sum(|it| it.misses)];
        if sums != [stats.hits, stats.late_hits, stats.misses]
            || sum(|it| it.evicted) != stats.evicted
        {
            return Err(format!("partitions counted {sums:?}, after {event:?}: {stats:?}"));
        }
        if self.cache.dirty_pages() > settings.dirty_pages_max {
            return Err(format!("{} pages are dirty, after {event:?}", self.cache.dirty_pages()));
        }
        Ok(())
    }

    /// The first difference that the driver has seen.
    fn told_wrong(&mut self) -> Result<(), String> {
        self.driver.wrong.take().map_or(Ok(()), Err)
    }

    /// The share of each partition, and the least that sizing leaves to it.
    fn shares(&self) -> Vec<(u32, u32)> {
        self.cache.partitions().map(|part| (part.frames, part.frames_min)).collect()
    }

    /// What sizing may change of `before`: it moves frames, down to a minimum.
    fn check_sizing(&self, before: &[(u32, u32)]) -> Result<(), String> {
        let after = self.shares();
        let sum = |shares: &[(u32, u32)]| shares.iter().map(|share| share.0).sum::<u32>();
        let wrong = |(old, new): (&(u32, u32), &(u32, u32))| {
            let below = new.0 < old.0 && new.0 < new.1;
            below || (old.0 == 0 && new.0 > 0)
        };
        if sum(before) != sum(&after) || before.iter().zip(&after).any(wrong) {
            return Err(format!("sizing made {after:?} of {before:?}"));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.pass(8);
        match self.draw(126) {
            0..20 => self.read(),
            20..32 => self.read_without_lock(),
            32..47 => self.write(),
            47..51 => self.flush(),
            51..54 => self.cancel(),
            54..84 => self.answer(),
            84..94 => self.end_fill(),
            94..106 => {
                self.let_go();
                Ok(())
            }
            106..110 => self.drain_hits(),
            110 => self.truncate(),
            111 => self.change_outside(),
            112..114 => self.resize(),
            114..117 => self.open_or_close(),
            117..119 => self.prefetch(),
            119..123 => self.change(),
            _ => {
                self.pass(300);
                self.send(Event::Tick)
            }
        }
    }

    fn request(&mut self, handle: u32, asked: ClientRequest) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.driver.asked.insert(request, asked);
        self.owners.insert(request, handle);
        request
    }

    fn pick_handle(&mut self) -> Option<(u32, FileId)> {
        let at = usize::try_from(self.draw(self.handles.len().max(1) as u64)).ok()?;
        self.handles.iter().nth(at).map(|(&handle, &(file, _))| (handle, file))
    }

    fn read(&mut self) -> Result<(), String> {
        let Some((handle, file)) = self.pick_handle() else { return self.open_or_close() };
        let (pages, previous_end) = (self.driver.pages[file.0 as usize], self.handles[&handle].1);
        // Often continue at the handle's position: readahead serves streams.
        let next = previous_end.map_or(0, |end| end / 4096);
        let first = if self.draw(3) > 0 { next } else { self.draw(pages + 2) };
        let count = 1 + self.count(6);
        let congested = self.draw(8) == 0;
        let left = (first..first + u64::from(count)).collect();
        let request = self.request(handle, ClientRequest::Read { file, left });
        let handle_id = HandleId(handle);
        let deferred = self.cache.stats().markers_deferred;
        self.send(Event::Read {
            request,
            handle: handle_id,
            first,
            count,
            previous_end,
            congested,
        })?;
        if self.cache.stats().markers_deferred > deferred {
            self.driver.saw("marker deferred");
        }
        let end = (first + u64::from(count)) * 4096;
        self.handles.insert(handle, (file, Some(if end > pages * 4096 { 0 } else { end })));
        Ok(())
    }

    /// Prefetches pages, and counts those fetched and dropped.
    fn prefetch(&mut self) -> Result<(), String> {
        let Some((handle, file)) = self.pick_handle() else { return self.open_or_close() };
        let (first, handle) = (self.draw(64), HandleId(handle));
        let count = if self.draw(8) == 0 { u32::MAX } else { 1 + self.count(12) };
        let end = first + u64::from(count).min(1_000);
        let (least, most) = self.driver.prefetchable(file, first..end);
        let before = *self.cache.stats();
        self.send(Event::Prefetch { handle, first, count })?;
        let after = *self.cache.stats();
        let fetched = after.ahead_fetched - before.ahead_fetched;
        let dropped = after.ahead_dropped - before.ahead_dropped;
        if !(least..=most).contains(&(fetched + dropped)) {
            return Err(format!(
                "{fetched} pages of {first}..{end} prefetched, {dropped} dropped; {least} to \
                 {most} were absent"
            ));
        }
        let noticed = |stats: Stats| (stats.demanded, stats.misses, stats.markers_deferred);
        if noticed(before) != noticed(after) {
            return Err(format!("a prefetch counts as a read: {before:?}, then {after:?}"));
        }
        for action in &self.actions.list {
            if let Action::Fetch { kind: FetchKind::Readahead, page, frames } = *action
                && (page.file != file
                    || page.index < first
                    || page.index + u64::from(frames.count) > end)
            {
                return Err(format!("{action:?} is not of the prefetch of {first}..{end}"));
            }
        }
        for (what, pages) in [("prefetched", fetched), ("prefetch dropped", dropped)] {
            if pages > 0 {
                self.driver.saw(what);
            }
        }
        Ok(())
    }

    fn read_without_lock(&mut self) -> Result<(), String> {
        if self.cache.sees_requests() || self.driver.index.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(self.draw(self.driver.index.len() as u64)).expect("small");
        let (&page, &frame) = self.driver.index.iter().nth(at).expect("drawn below the length");
        let (_, generation, marker) = self.driver.frame(frame).published.expect("it is listed");
        self.driver.look(page, frame);
        let hit = Hit { frame, generation };
        self.driver.hits.push(hit);
        let reader = self.handles.iter().find(|(_, of)| of.0 == page.file).map(|(&id, _)| id);
        if let (true, Some(handle)) = (marker, reader) {
            self.driver.saw("marker without a lock");
            let (count, congested) = (1 + self.count(4), self.draw(8) == 0);
            let (handle, previous_end) = (HandleId(handle), Some(page.index * 4096));
            self.send(Event::Marker { handle, hit, count, previous_end, congested })?;
        }
        if self.driver.hits.len() > 12 { self.drain_hits() } else { Ok(()) }
    }

    fn drain_hits(&mut self) -> Result<(), String> {
        let hits = core::mem::take(&mut self.driver.hits);
        self.send(Event::Hits { hits: &hits })
    }

    fn write(&mut self) -> Result<(), String> {
        let Some((handle, file)) = self.pick_handle() else { return self.open_or_close() };
        let first = self.draw((self.driver.pages[file.0 as usize] + 2).min(70));
        let count = 1 + self.count(5);
        let partial = (self.draw(3) == 0, self.draw(3) == 0);
        let durable = self.draw(7) == 0;
        let filled = BTreeMap::new();
        let writing = Writing { file, first, count, partial, durable, filled };
        let request = self.request(handle, ClientRequest::Write(writing));
        let (handle, (head_partial, tail_partial)) = (HandleId(handle), partial);
        self.send(Event::Write {
            request,
            handle,
            first,
            count,
            head_partial,
            tail_partial,
            durable,
        })
    }

    /// Zeroes or discards pages, or sets the length of the file.
    fn change(&mut self) -> Result<(), String> {
        let Some((handle, file)) = self.pick_handle() else { return Ok(()) };
        let (first, durable) = (self.draw(62), self.draw(3) == 0);
        let sets_length = self.draw(3) == 0;
        let keeps_first = sets_length && self.draw(2) == 0;
        let count = if sets_length { u64::MAX } else { 1 + self.draw(12) };
        let file_pages = sets_length.then_some(first + u64::from(keeps_first));
        let changing = Changing { file, first, count, keeps_first, file_pages, durable };
        let asked = ClientRequest::Change { changing, made: BTreeMap::new() };
        let (request, handle) = (self.request(handle, asked), HandleId(handle));
        let event =
            Event::Change { request, handle, first, count, keeps_first, file_pages, durable };
        self.send(event)
    }

    fn flush(&mut self) -> Result<(), String> {
        let Some((handle, file)) = self.pick_handle() else { return Ok(()) };
        let mut acknowledged = self.driver.acknowledged.clone();
        acknowledged.retain(|page, _| page.file == file);
        let request = self.request(handle, ClientRequest::Flush { acknowledged });
        self.send(Event::Flush { request, handle: HandleId(handle) })
    }

    fn cancel(&mut self) -> Result<(), String> {
        let at = usize::try_from(self.draw(self.driver.asked.len().max(1) as u64)).expect("small");
        let Some(&request) = self.driver.asked.keys().nth(at) else { return Ok(()) };
        self.send(Event::Cancel { request })
    }

    fn let_go(&mut self) {
        if !self.driver.held.is_empty() {
            let at = usize::try_from(self.draw(self.driver.held.len() as u64)).expect("small");
            let frame = self.driver.held.swap_remove(at);
            self.driver.frame(frame).pins -= 1;
        }
    }

    /// Cuts or extends a file, once its writes in the store have ended.
    fn truncate(&mut self) -> Result<(), String> {
        let file = FileId(self.count(2));
        let pages = self.draw(60);
        if pages < self.driver.pages[file.0 as usize] {
            let writes = |operation: &Operation| {
                matches!(operation, Operation::Write { page,
                .. } if page.file == file)
            };
            while self.driver.operations.iter().any(writes) {
                self.answer()?;
            }
        }
        self.driver.saw("truncated");
        self.driver.cut(file, pages);
        self.send(Event::Truncate { file, pages })
    }

    /// Another program writes pages that no writer here is writing.
    fn change_outside(&mut self) -> Result<(), String> {
        let file = FileId(self.count(2));
        let (first, count) = (self.draw(60), 1 + self.draw(6));
        let end = (first + count).min(self.driver.pages[file.0 as usize]);
        let pages = (first..end).map(|index| PageId { file, index });
        let mut calm: Vec<PageId> = pages.filter(|&page| !self.cache.unwritten(page)).collect();
        for asked in self.driver.asked.values() {
            if let ClientRequest::Write(write) = asked {
                let pages = write.first..write.first + u64::from(write.count);
                calm.retain(|page| page.file != write.file || !pages.contains(&page.index));
            }
        }
        for page in calm {
            self.driver.values += 1;
            let content = [self.driver.values; 2];
            self.driver.store.change(page, content);
            self.driver.shadow.insert(page, content);
            self.driver.saw("invalidated");
            self.send(Event::Invalidate { file, first: page.index, count: 1 })?;
        }
        Ok(())
    }

    fn resize(&mut self) -> Result<(), String> {
        let partition = self.count(self.cache.settings().partitions.len() as u64);
        if self.draw(4) == 0 {
            let policy = self.count(eviction::NAMES.len() as u64);
            self.driver.saw("another policy");
            return self.send(Event::Policy { partition: PartitionId(partition), policy });
        }
        let empties = self.draw(4) == 0;
        let frames = self.cache.settings().frames;
        let frames = if empties { 0 } else { 1 + self.count(frames.into()) };
        if self.cache.check_resize(partition, frames).is_err() {
            return Ok(());
        }
        self.driver.saw(if frames == 0 { "emptied" } else { "resized" });
        self.send(Event::Resize { partition: PartitionId(partition), frames })
    }

    fn open_or_close(&mut self) -> Result<(), String> {
        let handle = self.count(6);
        let id = HandleId(handle);
        if self.handles.contains_key(&handle) {
            let asked = &self.driver.asked;
            if self.owners.iter().any(|(request, &by)| by == handle && asked.contains_key(request))
            {
                return Ok(());
            }
            self.handles.remove(&handle);
            self.driver.saw("closed");
            return self.send(Event::Close { handle: id });
        }
        let file = FileId(handle % 2);
        let partitions = u32::try_from(self.cache.settings().partitions.len()).expect("few");
        let partition = PartitionId(handle / 2 % partitions.min(2));
        let file_pages = self.driver.pages[file.0 as usize];
        self.handles.insert(handle, (file, None));
        self.send(Event::Open { handle: id, file, partition, file_pages })
    }

    /// No more faults or new requests: every operation in flight must complete.
    fn rest(&mut self) -> Result<(), String> {
        self.faults = false;
        for _ in 0..20_000 {
            let driver = &self.driver;
            let idle =
                driver.operations.is_empty() && driver.fills.is_empty() && driver.held.is_empty();
            if idle && self.driver.asked.is_empty() {
                return Ok(());
            }
            self.now += Nanos(1);
            match self.draw(4) {
                0 => self.answer()?,
                1 => self.end_fill()?,
                2 => self.let_go(),
                _ => {
                    self.pass(100);
                    self.send(Event::Tick)?;
                }
            }
        }
        Err(format!("never answered: {:?}", self.driver.asked))
    }

    /// What was written reaches the store; then the files are emptied and no frame is lost.
    fn empty(&mut self) -> Result<(), String> {
        self.drain_hits()?;
        for file in [FileId(0), FileId(1)] {
            while !self.handles.values().any(|of| of.0 == file) {
                self.open_or_close()?;
            }
            // The first flush may still report a failure from before.
            for _ in 0..2 {
                let handle = *self.handles.iter().find(|of| of.1.0 == file).expect("open").0;
                let request =
                    self.request(handle, ClientRequest::Flush { acknowledged: BTreeMap::new() });
                self.send(Event::Flush { request, handle: HandleId(handle) })?;
                self.rest()?;
            }
            let driver = &self.driver;
            let behind = driver.shadow.keys().find(|&&page| {
                page.file == file && driver.store.durable(page) != driver.shadow(page)
            });
            if let Some(page) = behind {
                return Err(format!("{page:?} did not reach the store by the last flush"));
            }
            self.driver.cut(file, 0);
            self.send(Event::Truncate { file, pages: 0 })?;
        }
        self.rest()?;
        self.send(Event::Tick)?;
        let (free, frames) = (self.cache.free_frames(), self.cache.settings().frames);
        if free != frames || self.cache.dirty_pages() > 0 || !self.driver.index.is_empty() {
            return Err(format!("{free} of {frames} frames came back at the end"));
        }
        Ok(())
    }

    fn outcome(self) -> CheckOutcome {
        let stats = *self.cache.stats();
        let mut seen = self.driver.seen;
        let parts: Vec<PartitionView<'_>> = self.cache.partitions().collect();
        let by_itself =
            |part: &PartitionView<'_>| part.stats.evicted - part.stats.evicted_by_misses;
        for (what, times) in [
            ("two partitions", u64::from(parts.len() > 1)),
            ("a rule of offsets", parts.get(2).map_or(0, |part| part.stats.inserted)),
            ("evicted by itself", parts.iter().map(by_itself).sum()),
            ("moved by sizing", self.cache.moved()),
            ("hits", stats.hits),
            ("misses", stats.misses),
            ("late hits", stats.late_hits),
            ("stale hits", stats.stale_hits),
            ("evicted", stats.evicted),
            ("readahead used", stats.ahead_used),
            ("readahead wasted", stats.ahead_wasted),
            ("readahead failed", stats.ahead_failed),
            ("readahead dropped", stats.ahead_dropped),
        ] {
            if times > 0 {
                *seen.entry(what).or_default() += times;
            }
        }
        let (journal, actions) = (self.driver.journal, self.came_back);
        // FNV-1a, 64 bits.
        let digest = journal.iter().chain(&actions).fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        CheckOutcome { digest, journal, actions, seen }
    }
}
