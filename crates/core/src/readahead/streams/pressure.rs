//! Pressure: more is ahead than memory has; which stream gives some back.
//!
//! ```text
//!   record     ahead   its part    lasts         a window is wanted that lasts 9,000
//!   a          40      1 of 200    8,000
//!   b          40      1 of 900    36,000        <- the richest: it keeps what lasts as long
//!   c          12      1 of 100    1,200
//! ```
//! Where a window has no room, a few records are looked at. The richest is the one whose pages
//! last longest at its pace: one that was opened when there were few streams, a slow one with the
//! window of a fast one, one whose reader has stopped. It gives the end that it will need last, and
//! not more than makes both last equally long. Pages that left unread where the stream would have
//! used them soon mean that windows are too large as a whole: then all halve.
//!
//! # Invariants
//! - A stream gives only what lasts longer than the window for which it gives.
//! - Nothing is taken for a lone read.

use super::pace::Part;
use super::records::SAMPLE;
use super::{Direction, OPENING_MIN, Stream, Streams, pages_u32, window};
use crate::readahead::{Demand, ReclaimRange, StreamId, Trigger};

/// Whether memory is too small for the windows: pages of the last stretch that were fetched, and
/// that left unread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pressure {
    fetched: u64,
    pub(super) wasted: u64,
    /// Windows are halved so many times.
    pub(super) halvings: u32,
}

impl Pressure {
    pub(super) fn fetched(&mut self, fresh: u32, ahead_pages_max: u32) {
        self.fetched += u64::from(fresh);
        if self.fetched < u64::from(ahead_pages_max / 2).max(1) {
            return;
        }
        if self.wasted * 8 > self.fetched {
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
        } else if self.wasted * 64 < self.fetched {
            self.halvings = self.halvings.saturating_sub(1);
        }
        (self.fetched, self.wasted) = (0, 0);
    }
}

/// A window that has not the room it wants.
#[derive(Clone, Copy)]
pub(super) struct Shortage {
    stream: Option<StreamId>,
    /// Pages that are missing.
    short: u32,
    /// Pages that all streams will use before this one has used what it has ahead.
    lasts: u128,
}

impl Streams {
    /// What the window of `demand` lacks, if it lacks anything.
    pub(super) fn wanted(&self, demand: &Demand) -> Option<Shortage> {
        let (stream, size, lasts) = match demand.trigger {
            Trigger::Request => return None,
            Trigger::Marker => {
                let id = demand.stream?;
                let stream = self.live.get(id).filter(|stream| stream.marker == demand.first)?;
                let size = self.next_size(demand, stream);
                (Some(id), size, self.lasts(stream, stream.ahead() + u64::from(size)))
            }
            Trigger::Miss => {
                let begins = demand.first == 0 || demand.cached_before > 0;
                let previous = window::previous_page(demand, self.page_bytes);
                let follows = window::follows(demand.first, previous);
                if !begins && !follows && !demand.follows_cached {
                    return None;
                }
                // What is not yet known to go on is not worth much of what others have.
                let share = self.share(demand, Part::default());
                let size = self.opening(demand).min(share).min(OPENING_MIN);
                (demand.stream, size, u128::from(size) * u128::from(self.count()))
            }
        };
        let short = size.checked_sub(demand.ahead_room).filter(|&short| short > 0)?;
        Some(Shortage { stream, short, lasts })
    }

    /// How many pages all streams use while `stream` uses `pages`, at its pace so far.
    fn lasts(&self, stream: &Stream, pages: u64) -> u128 {
        let Part { own, total } = stream.pace.until(self.uses, stream.reached);
        u128::from(pages) * u128::from(total + self.count()) / u128::from(own + 1)
    }

    /// Whether a stream would have used what it has ahead while all of the budget is used twice.
    pub(super) fn would_use(&self, id: StreamId) -> bool {
        let soon = 2 * u128::from(self.bounds.ahead_pages_max);
        self.live.get(id).is_some_and(|stream| self.lasts(stream, stream.ahead()) <= soon)
    }

    /// Of a few streams, the one that has most ahead in terms of time: what it has more than the
    /// one that wants.
    pub(super) fn richest(&mut self, wanted: Shortage) -> Option<ReclaimRange> {
        let mut sampled = [None; SAMPLE];
        for (slot, (id, stream)) in sampled.iter_mut().zip(self.live.sample()) {
            *slot = Some((id, *stream));
        }
        let rich = sampled.into_iter().flatten().filter(|at| Some(at.0) != wanted.stream);
        let rich = rich.map(|(id, stream)| (self.lasts(&stream, stream.ahead()), id, stream));
        let (lasts, stream, row) = rich.max_by_key(|at| at.0)?;
        let ahead = row.ahead();
        let kept = u128::from(ahead) * wanted.lasts / lasts.max(1);
        let kept = u64::try_from(kept).unwrap_or(u64::MAX);
        let count = pages_u32(ahead.checked_sub(kept)?).min(wanted.short);
        let backward = row.direction == Direction::Backward;
        let first = if backward { row.frontier } else { row.frontier - u64::from(count) };
        (count > 0).then_some(ReclaimRange { stream, file: row.file, first, count, backward })
    }
}

/// Under the worst pressure a window is this many times halved.
const HALVINGS_MAX: u32 = 6;
