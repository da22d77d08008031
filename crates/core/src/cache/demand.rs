//! Reads: the page walk of a request.
//!
//! ```text
//!   for each page:  resident, no marker   Serve                        hit
//!                   resident, marker      readahead(Marker), Serve     hit
//!                   in flight             wait for it                  late hit
//!                   absent                readahead(Miss), wait        miss
//! ```
//!
//! A marker is cleared as it fires, so it fires once. It fires when it is *touched*, before
//! a reader waits for its page: the next window is in flight by then.
//!
//! A prefetch is a window too, but one that no policy decided: it has no marker and no reader.
//!
//! # Invariants
//! - A page that this very request fetches counts as a miss, not as a late hit.
//! - Demanded pages get frames before pages that are read ahead.

use super::inflight::{Node, Run, Walk};
use super::rules::Place;
use super::runs::ReadRuns;
use super::{Cache, FileId, Frame, FrameId, HandleId, NIL, PageId, RequestId};
use crate::device::estimate::Estimate;
use crate::event::{Action, Error};
use crate::readahead::{Decision, Demand, StreamFeedback, StreamId, Trigger};
use crate::units::PageIndex;

/// The reading handle, and its request.
pub(super) struct Reader {
    pub(super) handle: HandleId,
    /// Pages of the request, or from the marker to its end.
    pub(super) count: u32,
    pub(super) previous_end: Option<u64>,
    pub(super) congested: bool,
}

/// The fetch origin of pages: a demand, a readahead window, or a prefetch call.
#[derive(Clone, Copy)]
struct FetchOrigin {
    /// The page that gets the marker.
    marker: Option<PageIndex>,
    /// What a policy decided, if one did.
    decision: Option<Decision>,
    /// The window's number, where windows are explained; else `NIL`.
    window: u32,
}

impl Cache {
    pub(super) fn read(&mut self, request: RequestId, first: PageIndex, reader: &Reader) {
        assert!(reader.count > 0, "{request:?} reads nothing");
        let file = self.file_of(reader.handle);
        let (file_pages, end) =
            (self.file(file).pages, first.saturating_add(u64::from(reader.count)));
        if end > file_pages {
            let page = first.max(file_pages);
            return self.fail(request, Error::PastEnd { page, file_pages });
        }
        if let Some(error) = self.too_many_waiters(reader.count) {
            return self.fail(request, error);
        }
        let mut walk = Walk::new(request, reader.handle);
        for index in first..end {
            let place = self.place(reader.handle, index);
            if self.readahead.of(place.partition).sees_requests() {
                let at = (first, index, end);
                self.readahead(Trigger::Request, file, at, reader);
            }
            self.visit(PageId { file, index }, (first, end), reader, &mut walk);
        }
        if walk.row.is_none() {
            self.actions.list.push(Action::Done { request });
        }
        if let Some(runs) = &mut self.read_runs {
            runs.add(file, first, end);
        }
    }

    /// From now on windows end where another reader's run begins. For a driver that sends every
    /// read: what the hit buffer has is not seen here.
    pub(crate) fn stop_at_runs(&mut self) {
        self.read_runs = Some(ReadRuns::default());
    }

    /// One page of a request: serves it, or has the request wait for it.
    fn visit(
        &mut self,
        page: PageId,
        (first, end): (PageIndex, PageIndex),
        reader: &Reader,
        walk: &mut Walk,
    ) {
        self.stats.demanded += 1;
        let met = self.frames.find(page);
        let partition = match met {
            None => self.place(reader.handle, page.index).partition,
            Some(frame) => self.frames[frame].partition,
        };
        self.sample(partition, page, true);
        if met.is_none() {
            self.stats.misses += 1;
            self.counts(partition).misses += 1;
            if self.exhausted(partition) {
                return self.starve(page, walk, Node::Read, false);
            }
            self.missed(partition, page);
            let at = (first, page.index, end);
            self.readahead(Trigger::Miss, page.file, at, reader);
            if self.frames.find(page).is_none() {
                self.fetch_alone(partition, page, false);
            }
        }
        let Some(frame) = self.frames.find(page) else {
            return self.starve(page, walk, Node::Read, false);
        };
        let row = self.frames[frame];
        if row.resident() {
            self.stats.hits += 1;
            self.counts(row.partition).hits += 1;
            assert!(row.page == page, "{frame:?} holds {:?}, not {page:?}", row.page);
            let (request, page) = (walk.request, page.index);
            self.actions.list.push(Action::Serve { request, page, frame });
            self.used(frame);
        } else {
            let own = row.born == self.events;
            if met.is_some() && (own || row.prefetched) {
                self.missed(partition, page);
            }
            let (miss, late) = (u64::from(own && met.is_some()), u64::from(!own));
            self.stats.misses += miss;
            self.stats.late_hits += late;
            let counts = self.counts(partition);
            counts.misses += miss;
            counts.late_hits += late;
            self.first_use(frame);
            self.wait(frame, walk, Node::Read);
        }
        if row.marker {
            self.met_marker(page, frame, reader, end);
        }
    }

    /// A read came to a marker: clears it, and reads on ahead unless the device is congested.
    pub(super) fn met_marker(
        &mut self,
        page: PageId,
        frame: FrameId,
        reader: &Reader,
        demanded_end: PageIndex,
    ) {
        self.frames[frame].marker = false;
        if self.frames.published(frame) {
            self.publish(frame);
        }
        if reader.congested {
            self.stats.markers_deferred += 1;
            let partition = self.frames[frame].partition;
            if !self.readahead.of(partition).sees_congestion() {
                return;
            }
        }
        let at = (page.index, page.index, demanded_end);
        self.readahead(Trigger::Marker, page.file, at, reader);
    }

    /// Asks the policy about the page at `index` and carries out what it says. `demanded_end` is
    /// the end of the demanded pages: 0 where no request waits.
    fn readahead(
        &mut self,
        trigger: Trigger,
        file: FileId,
        (first, index, demanded_end): (PageIndex, PageIndex, PageIndex),
        reader: &Reader,
    ) {
        let left = demanded_end.saturating_sub(index).max(1);
        let count = if demanded_end == 0 { reader.count } else { u32::try_from(left).unwrap_or(1) };
        let place = self.place(reader.handle, index);
        let probes = self.readahead.probes(place.partition);
        let (cached_before, cached_after) = match trigger {
            Trigger::Request => (0, 0),
            Trigger::Miss => (self.cached(file, probes.before, |back| index.checked_sub(back)), 0),
            Trigger::Marker => (0, self.cached(file, probes.after, |on| Some(index + on))),
        };
        let neighbour = match trigger {
            Trigger::Request => None,
            Trigger::Miss => index.checked_sub(1),
            Trigger::Marker => Some(index),
        };
        let stream = neighbour.and_then(|index| self.frames.find(PageId { file, index }));
        let stream = stream.map(|frame| &self.frames[frame]);
        let stream = stream.filter(|row| self.readahead.shared(row.partition, place.partition));
        let stream = stream.and_then(|row| row.stream);
        let next = PageId { file, index: index.saturating_add(u64::from(count)) };
        let run = self.read_runs.as_ref().and_then(|runs| runs.next(file, next.index));
        let file_end = self.file(file).pages.min(place.pages.end);
        let Estimate { profile, known } = self.estimate();
        let mut demand = Demand {
            handle: reader.handle,
            file,
            trigger,
            first: index,
            count,
            opens_request: index == first,
            previous_end: reader.previous_end,
            cached_before,
            cached_after,
            file_pages: run.map_or(file_end, |start| start.min(file_end)),
            all_pages: file_end,
            congested: reader.congested,
            stream,
            follows_cached: trigger == Trigger::Miss && self.frames.find(next).is_some(),
            in_flight: u32::try_from(self.tickets.len()).unwrap_or(u32::MAX),
            ahead_room: self.ahead_room(),
            device: profile,
            rate_known: known.rate,
            now: self.now,
        };
        self.make_room(place.partition, &mut demand);
        let mut next = self.readahead.of_mut(place.partition).decide(&demand);
        while let Some(decision) = next {
            let fresh = self.carry_out(file, &place, decision, (index, demanded_end));
            if self.settings.explain {
                let (handle, page) = (reader.handle, index);
                let Decision { cause, window, stream } = decision;
                let explain = Action::Explain { handle, page, cause, window, fresh, stream };
                self.actions.list.push(explain);
                self.windows = self.windows.saturating_add(1);
            }
            let policy = self.readahead.of_mut(place.partition);
            next = policy.submitted(&demand, decision, fresh);
        }
    }

    /// What the device can do. It is estimated only for policies that use it.
    fn estimate(&mut self) -> Estimate {
        if let Some(profile) = self.settings.device {
            return Estimate::given(profile);
        }
        self.reported = self.estimator.as_ref().map(|estimator| {
            let own = estimator.estimate();
            self.memory.learn(estimator.evidence(), &own);
            self.memory.estimate(own)
        });
        self.reported.unwrap_or(Estimate::ASSUMED)
    }

    /// Claims frames for the pages of a window that are absent, as far as they are of the place
    /// where it was decided. Returns how many were absent.
    fn carry_out(
        &mut self,
        file: FileId,
        place: &Place,
        decision: Decision,
        demanded: (PageIndex, PageIndex),
    ) -> u32 {
        let window = decision.window;
        assert!(window.size > 0 && window.async_size <= window.size, "{decision:?}");
        let file_pages = self.file(file).pages.min(place.pages.end);
        let (first, end) = (window.start.max(place.pages.start), window.end().min(file_pages));
        let mut absent = core::mem::take(&mut self.absent);
        absent.clear();
        absent.extend(
            (first..end).filter(|&index| self.frames.find(PageId { file, index }).is_none()),
        );
        let fresh = u32::try_from(absent.len()).expect("a window's size is a u32");
        let marker = self.readahead.of(place.partition).marker(decision, file_pages);
        let run = Run { file, first, end, demanded };
        let origin = FetchOrigin { marker, decision: Some(decision), window: self.window() };
        self.claim_absent(place.partition, run, &absent, origin);
        self.absent = absent;
        if let (Some(index), Some(stream)) = (marker, decision.stream) {
            self.place_marker(place.partition, PageId { file, index }, stream, first);
        }
        fresh
    }

    /// Sees to it that a stream that goes on is met: its marker is on `page`, or on a page before
    /// it in the window that is there; else the policy of `partition` hears that its marker is
    /// lost.
    pub(super) fn place_marker(
        &mut self,
        partition: u32,
        page: PageId,
        stream: StreamId,
        start: PageIndex,
    ) {
        let PageId { file, index } = page;
        let shares = |row: &Frame| self.readahead.shared(row.partition, partition);
        let at = |index| self.frames.find(PageId { file, index });
        let at = |index| at(index).filter(|&frame| shares(&self.frames[frame]));
        let Some(frame) = (start..=index).rev().find_map(at) else {
            return self.readahead.note(partition, stream, index, StreamFeedback::MarkerLost);
        };
        let row = &mut self.frames[frame];
        if row.page.index != index {
            self.readahead.note(partition, stream, row.page.index, StreamFeedback::Marked);
        }
        if row.marker && row.stream == Some(stream) {
            return;
        }
        if let Some(other) = row.stream.filter(|_| row.marker) {
            self.readahead.note(partition, other, row.page.index, StreamFeedback::MarkerLost);
        }
        row.marker = true;
        row.stream = Some(stream);
        if self.frames.published(frame) {
            self.publish(frame);
        }
    }

    /// Fetches a window that no policy decided, for a prefetch call. The walk visits no more pages
    /// than the cache can hold, however long the range is.
    pub(super) fn prefetch(&mut self, handle: HandleId, first: PageIndex, count: u32) {
        assert!(count > 0, "{handle:?} prefetches nothing");
        let file = self.file_of(handle);
        let end = first.saturating_add(u64::from(count)).min(self.file(file).pages);
        let room = self.ahead_room() as usize;
        let mut absent = core::mem::take(&mut self.absent);
        absent.clear();
        let mut at = first;
        while at < end && absent.len() < room {
            if self.frames.find(PageId { file, index: at }).is_none() {
                absent.push(at);
            }
            at += 1;
        }
        if at < end {
            let held = self.frames_of(file, at, end).len() as u64;
            self.stats.ahead_dropped += end - at - held;
        }
        let mut left = absent.as_slice();
        while let Some(&start) = left.first() {
            let place = self.place(handle, start);
            let here = left.partition_point(|index| place.pages.contains(index));
            let (pages, others) = left.split_at(here);
            left = others;
            let run = Run { file, first: start, end: at.min(place.pages.end), demanded: (0, 0) };
            let origin = FetchOrigin { marker: None, decision: None, window: NIL };
            self.claim_absent(place.partition, run, pages, origin);
        }
        self.absent = absent;
    }

    /// Claims frames of `partition` for the `absent` pages of `run`: for the demanded ones first,
    /// for the others within the bounds of readahead.
    fn claim_absent(
        &mut self,
        partition: u32,
        run: Run,
        absent: &[PageIndex],
        origin: FetchOrigin,
    ) {
        let Run { file, demanded, .. } = run;
        let is_demanded = |index: PageIndex| demanded.0 <= index && index < demanded.1;
        let demanded_count = absent.iter().filter(|&&index| is_demanded(index)).count();
        let ahead_max = self.ahead_room() as usize;
        let wanted = demanded_count + (absent.len() - demanded_count).min(ahead_max);
        let mut taken = core::mem::take(&mut self.taken);
        taken.clear();
        let wanted = u32::try_from(wanted).expect("a range of pages is a u32");
        self.reserve(partition, wanted, &mut taken);
        assert!(taken.len() <= wanted as usize, "{} frames for {wanted}", taken.len());
        // The first ones are free; victims may turn out to be held.
        taken.reverse();
        let ahead = taken.len().saturating_sub(demanded_count);
        self.stats.ahead_dropped += (absent.len() - demanded_count - ahead) as u64;
        let (mut demanded_left, mut ahead_left) = (demanded_count.min(taken.len()), ahead);
        for &index in absent {
            let left = if is_demanded(index) { &mut demanded_left } else { &mut ahead_left };
            if *left == 0 {
                continue;
            }
            *left -= 1;
            let frame = taken.pop().expect("as many as were counted");
            self.claim(PageId { file, index }, frame, !is_demanded(index));
            let is_gap = |decision| self.readahead.of(partition).carried(decision, index);
            let is_gap = origin.decision.is_some_and(is_gap);
            let row = &mut self.frames[frame];
            row.marker = origin.marker == Some(index);
            row.gap = is_gap && !row.marker;
            row.stream = origin.decision.and_then(|decision| decision.stream);
            row.window = origin.window;
        }
        assert!(taken.is_empty(), "every frame taken has a page");
        self.runs.push(run);
        self.taken = taken;
    }

    /// Pages that may still be read ahead before one of those that are is used.
    pub(crate) fn ahead_room(&self) -> u32 {
        let unread = u32::try_from(self.stats.ahead_unread).unwrap_or(u32::MAX);
        self.settings.ahead_pages_max.saturating_sub(unread)
    }

    /// Fetches one page that is in no window into `partition`. It stays absent if there is no
    /// frame.
    pub(super) fn fetch_alone(&mut self, partition: u32, page: PageId, fresh: bool) {
        let mut taken = core::mem::take(&mut self.taken);
        taken.clear();
        self.reserve(partition, 1, &mut taken);
        if let Some(frame) = taken.pop() {
            self.claim(page, frame, false);
            self.frames[frame].fresh = fresh;
            let (first, end) = (page.index, page.index + 1);
            self.runs.push(Run { file: page.file, first, end, demanded: (first, end) });
        }
        self.taken = taken;
    }

    /// Pages of `file` at `at` 1, 2, ... without a hole, `most` at most.
    fn cached(&self, file: FileId, most: u32, at: impl Fn(u64) -> Option<PageIndex>) -> u32 {
        let held = |index| self.frames.find(PageId { file, index }).is_some();
        let count = (1..=u64::from(most)).take_while(|&nth| at(nth).is_some_and(held)).count();
        u32::try_from(count).expect("at most the probes")
    }
}
