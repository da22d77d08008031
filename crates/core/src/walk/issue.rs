//! Requests: what is issued ahead of the walks, and how each request ends.
//!
//! ```text
//!   at ---> a  b  c  d/ ... window        wanted and not requested yet: a request
//!                    d: x y               once d is listed, x and y come before what follows d
//! ```
//! # Invariants
//! - A request is settled once: used, passed, unused or failed. One that is settled in flight is
//!   remembered until it is complete.
//! - An entry has one request at a time.
//! - The bytes ahead of a walk, and of all, are bounded; what is in flight counts as much as it may
//!   bring.
//! - What is expected to be ahead of all walks is [`UNPROVEN_BYTES`], or half of what was used.

use alloc::vec::Vec;

use super::cursor::{Step, WalkState};
use super::directories::{Directories, Level, Lookup};
use super::tree::Chain;
use super::{DirectoryId, EntryKind, Spot, WalkOutcome, WalkRequest, WalkRequestId, Walks, Want};
use crate::units::Nanos;

impl Walks {
    /// The listing of `dir` is requested once there is room. Of more than a window, that which has
    /// waited longest is left out: the program is elsewhere by now, and comes back to be met again.
    pub(super) fn want_listing(&mut self, dir: u32) {
        if self.unlisted.contains(&dir) {
            return;
        }
        let max = self.settings.window_max as usize;
        if self.unlisted.len() >= max
            && let Some(oldest) = self.unlisted.pop_front()
        {
            self.directories.withdraw(oldest);
        }
        self.unlisted.push_back(dir);
        assert!(self.unlisted.len() <= max, "listings that wait are bounded");
    }

    /// Appends up to `room` requests to `out`: listings, then what is ahead of each walk, in its
    /// order; of the walk that went on last first.
    pub fn issue(&mut self, room: usize, out: &mut Vec<WalkRequest>) {
        let end = out.len() + room;
        while out.len() < end
            && let Some(dir) = self.unlisted.pop_front()
        {
            if self.directories.is_known(dir) && !self.directories.is_listed(dir) {
                let id = self.next_request_id();
                self.listings.insert(id, dir);
                self.counts.listings += 1;
                let dir = DirectoryId(dir);
                out.push(WalkRequest { id, dir, index: None, want: Want::Listing });
            }
        }
        let open = |which: &usize| {
            let walk = self.cursors[*which].as_ref();
            walk.is_some_and(|walk| walk.state == WalkState::Active && walk.is_open)
        };
        let mut filled: Vec<usize> = (0..self.cursors.len()).filter(open).collect();
        filled.sort_by_key(|&which| {
            core::cmp::Reverse(self.cursors[which].as_ref().map(|walk| walk.last_use))
        });
        for which in filled {
            self.fill(which, end, out);
        }
        assert!(out.len() <= end, "no more requests than there is room");
    }

    /// Requests what is wanted in the window of a walk, until `out` has `end` requests.
    fn fill(&mut self, which: usize, end: usize, out: &mut Vec<WalkRequest>) {
        let Some(walk) = &self.cursors[which] else { return };
        let wanted = walk.habits.wanted(&self.directories, self.settings.sees_all);
        let (order, enters, top) = (walk.order, walk.habits.enters, walk.top);
        let (mut at, mut ahead) = (walk.at, 0);
        let mut is_by_place = walk.is_by_place;
        let inside = self.directories.mean_entries().min(walk.window / UNKNOWN_ONE_IN);
        for _ in 0..self.settings.window_max as usize * EXAMINED_FACTOR {
            let walk = self.cursors[which].as_ref().expect("the walk is there");
            let next = self.directories.next(order, at, enters, Some(top));
            let Some(next) = next.filter(|_| ahead < walk.window) else { break };
            at = next;
            let row = self.directories.row(at).expect("a walk goes over listings");
            is_by_place = self.directories.is_by_place(at.dir, order).unwrap_or(is_by_place);
            let level = walk.habits.wants(row, wanted);
            if row.used >= level {
                continue;
            }
            ahead += 1;
            if enters && self.directories.is_unknown(at) {
                // What lies in it comes before what follows it.
                ahead += inside;
            }
            if row.requested >= level || row.owner.is_some() || self.seeks && is_by_place {
                continue;
            }
            let want = want(row.kind, level);
            if out.len() == end || !self.has_budget(which, want) {
                return;
            }
            self.request(which, at, level, want, out);
        }
        self.cursors[which].as_mut().expect("the walk is there").is_open = false;
    }

    fn request(
        &mut self,
        which: usize,
        spot: Spot,
        level: Level,
        want: Want,
        out: &mut Vec<WalkRequest>,
    ) {
        let (id, bytes) = (self.next_request_id(), self.bytes_of(want));
        let expected = self.expected_of(want);
        let row = self.directories.row_mut(spot);
        assert!(row.owner.is_none() && row.requested < level, "an entry is requested once");
        (row.owner, row.requested) = (u8::try_from(which).ok(), level);
        let walk = self.cursors[which].as_mut().expect("the walk is there");
        let (is_complete, saves) = (false, Nanos(0));
        walk.ahead.push(Step { id, spot, bytes, expected, is_complete, saves, behind: 0 });
        walk.ahead_bytes += bytes;
        self.expected_bytes += expected;
        assert!(walk.ahead_bytes <= self.settings.ahead_bytes_max, "a walk keeps its bound");
        self.ahead_bytes += bytes;
        assert!(self.ahead_bytes <= self.settings.budget_bytes, "all walks keep the budget");
        self.counts.requested += 1;
        let (dir, index) = (DirectoryId(spot.dir), Some(u32::from(spot.index)));
        out.push(WalkRequest { id, dir, index, want });
    }

    fn has_budget(&self, which: usize, want: Want) -> bool {
        let (bytes, expected) = (self.bytes_of(want), self.expected_of(want));
        let walk = self.cursors[which].as_ref().expect("the walk is there");
        walk.ahead.len() < self.settings.window_max as usize * AHEAD_FACTOR
            && walk.ahead_bytes + bytes <= self.settings.ahead_bytes_max
            && self.ahead_bytes + bytes <= self.settings.budget_bytes
            && self.expected_bytes + expected <= UNPROVEN_BYTES.max(self.proven_bytes / 2)
    }

    /// Bytes that a request is expected to bring: as many as those before it did.
    fn expected_of(&self, want: Want) -> u64 {
        let bytes_max = self.bytes_of(want);
        match want {
            Want::Inode | Want::Listing => bytes_max,
            Want::Head | Want::Whole => self.file_bytes.min(bytes_max),
        }
    }

    /// Bytes that a request may bring; inodes and listings count a block.
    fn bytes_of(&self, want: Want) -> u64 {
        match want {
            Want::Inode | Want::Listing => BLOCK_BYTES,
            Want::Head => self.settings.head_bytes,
            Want::Whole => self.settings.whole_bytes,
        }
    }

    fn next_request_id(&mut self) -> WalkRequestId {
        self.requests += 1;
        WalkRequestId(self.requests)
    }

    /// The request `id` has ended. The listing of a directory is given before.
    pub fn complete(&mut self, id: WalkRequestId, outcome: WalkOutcome) {
        if let Some(dir) = self.listings.remove(&id) {
            if outcome == WalkOutcome::Failed {
                self.directories.fail(dir);
            }
            return;
        }
        if let Some(used) = self.settled.remove(&id) {
            if let (WalkOutcome::Fetched { bytes, .. }, false) = (outcome, used) {
                self.counts.unused_bytes += bytes;
            }
            return;
        }
        let has = |walk: &super::WalkCursor| walk.ahead.iter().position(|step| step.id == id);
        let mut walks = self.cursors.iter().enumerate();
        let found = walks.find_map(|(which, walk)| Some((which, has(walk.as_ref()?)?)));
        let Some((which, at)) = found else { return };
        let walk = self.cursors[which].as_mut().expect("the walk is there");
        walk.is_open = true;
        match outcome {
            WalkOutcome::Failed => {
                let step = self.take(which, at);
                self.counts.failed += 1;
                assert!(!step.is_complete, "a request ends once");
            }
            WalkOutcome::Fetched { bytes, saves } => {
                let step = &mut walk.ahead[at];
                assert!(!step.is_complete, "a request ends once");
                // What is more than was asked for is not accounted to the walk.
                let bytes = bytes.min(step.bytes);
                let less = step.bytes - bytes;
                (step.bytes, step.is_complete, step.saves) = (bytes, true, saves);
                walk.ahead_bytes -= less;
                self.ahead_bytes -= less;
                self.expected_bytes = self.expected_bytes + bytes - step.expected;
                step.expected = bytes;
                if bytes > 0 {
                    self.file_bytes = (self.file_bytes * (MEAN_OF - 1) + bytes) / MEAN_OF;
                }
            }
        }
    }

    /// Takes a request out of those ahead of a walk.
    fn take(&mut self, which: usize, at: usize) -> Step {
        let walk = self.cursors[which].as_mut().expect("the walk is there");
        let step = walk.ahead.remove(at);
        walk.ahead_bytes -= step.bytes;
        self.ahead_bytes -= step.bytes;
        self.expected_bytes -= step.expected;
        // Its directory may have been dropped.
        if self.directories.row(step.spot).is_some() {
            self.directories.row_mut(step.spot).owner = None;
        }
        step
    }

    /// The request ahead of a walk is settled.
    pub(super) fn settle_step(&mut self, which: usize, at: usize, end: StepEnd) {
        let step = self.take(which, at);
        let is_unused = end == StepEnd::Unused;
        match end {
            StepEnd::Used => {
                self.counts.used += 1;
                self.counts.late += u64::from(!step.is_complete);
            }
            StepEnd::Passed => self.counts.passed += 1,
            StepEnd::Unused => self.counts.unused += 1,
        }
        if !step.is_complete {
            self.settled.insert(step.id, !is_unused);
        } else if is_unused {
            self.counts.unused_bytes += step.bytes;
        } else {
            self.proven_bytes += step.bytes;
            self.gained += step.saves;
        }
    }

    /// Whether the entry of this hash in `dir` waits to be used, fetched from its device.
    pub(super) fn has_fetched(&self, dir: u32, hash: u64) -> bool {
        if !self.directories.is_known(dir) {
            return false;
        }
        let Lookup::Found(spot) = self.directories.look_up(dir, hash) else { return false };
        self.request_for(spot).is_some_and(|(which, at)| {
            let step = self.cursors[which].as_ref().map(|walk| walk.ahead[at]);
            step.is_some_and(|step| step.is_complete && step.saves > Nanos(0))
        })
    }

    /// The walk that has requested the entry at `spot`, and which of its requests that is.
    fn request_for(&self, spot: Spot) -> Option<(usize, usize)> {
        let which = usize::from(self.directories.row(spot)?.owner?);
        let walk = self.cursors[which].as_ref().expect("an owner is there");
        let at = walk.ahead.iter().position(|step| step.spot == spot);
        Some((which, at.expect("an owner has the request")))
    }

    /// The entry at `spot`, which was requested, is used.
    pub(super) fn use_requested(&mut self, spot: Spot) {
        let Some((which, at)) = self.request_for(spot) else { return };
        self.settle_step(which, at, StepEnd::Used);
        self.judge(which, true);
    }

    /// The walk went on. What it went past is settled after some more entries: threads of a program
    /// use neighbours in any order. That is looked for after every [`PASS_EVERY`] of them, or where
    /// much is ahead that may not be.
    pub(super) fn pass(&mut self, which: usize) {
        let Some(walk) = &mut self.cursors[which] else { return };
        walk.moves = walk.moves.saturating_add(1);
        if walk.moves < PASS_EVERY && walk.ahead.len() < walk.window as usize * 3 / 2 {
            return;
        }
        let (moves, order) = (core::mem::take(&mut walk.moves), walk.order);
        let chain = Chain::new(&self.directories, walk.at);
        let mut unseen = 0;
        for step in &mut walk.ahead {
            if self.directories.is_before(walk.order, step.spot, &chain) {
                step.behind = step.behind.saturating_add(moves);
                unseen += usize::from(step.is_complete && !step.is_told(&self.directories, order));
            }
        }
        let mut at = 0;
        while let Some(step) = self.cursors[which].as_ref().and_then(|walk| walk.ahead.get(at)) {
            let is_seen = self.settings.sees_all || step.is_told(&self.directories, order);
            // A poll does not see the use of what was there already, and where reads are told one
            // is not looked for each time.
            let is_open = step.is_complete || self.directories.tells_reads(step.spot.dir);
            let is_over = step.behind >= BEHIND_MAX;
            if step.behind > 0 && is_open && !is_seen {
                if is_over || unseen > usize::from(BEHIND_MAX) {
                    self.settle_step(which, at, StepEnd::Passed);
                    unseen = unseen.saturating_sub(1);
                    continue;
                }
            } else if is_over {
                self.settle_step(which, at, StepEnd::Unused);
                self.judge(which, false);
                continue;
            }
            at += 1;
        }
    }
}

impl Step {
    /// Whether a use of it is told; no byte of an empty file is read, and many programs map those
    /// that are not small.
    fn is_told(&self, directories: &Directories, order: usize) -> bool {
        let is_read = (1..MAPPED_BYTES_MIN).contains(&self.bytes);
        directories.is_told(self.spot, order) && (is_read || !self.is_complete)
    }
}

/// How a request ends that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepEnd {
    Used,
    /// It was there when the walk went past it, and its use is not seen.
    Passed,
    Unused,
}

fn want(kind: EntryKind, level: Level) -> Want {
    match (kind, level) {
        (_, Level::Nothing | Level::Inode) | (EntryKind::Other, _) => Want::Inode,
        (EntryKind::Directory, _) => Want::Listing,
        (EntryKind::File, Level::Head) => Want::Head,
        (EntryKind::File, Level::Whole) => Want::Whole,
    }
}

/// Entries that are looked at for each of a full window.
const EXAMINED_FACTOR: usize = 4;
/// Requests ahead of a walk for each entry of a full window: those in directories that were listed
/// late come on top of those behind.
const AHEAD_FACTOR: usize = 2;
const BLOCK_BYTES: u64 = 4_096;
/// Entries that a walk goes on for until what it went past is unused.
const BEHIND_MAX: u8 = 8;
/// Entries after which is looked what the walk went past.
const PASS_EVERY: u8 = 4;
/// The part of a window that a directory counts at most of which the entries are not known.
const UNKNOWN_ONE_IN: u32 = 16;
/// Files that programs map, from this size on: LLVM does from 16 KiB, git from 32 KiB.
const MAPPED_BYTES_MIN: u64 = 16 << 10;
/// Bytes that may be ahead of walks of which nothing was used yet.
const UNPROVEN_BYTES: u64 = 8 << 20;
/// What a file is taken to have is the mean of about so many that have come.
const MEAN_OF: u64 = 16;
/// What the first file is taken to have.
pub(super) const FILE_BYTES_FIRST: u64 = 64 << 10;
