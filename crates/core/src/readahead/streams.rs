//! `streams`: any number of streams in any number of handles, with windows made for the device.
//!
//! ```text
//!                read          marker        frontier
//!   forward   ...|=============#=============|- - - next - - ->
//!   backward  <- - - next - - -|=============#=============|...
//!                              frontier      marker        read
//! ```
//! A stream's record lies with its marker: what a window brings carries the stream's name, and the
//! use of the marked page finds the record, whoever reads. So one mechanism serves streams that
//! share a handle, threads that share a stream, and files that are opened again, with O(1) work a
//! window and no search. A record dies with its marker.
//!
//! - *A stream begins* at a file's head, after the handle's previous read, and beside cached pages
//!   (after them, or before them and backward) unless random reads come there as often; also at a
//!   first touch, where first touches of the file became streams.
//! - *Its first window* is what the device delivers in the time of one access: a wrong guess costs
//!   as much as a right one saves. Each further one is eight times as long, up to the device's
//!   window: for an arm `ARM_REACHES` times the first; for a parallel device what keeps enough in
//!   flight over all streams together.
//! - *Memory*: a stream holds two windows, so each is half of its share of what may be unread.
//!   Where pages leave unread, all windows halve; they come back as that ends.
//! - *Where there is no room*, or a parallel device is busy, the marker moves on to half of what is
//!   left.
//!
//! # Invariants
//! - A record is there exactly while its marker is in the cache, unused.
//! - Random reads that chance brings beside cached pages open windows of one page in `ODDS` reads
//!   on average, before and behind; what follows such a window comes on top.
//! # Sources
//! Markers in pages: Wu, Xi, Xu, "File prefetching algorithm for concurrent streams" (2010). The
//! first window is the ski rental of Karlin et al., "Competitive snoopy caching" (1988). Constants:
//! `docs/decisions/0009-streams.md`.

use hashbrown::HashMap;

use super::handles::Handles;
use super::window;
use super::{
    Bounds, Cause, Decision, Demand, Fate, Named, Probes, Readahead, StreamId, Trigger, Window,
};
use crate::device::Kind;
use crate::hash::FixedState;
use crate::params::Bytes;
use crate::units::{FileId, HandleId, PageIndex};

crate::params! {
    /// What may be set.
    pub struct Limit {
        /// The largest window; 0 for the device's and the memory's own.
        max: Bytes = Bytes(0),
    }
}

/// See the module.
pub struct Streams {
    window_max: u32,
    page_bytes: u32,
    bounds: Bounds,
    live: HashMap<StreamId, Stream, FixedState>,
    files: HashMap<FileId, File, FixedState>,
    handles: Handles<Option<FileId>>,
    named: u32,
    pressure: Pressure,
}

/// What is known of a stream, as long as its marker is there.
#[derive(Clone, Copy, Debug)]
struct Stream {
    file: FileId,
    direction: Direction,
    /// Forward: the page after its windows. Backward: their first page.
    frontier: PageIndex,
    /// Pages of the last window.
    size: u32,
    marker: PageIndex,
    /// Opened at a first touch: its first marker says whether that was right.
    guessed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// What a miss is the beginning of.
#[derive(Clone, Copy, Debug)]
struct Begun {
    direction: Direction,
    /// Pages of the stream that are known; 0: it is a guess.
    before: u32,
    /// Pages that are worth the doubt.
    most: u32,
}

/// How reads of a file turned out.
#[derive(Clone, Copy, Debug, Default)]
struct File {
    handles: u32,
    /// Reads that no stream expected.
    touches: u64,
    /// Streams that began.
    begun: u64,
}

/// Whether memory is too small for the windows: pages of the last stretch that were fetched, and
/// that left unread.
#[derive(Clone, Copy, Debug, Default)]
struct Pressure {
    fetched: u64,
    wasted: u64,
    /// Windows are halved so many times.
    halvings: u32,
}

impl Named for Streams {
    const NAME: &'static str = "streams";
    type Params = Limit;

    fn new(limit: Limit, page_bytes: u32) -> Self {
        let window_max =
            if limit.max.0 == 0 { u32::MAX } else { window::pages(limit.max, page_bytes) };
        Self {
            window_max,
            page_bytes,
            bounds: Bounds { ahead_pages_max: u32::MAX, request_pages_max: 1 },
            live: HashMap::with_hasher(FixedState),
            files: HashMap::with_hasher(FixedState),
            handles: Handles::default(),
            named: 0,
            pressure: Pressure::default(),
        }
    }
}

impl Readahead for Streams {
    fn sees_device(&self) -> bool {
        true
    }

    fn probes(&self) -> Probes {
        Probes { before: HISTORY_PAGES, after: 0 }
    }

    fn sees_congestion(&self) -> bool {
        true
    }

    fn window_pages_max(&self) -> u32 {
        self.window_max
    }

    /// It makes do with any memory.
    fn window_pages_min(&self) -> u32 {
        1
    }

    fn bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    fn open(&mut self, handle: HandleId, file: FileId) {
        *self.handles.of(handle) = Some(file);
        self.files.entry(file).or_default().handles += 1;
    }

    fn close(&mut self, handle: HandleId) {
        let Some(file) = self.handles.of(handle).take() else { return };
        if let Some(row) = self.files.get_mut(&file) {
            row.handles -= 1;
            if row.handles == 0 {
                self.files.remove(&file);
            }
        }
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        match demand.trigger {
            Trigger::Request => None,
            Trigger::Miss => Some(self.missed(demand)),
            Trigger::Marker => self.marked(demand),
        }
    }

    fn marker(&self, decision: Decision, file_pages: u64) -> Option<PageIndex> {
        let stream = self.live.get(&decision.stream?)?;
        (stream.marker < file_pages).then_some(stream.marker)
    }

    fn submitted(&mut self, _: &Demand, _: Decision, fresh: u32) -> Option<Decision> {
        self.pressure.fetched(fresh, self.bounds.ahead_pages_max);
        None
    }

    fn note(&mut self, id: StreamId, page: PageIndex, fate: Fate) {
        match fate {
            Fate::Used { .. } => {}
            Fate::Wasted => self.pressure.wasted += 1,
            Fate::Marked => {
                if let Some(stream) = self.live.get_mut(&id) {
                    stream.marker = page;
                }
            }
            Fate::MarkerLost => {
                if self.live.get(&id).is_some_and(|stream| stream.marker == page) {
                    self.live.remove(&id);
                }
            }
        }
    }
}

impl Streams {
    /// A reader came to a stream's marker: its next window, or the marker moves on.
    fn marked(&mut self, demand: &Demand) -> Option<Decision> {
        let id = demand.stream?;
        let mut stream = *self.live.get(&id).filter(|stream| stream.marker == demand.first)?;
        self.live.remove(&id);
        if core::mem::take(&mut stream.guessed) {
            self.begins(stream.file);
        }
        if stream.direction == Direction::Forward {
            // The file may have been cut.
            stream.frontier = stream.frontier.min(demand.file_pages);
        }
        let size = self.next_size(demand, &stream);
        let left = stream.frontier.abs_diff(demand.first);
        let busy = demand.congested && demand.facts.kind == Kind::Parallel;
        let least = self.bounds.request_pages_max.min(size / 4).max(1);
        let can_wait = left > 2 * u64::from(least);
        let window = if (busy || self.room(demand) < size) && can_wait {
            stream.marker = stream.at(left / 2);
            Window { start: stream.marker, size: 1, async_size: 1 }
        } else {
            let size = self.whole(size.min(self.room(demand)));
            let window = stream.next(size, demand.file_pages)?;
            stream.advance(window, self.lead(demand, window.size));
            window
        };
        self.live.insert(id, stream);
        Some(Decision { cause: Cause::Async, window, stream: Some(id) })
    }

    /// A page is not there: the first window of a stream, or just what is asked.
    fn missed(&mut self, demand: &Demand) -> Decision {
        let count = demand.count;
        let more = count < self.window_max && demand.ahead_room > 0;
        let Some(Begun { direction, before, most }) = self.begun(demand).filter(|_| more) else {
            return window::as_asked(demand);
        };
        let known = demand.stream.filter(|_| direction == Direction::Forward);
        let known = known.and_then(|id| Some((id, self.live.remove(&id)?.size)));
        let before = known.map_or(before, |(_, size)| size);
        let largest = self.device_window(demand).min(self.share()).min(most);
        let size = before.saturating_mul(GROWTH).max(self.opening(demand)).min(largest);
        let size = self.whole(size.min(self.room(demand)));
        // A reader of large pieces gets one more.
        let most = count.saturating_add(demand.ahead_room).min(self.window_max);
        let size = size.max(count.saturating_mul(2)).min(most);
        let Some(window) = opening_window(demand, direction, size) else {
            return window::as_asked(demand);
        };
        let guessed = before == 0;
        let (file, marker) = (demand.file, demand.first);
        let mut stream = Stream { file, direction, frontier: 0, size: 0, marker, guessed };
        stream.advance(window, self.lead(demand, window.size).min(window.size - count));
        let id = known.map_or_else(|| self.name(), |(id, _)| id);
        self.live.insert(id, stream);
        Decision { cause: Cause::Sync, window, stream: Some(id) }
    }

    /// Whether a miss belongs to a stream.
    fn begun(&mut self, demand: &Demand) -> Option<Begun> {
        let (first, file) = (demand.first, demand.file);
        let previous = window::previous_page(demand, self.page_bytes);
        let is_next = demand.opens_request && window::follows(first, previous);
        let expected = demand.stream.and_then(|id| self.live.get(&id));
        let expected = expected.is_some_and(|stream| stream.frontier == first);
        let forward = Begun { direction: Direction::Forward, before: 0, most: u32::MAX };
        let most = self.affordable(demand);
        let by_chance = most < self.opening(demand).min(AFFORDABLE_MIN);
        let known = if first == 0 || is_next || expected {
            Some(Begun { before: demand.cached_before.max(1), ..forward })
        } else if demand.cached_before > 0 && !by_chance {
            Some(Begun { before: demand.cached_before, most, ..forward })
        } else if demand.follows_cached && !by_chance {
            Some(Begun { direction: Direction::Backward, before: 1, most })
        } else {
            None
        };
        if known.is_some() {
            if !expected {
                self.begins(file);
            }
            return known;
        }
        let row = self.files.entry(file).or_default();
        row.touches += 1;
        let guess = row.begun >= GUESS_STREAMS && row.begun * GUESS_ONE_IN >= row.touches;
        guess.then_some(forward)
    }

    /// Pages that may be fetched since there are cached ones beside a miss. A random read of a file
    /// of `n` pages meets one of `k` such places in `k` of `n` cases, and then they go to waste.
    fn affordable(&self, demand: &Demand) -> u32 {
        let row = self.files.get(&demand.file).copied().unwrap_or_default();
        let places = row.touches.saturating_sub(row.begun).max(1);
        pages_u32(demand.file_pages / places.saturating_mul(ODDS))
    }

    fn begins(&mut self, file: FileId) {
        self.files.entry(file).or_default().begun += 1;
    }

    /// A name that no stream has.
    fn name(&mut self) -> StreamId {
        loop {
            self.named = self.named.wrapping_add(1);
            if !self.live.contains_key(&StreamId(self.named)) {
                return StreamId(self.named);
            }
        }
    }

    /// Pages of the window after the last one.
    fn next_size(&self, demand: &Demand, stream: &Stream) -> u32 {
        let device = self.device_window(demand);
        // Its first pages are needed first and come last: an arm does less in one go.
        let slow = stream.direction == Direction::Backward && demand.facts.kind == Kind::Positional;
        let device = if slow { device / 2 } else { device };
        // What a device delivers is seen only by asking for more.
        let spare = demand.ahead_room > self.bounds.ahead_pages_max / 2;
        let explored = if demand.rate_known || !spare { 0 } else { stream.size.saturating_mul(2) };
        let size = stream.size.saturating_mul(GROWTH).min(device.max(explored));
        size.min(self.share()).min(self.window_max).max(1)
    }

    /// Pages of a window that the device serves at nearly its full rate.
    fn device_window(&self, demand: &Demand) -> u32 {
        let (reach, request) = (self.reach(demand), self.request_pages(demand));
        let pages = match demand.facts.kind {
            Kind::Positional => reach.saturating_mul(ARM_REACHES),
            Kind::Parallel => self.in_flight_share(demand).max(2 * request),
        };
        pages_u32(pages).max(self.bounds.request_pages_max).min(self.window_max)
    }

    /// Pages of a stream's first window.
    fn opening(&self, demand: &Demand) -> u32 {
        let reach = self.reach(demand);
        let pages = match demand.facts.kind {
            Kind::Positional => reach,
            Kind::Parallel => (reach / self.count()).max(self.request_pages(demand)),
        };
        pages_u32(pages).clamp(OPENING_MIN, self.device_window(demand).max(OPENING_MIN))
    }

    /// Pages from the marker to the end of a window of `size`.
    fn lead(&self, demand: &Demand, size: u32) -> u32 {
        let part = u64::from(size) / LEAD_PART;
        let pages = match demand.facts.kind {
            Kind::Positional => part,
            Kind::Parallel => part.max(self.in_flight_share(demand)),
        };
        pages_u32(pages).clamp(1, size)
    }

    /// Each stream's part of what is to be in flight at a parallel device.
    fn in_flight_share(&self, demand: &Demand) -> u64 {
        self.reach(demand).saturating_mul(IN_FLIGHT_REACHES) / self.count()
    }

    /// Pages that the device delivers in the time of one access.
    fn reach(&self, demand: &Demand) -> u64 {
        let (rate, access) = (demand.facts.bytes_per_second, demand.facts.access.0);
        // What was seen so far is as little as was asked for.
        let rate = if demand.rate_known { rate } else { rate.max(ASSUMED_RATE) };
        let bytes = u128::from(rate) * u128::from(access) / 1_000_000_000;
        u64::try_from(bytes / u128::from(self.page_bytes)).unwrap_or(u64::MAX).max(1)
    }

    fn request_pages(&self, demand: &Demand) -> u64 {
        u64::from(demand.facts.request_bytes / self.page_bytes).max(1)
    }

    /// Streams there are, and the one that is asked for.
    fn count(&self) -> u64 {
        self.live.len() as u64 + 1
    }

    /// The largest window that memory has for each stream.
    fn share(&self) -> u32 {
        let both = u64::from(self.bounds.ahead_pages_max) / self.count();
        pages_u32((both / 2) >> self.pressure.halvings).max(1)
    }

    /// What one window may take of the room that is left: others come.
    fn room(&self, demand: &Demand) -> u32 {
        let room = demand.ahead_room;
        (room / 4).max(self.bounds.request_pages_max).min(room)
    }

    /// `size` in whole requests, where it is one at least.
    fn whole(&self, size: u32) -> u32 {
        let request = self.bounds.request_pages_max;
        if size < request { size } else { size - size % request }
    }
}

impl Stream {
    /// The page from which on `left` pages are ahead; `left` is at least 1.
    fn at(&self, left: u64) -> PageIndex {
        match self.direction {
            Direction::Forward => self.frontier - left,
            Direction::Backward => self.frontier + left - 1,
        }
    }

    /// The next window of `size` within the file, if anything is left of it.
    fn next(&self, size: u32, file_pages: u64) -> Option<Window> {
        let left = match self.direction {
            Direction::Forward => file_pages.saturating_sub(self.frontier),
            Direction::Backward => self.frontier,
        };
        let size = pages_u32(left).min(size);
        let start = match self.direction {
            Direction::Forward => self.frontier,
            Direction::Backward => self.frontier - u64::from(size),
        };
        (size > 0).then_some(Window { start, size, async_size: size })
    }

    /// `window` is fetched; its marker is where `lead` pages are ahead.
    fn advance(&mut self, window: Window, lead: u32) {
        self.size = window.size;
        self.frontier = match self.direction {
            Direction::Forward => window.end(),
            Direction::Backward => window.start,
        };
        // Backward, the first pages come last: the next window is asked for as they are met.
        let lead = match self.direction {
            Direction::Forward => lead,
            Direction::Backward => window.async_size,
        };
        self.marker = self.at(lead.into());
    }
}

impl Pressure {
    fn fetched(&mut self, fresh: u32, ahead_pages_max: u32) {
        self.fetched += u64::from(fresh);
        if self.fetched < u64::from(ahead_pages_max / 2).max(1) {
            return;
        }
        if self.wasted * 8 > self.fetched {
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
        } else if self.wasted * 64 < self.fetched {
            self.halvings = self.halvings.saturating_sub(1);
        }
        (self.fetched, self.wasted) = (0, 0);
    }
}

/// The window of `size` that a miss opens, if it is more than what is asked.
fn opening_window(demand: &Demand, direction: Direction, size: u32) -> Option<Window> {
    let (first, count) = (demand.first, demand.count);
    let end = first + u64::from(count);
    let (start, size) = match direction {
        Direction::Forward => (first, size.min(pages_u32(demand.file_pages - first))),
        Direction::Backward => {
            let size = size.min(pages_u32(end));
            (end - u64::from(size), size)
        }
    };
    (size > count).then(|| Window { start, size, async_size: size - count })
}

fn pages_u32(pages: u64) -> u32 {
    u32::try_from(pages).unwrap_or(u32::MAX)
}

/// How far a miss looks back for the size of a stream that lost its record.
const HISTORY_PAGES: u32 = 64;
/// A first window holds a little at least: as Linux's for a reader of single pages.
const OPENING_MIN: u32 = 4;
/// Bytes a second of a device that was not seen to be busy: those of a disk.
const ASSUMED_RATE: u64 = 100_000_000;
/// An arm spends one part in 16 of its time on positioning.
const ARM_REACHES: u64 = 15;
/// Over all streams of a parallel device: one in flight, as much again for what is late, and as
/// long as not all is known of the device the double.
const IN_FLIGHT_REACHES: u64 = 4;
/// A stream that goes on is likely long.
const GROWTH: u32 = 8;
/// The next window of an arm is asked for when a quarter of the last is left.
const LEAD_PART: u64 = 4;
/// On random reads one page in so many may be read in vain, on average.
const ODDS: u64 = 32;
/// Smaller windows than this are not worth the doubt.
const AFFORDABLE_MIN: u32 = 4;
/// First touches are taken for streams once so many streams began in the file, and at least one
/// touch in so many was one.
const GUESS_STREAMS: u64 = 4;
const GUESS_ONE_IN: u64 = 3;
/// Under the worst pressure a window is this many times halved.
const HALVINGS_MAX: u32 = 6;
