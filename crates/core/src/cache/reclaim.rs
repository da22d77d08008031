//! Reclaim: a window gets frames, and the far end of what another stream has ahead leaves.
//!
//! ```text
//!   read      marker          frontier          read    marker
//!   ...|=========#==================|    -->    ...|=======#|- - - free - - -
//!                            range
//! ```
//! The policy names the pages. What leaves is resident, unread and without a waiter; from the
//! far end on, up to the first page of which that is not true. A marker that would go with them
//! moves to the last page that stays.
//!
//! # Invariants
//! - A stream whose unread pages do not all leave keeps its marker, on one of them; one of pieces
//!   may lose it where its pages end at a gap.
//! - A window asks a bounded number of times.
//! # Sources
//! `docs/decisions/0011-reclaim.md`.

use super::{Cache, FrameId, NIL, PageId};
use crate::readahead::{Demand, ReclaimRange, StreamFeedback, StreamId};

impl Cache {
    /// Reclaims pages for what the policy of `partition` wants at `demand`, as far as it names some
    /// that may go.
    pub(super) fn make_room(&mut self, partition: u32, demand: &mut Demand) {
        let mut in_vain = 0;
        for _ in 0..PASSES_MAX {
            let Some(range) = self.readahead.of_mut(partition).reclaim(demand) else { return };
            self.reclaim(partition, range);
            let before = core::mem::replace(&mut demand.ahead_room, self.ahead_room());
            in_vain += u32::from(demand.ahead_room <= before);
            if in_vain == IN_VAIN_MAX {
                return;
            }
        }
    }

    fn reclaim(&mut self, partition: u32, range: ReclaimRange) {
        let mut leaving = core::mem::take(&mut self.taken);
        leaving.clear();
        let mut stays = None;
        for nth in 0..=u64::from(range.count) {
            let Some(index) = range.page(nth) else { break };
            let Some(frame) = self.frames.find(PageId { file: range.file, index }) else {
                continue;
            };
            let own = self.readahead.shared(self.frames[frame].partition, partition);
            if own && nth < u64::from(range.count) && self.may_go(frame, range.stream) {
                leaving.push(frame);
            } else {
                stays = Some(frame).filter(|&frame| own && self.frames[frame].prefetched);
                break;
            }
        }
        let marked = leaving.iter().find(|&&frame| self.frames[frame].marker).copied();
        if let Some((marked, stays)) = marked.zip(stays) {
            self.frames[marked].marker = false;
            let page = self.frames[stays].page;
            self.readahead.note(partition, range.stream, page.index, StreamFeedback::Marked);
            self.place_marker(partition, page, range.stream, page.index);
        }
        for &frame in &leaving {
            self.retract_unread(frame);
        }
        self.taken = leaving;
    }

    /// Whether the page in `frame` is one that `stream` has ahead, and can leave.
    fn may_go(&self, frame: FrameId, stream: StreamId) -> bool {
        let row = &self.frames[frame];
        let ahead = row.prefetched && row.stream == Some(stream) && row.waiters == NIL;
        ahead && row.evictable(self.round)
    }
}

/// How many streams give for one window.
const PASSES_MAX: u32 = 64;
/// How often a window may ask for pages of which none can go.
const IN_VAIN_MAX: u32 = 8;
