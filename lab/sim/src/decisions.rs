//! Decisions: the windows that a readahead policy opens for a list of reads, and nothing else.
//!
//! The reads go through the real cache, which holds the whole file. Time stands still and every
//! fetch arrives at once, so the decisions depend on the reads alone.
//!
//! ```text
//!   reads --> cache, policy --Explain--> WindowDecision { read, page, cause, window, fetched }
//!                ^   |
//!                |   +--Fetch--+
//!                +---Arrived---+
//! ```
//!
//! A policy that measures the device (`streams`) has no measurement here: its windows are those
//! of a start.
//!
//! # Invariants
//! - The same reads give the same decisions, on any machine.
//! - A page is fetched once, unless it was invalidated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forerun_core::cache::{Cache, Settings, SettingsError};
use forerun_core::drive::{Driver, drive};
use forerun_core::event::{Actions, Error, Event, FetchKind};
use forerun_core::readahead::{Cause, Decision, Window};
use forerun_core::units::{
    FileId, FrameId, HandleId, Nanos, PageId, PageIndex, PartitionId, RequestId,
};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// The pages of a file at most: all of them may be resident, and each takes memory.
pub const FILE_PAGES_MAX: u64 = 1 << 22;

/// A window that a policy opened. A miss without a window counts as a window of the request's
/// pages, with the cause [`Cause::Random`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowDecision {
    /// The read that opened it, counted from 0.
    pub read: u32,
    /// The page that triggered it.
    pub page: PageIndex,
    /// The cause of the window.
    pub cause: Cause,
    /// The pages, as the policy named them: they may reach beyond the file.
    pub window: Window,
    /// The pages of it that were not cached: first and last page of each run.
    pub fetched: Vec<(PageIndex, PageIndex)>,
}

/// The reason for no decisions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionError {
    /// The policy, or a parameter of it, is unknown or cannot work.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The file is too large to be held.
    #[error("a file of {file_pages} pages is too large: give one of {FILE_PAGES_MAX} at most")]
    File {
        /// Its pages.
        file_pages: u64,
    },
    /// A read reaches beyond the file's last byte.
    #[error("read {read} is not within the file of {file_bytes} bytes: give a larger file")]
    PastEnd {
        /// The index of the read, from 0.
        read: u32,
        /// Bytes of the file.
        file_bytes: u64,
    },
    /// The cache could not serve a read.
    #[error("read {read} is larger than the cache takes at once: read less")]
    Refused {
        /// The index of the read, from 0.
        read: u32,
    },
}

/// The decisions of the policy `spec` (`NAME:key=value,..`) while one handle reads `reads`, an
/// offset and a length in bytes each, from a file of `file_bytes`.
///
/// # Errors
/// The policy is unknown, the file too large, or a read goes beyond it.
pub fn decisions(
    spec: &str,
    file_bytes: u64,
    reads: &[(u64, u64)],
) -> Result<Vec<WindowDecision>, DecisionError> {
    let mut replay = Replay::new(spec, file_bytes.div_ceil(PAGE_BYTES))?;
    for (read, &(offset, length)) in (0..).zip(reads) {
        let end = offset.checked_add(length).filter(|&end| end <= file_bytes);
        let end = end.ok_or(DecisionError::PastEnd { read, file_bytes })?;
        replay.read(read, 0, offset..end)?;
    }
    Ok(replay.seen.decided)
}

/// A cache and one file, read step by step.
pub(crate) struct Replay {
    cache: Cache,
    actions: Actions,
    seen: SequenceLog,
    /// The byte after each open handle's previous read.
    previous: BTreeMap<u32, Option<u64>>,
}

impl Replay {
    /// A cold cache and a file of `file_pages`, under the policy `spec`.
    pub(crate) fn new(spec: &str, file_pages: u64) -> Result<Self, DecisionError> {
        if file_pages > FILE_PAGES_MAX {
            return Err(DecisionError::File { file_pages });
        }
        let frames = u32::try_from(file_pages.max(FRAMES_MIN)).expect("bounded above");
        let mut settings = Settings::new(frames, "lru", spec);
        settings.request_pages_max = frames;
        settings.ahead_pages_max = frames;
        settings.explain = true;
        let cache = Cache::new(settings)?;
        let seen = SequenceLog { file_pages, ..SequenceLog::default() };
        Ok(Self { cache, actions: Actions::new(), seen, previous: BTreeMap::new() })
    }

    /// Reads `bytes`, which lie within the file, by the handle of that number, as the read `read`.
    pub(crate) fn read(
        &mut self,
        read: u32,
        handle: u32,
        bytes: Range<u64>,
    ) -> Result<(), DecisionError> {
        let file_pages = self.seen.file_pages;
        let (number, handle) = (handle, HandleId(handle));
        self.seen.read = read;
        if !self.previous.contains_key(&number) {
            let (file, partition) = (FileId(0), PartitionId(0));
            self.send(Event::Open { handle, file, partition, file_pages });
            self.previous.insert(number, None);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let (first, end) = (bytes.start / PAGE_BYTES, bytes.end.div_ceil(PAGE_BYTES));
        assert!(end <= file_pages, "a read within its file");
        let count = u32::try_from(end - first).expect("a file has FILE_PAGES_MAX at most");
        let previous_end = self.previous.insert(number, Some(bytes.end)).flatten();
        let request = RequestId(0);
        self.send(Event::Read { request, handle, first, count, previous_end, congested: false });
        if self.seen.refused { Err(DecisionError::Refused { read }) } else { Ok(()) }
    }

    /// Closes the handle of that number, if it is open; a read opens it again.
    pub(crate) fn close(&mut self, handle: u32) {
        if self.previous.remove(&handle).is_some() {
            self.send(Event::Close { handle: HandleId(handle) });
        }
    }

    /// Drops `pages` from the cache.
    pub(crate) fn invalidate(&mut self, pages: Range<PageIndex>) {
        self.seen.cached.retain(|page| !pages.contains(page));
        let (first, count) = (pages.start, pages.end - pages.start);
        self.send(Event::Invalidate { file: FileId(0), first, count });
    }

    /// Every window so far.
    pub(crate) fn decided(&self) -> &[WindowDecision] {
        &self.seen.decided
    }

    /// The pages that windows fetched and that were not dropped, in order.
    pub(crate) fn cached(&self) -> impl Iterator<Item = PageIndex> + '_ {
        self.seen.cached.iter().copied()
    }

    fn send(&mut self, event: Event<'_>) {
        drive(&mut self.cache, Nanos(0), event, &mut self.actions, &mut self.seen);
        while let Some((first, count)) = self.seen.arriving.pop() {
            let arrived = Event::Arrived { first, count };
            drive(&mut self.cache, Nanos(0), arrived, &mut self.actions, &mut self.seen);
        }
    }
}

/// Consecutive numbers as first and last of each run.
pub(crate) fn ranges(pages: impl Iterator<Item = PageIndex>) -> Vec<(PageIndex, PageIndex)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for page in pages {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == page => last.1 = page,
            _ => ranges.push((page, page)),
        }
    }
    ranges
}

/// The fetches of the cache.
#[derive(Default)]
struct SequenceLog {
    file_pages: u64,
    /// The current read.
    read: u32,
    decided: Vec<WindowDecision>,
    cached: BTreeSet<PageIndex>,
    arriving: Vec<(FrameId, u32)>,
    /// The cache could not serve a read.
    refused: bool,
}

impl Driver for SequenceLog {
    fn fetch(&mut self, _: FetchKind, _: PageId, frames: &[FrameId]) {
        let count = u32::try_from(frames.len()).expect("a fetch counts its frames in 32 bits");
        self.arriving.push((frames[0], count));
    }

    fn fail(&mut self, _: RequestId, _: Error) {
        self.refused = true;
    }

    fn explain(&mut self, _: HandleId, page: PageIndex, decision: Decision, _: u32) {
        let window = decision.window;
        let absent = (window.start..window.end()).filter(|p| !self.cached.contains(p));
        let fetched = ranges(absent.filter(|&p| p < self.file_pages));
        for &(first, last) in &fetched {
            self.cached.extend(first..=last);
        }
        let (read, cause) = (self.read, decision.cause);
        self.decided.push(WindowDecision { read, page, cause, window, fetched });
    }
}

/// Frames of the smallest cache: every policy at its default has room for its windows.
const FRAMES_MIN: u64 = 1 << 12;

#[cfg(test)]
mod tests {
    use super::{DecisionError, PAGE_BYTES, decisions};
    use forerun_core::readahead::NAMES;

    const FILE: u64 = 1 << 20;

    #[test]
    fn windows_follow_the_reads_that_asked_for_them() {
        /// Offset, length.
        type Reads<'a> = &'a [(u64, u64)];
        /// Read, start, size, async size.
        type Opened = (u32, u64, u32, u32);
        let windows = |spec: &str, reads: Reads| -> Vec<Opened> {
            let decided = decisions(spec, FILE, reads).unwrap();
            let row = |d: &super::WindowDecision| {
                (d.read, d.window.start, d.window.size, d.window.async_size)
            };
            decided.iter().map(row).collect()
        };
        let max = "linux-2.6.24:max=128K";
        #[rustfmt::skip]
        let rows: &[(&str, &str, Reads, &[Opened])] = &[ // why, policy, reads, windows
            ("the head, then its marker", max,   &[(0, 4096), (4096, 4096)],
             &[(0, 0, 4, 3), (1, 4, 8, 8)]),
            ("bytes are rounded to pages", max,  &[(1, 1), (2, 4094), (4096, 1)],
             &[(0, 0, 4, 3), (2, 4, 8, 8)]),
            ("an empty read asks nothing", max,  &[(0, 0), (FILE, 0)], &[]),
            ("without readahead each miss", "off", &[(0, 4096), (4096, 4096)],
             &[(0, 0, 1, 0), (1, 1, 1, 0)]),
        ];
        for (why, spec, reads, expected) in rows {
            assert_eq!(windows(spec, reads), *expected, "{why}");
        }
    }

    #[test]
    fn every_policy_fetches_a_file_once_that_is_read_in_order() {
        let reads: Vec<(u64, u64)> = (0..FILE).step_by(4096).map(|offset| (offset, 4096)).collect();
        for name in NAMES {
            let decided = decisions(name, FILE, &reads).unwrap();
            let mut pages: Vec<u64> = decided
                .iter()
                .flat_map(|decided| decided.fetched.iter().flat_map(|&(a, b)| a..=b))
                .collect();
            pages.sort_unstable();
            assert!(pages.into_iter().eq(0..FILE / PAGE_BYTES), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_an_error() {
        let error = |spec, bytes, reads: &[(u64, u64)]| decisions(spec, bytes, reads).unwrap_err();
        assert!(matches!(error("linux", FILE, &[]), DecisionError::Settings(_)));
        assert!(matches!(error("off", u64::MAX, &[]), DecisionError::File { .. }));
        for read in [(FILE, 1), (0, FILE + 1), (u64::MAX, 2)] {
            let past = error("off", FILE, &[(0, 1), read]);
            assert!(matches!(past, DecisionError::PastEnd { read: 1, .. }), "{read:?}");
        }
    }
}
