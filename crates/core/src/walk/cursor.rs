//! One walk: where it is, in which order it goes, and what was requested ahead of it.
//!
//! ```text
//!   candidate --3 entries in one order--> active --below 80 % of 8--> resting --64 entries--\
//!                                           ^----------------------------------------------/
//! ```
//! # Invariants
//! - A candidate and a walk at rest request nothing.
//! - What is ahead is at most `window_max` entries from the position on, and `ahead_bytes_max`.
//! - Every order is tried with each entry, so that a walk that goes another way is followed there.

use alloc::vec::Vec;

use super::directories::{Directories, Level, RECOGNISED_AFTER};
use super::habits::Habits;
use super::order::{self, Sequence};
use super::path::{Horizon, Path, Reach};
use super::tree::Chain;
use super::{EntryKind, Settings, Spot, WalkRequestId};
use crate::units::Nanos;

/// See the module.
#[derive(Debug)]
pub(super) struct WalkCursor {
    /// The entry that was used last.
    pub(super) at: Spot,
    /// The highest directory that it was seen in.
    pub(super) top: u32,
    /// Entries used one after the other in each order, less one.
    runs: [u8; order::COUNT],
    /// The order that it is followed in.
    pub(super) order: usize,
    pub(super) state: WalkState,
    pub(super) habits: Habits,
    pub(super) window: u32,
    /// Which of the last eight predictions were wrong, the newest in the lowest bit.
    misses: u8,
    /// Predictions that were right since one was wrong.
    hits: u8,
    /// Jumps to what was not requested since a prediction was right.
    jumps: u8,
    /// Requests that are not settled.
    pub(super) ahead: Vec<Step>,
    /// Their bytes; those in flight count as many as they may bring.
    pub(super) ahead_bytes: u64,
    pub(super) last_use: u64,
    /// The use that it began with.
    pub(super) born: u64,
    /// Entries that it went on by since it was looked what it went past.
    pub(super) moves: u8,
    /// Whether something has changed since the window was last filled.
    pub(super) is_open: bool,
    /// Whether inodes ascend in its order, in the last directory where that could be told.
    pub(super) is_by_place: bool,
    /// How far it has looked from its position, without entering directories and with, next to it
    /// and for a jump.
    horizons: [[Option<Horizon>; 2]; 2],
    /// Entries that were looked at for it, since that was counted.
    pub(super) examined: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkState {
    Candidate,
    Active,
    Resting {
        /// Entries until it is tried again.
        left: u8,
    },
}

/// A request for an entry that was neither used nor passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) id: WalkRequestId,
    pub(super) spot: Spot,
    pub(super) bytes: u64,
    /// What it is expected to bring, then what it has brought.
    pub(super) expected: u64,
    pub(super) is_complete: bool,
    /// What its use saves.
    pub(super) saves: Nanos,
    /// Entries that were used since the walk went past it.
    pub(super) behind: u8,
}

/// What a use of an entry is to a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing.
    None,
    /// One more use of the entry at its position, or of one just before.
    Stays,
    /// The walk went on to it.
    Moves,
}

impl WalkCursor {
    /// A candidate at `spot`.
    pub(super) fn new(directories: &Directories, spot: Spot, last_use: u64) -> Self {
        let mut habits = Habits::default();
        if let Some(row) = directories.row(spot) {
            habits.touch(spot, row);
        }
        Self {
            at: spot,
            top: spot.dir,
            runs: [0; order::COUNT],
            order: 0,
            state: WalkState::Candidate,
            habits,
            window: 0,
            misses: 0,
            hits: 0,
            jumps: 0,
            ahead: Vec::new(),
            ahead_bytes: 0,
            last_use,
            born: last_use,
            moves: 0,
            is_open: false,
            is_by_place: false,
            horizons: Default::default(),
            examined: 0,
        }
    }

    /// The program uses an entry, as deep as said, which was requested by this walk if it is
    /// `owned`. Where `is_strict`, jumps past what was requested are short, and what does not come
    /// next is evidence against its order.
    pub(super) fn advance(
        &mut self,
        directories: &Directories,
        (spot, level): (Spot, Level),
        owned: bool,
        is_strict: bool,
        settings: &Settings,
    ) -> Progress {
        if spot == self.at {
            return self.touch(directories, spot);
        }
        if owned && directories.is_before(self.order, spot, &Chain::new(directories, self.at)) {
            return self.touch(directories, spot);
        }
        if self.is_entered_late(directories, spot) {
            return self.touch(directories, spot);
        }
        let (to, is_candidate) = ((spot, level), self.state == WalkState::Candidate);
        let comes_next = self.reaches(directories, self.order, to, Reach::NEXT).is_some();
        // An order that has held for long is tried alone.
        let is_settled = comes_next && self.runs[self.order] >= SETTLED_RUN;
        if !comes_next && !owned && (is_candidate || !self.jumps(directories, to, is_strict)) {
            let least = if is_candidate { 1 } else { RECOGNISED_RUN };
            let another = (0..order::COUNT).find(|&order| {
                self.runs[order].saturating_add(1) >= least
                    && self.run_with(directories, order, to).is_some()
            });
            match another {
                Some(order) if is_candidate || !self.is_just_after(directories, to, JUMP_MAX) => {
                    self.order = order;
                }
                None if is_candidate && self.runs[self.order] == 0 => return Progress::None,
                None if is_candidate && !self.is_just_after(directories, to, 0) => {
                    return Progress::None;
                }
                None if !self.is_just_after(directories, to, JUMP_MAX) => return Progress::None,
                Some(_) | None => return self.touch(directories, spot),
            }
        }
        let fits = core::array::from_fn(|order| {
            let is_tried = !is_settled || order == self.order;
            is_tried.then(|| self.run_with(directories, order, to)).flatten()
        });
        // What does not come next may follow what was not seen; where reads alone are told, one of
        // what was requested does.
        let keeps_order = !is_strict || owned && directories.tells_reads(spot.dir);
        self.move_to(directories, spot, &fits, keeps_order, settings);
        Progress::Moves
    }

    /// Whether `spot` is a directory of those behind whose entries the walk goes on.
    fn is_entered_late(&self, directories: &Directories, spot: Spot) -> bool {
        let is_late = self.state != WalkState::Candidate
            && directories.sequence(spot.dir, self.order).is_some_and(Sequence::enters_late)
            && directories
                .row(spot)
                .is_some_and(|row| row.kind == EntryKind::Directory && row.used >= Level::Head);
        is_late && Chain::new(directories, self.at).in_directory(spot.dir).is_some()
    }

    fn touch(&mut self, directories: &Directories, spot: Spot) -> Progress {
        if let Some(row) = directories.row(spot) {
            self.habits.touch(spot, row);
        }
        self.horizons = Default::default();
        self.is_open = true;
        Progress::Stays
    }

    /// The run of an order with `to`, if that comes next in it.
    fn run_with(
        &mut self,
        directories: &Directories,
        order: usize,
        to: (Spot, Level),
    ) -> Option<(u8, bool)> {
        let goes_on = self.state == WalkState::Candidate && self.runs.iter().any(|&run| run > 0);
        if goes_on && self.runs[order] == 0 {
            return None;
        }
        let enters = self.reaches(directories, order, to, Reach::NEXT)?;
        Some((self.runs[order].saturating_add(1), enters))
    }

    /// Whether the walk goes on to `to` past what was requested ahead of it and a little more, and
    /// with what that has brought besides, unless `is_strict`, or nothing was right for long.
    fn jumps(&mut self, directories: &Directories, to: (Spot, Level), is_strict: bool) -> bool {
        let is_far = !is_strict && self.state == WalkState::Active && self.jumps < JUMPS_MAX;
        let near = self.ahead.len() + JUMP_MAX;
        let far = Reach { unused: near * NEIGHBOURS, passed: PASSED_FILES_JUMP_MAX };
        let reach = if is_far { far } else { Reach::near(near) };
        let goes_on = self.reaches(directories, self.order, to, reach).is_some();
        self.jumps = self.jumps.saturating_add(u8::from(goes_on));
        goes_on
    }

    /// Whether no more than `reach` says lies between the position and
    /// `to`, and if so, whether with those in directories.
    fn reaches(
        &mut self,
        directories: &Directories,
        order: usize,
        (to, level): (Spot, Level),
        reach: Reach,
    ) -> Option<bool> {
        let Self { habits, at, horizons, examined, .. } = self;
        let chain = Chain::new(directories, *at);
        if directories.is_before(order, to, &chain) {
            return None;
        }
        let is_around = chain.in_directory(to.dir).is_some();
        [habits.enters, !habits.enters].into_iter().find(|&enters| {
            if !enters && !is_around {
                return false;
            }
            let path =
                Path { from: *at, to, level, order, enters, reach, examined_max: EXAMINED_MAX };
            let known = &mut horizons[usize::from(enters)][usize::from(reach != Reach::NEXT)];
            if known.as_ref().is_some_and(|horizon| horizon.is_beyond(directories, &path)) {
                return false;
            }
            let (is_short, horizon) = path.follow(directories, habits, examined);
            *known = horizon.or(known.take());
            is_short
        })
    }

    /// Whether at most `limit` such entries lie between `spot` and the position.
    fn is_just_after(
        &mut self,
        directories: &Directories,
        (spot, level): (Spot, Level),
        limit: usize,
    ) -> bool {
        let Self { habits, at, order, examined, .. } = self;
        let (order, enters) = (*order, habits.enters);
        let chain = Chain::new(directories, spot);
        let is_around = enters || chain.in_directory(at.dir).is_some();
        if !is_around || directories.is_before(order, *at, &chain) {
            return false;
        }
        let (reach, examined_max) = (Reach::near(limit), LATE_MAX);
        let path = Path { from: spot, to: *at, level, order, enters, reach, examined_max };
        path.follow(directories, habits, examined).0
    }

    fn move_to(
        &mut self,
        directories: &Directories,
        spot: Spot,
        fits: &Fits,
        keeps_order: bool,
        settings: &Settings,
    ) {
        self.note_passed(directories, spot, settings);
        let is_candidate = self.state == WalkState::Candidate;
        let kept = self.runs[self.order];
        self.runs = fits.map(|fit| fit.map_or(0, |(run, _)| run));
        // A jump ahead is evidence neither for the order nor for another one.
        if self.runs.iter().all(|&run| run == 0) {
            self.runs[self.order] = kept;
        } else if fits[self.order].is_none() && keeps_order && !is_candidate {
            self.runs[self.order] = kept.min(SETTLED_RUN);
        }
        self.choose();
        if let Some((_, enters)) = fits[self.order] {
            self.habits.enters = enters;
        }
        if spot.dir != self.at.dir
            && let Some(above) = directories.spot_of(spot.dir)
            && let Some(row) = directories.row(above)
            && row.used > Level::Nothing
        {
            self.habits.touch(above, row);
        }
        if !directories.is_within(spot.dir, self.top) {
            self.top = spot.dir;
        }
        self.at = spot;
        self.is_by_place =
            directories.is_by_place(spot.dir, self.order).unwrap_or(self.is_by_place);
        self.touch(directories, spot);
        if let WalkState::Resting { left } = &mut self.state {
            *left -= 1;
            if *left == 0 {
                self.start(settings);
            }
        }
    }

    /// Takes the order that fits longest, but keeps the present one where others fit little longer.
    fn choose(&mut self) {
        let longest = self.runs.iter().copied().max().unwrap_or_default();
        let own = self.runs[self.order];
        if own == 0 || longest > own.saturating_add(RECOGNISED_RUN) {
            let best = self.runs.iter().position(|&run| run == longest);
            self.order = best.expect("one of the runs is the longest");
        }
    }

    /// Notes the classes that the program passed over on its way to `spot`.
    fn note_passed(&mut self, directories: &Directories, spot: Spot, settings: &Settings) {
        let mut at = self.at;
        let mut passed: Vec<u8> = Vec::new();
        for _ in 0..EXAMINED_MAX {
            let next = directories.next(self.order, at, self.habits.enters, None);
            let Some(next) = next else { return };
            at = next;
            if at == spot {
                break;
            }
            let Some(row) = directories.row(at) else { return };
            let is_seen = settings.sees_all
                || row.requested == Level::Nothing
                || directories.is_told(at, self.order);
            if row.used == Level::Nothing && is_seen {
                passed.push(row.class);
            }
        }
        if at == spot {
            for class in passed {
                self.habits.pass(class);
            }
        }
    }

    /// Whether enough entries came in one order: three, and one more for each of the `failures` of
    /// earlier walks.
    pub(super) fn is_recognised(&self, failures: u8) -> bool {
        self.runs[self.order] >= RECOGNISED_RUN + failures
    }

    /// Takes over the evidence and the requests of a walk at the same entry.
    pub(super) fn join(&mut self, other: Self) {
        assert!(self.at == other.at, "walks that join are at the same entry");
        for (run, others) in self.runs.iter_mut().zip(other.runs) {
            *run = (*run).max(others);
        }
        self.ahead.extend(other.ahead);
        self.ahead_bytes += other.ahead_bytes;
    }

    /// Begins to request, with the smallest window.
    pub(super) fn start(&mut self, settings: &Settings) {
        self.state = WalkState::Active;
        self.window = settings.window_min;
        (self.misses, self.hits, self.jumps) = (0, 0, 0);
        self.is_open = true;
    }

    /// Counts a prediction that was right or wrong, and what it says of the walk.
    pub(super) fn judge(&mut self, is_hit: bool, settings: &Settings) -> Verdict {
        assert!(self.state == WalkState::Active, "a walk that requests nothing is not judged");
        self.misses = self.misses << 1 | u8::from(!is_hit);
        self.hits = if is_hit { self.hits.saturating_add(1) } else { 0 };
        if is_hit {
            self.jumps = 0;
            self.window = (self.window * 2).min(settings.window_max);
        }
        if self.misses.count_ones() * 100 > MISSES_PERCENT_MAX * 8 {
            self.state = WalkState::Resting { left: RESTING_ENTRIES };
            return Verdict::Wrong;
        }
        if self.hits >= 8 { Verdict::Right } else { Verdict::Open }
    }
}

/// What the predictions of a walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Open,
    /// The last eight were right.
    Right,
    /// Too many were wrong: it rests.
    Wrong,
}

/// For each order in which an entry comes next: the run with it, and whether directories are
/// entered on the way.
type Fits = [Option<(u8, bool)>; order::COUNT];

/// Entries in one order, less one, after which a walk is taken for one.
#[expect(clippy::cast_possible_truncation, reason = "three")]
const RECOGNISED_RUN: u8 = RECOGNISED_AFTER as u8 - 1;
/// Entries in one order, less one, after which others are not tried while it goes on.
const SETTLED_RUN: u8 = 16;
/// Entries ahead of what was requested, or behind the position, that always belong to a walk.
const JUMP_MAX: usize = 4;
/// Jumps to what was not requested, with nothing right between them, after which none is far.
const JUMPS_MAX: u8 = 8;
/// Files of a class that is never used which may lie in the way of a far jump.
const PASSED_FILES_JUMP_MAX: usize = 128;
/// Inodes in a block of ext4 of 4 KiB: the request for one brings the others, which a poll does not
/// see to be used.
const NEIGHBOURS: usize = 16;
/// Entries that are looked at to find one, and to find the position from one behind it.
const EXAMINED_MAX: usize = 1024;
const LATE_MAX: usize = 256;
/// A walk goes on while no more of the last 8 predictions are wrong.
const MISSES_PERCENT_MAX: u32 = 20;
/// Entries that a stopped walk has to go on for.
const RESTING_ENTRIES: u8 = 64;
