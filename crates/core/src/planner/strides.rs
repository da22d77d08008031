//! The stride detector: large reads at even distances, as of the chunks of a column in a table or
//! of an array.
//!
//! ```text
//!   |====|.........|====|.........|====|.........|- - |.........|- - |   == read, - - prefetched
//!   |<-- stride -->|<-- stride -->|
//! ```
//! The readahead policy finds strides too, in whole pages. A stride of such reads is seldom a whole
//! number of pages: the place drifts by a page now and then, and each time the policy takes it for
//! another reader. Here places are bytes, and a stride is a distance that repeats to the byte. The
//! order of reads does not matter, so columns may take turns.
//!
//! Readers in turn, each at its part of the file, make even distances as well, and go on in line:
//! each series begins where the one before ends. After a few such series they are the policy's, as
//! streams.
//!
//! Where places are round, chance makes even distances too: random reads of chunks of 1 MiB that
//! begin at multiples of 1 MiB. There the distance has to repeat once more.
//!
//! # Invariants
//! - At most as many reads past the farthest are prefetched as were read of the series.
//! - At most `RECENT_MAX` reads and `SERIES_MAX` series are kept; the oldest goes first.
//! # Sources
//! Two equal distances as evidence: Baer and Chen, "An effective on-chip preloading scheme to
//! reduce data access penalty" (1991). Ours: the places, and the guard against chance.

use alloc::collections::VecDeque;

/// See the module.
#[derive(Default)]
pub(super) struct StrideDetector {
    recent: VecDeque<Read>,
    series: VecDeque<Series>,
    /// Series that were found.
    pub(super) found: u64,
}

/// A read.
#[derive(Clone, Copy)]
struct Read {
    start: u64,
    bytes: u64,
    /// Reads that end where the next begins, up to this one.
    in_line: u32,
}

/// Reads at even distances.
struct Series {
    origin: u64,
    stride: u64,
    /// Of the longest of them.
    bytes: u64,
    /// Reads so far.
    count: u64,
    /// Where the farthest read begins, and the farthest prefetch.
    reached: u64,
    prefetched: u64,
    /// Series that end where the next begins, up to this one.
    in_line: u32,
}

impl StrideDetector {
    /// A read of `start..end`. Returns whether it is one of a series, with which
    /// [`StrideDetector::next`] goes on.
    pub(super) fn read(&mut self, start: u64, end: u64) -> bool {
        assert!(start < end, "{start}..{end} has bytes");
        let bytes = end - start;
        if bytes < READ_BYTES_MIN {
            return false;
        }
        let before = self.recent.iter().find(|read| read.start + read.bytes == start);
        let read = Read { start, bytes, in_line: before.map_or(0, |read| read.in_line) + 1 };
        let series = if read.in_line > IN_LINE_MAX { None } else { self.series_of(read) };
        keep(&mut self.recent, read, RECENT_MAX);
        let Some(mut series) = series else { return false };
        series.count += 1;
        series.bytes = series.bytes.max(bytes);
        series.reached = series.reached.max(start);
        series.prefetched = series.prefetched.max(start);
        let is_strided = series.in_line <= IN_LINE_MAX;
        keep(&mut self.series, series, SERIES_MAX);
        is_strided
    }

    /// The next range of the series that was read last, in a file of `file_bytes`, while no more
    /// than `most` are ahead. It counts as prefetched now.
    pub(super) fn next(&mut self, file_bytes: u64, most: u64) -> Option<(u64, u64)> {
        let series = self.series.back_mut()?;
        let last =
            series.reached.saturating_add(series.count.min(most).saturating_mul(series.stride));
        let start = series.prefetched.checked_add(series.stride)?;
        (start <= last && start < file_bytes).then(|| {
            series.prefetched = start;
            (start, start.saturating_add(series.bytes).min(file_bytes))
        })
    }

    /// Takes the series that `read` goes on with out, or makes a new one.
    fn series_of(&mut self, read: Read) -> Option<Series> {
        let Read { start, bytes, .. } = read;
        let goes_on = |series: &Series| series.has(start) && alike(series.bytes, bytes);
        if let Some(at) = self.series.iter().position(goes_on) {
            return self.series.remove(at);
        }
        let strides = self.recent.iter().filter_map(|other| read.start.checked_sub(other.start));
        let (stride, count) =
            strides.filter_map(|stride| Some((stride, self.evidence(read, stride)?))).min()?;
        let follows = |series: &&Series| {
            series.stride == stride && series.has(start.saturating_sub(series.bytes))
        };
        let in_line =
            self.series.iter().filter(follows).map(|series| series.in_line).max().unwrap_or(0) + 1;
        self.found += u64::from(in_line <= IN_LINE_MAX);
        let origin = start - count * stride;
        Some(Series { origin, stride, bytes, count, reached: start, prefetched: start, in_line })
    }

    /// How many reads lie before `read`, `stride` apart, if they are enough evidence.
    fn evidence(&self, read: Read, stride: u64) -> Option<u64> {
        if stride < read.bytes + GAP_BYTES_MIN {
            return None;
        }
        let was_read = |start: u64| {
            self.recent.iter().any(|other| other.start == start && alike(other.bytes, read.bytes))
        };
        let befores = (1..=EQUAL_STRIDES_ROUND).map_while(|count| {
            read.start.checked_sub(count * stride).filter(|&start| was_read(start))
        });
        let count = befores.count() as u64;
        let round = (read.start | stride).trailing_zeros() >= ROUND_BITS;
        let is_known = || self.series.iter().any(|series| series.stride == stride);
        let enough = match (round, count) {
            (true, _) => EQUAL_STRIDES_ROUND,
            (false, 1) if is_known() => 1,
            (false, _) => EQUAL_STRIDES,
        };
        (count >= enough).then_some(count)
    }
}

impl Series {
    /// Whether a read of it begins at `start`.
    fn has(&self, start: u64) -> bool {
        let after = start.checked_sub(self.origin);
        after.is_some_and(|after| after.is_multiple_of(self.stride))
    }
}

/// Whether two lengths may be those of one series.
fn alike(one: u64, other: u64) -> bool {
    one.min(other) * ALIKE >= one.max(other)
}

/// Appends `row`, and drops the first one where there are `most`.
fn keep<T>(rows: &mut VecDeque<T>, row: T, most: usize) {
    assert!(rows.len() <= most, "{} rows, {most} at most", rows.len());
    if rows.len() == most {
        rows.pop_front();
    }
    rows.push_back(row);
}

/// Smaller reads are the policy's: a window through the gaps may cost less.
const READ_BYTES_MIN: u64 = 256 << 10;
/// What lies closer is read in line, or nearly so.
const GAP_BYTES_MIN: u64 = 8 << 10;
/// More reads in line than this, or series, are streams, and the policy's: a few are chunks that
/// lie side by side.
const IN_LINE_MAX: u32 = 3;
/// The longest read of a series is at most so many times as long as another.
const ALIKE: u64 = 2;
/// Equal distances that are enough, and where places are round.
const EQUAL_STRIDES: u64 = 2;
const EQUAL_STRIDES_ROUND: u64 = 3;
/// Round: a multiple of 4 KiB. `RECENT_MAX` reads have half as many pairs as its square: of a
/// thousand places, chance hits one with every other read; of a thousand times 4096, hardly ever.
const ROUND_BITS: u32 = 12;
const RECENT_MAX: usize = 32;
const SERIES_MAX: usize = 64;

#[cfg(test)]
mod tests;
