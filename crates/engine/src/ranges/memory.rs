//! The bytes: frames, and waiting reads.
//!
//! # Invariants
//! - A served page is copied before its frame can change: at once for a read that waits, and by
//!   [`Memory::copy_ready`] for a read that does not.

use std::collections::BTreeMap;

use forerun_core::planner::ranges::{Extent, FetchId, FetchRow, RangeAction, page_of};
use forerun_core::units::{FrameId, Nanos, PageIndex, RequestId};
use forerun_io::frames::{LazyMemory, NoMemory};

use super::tails::Tails;
use super::{PAGE_BYTES, ReadEnd, ReadId};

pub(super) struct Memory {
    frames: LazyMemory,
    file_bytes: u64,
    pub(super) reads: BTreeMap<ReadId, WaitingRead>,
    /// The last read; while it is handled, its served pages and its answer.
    current: Option<(ReadId, u64, u64)>,
    served: Vec<(PageIndex, FrameId, Extent)>,
    answer: Option<Answer>,
    /// Reads that ended or have a fetch to claim, since the last call.
    pub(super) woken: Vec<ReadId>,
    tails: Tails,
    /// The tail that the last read begins with.
    head: Option<(PageIndex, Box<[u8]>)>,
}

/// A read that waits.
pub(super) struct WaitingRead {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Bytes that are not served yet.
    pub(super) left: u64,
    /// The claimed fetch that covers the whole read.
    pub(super) fetches: Option<FetchId>,
    since: Nanos,
    /// The buffer of the whole read, from its first bytes on.
    bytes: Vec<u8>,
    lacks: bool,
    answer: Option<Answer>,
}

#[derive(Clone, Copy)]
enum Answer {
    Done,
    Failed,
}

impl Memory {
    pub(super) fn new(frames: u32, file_bytes: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            frames: LazyMemory::new(frames as usize * PAGE_BYTES as usize)?,
            file_bytes,
            reads: BTreeMap::new(),
            current: None,
            served: Vec::new(),
            answer: None,
            woken: Vec::new(),
            tails: Tails::new(frames as usize / TAILS_ONE_IN),
            head: None,
        })
    }

    /// Makes a read of `start..end` the current one.
    pub(super) fn begin(&mut self, read: ReadId, start: u64, end: u64) {
        self.current = Some((read, start, end));
        self.served.clear();
        self.answer = None;
        self.head = None;
    }

    /// Takes the tail of page `index`, in which the current read begins. Returns whether the tail
    /// serves the read: it was kept, and the page is in no frame.
    pub(super) fn begin_with_tail(&mut self, index: PageIndex, in_frame: bool) -> bool {
        let tail = self.tails.take(index).filter(|_| !in_frame);
        self.head = tail.map(|bytes| (index, bytes));
        self.head.is_some()
    }

    /// Whether the current read has all its bytes.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.answer, Some(Answer::Done))
    }

    /// Makes the current read wait.
    pub(super) fn wait(&mut self, since: Nanos) {
        let Some((read, start, end)) = self.current.take() else { return };
        let (left, answer) = (end - start, self.answer);
        let (fetches, bytes, lacks) = (None, Vec::new(), false);
        let mut waiting = WaitingRead { start, end, left, fetches, since, bytes, lacks, answer };
        if let Some((page, bytes)) = &self.head {
            waiting.copy(*page, bytes, Extent::WHOLE);
        }
        for (page, frame, extent) in self.served.drain(..) {
            waiting.copy(page, &self.frames[place(frame)..], extent);
        }
        self.reads.insert(read, waiting);
    }

    /// Carries out an action of the planner.
    pub(super) fn carry_out(&mut self, action: RangeAction) {
        match action {
            RangeAction::Serve { request, page, frame, extent } => {
                let read = ReadId(request.0);
                self.keep_tail(read, page, frame, extent);
                if let Some(waiting) = self.reads.get_mut(&read) {
                    waiting.copy(page, &self.frames[place(frame)..], extent);
                } else {
                    self.served.push((page, frame, extent));
                }
            }
            RangeAction::Fetch { start, end, demand } => {
                let waits = |row: &WaitingRead| demand && row.start < end && start < row.end;
                let waiting = self.reads.iter().filter(|(_, row)| waits(row));
                self.woken.extend(waiting.map(|(&read, _)| read));
            }
            RangeAction::FetchFailed(id) => {
                // A read with this fetch copies pages as they are served from now on.
                for waiting in self.reads.values_mut() {
                    waiting.fetches = waiting.fetches.filter(|&fetch| fetch != id);
                }
            }
            RangeAction::Done(request) => self.end(request, Answer::Done),
            RangeAction::Fail(request) => self.end(request, Answer::Failed),
        }
    }

    fn end(&mut self, request: RequestId, answer: Answer) {
        let read = ReadId(request.0);
        if let Some(waiting) = self.reads.get_mut(&read) {
            waiting.answer = Some(answer);
            self.woken.push(read);
        } else if self.current.is_some_and(|(current, ..)| current == read) {
            self.answer = Some(answer);
        }
    }

    /// Copies the bytes of a fetch into its frames.
    pub(super) fn fill(&mut self, fetch: &FetchRow, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, fetch.end - fetch.start, "a fetch gives its range");
        for (index, &frame) in (page_of(fetch.start)..).zip(&fetch.frames) {
            let extent = Extent::of(index, fetch.start, fetch.end);
            let from = index * u64::from(PAGE_BYTES) + u64::from(extent.start) - fetch.start;
            let from = usize::try_from(from).expect("within the bytes");
            let to = &mut self.frames[place(frame)..][extent.start as usize..extent.end as usize];
            to.copy_from_slice(&bytes[from..from + to.len()]);
        }
    }

    /// The bytes of the last read, if its frames are contiguous.
    pub(super) fn ready(&self) -> Option<&[u8]> {
        let (_, start, end) = self.current.filter(|_| self.head.is_none())?;
        let &(first, frame, _) = self.served.first()?;
        let is_next = |at: usize, row: &(PageIndex, FrameId, Extent)| {
            row.0 == first + at as u64 && place(row.1) == place(frame) + at * PAGE_BYTES as usize
        };
        let neighbours = self.served.iter().enumerate().all(|(at, row)| is_next(at, row));
        if first != page_of(start) || !neighbours {
            return None;
        }
        let from = place(frame) + usize::try_from(start % u64::from(PAGE_BYTES)).ok()?;
        self.frames.get(from..from + usize::try_from(end - start).ok()?)
    }

    pub(super) fn copy_ready(&self, out: &mut [u8]) {
        let Some((_, start, end)) = self.current else { return };
        assert_eq!(out.len() as u64, end - start, "as long as the read");
        if let Some((page, bytes)) = &self.head {
            copy(*page, bytes, (start, end), out);
        }
        for &(page, frame, _) in &self.served {
            copy(page, &self.frames[place(frame)..], (start, end), out);
        }
    }

    /// How `read` ended, and when its wait began.
    pub(super) fn take(&mut self, read: ReadId) -> Option<(ReadEnd, Nanos)> {
        let answer = self.reads.get(&read)?.answer?;
        let row = self.reads.remove(&read)?;
        let ended = match answer {
            Answer::Failed => ReadEnd::Failed,
            Answer::Done if row.fetches.is_some() => ReadEnd::Fetched,
            Answer::Done if row.lacks => ReadEnd::Again,
            Answer::Done => ReadEnd::Bytes(row.bytes),
        };
        Some((ended, row.since))
    }

    /// Keeps `page`, served to `read`, as a tail if the read ends within it.
    fn keep_tail(&mut self, read: ReadId, page: PageIndex, frame: FrameId, extent: Extent) {
        let waiting = self.reads.get(&read).map(|waiting| waiting.end);
        let Some(end) = waiting.or(self.current.map(|(_, _, end)| end)) else { return };
        let ends_within = page_of(end) == page && end < self.file_bytes;
        if ends_within && extent == Extent::WHOLE {
            self.tails.keep(page, &self.frames[place(frame)..][..PAGE_BYTES as usize]);
        }
    }
}

impl WaitingRead {
    /// Copies the read's part of `page`, whose frame has `extent` of it.
    fn copy(&mut self, page: PageIndex, frame: &[u8], extent: Extent) {
        let wanted = Extent::of(page, self.start, self.end);
        self.left -= u64::from(wanted.end - wanted.start);
        if self.fetches.is_some() {
            return;
        }
        if extent.contains(wanted) {
            let size = usize::try_from(self.end - self.start).expect("it fits memory");
            self.bytes.resize(size, 0);
            copy(page, frame, (self.start, self.end), &mut self.bytes);
        } else {
            self.lacks = true;
        }
    }
}

/// Tails take one part in so many of the frames' memory, in addition to it.
const TAILS_ONE_IN: usize = 64;

/// Copies the part of `page` within the read of `start..end` to its offset in `out`.
fn copy(page: PageIndex, frame: &[u8], (start, end): (u64, u64), out: &mut [u8]) {
    let extent = Extent::of(page, start, end);
    let to = page * u64::from(PAGE_BYTES) + u64::from(extent.start) - start;
    let to = usize::try_from(to).expect("within the read");
    let from = &frame[extent.start as usize..extent.end as usize];
    out[to..to + from.len()].copy_from_slice(from);
}

/// The offset of a frame in the memory.
fn place(frame: FrameId) -> usize {
    frame.0 as usize * PAGE_BYTES as usize
}
