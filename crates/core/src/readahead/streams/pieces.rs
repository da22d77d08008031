//! Windows of a strided stream: a batch of pieces, or one window that runs through the gaps.
//!
//! ```text
//!            read      marker                   frontier
//!   pieces   |==|......|=#|......|==|......|==|......| next
//!   through  |============#===================|......| next      gaps are discarded
//! ```
//! The marker lies on the first page of a piece, as its reader comes to no other page. So the
//! record lives as that of any stream does. A batch is `GROWTH` times as long as what was seen of
//! the stride, up to what the device can use and memory has.
//!
//! # Invariants
//! - No page outside the file, and none before the stream's frontier.
//! - A batch has one marker, in one of its windows.

use super::strides::{Runs, Stride, Way};
use super::{Cause, Decision, Demand, GROWTH, Stream, Streams, Trigger, Window, pages_u32, window};
use crate::device::DeviceKind;
use crate::readahead::{BANDWIDTH_DELAY_PRODUCTS, StreamId};
use crate::units::{FileId, PageIndex};

/// Pieces that are still to be fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    id: StreamId,
    stride: Stride,
    /// The start of the next piece.
    next: PageIndex,
    left: u64,
}

impl Streams {
    /// Where a miss lies in the runs of its reader, with it.
    pub(super) fn follow(&mut self, demand: &Demand) -> Runs {
        let (first, count) = (demand.first, demand.count);
        let previous = window::previous_page(demand, self.page_bytes);
        let Self { files, live, streak, .. } = self;
        let file = files.entry(demand.file).or_default();
        let recent = &mut file.recent;
        let Some(before) = recent.before(first) else {
            let runs = Runs::new(first, count);
            recent.add(runs, None);
            return runs;
        };
        let stream = before.stream.and_then(|id| live.get(id));
        let mut runs = stream.map_or(before.runs, |stream| stream.runs);
        let start = runs.start;
        runs.touch(first, count);
        if runs.start == start || runs.stride(u64::MAX).is_some() {
            recent.renew(before, runs, before.stream);
        } else {
            // It may be another reader: the run before stays.
            recent.add(runs, None);
        }
        let left = |run: &Runs| previous == Some(run.end().wrapping_sub(1));
        let alone = |id, run: &Runs| streak.covers(id, run.pages());
        if let Some((id, run)) = streak.stream().and_then(|id| Some((id, live.get(id)?.runs)))
            && runs.start == first
            && left(&run)
            && alone(id, &run)
        {
            file.ends.ended(run.pages());
        }
        runs
    }

    /// The stream `id` goes on from `runs`, in which the last miss was.
    pub(super) fn belongs(&mut self, file: FileId, runs: Runs, id: StreamId) {
        let recent = &mut self.files.entry(file).or_default().recent;
        if let Some(before) = recent.before(runs.start) {
            recent.renew(before, runs, Some(id));
        }
    }

    /// The window for a miss in a stride, in place of the stream that came there.
    pub(super) fn resumed(&mut self, demand: &Demand, runs: Runs) -> Option<Decision> {
        // Beside cached pages there is no gap, but for those that a stream has brought in vain.
        let own = demand.stream.and_then(|id| self.live.get(id));
        let passes = |stream: &Stream| {
            let stride = stream.runs.stride(demand.all_pages);
            stride.is_some_and(|stride| self.way(demand, stride) == Way::Pieces)
        };
        let lone = demand.cached_before == 0 && !demand.follows_cached;
        let lone = lone || (self.through_max < u32::MAX && own.is_some_and(passes));
        let stride = runs.stride(demand.all_pages).filter(|stride| {
            lone && stride.holds(demand.first) && stride.piece <= u64::from(self.window_max)
        })?;
        let recent = &self.files.get(&demand.file)?.recent;
        let old = recent.before(runs.start).and_then(|before| before.stream);
        let stream = self.unknown(demand, runs);
        let id = self.name();
        let decision = self.strided(demand, id, stream, stride)?;
        if let Some(old) = old {
            self.live.remove(old);
        }
        Some(decision)
    }

    /// The next windows of a strided stream: the first of them, if the file has any.
    pub(super) fn strided(
        &mut self,
        demand: &Demand,
        id: StreamId,
        mut stream: Stream,
        stride: Stride,
    ) -> Option<Decision> {
        let waits = demand.trigger == Trigger::Miss;
        let end = demand.first + u64::from(demand.count);
        let from = if waits { demand.first } else { stride.piece_from(stream.frontier) };
        let first = stride.piece_at(from);
        let way = self.way(demand, stride);
        let Some(ahead) = self.pieces_ahead(demand, &stream, stride, way) else {
            return if waits { None } else { self.later(demand, id, stream, stride) };
        };
        let inside = demand.file_pages.saturating_sub(first).div_ceil(stride.step);
        // A piece that a reader waits for is not ahead.
        let most = match way {
            Way::Pieces => u64::MAX,
            Way::Through => u64::from(self.window_max) / stride.step,
        };
        let pieces = (ahead + u64::from(waits)).min(inside).min(most);
        let last = first + pieces.saturating_sub(1) * stride.step;
        if pieces <= u64::from(waits) {
            return None;
        }
        let ahead = match way {
            Way::Pieces => pieces / 2,
            Way::Through => {
                let window = pages_u32(pieces * stride.step);
                u64::from(self.async_size(demand, window)).div_ceil(stride.step)
            }
        };
        let ahead = ahead.clamp(1, pieces - u64::from(waits));
        stream.marker = last - (ahead - 1) * stride.step;
        stream.frontier = last + stride.piece;
        stream.size = pages_u32(match way {
            Way::Pieces => stride.piece,
            Way::Through => pieces * stride.step,
        });
        stream.stride = Some(stride);
        self.live.insert(id, stream);
        self.belongs_moved(stream.file, id, stream.runs, waits);
        let until = match way {
            Way::Pieces => first + stride.piece,
            Way::Through => last + stride.piece,
        };
        let until = if waits { until.max(end) } else { until }.min(demand.file_pages);
        let start = from.max(first);
        let window = Window { start, size: pages_u32(until - start), async_size: 0 };
        self.batch = match way {
            Way::Pieces => Some(Batch { id, stride, next: first + stride.step, left: pieces - 1 }),
            Way::Through => None,
        };
        let cause = if waits { Cause::Sync } else { Cause::Async };
        Some(Decision { cause, window, stream: Some(id) })
    }

    /// How the pieces of `stride` are fetched.
    fn way(&self, demand: &Demand, stride: Stride) -> Way {
        if stride.step - stride.piece > u64::from(self.through_max) {
            return Way::Pieces;
        }
        stride.way(demand.device, self.pages_per_second(demand))
    }

    /// The next piece of the batch.
    pub(super) fn next_piece(&mut self, file_pages: u64) -> Option<Decision> {
        // Where the marker found no room, no reader would trigger what comes after the rest.
        let Self { batch, live, .. } = self;
        let goes_on = |batch: &&mut Batch| batch.left > 0 && live.get(batch.id).is_some();
        let Some(batch) = batch.as_mut().filter(goes_on) else {
            self.batch = None;
            return None;
        };
        let (start, end) = (batch.next, (batch.next + batch.stride.piece).min(file_pages));
        batch.next += batch.stride.step;
        batch.left -= 1;
        let id = batch.id;
        if batch.left == 0 {
            self.batch = None;
        }
        let window = Window { start, size: pages_u32(end.saturating_sub(start)), async_size: 0 };
        (window.size > 0).then_some(Decision { cause: Cause::Async, window, stream: Some(id) })
    }

    fn belongs_moved(&mut self, file: FileId, id: StreamId, runs: Runs, waits: bool) {
        if waits {
            return self.belongs(file, runs, id);
        }
        if let Some(row) = self.files.get_mut(&file) {
            row.recent.moved(id, runs);
        }
    }

    /// Pieces that are fetched at once, before they are needed.
    fn pieces_ahead(
        &self,
        demand: &Demand,
        stream: &Stream,
        stride: Stride,
        way: Way,
    ) -> Option<u64> {
        let part = stream.pace.until(self.uses, demand.first);
        // Of a piece that a reader waits for, it may have demanded some only.
        let rest = match demand.trigger {
            Trigger::Miss => stride.piece.saturating_sub(demand.count.into()),
            Trigger::Marker | Trigger::Request => 0,
        };
        let room = u64::from(demand.ahead_room).saturating_sub(rest);
        let room = room.min(self.share(demand, part).into());
        let seen = match way {
            Way::Through => u64::MAX,
            Way::Pieces => u64::from(stride.seen).saturating_mul(GROWTH.into()),
        };
        let (wanted, each) = match way {
            Way::Through => (u64::from(self.next_size(demand, stream)) / stride.step, stride.step),
            Way::Pieces => (self.pieces_in_flight(demand, stride), stride.piece),
        };
        Some(wanted.max(1).min(room / each).min(seen)).filter(|&pieces| pieces > 0)
    }

    /// There is no room: the marker moves on to the next piece that is there.
    fn later(
        &mut self,
        demand: &Demand,
        id: StreamId,
        mut stream: Stream,
        stride: Stride,
    ) -> Option<Decision> {
        stream.marker = stride.piece_at(demand.first) + stride.step;
        let window = Window { start: stream.marker, size: 1, async_size: 1 };
        let there = stream.marker < stream.frontier.min(demand.file_pages);
        there.then(|| {
            self.live.insert(id, stream);
            Decision { cause: Cause::Async, window, stream: Some(id) }
        })
    }

    /// Pieces that keep the device busy, each by itself.
    fn pieces_in_flight(&self, demand: &Demand, stride: Stride) -> u64 {
        let product = self.bandwidth_delay_pages(demand).saturating_mul(BANDWIDTH_DELAY_PRODUCTS);
        // Between short batches a device is idle: a disk may lose a turn each time.
        let least = u64::from(self.bounds.request_pages_max);
        let pieces = (product / self.count()).max(least).div_ceil(stride.piece);
        match demand.device.kind {
            DeviceKind::SeekBound => pieces.min(SEEK_BOUND_PIECES),
            DeviceKind::Parallel => pieces.min(PARALLEL_PIECES.div_ceil(self.count())),
        }
        .max(2)
    }
}

/// Pieces in flight at a seek-bound device. A disk that has more of them takes them out of order,
/// and then the first one is late.
const SEEK_BOUND_PIECES: u64 = 4;
/// Pieces in flight at a parallel device, over all streams.
const PARALLEL_PIECES: u64 = 256;
