//! A driver in small: no bytes, but every frame's page, every pin and every publication.
//!
//! ```text
//!   world.read(1, 0, 4)   ->  "demand 0..4"
//!   world.arrive(0..4)    ->  "serve 1:0, serve 1:1, serve 1:2, serve 1:3, done 1"
//! ```
//!
//! Pages of the first file are numbers; those of another are `f1/7`. Publications show only where
//! a marker is on them (`mark 3`) or was taken off (`unmark 3`); the others are checked silently.
//! So are outcomes of windows: they never exceed what was counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forerun_core::cache::{Cache, Settings};
use forerun_core::drive::{Driver, drive};
use forerun_core::event::{Actions, Error, Event, FetchKind, Hit, PrefetchOutcomes};
use forerun_core::readahead::Decision;
use forerun_core::units::{
    FileId, FrameId, HandleId, Nanos, PageId, PageIndex, PartitionId, RequestId,
};
use forerun_core::windows::{WindowLog, WindowRecord};

/// The cache and its surroundings.
pub(crate) struct World {
    pub(crate) cache: Cache,
    pub(crate) now: Nanos,
    pub(crate) actions: Actions,
    pub(crate) outside: Outside,
}

/// What the driver knows of frames and pages.
pub(crate) struct Outside {
    /// What was carried out, as text.
    seen: Vec<String>,
    /// Where each page was last fetched, filled or published.
    at: BTreeMap<PageId, FrameId>,
    published: BTreeMap<FrameId, (PageId, u32, bool)>,
    busy: BTreeSet<FrameId>,
    pinned: BTreeSet<FrameId>,
    file_of: BTreeMap<u32, FileId>,
    owners: BTreeMap<u64, u32>,
    answered: BTreeSet<u64>,
    requests_on: u32,
    pub(crate) log: WindowLog,
    now: Nanos,
}

pub(crate) fn page(index: u64) -> PageId {
    PageId { file: FileId(0), index }
}

fn name(page: PageId) -> String {
    if page.file.0 == 0 {
        page.index.to_string()
    } else {
        format!("f{}/{}", page.file.0, page.index)
    }
}

fn span(page: PageId, frames: &[FrameId]) -> String {
    format!("{}..{}", name(page), page.index + frames.len() as u64)
}

impl World {
    /// A cache of `frames` with `readahead`, and handle 0 on a file of 100 pages.
    pub(crate) fn new(frames: u32, readahead: &str) -> Self {
        Self::with(frames, readahead, |_| {})
    }

    pub(crate) fn with(frames: u32, readahead: &str, change: impl Fn(&mut Settings)) -> Self {
        let mut settings = Settings::new(frames, "lru", readahead);
        settings.dirty_pages_max = frames;
        change(&mut settings);
        let mut world = Self {
            cache: Cache::new(settings).expect("good settings"),
            now: Nanos(0),
            actions: Actions::new(),
            outside: Outside::new(),
        };
        world.open(0, 0, 0, 100);
        world
    }

    /// Sends an event; what followed, as text.
    pub(crate) fn send(&mut self, event: Event<'_>) -> String {
        drive(&mut self.cache, self.now, event, &mut self.actions, &mut self.outside);
        assert!(self.cache.stats().balanced(), "{:?}", self.cache.stats());
        self.cache.audit();
        self.check_outcomes();
        self.outside.seen.drain(..).collect::<Vec<_>>().join(", ")
    }

    /// No window reports an outcome that was not counted.
    fn check_outcomes(&self) {
        let stats = self.cache.stats();
        let [used, wasted, failed, unread] = self.outcomes();
        assert!(used <= stats.ahead_used && wasted <= stats.ahead_wasted, "{stats:?}");
        assert!(failed <= stats.ahead_failed && unread <= stats.ahead_unread, "{stats:?}");
    }

    /// Pages that windows read ahead: used, wasted, failed, unread.
    pub(crate) fn outcomes(&self) -> [u64; 4] {
        let mut sums = [0; 4];
        for WindowRecord { outcomes, unread, .. } in self.outside.log.rows(&self.cache) {
            let row = [outcomes.used + outcomes.late, outcomes.wasted, outcomes.failed, unread];
            for (sum, count) in sums.iter_mut().zip(row) {
                *sum += u64::from(count);
            }
        }
        sums
    }

    pub(crate) fn open(&mut self, handle: u32, file: u32, partition: u32, pages: u64) -> String {
        self.outside.file_of.insert(handle, FileId(file));
        let (partition, file) = (PartitionId(partition), FileId(file));
        self.send(Event::Open { handle: HandleId(handle), file, partition, file_pages: pages })
    }

    pub(crate) fn close(&mut self, handle: u32) -> String {
        self.send(Event::Close { handle: HandleId(handle) })
    }

    fn own(&mut self, request: u64) -> (RequestId, HandleId) {
        let handle = self.outside.requests_on;
        self.outside.owners.insert(request, handle);
        self.outside.answered.remove(&request);
        (RequestId(request), HandleId(handle))
    }

    /// The requests that follow come through `handle`.
    pub(crate) fn through(&mut self, handle: u32) -> &mut Self {
        self.outside.requests_on = handle;
        self
    }

    pub(crate) fn read(&mut self, request: u64, first: u64, count: u32) -> String {
        self.read_after(request, first, count, None, false)
    }

    pub(crate) fn read_after(
        &mut self,
        request: u64,
        first: u64,
        count: u32,
        previous_end: Option<u64>,
        congested: bool,
    ) -> String {
        let (request, handle) = self.own(request);
        self.send(Event::Read { request, handle, first, count, previous_end, congested })
    }

    pub(crate) fn prefetch(&mut self, first: u64, count: u32) -> String {
        let handle = HandleId(self.outside.requests_on);
        self.send(Event::Prefetch { handle, first, count })
    }

    /// Reads `first..first + count` and has all that is fetched arrive.
    pub(crate) fn load(&mut self, first: u64, count: u32) {
        for index in first..first + u64::from(count) {
            let text = self.read(1_000_000 + index, index, 1);
            if !text.contains("done") {
                self.arrive(index, 1);
            }
        }
    }

    pub(crate) fn write(&mut self, request: u64, first: u64, count: u32) -> String {
        self.write_part(request, first, count, (false, false), false)
    }

    pub(crate) fn write_part(
        &mut self,
        request: u64,
        first: u64,
        count: u32,
        (head_partial, tail_partial): (bool, bool),
        durable: bool,
    ) -> String {
        let (request, handle) = self.own(request);
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

    /// The copies of `request` into `pages` ended.
    pub(crate) fn filled(&mut self, request: u64, pages: Range<u64>) -> String {
        let file = self.outside.file_of[&self.outside.owners[&request]];
        let frames: Vec<FrameId> =
            pages.map(|index| self.outside.at[&PageId { file, index }]).collect();
        let request = RequestId(request);
        let texts = frames.into_iter().map(|frame| self.send(Event::Filled { request, frame }));
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// Writes pages whole and copies the bytes at once.
    pub(crate) fn dirty(&mut self, request: u64, first: u64, count: u32) {
        self.write(request, first, count);
        self.filled(request, first..first + u64::from(count));
    }

    pub(crate) fn flush(&mut self, request: u64) -> String {
        let (request, handle) = self.own(request);
        self.send(Event::Flush { request, handle })
    }

    pub(crate) fn cancel(&mut self, request: u64) -> String {
        self.send(Event::Cancel { request: RequestId(request) })
    }

    pub(crate) fn frame(&self, index: u64) -> FrameId {
        self.frame_of(PageId { file: self.file(), index })
    }

    pub(crate) fn frame_of(&self, page: PageId) -> FrameId {
        self.outside.at[&page]
    }

    fn file(&self) -> FileId {
        self.outside.file_of[&self.outside.requests_on]
    }

    fn ends(&mut self, first: u64, count: u32) -> FrameId {
        let file = self.file();
        for index in first..first + u64::from(count) {
            let frame = self.frame_of(PageId { file, index });
            self.outside.busy.remove(&frame);
        }
        self.frame(first)
    }

    pub(crate) fn arrive(&mut self, first: u64, count: u32) -> String {
        let first = self.ends(first, count);
        self.send(Event::Arrived { first, count })
    }

    /// All that is being fetched arrives; nothing is being written.
    pub(crate) fn arrive_all(&mut self) {
        while let Some(first) = self.outside.busy.pop_first() {
            self.send(Event::Arrived { first, count: 1 });
        }
    }

    /// A reader without a lock used the page.
    pub(crate) fn use_page(&mut self, index: u64) -> String {
        let hits = [self.hit(index)];
        self.send(Event::Hits { hits: &hits })
    }

    pub(crate) fn fail(&mut self, first: u64, count: u32) -> String {
        let first = self.ends(first, count);
        self.send(Event::Failed { first, count, errno: 5 })
    }

    pub(crate) fn written(&mut self, first: u64, count: u32) -> String {
        let first = self.frame(first);
        self.send(Event::Written { first, count })
    }

    pub(crate) fn write_failed(&mut self, first: u64, count: u32) -> String {
        let first = self.frame(first);
        self.send(Event::WriteFailed { first, count, errno: 28 })
    }

    pub(crate) fn synced(&mut self, errno: i32) -> String {
        let file = self.file();
        self.send(Event::Synced { file, errno })
    }

    pub(crate) fn truncate(&mut self, pages: u64) -> String {
        let file = self.file();
        self.send(Event::Truncate { file, pages })
    }

    /// The store is to zero pages; durable with the next flush.
    pub(crate) fn zero(&mut self, request: u64, first: u64, count: u64) -> String {
        let (request, handle) = self.own(request);
        let (keeps_first, file_pages, durable) = (false, None, false);
        let change =
            Event::Change { request, handle, first, count, keeps_first, file_pages, durable };
        self.send(change)
    }

    /// The store is to cut or extend the file, durably: to `pages`, and a part of one more where it
    /// `keeps` one.
    pub(crate) fn set_len(&mut self, request: u64, pages: u64, keeps: bool) -> String {
        let (request, handle) = self.own(request);
        let (first, count, file_pages) = (pages, u64::MAX, Some(pages + u64::from(keeps)));
        let (keeps_first, durable) = (keeps, true);
        let change =
            Event::Change { request, handle, first, count, keeps_first, file_pages, durable };
        self.send(change)
    }

    pub(crate) fn changed(&mut self, request: u64, errno: i32) -> String {
        self.send(Event::Changed { request: RequestId(request), errno })
    }

    pub(crate) fn invalidate(&mut self, first: u64, count: u64) -> String {
        let file = self.file();
        self.send(Event::Invalidate { file, first, count })
    }

    pub(crate) fn resize(&mut self, partition: u32, frames: u32) -> String {
        self.send(Event::Resize { partition: PartitionId(partition), frames })
    }

    pub(crate) fn change_policy(&mut self, partition: u32, name: &str) -> String {
        let policy = Cache::check_policy(name).expect(name);
        self.send(Event::Policy { partition: PartitionId(partition), policy })
    }

    pub(crate) fn tick(&mut self, after: u64) -> String {
        self.now += Nanos(after);
        self.send(Event::Tick)
    }

    /// The hit of a reader that finds `page` in the index.
    pub(crate) fn hit(&self, index: u64) -> Hit {
        let frame = self.frame(index);
        let (page, generation, _) = self.outside.published[&frame];
        assert_eq!(page.index, index);
        Hit { frame, generation }
    }

    pub(crate) fn marked(&self, index: u64) -> bool {
        self.outside.published[&self.frame(index)].2
    }

    pub(crate) fn marker(&mut self, index: u64, count: u32, congested: bool) -> String {
        let (hit, handle) = (self.hit(index), HandleId(self.outside.requests_on));
        self.send(Event::Marker { handle, hit, count, previous_end: None, congested })
    }

    pub(crate) fn pin(&mut self, index: u64) {
        let frame = self.frame(index);
        self.outside.pinned.insert(frame);
    }

    pub(crate) fn unpin(&mut self, frame: FrameId) {
        assert!(self.outside.pinned.remove(&frame));
    }

    pub(crate) fn resident(&self, pages: Range<u64>) -> Vec<u64> {
        let file = self.file();
        pages.filter(|&index| self.cache.resident(PageId { file, index }).is_some()).collect()
    }
}

impl Outside {
    fn new() -> Self {
        Self {
            seen: Vec::new(),
            at: BTreeMap::new(),
            published: BTreeMap::new(),
            busy: BTreeSet::new(),
            pinned: BTreeSet::new(),
            file_of: BTreeMap::new(),
            owners: BTreeMap::new(),
            answered: BTreeSet::new(),
            requests_on: 0,
            log: WindowLog::new(WINDOWS_MAX),
            now: Nanos(0),
        }
    }

    fn asked(&self, request: RequestId, index: u64) -> PageId {
        assert!(!self.answered.contains(&request.0), "{request:?} was answered");
        PageId { file: self.file_of[&self.owners[&request.0]], index }
    }

    fn answer(&mut self, request: RequestId) {
        assert!(self.answered.insert(request.0), "{request:?} is answered twice");
    }

    /// A frame that gets another page's bytes is unused.
    fn take(&mut self, page: PageId, frame: FrameId) {
        assert!(!self.busy.contains(&frame), "{frame:?} is in use");
        assert!(!self.pinned.contains(&frame), "{frame:?} is held");
        assert!(!self.published.contains_key(&frame), "{frame:?} is published");
        self.at.insert(page, frame);
    }

    fn note(&mut self, text: impl Into<String>) {
        self.seen.push(text.into());
    }
}

impl Driver for Outside {
    fn serve(&mut self, request: RequestId, page: PageIndex, frame: FrameId) {
        let id = self.asked(request, page);
        assert_eq!(self.at[&id], frame, "{id:?} is elsewhere");
        assert!(!self.busy.contains(&frame), "{id:?} is in flight");
        self.note(format!("serve {}:{page}", request.0));
    }

    fn fill(&mut self, request: RequestId, page: PageIndex, frame: FrameId, fresh: bool) {
        let id = self.asked(request, page);
        if fresh {
            self.take(id, frame);
        }
        assert_eq!(self.at[&id], frame, "{id:?} is elsewhere");
        self.note(format!("fill {}:{page}{}", request.0, if fresh { " fresh" } else { "" }));
    }

    fn fetch(&mut self, kind: FetchKind, page: PageId, frames: &[FrameId]) {
        for (index, &frame) in (page.index..).zip(frames) {
            self.take(PageId { index, ..page }, frame);
            self.busy.insert(frame);
        }
        let kind = if kind == FetchKind::Demand { "demand" } else { "ahead" };
        self.note(format!("{kind} {}", span(page, frames)));
    }

    fn write(&mut self, page: PageId, frames: &[FrameId]) {
        for (index, frame) in (page.index..).zip(frames) {
            assert_eq!(self.at[&PageId { index, ..page }], *frame);
        }
        self.note(format!("write {}", span(page, frames)));
    }

    fn sync(&mut self, file: FileId) {
        self.note(if file.0 == 0 { "sync".into() } else { format!("sync f{}", file.0) });
    }

    fn change(&mut self, request: RequestId) {
        assert!(!self.answered.contains(&request.0), "{request:?} was answered");
        self.note(format!("change {}", request.0));
    }

    fn done(&mut self, request: RequestId) {
        self.answer(request);
        self.note(format!("done {}", request.0));
    }

    fn fail(&mut self, request: RequestId, error: Error) {
        self.answer(request);
        self.note(format!("fail {}: {error}", request.0));
    }

    fn publish(&mut self, page: PageId, frame: FrameId, generation: u32, marker: bool) {
        assert_eq!(self.at[&page], frame, "{page:?} is elsewhere");
        let before = self.published.insert(frame, (page, generation, marker));
        assert!(before.is_none_or(|(old, count, _)| (old, count) == (page, generation)));
        match (marker, before) {
            (true, _) => self.note(format!("mark {}", name(page))),
            (false, Some(_)) => self.note(format!("unmark {}", name(page))),
            (false, None) => {}
        }
    }

    fn retract(&mut self, frame: FrameId, gone: bool) -> bool {
        let loose = !self.pinned.contains(&frame);
        // Else this is one more request for a frame whose page is gone.
        let Some(&(page, ..)) = self.published.get(&frame) else {
            self.note(if loose { "let go" } else { "still held" });
            return loose;
        };
        if loose || gone {
            self.published.remove(&frame);
        }
        let how = if gone { " gone" } else { "" };
        let held = if loose { "" } else { " pinned" };
        self.note(format!("out {}{how}{held}", name(page)));
        loose
    }

    fn explain(&mut self, handle: HandleId, page: PageIndex, decision: Decision, fresh: u32) {
        self.log.opened(self.now, handle, decision, fresh);
        let (cause, window) = (decision.cause.name(), decision.window);
        let (start, end, tail) = (window.start, window.end(), window.async_size);
        self.note(format!("{cause} {start}..{end}-{tail} for {}:{page} fresh {fresh}", handle.0));
    }

    fn outcomes(&mut self, window: u32, outcomes: PrefetchOutcomes) {
        self.log.count_outcomes(self.now, window, outcomes);
    }

    fn sent(&mut self, now: Nanos, _: &Event<'_>) {
        self.now = now;
    }
}

/// Windows that are remembered: all that these tests open.
const WINDOWS_MAX: usize = 1 << 16;
