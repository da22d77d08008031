//! A drive's track buffer: what the disk read on by itself after a request, ready to be sent.
//!
//! ```text
//!   segment      start            end              limit
//!   ------------+################+................+-------> disk
//!                in the buffer    read on, as the platter turns
//! ```
//! One segment, the *active* one, grows behind the last request at the rate of the media until
//! it is half a segment past that request, or until the head must go elsewhere. Segments are
//! replaced in order of last use.
//!
//! A known fault, kept because the emulated drive of the kernel comparisons has it too: when a
//! hit restarts reading on that had stopped, the head needs up to a turn to come back, but a
//! request that follows at once is served as if it were there.
//!
//! # Invariants
//! - The active segment's `end <= limit`, and `end - start` is at most a segment after reading
//!   on.
//! - `media` is the moment at which `end` of the active segment was under the head.

use alloc::{vec, vec::Vec};

use super::fine::Fine;
use super::platter::Platter;

/// The segments and what the disk is reading into them.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    segments: Vec<Segment>,
    segment_bytes: u64,
    /// Bytes a second from the media.
    rate: u64,
    active: Option<usize>,
    limit: u64,
    media: Fine,
    clock: u64,
}

/// What a search for a request found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferHit {
    /// All of it is in the buffer.
    Whole,
    /// Its start is in the active segment; its rest passes under the head meanwhile.
    Under {
        /// When the first byte that is not yet in the buffer begins to pass.
        from: Fine,
        /// When the last has passed.
        done: Fine,
    },
    /// Its start is in a segment that no longer grows; the disk has to read from this byte.
    Start(u64),
    /// Nothing.
    Nothing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    start: u64,
    end: u64,
    /// When it was last used; 0 for never.
    used: u64,
}

impl Segment {
    fn holds(&self, byte: u64) -> bool {
        self.used > 0 && (self.start..=self.end).contains(&byte)
    }
}

impl Buffer {
    /// An empty buffer.
    pub(super) fn new(segments: u32, segment_bytes: u64, rate: u64) -> Self {
        assert!(segments > 0 && segment_bytes > 1);
        Self {
            segments: vec![Segment::default(); segments as usize],
            segment_bytes,
            rate,
            active: None,
            limit: 0,
            media: Fine::default(),
            clock: 0,
        }
    }

    /// Whether a request that begins at `offset` would find its first byte here.
    pub(super) fn holds(&self, offset: u64) -> bool {
        self.segments.iter().any(|segment| segment.holds(offset))
    }

    /// The disk has been reading on until `now`: the byte that the head has reached, if it did.
    pub(super) fn read_on(&mut self, now: Fine) -> Option<u64> {
        let segment = &mut self.segments[self.active?];
        assert!(segment.end <= self.limit, "read on to {} past {}", segment.end, self.limit);
        let room = self.limit - segment.end;
        let (elapsed, needed) = (now.since(self.media), Fine::of_bytes(room, self.rate));
        let coming = if elapsed < needed {
            let fresh = elapsed.bytes(self.rate);
            segment.end += fresh;
            self.media += Fine::of_bytes(fresh, self.rate);
            1
        } else {
            segment.end = self.limit;
            self.media += needed;
            0
        };
        // The byte that is passing under the head takes the place of the oldest.
        let oldest = (segment.end + coming).saturating_sub(self.segment_bytes);
        segment.start = segment.start.max(oldest);
        Some(segment.end)
    }

    /// Looks for `offset..end` at `now`, to which the disk has read on.
    pub(super) fn find(
        &mut self,
        now: Fine,
        offset: u64,
        end: u64,
        platter: &Platter,
    ) -> BufferHit {
        assert!(offset < end, "a request has bytes");
        let Some(index) = self.segments.iter().position(|segment| segment.holds(offset)) else {
            return BufferHit::Nothing;
        };
        self.clock += 1;
        let segment = &mut self.segments[index];
        segment.used = self.clock;
        let (held, active) = (segment.end, self.active == Some(index));
        let limit = end + self.segment_bytes / 2;
        if end <= held {
            if active && self.limit < limit {
                if self.limit <= held {
                    self.media = now + platter.rotation(now, held);
                }
                self.limit = limit;
            }
            return BufferHit::Whole;
        }
        if !active {
            return BufferHit::Start(held);
        }
        let from = if held < self.limit {
            // Not `now`: the head is somewhere within the next byte, and began it at `media`.
            now.min(self.media)
        } else {
            now + platter.rotation(now, held)
        };
        segment.end = end;
        self.media = from + Fine::of_bytes(end - held, self.rate);
        self.limit = limit;
        BufferHit::Under { from, done: self.media }
    }

    /// The head had to go elsewhere: `kept` is what it read there, if that stays in the buffer.
    /// It was done at `now`.
    pub(super) fn moved(&mut self, now: Fine, kept: Option<(u64, u64)>) {
        self.active = None;
        let Some((start, end)) = kept else { return };
        assert!(start <= end && end - start <= self.segment_bytes, "a segment holds what is kept");
        let oldest = (0..self.segments.len()).min_by_key(|&index| self.segments[index].used);
        let index = oldest.expect("a buffer has segments");
        self.clock += 1;
        self.segments[index] = Segment { start, end, used: self.clock };
        self.active = Some(index);
        self.limit = end + self.segment_bytes / 2;
        self.media = now;
    }
}
