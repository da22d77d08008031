//! Hits that readers noted without a lock, and markers that they met.
//!
//! A reader that finds a page in the published index notes the frame and its generation. The
//! notes enter here in batches, so the policy sees the same uses, only later: the simulator sends
//! the same batches. A note whose frame was reused meanwhile has an older generation and is
//! skipped.

use super::demand::Reader;
use super::{Cache, FrameId};
use crate::event::{Actions, Hit};

impl Cache {
    pub(super) fn hits(&mut self, hits: &[Hit]) {
        for &hit in hits {
            if self.current(hit) {
                self.stats.demanded += 1;
                self.stats.hits += 1;
                self.used(hit.frame);
            } else {
                self.stats.stale_hits += 1;
            }
        }
    }

    /// The use itself comes with the batch; here only the readahead is triggered.
    pub(super) fn marker(&mut self, hit: Hit, reader: &Reader, actions: &mut Actions) {
        if self.current(hit) && self.frames[hit.frame].marker {
            let page = self.frames[hit.frame].page;
            self.met_marker(page, hit.frame, reader, 0, actions);
        }
    }

    fn current(&self, hit: Hit) -> bool {
        let frame = &self.frames[hit.frame];
        frame.published && frame.generation == hit.generation
    }

    /// Somebody asked for the page in `frame`.
    pub(super) fn used(&mut self, frame: FrameId) {
        self.claimed_by_reader(frame);
        let row = &self.frames[frame];
        if row.resident() {
            self.partitions[row.partition as usize].policy.renew(frame);
        }
    }

    /// A page that was read ahead is asked for, resident or not.
    pub(super) fn claimed_by_reader(&mut self, frame: FrameId) {
        let row = &mut self.frames[frame];
        if row.prefetched {
            row.prefetched = false;
            self.stats.ahead_unread -= 1;
            self.stats.ahead_used += 1;
        }
    }
}
