//! Requests that wait for a frame: all that their partition has are held.
//!
//! ```text
//!   no frame to be had --> starved, oldest first --a frame came free--> claimed, fetched, joined
//!                                               \--waited for too long--> NoFrames
//! ```
//! # Invariants
//! - A page is starved once a waiter; its row counts it among what the request still lacks.
//! - A page that loses its frame again takes its place by when its request began to wait.
//! - A request waits no longer than [`super::Settings::wait_max`].

use core::ops::Range;

use super::inflight::{Node, Waiter, Walk};
use super::{Cache, FileId, FrameId, NIL, PageId};
use crate::event::Error;
use crate::units::{Nanos, PageIndex};

/// A page for which no frame was to be had.
#[derive(Clone, Copy, Debug)]
pub(super) struct StarvedPage {
    pub(super) row: u32,
    page: PageId,
    node: Node,
    /// It is to be written whole: there is nothing to fetch.
    fresh: bool,
    pub(super) since: Nanos,
}

impl Cache {
    /// Has the request of `walk` wait until a frame for `page` comes free.
    pub(super) fn starve(&mut self, page: PageId, walk: &mut Walk, node: Node, fresh: bool) {
        let row = self.row(walk);
        self.rows[row as usize].remaining += 1;
        self.rows[row as usize].nodes += 1;
        let since = *self.rows[row as usize].starved.get_or_insert(self.now);
        self.starved.push_back(StarvedPage { row, page, node, fresh, since });
    }

    /// Has a page wait for a frame in its place among the others, unless it did for too long.
    fn starve_again(&mut self, starved: StarvedPage) {
        if self.now.since(starved.since) >= self.settings.wait_max {
            return self.give_up(starved);
        }
        let at = self.starved.partition_point(|other| other.since <= starved.since);
        self.starved.insert(at, starved);
    }

    /// Fails the reads that wait for frames for these pages: what they were served is older.
    pub(super) fn fail_starved_reads(&mut self, file: FileId, pages: Range<PageIndex>) {
        for at in 0..self.starved.len() {
            let StarvedPage { row, page, node, .. } = self.starved[at];
            if node == Node::Read && page.file == file && pages.contains(&page.index) {
                self.fail_row(row, Error::Changed { page: page.index });
            }
        }
    }

    /// No frame came free in time.
    fn give_up(&mut self, starved: StarvedPage) {
        let StarvedPage { row, page, node, .. } = starved;
        if node == Node::Fill {
            self.keep_promise(page.file);
        }
        let place = self.place(self.rows[row as usize].handle, page.index);
        let capacity = self.partitions[place.partition as usize].capacity;
        self.fail_row(row, Error::NoFrames { capacity });
        self.leave(row);
    }

    /// Has those that wait for the bytes of `frame`, which get none, wait for another frame.
    pub(super) fn starve_waiters(&mut self, frame: FrameId) {
        let (at, page) = (self.first_waiter(frame), self.frames[frame].page);
        self.starve_all(at, page, false);
    }

    /// Has the waiters from `at` on, of `page`, wait for a frame; `fresh`: the first one writes the
    /// whole page.
    pub(super) fn starve_all(&mut self, mut at: u32, page: PageId, mut fresh: bool) {
        while at != NIL {
            let Waiter { row: waiting, next, node } = self.waiters[at as usize];
            self.waiters_free.push(at);
            let since = *self.rows[waiting as usize].starved.get_or_insert(self.now);
            let starved = StarvedPage { row: waiting, page, node, fresh, since };
            self.starve_again(starved);
            fresh = false; // Only the write that claimed the frame writes all of it.
            at = next;
        }
    }

    /// Tries again to find frames for the requests that wait for one, oldest first.
    pub(super) fn feed_starved(&mut self) {
        for _ in 0..self.starved.len() {
            let starved = self.starved.pop_front().expect("counted");
            let StarvedPage { row, page, node, fresh, since } = starved;
            let fill = node == Node::Fill;
            if self.rows[row as usize].failed {
                if fill {
                    self.keep_promise(page.file);
                    self.forget_idle_file(page.file);
                }
                self.leave(row);
                continue;
            }
            let file_pages = self.file(page.file).pages;
            if page.index >= file_pages {
                if fill {
                    self.keep_promise(page.file);
                }
                let error = Error::PastEnd { page: page.index, file_pages };
                self.fail_row(row, error);
                self.leave(row);
                continue;
            }
            if self.frames.find(page).is_none() {
                let place = self.place(self.rows[row as usize].handle, page.index);
                self.fetch_alone(place.partition, page, fresh);
            }
            if let Some(frame) = self.frames.find(page) {
                self.first_use(frame);
                self.join(frame, row, node);
                if self.frames[frame].resident() {
                    self.wake(frame);
                }
            } else if self.now.since(since) >= self.settings.wait_max {
                self.give_up(starved);
            } else {
                self.starved.push_back(starved);
            }
        }
    }
}
