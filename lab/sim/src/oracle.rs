//! Oracles: policies that know the future accesses, as the measure of the others.
//!
//! The *online limit* of a workload on a device is what [`PerfectReadahead`] reaches there in
//! virtual time: it knows every stream's place and end, but only from the stream's second read on
//! (from the first at a file's head, where a guess is free), and it may use the memory that the
//! cache gives to readahead. So it pays one blind read a stream, and gives each stream an equal
//! share of the memory. Where pieces follow each other at a step, it knows of the others from the
//! second one on.
//!
//! ```text
//!   stream  |r|======= window =======|======= window =======|==...==| known end
//!            ^ blind: the request      ^ marker: fetch the next
//!   pieces  |r|==|.....|==|.....|==|.....|==|     all known from the second on
//! ```
//! It does not know whether gaps are better read through ([`Gaps`]): the best of both counts.
//!
//! [`belady`] is the bound of replacement: the fewest possible misses.
//!
//! # Invariants
//! - The oracle fetches no page outside the known streams, and no page that is still cached. It
//!   reads no page in vain, but for those of gaps where it is to read through them.

pub mod belady;
mod moments;

use forerun_core::cache::Settings;
use forerun_core::readahead::{Cause, Decision, Demand, Readahead, Trigger, Window};
use forerun_core::units::FileId;

use crate::workload::{Stream, Workload};

/// The treatment of gaps between pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// The oracle skips them.
    Skipped,
    /// The oracle fetches and discards them.
    Read,
}

/// See the module.
pub struct PerfectReadahead {
    streams: Vec<KnownStream>,
    window_pages: u32,
    gaps: Gaps,
    /// The continuation of the last decision: a stream, and its further pages.
    rest: Option<(usize, u32)>,
}

struct KnownStream {
    file: FileId,
    start: u64,
    end: u64,
    /// Pages of a piece, and from the start of one to that of the next.
    piece: u64,
    step: u64,
    /// The first page that was not read ahead yet.
    frontier: u64,
    seen: bool,
}

impl KnownStream {
    fn new(stream: &Stream, page_bytes: u64) -> Self {
        let Stream { file, start, bytes, piece, every } = *stream;
        let last = bytes.div_ceil(piece.max(1)).saturating_sub(1);
        let end = start + last * every + (bytes - last * piece);
        let whole = (end.div_ceil(page_bytes) - start / page_bytes).max(1);
        // Pieces that do not begin with a page are taken for one.
        let apart = last > 0 && every % page_bytes == 0 && start % page_bytes == 0;
        let (piece, step) =
            if apart { (piece.div_ceil(page_bytes), every / page_bytes) } else { (whole, whole) };
        Self {
            file: FileId(file),
            start: start / page_bytes,
            end: end.div_ceil(page_bytes),
            piece,
            step,
            frontier: start / page_bytes,
            seen: false,
        }
    }

    /// The start and the end of the piece that begins at `page` or last before it.
    fn piece_at(&self, page: u64) -> (u64, u64) {
        let start = page - (page - self.start) % self.step;
        (start, (start + self.piece).min(self.end))
    }

    fn holds(&self, page: u64) -> bool {
        self.start <= page && page < self.end && page < self.piece_at(page).1
    }

    /// The next pages to fetch, at most `most` and before `until`.
    fn next(&mut self, most: u32, until: u64, gaps: Gaps) -> Option<Window> {
        let start = self.frontier;
        let until = match gaps {
            Gaps::Skipped => self.piece_at(start).1.min(until),
            Gaps::Read => until,
        };
        let left = u32::try_from(until.saturating_sub(start)).unwrap_or(u32::MAX);
        let size = left.min(most);
        let end = start + u64::from(size);
        self.frontier = if self.holds(end) { end } else { self.next_piece(end) };
        (size > 0).then_some(Window { start, size, async_size: 0 })
    }

    /// The start of the piece after `page`, which is in a gap.
    fn next_piece(&self, page: u64) -> u64 {
        (self.piece_at(page).0 + self.step).min(self.end)
    }
}

impl PerfectReadahead {
    /// The oracle for `workload` in a cache of `settings`.
    #[must_use]
    pub fn new(workload: &Workload, settings: &Settings, gaps: Gaps) -> Self {
        let page_bytes = u64::from(settings.page_bytes);
        let known = |stream: &Stream| KnownStream::new(stream, page_bytes);
        let mut streams: Vec<KnownStream> = workload.streams.iter().map(known).collect();
        streams.sort_by_key(|stream| (stream.file, stream.start));
        let count = u32::try_from(streams.len().max(1)).unwrap_or(u32::MAX);
        // Two windows a stream: the current one and the one in flight.
        let share = settings.ahead_pages_max / count / 2;
        Self { streams, window_pages: share.clamp(1, WINDOW_PAGES_MAX), gaps, rest: None }
    }

    fn stream(&self, file: FileId, page: u64) -> Option<usize> {
        let after = self.streams.partition_point(|known| (known.file, known.start) <= (file, page));
        let at = after.checked_sub(1)?;
        let known = &self.streams[at];
        (known.file == file && known.holds(page)).then_some(at)
    }
}

impl Readahead for PerfectReadahead {
    fn window_pages_max(&self) -> u32 {
        self.window_pages
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        self.rest = None;
        let window = Window { start: demand.first, size: demand.count, async_size: 0 };
        let as_asked = Decision::new(Cause::Random, window);
        let missed = demand.trigger == Trigger::Miss;
        let Some(at) = self.stream(demand.file, demand.first) else {
            return missed.then_some(as_asked);
        };
        let known = &mut self.streams[at];
        let blind = !core::mem::replace(&mut known.seen, true) && demand.first > 0;
        if missed && blind {
            known.frontier = demand.first + u64::from(demand.count);
            return Some(as_asked);
        }
        if missed {
            known.frontier = demand.first;
        }
        let first_piece = known.piece_at(known.start).1;
        let until = if demand.first < first_piece { first_piece } else { known.end };
        let Some(mut window) = known.next(self.window_pages, until, self.gaps) else {
            return missed.then_some(as_asked);
        };
        if known.frontier < until {
            window.async_size = window.size;
            self.rest = Some((at, self.window_pages - window.size));
        }
        let cause = if missed { Cause::Sync } else { Cause::Async };
        Some(Decision::new(cause, window))
    }

    fn carried(&self, decision: Decision, page: u64) -> bool {
        self.gaps == Gaps::Read
            && !self
                .streams
                .iter()
                .any(|known| known.start <= decision.window.start && known.holds(page))
    }

    fn submitted(&mut self, _: &Demand, _: Decision, _: u32) -> Option<Decision> {
        let (at, left) = self.rest.take()?;
        let known = &mut self.streams[at];
        let until = known.end;
        let window = known.next(left, until, self.gaps)?;
        self.rest = Some((at, left - window.size)).filter(|_| known.frontier < until);
        Some(Decision::new(Cause::Async, window))
    }
}

/// 64 MiB in pages of 4 KiB: beyond that no device model gains.
const WINDOW_PAGES_MAX: u32 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::{Gaps, PerfectReadahead};
    use crate::driver::{RunOutcome, Setup, run};
    use crate::workload;
    use forerun_core::cache::Settings;
    use forerun_core::device;

    fn outcome(spec: &str, readahead: Option<&str>) -> RunOutcome {
        let mut workload = workload::make(spec).unwrap();
        let device = device::make("t7k250", 1).unwrap();
        let mut settings = Settings::new(1 << 16, "lru", readahead.unwrap_or("off"));
        settings.request_pages_max = 128;
        let oracle = PerfectReadahead::new(&workload, &settings, Gaps::Skipped);
        let mut setup = Setup::new(settings, Some(device));
        setup.depth = 1;
        if readahead.is_none() {
            setup.oracle = Some(Box::new(oracle));
        }
        run(setup, &mut workload).unwrap()
    }

    #[test]
    fn the_oracle_reads_every_page_once_and_nobody_is_faster() {
        for spec in [
            "streams,n=1,each=20M",
            "streams,n=7,each=4M,layout=spread,start=mid",
            "stride,n=1,each=1M,piece=64K,every=256K",
            "stride,n=3,each=512K,piece=12K,every=200K,layout=spread",
            "parquet,columns=5,chunk=400K,apart=9M",
        ] {
            let best = outcome(spec, None);
            assert_eq!(best.bytes_read, best.bytes_wanted, "{spec}");
            for readahead in ["off", "linux-2.6.22", "linux-2.6.24", "linux-6", "fixed"] {
                let other = outcome(spec, Some(readahead));
                assert_eq!(other.bytes_wanted, best.bytes_wanted);
                assert!(other.elapsed >= best.elapsed, "{spec} {readahead}: {:?}", other.elapsed);
            }
        }
    }

    #[test]
    fn random_reads_stay_random() {
        let best = outcome("disturb,percent=10,sequential=4M", None);
        assert!(best.bytes_read <= best.bytes_wanted);
    }
}
