//! Fetches in flight, and the requests that wait for their pages.
//!
//! ```text
//!   frame.waiters -> Waiter -> Waiter          each names the row of its request
//!   rows:  request, pages it still lacks, nodes that still point to it
//! ```
//!
//! A window is claimed page by page and fetched in runs, cut to the device's largest request.
//! A run that holds a demanded page is a demand, the others are readahead.
//!
//! # Invariants
//! - One fetch a page: a request for a page in flight joins its waiters.
//! - A row is answered once, by `Done` or `Fail`; it is reused when no node points to it.
//! - A failed readahead is dropped and counted. Pages that requests wait for are fetched once more
//!   before these requests fail, but for a demand whose pages all the same requests wait for: one
//!   bad page fails them all.
//! - A fetch that failed is followed by at most one for each run of pages that the same requests
//!   wait for, however many pages that are.

use super::{Cache, FileId, Frame, FrameId, HandleId, NIL, PageId, RequestId, State};
use crate::event::{Action, Error, FetchKind};
use crate::readahead::StreamFeedback;
use crate::units::{Nanos, PageIndex};

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) request: RequestId,
    pub(super) handle: HandleId,
    /// Pages that are not served or filled yet.
    pub(super) remaining: u32,
    /// Waiters and starved pages that name this row.
    pub(super) nodes: u32,
    /// Already answered with an error.
    pub(super) failed: bool,
    /// A write that is answered when it is durable.
    pub(super) durable: bool,
    /// Since when it lacks a frame, if it ever did.
    pub(super) starved: Option<Nanos>,
}

/// What a waiter wants of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Read,
    Fill,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) row: u32,
    pub(super) next: u32,
    pub(super) node: Node,
}

/// Pages to fetch: those of `first..end` that are claimed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) file: FileId,
    pub(super) first: PageIndex,
    pub(super) end: PageIndex,
    /// The demanded pages.
    pub(super) demanded: (PageIndex, PageIndex),
}

/// A request on its way over its pages; it has a row from its first wait on.
pub(super) struct Walk {
    pub(super) request: RequestId,
    pub(super) row: Option<u32>,
    handle: HandleId,
    pub(super) durable: bool,
}

impl Walk {
    pub(super) fn new(request: RequestId, handle: HandleId) -> Self {
        Self { request, row: None, handle, durable: false }
    }
}

impl Cache {
    /// Why `count` more pages cannot wait, if they cannot.
    pub(super) fn too_many_waiters(&self, count: u32) -> Option<Error> {
        let nodes = self.waiters.len() - self.waiters_free.len() + self.starved.len();
        let waiting = nodes as u64 + u64::from(self.flushing);
        let bound = self.settings.waiters_max;
        if count > bound {
            return Some(Error::TooLarge { pages: count, bound });
        }
        (waiting + u64::from(count) > u64::from(bound)).then_some(Error::Busy { bound })
    }

    /// The row of `walk`, made at its first use.
    pub(super) fn row(&mut self, walk: &mut Walk) -> u32 {
        if let Some(row) = walk.row {
            return row;
        }
        let made = Row {
            request: walk.request,
            handle: walk.handle,
            remaining: 0,
            nodes: 0,
            failed: false,
            durable: walk.durable,
            starved: None,
        };
        let row = if let Some(row) = self.rows_free.pop() {
            self.rows[row as usize] = made;
            row
        } else {
            self.rows.push(made);
            u32::try_from(self.rows.len() - 1).expect("rows are bounded by waiters_max")
        };
        let taken = self.requests.insert(walk.request, row);
        assert!(taken.is_none(), "{:?} is under way already", walk.request);
        walk.row = Some(row);
        row
    }

    /// Has the request of `walk` wait for the bytes of `frame`.
    pub(super) fn wait(&mut self, frame: FrameId, walk: &mut Walk, node: Node) {
        let row = self.row(walk);
        self.rows[row as usize].remaining += 1;
        self.rows[row as usize].nodes += 1;
        self.join(frame, row, node);
    }

    pub(super) fn join(&mut self, frame: FrameId, row: u32, node: Node) {
        let waiter = Waiter { row, next: self.frames[frame].waiters, node };
        let at = if let Some(at) = self.waiters_free.pop() {
            self.waiters[at as usize] = waiter;
            at
        } else {
            self.waiters.push(waiter);
            u32::try_from(self.waiters.len() - 1).expect("bounded by waiters_max")
        };
        self.frames[frame].waiters = at;
    }

    /// Promises `frame` to `page`.
    pub(super) fn claim(&mut self, page: PageId, frame: FrameId, prefetched: bool) {
        let old = self.frames[frame];
        assert!(old.state == State::Free, "{frame:?} is promised in state {:?}", old.state);
        assert!(!self.frames.published(frame), "{frame:?} has not been retracted");
        self.frames[frame] = Frame {
            page,
            state: State::Claimed,
            partition: old.partition,
            born: self.events,
            prefetched,
            ahead: prefetched,
            ..Frame::EMPTY
        };
        self.frames.map(frame);
        self.file_mut(page.file).frames += 1;
        if prefetched {
            self.stats.ahead_fetched += 1;
            self.stats.ahead_unread += 1;
        }
    }

    /// Takes the promise back of a page that is mapped no longer: no frame is left for it. Its
    /// waiters wait for one.
    pub(super) fn unclaim(&mut self, row: Frame) {
        assert_eq!(row.state, State::Claimed);
        self.file_mut(row.page.file).frames -= 1;
        if row.prefetched {
            self.stats.ahead_fetched -= 1;
            self.stats.ahead_unread -= 1;
            self.stats.ahead_dropped += 1;
        }
        if let Some(stream) = row.stream.filter(|_| row.marker) {
            self.readahead.note(row.partition, stream, row.page.index, StreamFeedback::MarkerLost);
        }
        let at = self.turn(row.waiters);
        self.starve_all(at, row.page, row.fresh);
    }

    /// Sends out fetches for all claimed pages. No retraction may be open.
    pub(super) fn issue(&mut self) {
        assert!(self.retracting.is_empty(), "a frame may still be read");
        let runs = core::mem::take(&mut self.runs);
        for run in &runs {
            let mut index = run.first;
            while index < run.end {
                index = self.issue_from(*run, index);
            }
        }
        self.runs = runs;
        self.runs.clear();
    }

    /// Sends out one fetch for the claimed pages from `index` on, if that one is claimed. Returns
    /// where to go on.
    fn issue_from(&mut self, run: Run, index: PageIndex) -> PageIndex {
        let frames_at = self.actions.frames.len();
        let limit = run.end.min(index + u64::from(self.settings.request_pages_max));
        let (mut at, mut last) = (index, None);
        while at < limit {
            let page = PageId { file: run.file, index: at };
            let Some(frame) = self.frames.find(page) else { break };
            if self.frames[frame].state != State::Claimed {
                break;
            }
            if self.frames[frame].fresh {
                if at == index {
                    self.begin_fill(frame);
                    return at + 1;
                }
                break;
            }
            self.frames[frame].state = State::InFlight;
            self.stats.demand_fetched += u64::from(!self.frames[frame].ahead);
            if let Some(last) = last {
                self.frames[last].next = frame.0;
            }
            last = Some(frame);
            self.actions.frames.push(frame);
            at += 1;
        }
        let Some(last) = last else { return index + 1 };
        let demanded = index < run.demanded.1 && run.demanded.0 < at;
        let kind = if demanded { FetchKind::Demand } else { FetchKind::Readahead };
        let count = u32::try_from(at - index).expect("at most request_pages_max");
        self.frames[last].next = NIL;
        self.frames[self.actions.frames[frames_at]].heads_demand = demanded;
        self.stats.fetches += 1;
        if demanded {
            self.stats.demand_fetches += 1;
        }
        let frames = self.actions.run_from(frames_at);
        assert_eq!(frames.count, count, "a fetch has its pages' frames");
        let page = PageId { file: run.file, index };
        let page_bytes = self.settings.page_bytes;
        let (offset, bytes) = (index * u64::from(page_bytes), count.saturating_mul(page_bytes));
        if let Some(estimator) = &mut self.estimator {
            let ticket = estimator.issued(self.now, run.file, offset, bytes);
            self.tickets.insert(last, ticket);
        }
        self.actions.list.push(Action::Fetch { kind, page, frames });
        at
    }

    pub(super) fn arrived(&mut self, first: FrameId, count: u32) {
        for frame in self.chain(first, count, State::InFlight) {
            if let Some(estimator) = &mut self.estimator
                && let Some(ticket) = self.tickets.remove(&frame)
            {
                estimator.arrived(self.now, ticket);
            }
            self.arrive(frame);
        }
    }

    fn arrive(&mut self, frame: FrameId) {
        self.frames[frame].state = State::Clean;
        if self.frames[frame].doomed {
            return self.end_doomed(frame);
        }
        let row = self.frames[frame];
        if row.gap && row.prefetched && row.waiters == NIL && !row.marker {
            return self.discard(frame);
        }
        let policy = &mut self.partitions[row.partition as usize].policy;
        policy.insert(frame, row.page, row.prefetched);
        self.counts(row.partition).inserted += 1;
        self.publish(frame);
        self.wake(frame);
    }

    /// Discards a gap page that arrived and was not demanded.
    fn discard(&mut self, frame: FrameId) {
        let row = self.frames[frame];
        assert!(row.prefetched && row.waiters == NIL, "{frame:?} holds a gap page");
        self.frames.unmap(frame);
        self.count_wasted(row.window);
        self.release(frame);
    }

    pub(super) fn failed(&mut self, first: FrameId, count: u32, errno: i32) {
        let frames = self.chain(first, count, State::InFlight);
        let last = *frames.last().expect("a fetch has frames");
        let is_whole_demand = self.frames[first].heads_demand && self.frames[last].next == NIL;
        let mut left = &frames[..];
        while let Some(&first) = left.first() {
            let alike = |frame: &&FrameId| self.has_waiters_of(**frame, first);
            let (group, rest) = left.split_at(left.iter().take_while(alike).count());
            let is_all = is_whole_demand && group.len() == frames.len();
            let again = !is_all
                && !self.frames[first].last_try
                && self.waiting_rows(&self.frames[first]).next().is_some();
            self.end_failed(group, errno, again);
            left = rest;
        }
    }

    /// Ends the failed fetch of neighbours that the same requests wait for, or fetches them
    /// `again`.
    fn end_failed(&mut self, group: &[FrameId], errno: i32, again: bool) {
        for &frame in group {
            let row = self.frames[frame];
            if let Some(estimator) = &mut self.estimator
                && let Some(ticket) = self.tickets.remove(&frame)
            {
                estimator.failed(ticket);
            }
            if row.doomed {
                self.frames[frame].state = State::Clean;
                self.end_doomed(frame);
            } else if again {
                self.frames[frame].state = State::Claimed;
                self.frames[frame].last_try = true;
                self.frames[frame].heads_demand = false;
            } else {
                self.frames.unmap(frame);
                if row.prefetched {
                    self.stats.ahead_unread -= 1;
                    self.stats.ahead_failed += 1;
                    self.count_outcome(row.window, |outcomes| outcomes.failed += 1);
                }
                self.left_unused(&row);
                self.fail_waiters(frame, Error::Store { page: row.page, errno });
                self.release(frame);
            }
        }
        if again {
            let PageId { file, index: first } = self.frames[group[0]].page;
            let end = first + group.len() as u64;
            self.runs.push(Run { file, first, end, demanded: (first, end) });
        }
    }

    /// Whether the requests that wait for `frame` are those that wait for `other`; a doomed frame,
    /// which no request waits for, is like no other but itself.
    fn has_waiters_of(&self, frame: FrameId, other: FrameId) -> bool {
        let rows = [&self.frames[frame], &self.frames[other]];
        let is_doomed = rows.iter().any(|row| row.doomed);
        frame == other || !is_doomed && self.waiting_rows(rows[0]).eq(self.waiting_rows(rows[1]))
    }

    /// The rows of the requests that wait for a frame and have no answer.
    fn waiting_rows(&self, frame: &Frame) -> impl Iterator<Item = u32> {
        let mut at = frame.waiters;
        let all = core::iter::from_fn(move || {
            let waiter = self.waiters.get(at as usize)?;
            at = waiter.next;
            Some(waiter.row)
        });
        all.filter(|&row| !self.rows[row as usize].failed)
    }

    /// Reports to the readahead policy what a leaving page takes along: bytes unread, a marker.
    pub(super) fn left_unused(&mut self, row: &Frame) {
        let Some(stream) = row.stream else { return };
        if row.prefetched {
            self.readahead.note(row.partition, stream, row.page.index, StreamFeedback::Wasted);
        }
        if row.marker {
            self.readahead.note(row.partition, stream, row.page.index, StreamFeedback::MarkerLost);
        }
    }

    /// The `count` frames of one operation from `first` on; all are in `state`.
    pub(super) fn chain(
        &self,
        first: FrameId,
        count: u32,
        state: State,
    ) -> alloc::vec::Vec<FrameId> {
        let mut frames = alloc::vec::Vec::with_capacity(count as usize);
        let mut at = first.0;
        for _ in 0..count {
            assert!(at != NIL, "{first:?} and {count} more are not one operation");
            let frame = FrameId(at);
            assert_eq!(self.frames[frame].state, state, "{frame:?} is in no such operation");
            frames.push(frame);
            at = self.frames[frame].next;
        }
        frames
    }

    /// Lets readers without a lock find the page in `frame`.
    pub(super) fn publish(&mut self, frame: FrameId) {
        let generation = self.frames.publish(frame);
        let Frame { page, marker, .. } = self.frames[frame];
        self.actions.list.push(Action::Publish { page, frame, generation, marker });
    }

    /// Detaches the waiters of `frame` and turns their list, so that the first comes first.
    pub(super) fn first_waiter(&mut self, frame: FrameId) -> u32 {
        let at = core::mem::replace(&mut self.frames[frame].waiters, NIL);
        self.turn(at)
    }

    /// Turns a list of waiters; returns its new head.
    fn turn(&mut self, mut at: u32) -> u32 {
        let mut turned = NIL;
        while at != NIL {
            let next = core::mem::replace(&mut self.waiters[at as usize].next, turned);
            turned = at;
            at = next;
        }
        turned
    }

    /// The frame has bytes: serves its readers, and has its writers fill it.
    pub(super) fn wake(&mut self, frame: FrameId) {
        assert!(self.frames[frame].resident(), "{frame:?} has no bytes to serve");
        let PageId { file, index: page } = self.frames[frame].page;
        let mut at = self.first_waiter(frame);
        while at != NIL {
            let Waiter { row, next, node } = self.waiters[at as usize];
            self.waiters_free.push(at);
            at = next;
            let waiting = self.rows[row as usize];
            match node {
                Node::Read if !waiting.failed => {
                    self.actions.list.push(Action::Serve { request: waiting.request, page, frame });
                    self.served(row);
                }
                Node::Fill if !waiting.failed => {
                    let request = waiting.request;
                    self.frames[frame].fills += 1;
                    self.actions.list.push(Action::Fill { request, page, frame, fresh: false });
                }
                Node::Fill => self.keep_promise(file),
                Node::Read => {}
            }
            self.leave(row);
        }
    }

    /// One page less to wait for; the last one completes the request.
    pub(super) fn served(&mut self, row: u32) {
        let waiting = &mut self.rows[row as usize];
        assert!(waiting.remaining > 0, "{:?} was served already", waiting.request);
        waiting.remaining -= 1;
        if waiting.remaining == 0 {
            let (request, handle, durable) = (waiting.request, waiting.handle, waiting.durable);
            self.requests.remove(&request);
            if durable {
                self.flush(request, handle);
            } else {
                self.actions.list.push(Action::Done { request });
            }
            if self.rows[row as usize].nodes == 0 {
                self.rows_free.push(row);
            }
        }
    }

    /// A node stops pointing to its row.
    pub(super) fn leave(&mut self, row: u32) {
        let waiting = &mut self.rows[row as usize];
        assert!(waiting.nodes > 0, "no node points to {:?}", waiting.request);
        waiting.nodes -= 1;
        if waiting.nodes == 0 && (waiting.failed || waiting.remaining == 0) {
            self.rows_free.push(row);
        }
    }

    /// Answers the request with an error, once. Its nodes stay until they are met.
    pub(super) fn fail_row(&mut self, row: u32, error: Error) {
        let waiting = &mut self.rows[row as usize];
        if !waiting.failed {
            waiting.failed = true;
            let request = waiting.request;
            self.requests.remove(&request);
            self.fail(request, error);
        }
    }

    pub(super) fn fail_waiters(&mut self, frame: FrameId, error: Error) {
        let (mut at, file) = (self.first_waiter(frame), self.frames[frame].page.file);
        while at != NIL {
            let Waiter { row, next, node } = self.waiters[at as usize];
            self.waiters_free.push(at);
            at = next;
            if node == Node::Fill {
                self.keep_promise(file);
            }
            self.fail_row(row, error);
            self.leave(row);
        }
    }

    pub(super) fn cancel(&mut self, request: RequestId) {
        if let Some(&row) = self.requests.get(&request) {
            self.fail_row(row, Error::Cancelled);
            if self.rows[row as usize].nodes == 0 {
                self.rows_free.push(row);
            }
        } else {
            self.cancel_write(request);
        }
    }

    /// Hands a fresh frame to the write that claimed it, its first waiter; the others wait for the
    /// bytes. They may write a part of the page, so if the first failed meanwhile, the frame is
    /// free again and the page is fetched for them.
    fn begin_fill(&mut self, frame: FrameId) {
        let page = self.frames[frame].page.index;
        let first = self.first_waiter(frame);
        let Waiter { row, next, node } = self.waiters[first as usize];
        assert_eq!(node, Node::Fill, "a write claimed {frame:?}");
        let Row { request, failed, .. } = self.rows[row as usize];
        if failed {
            self.frames[frame].waiters = self.turn(first);
            self.frames.unmap(frame);
            self.unclaim(self.frames[frame]);
            self.drop_free(frame);
            return;
        }
        self.frames[frame].waiters = self.turn(next);
        self.waiters_free.push(first);
        self.actions.list.push(Action::Fill { request, page, frame, fresh: true });
        self.leave(row);
        self.frames[frame].state = State::Filling;
        self.frames[frame].fills = 1;
    }
}
