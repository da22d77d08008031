//! What is pending is asked for, as far as the pace allows, and the core is told what has come.
//!
//! ```text
//!   lane: pending --pace--> cached? --yes--> arrived
//!                              \-----no---> asked --come--> arrived
//!                                                \--lost--> failed
//! ```
//! # Invariants
//! - A look sees to a few pieces that have not come: the first that were asked for come first.
//! - What does not come is given up after a while, as the kernel drops what it cannot do.

use std::ops::Range;
use std::sync::Arc;

use forerun_core::device::estimate;
use forerun_core::pace::{self, Step};
use forerun_core::units::{FileId, Nanos};

use super::{AHEAD_ONE_IN, Access, Asked, Drive, FILES_MAX, facts};
use crate::asks::{Ask, Source};
use crate::kernel::{self, Residency};
use crate::lanes::{PAGE, Piece, index};
use crate::readers::LaneId;

impl Drive {
    /// Looks what has come, and asks for more.
    pub(crate) fn go_on(&mut self, now: Nanos) {
        self.see_arrivals(now);
        for at in 0..self.lanes.len() {
            self.release(now, LaneId(u32::try_from(at).expect("below LANES_MAX")));
        }
        self.refuse(now);
    }

    fn see_arrivals(&mut self, now: Nanos) {
        let mut absent = 0;
        let mut at = 0;
        while at < self.asked.len() && absent < ABSENT_MAX {
            let asked = &self.asked[at];
            let source = self.files.get(&asked.file).and_then(|file| file.source.as_ref());
            let waited = now.since(asked.since);
            let has_come = source.is_none_or(|source| has_come(source, &asked.piece, waited));
            if !has_come && waited < LOST_AFTER {
                absent += 1;
                at += 1;
                continue;
            }
            let Some(asked) = self.asked.remove(at) else { return };
            if has_come {
                self.learn(&asked, waited);
                self.arrived(now, &asked.piece);
            } else {
                self.failed(now, &asked.piece);
            }
        }
        let device = |asked: &Asked| self.files.get(&asked.file).map(|file| file.key.0);
        for (&key, access) in &mut self.access {
            access.is_idle = !self.asked.iter().any(|asked| device(asked) == Some(key));
        }
    }

    /// What was asked for came in this time. Short pieces and such that were cached in part come
    /// sooner, and tell nothing of others.
    pub(super) fn learn(&mut self, asked: &Asked, waited: Nanos) {
        let Some(row) = self.files.get(&asked.file) else { return };
        let bytes = u64::from(asked.piece.count()) * PAGE;
        let is_long = row.source.as_ref().is_some_and(|source| bytes >= source.chunk_bytes / 2);
        if is_long && asked.is_cold && self.access.len() < FILES_MAX {
            let access = self.access.entry(row.key.0).or_insert(Access::of(waited));
            access.learn(waited);
        }
    }

    /// Asks for what is pending of `lane`, as far as its pace allows.
    fn release(&mut self, now: Nanos, lane: LaneId) {
        loop {
            let lead = self.core_stats().ahead_unread.saturating_sub(self.pending_pages) * PAGE;
            let Some(row) = self.lanes[lane.0 as usize].as_mut() else { return };
            let Some(piece) = row.pending.front() else { return };
            let Some(file) = self.files.get(&row.file) else { return };
            let Some(source) = file.source.clone() else { return };
            let Range { start, end } = piece.pages();
            if start * PAGE >= file.version.bytes {
                let gone = start..u64::MAX;
                self.give_up(now, lane, &gone);
                continue;
            }
            let file_end = file.version.bytes;
            // A stream that goes backward is seen in a mirror.
            let goes_back = end * PAGE <= row.main;
            let mirrored = |at: u64| file_end.saturating_sub(at);
            let main = if goes_back { mirrored(row.main) } else { row.main };
            let ahead = if goes_back { mirrored(end * PAGE) } else { start * PAGE };
            let access = self.access.get(&file.key.0);
            let device = access.map(|access| estimate::Facts {
                access: access.shortest,
                // Its transfer is in that.
                bytes_per_second: u64::MAX,
                ..facts(self.bounds.limit_bytes)
            });
            let step = row.pace.decide(&pace::Facts {
                main,
                ahead,
                end: file_end,
                chunk: source.chunk_bytes,
                free: self.memory_bytes,
                rate: row.rate.bytes_per_second,
                device,
                late: std::mem::take(&mut row.late),
                slowdown: access.map_or(0, Access::slowdown),
            });
            let Step::Read { bytes, .. } = step else { return };
            let count = piece.frames.len().min(index(bytes.div_ceil(PAGE)));
            let bytes = count as u64 * PAGE;
            let budget = self.bounds.budget_bytes.min(self.memory_bytes / AHEAD_ONE_IN);
            if lead + bytes > budget || !self.asks.has_room() {
                return;
            }
            let file = row.file;
            let Some(mut piece) = row.pending.pop_front() else { return };
            if count < piece.frames.len() {
                let rest = if goes_back {
                    let near = piece.frames.split_off(piece.frames.len() - count);
                    let first = end - near.len() as u64;
                    std::mem::replace(&mut piece, Piece { first, frames: near })
                } else {
                    let frames = piece.frames.split_off(count);
                    Piece { first: start + count as u64, frames }
                };
                row.pending.push_front(rest);
            }
            let distance = if goes_back {
                row.main - piece.first * PAGE
            } else {
                piece.pages().end * PAGE - row.main.min(piece.pages().end * PAGE)
            };
            self.pending_pages -= count as u64;
            self.ask(now, file, &source, piece, distance);
        }
    }

    fn ask(&mut self, now: Nanos, file: FileId, source: &Arc<Source>, piece: Piece, distance: u64) {
        let pages = piece.pages();
        let range = pages.start * PAGE..pages.end * PAGE;
        let bytes = range.end - range.start;
        let cached = cached_pages(source, &range);
        if cached == kernel::pages(&range) {
            self.counts.bytes_cached += bytes;
            return self.arrived(now, &piece);
        }
        self.counts.asks += 1;
        self.counts.bytes_asked += bytes;
        self.counts.lead_bytes_max = self.counts.lead_bytes_max.max(distance);
        self.asks.push(Ask { source: Arc::clone(source), range });
        self.asked.push_back(Asked { file, piece, since: now, is_cold: cached == 0 });
    }
}

/// How much of `range` is cached, as far as can be told. It is about to be asked for.
fn cached_pages(source: &Source, range: &Range<u64>) -> u64 {
    match kernel::cached(&source.file, range) {
        Ok(Residency::Pages(count)) => count,
        // Where the last page is, all is.
        Ok(Residency::Unknown) if is_ready(source, range.end) == Some(true) => kernel::pages(range),
        Ok(Residency::Unknown) | Err(_) => 0,
    }
}

/// Whether the bytes of `piece`, which were asked for, are there.
fn has_come(source: &Source, piece: &Piece, waited: Nanos) -> bool {
    let end = piece.pages().end * PAGE;
    match kernel::absent(&source.file, &(end - PAGE..end)) {
        Ok(Some(absent)) => absent.is_empty(),
        Ok(None) => is_ready(source, end).unwrap_or(waited >= COMES_AFTER),
        Err(_) => waited >= COMES_AFTER,
    }
}

/// Whether the page before `end` can be read without waiting, where the file system tells.
fn is_ready(source: &Source, end: u64) -> Option<bool> {
    source.probe()?.is_ready(end)
}

/// Of what is on its way, so many pieces that have not come are looked at.
const ABSENT_MAX: usize = 8;
/// What has not come by then is not coming.
const LOST_AFTER: Nanos = Nanos::from_millis(10_000);
/// Where the kernel does not tell what has come.
const COMES_AFTER: Nanos = Nanos::from_millis(100);
