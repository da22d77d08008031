//! The first window of a stream: whether a miss begins one, and how large the window is.
//!
//! A miss at the head of a file, after the handle's previous read or beside cached pages begins a
//! stream. A first touch elsewhere is a guess, where first touches of the file became streams.
//!
//! # Invariants
//! - Windows that chance opens beside cached pages are one page in `ODDS` random reads on average
//!   behind them, in `ODDS_BACKWARD` before; more behind them only where streams use ten times as
//!   much there (`beside.rs`).

use super::pace::{Pace, Part};
use super::strides::Runs;
use super::{
    Beside, Cause, Decision, Demand, Direction, GROWTH, OPENING_MIN, Stream, Streams, Window,
    pages_u32, window,
};
use crate::device::DeviceKind;
use crate::readahead::StreamId;
use crate::units::PageIndex;

/// The stream that a miss begins.
#[derive(Clone, Copy, Debug)]
struct Opening {
    direction: Direction,
    /// Pages of the stream that are known; 0: it is a guess.
    before: u32,
    /// The upper bound of a speculative window.
    most: u32,
}

impl Streams {
    /// A miss: the first window of a stream, or just the demanded pages.
    pub(super) fn missed(&mut self, demand: &Demand) -> Decision {
        let count = demand.count;
        self.uses += u64::from(count);
        let more = count < self.window_max && demand.ahead_room > 0;
        let runs = self.follow(demand);
        if let Some(decision) = more.then(|| self.resumed(demand, runs)).flatten() {
            return decision;
        }
        let own = demand.stream.and_then(|id| self.live.get(id));
        let more = more && !own.is_some_and(|stream| self.is_sparse(stream, demand.first));
        let Some(Opening { direction, before, most }) = self.begun(demand).filter(|_| more) else {
            return window::as_asked(demand);
        };
        let same = |id: &StreamId| self.live.get(*id).is_some_and(|row| row.direction == direction);
        let known = demand.stream.filter(same).filter(|_| direction == Direction::Forward);
        let known = known.and_then(|id| Some((id, self.live.remove(id)?)));
        let before = known.map_or(before, |(_, stream)| stream.size);
        let largest = self.device_window(demand).min(self.share(demand, Part::default())).min(most);
        let from_here = |stream| Stream { frontier: demand.first, ..stream };
        let likely = known.map(|(_, stream)| self.likely(demand, &from_here(stream)));
        let size = before.saturating_mul(GROWTH).min(likely.unwrap_or(u32::MAX));
        let size = size.max(self.opening(demand)).min(largest);
        // Others may begin as well.
        let room = (demand.ahead_room / 4).max(OPENING_MIN).min(demand.ahead_room);
        let size = self.whole(size.min(room));
        // A reader of large pieces gets one more.
        let most = count.saturating_add(demand.ahead_room).min(self.window_max);
        let size = size.max(count.saturating_mul(2)).min(most);
        let end = self.predicted_end(demand, direction, runs);
        let size = self.to_end(demand, size, end).min(most);
        let size = if before == 0 || demand.first == 0 { self.odd(demand, size) } else { size };
        let Some(window) = opening_window(demand, direction, size) else {
            return window::as_asked(demand);
        };
        let guessed = before == 0;
        let mut stream = Stream { direction, guessed, end, ..self.unknown(demand, runs) };
        if let Some((_, before)) = known {
            stream.origin = before.origin;
        } else if direction == Direction::Backward {
            stream.origin = demand.first;
        }
        let async_size = self.async_size(demand, window.size).min(window.size - count);
        stream.advance(window, async_size);
        let id = known.map_or_else(|| self.name(), |(id, _)| id);
        self.live.insert(id, stream);
        self.belongs(demand.file, runs, id);
        Decision { cause: Cause::Sync, window, stream: Some(id) }
    }

    /// Whether a miss belongs to a stream.
    fn begun(&mut self, demand: &Demand) -> Option<Opening> {
        let (first, count, file) = (demand.first, demand.count, demand.file);
        let turn = u64::from(self.bounds.cache_pages).max(1);
        self.files.entry(file).or_default().age(self.uses, turn);
        let previous = window::previous_page(demand, self.page_bytes);
        let is_next = demand.opens_request && window::follows(first, previous);
        let expected = demand.stream.and_then(|id| self.live.get(id));
        let expected = expected.is_some_and(|stream| stream.frontier == first);
        let lonely = self.is_lonely(file);
        let most = if lonely { pages_u32(demand.all_pages / ODDS_NEXT) } else { u32::MAX };
        let forward = Opening { direction: Direction::Forward, before: 0, most };
        let row = self.files.entry(file).or_default();
        // What was seen before: a miss is no evidence of itself.
        let (places, beside) = (row.lone_places(), row.beside);
        if first > 0 && demand.opens_request && !is_next && !expected {
            // Behind what a stream's window has brought, chance has other odds.
            let is_seen = demand.cached_before > 0 && demand.stream.is_none();
            // What an arm reads on costs little beside its access: there chance is of pages.
            let size = if demand.device.kind == DeviceKind::SeekBound { 1 } else { count };
            row.beside.missed(demand.all_pages / u64::from(size), places, is_seen);
        }
        let affordable = |odds, beside| affordable(demand.all_pages, places, odds, beside);
        let more = affordable(ODDS, beside).min(self.begins_with(demand, places));
        let after = affordable(ODDS, Beside::default()).max(more);
        let before = affordable(ODDS_BACKWARD, Beside::default());
        let worth_it = |most| most >= self.opening(demand).min(AFFORDABLE_MIN);
        let known = if first == 0 || is_next || expected {
            Some(Opening { before: demand.cached_before.max(1), ..forward })
        } else if demand.cached_before > 0 && worth_it(after) {
            Some(Opening { before: demand.cached_before, most: after, ..forward })
        } else if demand.follows_cached && worth_it(before) {
            Some(Opening { direction: Direction::Backward, before: 1, most: before })
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
        // One behind cached pages makes their run longer, and no place more.
        row.places += u64::from(demand.cached_before == 0);
        let guess = row.begun >= GUESS_STREAMS && row.begun * GUESS_ONE_IN >= row.touches;
        guess.then_some(forward)
    }

    /// The largest window of a stream behind one of the lone reads at `places`, where all of them
    /// may turn out to begin streams, and memory is there for all.
    fn begins_with(&self, demand: &Demand, places: u64) -> u32 {
        let share = u64::from(self.bounds.ahead_pages_max) / (self.count() + places);
        self.opening(demand).min(pages_u32(share))
    }

    /// The page behind the end of the run that a miss begins, if it is predicted.
    fn predicted_end(
        &self,
        demand: &Demand,
        direction: Direction,
        runs: Runs,
    ) -> Option<PageIndex> {
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

    /// `size` for a first window, or a page less: one that ends at a round place is met there by
    /// readers in round steps. A kernel that finds it cached before their miss takes them for
    /// sequential ones.
    fn odd(&self, demand: &Demand, size: u32) -> u32 {
        let is_round = (demand.first + u64::from(size)).is_multiple_of(ROUND_PAGES);
        let is_cut = is_round && self.through_max < u32::MAX && size > demand.count + 1;
        size - u32::from(is_cut)
    }

    /// A stream that begins at a miss, before its first window.
    pub(super) fn unknown(&self, demand: &Demand, runs: Runs) -> Stream {
        Stream {
            file: demand.file,
            direction: Direction::Forward,
            frontier: demand.first,
            size: pages_u32(runs.pages()),
            marker: demand.first,
            origin: demand.first.saturating_sub(demand.cached_before.into()),
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
}

/// Pages that may be fetched since there are cached ones beside a miss. A random read of a file of
/// so many `pages` meets one of `places` in as many of these cases, and then they go to waste:
/// `beside` says how many more streams justify.
fn affordable(pages: u64, places: u64, odds: u64, beside: Beside) -> u32 {
    if places < FEW_PLACES { u32::MAX } else { beside.window(pages, places * odds) }
}

/// The window of `size` that a miss opens, if it is more than the demanded pages.
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

/// On random reads one page in so many may be read in vain after cached ones, on average, and
/// before them: few read backward.
const ODDS: u64 = 40;
const ODDS_BACKWARD: u64 = 128;
/// With fewer lone reads than this, chance brings none beside another.
const FEW_PLACES: u64 = 16;
/// And at the file's head, or after the handle's previous read, where streams are rare.
const ODDS_NEXT: u64 = 128;
/// A place is round at a multiple of so many pages.
const ROUND_PAGES: u64 = 4;
/// Smaller windows than this are not worth the doubt.
const AFFORDABLE_MIN: u32 = 4;
/// First touches are taken for streams once so many streams began in the file, and at least one
/// touch in so many was one.
const GUESS_STREAMS: u64 = 4;
const GUESS_ONE_IN: u64 = 3;
