//! The bytes: frames, which part of its page each of them has, and reads on their way.
//!
//! # Invariants
//! - What is served is copied before anything else can happen to its frame: at once to a read that
//!   waits, and by [`World::copy_ready`] for one that does not.
//! - A frame's extent is that of the page which it holds, or is about to hold.

use std::collections::BTreeMap;

use forerun_core::drive::Driver;
use forerun_core::event::{Error, FetchKind};
use forerun_core::readahead::{Cause, Decision, StreamId};
use forerun_core::units::{FrameId, HandleId, Nanos, PageId, PageIndex, RequestId};
use forerun_io::frames::{Lazy, NoMemory};

use super::jobs::{JobId, Jobs, Row};
use super::tails::Tails;
use super::{Ended, PAGE_BYTES, ReadId, page_of, place};

pub(super) struct World {
    memory: Lazy,
    extents: Vec<Extent>,
    /// Frames whose extent is less than a page, or was as they were last filled.
    partial: u64,
    file_bytes: u64,
    pub(super) connections: u32,
    pub(super) jobs: Jobs,
    pub(super) reads: BTreeMap<ReadId, Waiting>,
    /// The last read that began, and while it is handled what it was served and how it ended.
    current: Option<(ReadId, u64, u64)>,
    /// Whether its first and its last page are to be fetched whole.
    whole: (bool, bool),
    served: Vec<(PageIndex, FrameId)>,
    answer: Option<Answer>,
    handling: bool,
    /// Reads that ended, or for which there is something to be fetched, since somebody asked.
    pub(super) woken: Vec<ReadId>,
    pub(super) streams: u64,
    newest: u32,
    tails: Tails,
    /// The tail that the last read begins with.
    head: Option<(PageIndex, Box<[u8]>)>,
}

/// Bytes of its page that a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    start: u32,
    end: u32,
}

/// A read that waits.
pub(super) struct Waiting {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Bytes that it was not served yet.
    pub(super) left: u64,
    /// The fetch that will bring all of it to its thread.
    pub(super) fetches: Option<JobId>,
    since: Nanos,
    /// Room for all of it, once there is any.
    bytes: Vec<u8>,
    lacks: bool,
    answer: Option<Answer>,
}

#[derive(Clone, Copy)]
enum Answer {
    Done,
    Failed,
}

impl World {
    pub(super) fn new(frames: u32, file_bytes: u64, connections: u32) -> Result<Self, NoMemory> {
        Ok(Self {
            memory: Lazy::new(frames as usize * PAGE_BYTES as usize)?,
            extents: vec![Extent::WHOLE; frames as usize],
            partial: 0,
            file_bytes,
            connections,
            jobs: Jobs::default(),
            reads: BTreeMap::new(),
            current: None,
            whole: (false, false),
            served: Vec::new(),
            answer: None,
            handling: false,
            woken: Vec::new(),
            streams: 0,
            newest: 0,
            tails: Tails::new(frames as usize / TAILS_ONE_IN),
            head: None,
        })
    }

    /// A read of `start..end` is about to be handled; `whole`: whether its first and its last page
    /// are to be fetched whole.
    pub(super) fn begin(&mut self, read: ReadId, start: u64, end: u64, whole: (bool, bool)) {
        self.current = Some((read, start, end));
        self.whole = whole;
        self.served.clear();
        self.answer = None;
        self.handling = true;
        self.head = None;
    }

    /// The read that is about to be handled begins within page `index`. If that was kept and is in
    /// no frame, the read has it now.
    pub(super) fn begin_with_tail(&mut self, index: PageIndex, in_frame: bool) -> bool {
        let tail = self.tails.take(index).filter(|_| !in_frame);
        self.head = tail.map(|bytes| (index, bytes));
        self.head.is_some()
    }

    /// It has no page beside that.
    pub(super) fn only_tail(&mut self) {
        self.answer = Some(Answer::Done);
    }

    /// It was handled: whether it got all its bytes.
    pub(super) fn begun(&mut self) -> bool {
        self.handling = false;
        matches!(self.answer, Some(Answer::Done))
    }

    /// It did not.
    pub(super) fn wait(&mut self, since: Nanos) {
        let Some((read, start, end)) = self.current.take() else { return };
        let (left, answer) = (end - start, self.answer);
        let (fetches, bytes, lacks) = (None, Vec::new(), false);
        let mut waiting = Waiting { start, end, left, fetches, since, bytes, lacks, answer };
        if let Some((page, bytes)) = &self.head {
            waiting.copy(*page, bytes, Extent::WHOLE);
        }
        for (page, frame) in self.served.drain(..) {
            waiting.copy(page, &self.memory[place(frame)..], self.extents[frame.0 as usize]);
        }
        self.reads.insert(read, waiting);
    }

    /// The bytes of the last read, if all of its frames are neighbours.
    pub(super) fn ready(&self) -> Option<&[u8]> {
        let (_, start, end) = self.current.filter(|_| self.head.is_none())?;
        let &(first, frame) = self.served.first()?;
        let is_next = |at: usize, row: &(PageIndex, FrameId)| {
            row.0 == first + at as u64 && place(row.1) == place(frame) + at * PAGE_BYTES as usize
        };
        let neighbours = self.served.iter().enumerate().all(|(at, row)| is_next(at, row));
        if first != page_of(start) || !neighbours {
            return None;
        }
        let from = place(frame) + usize::try_from(start % u64::from(PAGE_BYTES)).ok()?;
        self.memory.get(from..from + usize::try_from(end - start).ok()?)
    }

    pub(super) fn copy_ready(&self, out: &mut [u8]) {
        let Some((_, start, end)) = self.current else { return };
        assert_eq!(out.len() as u64, end - start, "as long as the read");
        if let Some((page, bytes)) = &self.head {
            copy(*page, bytes, (start, end), out);
        }
        for &(page, frame) in &self.served {
            copy(page, &self.memory[place(frame)..], (start, end), out);
        }
    }

    /// How `read` ended, and when it began to wait.
    pub(super) fn take(&mut self, read: ReadId) -> Option<(Ended, Nanos)> {
        let answer = self.reads.get(&read)?.answer?;
        let row = self.reads.remove(&read)?;
        let ended = match answer {
            Answer::Failed => Ended::Failed,
            Answer::Done if row.fetches.is_some() => Ended::Fetched,
            Answer::Done if row.lacks => Ended::Again,
            Answer::Done => Ended::Bytes(row.bytes),
        };
        Some((ended, row.since))
    }

    /// The fetch of `job` failed: who counted on it takes its bytes as they come.
    pub(super) fn brings_nothing(&mut self, job: JobId) {
        for waiting in self.reads.values_mut() {
            waiting.fetches = waiting.fetches.filter(|&fetch| fetch != job);
        }
    }

    pub(super) fn has_partial(&self) -> bool {
        self.partial > 0
    }

    /// Whether `frame`, which has page `index`, has all of it that lies in `start..end`.
    pub(super) fn holds(&self, frame: FrameId, index: PageIndex, start: u64, end: u64) -> bool {
        let wanted = Extent::of(index, start, end);
        let there = self.extents[frame.0 as usize];
        there.start <= wanted.start && wanted.end <= there.end
    }

    /// The bytes of a fetch go into its frames.
    pub(super) fn fill(&mut self, row: &Row, bytes: &[u8]) {
        for (index, &frame) in (page_of(row.start)..).zip(&row.frames) {
            let extent = Extent::of(index, row.start, row.end);
            let from = index * u64::from(PAGE_BYTES) + u64::from(extent.start) - row.start;
            let from = usize::try_from(from).expect("within the bytes");
            let to = &mut self.memory[place(frame)..][extent.start as usize..extent.end as usize];
            to.copy_from_slice(&bytes[from..from + to.len()]);
            let page_end = (index + 1) * u64::from(PAGE_BYTES);
            let whole = extent.end == PAGE_BYTES
                || page_end > self.file_bytes && {
                    u64::from(extent.end) == self.file_bytes % u64::from(PAGE_BYTES)
                };
            let is_partial = !(whole && extent.start == 0);
            let old = &mut self.extents[frame.0 as usize];
            let was_partial = *old != Extent::WHOLE;
            *old = if is_partial { extent } else { Extent::WHOLE };
            self.partial = self.partial + u64::from(is_partial) - u64::from(was_partial);
        }
    }

    /// Bytes to be fetched for `count` pages from `first` on: where they are just what the read at
    /// hand wants, no more than that.
    fn range(&self, kind: FetchKind, first: PageIndex, count: u32) -> (u64, u64) {
        let page = u64::from(PAGE_BYTES);
        let (start, end) = (first * page, (first + u64::from(count)) * page);
        let end = end.min(self.file_bytes);
        match self.current {
            Some((_, from, to)) if self.handling && kind == FetchKind::Demand => {
                let starts = page_of(from) == first;
                let ends = page_of(to - 1) == page_of(end - 1);
                let (starts, ends) = (starts && !self.whole.0, ends && !self.whole.1);
                (if starts { from } else { start }, if ends { to } else { end })
            }
            Some(_) | None => (start, end),
        }
    }

    /// `page` is served to `read`: if that ends within it, another may go on there.
    fn keep_tail(&mut self, read: ReadId, page: PageIndex, frame: FrameId) {
        let waiting = self.reads.get(&read).map(|waiting| waiting.end);
        let Some(end) = waiting.or(self.current.map(|(_, _, end)| end)) else { return };
        let ends_within = page_of(end) == page && end < self.file_bytes;
        if ends_within && self.extents[frame.0 as usize] == Extent::WHOLE {
            self.tails.keep(page, &self.memory[place(frame)..][..PAGE_BYTES as usize]);
        }
    }
}

impl Driver for World {
    fn serve(&mut self, request: RequestId, page: PageIndex, frame: FrameId) {
        let read = ReadId(request.0);
        self.keep_tail(read, page, frame);
        if let Some(waiting) = self.reads.get_mut(&read) {
            let extent = self.extents[frame.0 as usize];
            waiting.copy(page, &self.memory[place(frame)..], extent);
        } else {
            self.served.push((page, frame));
        }
    }

    fn fetch(&mut self, kind: FetchKind, page: PageId, frames: &[FrameId]) {
        let count = u32::try_from(frames.len()).expect("a fetch counts its frames in 32 bits");
        let (start, end) = self.range(kind, page.index, count);
        let demand = kind == FetchKind::Demand;
        let waits = |row: &Waiting| demand && row.start < end && start < row.end;
        let waiting = self.reads.iter().filter(|(_, row)| waits(row));
        self.woken.extend(waiting.map(|(&read, _)| read));
        self.jobs.add(Row { start, end, demand, frames: frames.to_vec() });
    }

    fn done(&mut self, request: RequestId) {
        self.answer(ReadId(request.0), Answer::Done);
    }

    fn fail(&mut self, request: RequestId, _: Error) {
        self.answer(ReadId(request.0), Answer::Failed);
    }

    fn explain(&mut self, _: HandleId, _: PageIndex, decision: Decision, _: u32) {
        // Names are given in order.
        if let Some(StreamId(name)) = decision.stream.filter(|_| decision.cause != Cause::Random)
            && name > self.newest
        {
            self.newest = name;
            self.streams += 1;
        }
    }
}

impl World {
    fn answer(&mut self, read: ReadId, answer: Answer) {
        if let Some(waiting) = self.reads.get_mut(&read) {
            waiting.answer = Some(answer);
            self.woken.push(read);
        } else if self.handling {
            self.answer = Some(answer);
        }
    }
}

impl Waiting {
    /// Takes what it wants of `page`, whose frame has `extent` of it.
    fn copy(&mut self, page: PageIndex, frame: &[u8], extent: Extent) {
        let wanted = Extent::of(page, self.start, self.end);
        self.left -= u64::from(wanted.end - wanted.start);
        if self.fetches.is_some() {
            return;
        }
        if extent.start <= wanted.start && wanted.end <= extent.end {
            let size = usize::try_from(self.end - self.start).expect("it fits memory");
            self.bytes.resize(size, 0);
            copy(page, frame, (self.start, self.end), &mut self.bytes);
        } else {
            self.lacks = true;
        }
    }
}

impl Extent {
    const WHOLE: Self = Self { start: 0, end: PAGE_BYTES };

    /// The part of page `index` that lies in `start..end`, which meets it.
    fn of(index: PageIndex, start: u64, end: u64) -> Self {
        let base = index * u64::from(PAGE_BYTES);
        let within = |offset: u64| {
            let offset = offset.saturating_sub(base).min(u64::from(PAGE_BYTES));
            u32::try_from(offset).expect("within a page")
        };
        Self { start: within(start), end: within(end) }
    }
}

/// Tails take this part of the frames' memory beside them.
const TAILS_ONE_IN: usize = 64;

/// Copies what `page` has of the read of `start..end` to its place in `out`.
fn copy(page: PageIndex, frame: &[u8], (start, end): (u64, u64), out: &mut [u8]) {
    let extent = Extent::of(page, start, end);
    let to = page * u64::from(PAGE_BYTES) + u64::from(extent.start) - start;
    let to = usize::try_from(to).expect("within the read");
    let from = &frame[extent.start as usize..extent.end as usize];
    out[to..to + from.len()].copy_from_slice(from);
}
