//! What is known of the store behind the files of one host: by this process, and by those before.
//!
//! ```text
//!   record of earlier processes --+--> estimate --> settings of a file's planner, as it begins
//!   requests of all its files  ---+
//! ```
//! The requests of all files are one store's, so one estimator sees them: what is in flight for one
//! file delays another.
//!
//! # Invariants
//! - Every ticket comes back once, as arrived or as lost.

use crate::device::estimate::{Estimate, Ticket};
use crate::device::remembered::DeviceRecord;
use crate::planner::device::DeviceKnowledge;
use crate::units::{FileId, Nanos};

/// See the module.
#[derive(Debug)]
pub struct StoreKnowledge(DeviceKnowledge);

impl StoreKnowledge {
    /// A store of which earlier processes have left `record`.
    #[must_use]
    pub fn new(record: Option<DeviceRecord>) -> Self {
        Self(DeviceKnowledge::of_requests(record, REQUEST_BYTES_MAX))
    }

    /// A request for bytes `start..end` of `file` goes out.
    ///
    /// # Panics
    /// The range is empty.
    pub fn issued(&mut self, now: Nanos, file: FileId, start: u64, end: u64) -> Ticket {
        assert!(start < end, "{start}..{end} has bytes");
        self.0.issued(now, file, &(start..end))
    }

    /// The request of `ticket` has arrived, whole.
    pub fn arrived(&mut self, now: Nanos, ticket: Ticket) {
        self.0.arrived(now, ticket, now, now);
    }

    /// The request of `ticket` failed, or is waited for no longer.
    pub fn lost(&mut self, ticket: Ticket) {
        self.0.lost(ticket);
    }

    /// What the store can do, for [`RangesSettings::store`](super::RangesSettings).
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        self.0.estimate()
    }

    /// What is kept for the next process; `None` where too little was seen.
    #[must_use]
    pub fn record(&self) -> Option<DeviceRecord> {
        self.0.record()
    }
}

/// The estimator's measure of a large request: the largest of a cache with usual settings.
const REQUEST_BYTES_MAX: u32 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_store_teach_each_other_and_the_next_process() {
        let mut store = StoreKnowledge::new(None);
        assert_eq!(store.record(), None, "nothing was seen");
        for nth in 0..8 {
            let at = Nanos::from_millis(100 * nth);
            let file = FileId(u32::try_from(nth % 2).unwrap());
            let ticket = store.issued(at, file, nth << 30, (nth << 30) + 4096);
            store.arrived(at + Nanos::from_millis(40), ticket);
        }
        let record = store.record().expect("lone requests of two files show the latency");
        assert_eq!(record.estimate.profile.access, Nanos::from_millis(40));
        let next = StoreKnowledge::new(Some(record));
        assert_eq!(next.estimate().profile.access, Nanos::from_millis(40));
        assert!(next.estimate().known.access);
    }

    #[test]
    fn a_request_that_is_lost_leaves_nothing_in_flight() {
        let mut store = StoreKnowledge::new(None);
        let lost = store.issued(Nanos(0), FileId(0), 0, 4096);
        store.lost(lost);
        for nth in 1..8 {
            let at = Nanos::from_millis(100 * nth);
            let ticket = store.issued(at, FileId(0), nth << 30, (nth << 30) + 1);
            store.arrived(at + Nanos::from_millis(5), ticket);
        }
        assert!(store.record().is_some(), "the others are lone ones");
    }
}
