//! `streams`: any number of streams in any number of handles, with windows made for the device.
//!
//! A stream's record (`Stream`) lies with its marker: what a window brings carries the stream's
//! name, and the use of the marked page finds the record, whichever handle reads. So one mechanism
//! serves streams that share a handle, threads that share a stream, and files that are opened
//! again, with O(1) work a window and no search. A record dies with its marker.
//!
//! - *A stream begins* at a file's head, after the handle's previous read, and beside cached pages
//!   (after them, or before them and backward) unless random reads come there as often; also at a
//!   first touch, where first touches of the file became streams.
//! - *Its first window* is what the device delivers in the time of one access: a wrong guess costs
//!   as much as a right one saves. Each further one is eight times as long (four times, while the
//!   device's rate is not known), up to the device's window: for a seek-bound one
//!   `SEEK_BOUND_PRODUCTS` times the first, and beyond half of the stream's part of the file no
//!   more than a bet on its end is worth (`streams/sizes.rs`); for a parallel device what keeps
//!   enough in flight over all streams together.
//! - *Memory*: a stream has as much ahead as it uses while all of the budget is used once
//!   (`streams/sizes.rs`). A window that lacks room reclaims it from the stream whose pages
//!   would last longest. Where pages leave unread all the same, all windows halve
//!   (`streams/pressure.rs`).
//! - *Where there is no room*, or a parallel device is busy, the marker moves on to half of what is
//!   left.
//!
//! # Invariants
//! - A record is there exactly while its marker is in the cache, unused.
//! - Random reads that chance brings beside cached pages open windows of one page in `ODDS` reads
//!   on average behind them, in `ODDS_BACKWARD` before; what follows such a window comes on top.
//!   More behind them only where streams use ten times as much there (`streams/beside.rs`).
//! # Sources
//! Markers in pages: Wu, Xi, Xu, "File prefetching algorithm for concurrent streams" (2010). The
//! first window is the ski rental of Karlin et al., "Competitive snoopy caching" (1988). Constants:
//! `docs/decisions/0009-streams.md`, `docs/decisions/0011-reclaim.md`.

use hashbrown::HashMap;

mod beside;
mod ends;
mod opening;
mod pace;
mod pieces;
mod pressure;
mod records;
mod sizes;
mod stream;
mod strides;

use beside::Beside;
use ends::{Ends, Streak};
use pieces::Batch;
use pressure::Pressure;
use records::Records;
use stream::{Direction, Stream};
use strides::{Recent, Stride};

use super::handles::Handles;
use super::window;
use super::{
    Bounds, Cause, Decision, Demand, Named, Probes, Readahead, ReclaimRange, StreamFeedback,
    StreamId, Trigger, Window,
};
use crate::device::DeviceKind;
use crate::hash::FixedState;
use crate::params::Bytes;
use crate::units::{FileId, HandleId, Nanos, PageIndex};

crate::params! {
    /// What may be set.
    pub struct StreamsParams {
        /// The largest window; 0 for the device's and the memory's own.
        max: Bytes = Bytes(0),
        /// The largest first window of a stream; 0 for the device's own.
        first: Bytes = Bytes(0),
        /// The largest gap between pieces that is fetched as well, for caches that cannot drop
        /// it; 0 for any, where that is the cheaper way.
        through: Bytes = Bytes(0),
    }
}

/// See the module.
pub struct Streams {
    window_max: u32,
    opening_max: u32,
    through_max: u32,
    page_bytes: u32,
    bounds: Bounds,
    live: Records,
    files: HashMap<FileId, File, FixedState>,
    handles: Handles<Option<FileId>>,
    named: u32,
    pressure: Pressure,
    /// Pages that streams used so far.
    uses: u64,
    /// The stream whose pages are reclaimed just now.
    reclaimed: Option<StreamId>,
    /// Pieces that the last decision has still to be followed by.
    batch: Option<Batch>,
    streak: Streak,
}

/// How reads of a file turned out, in the last turns of the cache above all.
#[derive(Clone, Debug, Default)]
struct File {
    handles: u32,
    /// Pages that had been used when the counts were halved.
    aged: u64,
    /// Reads that no stream expected.
    touches: u64,
    /// Of these, those that were not just behind cached pages.
    places: u64,
    /// Streams that began.
    begun: u64,
    beside: Beside,
    recent: Recent,
    ends: Ends,
}

impl File {
    /// Places where lone reads have left cached pages with no stream behind them.
    fn lone_places(&self) -> u64 {
        self.places.saturating_sub(self.begun)
    }

    /// Halves the counts once for each `turn` of the cache until `uses`: what lone reads left has
    /// been evicted since, and a file that stays open is read in other ways later.
    fn age(&mut self, uses: u64, turn: u64) {
        let turns = uses.saturating_sub(self.aged) / turn;
        self.aged += turns * turn;
        let halvings = turns.min(63);
        for count in [&mut self.touches, &mut self.places, &mut self.begun] {
            *count >>= halvings;
        }
        self.beside.age(halvings);
    }
}

impl Named for Streams {
    const NAME: &'static str = "streams";
    type Params = StreamsParams;

    fn new(limits: StreamsParams, page_bytes: u32) -> Self {
        let most = |limit: Bytes| match limit.0 {
            0 => u32::MAX,
            _ => window::pages(limit, page_bytes),
        };
        Self {
            window_max: most(limits.max),
            opening_max: most(limits.first),
            through_max: most(limits.through),
            page_bytes,
            bounds: Bounds {
                ahead_pages_max: u32::MAX,
                request_pages_max: 1,
                cache_pages: u32::MAX,
            },
            live: Records::default(),
            files: HashMap::with_hasher(FixedState),
            handles: Handles::default(),
            named: 0,
            pressure: Pressure::default(),
            uses: 0,
            reclaimed: None,
            batch: None,
            streak: Streak::default(),
        }
    }
}

impl Readahead for Streams {
    fn wants_byte_strides(&self) -> bool {
        true
    }

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

    fn reclaim(&mut self, demand: &Demand) -> Option<ReclaimRange> {
        let wanted = self.wanted(demand)?;
        let range = self.richest(wanted);
        self.reclaimed = range.map(|range| range.stream);
        range
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        self.reclaimed = None;
        match demand.trigger {
            Trigger::Request => None,
            Trigger::Miss => Some(self.missed(demand)),
            Trigger::Marker => self.marked(demand),
        }
    }

    fn marker(&self, decision: Decision, file_pages: u64) -> Option<PageIndex> {
        let stream = self.live.get(decision.stream?)?;
        let window = decision.window;
        // A batch of pieces has one marker.
        let within = window.start <= stream.marker && stream.marker < window.end();
        (within && stream.marker < file_pages).then_some(stream.marker)
    }

    fn carried(&self, decision: Decision, page: PageIndex) -> bool {
        let stream = decision.stream.and_then(|id| self.live.get(id));
        let stride = stream.and_then(|stream| stream.stride);
        // Reads that overtake each other may look like a few pieces.
        stride.is_some_and(|stride| stride.seen >= SURE_PIECES && !stride.holds(page))
    }

    fn submitted(&mut self, demand: &Demand, _: Decision, fresh: u32) -> Option<Decision> {
        self.pressure.fetched(fresh, self.bounds.ahead_pages_max);
        self.next_piece(demand.file_pages)
    }

    fn note(&mut self, id: StreamId, page: PageIndex, feedback: StreamFeedback) {
        match feedback {
            StreamFeedback::Used { .. } => {
                self.uses += 1;
                self.streak.used(id);
                if let Some(stream) = self.live.get_mut(id) {
                    stream.reach(page);
                    stream.used = stream.used.saturating_add(1);
                    stream.runs.touch(page, 1);
                }
            }
            StreamFeedback::Wasted => {
                self.pressure.wasted += u64::from(self.reclaimed != Some(id) && self.would_use(id));
                if let Some(stream) = self.live.get_mut(id) {
                    stream.lose(page);
                }
            }
            StreamFeedback::Marked => {
                if let Some(stream) = self.live.get_mut(id) {
                    stream.marker = page;
                }
            }
            StreamFeedback::MarkerLost => {
                if self.live.get(id).is_some_and(|stream| stream.marker == page) {
                    self.live.remove(id);
                }
            }
        }
    }
}

impl Streams {
    /// A reader came to a stream's marker: its next window, or the marker moves on.
    fn marked(&mut self, demand: &Demand) -> Option<Decision> {
        let id = demand.stream?;
        let mut stream = *self.live.get(id).filter(|stream| stream.marker == demand.first)?;
        self.live.remove(id);
        if core::mem::take(&mut stream.guessed) {
            self.begins(stream.file);
        }
        if stream.direction == Direction::Forward {
            // The file may have been cut, and what a stride lost may lie behind its reader.
            stream.frontier = stream.frontier.min(demand.file_pages).max(demand.first + 1);
            let fits = |stride: &Stride| stride.piece <= u64::from(self.window_max);
            if let Some(stride) = stream.runs.stride(demand.all_pages).filter(fits) {
                stream.reach(demand.first);
                stream.pace = stream.pace.renewed(self.uses, stream.reached);
                return self.strided(demand, id, stream, stride);
            }
        }
        if self.is_by_chance(&stream, demand.first) || self.is_sparse(&stream, demand.first) {
            return None;
        }
        stream.stride = None;
        if stream.end.is_some_and(|end| end <= demand.first) {
            stream.end = None;
            self.ended_later(stream.file);
        }
        let size = self.next_size(demand, &stream);
        let left = stream.frontier.abs_diff(demand.first);
        let busy = demand.congested && demand.device.kind == DeviceKind::Parallel;
        let least = self.bounds.request_pages_max.min(size / 4).max(1);
        let can_wait = left > 2 * u64::from(least);
        let window = if (busy || demand.ahead_room < size) && can_wait {
            stream.marker = stream.at(left / 2);
            Window { start: stream.marker, size: 1, async_size: 1 }
        } else {
            let size = self.whole(size.min(demand.ahead_room));
            let size = stream.until_end(stream.frontier, size);
            let window = stream.next(size, demand.file_pages)?;
            stream.advance(window, self.async_size(demand, window.size));
            stream.reach(demand.first);
            (stream.from, stream.used) = (demand.first, demand.count);
            stream.pace = stream.pace.renewed(self.uses, stream.reached);
            window
        };
        self.live.insert(id, stream);
        Some(Decision { cause: Cause::Async, window, stream: Some(id) })
    }

    /// A run went on where its end was predicted.
    fn ended_later(&mut self, file: FileId) {
        self.files.entry(file).or_default().ends = Ends::default();
    }

    /// Whether the reader of `stream` uses so little on its way to `page` that what it passes over
    /// is not to be fetched.
    fn is_sparse(&self, stream: &Stream, page: PageIndex) -> bool {
        let (passed, used) = (page.abs_diff(stream.from), u64::from(stream.used.max(1)));
        let gaps = passed.saturating_sub(used);
        stream.direction == Direction::Forward && gaps / used > u64::from(self.through_max)
    }

    /// Whether the reader that came to the marker `page` may be none of `stream`.
    fn is_by_chance(&self, stream: &Stream, page: PageIndex) -> bool {
        let passed = page.abs_diff(stream.from);
        self.is_lonely(stream.file) && u64::from(stream.used) * FEW_USED < passed
    }

    /// Whether nearly all reads of the file were lone: then chance looks like streams at times.
    fn is_lonely(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|row| row.touches > LONELY_TOUCHES * (row.begun + 1))
    }

    fn begins(&mut self, file: FileId) {
        self.files.entry(file).or_default().begun += 1;
    }

    /// A name that no stream has.
    fn name(&mut self) -> StreamId {
        loop {
            self.named = self.named.wrapping_add(1);
            if self.live.get(StreamId(self.named)).is_none() {
                return StreamId(self.named);
            }
        }
    }
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
/// A seek-bound device spends one part in 16 of its time on positioning.
const SEEK_BOUND_PRODUCTS: u64 = 15;
/// And at least what is delivered meanwhile: a large request takes longer than an access, and a
/// reader takes a while to wake.
const IN_FLIGHT_TIME: Nanos = Nanos::from_millis(6);
/// A stream that goes on is likely long.
const GROWTH: u32 = 8;
/// While the device's rate is not known, what is fetched past a stream's end may take long.
const GROWTH_IN_DOUBT: u32 = 4;
/// The next window of a seek-bound device is fetched when a quarter of the last is left.
const ASYNC_PART: u64 = 4;
/// They are rare where so many reads of a file were lone ones for each that began a stream.
const LONELY_TOUCHES: u64 = 64;
/// There, a reader that uses no more than one page in so many comes to a marker by chance.
const FEW_USED: u64 = 8;
/// Pieces of a stride from which on its gaps are not kept.
const SURE_PIECES: u32 = 8;
