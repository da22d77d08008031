//! AMP: how much is read ahead, and how early, learnt for each stream from what becomes of it.
//!
//! ```text
//!                        marker        last
//!   ...----+====+==========#============+ - - - - - - - - - - - +
//!          |read|          |<- trigger->|<------- degree ------>|
//!               |<-------- a set ------>|      the next set
//! ```
//!
//! | what happens | the stream's |
//! |---|---|
//! | the last page of a set is used | degree grows by a read: all of it had room |
//! | a page of a set leaves unused | degree and trigger shrink by one |
//! | a reader waits for the first page of a set | trigger grows by a read: it was fetched late |
//!
//! A miss whose page before is cached belongs to a stream: it fetches what is asked and a set. At
//! a degree of more than 4 pages sets get a marker, 2 pages before their last one at first, which
//! fetches the next set. Other misses are read as asked, and so is the head of a file.
//!
//! # Invariants
//! - `0 < degree <= max` and `trigger < degree`.
//! - At most `streams` records; one that no reader met for a round of the clock gives way.
//! # Sources
//! Gill and Bathen, "AMP: Adaptive Multi-stream Prefetching in a Shared Cache" (FAST 2007), the
//! section on the algorithm. We differ: degree and trigger are kept in a record that pages name
//! instead of in the pages; pages that leave unused do leave, where the paper gives the end of a
//! set a second round in the cache; `max` and the room ahead bound a set, where the paper has the
//! cache alone do it. The size of a read is that of the last one that began with a miss or a
//! marker.

use alloc::vec::Vec;

use super::{
    Cause, Decision, Demand, Named, Probes, Readahead, StreamFeedback, StreamId, Trigger, Window,
    window,
};
use crate::params::Bytes;
use crate::units::PageIndex;

crate::params! {
    /// What may be set.
    pub struct AmpParams {
        /// The largest set with what is asked. The paper names none: what is evicted unused
        /// bounds it. As far as ZFS goes, so that this one seldom does.
        max: Bytes = Bytes(64 << 20),
        /// Streams that are remembered. The paper has no table; large enough not to matter.
        streams: u32 = 4_096,
    }
}

/// See the module.
pub struct Amp {
    /// Pages.
    max: u32,
    streams_max: u32,
    streams: Vec<Stream>,
    /// Where the clock's hand is in `streams`.
    hand: usize,
}

struct Stream {
    /// Its place in the table, plus a multiple of the table's size.
    id: StreamId,
    /// Whether it was met since the hand came by.
    recent: bool,
    /// Pages of the next set.
    degree: u32,
    /// Pages between a set's marker and its last page.
    trigger: u32,
    /// Pages of a read.
    read: u32,
    set: Set,
    /// The last page of the set before, which may still be unused; 0 where there was none, as
    /// that page is never ahead of need.
    previous_last: PageIndex,
}

/// Pages that were fetched together.
#[derive(Clone, Copy)]
struct Set {
    /// The first page, demanded or not.
    start: PageIndex,
    /// The first page that was not demanded.
    first: PageIndex,
    last: PageIndex,
}

impl Named for Amp {
    const NAME: &'static str = "amp";
    type Params = AmpParams;

    fn new(limits: AmpParams, page_bytes: u32) -> Self {
        let max = window::pages(limits.max, page_bytes);
        Self { max, streams_max: limits.streams.max(1), streams: Vec::new(), hand: 0 }
    }
}

impl Readahead for Amp {
    fn probes(&self) -> Probes {
        Probes { before: 1, after: 0 }
    }

    fn window_pages_max(&self) -> u32 {
        self.max
    }

    fn window_pages_min(&self) -> u32 {
        1
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        match demand.trigger {
            Trigger::Request => None,
            Trigger::Miss => Some(self.missed(demand)),
            Trigger::Marker => self.marked(demand),
        }
    }

    fn note(&mut self, id: StreamId, page: PageIndex, feedback: StreamFeedback) {
        let max = self.max;
        let Some(stream) = self.find(id) else { return };
        match feedback {
            StreamFeedback::Used { late } => stream.used(page, late, max),
            StreamFeedback::Wasted => stream.shrink(),
            // The reader's next miss goes on with the stream.
            StreamFeedback::Marked | StreamFeedback::MarkerLost => {}
        }
    }
}

impl Amp {
    fn missed(&mut self, demand: &Demand) -> Decision {
        let max = self.max;
        let id = match demand.stream {
            Some(id) if self.find(id).is_some() => id,
            Some(_) | None if demand.cached_before > 0 => self.begin(demand.count.min(max)),
            Some(_) | None => return window::as_asked(demand),
        };
        let stream = self.record(id).expect("found or just begun");
        stream.began(demand);
        let asked_end = demand.first + u64::from(demand.count);
        let ahead = stream.set_size(demand, asked_end).min(max.saturating_sub(demand.count));
        let window = Window {
            start: demand.first,
            size: demand.count + ahead,
            async_size: stream.tail(ahead),
        };
        stream.fetched(window, asked_end);
        Decision { cause: Cause::Sync, window, stream: Some(id) }
    }

    fn marked(&mut self, demand: &Demand) -> Option<Decision> {
        let id = demand.stream?;
        let stream = self.find(id)?;
        // A marker that an older set left behind tells nothing of this one.
        if demand.first < stream.set.start || stream.set.last < demand.first {
            return None;
        }
        stream.began(demand);
        let start = stream.set.last + 1;
        let size = stream.set_size(demand, start);
        if size == 0 {
            return None;
        }
        let window = Window { start, size, async_size: stream.tail(size) };
        stream.fetched(window, start);
        Some(Decision { cause: Cause::Async, window, stream: Some(id) })
    }

    /// The record of `id`, which was met once more since it began.
    fn find(&mut self, id: StreamId) -> Option<&mut Stream> {
        let stream = self.record(id)?;
        stream.recent = true;
        Some(stream)
    }

    fn record(&mut self, id: StreamId) -> Option<&mut Stream> {
        let place = (id.0 % self.streams_max) as usize;
        self.streams.get_mut(place).filter(|stream| stream.id == id)
    }

    /// A record for a stream of reads of `read` pages.
    fn begin(&mut self, read: u32) -> StreamId {
        let place = u32::try_from(self.streams.len()).expect("at most streams_max");
        if place < self.streams_max {
            let id = StreamId(place);
            self.streams.push(Stream::new(id, read));
            return id;
        }
        while core::mem::take(&mut self.streams[self.hand].recent) {
            self.hand = (self.hand + 1) % self.streams.len();
        }
        let record = &mut self.streams[self.hand];
        self.hand = (self.hand + 1) % self.streams_max as usize;
        // Pages of the stream that gives way have another name than those of the new one.
        let next = record.id.0.checked_add(self.streams_max);
        let id = StreamId(next.unwrap_or(record.id.0 % self.streams_max));
        *record = Stream::new(id, read);
        id
    }
}

impl Stream {
    fn new(id: StreamId, read: u32) -> Self {
        let trigger = if read > SYNCHRONOUS_PAGES { SYNCHRONOUS_PAGES / 2 } else { 0 };
        let set = Set { start: 0, first: 0, last: 0 };
        Self { id, recent: false, degree: read, trigger, read, set, previous_last: 0 }
    }

    /// Notes the size of the read of `demand`, where all of it is known.
    fn began(&mut self, demand: &Demand) {
        if demand.opens_request {
            self.read = demand.count;
        }
    }

    /// Pages that a set from `start` may have.
    fn set_size(&self, demand: &Demand, start: PageIndex) -> u32 {
        let left = demand.file_pages.saturating_sub(start);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        self.degree.min(demand.ahead_room).min(left)
    }

    /// The tail of a window of which `ahead` pages are ahead of need: from the marker on.
    fn tail(&self, ahead: u32) -> u32 {
        if self.degree > SYNCHRONOUS_PAGES { (self.trigger + 1).min(ahead) } else { 0 }
    }

    /// `window` is in flight; its pages from `first` on were not demanded.
    fn fetched(&mut self, window: Window, first: PageIndex) {
        self.previous_last = self.set.last;
        self.set = Set { start: window.start, first, last: window.end() - 1 };
    }

    fn used(&mut self, page: PageIndex, late: bool, max: u32) {
        let asynchronous = self.degree > SYNCHRONOUS_PAGES;
        if late && asynchronous && page == self.set.first {
            self.trigger = self.trigger.saturating_add(self.read).min(max - 1);
            self.degree = self.degree.max(self.trigger + 1);
        }
        if page == self.set.last || page == self.previous_last {
            self.degree = self.degree.saturating_add(self.read).min(max);
        }
        if !asynchronous && self.degree > SYNCHRONOUS_PAGES {
            self.trigger = SYNCHRONOUS_PAGES / 2;
        }
    }

    fn shrink(&mut self) {
        self.degree = self.degree.saturating_sub(1).max(1);
        self.trigger = self.trigger.saturating_sub(1).min(self.degree - 1);
    }
}

/// Up to this degree a set is fetched by misses alone: the paper's APT.
const SYNCHRONOUS_PAGES: u32 = 4;
