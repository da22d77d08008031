//! Hits that readers recorded without a lock, and markers that they met.
//!
//! A reader that finds a page in the published index notes the frame and its generation. The
//! notes enter here in batches, so the policy sees the same uses, only later: the simulator sends
//! the same batches. A note whose frame was reused meanwhile has an older generation and is
//! skipped.
//!
//! A policy gets many uses at once, in their order, so that the cache lines which they touch
//! are fetched side by side. Partitions know nothing of each other: each gets its own.

use super::demand::Reader;
use super::{Cache, FrameId, Partition};
use crate::event::Hit;
use crate::readahead::StreamFeedback;
use crate::units::PageId;

/// Uses that a policy gets at once: what the buffer of a partition holds.
pub(super) const USES_MAX: usize = 64;

impl Cache {
    /// The hit of a reader without a lock that finds `page` now, if it is resident.
    #[must_use]
    pub fn hit(&self, page: PageId) -> Option<Hit> {
        let frame = self.resident(page)?;
        Some(Hit { frame, generation: self.frames.generation(frame) })
    }

    pub(super) fn hits(&mut self, hits: &[Hit]) {
        for hits in hits.chunks(USES_MAX) {
            let mut stale = 0;
            for &hit in hits {
                let Some(found) = self.frames.found(hit) else {
                    stale += 1;
                    continue;
                };
                if found.unread {
                    self.first_use(hit.frame);
                }
                if found.sampled {
                    self.sample_hit(found.partition, self.frames[hit.frame].page);
                }
                self.partitions[found.partition as usize].uses.push(hit.frame);
            }
            let current = hits.len() as u64 - stale;
            self.stats.stale_hits += stale;
            self.stats.demanded += current;
            self.stats.hits += current;
            for Partition { policy, uses, counts, .. } in &mut self.partitions {
                counts.hits += uses.len() as u64;
                policy.renew_all(uses);
                uses.clear();
            }
        }
    }

    /// The use itself comes with the batch; here only the readahead is triggered.
    pub(super) fn marker(&mut self, hit: Hit, reader: &Reader) {
        if self.frames.found(hit).is_some() && self.frames[hit.frame].marker {
            let page = self.frames[hit.frame].page;
            self.met_marker(page, hit.frame, reader, 0);
        }
    }

    /// Records a use of the page in `frame`.
    pub(super) fn used(&mut self, frame: FrameId) {
        self.first_use(frame);
        let row = &self.frames[frame];
        if row.resident() {
            self.partitions[row.partition as usize].policy.renew(frame);
        }
    }

    /// Records the first use of a prefetched page, resident or in flight.
    pub(super) fn first_use(&mut self, frame: FrameId) {
        if self.frames.first_use(frame) {
            assert!(self.stats.ahead_unread > 0, "{frame:?} is one of the unread");
            self.stats.ahead_unread -= 1;
            self.stats.ahead_used += 1;
            let row = &self.frames[frame];
            let (window, late) = (row.window, !row.resident());
            if let Some(stream) = row.stream {
                let feedback = StreamFeedback::Used { late };
                self.readahead.note(row.partition, stream, row.page.index, feedback);
            }
            self.count_outcome(window, |outcomes| {
                *(if late { &mut outcomes.late } else { &mut outcomes.used }) += 1;
            });
        }
    }
}
