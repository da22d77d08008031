//! A sink that prefetches, and learns what is used.
//!
//! ```text
//!   observers --> sink --> prefetcher     streams and walks
//!                   `----> learner        lists
//! ```
//! # Invariants
//! - The prefetcher gets every report as it came; the learner decides nothing for it.

use std::fs::File;
use std::ops::Range;

use forerun_core::units::Nanos;

use crate::kernel::Stat;
use crate::learn::Learner;
use crate::observe::access::{AccessSink, CursorId, EntryAccess};
use crate::open::{Refusal, path_of};
use crate::prefetch::Prefetcher;

/// See the module.
pub(super) struct LearningSink<'a> {
    pub(super) prefetcher: &'a mut Prefetcher,
    pub(super) learner: &'a mut Learner,
}

impl AccessSink for LearningSink<'_> {
    fn process(&mut self, pid: i32, processor: Option<Nanos>) {
        self.learner.process(pid);
        self.prefetcher.process(pid, processor);
    }

    fn open(&mut self, now: Nanos, file: File, stat: &Stat, position: u64) -> Option<CursorId> {
        let path = path_of(&file);
        let cursor = self.prefetcher.open(now, file, stat, position)?;
        if let Some(path) = path {
            let file = (self.prefetcher.file_id(cursor), self.prefetcher.file(cursor));
            self.learner.opened(now, cursor, path, stat, file);
        }
        Some(cursor)
    }

    fn open_again(&mut self, cursor: CursorId, position: u64) -> Option<CursorId> {
        let again = self.prefetcher.open_again(cursor, position)?;
        self.learner.opened_again(cursor, again);
        Some(again)
    }

    fn mapped(&mut self, cursor: CursorId) {
        self.prefetcher.mapped(cursor);
    }

    fn file(&self, cursor: CursorId) -> Option<&File> {
        self.prefetcher.file(cursor)
    }

    fn seek(&mut self, now: Nanos, cursor: CursorId, position: u64) {
        self.prefetcher.seek(now, cursor, position);
    }

    fn read(&mut self, now: Nanos, cursor: CursorId, range: &Range<u64>, follows: bool) {
        self.learner.read(cursor, range);
        self.prefetcher.read(now, cursor, range, follows);
    }

    fn read_once(&mut self, now: Nanos, cursor: CursorId, range: &Range<u64>) {
        self.learner.read(cursor, range);
        self.prefetcher.read_once(now, cursor, range);
    }

    fn refused(&mut self, why: Refusal) {
        self.prefetcher.refused(why);
    }

    fn close(&mut self, now: Nanos, cursor: CursorId) {
        self.learner.closed(cursor);
        self.prefetcher.close(now, cursor);
    }

    fn entry(&mut self, now: Nanos, access: &EntryAccess<'_>) {
        self.learner.entry(now, access);
        self.prefetcher.entry(now, access);
    }
}
