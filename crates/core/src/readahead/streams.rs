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
//!   as much as a right one saves. Each further one is eight times as long (four times, while the
//!   device's rate is not known), up to the device's window: for an arm `ARM_REACHES` times the
//!   first; for a parallel device what keeps enough in flight over all streams together.
//! - *Memory*: a stream has as much ahead as it uses while all of the budget is used once
//!   (`streams/sizes.rs`). A window that lacks room has it taken back from the stream whose pages
//!   would last longest. Where pages leave unread all the same, all windows halve
//!   (`streams/pressure.rs`).
//! - *Where there is no room*, or a parallel device is busy, the marker moves on to half of what is
//!   left.
//!
//! # Invariants
//! - A record is there exactly while its marker is in the cache, unused.
//! - Random reads that chance brings beside cached pages open windows of one page in `ODDS` reads
//!   on average behind them, in `ODDS_BACKWARD` before; what follows such a window comes on top.
//! # Sources
//! Markers in pages: Wu, Xi, Xu, "File prefetching algorithm for concurrent streams" (2010). The
//! first window is the ski rental of Karlin et al., "Competitive snoopy caching" (1988). Constants:
//! `docs/decisions/0009-streams.md`, `docs/decisions/0011-reclaim.md`.

use hashbrown::HashMap;

mod ends;
mod pace;
mod pieces;
mod pressure;
mod records;
mod sizes;
mod strides;

use ends::{Ends, Streak};
use pace::{Pace, Part};
use pieces::Batch;
use pressure::Pressure;
use records::Records;
use strides::{Recent, Runs, Stride};

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
    pub struct Limits {
        /// The largest window; 0 for the device's and the memory's own.
        max: Bytes = Bytes(0),
        /// The largest first window of a stream; 0 for the device's own.
        first: Bytes = Bytes(0),
    }
}

/// See the module.
pub struct Streams {
    window_max: u32,
    opening_max: u32,
    page_bytes: u32,
    bounds: Bounds,
    live: Records,
    files: HashMap<FileId, File, FixedState>,
    handles: Handles<Option<FileId>>,
    named: u32,
    pressure: Pressure,
    /// Pages that streams used so far.
    uses: u64,
    /// The stream whose pages are taken back just now.
    gives: Option<StreamId>,
    /// Pieces that the last decision has still to be followed by.
    batch: Option<Batch>,
    streak: Streak,
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
    /// The farthest page that was used.
    reached: PageIndex,
    /// Where the reader was as the last window was opened, and pages used since.
    from: PageIndex,
    used: u32,
    pace: Pace,
    /// Opened at a first touch: its first marker says whether that was right.
    guessed: bool,
    /// What its reader touched.
    runs: Runs,
    /// The pieces for which its last windows were made, if they were.
    stride: Option<Stride>,
    /// The page behind its foreseen end.
    end: Option<PageIndex>,
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
#[derive(Clone, Debug, Default)]
struct File {
    handles: u32,
    /// Reads that no stream expected.
    touches: u64,
    /// Streams that began.
    begun: u64,
    recent: Recent,
    ends: Ends,
}

impl Named for Streams {
    const NAME: &'static str = "streams";
    type Params = Limits;

    fn new(limits: Limits, page_bytes: u32) -> Self {
        let most = |limit: Bytes| match limit.0 {
            0 => u32::MAX,
            _ => window::pages(limit, page_bytes),
        };
        Self {
            window_max: most(limits.max),
            opening_max: most(limits.first),
            page_bytes,
            bounds: Bounds { ahead_pages_max: u32::MAX, request_pages_max: 1 },
            live: Records::default(),
            files: HashMap::with_hasher(FixedState),
            handles: Handles::default(),
            named: 0,
            pressure: Pressure::default(),
            uses: 0,
            gives: None,
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
        self.gives = range.map(|range| range.stream);
        range
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        self.gives = None;
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
                self.pressure.wasted += u64::from(self.gives != Some(id) && self.would_use(id));
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
            if let Some(stride) = stream.runs.stride(demand.file_pages).filter(fits) {
                stream.reach(demand.first);
                stream.pace = stream.pace.renewed(self.uses, stream.reached);
                return self.strided(demand, id, stream, stride);
            }
        }
        let passed = demand.first.abs_diff(stream.from);
        if self.is_lonely(stream.file) && u64::from(stream.used) * FEW_USED < passed {
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
            stream.advance(window, self.lead(demand, window.size));
            stream.reach(demand.first);
            (stream.from, stream.used) = (demand.first, demand.count);
            stream.pace = stream.pace.renewed(self.uses, stream.reached);
            window
        };
        self.live.insert(id, stream);
        Some(Decision { cause: Cause::Async, window, stream: Some(id) })
    }

    /// A page is not there: the first window of a stream, or just what is asked.
    fn missed(&mut self, demand: &Demand) -> Decision {
        let count = demand.count;
        self.uses += u64::from(count);
        let more = count < self.window_max && demand.ahead_room > 0;
        let runs = self.follow(demand);
        if let Some(decision) = more.then(|| self.resumed(demand, runs)).flatten() {
            return decision;
        }
        let Some(Begun { direction, before, most }) = self.begun(demand).filter(|_| more) else {
            return window::as_asked(demand);
        };
        let same = |id: &StreamId| self.live.get(*id).is_some_and(|row| row.direction == direction);
        let known = demand.stream.filter(same).filter(|_| direction == Direction::Forward);
        let known = known.and_then(|id| Some((id, self.live.remove(id)?.size)));
        let before = known.map_or(before, |(_, size)| size);
        let largest = self.device_window(demand).min(self.share(demand, Part::default())).min(most);
        let size = before.saturating_mul(GROWTH).max(self.opening(demand)).min(largest);
        // Others may begin as well.
        let room = (demand.ahead_room / 4).max(OPENING_MIN).min(demand.ahead_room);
        let size = self.whole(size.min(room));
        // A reader of large pieces gets one more.
        let most = count.saturating_add(demand.ahead_room).min(self.window_max);
        let size = size.max(count.saturating_mul(2)).min(most);
        let end = self.foreseen(demand, direction, runs);
        let size = self.to_end(demand, size, end).min(most);
        let Some(window) = opening_window(demand, direction, size) else {
            return window::as_asked(demand);
        };
        let guessed = before == 0;
        let mut stream = Stream { direction, guessed, end, ..self.unknown(demand, runs) };
        let lead = self.lead(demand, window.size).min(window.size - count);
        stream.advance(window, lead);
        let id = known.map_or_else(|| self.name(), |(id, _)| id);
        self.live.insert(id, stream);
        self.belongs(demand.file, runs, id);
        Decision { cause: Cause::Sync, window, stream: Some(id) }
    }

    /// Whether a miss belongs to a stream.
    fn begun(&mut self, demand: &Demand) -> Option<Begun> {
        let (first, file) = (demand.first, demand.file);
        let previous = window::previous_page(demand, self.page_bytes);
        let is_next = demand.opens_request && window::follows(first, previous);
        let expected = demand.stream.and_then(|id| self.live.get(id));
        let expected = expected.is_some_and(|stream| stream.frontier == first);
        let lonely = self.is_lonely(file);
        let most = if lonely { pages_u32(demand.file_pages / ODDS_NEXT) } else { u32::MAX };
        let forward = Begun { direction: Direction::Forward, before: 0, most };
        let after = self.affordable(demand, ODDS);
        let before = self.affordable(demand, ODDS_BACKWARD);
        let worth_it = |most| most >= self.opening(demand).min(AFFORDABLE_MIN);
        let known = if first == 0 || is_next || expected {
            Some(Begun { before: demand.cached_before.max(1), ..forward })
        } else if demand.cached_before > 0 && worth_it(after) {
            Some(Begun { before: demand.cached_before, most: after, ..forward })
        } else if demand.follows_cached && worth_it(before) {
            Some(Begun { direction: Direction::Backward, before: 1, most: before })
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
    fn affordable(&self, demand: &Demand, odds: u64) -> u32 {
        let lone = |row: &File| row.touches.saturating_sub(row.begun);
        let places = self.files.get(&demand.file).map_or(0, lone);
        if places < FEW_PLACES { u32::MAX } else { pages_u32(demand.file_pages / (places * odds)) }
    }

    /// The page behind the end of the run that a miss begins, if it is foreseen.
    fn foreseen(&self, demand: &Demand, direction: Direction, runs: Runs) -> Option<PageIndex> {
        let pages = self.files.get(&demand.file).and_then(|file| file.ends.pages())?;
        let end = runs.start.saturating_add(pages);
        let inside = demand.first + u64::from(demand.count) < end && end < demand.file_pages;
        (direction == Direction::Forward && inside).then_some(end)
    }

    /// `size` for a window from a miss on, with what is known of its run's end.
    fn to_end(&self, demand: &Demand, size: u32, end: Option<PageIndex>) -> u32 {
        let Some(end) = end else { return size };
        let sure = self.files.get(&demand.file).is_some_and(|file| file.ends.sure());
        let all = pages_u32(end + 1 - demand.first);
        let share = self.share(demand, Part::default());
        let most = self.device_window(demand).min(share).min(demand.ahead_room);
        if sure { size.max(most).min(all) } else { size.min(all) }
    }

    /// A run went on where its end was foreseen.
    fn ended_later(&mut self, file: FileId) {
        self.files.entry(file).or_default().ends = Ends::default();
    }

    /// A stream that begins at a miss, before its first window.
    fn unknown(&self, demand: &Demand, runs: Runs) -> Stream {
        Stream {
            file: demand.file,
            direction: Direction::Forward,
            frontier: demand.first,
            size: pages_u32(runs.pages()),
            marker: demand.first,
            reached: demand.first,
            from: demand.first,
            used: demand.count,
            pace: Pace::new(self.uses, demand.first),
            guessed: false,
            runs,
            stride: None,
            end: None,
        }
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

impl Stream {
    /// A page that its windows brought is used.
    fn reach(&mut self, page: PageIndex) {
        self.reached = match self.direction {
            Direction::Forward => self.reached.max(page),
            Direction::Backward => self.reached.min(page),
        };
    }

    /// A page that its windows brought left unread: at its far end, it goes on from there. What a
    /// stride has ahead has holes.
    fn lose(&mut self, page: PageIndex) {
        let holes = self.stride.is_some() && self.reached < page && page < self.frontier;
        match self.direction {
            Direction::Forward if holes || page + 1 == self.frontier => self.frontier = page,
            Direction::Backward if page == self.frontier => self.frontier = page + 1,
            Direction::Forward | Direction::Backward => {}
        }
    }

    /// Pages between its reader and its frontier.
    fn ahead(&self) -> u64 {
        match self.direction {
            Direction::Forward => self.frontier.saturating_sub(self.reached + 1),
            Direction::Backward => self.reached.saturating_sub(self.frontier),
        }
    }

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
        if let Some(end) = self.end.filter(|&end| end < self.frontier) {
            self.marker = end;
        }
    }

    /// `size`, but no more from `first` on than to the page behind the foreseen end.
    fn until_end(&self, first: PageIndex, size: u32) -> u32 {
        self.end.map_or(size, |end| pages_u32((end + 1).saturating_sub(first)).min(size))
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
/// And at least what is delivered meanwhile: a large request takes longer than an access, and a
/// reader takes a while to wake.
const IN_FLIGHT_TIME: Nanos = Nanos::from_millis(6);
/// A stream that goes on is likely long.
const GROWTH: u32 = 8;
/// While the device's rate is not known, what is fetched past a stream's end may take long.
const GROWTH_IN_DOUBT: u32 = 4;
/// The next window of an arm is asked for when a quarter of the last is left.
const LEAD_PART: u64 = 4;
/// On random reads one page in so many may be read in vain after cached ones, on average, and
/// before them: few read backward.
const ODDS: u64 = 40;
const ODDS_BACKWARD: u64 = 128;
/// With fewer lone reads than this, chance brings none beside another.
const FEW_PLACES: u64 = 16;
/// And at the file's head, or after the handle's previous read, where streams are rare.
const ODDS_NEXT: u64 = 128;
/// They are rare where so many reads of a file were lone ones for each that began a stream.
const LONELY_TOUCHES: u64 = 64;
/// There, who uses no more than one page in so many comes to a marker by chance.
const FEW_USED: u64 = 8;
/// Smaller windows than this are not worth the doubt.
const AFFORDABLE_MIN: u32 = 4;
/// Pieces of a stride from which on its gaps are not kept.
const SURE_PIECES: u32 = 8;
/// First touches are taken for streams once so many streams began in the file, and at least one
/// touch in so many was one.
const GUESS_STREAMS: u64 = 4;
const GUESS_ONE_IN: u64 = 3;
