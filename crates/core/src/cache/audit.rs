//! What is counted beside the frames and requests, counted anew: for tests.
//!
//! # Invariants
//! - Nothing is changed, and nothing that decides asks for it: it takes a time that grows with the
//!   cache.

use alloc::collections::{BTreeMap, BTreeSet};

use super::{Cache, File, FileId, State};

impl Cache {
    /// Compares counts that are kept with what they count.
    ///
    /// # Panics
    /// A count is another, a row of a request is lost or free twice, a file that has something
    /// to write is not among those that are looked through for it, or a page is found in another
    /// frame than its own.
    pub fn audit(&self) {
        let mut unwritten = BTreeMap::<FileId, [u32; 3]>::new();
        for (_, frame) in self.frames.iter().filter(|(_, frame)| !frame.doomed) {
            let at = match frame.state {
                State::Dirty => 0,
                State::Writing => 1,
                State::Unsynced => 2,
                State::Free
                | State::Claimed
                | State::InFlight
                | State::Filling
                | State::Clean
                | State::Lingering => continue,
            };
            unwritten.entry(frame.page.file).or_default()[at] += 1;
        }
        let pages = |at: usize| unwritten.values().map(|counts| counts[at]).sum::<u32>();
        assert_eq!(self.dirty_unwritten, pages(0), "dirty pages");
        assert_eq!(self.unsynced, pages(2), "unsynced pages");
        assert_eq!(self.dirty_pages, pages(0) + pages(1) + pages(2), "pages that are not durable");
        for (nth, partition) in (0_u32..).zip(&self.partitions) {
            let is_dirty = |state| matches!(state, State::Dirty | State::Writing | State::Unsynced);
            let own = self.frames.iter().filter(|(_, row)| row.partition == nth && !row.doomed);
            let dirty = own.filter(|(_, row)| is_dirty(row.state)).count();
            assert_eq!(partition.dirty as usize, dirty, "pages of {nth} that are not durable");
            let of_files = self.files.values().map(|file| file.writes.in_partition(nth));
            assert_eq!(of_files.sum::<u32>(), partition.dirty, "the same by files");
        }
        let queued = |at: usize| -> usize {
            self.files.values().map(|file| file.writes.waiting()[at]).sum()
        };
        assert_eq!(self.promised as usize, queued(0), "promised pages");
        assert_eq!(self.throttled as usize, queued(1), "throttled writes and changes");
        assert_eq!(self.flushing as usize, queued(2), "flushes");
        for (file, File { writes, .. }) in &self.files {
            let [dirty, writing, unsynced] = unwritten.get(file).copied().unwrap_or_default();
            assert_eq!(writes.counts(), [dirty, writing, unsynced], "{file:?}");
            // What is cut while its sync runs stays listed until that ends.
            let (is_listed, has_any) = (self.dirty_files.contains(file), writes.has_any());
            assert!(is_listed || !has_any, "{file:?} has something to write, and is not listed");
            assert!(!is_listed || has_any || writes.is_syncing(), "{file:?} is listed for nothing");
        }
        self.audit_pages();
        self.audit_rows();
    }

    /// Each page is mapped to the one frame whose row has it for its own.
    fn audit_pages(&self) {
        let mut mapped = 0;
        for (frame, row) in self.frames.iter() {
            let is_free = matches!(row.state, State::Free | State::Lingering);
            let is_found = self.frames.find(row.page) == Some(frame);
            assert_eq!(is_found, !is_free && !row.doomed, "{frame:?}: {row:?}");
            mapped += u32::from(is_found);
        }
        assert_eq!(self.frames.mapped(), mapped, "pages that are mapped");
    }

    /// The rows of requests are in use, or free once, and know what points to them.
    fn audit_rows(&self) {
        let mut nodes = BTreeMap::<u32, u32>::new();
        let mut point = |row: u32| *nodes.entry(row).or_default() += 1;
        for (_, frame) in self.frames.iter() {
            let mut at = frame.waiters;
            while let Some(waiter) = self.waiters.get(at as usize) {
                point(waiter.row);
                at = waiter.next;
            }
        }
        self.starved.iter().for_each(|page| point(page.row));
        let free: BTreeSet<u32> = self.rows_free.iter().copied().collect();
        assert_eq!(free.len(), self.rows_free.len(), "a row is free once");
        for (at, row) in (0..).zip(&self.rows) {
            let is_used = row.nodes > 0 || row.remaining > 0 && !row.failed;
            assert_eq!(is_used, !free.contains(&at), "{row:?}");
            assert_eq!(row.nodes, nodes.get(&at).copied().unwrap_or(0), "{row:?}");
        }
    }
}
