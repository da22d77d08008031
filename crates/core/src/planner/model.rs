//! The core's cache as a planner drives it: its frames are numbers, its fetches are collected.
//!
//! # Invariants
//! - A fetch is collected once, and stays until the planner takes it.

use alloc::vec::Vec;
use core::ops::Range;

use super::runs::PageRun;
use crate::cache::{Cache, Settings, SettingsError, Stats};
use crate::drive::{Driver, drive};
use crate::event::{Actions, Error, Event, FetchKind, Hit};
use crate::readahead::{Cause, Decision, StreamId};
use crate::units::{FileId, FrameId, HandleId, Nanos, PageId, PageIndex, RequestId};

/// See the module.
pub(super) struct Model {
    cache: Cache,
    actions: Actions,
    pub(super) effects: Effects,
}

/// What the core did in its last events.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) fetched: Vec<PageRun>,
    /// The last read has all of its pages.
    pub(super) is_done: bool,
    pub(super) streams: StreamCount,
}

/// Counts streams by the decisions that the core explains.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamCount {
    newest: u32,
    pub(super) count: u64,
}

impl StreamCount {
    /// A policy names its streams in ascending order.
    pub(super) fn explained(&mut self, decision: &Decision) {
        if let Some(StreamId(name)) = decision.stream
            && decision.cause != Cause::Random
            && name > self.newest
        {
            self.newest = name;
            self.count += 1;
        }
    }
}

impl Model {
    pub(super) fn new(settings: Settings) -> Result<Self, SettingsError> {
        let cache = Cache::new(settings)?;
        Ok(Self { cache, actions: Actions::new(), effects: Effects::default() })
    }

    pub(super) fn send(&mut self, now: Nanos, event: Event<'_>) {
        drive(&mut self.cache, now, event, &mut self.actions, &mut self.effects);
    }

    /// Pages of `file` were used without a read that the core sees: those that it has are hits.
    pub(super) fn used(&mut self, now: Nanos, file: FileId, mut pages: Range<PageIndex>) {
        while self.stats().ahead_unread > 0 && !pages.is_empty() {
            let hit = |index| self.cache.hit(PageId { file, index });
            let hits: Vec<Hit> = pages.by_ref().take(HITS_AT_ONCE).filter_map(hit).collect();
            self.send(now, Event::Hits { hits: &hits });
        }
    }

    pub(super) fn stats(&self) -> &Stats {
        self.cache.stats()
    }
}

/// Pages that are looked up before the core hears of them.
const HITS_AT_ONCE: usize = 256;

impl Driver for Effects {
    fn fetch(&mut self, _kind: FetchKind, page: PageId, frames: &[FrameId]) {
        assert!(!frames.is_empty(), "a fetch has pages");
        self.fetched.push(PageRun { first: page.index, frames: frames.to_vec() });
    }

    fn done(&mut self, _request: RequestId) {
        self.is_done = true;
    }

    fn fail(&mut self, _request: RequestId, _error: Error) {
        self.is_done = true;
    }

    fn explain(&mut self, _handle: HandleId, _page: PageIndex, decision: Decision, _fresh: u32) {
        self.streams.explained(&decision);
    }
}
