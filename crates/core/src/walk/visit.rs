//! Uses of entries: which walks go on, which begin, and which end.
//!
//! ```text
//!   use --look up--> entry --owned by a walk--> that one goes on, its request is used
//!                          `-of no walk-------> each is tried; none: a new candidate
//! ```
//! # Invariants
//! - Two walks that go on to the same entry alike become one.
//! - A walk that ends has no request ahead.

use super::cursor::{Progress, Verdict, WalkCursor, WalkState};
use super::directories::{Level, Lookup};
use super::issue::StepEnd;
use super::{Spot, Walks};

impl Walks {
    /// A use in `dir` is one of every directory above it, too. The walk goes by the lowest that is
    /// listed.
    pub(super) fn meet(&mut self, dir: u32, hash: u64, level: Level) {
        if !self.directories.is_known(dir) {
            return;
        }
        self.touches += 1;
        self.directories.renew(dir);
        let (mut met, mut next) = (None, Some((dir, hash, level)));
        while let Some((dir, hash, level)) = next {
            match self.directories.look_up(dir, hash) {
                Lookup::Found(spot) if met.is_none() => met = Some((spot, level)),
                Lookup::Found(spot) => self.enter(spot),
                Lookup::Absent if met.is_none() => {
                    self.counts.unknown += 1;
                    return;
                }
                Lookup::Absent => {}
                Lookup::Unlisted => {
                    if self.directories.note_unlisted(dir, hash) {
                        self.want_listing(dir);
                    }
                }
            }
            next = self.directories.parent(dir).map(|(dir, hash)| (dir, hash, Level::Head));
        }
        if let Some((spot, level)) = met {
            self.visit(spot, level);
        }
    }

    /// The program is in the directory at `spot`.
    fn enter(&mut self, spot: Spot) {
        let row = self.directories.row_mut(spot);
        row.used = row.used.max(Level::Head);
        if row.owner.is_some() {
            self.use_requested(spot);
        }
    }

    /// The program uses the entry at `spot`: the walks that it belongs to go on.
    fn visit(&mut self, spot: Spot, level: Level) {
        let row = self.directories.row_mut(spot);
        let (is_new, is_deeper) = (row.used == Level::Nothing, level > row.used);
        row.used = row.used.max(level);
        let owner = row.owner;
        if owner.is_some() {
            self.use_requested(spot);
        }
        // What a walk has requested belongs to that walk.
        let tried = match owner.map(usize::from) {
            Some(owner) if self.is_active(owner) => owner..owner + 1,
            _ => 0..self.cursors.len(),
        };
        // Where all uses are seen there are no others. Where requests take the arm from the program
        // a walk is given up as soon as it is in doubt.
        let is_strict = self.settings.sees_all || self.seeks;
        let mut is_known = false;
        let mut moved: Option<usize> = None;
        for which in tried {
            let Some(walk) = &mut self.cursors[which] else { continue };
            let is_own = owner.is_some_and(|owner| usize::from(owner) == which);
            let to = (spot, level);
            let progress = walk.advance(&self.directories, to, is_own, is_strict, &self.settings);
            self.counts.examined += core::mem::take(&mut walk.examined);
            if progress == Progress::None {
                continue;
            }
            (is_known, walk.last_use) = (true, self.touches);
            if walk.state == WalkState::Candidate && walk.is_recognised(self.failures) {
                walk.start(&self.settings);
                self.counts.walks += 1;
            }
            self.pass(which);
            moved = match moved {
                Some(other) if progress == Progress::Moves => Some(self.join(other, which)),
                None if progress == Progress::Moves => Some(which),
                other => other,
            };
        }
        if is_known || !is_deeper {
            return;
        }
        for which in 0..self.cursors.len() {
            let is_here = |walk: &WalkCursor| self.directories.is_within(spot.dir, walk.top);
            if is_new && self.cursors[which].as_ref().is_some_and(is_here) {
                self.judge(which, false);
            }
        }
        let which = self.free_walk();
        self.cursors[which] = Some(WalkCursor::new(&self.directories, spot, self.touches));
    }

    fn is_active(&self, which: usize) -> bool {
        self.cursors[which].as_ref().is_some_and(|walk| walk.state == WalkState::Active)
    }

    /// Two walks that went on to the same entry are one, if they go on alike: that which is further
    /// goes on. Returns it.
    fn join(&mut self, a: usize, b: usize) -> usize {
        let worth = |which: usize| {
            let walk = self.cursors[which].as_ref().expect("a walk that went on is there");
            let state = match walk.state {
                WalkState::Active => 2,
                WalkState::Resting { .. } => 1,
                WalkState::Candidate => 0,
            };
            (state, walk.ahead.len())
        };
        let (kept, joined) = if worth(a) >= worth(b) { (a, b) } else { (b, a) };
        let Some(other) = self.cursors[joined].take() else { return kept };
        let owner = u8::try_from(kept).expect("walks are bounded");
        for step in &other.ahead {
            self.directories.row_mut(step.spot).owner = Some(owner);
        }
        let walk = self.cursors[kept].as_mut().expect("a walk that went on is there");
        walk.join(other);
        kept
    }

    /// A place for a candidate: a free one, or that of the least recently used candidate or walk.
    fn free_walk(&mut self) -> usize {
        let is_candidate = |walk: &&WalkCursor| walk.state == WalkState::Candidate;
        let candidates = self.cursors.iter().flatten().filter(is_candidate).count();
        let max = usize::from(self.settings.walks_max);
        let candidates_max = CANDIDATES_MAX.min(max);
        if candidates < candidates_max {
            if let Some(free) = self.cursors.iter().position(Option::is_none) {
                return free;
            }
            if self.cursors.len() < max {
                self.cursors.push(None);
                return self.cursors.len() - 1;
            }
        }
        let age = |which: &usize| {
            let walk = self.cursors[*which].as_ref();
            walk.map(|walk| (!is_candidate(&walk), walk.last_use))
        };
        let places = (0..self.cursors.len()).filter(|which| age(which).is_some());
        let oldest = places.min_by_key(age).expect("there are candidates or walks");
        self.close(oldest);
        oldest
    }

    /// Ends a walk; what is ahead of it is unused.
    fn close(&mut self, which: usize) {
        let Some(walk) = &self.cursors[which] else { return };
        for at in (0..walk.ahead.len()).rev() {
            self.settle_step(which, at, StepEnd::Unused);
        }
        let walk = self.cursors[which].take().expect("it was there");
        assert!(walk.ahead.is_empty() && walk.ahead_bytes == 0, "every request is settled");
    }

    /// What was requested in `dir` is unused, and walks that are there end.
    pub(super) fn forget(&mut self, dir: u32) {
        for which in 0..self.cursors.len() {
            let Some(walk) = &self.cursors[which] else { continue };
            if walk.at.dir == dir || walk.top == dir {
                self.close(which);
                continue;
            }
            let mut at = walk.ahead.len();
            while at > 0 {
                at -= 1;
                if self.cursors[which].as_ref().is_some_and(|walk| walk.ahead[at].spot.dir == dir) {
                    self.settle_step(which, at, StepEnd::Unused);
                }
            }
        }
    }

    pub(super) fn judge(&mut self, which: usize, is_hit: bool) {
        let Some(walk) = &mut self.cursors[which] else { return };
        if walk.state != WalkState::Active {
            return;
        }
        self.counts.hits += u64::from(is_hit);
        self.counts.misses += u64::from(!is_hit);
        self.failures = match walk.judge(is_hit, &self.settings) {
            Verdict::Open => self.failures,
            Verdict::Right => 0,
            Verdict::Wrong => (self.failures + 1).min(FAILURES_MAX),
        };
    }
}

/// Walks that went wrong one after the other, as far as they count.
const FAILURES_MAX: u8 = 13;
/// Candidates among the walks.
const CANDIDATES_MAX: usize = 16;
